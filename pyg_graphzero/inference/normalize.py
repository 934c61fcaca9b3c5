"""Symmetric normalisation as GCN has it, by degrees of the whole graph.

An edge's weight is divided by the roots of the degrees of both its ends (Kipf & Welling 2017,
"Semi-Supervised Classification with Graph Convolutional Networks"). A batch has all in-edges of its
destinations, but not of their neighbours. So degrees are counted once, and convolutions that would
count them in a batch are given normalised weights instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.inference.sweep import runs_of
from pyg_graphzero.memory.prefetch import prefetch_all
from pyg_graphzero.nn.block import with_loops
from pyg_graphzero.store.columns import in_memory
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeType

# Edges and nodes whose degrees are counted at once.
_CHUNK = 1 << 22
# Gives ``1 / sqrt(degree)`` of every node, by a type of edges and a rule.
RootsOf = Callable[[EdgeType | None, "Rule"], Tensor]


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

    def add(self, degrees: Tensor, src: Tensor, dst: Tensor, values: Tensor) -> None:
        """Adds what edges, and loops, give to the degrees of all their destinations."""
        if self.loops:
            is_loop = src == dst
            loops = torch.full_like(degrees, self.loop_weight)
            loops[dst[is_loop]] = values[is_loop]
            values = values.masked_fill(is_loop, 0.0)
            degrees += loops
        degrees.index_add_(0, dst, values)


def inverse_roots(
    contents: StoreContents, name: EdgeType | None, rule: Rule, weight: str | None = None
) -> Tensor:
    """``1 / sqrt(degree)`` of every row, 0 where there are no edges: ``float32 [num_rows]``.

    Reads the topology once, by pieces.

    Args:
        contents: The store's files.
        name: An edge type from a node type to the same.
        rule: How to count.
        weight: The edge attribute with weights, if the rule says so.

    Raises:
        ValueError: Weights are not one number an edge.
    """
    num_rows = contents.topology(name).num_dst
    degrees = torch.empty(num_rows, dtype=torch.float32)
    indices = contents.csc(name)[1]
    weights: Any = None
    paths = [contents.topology(name).path]
    if rule.is_weighted:
        assert weight is not None
        file = contents.edge_type(name).attrs[weight]
        weights = contents.rows(file)
        paths.append(contents.column(file).path)
        if weights.shape.numel() != indices.numel():
            raise ValueError(
                f"edge_weight={weight!r}: found shape {list(weights.shape)}, expected one number "
                f"for each of {indices.numel()} edges"
            )
    prefetch_all([Path(path) for path in paths])
    runs = runs_of(contents, [name], range(num_rows), _CHUNK).bounds.tolist()
    for first, stop in pairwise(runs):
        ends = contents.bounds(name, first, stop)
        begin, end = int(ends[0]), int(ends[-1])
        col = torch.repeat_interleave(torch.arange(stop - first), ends.diff())
        values = torch.ones(end - begin)
        if weights is not None:
            values = in_memory(weights[begin:end]).reshape(-1).to(torch.float32)
        src = in_memory(indices[begin:end], torch.int64) - first if rule.loops else col
        rule.add(degrees[first:stop].zero_(), src, col, values)
    return inverse_root(degrees)


def inverse_root(degrees: Tensor) -> Tensor:
    """``1 / sqrt(degree)``, 0 where there are no edges; in the same memory."""
    roots = degrees.pow_(-0.5)
    return roots.masked_fill_(roots == float("inf"), 0.0)


def weighted(
    rule: Rule, roots: Tensor, edge_index: Tensor, num_dst: int, weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Edges of a batch to send along, and the weights that they have in the whole graph.

    Args:
        rule: The convolution's.
        roots: ``1 / sqrt(degree)`` of the batch's nodes, of the type that weights are to have.
        edge_index: The edges, by ascending destination, ``int64 [2, num_edges]``.
        num_dst: Number of destinations; they come first among the nodes.
        weight: A number for each edge.
    """
    values = edge_index.new_ones(edge_index.size(1)) if weight is None else weight.reshape(-1)
    values = values.to(roots.dtype)
    if rule.loops:
        own = edge_index[0] == edge_index[1]
        loops = values.new_full((num_dst,), rule.loop_weight)
        loops[edge_index[1, own]] = values[own]
        edge_index, kept, places = with_loops(edge_index, num_dst)
        values = torch.cat((values[kept], loops))
        values = torch.empty_like(values).index_copy_(0, places, values)
    return edge_index, roots[edge_index[0]] * values * roots[edge_index[1]]
