"""The samplers under their public names."""

from pyg_graphzero.loader.walks import RandomWalker, random_walk
from pyg_graphzero.sampling.both_ways import BidirectionalNeighborSampler
from pyg_graphzero.sampling.hgt import HGTSampler
from pyg_graphzero.sampling.neighbor import NeighborSampler

__all__ = [
    "BidirectionalNeighborSampler",
    "HGTSampler",
    "NeighborSampler",
    "RandomWalker",
    "random_walk",
]
