"""Layers that only add up or average their neighbours' rows: no batch of neighbours is made.

Sums are linear, so that it does not matter in which order rows come. For as many destinations as
memory holds sums of, the column is read once from front to back, and each row is added where an
edge leads. Reading costs the column times the number of such blocks, whatever the graph
looks like; batches that want all rows of their neighbours at once read most of it for far fewer
destinations.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.inference.passes import Convolving, Part, Pass, Task
from pyg_graphzero.inference.schedule import Convolve, bytes_of
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.budget import Budget, how_many
from pyg_graphzero.nn.program import Step
from pyg_graphzero.nn.rules import Value
from pyg_graphzero.sampling.inner_rows import InnerRows
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.util.system import private_rss


def can_sum(task: Task, contents: StoreContents) -> bool:
    """Whether a sweep of a homogeneous store needs no more than sums of neighbours' rows."""
    sweep, convs = task.sweep, task.sweep.convs
    if sweep.node_type is not None or len(convs) != 1 or not contents.schema.edge_types:
        return False
    if convs[0].about.reduction is None or len(sweep.gathered) != 1 or sweep.of_edges:
        return False
    if torch.is_autocast_enabled(task.device.type):
        return False
    file = contents.node_type(None).attrs[task.columns[sweep.gathered[0]]]
    rows = contents.rows(file)
    return rows.dtype == torch.float32 and len(rows.shape) == 2 and rows.shape.numel() > 0


class SummedPass(Pass):
    """A layer over all rows, by sums over their neighbours.

    Args:
        task: The sweep; see :func:`can_sum`.
        contents: The store's files.
        max_rows: Rows of a batch that goes through the layer; None: as many as there is room for.
    """

    def __init__(self, task: Task, contents: StoreContents, max_rows: int | None = None) -> None:
        sweep = task.sweep
        super().__init__(task, contents, [*sweep.gathered, *sweep.own])
        self._is_mean = sweep.convs[0].about.reduction == "mean"
        file = contents.node_type(None).attrs[task.columns[sweep.gathered[0]]]
        self._column, self._rows = contents.column(file), contents.rows(file)
        self._topology = contents.topology(None)
        more = sum(bytes_of(value.row) for value in sweep.own)
        self.divide(sweep.row_bytes + more, max_rows)

    def divide(self, row_bytes: int, max_rows: int | None) -> None:
        """Sizes of what is in memory at a time."""
        budget = Budget(self._contents.memory, private_rss())
        width, stride = self._rows.shape[1], self._column.row_stride
        everything = self._topology.num_edges * self._topology.index_bytes
        everything += self._column.data_bytes + 8 * self._topology.num_dst
        # Files that fit are in the page cache, or should be.
        self._direct = budget.left < everything
        budget.spend(costs.READER)
        free = budget.left
        self._mapped = budget.take(costs.MAPPED_SHARE, most=costs.MAX_MAPPED, of=free)
        # The layer has its rows, their sums, and what comes out a few times.
        each = 4 * (3 * width + row_bytes)
        most = costs.MAX_SUMS_ROWS if max_rows is None else max_rows
        self._batch = budget.take(costs.SUMS_SHARE, each, 1, most, of=free)
        chunk = how_many(free, costs.CHUNK_SHARE, most=costs.MAX_CHUNK)
        # A power of two, as the engine will have it.
        self._chunk_rows = 1 << (max(1, chunk // stride).bit_length() - 1)
        budget.spend(2 * min(self._chunk_rows, self._column.shape[0]) * stride)
        self._room, self._sum_bytes = budget.left, 4 * width + costs.SUMMED_ROW
        budget.check(self._sum_bytes, f" to add up neighbours in {self._contents.path}")

    def _parts(self) -> Iterator[Part]:
        engine = _core.NeighborSums(
            self._topology, self._column, self._direct, self._chunk_rows, self._mapped, self._room
        )
        first = 0
        while first < self.num_rows:
            bounds = self.bounds_of_block(first)
            stop = first + bounds.numel() - 1
            sums = self._sums(engine, first, stop)
            self.stats.edges += int(bounds[-1] - bounds[0])
            for at in range(0, stop - first, self._batch):
                end = min(at + self._batch, stop - first)
                part = sums[at:end]
                if self._is_mean:
                    part /= bounds[at : end + 1].diff().clamp(min=1).unsqueeze(1)
                yield first + at, end - at, {}, self._convolve(part)
            first = stop
            del bounds, sums, part  # the next block has room for its own

    def bounds_of_block(self, first: int) -> Tensor:
        """The bounds of as many rows as have room for their sums, and edges meanwhile."""
        most = max(1, min(self._topology.num_dst - first, self._room // self._sum_bytes))
        bounds = self._contents.bounds(None, first, first + most)
        ends, begin = bounds.numpy(), int(bounds[0])

        def cost(count: int) -> int:
            return count * self._sum_bytes + (int(ends[count]) - begin) * costs.SUMMED_EDGE

        count = bisect_right(range(1, most + 1), self._room, key=cost)
        return bounds[: max(1, count) + 1].clone()

    def _sums(self, engine: _core.NeighborSums, first: int, stop: int) -> Tensor:
        """Sums of neighbours' rows, for rows ``first`` to ``stop``; until the next ones."""
        stats = self.stats
        engine.begin(first, stop)
        while engine.step():  # and a Ctrl-C between
            pass
        self.peak_memory = max(self.peak_memory, private_rss())
        self._topology.forget_pages()
        stats.add_read(engine.stats)
        stats.wait += engine.wait_seconds
        begin, end = self._contents.bounds_at(None, torch.tensor([first, stop])).tolist()
        # Sorted in two sweeps: counted, then put in place.
        stats.topology_bytes += 2 * (
            (end - begin) * self._topology.index_bytes + 8 * (stop - first)
        )
        return engine.sums()

    def _convolve(self, sums: Tensor) -> Convolve:
        """The convolution, over these sums: no sources, and no edges."""
        task, reduction = self.task, self.task.sweep.convs[0].about.reduction
        none = {None: torch.empty(2, 0, dtype=torch.int64, device=task.device)}
        convolving = Convolving(task, len(sums), {None: range(len(sums))}, none)

        def convolve(step: Step, rows: dict[Value, Tensor]) -> dict[Value, Tensor]:
            (value,) = task.sweep.gathered
            summed = InnerRows.of(rows[value], {None: sums.to(task.device)}, reduction, None)
            return convolving(step, rows | {value: summed})

        return convolve
