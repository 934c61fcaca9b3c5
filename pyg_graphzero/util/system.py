"""The operating system: what Python knows only of some of them, or what lies in ``/proc``.

The only module of the package that asks it. ``psutil`` knows the memory of all of them; ``posix``
stands for a system of which nothing else is known.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from pyg_graphzero import _core

#: ``linux``, ``macos``, ``windows`` or ``posix``: the one that the engine was built for.
HERE = _core.system

# Where a cgroup says what it may have, what it has, and how much of that is page cache.
CGROUP_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache")
CGROUP_V2 = ("memory.max", "memory.current", "file")
# Version 1 says "no limit" with a number close to 2^63.
_NO_LIMIT = 1 << 60


def usable_cores() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0)) if HERE == "linux" else os.cpu_count() or 1


def user_id() -> int:
    """The user whose rights this process has; 0 on Windows, where files have no such owner."""
    return 0 if HERE == "windows" else os.geteuid()


# Memory --------------------------------------------------------------------------------------


def total_memory() -> int:
    """Bytes of the machine."""
    return int(psutil.virtual_memory().total)


def free_memory() -> int:
    """Bytes this process may still take: of the machine, and of its cgroups."""
    free = int(psutil.virtual_memory().available)
    for folder, (limit, usage, cached) in _cgroups():
        try:
            most = int((folder / limit).read_text())
            used = int((folder / usage).read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):  # not there, or "max"
            continue
        free = min(free, most - (used - int(stat.get(cached, 0))))
    return max(free, 0)


def memory_limit() -> int | None:
    """The smallest limit of the cgroups this process is in; None where there is none."""
    limits = []
    for folder, (limit, _, _) in _cgroups():
        try:
            limits.append(int((folder / limit).read_text()))
        except (OSError, ValueError):
            continue
    return min((limit for limit in limits if limit < _NO_LIMIT), default=None)


def _cgroups() -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """The memory cgroups this process is in, from the innermost to the root."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines() if HERE == "linux" else []
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


def return_freed_memory() -> None:
    """Gives back to the machine what was freed and malloc keeps, where malloc can be asked to."""
    if HERE == "macos":
        ctypes.CDLL(None).malloc_zone_pressure_relief(None, ctypes.c_size_t(0))
    elif HERE == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
        if trim is not None:
            trim(0)


def rss() -> int:
    """Bytes of this process in memory, mapped files included."""
    return int(_memory().rss)


def peak_rss() -> int:
    """The most it has had there, in bytes."""
    if HERE == "windows":
        return int(_memory().peak_wset)
    import resource  # Windows has none

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if HERE == "macos" else most << 10


def private_rss() -> int:
    """Bytes of this process in memory that are not a store's.

    Mapped files count only as far as they are libraries: those mapped when this is first called,
    which is when the first store is opened. POSIX cannot tell them from other memory, so that there
    it is all of what was in memory then.
    """
    if HERE == "macos":
        internal, _, compressed = _mac_task()
        return internal + compressed + _libraries()
    if HERE == "windows":
        return int(_memory().private)
    if HERE == "posix":
        return _libraries()
    return _kilobytes("RssAnon") + _libraries()


@cache
def _libraries() -> int:
    if HERE == "macos":
        return _mac_task()[1]
    if HERE == "posix":
        return rss()
    return _kilobytes("RssFile")


def _memory() -> Any:
    """The figures that ``psutil`` has of this process on this system."""
    return psutil.Process().memory_info()


def _kilobytes(field: str) -> int:
    """A figure of this process that Linux has had since 4.5."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition(f"\n{field}:")[2].split(maxsplit=1)[0]) << 10


def _mac_task() -> tuple[int, int, int]:
    """``internal``, ``external`` and ``compressed`` of ``task_info(TASK_VM_INFO)``, in bytes."""
    library, found = ctypes.CDLL(None), (ctypes.c_uint64 * 19)()
    count = ctypes.c_uint32(ctypes.sizeof(found) // 4)
    task = ctypes.c_uint32.in_dll(library, "mach_task_self_")
    failed = library.task_info(task, 22, ctypes.byref(found), ctypes.byref(count))
    if failed:
        raise RuntimeError(f"task_info: found error {failed} of the kernel, expected 0")
    return found[6], found[8], found[15]


# Files ---------------------------------------------------------------------------------------


def prefetch(path: Path, piece: int) -> None:
    """Has a file read into the page cache in pieces.

    Each call returns when the disk was asked, which has to happen in turns with others; where a
    disk cannot be asked, what it is to read is read.
    """
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        room = bytearray(0 if HERE == "linux" else piece)
        for at in range(0, size, piece):
            if HERE == "linux":
                os.posix_fadvise(file.fileno(), at, piece, os.POSIX_FADV_WILLNEED)
            else:
                file.readinto(room)


def drop_pages(path: Path, begin: int = 0, size: int = 0) -> None:
    """Asks Linux to forget a file's pages; those that a process has mapped stay.

    Args:
        path: The file.
        begin: The first byte.
        size: How many bytes; 0: to the end.
    """
    if HERE != "linux":
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(descriptor)  # what is not on the disk yet is not forgotten
        os.posix_fadvise(descriptor, begin, size, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def mapped_at(path: Path, address: int) -> int | None:
    """Where in a file the byte lies that is mapped at ``address``; None if none is."""
    inode = str(path.stat().st_ino)
    for line in _maps():
        span, _, begin, _, node, *_ = line.split(maxsplit=5)
        low, high = (int(end, 16) for end in span.split("-"))
        if low <= address < high:
            return int(begin, 16) + address - low if node == inode else None
    return None


def _maps() -> list[str]:
    if HERE != "linux":
        return []
    try:
        return Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []


def lock_holder(path: Path) -> tuple[int, str] | None:
    """The process that holds the lock on a file: number and command line; None: not known."""
    if HERE != "linux":
        return None
    try:
        status = path.stat()
        number = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for line in Path("/proc/locks").read_text().splitlines():
            _, kind, _, _, pid, file, *_ = line.split()
            if kind == "FLOCK" and file == number:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                return int(pid), command.decode(errors="replace").strip()
    except (OSError, ValueError):  # not on this system, or the process is gone or out of sight
        pass
    return None


# Devices -------------------------------------------------------------------------------------


def cpu_model() -> str | None:
    """The processor's name, where the system tells."""
    if HERE != "linux":
        return platform.processor() or None
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None  # ARM's have none


def device_number(path: Path) -> str:
    """``major:minor`` of the device that a file is on."""
    number = path.stat().st_dev
    return str(number) if HERE == "windows" else f"{os.major(number)}:{os.minor(number)}"


def disk_of(path: Path) -> Path | None:
    """The kernel's folder about the disk under a file; None on network and overlay filesystems."""
    device = Path(f"/sys/dev/block/{device_number(path)}").resolve()
    if HERE != "linux" or not device.exists():
        return None
    return device.parent if (device / "partition").exists() else device


def mount_of(path: Path) -> tuple[str, str] | None:
    """Filesystem type and source of the mount that a file is on."""
    number, mounts = device_number(path), Path("/proc/self/mountinfo")
    for line in mounts.read_text().splitlines() if HERE == "linux" and mounts.exists() else []:
        before, _, after = line.partition(" - ")
        if before.split()[2] == number:
            kind, source, *_ = after.split()
            return kind, source
    return None


def stored_bytes(status: os.stat_result) -> int:
    """Bytes that a file takes of its disk; its size on Windows, which does not tell."""
    return status.st_size if HERE == "windows" else status.st_blocks * 512
