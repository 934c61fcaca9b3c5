"""Memory and CPU time of a process and its descendants, and files that they find in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from typing_extensions import Self

_PIECE = 8 << 20


def tree(root: int) -> list[psutil.Process]:
    """A process and all its descendants; none where it has ended."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    return []


def memory(root: int) -> dict[str, int]:
    """Memory of a process tree now, in bytes.

    Counting shared pages takes milliseconds per GB and stops page faults meanwhile: a process that
    is looked at should not be timed.

    Returns:
        ``pss``, in which a page of several processes counts once (their ``rss`` where the system
        does not tell); and ``own``, memory that is no page of a file and not shared.
    """
    total = {"pss": 0, "own": 0}
    for process in tree(root):
        with suppress(psutil.Error):  # it has ended meanwhile, or just ends
            found = process.memory_full_info()
            total["pss"] += getattr(found, "pss", found.rss)
            total["own"] += found.rss - getattr(found, "shared", 0)
    return total


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
    """Looks again and again while the ``with`` block runs.

    Args:
        look: Gives what is seen, by kind.
        interval: Least seconds between two looks; more where a look itself takes long.

    Attributes:
        points: All that was seen.
    """

    def __init__(self, look: Callable[[], dict[str, Any]], interval: float = 0.02) -> None:
        self.points = [look()]
        self._look = look
        self._interval = interval
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)

    def peak(self, *kinds: str) -> int:
        """The most that these kinds had together at one look."""
        return max(sum(each.get(kind, 0) for kind in kinds) for each in self.points)

    def _look_on(self) -> None:
        took = 0.0
        while not self._over.wait(max(self._interval, 4 * took)):
            start = time.perf_counter()
            self.points.append(self._look())
            took = time.perf_counter() - start

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()


def warm(files: Iterable[Path]) -> None:
    """Reads files once, so that the page cache holds them if it has room."""
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.read(_PIECE):
                pass
