"""How much of some files the page cache holds, and making that nothing."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pyg_graphzero.util.system import drop_pages


def drop(files: Iterable[Path]) -> None:
    """Asks the kernel to forget the pages of files; those that a process has mapped stay."""
    for path in files:
        drop_pages(path)


def resident_bytes(files: Iterable[Path]) -> int:
    """Bytes of files that lie in the page cache."""
    return sum(map(_cached_bytes, files))


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
