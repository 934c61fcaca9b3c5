"""How much of some files the page cache holds, and making that all or nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyg_graphzero.util.system import cached_bytes, drop_pages

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
    return sum(cached_bytes(path) for path in files)
