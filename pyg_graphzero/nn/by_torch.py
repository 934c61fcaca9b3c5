# ruff: noqa: D103  (ops.py describes the operations)
"""The operations of :mod:`pyg_graphzero.nn.ops` by torch's own functions, on any device.

Each makes an array of messages and frees it again. Nothing here waits for the device, so errors do
not say which edge is wrong.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu
from torch_geometric.utils import softmax

from pyg_graphzero.nn.checks import (
    check_dot,
    check_dropout,
    check_score,
    check_scores,
    check_sum,
    sum_type,
)


def dropout(x: Tensor, p: float, key: int) -> Tensor:
    check_dropout(x, p)
    random = torch.Generator(x.device).manual_seed(key)
    kept = torch.empty_like(x).bernoulli_(1 - p, generator=random)
    return x * kept.div_(1 - p if p < 1 else 1)


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.mm(x, weight.t()) if bias is None else torch.addmm(bias, x, weight.t())


def relu(x: Tensor) -> Tensor:
    return torch.clamp_min(x, 0)


def relu_backward(grad: Tensor, made: Tensor) -> Tensor:
    return torch.ops.aten.threshold_backward(grad, made, 0)


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


def neighbor_max(x: Tensor, src: Tensor, bounds: Tensor, is_min: bool) -> Tensor:
    num_dst, _ = check_sum("x", x, src, bounds, None)
    out = x.new_zeros((num_dst + 1, *x.shape[1:]))
    if x.size(0) > 0:
        dst = destinations(src.size(0), bounds)
        rows = x.index_select(0, src.where(dst < num_dst, 0))
        to = dst.view(-1, *[1] * (x.dim() - 1)).expand_as(rows)
        how = "amin" if is_min else "amax"
        out.scatter_reduce_(0, to, rows, how, include_self=False)
    return out[:num_dst]


def neighbor_max_backward(
    grad: Tensor, made: Tensor, x: Tensor, src: Tensor, bounds: Tensor
) -> Tensor:
    dst = destinations(src.size(0), bounds)
    is_used = dst < made.size(0)
    dtype = sum_type(x.dtype)
    out = torch.zeros_like(x, dtype=dtype)
    if made.size(0) > 0 and x.size(0) > 0:
        src, dst = src.where(is_used, 0), dst.where(is_used, 0)
        is_used = is_used.view(-1, *[1] * (x.dim() - 1))
        wins = ((x.index_select(0, src) == made.index_select(0, dst)) & is_used).to(dtype)
        winners = (made == 0).to(dtype).index_add_(0, dst, wins)
        out.index_add_(0, src, wins * (grad / winners).index_select(0, dst))
    return out.to(x.dtype)


def neighbor_score(
    x_src: Tensor,
    x_dst: Tensor,
    att: Tensor,
    src: Tensor,
    bounds: Tensor,
    edge: Tensor | None,
    slope: float,
) -> Tensor:
    check_score(x_src, x_dst, att, src, bounds, edge)
    sums, is_used = _edge_sums(x_src, x_dst, src, bounds, edge)
    made = (leaky_relu(sums, slope) * att).sum(-1)
    return torch.where(is_used.view(-1, 1), made, 0).to(x_src.dtype)


def neighbor_score_backward(
    grad: Tensor,
    x_src: Tensor,
    x_dst: Tensor,
    att: Tensor,
    src: Tensor,
    bounds: Tensor,
    edge: Tensor | None,
    slope: float,
) -> tuple[Tensor, Tensor, Tensor]:
    sums, is_used = _edge_sums(x_src, x_dst, src, bounds, edge)
    grad = torch.where(is_used.view(-1, 1), grad, 0).to(sums.dtype).unsqueeze(-1)
    out_att = (grad * leaky_relu(sums, slope)).sum(0)
    out_edge = grad * att * torch.where(sums > 0, sums.new_ones(()), slope)
    out_dst = x_dst.new_zeros((bounds.size(0), *x_dst.shape[1:]), dtype=sums.dtype)
    out_dst.index_add_(0, destinations(src.size(0), bounds), out_edge)
    kept = out_edge if edge is not None else out_edge[:0]
    return out_dst[:-1].to(x_dst.dtype), out_att, kept.to(x_src.dtype)


def source_score_backward(
    grad: Tensor,
    x_src: Tensor,
    x_dst: Tensor,
    att: Tensor,
    src: Tensor,
    bounds: Tensor,
    edge: Tensor | None,
    slope: float,
) -> Tensor:
    sums, is_used = _edge_sums(x_src, x_dst, src, bounds, edge)
    out_edge = (
        grad.to(sums.dtype).unsqueeze(-1) * att * torch.where(sums > 0, sums.new_ones(()), slope)
    )
    out = x_src.new_zeros((x_src.size(0) + 1, *x_src.shape[1:]), dtype=sums.dtype)
    out.index_add_(0, src.where(is_used, x_src.size(0)), out_edge)
    return out[:-1].to(x_src.dtype)


def _edge_sums(
    x_src: Tensor, x_dst: Tensor, src: Tensor, bounds: Tensor, edge: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Sums of each edge's own row and the rows of its ends, and whether the edge has ends."""
    dst = destinations(src.size(0), bounds)
    is_used = dst < x_dst.size(0)
    sums = x_src.new_zeros((src.size(0), *x_src.shape[1:]), dtype=sum_type(x_src.dtype))
    if x_src.size(0) > 0 and x_dst.size(0) > 0:
        sums += x_src.index_select(0, src.where(is_used, 0))
        sums += x_dst.index_select(0, dst.where(is_used, 0))
    return sums if edge is None else sums + edge, is_used


def destinations(num_edges: int, bounds: Tensor) -> Tensor:
    """Destination of each edge; the number of destinations for an edge that has none."""
    edges = torch.arange(num_edges, device=bounds.device)
    dst = torch.searchsorted(bounds, edges, right=True) - 1
    return dst.where(dst >= 0, bounds.size(0) - 1)


def _degrees(bounds: Tensor) -> Tensor:
    """In-edges of each destination, counted as at least 1; a last entry, 1, for no destination."""
    return torch.cat([bounds.diff().clamp(min=1), bounds.new_ones(1)])


def _shares(
    rows: Tensor, dst: Tensor, bounds: Tensor, weight: Tensor | None, mean: bool
) -> Tensor | None:
    """Factor of each edge's row, ``[edges, 1 or heads, 1]``; None if all factors are 1."""
    share = None if weight is None else weight.to(sum_type(rows.dtype)).view(len(dst), -1, 1)
    if mean:
        degrees = _degrees(bounds)[dst].view(-1, 1, 1)
        share = 1 / degrees.to(sum_type(rows.dtype)) if share is None else share / degrees
    return share


def _added(
    rows: Tensor, of: Tensor, share: Tensor | None, to: Tensor, size: int, is_used: Tensor
) -> Tensor:
    """Rows ``of`` one end of each edge, times its share, summed by the other end, ``to``."""
    dtype = sum_type(rows.dtype)
    out = torch.zeros((size + 1, *rows.shape[1:]), dtype=dtype, device=rows.device)
    if rows.size(0) > 0:
        taken = rows.index_select(0, of.where(is_used, 0)).to(dtype)
        if share is not None:
            taken = taken * (share if rows.dim() == 3 else share.squeeze(2))
        out.index_add_(0, to.where(is_used, size), taken)
    return out[:size].to(rows.dtype)
