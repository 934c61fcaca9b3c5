"""The division of a budget that reads fastest: several are simulated for a few batches.

A row that stays in memory is a hit in every epoch; memory for windows makes them longer, so that
batches share more reads. Which of the two is worth more depends on the graph, the seeds, the rows'
size and the disk, and is no constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from time import perf_counter

from pyg_graphzero.memory import costs
from pyg_graphzero.memory.plan import (
    DEFAULT_SPLIT,
    FileSize,
    MemoryPlan,
)
from pyg_graphzero.memory.simulate import Case, Ranks, Simulation, simulate

#: Shares of rows that stay in memory, in the order in which they are tried: upwards from the
#: default while it gets better; if the first is no better, downwards.
UP, DOWN = (0.6, 0.75, 0.9), (0.2,)
#: After this many seconds no further share is tried.
SECONDS = 3.0
# Batches that are simulated: those of _WINDOWS windows of the default split, and at least _LEAST.
_WINDOWS, _LEAST = 4, 8
# Fewer batches than these say nothing.
_FEWEST = 2
# Another share is taken if it needs less than this part of the time: the batches at hand are not
# those to come, so that a small gain says nothing.
_WORTH = 0.98
# How many rows a window reads was guessed wrongly if it uses less than this share of its memory, or
# has less than this share of the batches that were meant for it.
_OFF = 0.85


def choose_plan(
    case: Case,
    memory: int,
    files: Sequence[FileSize],
    order: Ranks | None = None,
    check: Callable[[], None] = lambda: None,
) -> MemoryPlan:
    """Divides a budget the way that takes the disk least time for a batch.

    Where all rows that are used can stay, they do, and nothing is tried. The default split is kept
    where batches are fewer than one of its windows. How many batches a
    window may be of is not decided by the epoch at hand: it may be a short one, and others follow.

    Args:
        case: Batches, and the graph that they are from.
        memory: The budget in bytes.
        files: Files that loaders read from.
        order: See :func:`~pyg_graphzero.memory.simulate.simulate`.
        check: Called between trials; may raise an error that ends them.

    Raises:
        MemoryBudgetError: The budget is too small for one batch.
    """
    begun = perf_counter()
    split = DEFAULT_SPLIT
    best = case.divide(memory, files, split)
    if not any(f.kind != "indices" and f.name in best.hot for f in files):
        return best
    whole = _share_of_all(case, best, files)
    if whole is not None and whole <= UP[-1]:
        return case.divide(memory, files, replace(split, hot=max(split.hot, whole)))
    if len(case.profile.batches) < max(_FEWEST, best.window_of(case.profile.epoch)):
        return best
    few = first_batches(case, best)

    def try_out(share: float) -> tuple[float, MemoryPlan]:
        nonlocal split
        split = replace(split, hot=share)
        found = simulate(few, case.divide(memory, files, split), files, order)
        seconds = seconds_per_batch(case, found)
        if not _is_off(found, case.profile.epoch):
            return seconds, found.plan
        # The share of rows that batches of a window have in common decides how many fit into it.
        split = replace(split, new=_new_rows(found, files, case.batch.nodes))
        again = simulate(few, case.divide(memory, files, split), files, order)
        return min(
            (seconds, found.plan), (seconds_per_batch(case, again), again.plan), key=itemgetter(0)
        )

    least, best = try_out(DEFAULT_SPLIT.hot)
    for shares in (UP, DOWN):
        is_better = False
        for share in shares:
            if perf_counter() - begun > SECONDS:
                return best
            check()
            seconds, plan = try_out(share)
            if seconds > least * _WORTH:
                break
            least, best, is_better = seconds, plan, True
        if is_better:
            break
    return best


def _share_of_all(case: Case, plan: MemoryPlan, files: Sequence[FileSize]) -> float | None:
    """The share with which all rows that are used would stay; None where it is not known.

    Args:
        case: The batches.
        plan: Memory plan by the default split.
        files: Files that loaders read from.
    """
    used = 0
    for file in files:
        if file.kind == "indices" or file.name not in plan.hot:
            continue
        if file.used_rows is None:
            return None
        used += file.used_rows * file.row_bytes
    ahead = plan.windows + plan.plans + plan.sampled - case.batch.sampled
    return used * (1 - DEFAULT_SPLIT.hot) / max(1, ahead)


def first_batches(case: Case, plan: MemoryPlan, windows: int = _WINDOWS) -> Case:
    """A case with only the first batches: enough to see how much a plan reads for one."""
    count = max(_LEAST, windows * plan.window_of(case.profile.epoch))
    return replace(case, profile=case.profile.first(count))


def seconds_per_batch(case: Case, found: Simulation) -> float:
    """Seconds that the disk takes for one batch."""
    batches = sum(window.count for window in found.windows)
    reads = sum(window.read.reads for window in found.windows)
    num_bytes = sum(window.read.bytes for window in found.windows)
    return case.disk.seconds(reads, num_bytes) / max(1, batches)


def _is_off(found: Simulation, epoch: int) -> bool:
    window, plan = found.windows[0], found.plan
    most = plan.window_of(epoch)
    is_short = window.count < _OFF * most
    could_be_longer = plan.window < costs.MAX_WINDOW and window.num_bytes < _OFF * plan.windows
    return is_short or could_be_longer


def _new_rows(found: Simulation, files: Sequence[FileSize], nodes: int) -> float:
    """Share of a batch's rows that a window has to read for it."""
    window = found.windows[0]
    rows = sum(f.row_bytes for f in files if f.kind != "indices" and f.name in found.plan.hot)
    return window.num_bytes / max(1, window.count * nodes * rows)
