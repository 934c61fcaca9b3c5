"""Models over sampled batches, quicker."""

from pyg_graphzero.nn import ops

__all__ = ["ops"]
