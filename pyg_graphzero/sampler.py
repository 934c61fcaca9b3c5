"""The samplers under their public names."""

from pyg_graphzero.sampling.hgt import HGTSampler
from pyg_graphzero.sampling.sampler import NeighborSampler

__all__ = ["HGTSampler", "NeighborSampler"]
