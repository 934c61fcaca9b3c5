"""A sweep over a store reads ahead: the rows that a run of batches needs, all at once.

A training epoch reads for a window of batches that were sampled. A sweep takes all neighbours, so
the topology alone says what its batches need: they are not sampled before their rows are there, and
take no memory until then. So a block has as many batches as there is room for rows. Each row is
read once for a block, in the order of the file. While the batches of one block are computed, the
next block is read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.budget import Budget
from pyg_graphzero.memory.needs import Kind, Need, file_of
from pyg_graphzero.sampling.graph import SampledGraph
from pyg_graphzero.store.columns import engine_array
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeTypeSchema, NodeTypeSchema
from pyg_graphzero.util.disk import probe

# Attributes of edges are read for groups of 2 ** _SLOT_BITS slots.
_SLOT_BITS = 12


@dataclass(frozen=True)
class SweepPlan:
    """How a sweep uses a budget; in bytes.

    Attributes:
        held: Node columns that are in memory whole; others are read block by block.
        block: Bytes for the rows of one block. There are two at a time.
        mapped: Bytes of topologies that may be mapped before their pages are given up.
        rows_at_once: Number of rows that are asked of the disk together.
    """

    held: tuple[str, ...]
    block: int
    mapped: int
    rows_at_once: int


def plan_sweep(
    memory: int, baseline: int, files: list[Need], flight: int, largest: int
) -> SweepPlan | None:
    """Divides a budget for a sweep; None where everything fits.

    Args:
        memory: The budget.
        baseline: Bytes that the process holds already.
        files: Files that the sweep reads.
        flight: Bytes of the batches that are made or under way.
        largest: Bytes of the largest batch's rows as they are stored.

    Raises:
        MemoryBudgetError: There is no room for two blocks of one batch.
    """
    budget = Budget(memory, baseline)
    free = budget.left
    if free >= sum(file.held_bytes for file in files) + flight:
        return None
    nodes = sorted((f for f in files if f.kind is Kind.ROWS), key=lambda file: file.num_bytes)
    most = costs.MAX_READ_ROWS
    at_once = budget.take(costs.READ_SHARE, costs.READ_ROW, 1, most, of=free)
    mapped = budget.take(costs.MAPPED_SHARE, most=costs.MAX_MAPPED, of=free)
    bits = 2 * int(costs.REACHED_ROW * sum(file.num_rows for file in nodes))
    budget.spend(costs.READER + bits + flight)
    held: list[str] = []
    for file in nodes:
        is_last = file is nodes[-1] and len(held) == len(nodes) - 1
        if file.held_bytes <= (1.0 if is_last else costs.COLUMN_SHARE) * budget.left:
            held.append(file.name)
            budget.spend(file.held_bytes)
    if len(held) < len(nodes):
        budget.check(2 * largest, " for batches of this size (or a smaller max_edges)")
    return SweepPlan(tuple(held), max(0, budget.left) // 2, mapped, at_once)


@dataclass
class Block:
    """The rows of a run of batches.

    Attributes:
        stop: One past the last batch.
        rows: The rows that were read, by file.
        reads: Counts of rows, requests and bytes that were read.
        topology_bytes: Bytes of the topologies' entries for these batches.
    """

    stop: int
    rows: dict[str, _core.PagedRows] = field(default_factory=dict)
    reads: _core.ReadStats = field(default_factory=_core.ReadStats)
    topology_bytes: int = 0


@dataclass(eq=False)
class Source:
    """Reads blocks; and is what a plan of batches asks which rows it is to gather.

    Attributes:
        contents: The store's files.
        room: How the sweep uses its budget.
        bounds: The rows of each batch, see :class:`~.sweep.Batches`.
        node_type: The node type of these rows.
        graph: The graph that is sampled.
        none: No rows of each file, in the order in which the plan asked: it is made with these.
        is_cancelled: Set where no more blocks are wanted.
    """

    contents: StoreContents
    room: SweepPlan
    bounds: Tensor
    node_type: str | None
    graph: SampledGraph
    none: dict[str, _core.PagedRows] = field(default_factory=dict)
    is_cancelled: threading.Event = field(default_factory=threading.Event)
    is_loaded = True
    _mapped = 0

    def __post_init__(self) -> None:
        self._reader = _core.DiskGather(buffer_bytes=16 << 20)
        self._merge_gap = probe(self.contents.path).merge_gap

    def file_of(self, value: Any) -> str | None:
        """The file that an attribute's rows are in; None where they are in memory."""
        return file_of(self.contents, value)

    def held_rows(self, file: str) -> None:
        """Columns that are held are mapped."""

    def rows(self, file: str) -> _core.PagedRows | None:
        """Paged rows without any row of a column; a block's rows are to take their place."""
        if file in self.room.held:
            return None
        column = self.contents.column(file)
        none = _core.PagedRows(column.shape[0], _core.ColumnFile.of(column), self._reader)
        self.none[file] = none
        return none

    def blocks(self) -> Iterator[Block]:
        """Reads all blocks.

        Raises:
            OSError: A row of a block cannot be read.
        """
        first, count = 0, self.bounds.numel() - 1
        while first < count and not self.is_cancelled.is_set():
            block = Block(count)
            self._read_nodes(first, block)
            self._read_edges(first, block)
            first = block.stop
            yield block
            del block  # memory has two, and three never

    def forget(self, num_edges: int) -> None:
        """Gives up mapped pages of topologies, once enough of their edges were used."""
        self._mapped += num_edges * 8
        if self._mapped >= self.room.mapped // 2:
            self._mapped = 0
            for name in self.graph.edge_types:
                self.contents.topology(name).forget_pages()

    def _files(self, record: NodeTypeSchema | EdgeTypeSchema | None) -> list[str]:
        """Which of a type's attributes batches gather from blocks."""
        attrs = {} if record is None else record.attrs
        return [file for file in attrs.values() if file in self.none]

    def _read_nodes(self, first: int, block: Block) -> None:
        schema, column = self.contents.schema, self.contents.column
        types = list(self.graph.node_types)
        columns = [self._files(schema.node_type(name)) for name in types]
        edges = [self._files(schema.edge_type(name)) for name in self.graph.edge_types]
        row_bytes, edge_bytes = (
            [sum(column(file).row_bytes for file in files) for files in parts]
            for parts in (columns, edges)
        )
        if not any(row_bytes) and not any(edge_bytes):
            return
        found = _core.reach(
            self.graph.builder({}), types.index(self.node_type), engine_array(self.bounds), first,
            row_bytes, edge_bytes, self.room.block, self.room.mapped // 2,
        )  # fmt: skip
        block.stop = found.stop
        for reached, files in zip(found.rows, columns, strict=True):
            for file in files:
                self._load(block, file, _core.PagedRows.of_reached(
                    reached, _core.ColumnFile.of(column(file)), self._reader, self._merge_gap
                ))  # fmt: skip

    def _read_edges(self, first: int, block: Block) -> None:
        contents = self.contents
        first, stop = self.bounds[[first, block.stop]].tolist()
        for name in self.graph.edge_types:
            if name is not None and name[2] != self.node_type:
                continue
            topology = contents.topology(name)
            begin, end = contents.bounds_at(name, torch.tensor([first, stop])).tolist()
            block.topology_bytes += (end - begin) * topology.index_bytes + (stop - first) * 8
            groups = engine_array(torch.arange(begin >> _SLOT_BITS, -(-end // (1 << _SLOT_BITS))))
            for file in self._files(contents.schema.edge_type(name)):
                self._load(block, file, _core.PagedRows(
                    topology.num_edges, _core.ColumnFile.of(contents.column(file)),
                    self._reader, 0, groups, _SLOT_BITS, self._merge_gap,
                ))  # fmt: skip

    def _load(self, block: Block, file: str, rows: _core.PagedRows) -> None:
        group = 0
        while group >= 0 and not self.is_cancelled.is_set():
            group, read = rows.load(group, self.room.rows_at_once)
            block.reads += read
        block.rows[file] = rows
