"""Simulates an epoch's reads: training's decisions, rehearsed.

The budget is divided, rows are chosen and reads are planned by the same functions as for training
(:mod:`.plan`, :mod:`.hot_rows`, ``_core.ReadForecast``); only that nothing is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.hot_rows import group_bits_of, groups_kept, likely_groups
from pyg_graphzero.memory.plan import (
    DEFAULT_SPLIT,
    BatchSize,
    FileSize,
    MemoryPlan,
    Split,
    divide,
)
from pyg_graphzero.memory.profile import Profile
from pyg_graphzero.sampling.graph import SampledGraph
from pyg_graphzero.store.columns import engine_array
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.util.disk import DiskSpeed

#: By node type, a function that finds where rows (``int64``) would lie.
Ranks = Mapping[str | None, Callable[[Tensor], Tensor]]


@dataclass
class Window:
    """Reads of one window of batches.

    Attributes:
        count: How many batches are in it.
        read: Counts of rows, requests and bytes that are read for them.
        num_bytes: Bytes of these rows in memory.
    """

    count: int = 0
    read: _core.ReadStats = field(default_factory=_core.ReadStats)
    num_bytes: int = 0


@dataclass
class Case:
    """Inputs of a simulation that do not change from one to the next.

    Attributes:
        contents: The store.
        graph: The graph that is sampled from.
        profile: Batches to read for, and which rows training will choose to keep.
        batch: Size of one batch.
        baseline: Bytes the process holds already.
        disk: Its speed.
    """

    contents: StoreContents
    graph: SampledGraph
    profile: Profile
    batch: BatchSize
    baseline: int
    disk: DiskSpeed

    def divide(
        self, memory: int, files: Sequence[FileSize], split: Split = DEFAULT_SPLIT
    ) -> MemoryPlan:
        """How a budget would be divided."""
        return divide(memory, files, self.baseline, self.batch, split)


@dataclass
class Simulation:
    """Reads by one division of a budget.

    Attributes:
        plan: The memory plan with this division.
        windows: Windows once everything that stays in memory is there.
    """

    plan: MemoryPlan
    windows: list[Window] = field(default_factory=list)


def simulate(
    case: Case,
    plan: MemoryPlan,
    files: Sequence[FileSize],
    order: Ranks | None = None,
    is_epoch: bool = False,
) -> Simulation:
    """Plans the reads of the batches at hand, and reads nothing.

    Args:
        case: The batches, and the graph that they are from.
        plan: How a budget is divided.
        files: Files that loaders read from; sizes of rows may be other ones than the store's.
        order: Where rows would lie if the store were ordered by how often they are used; the first
            ones then stay in memory.
        is_epoch: Windows grow as they do at the beginning of an epoch, if the batches at hand are
            all of one; else they are those in its middle.
    """
    found = Simulation(plan)
    if plan.is_whole:
        return found
    likely = likely_groups(case.contents, files, plan, case.profile.accesses)
    kept = groups_kept(files, plan)
    none = torch.empty(0, dtype=torch.int64)
    parts = []
    for file in files:
        if file.name in plan.hot and file.kind != "indices":
            rows = _paged(case, file, kept[file.name])
            rows.fill(engine_array(likely.get(file.name, none)))
            parts.append((_list_of(case, file), rows))
    most = plan.window_of(case.profile.epoch)
    growth = costs.WINDOW_GROWTH if is_epoch and case.profile.is_whole else most
    batches, is_whole = _reordered(case, order), case.profile.is_whole
    found.windows = _windows(batches, parts, plan, most, is_whole, growth)
    return found


def _paged(case: Case, file: FileSize, kept: int) -> _core.ReadForecast:
    """Forecasts the reads of a file."""
    column = case.contents.column(file.name)
    return _core.ReadForecast(
        column,
        file.row_bytes if file.row_bytes != column.row_bytes else 0,
        kept if file.is_ranked else 0,
        group_bits_of(file.row_bytes, file.num_rows),
        merge_gap=case.disk.merge_gap,
        num_frames=0 if file.is_ranked else kept,
    )


def _list_of(case: Case, file: FileSize) -> int:
    """Number of the batch's list of nodes or edges that a file's rows go by."""
    schema = case.contents.schema
    for number, node_name in enumerate(case.graph.node_types):
        record = schema.node_type(node_name)
        if record is not None and file.name in record.attrs.values():
            return number
    for number, edge_name in enumerate(case.graph.edge_types, len(case.graph.node_types)):
        edges = schema.edge_type(edge_name)
        if edges is not None and file.name in (edges.edge_id, *edges.attrs.values()):
            return number
    raise ValueError(f"{file.name}: found in no node or edge type of the graph")


def _reordered(case: Case, order: Ranks | None) -> list[list[Any]]:
    """The lists of all batches, as the engine takes them."""
    places = [] if order is None else [order[name] for name in case.graph.node_types]
    batches = []
    for lists in case.profile.batches:
        moved = [place(rows) for place, rows in zip(places, lists, strict=False)]
        batches.append([engine_array(rows) for rows in (*moved, *lists[len(moved) :])])
    return batches


def _window(
    batches: Sequence[list[Any]], parts: Iterable[tuple[int, _core.ReadForecast]], room: int
) -> Window:
    """Reads for as many of these batches as there is room for."""
    read: list[_core.RowWindow] = []
    for by, rows in parts:
        planned = rows.read([batch[by] for batch in batches], room)
        batches = batches[: planned.num_lists]
        room = max(0, room - planned.num_bytes)
        read.append(planned)
    window = Window(len(batches))
    for planned in read:
        planned.shorten(window.count)
        window.num_bytes += planned.num_bytes + planned.kept_bytes
        window.read += planned.stats
    return window


def _windows(
    batches: list[list[Any]],
    parts: list[tuple[int, _core.ReadForecast]],
    plan: MemoryPlan,
    most: int,
    is_whole: bool,
    growth: int,
) -> list[Window]:
    """Reads for window after window, as the pipeline does."""
    windows: list[Window] = []
    at, longest = 0, 1 if growth < most else most
    while at < len(batches):
        next_ones = batches[at : at + min(most, longest)]
        window = _window(next_ones, parts, plan.windows - plan.cached)
        at, longest = at + window.count, max(longest, growth * window.count)
        windows.append(window)
    # The last window is shorter than in an epoch if batches end within it.
    is_cut = not is_whole and len(windows) > 1 and windows[-1].count < windows[0].count
    return windows[:-1] if is_cut else windows
