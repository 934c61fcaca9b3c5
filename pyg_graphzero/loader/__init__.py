"""PyG's loaders over a store: the same arguments, the same batches, another engine."""

from typing import TYPE_CHECKING, Any

from pyg_graphzero.loader.adjs import NeighborSampler
from pyg_graphzero.loader.cluster import ClusterData, ClusterLoader
from pyg_graphzero.loader.links import LinkLoader, LinkNeighborLoader
from pyg_graphzero.loader.nodes import HGTLoader, NeighborLoader, NodeLoader
from pyg_graphzero.loader.saint import (
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
)
from pyg_graphzero.loader.shadow import ShaDowKHopSampler
from pyg_graphzero.loader.stats import LoaderStats
from pyg_graphzero.loader.subgraphs import RandomNodeLoader

if TYPE_CHECKING:
    from pyg_graphzero.loader.lightning import LightningLinkData, LightningNodeData

__all__ = [
    "ClusterData",
    "ClusterLoader",
    "GraphSAINTEdgeSampler",
    "GraphSAINTNodeSampler",
    "GraphSAINTRandomWalkSampler",
    "HGTLoader",
    "LightningLinkData",
    "LightningNodeData",
    "LinkLoader",
    "LinkNeighborLoader",
    "LoaderStats",
    "NeighborLoader",
    "NeighborSampler",
    "NodeLoader",
    "RandomNodeLoader",
    "ShaDowKHopSampler",
]


def __getattr__(name: str) -> Any:
    """Lightning's data modules: Lightning alone takes as long to import as torch."""
    if name not in ("LightningLinkData", "LightningNodeData"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyg_graphzero.loader import lightning

    return getattr(lightning, name)
