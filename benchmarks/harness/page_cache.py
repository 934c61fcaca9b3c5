"""How much of some files the page cache holds, and making that all or nothing."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pyg_graphzero.util.system import drop_pages

_BLOCK = 1 << 22


def warm(files: Iterable[Path]) -> None:
    """Reads files once, so that the page cache holds them if it has room."""
    buffer = bytearray(_BLOCK)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def drop(files: Iterable[Path]) -> None:
    """Asks the kernel to forget the pages of files; those that a process has mapped stay."""
    for path in files:
        drop_pages(path)


def resident_bytes(files: Iterable[Path]) -> int:
    """Bytes of files that lie in the page cache."""
    return sum(_cached_bytes(path) for path in files)


def _cached_bytes(path: Path) -> int:
    """Bytes of a file that lie in the page cache, as ``mincore`` tells."""
    size = path.stat().st_size
    if size == 0:
        return 0
    pages = np.memmap(path, np.uint8, mode="r")  # a map whose address is to be had
    present = np.empty(-(-size // mmap.PAGESIZE), dtype=np.uint8)
    failed = ctypes.CDLL(None, use_errno=True).mincore(
        ctypes.c_void_p(pages.ctypes.data),
        ctypes.c_size_t(size),
        ctypes.c_void_p(present.ctypes.data),
    )
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    return min(int((present & 1).sum()) * mmap.PAGESIZE, size)
