"""Models that compute what the seeds of a batch need, and nothing else; embeddings by walks."""

from pyg_graphzero.nn import ops
from pyg_graphzero.nn.accelerate import accelerate
from pyg_graphzero.nn.explain import Explanation, LayerExplanation, explain
from pyg_graphzero.nn.node2vec import Node2Vec

__all__ = [
    "Explanation",
    "LayerExplanation",
    "Node2Vec",
    "accelerate",
    "explain",
    "ops",
]
