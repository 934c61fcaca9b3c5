"""Degrees of the whole graph, by which convolutions normalise.

A batch has all in-edges of its destinations, but not of their neighbours. So degrees are counted
once, and convolutions that would count them in a batch are given normalised weights instead.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.inference.sweep import runs_of
from pyg_graphzero.memory.prefetch import prefetch_all
from pyg_graphzero.nn.degrees import Rule
from pyg_graphzero.store.columns import in_memory
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeType

# Edges and nodes whose degrees are counted at once.
_CHUNK = 1 << 22
# Gives ``1 / sqrt(degree)`` of every node, by a type of edges and a rule.
RootsOf = Callable[[EdgeType | None, Rule], Tensor]


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
    roots = torch.empty(num_rows, dtype=torch.float32)
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
        roots[first:stop] = rule.roots(src, col, values, stop - first)
    return roots
