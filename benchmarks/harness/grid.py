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
from harness.report import Result, percent, reading, short, whole_epochs
from harness.run import Run, play
from pyg_graphzero.bench.table import markdown, number
from pyg_graphzero.store.copies import remove_copies
from pyg_graphzero.util.sizes import format_bytes

Point = dict[str, Any]
Compete = Callable[[str, int], Result]
CONTESTANTS = {"ours": ("ours", "auto"), "off": ("ours", "off"), "scheme": ("graphbolt", "")}
# A time that is above by less is not counted as worse.
_NOISE = 1.1
_LEAST = re.compile(r"MemoryBudgetError: .*?expected (more than )?([\d,]+) MB")
_SERIES = ("batch_seconds", "timeline")
_HEADER = [
    *("graph, rows, fan-out", "limit", "first epoch, s", "second", "order=off"),
    *("GraphBolt's scheme (int8: its float16)", "times", "disk's limit, s", "peak", "row cache"),
]


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


def row_cache(result: Result) -> str:
    """When used rows were copied, or why they were not."""
    for number_of, epoch in enumerate(result["epochs"], 1):
        if size := epoch["counts"]["copied"]:
            return f"made in epoch {number_of}, {format_bytes(size)}"
    said = result["epochs"][-1]["counts"]["said"]
    return next((line for line in reversed(said) if "order" in line or "cop" in line), "not made")


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
        "peak": ours["peak"]["anon_and_file"],
        "least": least_budget(ours),
        "row_cache": ours["error"] or row_cache(ours),
        "runs": runs,
    }


def times(point: Point) -> float | None:
    """How often as long GraphBolt's scheme takes, where both are known."""
    known = point["scheme"] is not None and point["ours"] not in (None, inf)
    return point["scheme"] / point["ours"] if known else None


def grid_table(title: str, points: list[Point]) -> str:
    """Every point in a line of Markdown."""

    def cell(seconds: float | None) -> str:
        return "" if seconds is None else "does not fit" if seconds == inf else number(seconds)

    rows = []
    for point in points:
        rate = times(point)
        cache = f"at least {point['least'] / 1e6:,.0f} MB" if point["least"] else point["row_cache"]
        rows.append(
            [
                f"{point['graph']}, {point['encoding']}, {point['fanout']}",
                f"{point['limit'] / 1e6:,.0f} MB ({point['share']:.0%})",
                *(cell(point[name]) for name in ("first", *CONTESTANTS)),
                "" if rate in (None, inf) else f"{rate:.1f}",
                number(point["disk"]) if point["first"] else "",
                percent(point["peak"] / point["limit"]) if point["first"] else "",
                cache,
            ]
        )
    return markdown(title, _HEADER, rows)


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
                yield f"{at}: {number(ours)} s, with order=off {number(point['off'])} s"
            best = min(best, (ours, point["limit"]))
