"""Memory of a process tree over time, and of the control group it runs in."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import Self

from harness.cap import MemoryCap
from pyg_graphzero.bench.process import tree

_PROC = Path("/proc")
_INTERVAL_S = 0.2
_KINDS = {"RssAnon": "anon", "RssFile": "file", "RssShmem": "shmem"}
T = TypeVar("T")


def with_peak(work: Callable[[], T]) -> tuple[T, int]:
    """The result of ``work``, and the most bytes of memory that this process had meanwhile.

    Pages of files are left out.
    """
    (_PROC / "self" / "clear_refs").write_text("5")
    value = work()
    lines = (_PROC / "self" / "status").read_text().splitlines()
    high, file = (
        next(int(line.split()[1]) for line in lines if line.startswith(name))
        for name in ("VmHWM", "RssFile")
    )
    return value, 1024 * (high - file)


class Timeline:
    """Looks at a process tree at even intervals while the ``with`` block runs.

    Only ``/proc/PID/status`` is read, which disturbs no process. A shared page counts once for each
    process of the tree that has it.

    Args:
        root: The process.
        cap: The limit it runs under, or None.

    Attributes:
        points: A dict for each look: ``seconds`` since the first, ``anon``, ``file`` and ``shmem``
            bytes, and what ``MemoryCap.usage`` tells.
    """

    def __init__(self, root: int, cap: MemoryCap | None = None) -> None:
        self.points: list[dict[str, Any]] = []
        self._root = root
        self._cap = cap
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self._start = time.perf_counter()

    def peak(self, *kinds: str) -> int:
        """The most bytes that these kinds had together at one look; 0 if there was none."""
        return max((sum(each.get(k, 0) for k in kinds) for each in self.points), default=0)

    def look(self) -> None:
        """Adds a point; none if the process has ended."""
        point: dict[str, Any] = dict.fromkeys(_KINDS.values(), 0)
        seen = False
        for process in tree(self._root):
            try:
                lines = (_PROC / str(process.pid) / "status").read_text().splitlines()
            except (FileNotFoundError, ProcessLookupError):
                continue
            for line in lines:
                name, _, value = line.partition(":")
                if name in _KINDS:  # a process that has ended and was not waited for has none
                    point[_KINDS[name]] += int(value.split()[0]) * 1024
                    seen = True
        if seen:
            usage = {} if self._cap is None else self._cap.usage(self._root)
            now = round(time.perf_counter() - self._start, 2)
            self.points.append({"seconds": now, **point, **usage})

    def _look_on(self) -> None:
        while not self._over.wait(_INTERVAL_S):
            self.look()

    def __enter__(self) -> Self:
        self.look()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
