# ruff: noqa: D103  (the operations are told of in ops.py)
"""The operations of :mod:`pyg_graphzero.nn.ops` on the CPU: the engine's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.nn.checks import check_dot, check_scores, check_sum, sum_type

_DENSE = torch.contiguous_format


def _array(tensor: Tensor) -> Any:
    """The memory of a tensor; bfloat16, which NumPy does not have, as int16."""
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
    return (tensor.detach() if tensor.requires_grad else tensor).numpy()


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


def neighbor_sum(
    x: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None, mean: bool
) -> Tensor:
    num_dst, heads = check_sum("x", x, src, bounds, weight)
    out = x.new_empty((num_dst, *x.shape[1:]))
    edges = _array(src.contiguous()), _array(bounds.contiguous())
    weights = _numbers(weight, x.dtype)
    _core.neighbor_sum(_rows(x, heads), *edges, weights, mean, _rows(out, heads))
    return out


def source_sum(
    rows: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None, mean: bool, num_src: int
) -> Tensor:
    _, heads = check_sum("rows", rows, src, bounds, weight)
    out = rows.new_empty((num_src, *rows.shape[1:]))
    edges = _array(src.contiguous()), _array(bounds.contiguous())
    weights = _numbers(weight, rows.dtype)
    _core.source_sum(_rows(rows, heads), *edges, weights, mean, _rows(out, heads))
    return out


def edge_dot(q: Tensor, k: Tensor, src: Tensor, bounds: Tensor, mean: bool) -> Tensor:
    heads = check_dot(q, k, src, bounds)
    shape = (src.size(0), heads) if k.dim() == 3 else (src.size(0),)
    out = k.new_empty(shape, dtype=sum_type(k.dtype))
    edges = _array(src.contiguous()), _array(bounds.contiguous())
    numbers = _numbers(out, out.dtype)
    _core.edge_dot(_rows(q, heads), _rows(k, heads), *edges, mean, numbers)
    return out.to(k.dtype)


def neighbor_softmax(scores: Tensor, bounds: Tensor) -> Tensor:
    check_scores(scores, bounds)
    out = torch.empty_like(scores, dtype=sum_type(scores.dtype), memory_format=_DENSE)
    given, to = _numbers(scores, scores.dtype), _numbers(out, out.dtype)
    _core.neighbor_softmax(given, _array(bounds.contiguous()), None, to)
    return out.to(scores.dtype)


def neighbor_softmax_backward(made: Tensor, grad: Tensor, bounds: Tensor) -> Tensor:
    out = torch.empty_like(made, dtype=sum_type(made.dtype), memory_format=_DENSE)
    given, to = _numbers(made, made.dtype), _numbers(out, out.dtype)
    _core.neighbor_softmax(given, _array(bounds.contiguous()), _numbers(grad, made.dtype), to)
    return out.to(made.dtype)
