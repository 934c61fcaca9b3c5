"""Symmetric normalisation as GCN has it, by degrees of the whole graph.

An edge's weight is divided by the roots of the degrees of both its ends (Kipf & Welling 2017,
"Semi-Supervised Classification with Graph Convolutional Networks"). A batch has all in-edges of its
destinations, but not of their neighbours. So degrees are counted once, and convolutions that would
count them in a batch are given normalised weights instead.
"""

from __future__ import annotations

import inspect
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils.sparse import index2ptr

from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.inference.hop import Hop, Inputs, is_grouped
from pyg_graphzero.inference.modules import Modules
from pyg_graphzero.memory.prefetch import prefetch_all
from pyg_graphzero.nn.kinds import NORMALISING
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
        loop_weight: What an added one weighs.
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


class Normalization:
    """Gives convolutions that normalise the weights they would compute in the whole graph.

    Args:
        contents: The store's files.
        inputs: Which edge attribute has weights.

    Attributes:
        hop: The batch under way.
    """

    def __init__(self, contents: StoreContents, inputs: Inputs) -> None:
        self.hop: Hop | None = None
        self._contents = contents
        self._weight = inputs.edge_weight
        self._roots: dict[tuple[EdgeType | None, Rule], Tensor] = {}

    def teach(self, module: torch.nn.Module, modules: Modules) -> None:
        """Has a convolution use these weights, until ``modules`` is closed."""
        if not isinstance(module, NORMALISING) or not module.normalize:
            return
        modules.change(module, "normalize", False)
        signature = inspect.signature(module.forward)

        def give(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            found = bound.arguments
            found["edge_index"], found["edge_weight"] = self.weights_of(
                module, found["edge_index"], found.get("edge_weight"), found["x"].dtype
            )
            return bound.args, bound.kwargs

        modules.until_closed(module.register_forward_pre_hook(give, with_kwargs=True))

    def _roots_of(self, name: EdgeType | None, rule: Rule) -> Tensor:
        if (name, rule) not in self._roots:
            self._roots[name, rule] = inverse_roots(self._contents, name, rule, self._weight)
        return self._roots[name, rule]

    def weights_of(
        self, module: torch.nn.Module, edge_index: Tensor, weight: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """The edges to send along, and what they weigh."""
        hop = self.hop
        assert hop is not None
        names = [n for n, edges in hop.edge_index.items() if edges is edge_index]
        given = hop.edge_weight.get(names[0]) if names else None
        if not names or (weight is not None and weight is not given):
            what = "weights" if names else "edges"
            raise UnsupportedError(
                f"{type(module).__name__}: found {what} that a layer made itself, expected those "
                "it was given: degrees are counted in the store's. Normalise them beforehand and "
                "build the layer with normalize=False"
            )
        rule = _rule_of(module, weight is not None)
        roots = self._roots_of(names[0], rule)
        rows = hop.rows[hop.node_type]
        values = (
            torch.ones(edge_index.size(1), dtype=dtype, device=edge_index.device)
            if weight is None
            else weight.reshape(-1).to(dtype)
        )
        if rule.loops:
            row, col = edge_index
            is_loop = row == col
            loops = values.new_full((hop.num_dst,), rule.loop_weight)
            loops[col[is_loop]] = values[is_loop]
            ids = torch.arange(hop.num_dst, device=edge_index.device)
            row, col = row[~is_loop], col[~is_loop]
            edge_index = torch.stack([torch.cat([row, ids]), torch.cat([col, ids])])
            values = torch.cat([values[~is_loop], loops])
            if is_grouped(col):
                # And they stay so, without a sort: the loop of a node goes before its other edges.
                begins = index2ptr(col, hop.num_dst)[:-1]
                edges = torch.arange(col.numel(), device=col.device)
                place = torch.cat([edges + col + 1, begins + ids])
                edge_index = torch.empty_like(edge_index).index_copy_(1, place, edge_index)
                values = torch.empty_like(values).index_copy_(0, place, values)
        of_nodes = roots[rows].to(values.device, dtype)
        return edge_index, of_nodes[edge_index[0]] * values * of_nodes[edge_index[1]]


def _rule_of(module: Any, is_weighted: bool) -> Rule:
    # PyG weighs an added loop double only beside edges that have weights.
    double = bool(getattr(module, "improved", False)) and is_weighted
    loops = bool(getattr(module, "add_self_loops", False))
    return Rule(loops, 2.0 if double else 1.0, is_weighted)
