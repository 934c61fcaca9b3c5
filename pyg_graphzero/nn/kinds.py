"""PyG's modules by the rows that they look at: how many hops away, and at how many nodes."""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric.nn as pyg


def _classes(names: str) -> tuple[Any, ...]:
    return tuple(getattr(pyg, name) for name in names.split())


#: Convolutions that, given (rows of sources, rows of destinations), make no row of a source.
BIPARTITE = _classes(
    "SAGEConv GATConv GATv2Conv GINConv GINEConv EdgeConv GraphConv RGCNConv TransformerConv"
)
#: Convolutions that weight an edge by degrees of both ends, unless they are given weights.
NORMALISING = _classes("GCNConv LGConv GCN2Conv FAConv")

#: Convolutions that may look further than one hop, or weight an edge by degrees of its source.
FAR = _classes(
    "SGConv SSGConv TAGConv ChebConv ARMAConv APPNP MixHopConv GatedGraphConv AntiSymmetricConv "
    "PANConv DNAConv PDNConv EGConv"
)
# Norms that mix rows of all nodes, unless their own settings say otherwise.
_ALL_NODES = _classes("GraphNorm PairNorm MeanSubtractionNorm GraphSizeNorm LayerNorm")


def normalises(module: torch.nn.Module) -> bool:
    """Whether a convolution weights an edge by degrees of both ends."""
    return isinstance(module, NORMALISING) and bool(module.normalize)


def looks_at_all_nodes(module: torch.nn.Module) -> bool:
    """Whether a module is a norm that mixes rows of all nodes."""
    if isinstance(module, torch.nn.modules.batchnorm._NormBase):
        return module.running_mean is None
    return isinstance(module, _ALL_NODES) and getattr(module, "mode", "graph") == "graph"


# Modules that are a product with a matrix, and a bias.
_PRODUCTS = (torch.nn.Linear, pyg.Linear)
#: Attributes of a module that hold its hooks.
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_own(module: Any, *kinds: type) -> bool:
    """Whether a module is exactly of one of these classes, without hooks or another ``forward``."""
    own = vars(module)
    return type(module) in kinds and "forward" not in own and not any(own[name] for name in HOOKS)


def is_product(module: Any) -> bool:
    """Whether a product with a module's ``weight``, and its bias, may stand for a call of it.

    Subclasses, adapters and modules with hooks (pruned ones), parametrizations or a ``forward`` of
    their own do more than this product: they have to be called.
    """
    return is_own(module, *_PRODUCTS)


#: Steps of a convolution that can be hooked into.
STEPS = (
    "propagate", "message", "aggregate", "message_and_aggregate", "edge_update", "update",
)  # fmt: skip


#: Attributes of a convolution that hold hooks of its steps.
STEP_HOOKS = tuple(f"_{step}_forward{kind}_hooks" for step in STEPS for kind in ("_pre", ""))


def is_changed(module: pyg.MessagePassing) -> bool:
    """Whether a convolution has hooks at its steps, or steps that are not its class's."""
    return any(step in vars(module) for step in STEPS) or any(
        getattr(module, name, None) for name in STEP_HOOKS
    )
