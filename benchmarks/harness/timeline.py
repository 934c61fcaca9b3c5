"""Memory of a process tree over time, and of the control group it runs in."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from harness.cap import MemoryCap
from pyg_graphzero.bench.process import Watch, tree

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


def timeline(root: int, cap: MemoryCap | None = None) -> Watch:
    """Looks at the memory of a process tree at even intervals.

    Only ``/proc/PID/status`` is read, which disturbs no process. A shared page counts once for each
    process of the tree that has it.

    Args:
        root: The process.
        cap: The limit it runs under, or None.

    Returns:
        Its points have ``seconds`` since the first, ``anon``, ``file`` and ``shmem`` bytes, and
        what ``MemoryCap.usage`` tells; nothing once the process has ended.
    """
    start = time.perf_counter()

    def look() -> dict[str, Any]:
        point = dict.fromkeys(_KINDS.values(), 0)
        seen = False
        for process in tree(root):
            try:
                lines = (_PROC / str(process.pid) / "status").read_text().splitlines()
            except (FileNotFoundError, ProcessLookupError):
                continue
            for line in lines:
                name, _, value = line.partition(":")
                if name in _KINDS:  # a process that has ended and was not waited for has none
                    point[_KINDS[name]] += int(value.split()[0]) * 1024
                    seen = True
        usage = {} if cap is None else cap.usage(root)
        now = round(time.perf_counter() - start, 2)
        return {"seconds": now, **point, **usage} if seen else {}

    return Watch(look, _INTERVAL_S)
