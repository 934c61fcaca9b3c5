"""An epoch's reads, rehearsed: the plans and the functions of training, and nothing is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.needs import BatchSize, Kind, Need, batch_size, owners_of
from pyg_graphzero.memory.plan import MemoryPlan
from pyg_graphzero.memory.residence import group_bits_of, groups_kept
from pyg_graphzero.memory.source import BatchSource
from pyg_graphzero.memory.usage import Usage, count_accesses, shuffled_batches
from pyg_graphzero.memory.used_copy import UsedCopy
from pyg_graphzero.sampling.graph import SampledGraph
from pyg_graphzero.store.columns import engine_array
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.util.disk import DiskSpeed

#: By node type, a function that finds where rows (``int64``) would lie.
Ranks = Mapping[str | None, Callable[[Tensor], Tensor]]


def ranks_of(copy: UsedCopy, sampled: Sampled) -> Ranks:
    """By node type, where rows would lie if those that are not copied followed the others."""
    owners = owners_of(sampled.contents)
    orders = {owners[file]: copied.order for file, copied in copy.files.items() if file in owners}

    def ranks(name: str | None, rows: Tensor) -> Tensor:
        return orders[name].ranks(engine_array(rows)) if name in orders else rows

    return {name: partial(ranks, name) for name in sampled.graph.node_types}


@dataclass
class Sampled:
    """Batches of a loader, sampled to rehearse with.

    Attributes:
        contents: The store.
        graph: The graph that they are from.
        epoch: How many batches an epoch has.
        counted: How other batches use rows: those that are rehearsed would choose rows for
            themselves.
        size: Size of the largest batch.
        batches: For each the rows of every node type, then the slots of every edge type where rows
            are gathered by them, ``int64``.
        nodes: Nodes of these batches together.
        edges: Edges of these batches together.
        seconds: Time of sampling these batches, summed over threads.
    """

    contents: StoreContents
    graph: SampledGraph
    epoch: int
    counted: Usage
    size: BatchSize
    batches: list[list[Tensor]] = field(default_factory=list)
    nodes: int = 0
    edges: int = 0
    seconds: float = 0.0

    @classmethod
    def of(
        cls, loader: BatchSource, most: int, seconds: float, max_bytes: int, keeps_edges: bool
    ) -> Sampled:
        """Samples ``most`` batches, or for ``seconds``, or of ``max_bytes``; one at least."""
        graph = loader.graph_sampler.graph
        counted = Usage.of(graph)
        if len(loader.dataset) > 0:
            counted = count_accesses(loader, seconds=seconds / 2)
        found = cls(graph.contents, graph, loader.epoch_length(), counted, BatchSize())
        begun, num_bytes = perf_counter(), 0
        for batch in shuffled_batches(loader, most, num_threads=torch.get_num_threads()):
            slots = batch.slots[: len(graph.edge_types)] if keeps_edges else []
            found.batches.append([*batch.nodes, *slots])
            found.size = found.size.larger(batch_size(loader, batch))
            found.nodes += batch.num_nodes
            found.edges += batch.num_edges
            found.seconds += batch.sample_seconds
            num_bytes += sum(rows.nbytes for rows in found.batches[-1])
            if num_bytes > max_bytes or perf_counter() - begun > seconds / 2:
                break
        return found

    @property
    def is_whole(self) -> bool:
        """Whether these are all batches of an epoch."""
        return len(self.batches) == self.epoch


@dataclass
class Window:
    """Reads of one window of batches.

    Attributes:
        count: How many batches are in it.
        read: Counts of rows, requests and bytes that are read for them.
    """

    count: int = 0
    read: _core.ReadStats = field(default_factory=_core.ReadStats)


def rehearse(
    sampled: Sampled,
    plan: MemoryPlan,
    files: Sequence[Need],
    disk: DiskSpeed,
    order: Ranks | None = None,
) -> list[Window]:
    """Plans the reads of an epoch's windows, once everything that stays in memory is there.

    Args:
        sampled: The batches.
        plan: How a budget is divided.
        files: Files that loaders read from; sizes of rows may be other ones than the store's.
        disk: The disk.
        order: Where rows would lie if the store were ordered by how often they are used; the first
            ones then stay in memory.
    """
    if plan.is_whole:
        return []
    parts = []
    for file in files:
        if file.name in plan.hot and file.kind is not Kind.NEIGHBOURS:
            rows = _paged(sampled.contents, file, groups_kept(file, plan), disk)
            rows.fill(engine_array(_likely(sampled, file, plan)))
            parts.append((_list_of(sampled, file), rows))
    most = plan.window_of(sampled.epoch)
    growth = costs.WINDOW_GROWTH if sampled.is_whole else most
    return _windows(_reordered(sampled, order), parts, plan, most, sampled.is_whole, growth)


def _paged(contents: StoreContents, file: Need, kept: int, disk: DiskSpeed) -> _core.ReadForecast:
    """Forecasts the reads of a file."""
    column = contents.column(file.name)
    is_ranked = file.uses is not None
    return _core.ReadForecast(
        column,
        file.row_bytes if file.row_bytes != column.row_bytes else 0,
        kept if is_ranked else 0,
        group_bits_of(file.row_bytes, file.num_rows),
        merge_gap=disk.merge_gap,
        num_frames=0 if is_ranked else kept,
    )


def _likely(sampled: Sampled, file: Need, plan: MemoryPlan) -> Tensor:
    """Groups of a file's rows that frames will have: those that most batches use, ascending."""
    owners = owners_of(sampled.contents)
    if file.uses is not None or file.name not in owners:
        return torch.empty(0, dtype=torch.int64)
    counts, size = sampled.counted.counts[owners[file.name]], groups_kept(file, plan)
    bits = group_bits_of(file.row_bytes, file.num_rows)
    if bits > 0:
        whole = -len(counts) % (1 << bits)
        counts = torch.nn.functional.pad(counts, (0, whole)).view(-1, 1 << bits).sum(1)
    return top_rows(counts, size)


def top_rows(counts: Tensor, size: int) -> Tensor:
    """The ``size`` rows of the highest counts, fewer if fewer have any (``int64``, ascending).

    To sort would take eight bytes a row.
    """
    at_least = torch.bincount(counts).flip(0).cumsum(0).flip(0)  # rows, by count
    low = max(1, int((at_least > size).sum()))  # the lowest count of which there is room for all
    chosen = counts >= low
    if low > 1:
        ties = (counts == low - 1).nonzero().view(-1)
        chosen[ties[: size - int(chosen.sum())]] = True
    return chosen.nonzero().view(-1)


def _list_of(sampled: Sampled, file: Need) -> int:
    """Number of the batch's list of nodes or edges that a file's rows go by."""
    schema, graph = sampled.contents.schema, sampled.graph
    for number, node_name in enumerate(graph.node_types):
        record = schema.node_type(node_name)
        if record is not None and file.name in record.attrs.values():
            return number
    for number, edge_name in enumerate(graph.edge_types, len(graph.node_types)):
        edges = schema.edge_type(edge_name)
        if edges is not None and file.name in (edges.edge_id, *edges.attrs.values()):
            return number
    raise ValueError(f"{file.name}: found in no node or edge type of the graph")


def _reordered(sampled: Sampled, order: Ranks | None) -> list[list[Any]]:
    """The lists of all batches, as the engine takes them."""
    places = [] if order is None else [order[name] for name in sampled.graph.node_types]
    batches = []
    for lists in sampled.batches:
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
        window = _window(next_ones, parts, plan.windows)
        at, longest = at + window.count, max(longest, growth * window.count)
        windows.append(window)
    # The last window is shorter than in an epoch if batches end within it.
    is_cut = not is_whole and len(windows) > 1 and windows[-1].count < windows[0].count
    return windows[:-1] if is_cut else windows
