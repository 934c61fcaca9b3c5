"""Sizes in bytes, as people write and read them."""

from __future__ import annotations

import re
from numbers import Real
from pathlib import Path
from typing import Any

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_TOO_LARGE = 1 << 63
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_size(value: float | str, option: str, others: str = "") -> int:
    """Bytes of ``8_000_000_000``, ``8e9``, ``"8GB"`` (10⁹) or ``"8GiB"`` (2³⁰).

    Errors say that the option takes ``others``, too.

    Raises:
        ValueError: It is no size.
    """
    size: Any = value
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        factor = None if match is None else _UNITS.get(match[2].upper())
        size = None if match is None or factor is None else float(match[1]) * factor
    is_number = isinstance(size, Real) and not isinstance(size, bool)
    if not is_number or not abs(size) < _TOO_LARGE:  # NaN is neither more nor less
        raise ValueError(
            f"{option}={value!r}: expected {others}a size such as 4GB, 512MiB or bytes"
        )
    if size < 1:
        raise ValueError(f"{option}={value!r}: expected {others}a positive size")
    return int(size)


def format_bytes(num_bytes: float) -> str:
    """``1536`` → ``"1.5 KiB"``."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if num_bytes < 1024 or unit == "GiB":
            break
        num_bytes /= 1024
    return f"{num_bytes:,.0f} {unit}" if unit == "bytes" else f"{num_bytes:,.1f} {unit}"


def folder_bytes(folder: Path) -> int:
    """Bytes of all files in a folder and below."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
