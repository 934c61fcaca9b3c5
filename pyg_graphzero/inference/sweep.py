"""``SweepLoader``: every node once, in order, with all of its neighbours.

Layer-wise inference computes one layer with it. Batches are runs of rows with a bounded number of
edges, so that the topology is read from front to back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.sampler import NodeSamplerInput

from pyg_graphzero import _core
from pyg_graphzero.loader.engine import EngineLoader
from pyg_graphzero.sampling.base import Prepared
from pyg_graphzero.sampling.neighbor import NeighborSampler
from pyg_graphzero.store.columns import gather, numbers_of, view_bounds
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeType

# Number of rows whose bounds are looked at together.
_ROWS_AT_ONCE = 1 << 18
# Number of edges after which pages of topologies are given up.
_MAPPED_EDGES = 1 << 21


class SweepLoader(EngineLoader[Any], DataLoader[Any]):  # type: ignore[misc]
    """Batches of consecutive nodes of one type, each with all in-neighbours of its nodes.

    In a batch ``n_id`` begins with the destinations: ``batch_size`` of them, from ``first_row`` on.
    There is no ``e_id``. Rows are read for windows of batches, as for training. Topologies are
    mapped: they are read from front to back, and pages that were used are given up.

    Args:
        data: ``store.data()``, with the attributes that batches shall have, and edge types that end
            in the node type.
        node_type: The node type of the rows; None in a homogeneous store.
        nodes: The nodes that rows stand for: all, or a rank's own where the store is in shards.
        runs: The rows of each batch; see :func:`runs_of`.
        num_workers: Threads of the engine, each of which makes a whole batch ahead; 0: each is made
            when it is asked for, by as many threads as torch has.

    Raises:
        MemoryBudgetError: There is no room for the largest batch, when the first one is asked for.

    Example:
        >>> import pyg_graphzero as gz
        >>> store = gz.open(example_store)
        >>> runs = runs_of(store.contents, [None], range(4), max_edges=4)
        >>> loader = SweepLoader(store.data(), None, range(4), runs, num_workers=0)
        >>> [(batch.first_row, batch.batch_size) for batch in loader]
        [(0, 2), (2, 2)]
    """

    edge_ids = False
    maps_topology = True

    def __init__(
        self, data: Any, node_type: str | None, nodes: range | Tensor, runs: Runs, num_workers: int
    ) -> None:
        self.data = data
        self.node_sampler = NeighborSampler(data, [-1])
        self._node_type, self._nodes, self._runs = node_type, nodes, runs
        graph = self.node_sampler.graph
        names = graph.edge_types if graph.shards is None and isinstance(nodes, range) else []
        self._topologies = [graph.store.topology(name) for name in names]
        self._arrays = [graph.store.csc(name) for name in names]
        self._used = 0  # edges since pages were given up
        # A generator of its own: a sweep draws nothing, and leaves torch's as it is.
        own = {"batch_size": 1, "num_workers": num_workers, "generator": torch.Generator()}
        self._load(runs.bounds.numel() - 1, own)

    def _run(self, number: int) -> list[int]:
        """The first row of a batch, and one past its last."""
        run: list[int] = self._runs.bounds[number : number + 2].tolist()
        return run

    def _prepare(self, index: Any, key: int) -> Prepared:
        nodes = numbers_of(self._nodes, *self._run(int(index)))
        for indptr, indices in self._arrays:
            first, last = gather(indptr, torch.stack([nodes[0], nodes[-1] + 1])).tolist()
            size = indices.itemsize  # faults alone read little at a time
            _core.will_need(indices.data_ptr() + first * size, (last - first) * size)
        inputs = NodeSamplerInput(index, nodes, None, self._node_type)
        return self.node_sampler.prepare_nodes(inputs)

    def trial(self, index: Tensor, key: int) -> Prepared:
        """Prepares the largest batch, so that there is room for each."""
        return self._prepare(torch.tensor([self._runs.largest]), key)

    def _label(self, batch: Any, metadata: Any) -> None:
        first, stop = self._run(int(metadata[0]))
        batch.first_row, batch.batch_size = first, stop - first
        self._used += sum(store.num_edges for store in batch.edge_stores)
        if self._used >= _MAPPED_EDGES:
            self._used = 0
            for topology in self._topologies:
                topology.forget_pages()


class Runs(NamedTuple):
    """Runs of rows, each of which is a batch.

    Attributes:
        bounds: ``int64 [num_batches + 1]``, ascending: batch ``i`` has the rows from ``bounds[i]``
            to ``bounds[i + 1]``; ``[0]`` where there are no rows.
        largest: Number of the batch with most rows and edges.
    """

    bounds: Tensor
    largest: int


def runs_of(
    contents: StoreContents,
    edge_types: Collection[EdgeType | None],
    nodes: range | Tensor,
    max_edges: int,
) -> Runs:
    """Cuts nodes of a type into runs with a bounded number of edges.

    Args:
        contents: The store's files.
        edge_types: Types whose edges are counted, all of which end in the node type.
        nodes: The nodes, in order; the rows of a run are places among them.
        max_edges: In-edges and rows of a batch together; a row that has more is a batch alone.
    """
    at_once = max(_ROWS_AT_ONCE, max_edges)
    ends = edge_types if contents.schema.edge_types else []

    def costs_of(first: int, last: int) -> Any:
        """Edges and rows before each of these rows."""
        costs = torch.arange(last - first + 1)
        for name in ends:
            if isinstance(nodes, range):
                costs += contents.bounds(name, nodes.start + first, nodes.start + last)
            else:
                rows = numbers_of(nodes, first, last)
                indptr = view_bounds(contents.topology(name))
                costs[1:] += (gather(indptr, rows + 1) - gather(indptr, rows)).cumsum(0)
        return costs.numpy()

    bounds, largest, most = [0], 0, 0
    for first in range(0, len(nodes), at_once):  # where a run ends, too
        costs, at = costs_of(first, min(first + at_once, len(nodes))), 0
        while at < len(costs) - 1:
            # The run ends before the first row whose end is beyond the bound.
            begin = int(costs[at])
            at = max(at + 1, bisect_right(costs, begin + max_edges, at + 1) - 1)
            if costs[at] - begin > most:
                largest, most = len(bounds) - 1, int(costs[at]) - begin
            bounds.append(first + at)
    return Runs(torch.tensor(bounds), largest)
