"""PyG's loaders over a store: the same arguments, the same batches, another engine."""

from pyg_graphzero.loader import stock  # noqa: F401 - PyG's own loaders
from pyg_graphzero.loader.adjs import NeighborSampler
from pyg_graphzero.loader.cluster import ClusterData, ClusterLoader
from pyg_graphzero.loader.hgt import HGTLoader
from pyg_graphzero.loader.link import LinkNeighborLoader
from pyg_graphzero.loader.neighbor import NeighborLoader
from pyg_graphzero.loader.saint import (
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
)
from pyg_graphzero.loader.samplers import DynamicBatchSampler, ImbalancedSampler
from pyg_graphzero.loader.shadow import ShaDowKHopSampler
from pyg_graphzero.loader.subgraphs import RandomNodeLoader

__all__ = [
    "ClusterData",
    "ClusterLoader",
    "DynamicBatchSampler",
    "GraphSAINTEdgeSampler",
    "GraphSAINTNodeSampler",
    "GraphSAINTRandomWalkSampler",
    "HGTLoader",
    "ImbalancedSampler",
    "LinkNeighborLoader",
    "NeighborLoader",
    "NeighborSampler",
    "RandomNodeLoader",
    "ShaDowKHopSampler",
]
