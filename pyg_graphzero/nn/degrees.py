"""Symmetric normalisation as GCN has it: by degrees of a batch, or of the whole graph.

An edge's weight is divided by the roots of the degrees of both its ends (Kipf & Welling 2017,
"Semi-Supervised Classification with Graph Convolutional Networks").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.nn.block import with_loops


@dataclass(frozen=True)
class Rule:
    """How degrees are counted.

    Attributes:
        loops: Each node has one loop: its own, or one that is added.
        loop_weight: Weight of an added one.
        is_weighted: Edges have weights.
    """

    loops: bool
    loop_weight: float
    is_weighted: bool

    @staticmethod
    def of(conv: Any, is_weighted: bool) -> Rule:
        """The rule by which a convolution counts."""
        # PyG weighs an added loop double only beside edges that have weights.
        is_double = is_weighted and getattr(conv, "improved", False)
        loops = bool(getattr(conv, "add_self_loops", False))
        return Rule(loops, 2.0 if is_double else 1.0, is_weighted)

    def roots(self, src: Tensor, dst: Tensor, values: Tensor, num_dst: int) -> Tensor:
        """``1 / sqrt(degree)`` of destinations, 0 where there are no edges: ``[num_dst]``.

        Args:
            src: Source of each of their in-edges, ``int64 [num_edges]``; only loops are looked for.
            dst: Destination of each, ``int64 [num_edges]``.
            values: Weight of each, ``[num_edges]``, of the type that roots are to have.
            num_dst: Number of destinations.
        """
        degrees = values.new_zeros(num_dst)
        if self.loops:
            is_loop = src == dst
            degrees += self.loop_weight
            degrees[dst[is_loop]] = values[is_loop]
            values = values.masked_fill(is_loop, 0.0)
        roots = degrees.index_add(0, dst, values).pow(-0.5)
        return roots.masked_fill(roots == float("inf"), 0.0)

    def weighted(
        self, roots: Tensor, edge_index: Tensor, num_dst: int, values: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Edges to send along, and the weights that they have there.

        Args:
            roots: ``1 / sqrt(degree)`` of the nodes.
            edge_index: The edges, by ascending destination, ``int64 [2, num_edges]``.
            num_dst: Number of destinations; they come first among the nodes.
            values: Weight of each edge, ``[num_edges]``, of the type of ``roots``.
        """
        if self.loops:
            own = edge_index[0] == edge_index[1]
            loops = values.new_full((num_dst,), self.loop_weight)
            loops[edge_index[1, own]] = values[own]
            edge_index, kept, places = with_loops(edge_index, num_dst)
            values = torch.cat((values[kept], loops))
            values = torch.empty_like(values).index_copy_(0, places, values)
        return edge_index, roots[edge_index[0]] * values * roots[edge_index[1]]
