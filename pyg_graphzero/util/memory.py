"""Sizes of memory: what a user asks for, what the machine and its cgroup leave, what is in use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")

# Where a cgroup says what it may have, what it has, and how much of that is page cache.
CGROUP_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache")
CGROUP_V2 = ("memory.max", "memory.current", "file")


def parse_size(value: int | str, option: str) -> int:
    """Bytes of ``8_000_000_000``, ``"8GB"`` (10⁹) or ``"8GiB"`` (2³⁰).

    Raises:
        ValueError: It is no size.
    """
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        factor = None if match is None else _UNITS.get(match[2].upper())
        if match is None or factor is None:
            raise ValueError(f"{option}={value!r}: expected a size such as 4GB, 512MiB or bytes")
        value = int(float(match[1]) * factor)
    if value <= 0:
        raise ValueError(f"{option}={value}: expected a positive size")
    return value


def free_memory() -> int:
    """Bytes this process may still take: of the machine, and of its cgroups."""
    free = _kilobytes(Path("/proc/meminfo"), "MemAvailable")
    for folder, (limit, usage, cached) in _cgroups():
        try:
            most = int((folder / limit).read_text())
            used = int((folder / usage).read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):  # not there, or "max"
            continue
        free = min(free, most - (used - int(stat.get(cached, 0))))
    return max(free, 0)


def _cgroups() -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """The memory cgroups this process is in, from the innermost to the root."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, names = Path("/sys/fs/cgroup"), CGROUP_V2
        elif "memory" in controllers.split(","):
            root, names = Path("/sys/fs/cgroup/memory"), CGROUP_V1
        else:
            continue
        # In a container the path may be the host's, which is not to be seen from inside.
        folder = root / path.lstrip("/")
        for place in (folder, *folder.parents):
            yield place, names
            if place == root:
                break


def resident() -> int:
    """Bytes of this process in memory, mapped files included."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def taken() -> int:
    """Bytes of this process in memory that are not a store's.

    Of files, these are the libraries: what was mapped when this was first asked for, which is when
    the first store is opened.
    """
    return _anonymous() + _libraries()


def _anonymous() -> int:
    return _kilobytes(Path("/proc/self/status"), "RssAnon")


@cache
def _libraries() -> int:
    return _kilobytes(Path("/proc/self/status"), "RssFile")


def _kilobytes(path: Path, field: str) -> int:
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) << 10
    raise RuntimeError(f"{path}: found no {field}")  # every Linux since 4.5 has both
