# ruff: noqa: D103  (the operations are told of in ops.py)
"""The operations of :mod:`pyg_graphzero.nn.ops` by torch's own functions, on any device.

They make an array of messages and give it back. Nothing here waits for the device, so that it does
not say which edge is wrong either.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.utils import softmax

from pyg_graphzero.nn.checks import check_dot, check_scores, check_sum, sum_type


def neighbor_sum(
    x: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None, mean: bool
) -> Tensor:
    num_dst, _ = check_sum("x", x, src, bounds, weight)
    dst = destinations(src.size(0), bounds)
    return _added(x, src, _shares(x, dst, bounds, weight, mean), dst, num_dst, dst < num_dst)


def source_sum(
    rows: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None, mean: bool, num_src: int
) -> Tensor:
    num_dst, _ = check_sum("rows", rows, src, bounds, weight)
    dst = destinations(src.size(0), bounds)
    return _added(rows, dst, _shares(rows, dst, bounds, weight, mean), src, num_src, dst < num_dst)


def edge_dot(q: Tensor, k: Tensor, src: Tensor, bounds: Tensor, mean: bool) -> Tensor:
    check_dot(q, k, src, bounds)
    num_dst = q.size(0)
    dst = destinations(src.size(0), bounds)
    is_used = dst < num_dst
    if q.size(0) == 0 or k.size(0) == 0:
        return k.new_zeros((src.size(0), *k.shape[1:-1]))
    left = q.index_select(0, dst.where(is_used, 0)).to(sum_type(q.dtype))
    out = left.mul_(k.index_select(0, src.where(is_used, 0))).sum(-1)
    is_used = is_used.view(-1, *[1] * (out.dim() - 1))
    if mean:
        out = out / _degrees(bounds)[dst].view_as(is_used)
    return torch.where(is_used, out, 0).to(k.dtype)


def neighbor_softmax(scores: Tensor, bounds: Tensor) -> Tensor:
    check_scores(scores, bounds)
    dst = destinations(scores.size(0), bounds)
    num_dst = bounds.size(0) - 1
    made = softmax(scores.to(sum_type(scores.dtype)), dst, num_nodes=num_dst + 1)
    is_used = (dst < num_dst).view(-1, *[1] * (scores.dim() - 1))
    return torch.where(is_used, made, 0).to(scores.dtype)


def neighbor_softmax_backward(made: Tensor, grad: Tensor, bounds: Tensor) -> Tensor:
    dst = destinations(made.size(0), bounds)
    wide = made.to(sum_type(made.dtype))
    product = wide * grad
    sums = product.new_zeros((bounds.size(0), *made.shape[1:])).index_add_(0, dst, product)
    return (product - wide * sums[dst]).to(made.dtype)


def destinations(num_edges: int, bounds: Tensor) -> Tensor:
    """Of every edge its destination; how many there are where it has none."""
    edges = torch.arange(num_edges, device=bounds.device)
    dst = torch.searchsorted(bounds, edges, right=True) - 1
    return dst.where(dst >= 0, bounds.size(0) - 1)


def _degrees(bounds: Tensor) -> Tensor:
    """Of every destination how many in-edges it has, at least 1; and 1 for no destination."""
    return torch.cat([bounds.diff().clamp(min=1), bounds.new_ones(1)])


def _shares(
    rows: Tensor, dst: Tensor, bounds: Tensor, weight: Tensor | None, mean: bool
) -> Tensor | None:
    """What to multiply an edge's row with, as [edges, 1 or heads, 1]."""
    share = None if weight is None else weight.to(sum_type(rows.dtype)).view(len(dst), -1, 1)
    if mean:
        degrees = _degrees(bounds)[dst].view(-1, 1, 1)
        share = 1 / degrees.to(sum_type(rows.dtype)) if share is None else share / degrees
    return share


def _added(
    rows: Tensor, of: Tensor, share: Tensor | None, to: Tensor, size: int, is_used: Tensor
) -> Tensor:
    """Rows ``of`` edges times their shares, added up where edges lead ``to``."""
    dtype = sum_type(rows.dtype)
    out = torch.zeros((size + 1, *rows.shape[1:]), dtype=dtype, device=rows.device)
    if rows.size(0) > 0:
        taken = rows.index_select(0, of.where(is_used, 0)).to(dtype)
        if share is not None:
            taken = taken * (share if rows.dim() == 3 else share.squeeze(2))
        out.index_add_(0, to.where(is_used, size), taken)
    return out[:size].to(rows.dtype)
