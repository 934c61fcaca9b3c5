"""Memory, bytes read and CPU time of a process and its descendants."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import psutil
from typing_extensions import Self


def tree(root: int) -> list[psutil.Process]:
    """A process and all its descendants; none where it has ended."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    return []


def memory(root: int) -> dict[str, int]:
    """Memory of a process tree now, in bytes.

    Returns:
        ``rss``: memory of all processes, in which a page of two processes counts twice; ``own``,
        the part of it that is no page of a file and not shared; ``pss``, which counts shared pages
        once (``rss`` where the system does not tell); and the number of ``processes``.
    """
    total = {"rss": 0, "own": 0, "pss": 0, "processes": 0}
    for process in tree(root):
        with suppress(psutil.Error):  # it has ended meanwhile, or just ends
            found = process.memory_full_info()
            total["rss"] += found.rss
            total["own"] += found.rss - getattr(found, "shared", 0)
            total["pss"] += getattr(found, "pss", found.rss)
            total["processes"] += 1
    return total


def bytes_read(root: int) -> dict[int, int]:
    """Bytes that each process of a tree has caused to be read from a disk until now."""
    found = {}
    for process in tree(root):
        with suppress(psutil.Error, AttributeError):  # macOS does not tell
            found[process.pid] = process.io_counters().read_bytes
    return found


def _cpu_of_others() -> float:
    """CPU time of this process's descendants, ended ones included."""
    own, *others = tree(psutil.Process().pid)
    total = own.cpu_times().children_user + own.cpu_times().children_system
    for process in others:
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
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

    Counting shared pages takes milliseconds per GB and stops page faults meanwhile: a process that
    is watched should not be timed.

    Args:
        root: The process.
        interval: Least seconds between two looks; more where a look itself takes long.

    Attributes:
        peak: ``memory()`` at the moment when its ``rss`` was greatest; ``pss`` is the greatest.
        read: Bytes the tree read from disks. A process that ends lacks its reads after the last
            look.
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
