"""PyG's modules by the rows that they look at: how many hops away, and at how many nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.nn as pyg


def _classes(names: str) -> tuple[Any, ...]:
    return tuple(getattr(pyg, name) for name in names.split())


#: Convolutions that, given (rows of sources, rows of destinations), make no row of a source.
BIPARTITE = _classes("SAGEConv GATConv GATv2Conv GINConv GINEConv EdgeConv GraphConv")
#: Convolutions that weight an edge by degrees of both ends, unless they are given weights.
NORMALISING = _classes("GCNConv LGConv GCN2Conv FAConv")

#: Convolutions whose message is the neighbour's row, times ``edge_weight`` if there is one. Their
#: subclasses may have other messages and are not meant. Tests compare each with the whole graph.
FUSED = _classes(
    "APPNP GatedGraphConv GCN2Conv GCNConv GINConv GraphConv LGConv MFConv SAGEConv SimpleConv "
    "TAGConv"
)
# "min" and "max" are missing: torch has no product that computes them on a GPU.
_REDUCTIONS = ("add", "sum", "mean")

# Number of hops that a convolution looks at, for those that may look further than one.
_HOPS = {
    "SGConv": lambda m: m.K,
    "SSGConv": lambda m: m.K,
    "TAGConv": lambda m: m.K,
    "ChebConv": lambda m: len(m.lins) - 1,
    "ARMAConv": lambda m: m.num_layers,
    "APPNP": lambda m: m.K,
    "MixHopConv": lambda m: max(m.powers),
    "GatedGraphConv": lambda m: m.num_layers,
    "AntiSymmetricConv": lambda m: m.num_iters,
    "PANConv": lambda m: m.filter_size,
}
# Whether a convolution weights an edge by degrees of its source.
_BY_DEGREES = {
    "SGConv": lambda m: True,
    "SSGConv": lambda m: True,
    "TAGConv": lambda m: m.normalize,
    "ChebConv": lambda m: len(m.lins) > 1,
    "ARMAConv": lambda m: True,
    "APPNP": lambda m: m.normalize,
    "MixHopConv": lambda m: True,
    "PANConv": lambda m: True,
    "DNAConv": lambda m: m.normalize,
    "PDNConv": lambda m: m.normalize,
    "EGConv": lambda m: "symnorm" in m.aggregators,
}
# Whether a norm mixes rows of all nodes.
_ALL_NODES = {
    "GraphNorm": lambda m: True,
    "PairNorm": lambda m: True,
    "MeanSubtractionNorm": lambda m: True,
    "GraphSizeNorm": lambda m: True,
    "LayerNorm": lambda m: m.mode == "graph",
    "InstanceNorm": lambda m: not m.track_running_stats,
}


def _applies(rules: dict[str, Callable[[Any], Any]], module: torch.nn.Module) -> Any:
    for kind in type(module).__mro__:
        name = kind.__name__
        if name in rules and kind is getattr(pyg, name, None):
            return rules[name](module)
    return None


def hops_of(module: torch.nn.Module) -> int:
    """Number of hops that a convolution looks at."""
    hops = _applies(_HOPS, module)
    return 1 if hops is None else int(hops)


def weighs_by_degrees(module: torch.nn.Module) -> bool:
    """Whether a module, none of ``NORMALISING``, weights an edge by degrees of its source."""
    return bool(_applies(_BY_DEGREES, module))


def looks_at_all_nodes(module: torch.nn.Module) -> bool:
    """Whether a module is a norm that mixes rows of all nodes."""
    return bool(_applies(_ALL_NODES, module)) or (
        isinstance(module, torch.nn.modules.batchnorm._NormBase) and module.running_mean is None
    )


# Modules that are a product with a matrix, and a bias.
_PRODUCTS = (torch.nn.Linear, pyg.Linear)
_WATCHED = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_own(module: Any, *kinds: type) -> bool:
    """Whether a module is exactly of one of these classes, without hooks or another ``forward``."""
    own = vars(module)
    return (
        type(module) in kinds and "forward" not in own and not any(own[hooks] for hooks in _WATCHED)
    )


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


def is_changed(module: pyg.MessagePassing, steps: tuple[str, ...] = STEPS) -> bool:
    """Whether a convolution has hooks at its steps, or steps that are not its class's."""
    return any(
        step in vars(module) or getattr(module, f"_{step}_forward{kind}_hooks", None)
        for step in steps
        for kind in ("_pre", "")
    )


def is_plain(module: pyg.MessagePassing) -> bool:
    """Whether a convolution looks only at sums, or means, of rows, which a product gives too.

    Hooks into ``propagate`` and ``message_and_aggregate`` see that product; see ``is_changed``.

    Args:
        module: The convolution.
    """
    return (
        type(module) in FUSED
        and module.fuse
        and module.aggr in _REDUCTIONS
        and module.node_dim in (-2, 0)
        and not is_changed(module, ("message", "aggregate", "update"))
    )
