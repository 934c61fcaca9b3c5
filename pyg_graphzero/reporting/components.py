"""Components of a graph whose edges come a slice at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

#: Nodes that are looked at by one call.
PIECE = 1 << 20


@dataclass
class ComponentReport:
    """Nodes that edges of any type and direction join.

    Attributes:
        number: How many components there are; a node without edges is one.
        largest: Nodes of the largest.
        num_nodes: Nodes of all.
        seeds: Name of the seeds.
        with_seeds: Components that have a seed.
        reached: Nodes of these.
    """

    number: int = 0
    largest: int = 0
    num_nodes: int = 0
    seeds: str | None = None
    with_seeds: int = 0
    reached: int = 0


class Components:
    """Each node points to one of its component, no higher than itself (union-find).

    Args:
        num_nodes: Number of nodes.
    """

    def __init__(self, num_nodes: int) -> None:
        dtype = torch.int32 if num_nodes < 1 << 31 else torch.int64
        self._lower = torch.arange(num_nodes, dtype=dtype)

    def join(self, one: Tensor, other: Tensor) -> None:
        """Joins the ends of edges, ``int64 [n]`` each."""
        parent = self._lower
        while True:
            roots = self.lowest(one), self.lowest(other)
            apart = roots[0] != roots[1]
            if not apart.any():
                return
            one, other = (each[apart].to(torch.int64) for each in roots)
            lower = torch.minimum(one, other).to(parent.dtype)
            parent.scatter_reduce_(0, torch.maximum(one, other), lower, "amin")

    def lowest(self, nodes: Tensor) -> Tensor:
        """The lowest node of each one's component; paths there are half as long from then on."""
        parent = self._lower
        found = parent.index_select(0, nodes)
        while True:
            above = parent.index_select(0, found)
            moved = above != found
            if not moved.any():
                return found
            parent.index_copy_(0, nodes[moved], above[moved])
            found = above

    def report(self, seeds: Tensor | None = None, name: str | None = None) -> ComponentReport:
        """Counts components; ``seeds``: ``int64``, some of the nodes."""
        num_nodes = len(self._lower)
        sizes = torch.zeros_like(self._lower)
        for first in range(0, num_nodes, PIECE):
            nodes = torch.arange(first, min(first + PIECE, num_nodes))
            roots = self.lowest(nodes).to(torch.int64)
            sizes.scatter_add_(0, roots, torch.ones(1, dtype=sizes.dtype).expand(len(roots)))
        largest = int(sizes.max()) if num_nodes else 0
        found = ComponentReport(int(sizes.count_nonzero()), largest, num_nodes)
        if seeds is not None:
            of_seeds = self.lowest(seeds).unique().to(torch.int64)
            found.seeds, found.with_seeds = name, len(of_seeds)
            found.reached = int(sizes[of_seeds].sum())
        return found
