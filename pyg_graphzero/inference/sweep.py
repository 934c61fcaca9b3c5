"""``SweepLoader``: every node once, in order, with all of its neighbours.

Layer-wise inference computes one layer with it. Batches are runs of rows with a bounded number of
edges, so that the topology is read from front to back.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_graphzero import _core
from pyg_graphzero.inference.blocks import Blocks, Source, plan_sweep
from pyg_graphzero.loader.epoch import Request
from pyg_graphzero.loader.keyed import as_positions
from pyg_graphzero.loader.neighbor import NeighborLoader
from pyg_graphzero.loader.plan import BatchPlan
from pyg_graphzero.loader.stats import LoaderStats
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.needs import Kind, bytes_of_rows, files_of
from pyg_graphzero.memory.prefetch import prefetch_files
from pyg_graphzero.memory.residence import Residence
from pyg_graphzero.pyg.data import contents_of
from pyg_graphzero.sampling.base import Prepared
from pyg_graphzero.store.columns import engine_array, gather, numbers_of, view_bounds
from pyg_graphzero.util.system import private_rss

# Number of rows whose bounds are looked at together.
_ROWS_AT_ONCE = 1 << 18


class SweepLoader(NeighborLoader[Any]):
    """Batches of consecutive nodes of one type, each with all in-neighbours of its nodes.

    In a batch ``n_id`` begins with the destinations: ``batch_size`` of them, from ``first_row`` on.
    There is no ``e_id``.

    Args:
        data: ``store.data()``, with the attributes that batches shall have. They must be the
            store's own; edge types that end elsewhere cost nothing but their tables.
        node_type: The node type of the rows; None in a homogeneous store.
        bounds: ``int64 [num_batches + 1]``, ascending: batch ``i`` has the rows from
            ``bounds[i]`` to ``bounds[i + 1]``; see :func:`sweep_bounds`.
        num_workers: Threads of the engine that work ahead.
        nodes: The nodes that rows stand for, a rank's own where the store is in shards; None: the
            rows themselves.

    Example:
        >>> import pyg_graphzero as gz
        >>> data = gz.open(example_store).data()
        >>> bounds = sweep_bounds(data, None, max_edges=4)
        >>> loader = SweepLoader(data, None, bounds)
        >>> [(batch.first_row, batch.batch_size) for batch in loader]
        [(0, 2), (2, 2)]
    """

    def __init__(
        self,
        data: Any,
        node_type: str | None,
        bounds: Tensor,
        num_workers: int = 0,
        nodes: range | Tensor | None = None,
    ) -> None:
        self._nodes = range(int(bounds[-1])) if nodes is None else nodes
        # The seeds that the loader shows to torch are numbers of batches: rows are made of them
        # batch by batch, never a list of all.
        self.bounds = bounds
        self.node_type = node_type
        self._blocks: Blocks | None = None
        numbers = torch.arange(bounds.numel() - 1)
        super().__init__(
            data,
            [-1],
            input_nodes=numbers if node_type is None else (node_type, numbers),
            batch_size=1,
            num_workers=num_workers,
            edge_ids=False,
        )

    def keeper(self) -> None:
        """None: what is in memory is up to the blocks."""

    def files(self) -> None:
        """None: the blocks of an epoch that begins now read the files."""
        self._blocks = self._new_blocks()

    def _new_blocks(self) -> Blocks | None:
        """The blocks of an epoch; None where the store is in memory whole, or in shards."""
        bounds, graph = self.bounds, self.graph_sampler.graph
        contents = graph.contents
        rows = bounds.diff()
        if rows.numel() == 0 or contents.shards is not None:
            return None
        edges = torch.zeros_like(rows)
        for name in graph.edge_types:
            if name is None or name[2] == self.node_type:
                edges += contents.bounds_at(name, bounds).diff()
        nodes, files = rows + edges, files_of(self)
        out_bytes = max(bytes_of_rows(self.data).values())
        ahead = 2 + max(1, self.num_workers * (self.prefetch_factor or 1))
        sizes = nodes * out_bytes + edges * costs.EDGE
        flight = int(sizes.topk(min(rows.numel(), ahead)).values.sum())
        stored = max((file.row_bytes for file in files if file.kind is Kind.ROWS), default=0)
        of_edges = sum(file.row_bytes for file in files if file.kind is Kind.EDGES)
        largest = int(nodes.max()) * stored + int(edges.max()) * of_edges
        room = plan_sweep(contents.memory, private_rss(), files, flight, largest)
        if room is None:
            prefetch_files(contents, [file.name for file in files])
            return None
        prefetch_files(contents, room.held)
        source = Source(contents, room, bounds, self.node_type, graph)
        plan = BatchPlan(self.data, self.graph_sampler, False, source)
        return Blocks(source, plan)

    def may_ask(self) -> bool:
        """Whether the block of one more batch is there, or is read next."""
        return self._blocks is None or self._blocks.may_ask()

    def _request(self, plan: BatchPlan | None, index: Any, key: int) -> Request:
        if self._blocks is not None:
            self._blocks.enter(int(as_positions(index)[0]))
        return super()._request(plan, index, key)

    def plan_by(self, files: Residence | None) -> BatchPlan:
        """How a batch is put together: with the rows of its block, where blocks are read."""
        return super().plan_by(None) if self._blocks is None else self._blocks.plan

    def _prepare(self, index: Any, key: int) -> Prepared:
        number = int(index[0])
        first, stop = self.bounds[number : number + 2].tolist()
        types = list(self.graph_sampler.graph.node_types)
        rows = engine_array(numbers_of(self._nodes, first, stop))
        seeds = [(types.index(self.node_type), rows, None)]
        return Prepared(seeds, lambda sampled: (first, stop - first))

    def _finish(self, batch: _core.Batch, request: Request, *fetched: Any) -> Any:
        made = super()._finish(batch, request, *fetched)
        if self._blocks is not None:
            self._blocks.delivered(made.first_row, batch.num_edges)
        return made

    def _label(self, batch: Data | HeteroData, metadata: Any) -> None:
        batch.first_row, batch.batch_size = metadata

    def stats(self) -> LoaderStats:
        """Where the time goes; what blocks read is in it once their batches are asked for."""
        stats, blocks = super().stats(), self._blocks
        if blocks is None:
            return stats
        stats = replace(
            stats,
            topology_bytes=blocks.topology_bytes,
            prepare=max(0.0, stats.prepare - blocks.waited),
            wait=stats.wait + blocks.waited,
        )
        stats.add_read(blocks.reads)  # the batches themselves have read nothing
        return stats


def sweep_bounds(
    data: Any, node_type: str | None, max_edges: int, nodes: range | Tensor | None = None
) -> Tensor:
    """Cuts the rows of a node type into runs of a bounded number of edges.

    Args:
        data: ``store.data()``; its edge types that end in ``node_type`` are counted.
        node_type: The node type of the rows; None in a homogeneous store.
        max_edges: In-edges and rows of a batch together; a row that has more is a batch alone.
        nodes: The nodes that rows stand for; None: the rows themselves.

    Returns:
        ``int64 [num_batches + 1]``, 8 bytes a batch; ``[0]`` where there are no rows.
    """
    contents = contents_of(data)
    assert contents is not None
    num_rows = contents.node_type(node_type).num_nodes if nodes is None else len(nodes)
    ends = [name for name in data.edge_types if name[2] == node_type] if node_type else [None]
    if node_type is None and not contents.schema.edge_types:
        ends = []
    at_once = max(_ROWS_AT_ONCE, max_edges)

    def costs_of(first: int, last: int) -> Any:
        """Edges and rows before each of these rows."""
        costs = torch.arange(last - first + 1)
        for name in ends:
            if nodes is None:
                costs += contents.bounds(name, first, last)
            else:
                rows = numbers_of(nodes, first, last)
                indptr = view_bounds(contents.topology(name))
                costs[1:] += (gather(indptr, rows + 1) - gather(indptr, rows)).cumsum(0)
        return costs.numpy()

    bounds = [0]
    for first in range(0, num_rows, at_once):  # where a run ends, too
        costs, at = costs_of(first, min(first + at_once, num_rows)), 0
        while at < len(costs) - 1:
            # The run ends before the first row whose end is beyond the bound.
            at = max(at + 1, bisect_right(costs, int(costs[at]) + max_edges, at + 1) - 1)
            bounds.append(first + at)
    return torch.tensor(bounds)
