"""How much of some files the page cache holds, and making that all or nothing."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

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
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(handle)  # what is not on the disk yet is not forgotten
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def resident_bytes(files: Iterable[Path]) -> int:
    """Bytes of files that lie in the page cache, as ``mincore`` tells."""
    libc = ctypes.CDLL(None, use_errno=True)
    total = 0
    for path in files:
        size = path.stat().st_size
        if size == 0:
            continue
        pages = np.memmap(path, np.uint8, mode="r")  # a map whose address is to be had
        present = np.empty(-(-size // mmap.PAGESIZE), dtype=np.uint8)
        failed = libc.mincore(
            ctypes.c_void_p(pages.ctypes.data),
            ctypes.c_size_t(size),
            ctypes.c_void_p(present.ctypes.data),
        )
        if failed:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
        total += min(int((present & 1).sum()) * mmap.PAGESIZE, size)
    return total
