"""Second epochs as a table: by graph, budget, encoding and fan-out, and their bounds.

Each point has this package's loader, that with ``row_cache=False``, and GraphBolt's scheme, each a
process of its own under the same limit. A refused budget is a result: the error names the least
that works.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from itertools import groupby
from math import inf
from pathlib import Path
from typing import Any

from harness.child import Task
from harness.record import show
from harness.report import Result, reading, short, whole_epochs
from harness.run import Run, play
from pyg_graphzero.bench.table import number
from pyg_graphzero.store.copies import remove_copies

Point = dict[str, Any]
Compete = Callable[[str, int], Result]
CONTESTANTS = {"ours": ("ours", "auto"), "off": ("ours", "off"), "scheme": ("graphbolt", "")}
# A time that is above by less is not counted as worse.
_NOISE = 1.1
_LEAST = re.compile(r"MemoryBudgetError: .*?expected (more than )?([\d,]+) MB")
_SERIES = ("batch_seconds", "timeline")


def least_budget(result: Result) -> int | None:
    """Bytes that the error of a refused budget names."""
    found = _LEAST.search(result["error"] or "")
    return int(found[2].replace(",", "")) * 10**6 if found else None


def compete(
    task: Task, script: Path, patience: float, drop_caches: bool, name: str, limit: int
) -> Result:
    """A run that begins without copies of rows, told without its series.

    Where ours fails, it is tried again without the limit, and with the budget that its error names:
    the last error names the least that has room for a batch.

    Args:
        task: All but who does it, and its memory.
        script: See ``play``.
        patience: Seconds, see ``Run``.
        drop_caches: See ``play``.
        name: Name of one of ``CONTESTANTS``.
        limit: On memory, and the budget.
    """
    do, order = CONTESTANTS[name]
    budget = limit if order else None
    options = task.options | {"order": order}
    task = dataclasses.replace(task, do=do, limit=limit, budget=budget, options=options)
    run = Run(name, do, task, patience=patience, before=lambda: remove_copies(task.store))
    result = play(run, script, drop_caches)
    # Where a process alone takes more than a budget, the first error names that alone.
    for _ in range(2 if name == "ours" and result["error"] else 0):
        budget = (least_budget(result) or limit) + 10**6
        task = dataclasses.replace(task, limit=None, budget=budget, epochs=1, batches=1)
        again = play(dataclasses.replace(run, task=task), script, drop_caches)["error"]
        if again is None:
            break
        result["error"] = again
    print(f"{task.fanout}, {limit:,} bytes: {short(result)}", flush=True)
    return {key: value for key, value in result.items() if key not in _SERIES}


def second_epoch(result: Result | None) -> float | None:
    """Seconds; infinite where there is an error, None where it was cut short or not run."""
    if result is None or result["error"]:
        return inf if result else None
    epochs = whole_epochs(result)
    return epochs[1]["seconds"] if len(epochs) > 1 else None


def point_of(runs: dict[str, Result], **more: Any) -> Point:
    """A point's figures.

    Args:
        runs: By the names of ``CONTESTANTS``.
        more: Which point it is: ``graph``, ``encoding``, ``fanout``, ``limit`` and ``share``.
    """
    ours = runs["ours"]
    # A probe may find a disk slower than it is: the best of those before the point's runs counts.
    probes = [run["disk"] for run in runs.values() if "disk" in run]
    disk = {name: max(each[name] for each in probes) for name in probes[0] if name != "doubt"}
    found = {name: second_epoch(runs.get(name)) for name in CONTESTANTS}
    return {
        **more,
        **found,
        "first": ours["epochs"][0]["seconds"] if ours["epochs"] else None,
        "disk": (reading(ours | {"disk": disk}) or {"ideal_seconds": 0.0})["ideal_seconds"],
        "least": least_budget(ours),
        "runs": runs,
    }


def grid_table(title: str, points: list[Point]) -> str:
    """A table of second epochs in seconds, infinite where a budget was refused."""
    shown = ("first", *CONTESTANTS, "disk", "least", "share")
    kind = ("graph", "encoding", "fanout", "limit")
    rows = {
        ", ".join(str(point[name]) for name in kind): {name: point[name] for name in shown}
        for point in points
    }
    return show(title, rows)


def worse(points: list[Point]) -> Iterator[str]:
    """Where more memory makes a second epoch slower, or ``auto`` is slower than ``off``."""
    kind = ("graph", "encoding", "fanout")
    ordered = sorted(points, key=lambda point: [point[name] for name in (*kind, "limit")])
    for _, line in groupby(ordered, key=lambda point: [point[name] for name in kind]):
        best = (inf, 0)
        for point in line:
            ours = point["ours"] or inf
            at = f"{point['graph']}, {point['encoding']}, {point['fanout']}, {point['limit']:,}"
            if ours > _NOISE * best[0]:
                yield f"{at}: {number(ours)} s, with {best[1]:,} bytes {number(best[0])} s"
            if ours > _NOISE * (point["off"] or inf):
                yield f"{at}: {number(ours)} s, with row_cache=False {number(point['off'])} s"
            best = min(best, (ours, point["limit"]))
