"""Loaders of all kinds over a graph without types and one with, in memory or on disk."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.data import Data, HeteroData

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous
from pyg_graphzero.loader import (
    ClusterData,
    ClusterLoader,
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
    HGTLoader,
    LinkNeighborLoader,
    NeighborLoader,
    RandomNodeLoader,
    ShaDowKHopSampler,
)

WRITES = ("author", "writes", "paper")
WITHIN = {
    **{"time_attr": "time", "time_window": 9},
    "options": gz.SamplingOptions(strictly_earlier=True),
}


def graphs_of_loaders() -> tuple[Data, HeteroData]:
    """Graphs that loaders are made over; nodes of the first have times."""
    data = homogeneous()
    data.time = torch.arange(data.num_nodes) % 50
    return data, heterogeneous()


def as_it_is(out: Any) -> Any:
    """A transform, which a pickle has by its name."""
    return out


#: By kind: what makes a loader of both graphs and more arguments.
LOADERS: dict[str, Any] = {
    "homogeneous": lambda d, h, **k: NeighborLoader(d, [5, 3], shuffle=True, **k),
    "heterogeneous": lambda d, h, **k: NeighborLoader(h, [3, 2], "paper", shuffle=True, **k),
    "disjoint": lambda d, h, **k: NeighborLoader(d, [5, 3], disjoint=True, **k),
    "induced": lambda d, h, **k: NeighborLoader(d, [5], subgraph_type="induced", **k),
    "bidirectional": lambda d, h, **k: NeighborLoader(
        d, [5, 3], subgraph_type="bidirectional", **k
    ),
    "temporal": lambda d, h, **k: NeighborLoader(d, [5, 3], time_attr="time", **k),
    "within a window": lambda d, h, **k: NeighborLoader(d, [5, 3], **WITHIN, **k),
    "links": lambda d, h, **k: LinkNeighborLoader(
        d, [4, 2], neg_sampling="binary", shuffle=True, **k
    ),
    "triplets": lambda d, h, **k: LinkNeighborLoader(h, [2], WRITES, neg_sampling="triplet", **k),
    "hgt": lambda d, h, **k: HGTLoader(h, [6, 4], "paper", **k),
    "shadow": lambda d, h, **k: ShaDowKHopSampler(d, 2, 3, **k),
    "sampler output": lambda d, h, **k: NeighborLoader(
        d, [5, 3], transform_sampler_output=as_it_is, **k
    ),
    "gathered by the consumer": lambda d, h, **k: NeighborLoader(
        d, [5, 3], filter_per_worker=False, **k
    ),
    "random nodes": lambda d, h, batch_size, **k: RandomNodeLoader(d, 10, shuffle=True, **k),
    "clusters": lambda d, h, batch_size, **k: ClusterLoader(
        ClusterData(d, 20, partition="ranges"), batch_size=2, shuffle=True, **k
    ),
    "saint nodes": lambda d, h, **k: GraphSAINTNodeSampler(d, num_steps=4, **k),
    "saint edges": lambda d, h, **k: GraphSAINTEdgeSampler(d, num_steps=4, **k),
    "saint walks": lambda d, h, **k: GraphSAINTRandomWalkSampler(
        d, walk_length=3, num_steps=4, **k
    ),
}
