"""Memory of a process, and of a process tree over time."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from pyg_graphzero.bench.process import Watch, tree

_PROC = Path("/proc")
_INTERVAL_S = 0.2
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


def timeline(root: int) -> Watch:
    """Looks at the memory of a process tree at even intervals.

    Only ``/proc/PID/statm`` is read, which disturbs no process. A shared page counts once for each
    process of the tree that has it.

    Args:
        root: The process.

    Returns:
        Its points have ``seconds`` since the first, and bytes: ``anon``, and ``file``, in which
        shared memory counts; nothing once the process has ended.
    """
    start = time.perf_counter()

    def look() -> dict[str, Any]:
        point = {"seconds": round(time.perf_counter() - start, 2), "anon": 0, "file": 0}
        for process in tree(root):
            with suppress(psutil.Error):  # it has ended meanwhile
                found = process.memory_info()
                point["anon"] += found.rss - found.shared
                point["file"] += found.shared
        return point if point["file"] else {}

    return Watch(look, _INTERVAL_S)
