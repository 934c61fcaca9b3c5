"""``divide``: how a budget of memory is divided, from what a loader needs. Arithmetic alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import expm1

from pyg_graphzero.memory import costs
from pyg_graphzero.memory.budget import Budget, how_many
from pyg_graphzero.memory.needs import BatchSize, Kind, Need, Needs
from pyg_graphzero.memory.usage import EPOCHS
from pyg_graphzero.util.disk import DEFAULT_MERGE_GAP
from pyg_graphzero.util.html import Shown
from pyg_graphzero.util.sizes import format_bytes


@dataclass(frozen=True)
class MemoryPlan(Shown):
    """Uses of a budget, in bytes but for ``window``, ``ready`` and ``topology_window`` in batches.

    Attributes:
        memory: The budget.
        baseline: Memory of the process before the plan.
        held: Files that are in memory whole, with this process's share of each.
        hot: Memory for resident rows of each other file.
        windows: Rows that are read for windows of batches, beside those that stay.
        window: For how many batches rows are read at once; 0: none are read ahead, but for one
            batch some megabytes at a time as it is gathered.
        plans: Working out which rows to read for a window.
        sampled: Batches that are sampled and wait for their rows.
        ready: Batches that may be ready, in the making, or in the consumer's hands.
        batches: Memory of the ``ready`` batches.
        topology_window: For how many batches the neighbours of a hop are read at once.
        topology_windows: Memory of batches while their neighbours are read together.
        reading: Buffers of the readers; neighbours that are read have a reader of their own.
    """

    memory: int
    baseline: int
    held: Mapping[str, int]
    hot: Mapping[str, int] = field(default_factory=dict)
    windows: int = 0
    window: int = 1
    plans: int = 0
    sampled: int = 0
    ready: int = costs.MOST_READY
    batches: int = 0
    topology_window: int = 1
    topology_windows: int = 0
    reading: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether everything is held."""
        return not self.hot

    def window_of(self, epoch: int) -> int:
        """For how many batches rows are read at once, in an epoch of ``epoch`` batches; 1 at least.

        There are two windows at least: while one window of all batches were read, the consumer and
        the other threads would have nothing to do.
        """
        return max(1, min(self.window, -(-epoch // 2)))

    @property
    def parts(self) -> dict[str, int]:
        """Bytes of each use; uses without any are left out."""
        parts = {
            "this process, before": self.baseline,
            "files in memory whole": sum(self.held.values()),
            "what stays of the others": sum(self.hot.values()),
            f"rows read for {self.window or 'no'} batches at once": self.windows,
            "batches that wait for those": self.sampled,
            "working out what to read": self.plans,
            f"neighbours read for {self.topology_window} batches at once": self.topology_windows,
            "reading": self.reading,
            f"{self.ready} batches, made or being made": self.batches,
        }
        return {name: num_bytes for name, num_bytes in parts.items() if num_bytes > 0}

    @property
    def total(self) -> int:
        """All of it together."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        uses = self.parts | {"free": max(0, self.memory - self.total)}
        width = max(map(len, uses))
        lines = [f"  {name:<{width}}  {format_bytes(each):>10}" for name, each in uses.items()]
        return "\n".join([f"memory: {format_bytes(self.memory)}", *lines])


def least_memory(needs: Needs, baseline: int) -> int:
    """Bytes below which no batch of this size can be made: nothing resident, one made at a time."""
    batch, one = needs.batch, _window_of_one(needs)
    least = baseline + _tables(needs) + costs.READER + costs.LEAST_READY * batch.whole
    if not needs.is_summed and not needs.of(Kind.EDGES):
        one = min(one, _piece(needs))
    return least + batch.sampled + one + (batch.reading if needs.of(Kind.NEIGHBOURS) else 0)


def _tables(needs: Needs) -> int:
    return sum(file.least_bytes for file in needs.files if file.kind in _ALWAYS)


def _window_of_one(needs: Needs) -> int:
    """Bytes of a window of one batch, which is read at any price, and of samples that wait."""
    batch, of_node = needs.batch, sum(file.row_bytes for file in needs.of(Kind.ROWS))
    has_edges = bool(needs.of(Kind.EDGES))
    rows = batch.whole if has_edges else min(batch.whole, batch.nodes * of_node)
    planning = batch.nodes * (costs.WINDOW_PLACE + costs.WINDOW_KEY)
    return rows + costs.WINDOWS_AHEAD * batch.sampled + planning


def _piece(needs: Needs) -> int:
    """Bytes for reading some rows of a batch at a time, in the order of their files."""
    return costs.PIECE + needs.batch.nodes * costs.PIECE_KEY


def is_ample(memory: int, files: Iterable[Need], baseline: int) -> bool:
    """Whether there is room for everything and some batches, whatever a batch takes."""
    return memory >= 2 * (baseline + sum(file.held_bytes for file in files))


def neighbours_are_held(plan: MemoryPlan, needs: Needs) -> bool:
    """Whether no batch has to wait for neighbours that are read."""
    return all(file.name not in plan.hot for file in needs.of(Kind.NEIGHBOURS))


def all_used_stay(plan: MemoryPlan, needs: Needs) -> bool:
    """Whether all rows and neighbours stay that are known to be used, and they are known."""
    return all(
        file.name in plan.held or 0 < file.used_bytes <= plan.hot.get(file.name, 0)
        for file in needs.files
        if file.kind is not Kind.EDGES
    )


def divide(memory: int, baseline: int, needs: Needs) -> MemoryPlan:
    """Divides a budget.

    Memory that every batch needs comes first. Then small rows are held whole (a read of 4 KiB for 8
    bytes is a bad bargain), then topologies; large rows share the rest with the windows they are
    read in. Neighbours whose uses are known are held whole, too, unless only the used ones leave
    room for all rows that are used. Where neither has room, rows and neighbours have it by uses a
    byte.

    Args:
        memory: The budget, in bytes.
        baseline: Bytes that the process holds already.
        needs: The needs of a loader.

    Raises:
        MemoryBudgetError: The budget is too small for one batch; names the least that works.
    """
    batch, files = needs.batch, needs.files
    budget = Budget(memory, baseline)
    everything = sum(file.held_bytes for file in files)
    if budget.left >= everything + costs.LEAST_READY * batch.whole + batch.sampled:
        budget.spend(everything + batch.sampled)
        ready = budget.take(1.0, batch.whole, costs.LEAST_READY, costs.MOST_READY)
        held = {file.name: file.held_bytes for file in files}
        return MemoryPlan(memory, baseline, held, ready=ready, batches=ready * batch.whole)
    budget.check(
        least_memory(needs, 0),
        needs.why,
        f", and one batch {batch.whole / 1e6:,.0f} MB, {costs.LEAST_READY} at a time; smaller "
        "batches need less (batch_size, num_neighbors, max_edges)",
        needs.processes,
    )
    plan = _divide_in_part(memory, baseline, needs, holds_ranked=True)
    if all_used_stay(plan, needs) or all(f.uses is None for f in needs.of(Kind.NEIGHBOURS)):
        return plan
    ranked = _divide_in_part(memory, baseline, needs, holds_ranked=False)
    is_held = neighbours_are_held(plan, needs)
    return plan if is_held and not all_used_stay(ranked, needs) else ranked


def _divide_in_part(memory: int, baseline: int, needs: Needs, holds_ranked: bool) -> MemoryPlan:
    """A plan by which not all is held; ``holds_ranked``: neighbours may be whose uses are known.

    A window of one batch shares no reads, so that its memory is better left to resident rows.
    """
    plan, has_one = _with_windows(memory, baseline, needs, holds_ranked)
    if not _are_worth_windows(needs, plan):
        longer, has_room = _with_windows(memory, baseline, needs, holds_ranked, keeps_rows=False)
        if longer.window > plan.window:
            plan, has_one = longer, has_room
    is_short = plan.window == 1 and (neighbours_are_held(plan, needs) or not has_one)
    reads_edges = any(file.name in plan.hot for file in needs.of(Kind.EDGES))
    needs_window = needs.is_summed or reads_edges or _piece(needs) >= _window_of_one(needs)
    if is_short and not needs_window:
        plan, _ = _with_windows(memory, baseline, needs, holds_ranked, by_pieces=True)
    return plan


def _with_windows(
    memory: int,
    baseline: int,
    needs: Needs,
    holds_ranked: bool,
    by_pieces: bool = False,
    keeps_rows: bool = True,
) -> tuple[MemoryPlan, bool]:
    """A plan with windows of rows; or without, where batches read their rows ``by_pieces``.

    Without ``keeps_rows`` none of those stay whose uses are known, and windows have their memory.

    Returns:
        The plan, and whether a window of one batch has all that it may take.
    """
    budget, batch = Budget(memory, baseline), needs.batch
    held = {file.name: file.least_bytes for file in needs.files if file.kind in _ALWAYS}
    budget.spend(costs.READER + sum(held.values()))
    ready = budget.take(costs.READY_SHARE, batch.whole, costs.LEAST_READY, costs.MOST_READY)
    budget.spend(batch.sampled)
    window_of_one = _window_of_one(needs)
    one = min((ready - 1) * _piece(needs) if by_pieces else window_of_one, budget.left)
    edges = sorted(needs.of(Kind.EDGES), key=_worth)
    others = sorted(needs.of(Kind.ROWS) + needs.of(Kind.NEIGHBOURS), key=_worth)
    held |= _hold_small(budget, others, one + batch.reading, one, holds_ranked)
    lists = [file for file in needs.of(Kind.NEIGHBOURS) if file.name not in held]
    rows = [file for file in needs.of(Kind.ROWS) if file.name not in held]
    most = costs.HOT_SHARE + (costs.TOPOLOGY_SHARE if lists else 0.0)
    shares = (1.0, 1.0) if by_pieces else (costs.USED_SHARE, most)
    if not keeps_rows:
        shares = costs.TOPOLOGY_SHARE, costs.TOPOLOGY_SHARE
    ranked = [file for file in (rows if keeps_rows else []) + lists if file.uses is not None]
    about = _keep_used(Budget(budget.left, 0), ranked, one, shares)
    plan = MemoryPlan(memory, baseline, held, ready=ready, batches=ready * batch.whole)
    plan = _read_together(plan, budget, batch, lists, one, about)
    hot = _keep_used(budget, ranked, one, shares)
    for file in lists:
        if file.uses is None:
            most = max(0, min(file.num_bytes, budget.left - one))
            hot[file.name] = budget.take(costs.TOPOLOGY_SHARE, most=most)
    # A window reads all of a file of edges. Where it is held, windows read less by its share, and
    # are shorter by the share of the room that it takes.
    read = sum(max(0, (f.used_bytes or f.num_bytes) - hot.get(f.name, 0)) for f in rows + edges)
    spared = [f for f in edges if f.least_bytes * read <= f.num_bytes * budget.left]
    held |= _hold_small(budget, spared, one, one, holds_ranked)
    plan = replace(plan, held=held, hot=hot)
    has_one = budget.left >= window_of_one
    rows += [file for file in edges if file.name not in held]
    return _read_ahead(plan, budget, batch, rows, one, by_pieces), has_one


def _read_together(
    plan: MemoryPlan,
    budget: Budget,
    batch: BatchSize,
    lists: Sequence[Need],
    one: int,
    about: Mapping[str, int],
) -> MemoryPlan:
    """Adds batches whose neighbours are read together; spares their reader where none are.

    Args:
        plan: The plan.
        budget: Bytes that are left.
        batch: Size of a batch.
        lists: Neighbours that are not held.
        one: Bytes that stay free.
        about: Bytes of each of them that will stay, about.
    """
    if not lists:
        spared = int(min(costs.READER / 2, costs.SPARED_SHARE * max(0, budget.left)))
        return replace(plan, reading=costs.READER + budget.spend(-spared))
    served = min(file.served(about.get(file.name, 0)) for file in lists)
    each = max(1, batch.reading - int(served * batch.sources))
    more = each - batch.reading  # the first one has room for all that it wants
    most = min(costs.MAX_TOGETHER, (budget.left - one + more) // each)
    is_ranked = all(file.uses is not None for file in lists)
    share = costs.TOGETHER_RANKED if is_ranked else costs.TOGETHER_SHARE
    count = how_many(budget.left + more, share, each, 1, most)
    num_bytes = budget.spend(min(count * each - more, budget.left))
    return replace(plan, topology_window=count, topology_windows=num_bytes, reading=costs.READER)


def _read_ahead(
    plan: MemoryPlan,
    budget: Budget,
    batch: BatchSize,
    rows: Sequence[Need],
    one: int,
    by_pieces: bool,
) -> MemoryPlan:
    """Adds rows that are read for a window, and samples that wait for it and for the next one.

    Args:
        plan: The plan.
        budget: Bytes that are left.
        batch: Size of a batch.
        rows: Files of rows that are not held.
        one: Bytes of a window of one batch, or of its pieces.
        by_pieces: No rows are read ahead.
    """
    # Recently used rows stay, but no edges: one is hardly drawn again.
    recent = [file for file in rows if file.uses is None and file.kind is not Kind.EDGES]
    ahead = one if by_pieces else budget.left
    if recent and not by_pieces:
        ahead = how_many(budget.left, 1 - costs.HOT_SHARE, least=min(one, max(0, budget.left)))
    budget.spend(ahead)
    hot = dict.fromkeys([file.name for file in rows], 0) | dict(plan.hot)
    new, places, keys = {}, batch.nodes, float(batch.nodes if recent else 0)
    for file in rows:
        if file.kind is Kind.EDGES:
            places, missing = batch.nodes + batch.edges, float(batch.edges)
        else:
            share = costs.NEW_SHARE if file.uses is None else file.missed(hot[file.name])
            missing = share * batch.nodes
        new[file.name] = int(missing * file.row_bytes)
        keys = max(keys, missing)
    planning = int(costs.WINDOW_PLACE * places + costs.WINDOW_KEY * keys)
    all_new, waiting = sum(new.values()), costs.WINDOWS_AHEAD * batch.sampled
    most = 0 if by_pieces else costs.MAX_WINDOW
    window = how_many(ahead, 1.0, waiting + planning + all_new, min(1, most), most)
    sampled = min(window * waiting, ahead)
    plans = min(window * planning, ahead - sampled)
    windows = ahead - sampled - plans
    # Where recently used rows stay, most of their part of a window is read into their frames.
    all_rows, into_frames = max(1, sum(file.num_bytes for file in recent)), 0
    for file in recent:
        own = min(file.num_bytes, budget.left * file.num_bytes // all_rows)
        part = int(costs.CACHED_SHARE * windows * new[file.name] / max(1, all_new))
        hot[file.name] = min(file.num_bytes, own + part)
        into_frames += hot[file.name] - own
    sampled += batch.sampled
    windows -= into_frames
    return replace(plan, hot=hot, windows=windows, window=window, plans=plans, sampled=sampled)


def _hold_small(
    budget: Budget, files: Sequence[Need], beside_lists: int, beside: int, holds_ranked: bool
) -> dict[str, int]:
    """Files of small rows that are held whole, in turn, each if it takes no more than a share.

    Args:
        budget: Bytes that are left; files that are held are taken from it.
        files: The files, those first that are worth most.
        beside_lists: Bytes that stay free as long as neighbours may have to be read.
        beside: Bytes that stay free where none have.
        holds_ranked: Files whose uses are known may be held, too.
    """
    held: dict[str, int] = {}
    lists = {file.name for file in files if file.kind is Kind.NEIGHBOURS}
    for file in files:
        may_hold = file.row_bytes <= costs.SMALL_ROW and (holds_ranked or file.uses is None)
        kept = beside_lists if lists - {file.name} else beside
        share = costs.HELD_SHARE if file.uses is None else costs.HELD_RANKED
        room = min(share * budget.left, budget.left - kept)
        if may_hold and file.least_bytes <= room:
            held[file.name] = budget.spend(file.least_bytes)
            lists.discard(file.name)
    return held


def _keep_used(
    budget: Budget, ranked: Sequence[Need], beside: int, shares: tuple[float, float]
) -> dict[str, int]:
    """Bytes of each file whose uses are known, for all used rows or those that are used most.

    Args:
        budget: Bytes that are left; the rows are taken from it.
        ranked: The files.
        beside: Bytes that stay free.
        shares: Most of what is left for all used rows; and for some, where not all fit.
    """
    used, left = sum(file.used_bytes for file in ranked), budget.left
    share = shares[used > min(int(shares[0] * left), left - beside)]
    hot = _most_used(ranked, min(int(share * left), left - beside))
    budget.spend(sum(hot.values()))
    return hot


def _are_worth_windows(needs: Needs, plan: MemoryPlan) -> bool:
    """Whether rows that stay spare more reads than windows that are longer by their memory.

    A window reads a row once, for all its batches. And the longer it is, the closer its rows lie
    together, until it reads all of a file that is used, but for what stays: then reads go by the
    number of windows.
    """
    hot, room = plan.hot, sum(plan.hot.values()) + plan.windows + plan.plans + plan.sampled
    files = [file for file in needs.of(Kind.ROWS) if file.uses and file.name in hot]
    of_epoch = needs.epoch * needs.batch.nodes * sum(file.row_bytes for file in files)
    windows = max(1.0, of_epoch / max(1, room))
    used = served = gaps = 0.0
    for file in files:
        reads = [(windows * -expm1(-uses / EPOCHS / windows), n) for uses, n in file.uses or ()]
        every = file.row_bytes * sum(each * n for each, n in reads)
        used += every
        served += every * replace(file, uses=tuple(reads)).served(hot[file.name])
        gaps += file.row_bytes * file.used_bytes
    # How often rows of the room would fill all gaps that are as dear to read as to skip; and the
    # share of what is used that windows still read where some stays.
    full = room * DEFAULT_MERGE_GAP / max(1.0, gaps)
    kept = sum(hot[file.name] for file in files)
    others = 1 - kept / max(1, sum(file.used_bytes for file in files))
    longer = (1 + (1 - kept / max(1, room)) * full / max(others, 1e-9)) / (1 + full)
    return served >= (1 - longer) * used


def _most_used(files: Sequence[Need], room: int) -> dict[str, int]:
    """Bytes of the first rows of each file that are worth most in this room, by uses a byte."""
    hot = {file.name: 0 for file in files}
    steps = [
        (uses / file.row_bytes, file, count) for file in files for uses, count in file.uses or ()
    ]
    for _, file, count in sorted(steps, key=lambda step: -step[0]):
        num_bytes = max(0, min(count * file.row_bytes, room))
        hot[file.name] += num_bytes
        room -= num_bytes
    return hot


_ALWAYS = (Kind.BOUNDS, Kind.TABLE)


def _worth(file: Need) -> tuple[bool, int]:
    return file.kind is Kind.NEIGHBOURS, file.num_bytes
