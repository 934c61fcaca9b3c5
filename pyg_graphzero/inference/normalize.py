"""Symmetric normalisation as GCN has it, by degrees of the whole graph.

An edge's weight is divided by the roots of the degrees of both its ends (Kipf & Welling 2017,
"Semi-Supervised Classification with Graph Convolutional Networks"). A batch has all in-edges of its
destinations, but not of their neighbours. So degrees are counted once, and convolutions that would
count them in a batch are given normalised weights instead.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils.sparse import index2ptr

from pyg_graphzero.memory.prefetch import prefetch_all
from pyg_graphzero.store.columns import in_memory
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeType

# Edges whose degrees are counted at once.
_CHUNK = 1 << 22


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
    if not rule.loops and not rule.is_weighted:
        for first in range(0, num_rows, _CHUNK):
            stop = min(first + _CHUNK, num_rows)
            degrees[first:stop] = contents.bounds(name, first, stop).diff()
        return _inverse_root(degrees)
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
    first = 0
    while first < num_rows:
        ends = contents.bounds(name, first, min(first + _CHUNK, num_rows))
        count = max(1, bisect_right(ends.numpy(), int(ends[0]) + _CHUNK) - 1)
        stop, begin, end = first + count, int(ends[0]), int(ends[count])
        counts = ends[: count + 1].diff()
        col = torch.repeat_interleave(torch.arange(stop - first), counts)
        values = torch.ones(end - begin)
        if weights is not None:
            values = in_memory(weights[begin:end]).reshape(-1).to(torch.float32)
        here = degrees[first:stop].zero_()
        if rule.loops:
            is_loop = in_memory(indices[begin:end], torch.int64) == col + first
            loops = torch.full((stop - first,), rule.loop_weight)
            loops[col[is_loop]] = values[is_loop]
            values = values.masked_fill(is_loop, 0.0)
            here += loops
        here.index_add_(0, col, values)
        first = stop
    return _inverse_root(degrees)


def _inverse_root(degrees: Tensor) -> Tensor:
    roots = degrees.pow_(-0.5)
    return roots.masked_fill_(roots == float("inf"), 0.0)


class Edges(NamedTuple):
    """Edges of a batch of one type, from nodes of a type to nodes of the same.

    Attributes:
        name: The type.
        edge_index: ``int64 [2, num_edges]``, by ascending destination.
        num_dst: How many destinations there are; they come first among the nodes.
        n_id: Rows of the nodes in the store, ``int64 [num_nodes]``, on the CPU.
    """

    name: EdgeType | None
    edge_index: Tensor
    num_dst: int
    n_id: Tensor


class Degrees:
    """Gives convolutions that normalise the weights they would compute in the whole graph.

    Args:
        contents: The store's files.
        weight: The edge attribute with weights, if there are any.
    """

    def __init__(self, contents: StoreContents, weight: str | None) -> None:
        self._contents = contents
        self._weight = weight
        self._roots: dict[tuple[EdgeType | None, Rule], Tensor] = {}

    def count(self, conv: Any, name: EdgeType | None, is_weighted: bool) -> Tensor:
        """``1 / sqrt(degree)`` of every node, as a convolution counts, read once."""
        # PyG weighs an added loop double only beside edges that have weights.
        double = bool(getattr(conv, "improved", False)) and is_weighted
        loops = bool(getattr(conv, "add_self_loops", False))
        key = name, Rule(loops, 2.0 if double else 1.0, is_weighted)
        if key not in self._roots:
            self._roots[key] = inverse_roots(self._contents, *key, self._weight)
        return self._roots[key]

    def weighted(
        self, conv: Any, edges: Edges, weight: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """The edges to send along, and their weights.

        Args:
            conv: The convolution.
            edges: The edges of a batch.
            weight: A number for each of them.
            dtype: Type of the weights.
        """
        edge_index, num_dst = edges.edge_index, edges.num_dst
        roots = self.count(conv, edges.name, weight is not None)
        values = (
            torch.ones(edge_index.size(1), dtype=dtype, device=edge_index.device)
            if weight is None
            else weight.reshape(-1).to(dtype)
        )
        if getattr(conv, "add_self_loops", False):
            row, col = edge_index
            is_loop = row == col
            double = bool(getattr(conv, "improved", False)) and weight is not None
            loops = values.new_full((num_dst,), 2.0 if double else 1.0)
            loops[col[is_loop]] = values[is_loop]
            row, col = row[~is_loop], col[~is_loop]
            # Edges stay grouped: the loop of a node goes before its other edges.
            ids = torch.arange(num_dst, device=col.device)
            place = torch.cat([
                torch.arange(col.numel(), device=col.device) + col + 1,
                index2ptr(col, num_dst)[:-1] + ids,
            ])  # fmt: skip
            found = torch.stack([torch.cat([row, ids]), torch.cat([col, ids])])
            edge_index = torch.empty_like(found).index_copy_(1, place, found)
            found_values = torch.cat([values[~is_loop], loops])
            values = torch.empty_like(found_values).index_copy_(0, place, found_values)
        of_nodes = roots[edges.n_id].to(values.device, dtype)
        return edge_index, of_nodes[edge_index[0]] * values * of_nodes[edge_index[1]]
