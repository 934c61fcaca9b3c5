"""Neighbour sampling along edges and against them at once, as a PyG ``BaseSampler``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.sampling.base import Sampled
from pyg_graphzero.sampling.graph import SampledGraph, Unmapped
from pyg_graphzero.sampling.neighbor import NeighborSampler
from pyg_graphzero.sampling.options import Description
from pyg_graphzero.sampling.order import edge_values
from pyg_graphzero.store.columns import engine_array, gather, in_memory, look_up
from pyg_graphzero.store.edge_order import rank_edges
from pyg_graphzero.store.schema import EdgeType


class BidirectionalNeighborSampler(NeighborSampler):
    """Samples in-neighbours and out-neighbours in each hop; see PyG's class of the same name.

    A hop draws ``num_neighbors`` edges that lead to a node, and as many that lead on from it. An
    edge that is drawn from both its ends is there once. Give it to a loader as
    ``neighbor_sampler``. Out-neighbours of a store need its edges by source (``Store.create_csr``),
    which are read through the mapped file.

    Samples have ``num_sampled_nodes`` per hop, and no ``num_sampled_edges``: an edge of a later hop
    may lead to a node of an earlier one, so that no layer can do without it.

    Args:
        data: A ``Store``, its ``.data()``, its two stores, or ``Data``/``HeteroData`` in memory.
        num_neighbors: Fan-out per hop, for each direction; see ``NeighborSampler``.
        subgraph_type: See ``NeighborSampler``.
        replace: Draw with replacement; an edge is in the sample once all the same.
        disjoint: Every seed grows a tree of its own.
        temporal_strategy: Taken for PyG's sake.
        time_attr: Only None, as PyG samples no times both ways.
        weight_attr: Edge attribute with weights: draws are in proportion to it.
        is_sorted: Taken for PyG's sake.
        share_memory: Taken for PyG's sake: processes share the files.
        directed: Deprecated; False means ``subgraph_type="induced"``.
        sample_direction: Only ``"forward"``.
        num_threads: Threads inside one batch; 0 uses as many as torch does.
        time_window: Only None.
        options: Only None.

    Raises:
        UnsupportedError: ``time_attr``; the store has edges by destination only.
        ValueError: ``NeighborSampler`` would raise it.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.sampler import NodeSamplerInput
        >>> line = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
        >>> sampler = gz.sampler.BidirectionalNeighborSampler(line, [-1])
        >>> out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([1])))
        >>> out.node.tolist(), out.edge.tolist()
        ([1, 0, 2], [0, 1])
    """

    _taken = ()
    _directions = 2
    is_final = is_by_hop = False  # edges of both directions are joined

    def _begin(
        self, data: Any, num_neighbors: Any, description: Description, num_threads: int
    ) -> None:
        if description.time_attr is not None:
            raise UnsupportedError(
                f"time_attr: found {description.time_attr!r}, expected None: this sampler looks at "
                "no times, as in PyG; NeighborSampler samples in-neighbours by time"
            )
        if description.sample_direction != "forward":
            raise ValueError(
                "sample_direction: found 'backward', expected 'forward': both are drawn"
            )
        super()._begin(data, num_neighbors, description, num_threads)

    def _prepare_graph(self, graph: SampledGraph, data: Any, own: Description) -> None:
        super()._prepare_graph(graph, data, own)
        along = self._along = _by_source(graph)
        if own.weight_attr is not None:
            for name, weights in edge_values(graph, data, own.weight_attr).items():
                slots = self._csc_slots(name)
                if slots is not None:
                    weights = gather(weights, in_memory(slots, torch.int64))
                along.orders[name] = rank_edges(along.bounds(name), None, weights, name)

    def _csc_slots(self, name: EdgeType | None) -> Tensor | None:
        """The CSC slot of each edge by source; None where it is its own number."""
        along = self._along
        return along.edge_ids[name] if name in along.arrays else along.store.csr_slot(name)

    def _build(self, unmapped: Mapping[EdgeType | None, Unmapped]) -> _core.NeighborSampler:
        """Behind the edge types as they are, the same ones with their ends exchanged."""
        return _core.NeighborSampler(self.graph.builder(unmapped, self._along))

    def sample_of(self, batch: _core.Batch) -> Sampled:
        """The sample of a batch, both ways."""
        found = super().sample_of(batch)
        edge_index, slots = [], []
        names = self.graph.edge_types
        for i, name in enumerate(names):
            j = i + len(names)
            against, along = found.slots[i], found.slots[j]
            assert against is not None
            assert along is not None
            csc_slots = self._csc_slots(name)
            if csc_slots is not None:
                along = look_up(csc_slots, along, self.num_threads)
            edges, both = _by_hop(
                (batch.num_sampled_edges[i], batch.num_sampled_edges[j]),
                (found.edge_index[i], found.edge_index[j].flip(0)),
                (against, along),
            )
            num_nodes = max((nodes.numel() for nodes in found.nodes), default=0)
            kept = _once(edges, both, num_nodes)
            edge_index.append(edges[:, kept])
            slots.append(both[kept])
        found.edge_index, found.slots = edge_index, slots
        return found


def _by_source(graph: SampledGraph) -> SampledGraph:
    """The graph's edges by source: out-neighbours, where ``graph`` has in-neighbours.

    In memory, ids of its edges are their CSC slots in ``graph``.

    Raises:
        UnsupportedError: A store has edges by destination only.
    """
    along = SampledGraph(graph.node_types, graph.edge_types, True, graph.contents)
    for name in graph.edge_types:
        if graph.on_disk(name):
            along.topology(name)  # is there
            continue
        indptr, sources = graph.arrays[name]
        source_type, target_type = graph.ends(name)
        num_sources, num_targets = graph.node_types[source_type], graph.node_types[target_type]
        targets = torch.repeat_interleave(torch.arange(num_targets), indptr.diff())
        bounds, slots = _core.sort_by_destination(
            engine_array(targets), engine_array(sources), num_targets, num_sources
        )
        along.arrays[name], along.edge_ids[name] = (bounds, targets[slots]), slots
    return along


def _by_hop(counts: tuple[list[int], list[int]], *pairs: tuple[Tensor, Tensor]) -> list[Tensor]:
    """One tensor of each pair: the first hop of the one and of the other, then the second hop."""
    if not counts[0]:  # of no hop
        return [torch.cat(pair, dim=-1) for pair in pairs]
    out = []
    for one, other in pairs:
        hops = zip(one.split(counts[0], dim=-1), other.split(counts[1], dim=-1), strict=True)
        out.append(torch.cat([part for hop in hops for part in hop], dim=-1))
    return out


def _once(edge_index: Tensor, slots: Tensor, num_nodes: int) -> Tensor:
    """Places of edges, each edge between the same two nodes of the batch once, in their order."""
    ends, own = (edge_index[0] * num_nodes + edge_index[1]).numpy(), slots.numpy()
    # Only edges whose low bits another one has, too, may be there twice: few are to be sorted.
    room, places = 1 << (4 * own.size).bit_length(), np.arange(own.size, dtype=np.int32)
    low, last = own & (room - 1), np.empty(room, dtype=np.int32)
    last[low] = places
    hidden = np.flatnonzero(last[low] != places)
    some = np.union1d(hidden, last[low[hidden]])
    some = some[np.lexsort((own[some], ends[some]))]  # equal ones stay as they were
    is_again = (np.diff(ends[some]) == 0) & (np.diff(own[some]) == 0)
    kept = np.ones(own.size, dtype=bool)
    kept[some[1:][is_again]] = False
    return torch.from_numpy(np.flatnonzero(kept))
