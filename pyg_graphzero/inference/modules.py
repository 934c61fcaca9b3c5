"""What a layer calls: found by trying it. What can not be computed from one hop is refused.

Layers may be any callables, so that their modules are not known beforehand; torch tells of every
module that is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.nn.kinds import hops_of, looks_at_all_nodes, weighs_by_degrees


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
    what = f"{layer}: found {type(module).__name__}"
    hops = hops_of(module)
    if hops > 1:
        raise UnsupportedError(
            f"{what}, which looks {hops} hops far, expected one hop a layer; write it as a layer "
            "for each hop"
        )
    if weighs_by_degrees(module):
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
    if looks_at_all_nodes(module):
        raise UnsupportedError(
            f"{what}, which depends on all nodes at once, expected what depends on a node and its "
            "neighbours, such as BatchNorm with running statistics, or LayerNorm(mode='node')"
        )
