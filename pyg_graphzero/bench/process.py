"""What a process and its descendants use: memory by kind, bytes read, CPU time. From ``/proc``."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from typing_extensions import Self

_PROC = Path("/proc")
_TICK = 1.0 / os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat behind the name, which may hold spaces and brackets.
_PARENT, _USER_TICKS, _SYSTEM_TICKS = 1, 11, 12


def _stat(pid: int) -> list[str]:
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _table(path: Path) -> dict[str, int]:
    """A file of ``Name: number [kB]`` lines, in bytes; lines of other kinds are left out."""
    found = {}
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdigit():
            found[name] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return found


def tree(root: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                children.setdefault(int(_stat(int(entry.name))[_PARENT]), []).append(
                    int(entry.name)
                )
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def memory(root: int) -> dict[str, int]:
    """Memory of a process tree now, in bytes.

    Returns:
        ``anon``, ``file`` and ``shmem``: sums of what ``/proc/PID/status`` has as ``RssAnon``,
        ``RssFile``, ``RssShmem``, so that a page of two processes counts twice; ``rss``, their sum;
        ``pss``, which counts shared pages once; and the number of ``processes``.
    """
    total = {"anon": 0, "file": 0, "shmem": 0, "rss": 0, "pss": 0, "processes": 0}
    for pid in tree(root):
        try:
            status = _table(_PROC / str(pid) / "status")
            pss = _table(_PROC / str(pid) / "smaps_rollup")["Pss"]
        except (FileNotFoundError, ProcessLookupError, KeyError):
            continue  # it has ended meanwhile, or just ends
        for kind in ("anon", "file", "shmem"):
            total[kind] += status.get(f"Rss{kind.capitalize()}", 0)
        total["pss"] += pss
        total["processes"] += 1
    total["rss"] = total["anon"] + total["file"] + total["shmem"]
    return total


def bytes_read(root: int) -> dict[int, int]:
    """Bytes that every process of a tree has caused to be read from a disk so far."""
    found = {}
    for pid in tree(root):
        try:
            found[pid] = _table(_PROC / str(pid) / "io")["read_bytes"]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _cpu_of_others() -> float:
    """CPU time of this process's descendants, those that have ended included."""
    own = os.times()
    total = own.children_user + own.children_system
    for pid in tree(os.getpid())[1:]:
        try:
            fields = _stat(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += _TICK * (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS]))
    return total


class Clock:
    """Wall and CPU time of a ``with`` block, the latter of all descendants too.

    Attributes:
        seconds: Wall time.
        cpu_seconds: CPU time; that of other processes comes in ticks of some 10 ms.
    """

    def __enter__(self) -> Self:
        self._others = _cpu_of_others()
        self._cpu = time.process_time()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = time.perf_counter() - self._start
        self.cpu_seconds = time.process_time() - self._cpu
        self.cpu_seconds += _cpu_of_others() - self._others


class Watch:
    """Looks at a process tree again and again while the ``with`` block runs.

    Reading ``smaps_rollup`` takes milliseconds per GB and stops page faults meanwhile: what is
    watched should not be timed.

    Args:
        root: The process.
        interval: Least seconds between two looks; more where a look itself takes long.

    Attributes:
        peak: ``memory()`` at the moment when its ``rss`` was greatest; ``pss`` is the greatest.
        read: Bytes the tree read from disks. Of a process that ends, what it read after the last
            look is missing.
    """

    def __init__(self, root: int, interval: float = 0.02) -> None:
        self.peak: dict[str, int] = memory(root)
        self._root = root
        self._interval = interval
        self._before = bytes_read(root)
        self._last = dict(self._before)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)

    @property
    def read(self) -> int:
        """Bytes read since the watch began."""
        return sum(self._last.values()) - sum(self._before.values())

    def _look(self) -> None:
        self._last.update(bytes_read(self._root))
        now = memory(self._root)
        pss = max(now["pss"], self.peak["pss"])
        self.peak = {**max(now, self.peak, key=lambda each: each["rss"]), "pss": pss}

    def _look_on(self) -> None:
        took = 0.0
        while not self._over.wait(max(self._interval, 4 * took)):
            start = time.perf_counter()
            self._look()
            took = time.perf_counter() - start

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()
