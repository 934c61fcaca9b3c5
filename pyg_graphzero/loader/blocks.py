"""What a sweep over a store reads ahead: the rows that a run of batches needs, all at once.

A window of a training epoch is made of batches that were sampled. A sweep takes all neighbours, so
that what its batches need is known from the topology alone: batches that wait take no memory, and
what is read for them is as large as the budget allows. Each row is read once for such a block, in
the order of the file. While batches of one block are computed, the next one is read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.loader.plan import BatchPlan
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.budget import Budget
from pyg_graphzero.memory.files import file_of
from pyg_graphzero.memory.plan import FileSize
from pyg_graphzero.sampling.graph import SampledGraph
from pyg_graphzero.store.columns import engine_array
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeTypeSchema, NodeTypeSchema
from pyg_graphzero.util.disk import probe

# Slots of edges whose attributes are read, rounded to so many.
_SLOT_BITS = 12


@dataclass(frozen=True)
class SweepPlan:
    """How a sweep uses a budget; in bytes.

    Attributes:
        held: Node columns that are in memory whole.
        paged: Those that are read block by block.
        block: What the rows of one block may take. There are two at a time.
        mapped: What may be mapped of topologies before it is forgotten.
        rows_at_once: So many are asked of the disk together.
    """

    held: tuple[str, ...]
    paged: tuple[str, ...]
    block: int
    mapped: int
    rows_at_once: int


def plan_sweep(
    memory: int, baseline: int, files: list[FileSize], flight: int, largest: int
) -> SweepPlan | None:
    """Divides a budget for a sweep; None where everything fits.

    Args:
        memory: The budget.
        baseline: What the process holds already.
        files: What is read.
        flight: What batches take that are made or under way.
        largest: What the rows of the largest batch take as they are stored.

    Raises:
        MemoryBudgetError: There is no room for two blocks of one batch.
    """
    budget = Budget(memory, baseline)
    free = budget.left
    if free >= sum(file.held_bytes for file in files) + flight:
        return None
    nodes = sorted((f for f in files if f.kind == "node"), key=lambda file: file.num_bytes)
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
    paged = [file.name for file in nodes if file.name not in held]
    if paged:
        budget.check(2 * largest, " for batches of this size (or a smaller max_edges)")
    return SweepPlan(tuple(held), tuple(paged), max(0, budget.left) // 2, mapped, at_once)


@dataclass
class Block:
    """The rows of a run of batches.

    Attributes:
        first: The first batch.
        stop: Behind the last.
        rows: By file.
        reads: What was read.
        topology_bytes: What lies between of topologies.
        error: Why not all of it could be read.
    """

    first: int
    stop: int = 0
    rows: dict[str, _core.PagedRows] = field(default_factory=dict)
    reads: _core.ReadStats = field(default_factory=_core.ReadStats)
    topology_bytes: int = 0
    error: Exception | None = None


class Blocks:
    """The blocks of one epoch of a sweep, one ahead.

    Args:
        contents: The store's files.
        room: What its blocks may take.
        bounds: The rows of each batch, see :class:`~.sweep.SweepLoader`.
        node_type: Of these rows.
        graph: What is sampled.
        plan_of: Makes the plan of the batches, given what it is to ask for rows.

    Attributes:
        plan: How its batches are put together; from which rows, :meth:`enter` says.
        reads: Of all blocks until now, see :class:`Block`.
        topology_bytes: Likewise.
        waited: Seconds, for blocks that were not read.
    """

    # As the plan sees it, which asks this as it asks a pager.
    is_loaded = True

    def __init__(
        self,
        contents: StoreContents,
        room: SweepPlan,
        bounds: Tensor,
        node_type: str | None,
        graph: SampledGraph,
        plan_of: Callable[[Blocks], BatchPlan],
    ) -> None:
        self.contents = contents
        self.room = room
        self.bounds = bounds
        self.node_type = node_type
        self.graph = graph
        self.reader = _core.DiskGather(num_threads=1, buffer_bytes=16 << 20)
        self.merge_gap = probe(contents.path).merge_gap
        self.is_cancelled = threading.Event()
        self.reads = _core.ReadStats()
        self.topology_bytes = 0
        self.waited = 0.0
        self._none: dict[str, _core.PagedRows] = {}  # by number of the plan's paged rows
        self.plan = plan_of(self)
        self._columns = self.plan.columns
        self._block: Block | None = None
        self._next: tuple[threading.Thread, Block] | None = None
        self._asked = 0
        self._mapped = 0
        self._read_ahead(0)

    def file_of(self, value: Any) -> str | None:
        """As :meth:`PagedFiles.file_of`."""
        return file_of(self.contents, value)

    def rows(self, file: str) -> _core.PagedRows | None:
        """None of a column's rows; a block's are to take their place."""
        if file in self.room.held:
            return None
        column = self.contents.column(file)
        none = _core.PagedRows(column.shape[0], [_core.ColumnFile.of(column)], self.reader)
        self._none[file] = none
        return none

    def columns_of(self, record: NodeTypeSchema | EdgeTypeSchema | None) -> list[str]:
        """Which of a type's attributes batches gather from blocks: their files."""
        attrs = {} if record is None else record.attrs
        return [file for file in attrs.values() if file in self._none]

    def may_ask(self) -> bool:
        """Whether the next batch may be asked for: memory has two blocks, and three never."""
        return self._next is not None or (
            self._block is not None and self._asked < self._block.stop
        )

    def enter(self, number: int) -> None:
        """Has the plan gather batch ``number``; they come in order, each when it may.

        Waits until its block is read.

        Raises:
            OSError: A row of the block cannot be read.
        """
        self._asked = max(self._asked, number + 1)
        if self._block is not None and number < self._block.first:
            raise RuntimeError(f"batch {number}: its rows are not in memory any more; sweep again")
        if self._block is None or number >= self._block.stop:
            assert self._next is not None
            thread, block = self._next
            begun = perf_counter()
            thread.join()
            self.waited += perf_counter() - begun
            columns = self.plan.columns
            if block.error is None:
                # Of edges that end elsewhere, there are none.
                columns = self._columns.with_loaded(list((self._none | block.rows).values()))
            reads = self.reads + block.reads
            # At once: an exception that strikes before finds all of it to be done again.
            self.plan.columns, self.reads = columns, reads
            self.topology_bytes += block.topology_bytes
            self._block, self._next = block, None
            block.rows.clear()  # when the last of its batches is made, they are gone
        if self._block.error is not None:
            raise self._block.error

    def delivered(self, first_row: int, num_edges: int) -> None:
        """A batch was: those before it are nobody's any more."""
        block = self._block
        assert block is not None
        if self._next is None and first_row >= int(self.bounds[block.first]):
            self._read_ahead(block.stop)
        self._mapped += num_edges * 8
        if self._mapped >= self.room.mapped // 2:
            self._mapped = 0
            for name in self.graph.edge_types:
                self.contents.topology(name).forget_pages()

    def close(self) -> None:
        """Has what is under way end soon."""
        self.is_cancelled.set()

    def __del__(self) -> None:
        self.close()

    def _read_ahead(self, first: int) -> None:
        if first < self.bounds.numel() - 1:
            block = Block(first)
            thread = threading.Thread(target=_Reading(self, block).run, name="graphzero-sweep")
            thread.start()
            self._next = thread, block


class _Reading:
    """One block on its way from the disk; holds on to no loader."""

    def __init__(self, blocks: Blocks, block: Block) -> None:
        self.block = block
        self.contents = blocks.contents
        self.room = blocks.room
        self.bounds = blocks.bounds
        self.graph = blocks.graph
        self.reader = blocks.reader
        self.merge_gap = blocks.merge_gap
        self.is_cancelled = blocks.is_cancelled
        schema = self.contents.schema
        self.types = list(self.graph.node_types)
        self.dst_type = self.types.index(blocks.node_type)
        self.columns = [blocks.columns_of(schema.node_type(name)) for name in self.types]
        self.edge_columns = [
            blocks.columns_of(schema.edge_type(name)) for name in self.graph.edge_types
        ]

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:  # raised where the first of its batches is asked for
            self.block.error = error
            self.block.stop = max(self.block.stop, self.block.first + 1)

    def _run(self) -> None:
        block, contents = self.block, self.contents
        for reached, files in zip(self._reach(), self.columns, strict=False):
            for file in files:
                column = _core.ColumnFile.of(contents.column(file))
                rows = _core.PagedRows.of_reached(reached, column, self.reader, self.merge_gap)
                self._read(file, rows)
        first, stop = (int(self.bounds[at]) for at in (block.first, block.stop))
        for name, files in zip(self.graph.edge_types, self.edge_columns, strict=True):
            if name is not None and name[2] != self.types[self.dst_type]:
                continue
            topology = contents.topology(name)
            begin, end = contents.bounds_at(name, torch.tensor([first, stop])).tolist()
            block.topology_bytes += (end - begin) * topology.index_bytes + (stop - first) * 8
            for file in files:
                groups = torch.arange(begin >> _SLOT_BITS, -(-end // (1 << _SLOT_BITS)))
                rows = _core.PagedRows(
                    topology.num_edges, [_core.ColumnFile.of(contents.column(file))], self.reader,
                    0, engine_array(groups), _SLOT_BITS, self.merge_gap,
                )  # fmt: skip
                self._read(file, rows)

    def _reach(self) -> list[_core.ReachedRows]:
        """How far the block goes, and which rows of each node type it needs."""
        block = self.block
        row_bytes, edge_bytes = (
            [sum(self.contents.column(file).row_bytes for file in files) for files in columns]
            for columns in (self.columns, self.edge_columns)
        )
        if not any(row_bytes) and not any(edge_bytes):
            block.stop = self.bounds.numel() - 1
            return []
        found = _core.reach(
            self.graph.builder({}), self.dst_type, engine_array(self.bounds), block.first,
            row_bytes, edge_bytes, self.room.block, self.room.mapped // 2,
        )  # fmt: skip
        block.stop = found.stop
        return found.rows

    def _read(self, file: str, rows: _core.PagedRows) -> None:
        group = 0
        while group >= 0 and not self.is_cancelled.is_set():
            group, read = rows.load(group, self.room.rows_at_once)
            self.block.reads += read
        self.block.rows[file] = rows
