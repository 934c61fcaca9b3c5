"""Models that compute what the seeds of a batch need, and nothing else."""

from pyg_graphzero.nn import ops
from pyg_graphzero.nn.accelerate import accelerate
from pyg_graphzero.nn.explain import Explanation, LayerExplanation, explain

__all__ = ["Explanation", "LayerExplanation", "accelerate", "explain", "ops"]
