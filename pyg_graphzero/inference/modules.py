"""What a layer calls: found by trying it. What can not be computed from one hop is refused.

Layers may be any callables, so that their modules are not known beforehand; torch tells of every
module that is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch_geometric.nn
from torch.nn.modules.module import register_module_forward_pre_hook

from pyg_graphzero.errors import UnsupportedError

# Convolutions that may look further than one hop: how far.
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
# Those that weight an edge by degrees of its source, and are not taught others (see normalize.py).
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
# What mixes rows of all nodes: when.
_ALL_NODES = {
    "GraphNorm": lambda m: True,
    "PairNorm": lambda m: True,
    "MeanSubtractionNorm": lambda m: True,
    "GraphSizeNorm": lambda m: True,
    "LayerNorm": lambda m: m.mode == "graph",
    "InstanceNorm": lambda m: not m.track_running_stats,
    "HANConv": lambda m: True,
    "GPSConv": lambda m: True,
    "HypergraphConv": lambda m: True,
    "DirGNNConv": lambda m: True,
    "DynamicEdgeConv": lambda m: True,
    "GravNetConv": lambda m: True,
    "XConv": lambda m: True,
    "WLConv": lambda m: True,
    "WLConvContinuous": lambda m: True,
}


class Modules:
    """The modules that layers call, in the state they are to run in, until ``close()``.

    Dropout is off and running statistics are used; what a convolution has cached of the graph it
    was trained on is not.
    """

    def __init__(self) -> None:
        self._seen: dict[torch.nn.Module, None] = {}
        self._checked: set[torch.nn.Module] = set()
        self._changes = ExitStack()

    def __iter__(self) -> Iterator[torch.nn.Module]:
        """Those seen so far, in the order of their first call."""
        return iter(self._seen)

    @contextmanager
    def watching(self, layer: str) -> Iterator[None]:
        """Sees to every module that is called meanwhile; ``layer`` is what errors name.

        Raises:
            UnsupportedError: One of them needs more than a hop has.
        """

        def look(module: torch.nn.Module, args: Any) -> None:
            self.add(module)
            if module not in self._checked:
                self._checked.add(module)
                check_module(module, layer)

        handle = register_module_forward_pre_hook(look)
        try:
            yield
        finally:
            handle.remove()

    def add(self, module: torch.nn.Module) -> None:
        """Prepares a module, once. Its submodules are prepared when they are called."""
        if module in self._seen:
            return
        self._seen[module] = None
        self.change(module, "training", False)
        if getattr(module, "cached", False):
            self.change(module, "cached", False)
            for name in ("_cached_edge_index", "_cached_adj_t"):
                if hasattr(module, name):
                    self.change(module, name, None)

    def change(self, module: torch.nn.Module, name: str, value: Any) -> None:
        """Sets an attribute until ``close()``."""
        self._changes.callback(setattr, module, name, getattr(module, name))
        setattr(module, name, value)

    def until_closed(self, handle: Any) -> None:
        """Removes a hook at ``close()``."""
        self._changes.callback(handle.remove)

    def close(self) -> None:
        """Puts everything back as it was."""
        self._changes.close()


def check_module(module: torch.nn.Module, layer: str) -> None:
    """Refuses what cannot be computed from one hop.

    Raises:
        UnsupportedError: Names the layer, the module, and why.
    """

    def applies(rules: dict[str, Any]) -> Any:
        for kind in type(module).__mro__:
            name = kind.__name__
            if name in rules and kind is getattr(torch_geometric.nn, name, None):
                return rules[name](module)
        return None

    what = f"{layer}: found {type(module).__name__}"
    hops = applies(_HOPS)
    if hops is not None and hops > 1:
        raise UnsupportedError(
            f"{what}, which looks {hops} hops far, expected one hop a layer; write it as a layer "
            "for each hop"
        )
    if applies(_BY_DEGREES):
        raise UnsupportedError(
            f"{what}, which normalises by degrees of neighbours, and those of a batch are not the "
            "graph's; expected GCNConv, LGConv, GCN2Conv or FAConv, which are given the graph's, "
            "or weights that are normalised already (edge_weight=)"
        )
    if getattr(module, "flow", "source_to_target") != "source_to_target":
        raise UnsupportedError(
            f"{what} with flow={module.flow!r}, expected 'source_to_target': batches hold "
            "in-edges; convert the graph with its edges reversed"
        )
    has_no_statistics = (
        isinstance(module, torch.nn.modules.batchnorm._NormBase) and module.running_mean is None
    )
    if applies(_ALL_NODES) or has_no_statistics:
        raise UnsupportedError(
            f"{what}, which depends on all nodes at once, expected what depends on a node and its "
            "neighbours, such as BatchNorm with running statistics, or LayerNorm(mode='node')"
        )
