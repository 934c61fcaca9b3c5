"""COO to CSC: the seam between readers, which yield chunks of edges, and the store.

This builder holds all edges in memory; readers do not know that.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero import _core

COALESCE = ("first", "sum", "mean", "min", "max")
SELF_LOOPS = ("keep", "remove", "add")


@dataclass
class EdgeChunk:
    """Some edges, in input order.

    Attributes:
        src: ``int64 [n]``.
        dst: ``int64 [n]``.
        columns: Payload by name, ``[n, ...]`` each, NumPy arrays or tensors; the same names and
            dtypes in every chunk.
    """

    src: np.ndarray
    dst: np.ndarray
    columns: dict[str, Any] = field(default_factory=dict)


@dataclass
class Csc:
    """One edge type in compressed sparse column form.

    Attributes:
        num_src: Number of source nodes.
        num_dst: Number of destination nodes.
        indptr: ``int64 [num_dst + 1]``.
        indices: ``int64 [num_edges]``, source ids; stable in input order within a destination.
        edge_id: ``int64 [num_edges]``, the edge's number in the input for every slot, or None where
            that is ``0 … num_edges - 1``.
        columns: Payload in CSC order.
        stats: What the options did: ``reversed``, ``duplicates``, ``self_loops`` (found in the
            input), ``self_loops_removed``, ``self_loops_added``.
    """

    num_src: int
    num_dst: int
    indptr: Tensor
    indices: Tensor
    edge_id: Tensor | None
    columns: dict[str, Tensor] = field(default_factory=dict)
    stats: dict[str, int] = field(default_factory=dict)

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.indices.numel()


def build_csc(
    chunks: Iterable[EdgeChunk],
    num_src: int,
    num_dst: int,
    *,
    bipartite: bool = False,
    undirected: bool = False,
    coalesce: str | None = None,
    self_loops: str = "keep",
    progress: Callable[[int], None] | None = None,
) -> Csc:
    """Sorts a stream of edges by destination.

    Edges are numbered in input order. The options apply in this order and renumber what is left:
    self-loops are removed, reverse edges are appended behind the originals (self-loops have none),
    duplicates of a (source, destination) pair collapse onto their first occurrence, missing
    self-loops are appended.

    Args:
        chunks: The edges.
        num_src: Number of source nodes.
        num_dst: Number of destination nodes.
        bipartite: Sources and destinations are nodes of different types, so that an edge between
            equal ids is no self-loop.
        undirected: Append the reverse of every edge, with the same payload.
        coalesce: How to join the payload of duplicates: one of ``first``, ``sum``, ``mean``,
            ``min``, ``max``; None keeps duplicates.
        self_loops: ``keep``, ``remove``, or ``add`` (one for every node that has none; payload 1).
        progress: Called with the number of edges of each chunk read.

    Raises:
        IndexError: Names the first edge whose id is not a node.
        ValueError: An option that does not apply.
    """
    if coalesce is not None and coalesce not in COALESCE:
        raise ValueError(f"coalesce: found {coalesce!r}, expected one of {COALESCE}")
    if self_loops not in SELF_LOOPS:
        raise ValueError(f"self_loops: found {self_loops!r}, expected one of {SELF_LOOPS}")
    bipartite = bipartite or num_src != num_dst
    if bipartite and (undirected or self_loops == "add"):
        raise ValueError("undirected and self_loops='add' need one node type at both ends")

    src, dst, columns = _concatenate(chunks, progress)
    _check_ids(src, num_src, "source")
    _check_ids(dst, num_dst, "destination")
    loops = torch.zeros(src.numel(), dtype=torch.bool) if bipartite else src == dst
    stats = {"self_loops": int(loops.sum())}
    if self_loops == "remove":
        stats["self_loops_removed"] = stats["self_loops"]
        src, dst, columns = _select(~loops, src, dst, columns)
        loops = loops[~loops]
    if undirected:
        back = ~loops
        stats["reversed"] = int(back.sum())
        src, dst = torch.cat([src, dst[back]]), torch.cat([dst, src[back]])
        columns = {k: torch.cat([v, v[back]]) for k, v in columns.items()}
    if coalesce is not None:
        before = src.numel()
        src, dst, columns = _coalesce(src, dst, columns, num_src, coalesce)
        stats["duplicates"] = before - src.numel()
    if self_loops == "add":
        missing = torch.ones(num_dst, dtype=torch.bool)
        missing[dst[src == dst]] = False
        nodes = missing.nonzero().view(-1)
        stats["self_loops_added"] = nodes.numel()
        src, dst = torch.cat([src, nodes]), torch.cat([dst, nodes])
        columns = {
            k: torch.cat([v, torch.ones((nodes.numel(), *v.shape[1:]), dtype=v.dtype)])
            for k, v in columns.items()
        }

    indptr, order = _core.sort_by_destination(src, dst, num_src, num_dst)
    if torch.equal(order, torch.arange(order.numel())):
        return Csc(num_src, num_dst, indptr, src, None, columns, stats)
    sorted_columns = {k: v[order] for k, v in columns.items()}
    return Csc(num_src, num_dst, indptr, src[order], order, sorted_columns, stats)


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    with warnings.catch_warnings():
        # What pyarrow parsed or NumPy mapped is read-only, and is only read here.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(value))


def _concatenate(
    chunks: Iterable[EdgeChunk], progress: Callable[[int], None] | None
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    parts: list[EdgeChunk] = []
    for chunk in chunks:
        parts.append(chunk)
        if progress is not None:
            progress(len(chunk.src))
    if not parts:
        return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64), {}
    names = parts[0].columns.keys()
    columns = {k: torch.cat([_tensor(p.columns[k]) for p in parts]) for k in names}
    src = torch.cat([_tensor(p.src) for p in parts]).to(torch.int64)
    dst = torch.cat([_tensor(p.dst) for p in parts]).to(torch.int64)
    return src, dst, columns


def _check_ids(ids: Tensor, num_nodes: int, end: str) -> None:
    bad = (ids < 0) | (ids >= num_nodes)
    if bad.any():
        at = int(bad.nonzero()[0, 0])
        raise IndexError(
            f"edge {at}: {end} id: found {int(ids[at])}, expected 0 <= id < {num_nodes}"
        )


def _select(
    keep: Tensor, src: Tensor, dst: Tensor, columns: dict[str, Tensor]
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    return src[keep], dst[keep], {k: v[keep] for k, v in columns.items()}


def _coalesce(
    src: Tensor, dst: Tensor, columns: dict[str, Tensor], num_src: int, how: str
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """One edge per pair, at the place of its first occurrence."""
    if src.numel() == 0:
        return src, dst, columns
    order = torch.from_numpy(np.lexsort((src.numpy(), dst.numpy())))
    s, d = src[order], dst[order]
    starts = torch.ones(s.numel(), dtype=torch.bool)
    starts[1:] = (s[1:] != s[:-1]) | (d[1:] != d[:-1])
    # lexsort is stable, so the first of each run is the pair's first occurrence in the input.
    first = order[starts]
    places = torch.argsort(first)
    keep = first[places]
    if how == "first":
        return src[keep], dst[keep], {k: v[keep] for k, v in columns.items()}
    group = torch.empty_like(order)
    group[order] = torch.argsort(places)[torch.cumsum(starts, 0) - 1]
    joined = {k: _reduce(v, group, keep.numel(), how, k) for k, v in columns.items()}
    return src[keep], dst[keep], joined


def _reduce(values: Tensor, group: Tensor, num_groups: int, how: str, name: str) -> Tensor:
    if values.dtype == torch.bool or values.dtype.is_complex:
        raise ValueError(
            f"coalesce={how!r}: column {name!r} is {values.dtype}; use coalesce='first'"
        )
    out = torch.zeros((num_groups, *values.shape[1:]), dtype=values.dtype)
    reduce = {"sum": "sum", "mean": "mean", "min": "amin", "max": "amax"}[how]
    index = group.view(-1, *([1] * (values.dim() - 1))).expand_as(values)
    return out.scatter_reduce_(0, index, values, reduce, include_self=False)
