# ruff: noqa: D103  (ops.py describes the operations)
"""The operations of :mod:`pyg_graphzero.nn.ops` on the CPU, computed by the engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.nn.checks import (
    check_dot,
    check_dropout,
    check_score,
    check_scores,
    check_sum,
    sum_type,
)

# Results of at least this many bytes lie in memory of the engine.
LARGE = 1 << 20


def _array(tensor: Tensor) -> Any:
    """The memory of a tensor; bfloat16, which NumPy does not have, as int16."""
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
    return (tensor.detach() if tensor.requires_grad else tensor).numpy()


def _empty(like: Tensor, shape: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
    """Returns what ``like.new_empty(shape)`` does, in memory of the engine where it is large.

    In fresh memory of malloc's, page faults would take longer than most operations.
    """
    dtype = dtype or like.dtype
    size = math.prod(shape) * dtype.itemsize
    if size < LARGE:
        return like.new_empty(shape, dtype=dtype)
    memory = _core.empty_bytes(size).untyped_storage()
    # Not a view of the bytes: results of operators must be none.
    return torch.empty(0, dtype=dtype).set_(memory).resize_(shape)


def _edges(src: Tensor, bounds: Tensor) -> tuple[Any, Any]:
    return _array(src.contiguous()), _array(bounds.contiguous())


def _rows(x: Tensor, heads: int) -> Any:
    """The memory of rows, as the engine wants them: [rows, heads, channels]."""
    if x.dim() == 2:
        x = x.unsqueeze(1)
    elif heads == 1 and x.size(1) != 1:
        x = x.flatten(1).unsqueeze(1)
    is_dense = x.stride(2) == 1 and (x.size(1) == 1 or x.stride(1) == x.size(2))
    return _array(x if is_dense else x.contiguous())


def _numbers(of_edges: Tensor | None, dtype: torch.dtype) -> Any:
    """The memory of what there is one of for each edge, and head."""
    if of_edges is None:
        return None
    made = of_edges.to(sum_type(dtype)).contiguous()
    return _array(made if made.dim() == 2 else made.unsqueeze(1))


def dropout(x: Tensor, p: float, key: int) -> Tensor:
    check_dropout(x, p)
    out = _empty(x, x.shape)
    _core.dropout(_array(x.contiguous().view(-1, 1, 1)), p, key, _array(out.view(-1, 1, 1)))
    return out


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out = _empty(x, (x.size(0), weight.size(0)))
    if bias is None:
        return torch.mm(x, weight.t(), out=out)
    return torch.addmm(bias, x, weight.t(), out=out)


def relu(x: Tensor) -> Tensor:
    return torch.clamp_min(x, 0, out=_empty(x, x.shape))


def relu_backward(grad: Tensor, made: Tensor) -> Tensor:
    out = _empty(made, made.shape)
    return torch.ops.aten.threshold_backward.grad_input(grad, made, 0, grad_input=out)


def neighbor_sum(
    x: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None, mean: bool
) -> Tensor:
    num_dst, heads = check_sum("x", x, src, bounds, weight)
    out = _empty(x, (num_dst, *x.shape[1:]))
    weights = _numbers(weight, x.dtype)
    _core.neighbor_sum(_rows(x, heads), *_edges(src, bounds), weights, mean, _rows(out, heads))
    return out


def source_sum(
    rows: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None, mean: bool, num_src: int
) -> Tensor:
    _, heads = check_sum("rows", rows, src, bounds, weight)
    out = _empty(rows, (num_src, *rows.shape[1:]))
    weights = _numbers(weight, rows.dtype)
    _core.source_sum(_rows(rows, heads), *_edges(src, bounds), weights, mean, _rows(out, heads))
    return out


def edge_dot(q: Tensor, k: Tensor, src: Tensor, bounds: Tensor, mean: bool) -> Tensor:
    heads = check_dot(q, k, src, bounds)
    shape = (src.size(0), heads) if k.dim() == 3 else (src.size(0),)
    out = _empty(k, shape, sum_type(k.dtype))
    numbers = _numbers(out, out.dtype)
    _core.edge_dot(_rows(q, heads), _rows(k, heads), *_edges(src, bounds), mean, numbers)
    return out.to(k.dtype)


def neighbor_softmax(scores: Tensor, bounds: Tensor) -> Tensor:
    check_scores(scores, bounds)
    out = _empty(scores, scores.shape, sum_type(scores.dtype))
    given, to = _numbers(scores, scores.dtype), _numbers(out, out.dtype)
    _core.neighbor_softmax(given, _array(bounds.contiguous()), None, to)
    return out.to(scores.dtype)


def neighbor_softmax_backward(made: Tensor, grad: Tensor, bounds: Tensor) -> Tensor:
    out = _empty(made, made.shape, sum_type(made.dtype))
    given, to = _numbers(made, made.dtype), _numbers(out, out.dtype)
    _core.neighbor_softmax(given, _array(bounds.contiguous()), _numbers(grad, made.dtype), to)
    return out.to(made.dtype)


def neighbor_max(x: Tensor, src: Tensor, bounds: Tensor, is_min: bool) -> Tensor:
    num_dst, _ = check_sum("x", x, src, bounds, None)
    out = _empty(x, (num_dst, *x.shape[1:]))
    _core.neighbor_max(_rows(x, 1), *_edges(src, bounds), is_min, _rows(out, 1))
    return out


def neighbor_max_backward(
    grad: Tensor, made: Tensor, x: Tensor, src: Tensor, bounds: Tensor
) -> Tensor:
    out = _empty(x, x.shape)
    given = _rows(x, 1), *_edges(src, bounds), _rows(made, 1), _rows(grad, 1)
    _core.neighbor_max_backward(*given, _rows(out, 1))
    return out


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
    out = _empty(x_src, (src.size(0), x_src.size(1)), sum_type(x_src.dtype))
    given = _scored(x_src, x_dst, att, src, bounds, edge)
    _core.neighbor_score(*given, slope, _array(out))
    return out.to(x_src.dtype)


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
    out_dst = _empty(x_dst, x_dst.shape)
    out_att = att.new_empty(att.shape, dtype=sum_type(x_src.dtype))
    out_edge = _empty(x_src, (0 if edge is None else src.size(0), *x_src.shape[1:]))
    given = _scored(x_src, x_dst, att, src, bounds, edge)
    grads = _numbers(grad, x_src.dtype), _array(out_dst), _array(out_att)
    _core.neighbor_score_backward(*given, slope, *grads, None if edge is None else _array(out_edge))
    return out_dst, out_att, out_edge


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
    out = _empty(x_src, x_src.shape)
    given = _scored(x_src, x_dst, att, src, bounds, edge)
    _core.source_score_backward(*given, slope, _numbers(grad, x_src.dtype), _array(out))
    return out


def _scored(
    x_src: Tensor,
    x_dst: Tensor,
    att: Tensor,
    src: Tensor,
    bounds: Tensor,
    edge: Tensor | None,
) -> tuple[Any, Any, Any, Any, Any, Any]:
    """The memory of the arguments that scores are made of."""
    heads = x_src.size(1)
    of_edges = None if edge is None else _rows(edge, heads)
    rows = _rows(x_src, heads), _rows(x_dst, heads)
    return *rows, _numbers(att, x_src.dtype), *_edges(src, bounds), of_edges
