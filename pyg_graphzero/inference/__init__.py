"""Full-graph inference, layer by layer, with activations on disk."""

from pyg_graphzero.inference.run import layerwise
from pyg_graphzero.inference.summary import InferenceSummary, LayerSummary

__all__ = ["InferenceSummary", "LayerSummary", "layerwise"]
