"""The operators of :mod:`pyg_graphzero.nn.ops`, one entry each.

An entry is a call of :func:`_operator`:

    schema      name, arguments and result
    engine      computes the results on the CPU: given memory for each, and the arguments
    check       raises where arguments do not fit
    results     the results' shapes; without it, one as the first argument is
    fallback    computes them elsewhere, by PyG's and torch's own functions, which have gradients;
                missing where an operator is only used on the CPU
    keep        places of the arguments that the gradient needs, -1 for the result; a pair where one
                is needed for the gradient of the other place alone
    backward    the gradient on the CPU; missing where there is none

The fallbacks make an array of messages, and wait for no device: errors do not say which edge is
wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu
from torch_geometric.utils import scatter, softmax

from pyg_graphzero import _core
from pyg_graphzero.nn.checks import (
    check_dot,
    check_dropout,
    check_score,
    check_scores,
    check_sum,
    sum_type,
)

#: Results of at least this many bytes lie in memory of the engine.
LARGE = 1 << 20
_LIBRARY = torch.library.Library("pyg_graphzero", "DEF")

# Memory -------------------------------------------------------------------------------------------


class _Result(NamedTuple):
    """A tensor that an operator makes.

    Attributes:
        like: Tensor with its type and device.
        shape: Its shape.
        dtype: Type in which the engine computes it; None for that of ``like``.
    """

    like: Tensor
    shape: Sequence[int]
    dtype: torch.dtype | None = None

    def fake(self) -> Tensor:
        """The tensor without numbers."""
        return self.like.new_empty(self.shape)

    def memory(self) -> Tensor:
        """Memory for the numbers: the engine's, where there are many.

        In fresh memory of malloc's, page faults would take longer than most operations.
        """
        dtype = self.dtype or self.like.dtype
        size = math.prod(self.shape) * dtype.itemsize
        if size < LARGE:
            return self.like.new_empty(self.shape, dtype=dtype)
        memory = _core.empty_bytes(size).untyped_storage()
        # Not a view of the bytes: results of operators must be none.
        return torch.empty(0, dtype=dtype).set_(memory).resize_(self.shape)


def _wide(like: Tensor, shape: Sequence[int]) -> _Result:
    """A result that is summed up in a wider type than it has."""
    return _Result(like, shape, sum_type(like.dtype))


def _array(tensor: Tensor) -> Any:
    """The memory of a tensor; bfloat16, which NumPy does not have, as int16."""
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
    return (tensor.detach() if tensor.requires_grad else tensor).numpy()


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


def _ends(src: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Ends of each edge, and whether it has a destination; else they are 0 and one too many."""
    last = bounds.size(0) - 1
    edges = torch.arange(src.size(0), device=bounds.device)
    dst = torch.searchsorted(bounds, edges, right=True) - 1
    dst = dst.where(dst >= 0, last)
    is_used = dst < last
    return src.where(is_used, 0), dst, is_used


def _of_used(is_used: Tensor, made: Tensor, like: Tensor) -> Tensor:
    """Numbers of edges in the type of ``like``, 0 for those without a destination."""
    return torch.where(is_used.view(-1, *[1] * (made.dim() - 1)), made, 0).to(like.dtype)


# Registration -------------------------------------------------------------------------------------


def _raise_twice(ctx: Any, *grads: Tensor) -> Any:
    raise RuntimeError(
        "found a gradient of a gradient of neighbor_softmax, neighbor_score, neighbor_max or "
        "neighbor_min, which there is none of. Sums, means and products have one; for the others, "
        "use torch_geometric.utils.softmax and scatter"
    )


def _like_first(first: Tensor, *rest: Any) -> list[_Result]:
    return [_Result(first, first.shape)]


def _operator(
    schema: str,
    engine: Callable[..., Any],
    *,
    check: Callable[..., Any] = lambda *args: None,
    results: Callable[..., list[_Result]] = _like_first,
    fallback: Callable[..., Tensor] | None = None,
    keep: Sequence[int | tuple[int, int]] = (),
    backward: Callable[..., Any] = _raise_twice,
) -> Any:
    """Registers an operator; returns the function that calls it."""
    name = schema.split("(")[0]
    full_name = f"{_LIBRARY.ns}::{name}"

    def fake(*args: Any) -> Any:
        check(*args)
        made = [result.fake() for result in results(*args)]
        return made[0] if len(made) == 1 else tuple(made)

    def computed(*args: Any) -> Any:
        check(*args)
        wanted = results(*args)
        out = [result.memory() for result in wanted]
        engine(*out, *args)
        made = [each.to(result.like.dtype) for each, result in zip(out, wanted, strict=True)]
        return made[0] if len(made) == 1 else tuple(made)

    def kept(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        given = *inputs, output
        needs = [(each, each) if isinstance(each, int) else each for each in keep]
        ctx.save_for_backward(
            *(given[at] if at == of or ctx.needs_input_grad[of] else None for at, of in needs)
        )
        ctx.others = [None if isinstance(each, Tensor) else each for each in inputs]
        ctx.counts = [each.size(0) for each in inputs if isinstance(each, Tensor) and each.dim()]

    _LIBRARY.define(schema)
    _LIBRARY.impl(name, computed, "CPU")
    torch.library.register_fake(full_name, fake, lib=_LIBRARY)
    torch.library.register_autograd(full_name, backward, setup_context=kept, lib=_LIBRARY)
    operator = getattr(getattr(torch.ops, _LIBRARY.ns), name).default

    def call(*args: Any) -> Any:
        if fallback is None or args[0].device.type == "cpu":
            return operator(*args)
        check(*args)
        return fallback(*args)

    call.fallback = fallback  # type: ignore[attr-defined]
    return call


# Sums and products --------------------------------------------------------------------------------

# A sum over edges of weight · row of the destination · row of the source has three derivatives:
# sums at destinations, sums at sources, and products. The gradient of each is made of the others.


def _sum_at(out: Tensor, x: Tensor, src: Tensor, bounds: Tensor, *rest: Any) -> None:
    weight, mean, num_src = rest
    heads = 1 if weight is None or weight.dim() == 1 else weight.size(1)
    kernel = _core.neighbor_sum if num_src is None else _core.source_sum
    given = *_edges(src, bounds), _numbers(weight, x.dtype), mean
    kernel(_rows(x, heads), *given, _rows(out, heads))


def _summed(
    x: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None, mean: bool, num_src: None = None
) -> Tensor:
    num_dst = bounds.size(0) - 1
    if x.size(0) == 0:
        return x.new_zeros((num_dst, *x.shape[1:]))
    src, dst, _ = _ends(src, bounds)
    rows = x.index_select(0, src).to(sum_type(x.dtype))
    if weight is not None:
        rows = rows * weight.to(rows.dtype).view(*weight.shape, *[1] * (x.dim() - weight.dim()))
    return scatter(rows, dst, 0, num_dst + 1, "mean" if mean else "sum")[:num_dst].to(x.dtype)


def _sum_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, src, bounds, weight = ctx.saved_tensors
    mean, num_src = ctx.others[4:]
    grad_x = grad_weight = None
    if ctx.needs_input_grad[0]:
        rows = ctx.counts[0] if num_src is None else None
        grad_x = neighbor_sum(grad, src, bounds, weight, mean, rows)
    if ctx.needs_input_grad[3]:
        of_dst, of_src = (grad, x) if num_src is None else (x, grad)
        if weight.dim() == 1:
            of_dst, of_src = of_dst.flatten(1), of_src.flatten(1)
        grad_weight = edge_dot(of_dst, of_src, src, bounds, mean).to(weight.dtype)
    return grad_x, None, None, grad_weight, None, None


neighbor_sum = _operator(
    "neighbor_sum(Tensor x, Tensor src, Tensor bounds, Tensor? weight, bool mean, SymInt? num_src) "
    "-> Tensor",
    _sum_at,
    check=check_sum,
    results=lambda x, src, bounds, weight, mean, num_src: [
        _Result(x, (bounds.size(0) - 1 if num_src is None else num_src, *x.shape[1:]))
    ],
    fallback=_summed,
    keep=((0, 3), 1, 2, 3),
    backward=_sum_backward,
)


def _dot(out: Tensor, q: Tensor, k: Tensor, src: Tensor, bounds: Tensor, mean: bool) -> None:
    heads, numbers = 1 if k.dim() == 2 else k.size(1), _numbers(out, out.dtype)
    _core.edge_dot(_rows(q, heads), _rows(k, heads), *_edges(src, bounds), mean, numbers)


def _dotted(q: Tensor, k: Tensor, src: Tensor, bounds: Tensor, mean: bool) -> Tensor:
    if q.size(0) == 0 or k.size(0) == 0:
        return k.new_zeros((src.size(0), *k.shape[1:-1]))
    src, dst, is_used = _ends(src, bounds)
    dst = dst.where(is_used, 0)
    out = (q.index_select(0, dst).to(sum_type(q.dtype)) * k.index_select(0, src)).sum(-1)
    if mean:
        out = out / bounds.diff().clamp(min=1)[dst].view(-1, *[1] * (out.dim() - 1))
    return _of_used(is_used, out, k)


def _dot_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    q, k, src, bounds = ctx.saved_tensors
    given = src, bounds, grad, ctx.others[4]
    grad_q = None if k is None else neighbor_sum(k, *given, None)
    grad_k = None if q is None else neighbor_sum(q, *given, ctx.counts[1])
    return grad_q, grad_k, None, None, None


edge_dot = _operator(
    "edge_dot(Tensor q, Tensor k, Tensor src, Tensor bounds, bool mean) -> Tensor",
    _dot,
    check=check_dot,
    results=lambda q, k, src, *rest: [_wide(k, (src.size(0), *k.shape[1:-1]))],
    fallback=_dotted,
    keep=((0, 1), (1, 0), 2, 3),
    backward=_dot_backward,
)


# Softmax ------------------------------------------------------------------------------------------


def _softmax(out: Tensor, scores: Tensor, bounds: Tensor, grad: Tensor | None) -> None:
    given, grads = (_numbers(each, scores.dtype) for each in (scores, grad))
    _core.neighbor_softmax(given, _array(bounds.contiguous()), grads, _numbers(out, out.dtype))


def _softmaxed(scores: Tensor, bounds: Tensor, grad: None = None) -> Tensor:
    _, dst, is_used = _ends(scores.new_zeros(scores.size(0), dtype=torch.int64), bounds)
    made = softmax(scores.to(sum_type(scores.dtype)), dst, num_nodes=bounds.size(0))
    return _of_used(is_used, made, scores)


def _softmax_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    *made, of = ctx.saved_tensors
    if of is not None:
        _raise_twice(ctx)
    return neighbor_softmax(*made, grad), None, None


#: Given a gradient, and in place of scores what was made of them, it makes the scores' gradient.
neighbor_softmax = _operator(
    "neighbor_softmax(Tensor scores, Tensor bounds, Tensor? grad) -> Tensor",
    _softmax,
    check=check_scores,
    results=lambda scores, *rest: [_wide(scores, scores.shape)],
    fallback=_softmaxed,
    keep=(-1, 1, 2),
    backward=_softmax_backward,
)


# Scores of GATv2 ----------------------------------------------------------------------------------

_SCORED = "Tensor x_src, Tensor x_dst, Tensor att, Tensor src, Tensor bounds, float slope"


def _scored(arguments: Sequence[Any], *more: Any) -> list[Any]:
    """The memory of the arguments that scores are made of, for the engine."""
    x_src, x_dst, att, src, bounds, slope = arguments
    rows = _rows(x_src, x_src.size(1)), _rows(x_dst, x_src.size(1))
    return [*rows, _numbers(att, x_src.dtype), *_edges(src, bounds), slope, *more]


def _score(
    x_src: Tensor, x_dst: Tensor, att: Tensor, src: Tensor, bounds: Tensor, slope: float
) -> Tensor:
    if x_src.size(0) == 0 or x_dst.size(0) == 0:
        return x_src.new_zeros((src.size(0), x_src.size(1)))
    src, dst, is_used = _ends(src, bounds)
    sums = x_src.index_select(0, src).to(sum_type(x_src.dtype))
    sums = sums + x_dst.index_select(0, dst.where(is_used, 0))
    return _of_used(is_used, (leaky_relu(sums, slope) * att).sum(-1), x_src)


def _score_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grads = neighbor_score_backward(grad, *ctx.saved_tensors, ctx.others[5])
    return *grads, None, None, None


def _score_grads(
    out_src: Tensor, out_dst: Tensor, out_att: Tensor, grad: Tensor, *scored: Any
) -> None:
    out = _numbers(grad, scored[0].dtype), _array(out_src), _array(out_dst), _array(out_att)
    _core.neighbor_score_backward(*_scored(scored, *out))


neighbor_score = _operator(
    f"neighbor_score({_SCORED}) -> Tensor",
    lambda out, *scored: _core.neighbor_score(*_scored(scored, _array(out))),
    check=check_score,
    results=lambda x_src, x_dst, att, src, *rest: [_wide(x_src, (src.size(0), x_src.size(1)))],
    fallback=_score,
    keep=range(5),
    backward=_score_backward,
)
neighbor_score_backward = _operator(
    f"neighbor_score_backward(Tensor grad, {_SCORED}) -> (Tensor, Tensor, Tensor)",
    _score_grads,
    results=lambda grad, x_src, x_dst, att, *rest: [
        _Result(x_src, x_src.shape),
        _Result(x_dst, x_dst.shape),
        _Result(att, att.shape, sum_type(x_src.dtype)),
    ],
)


# Extremes -----------------------------------------------------------------------------------------


def _extreme(x: Tensor, src: Tensor, bounds: Tensor, is_min: bool) -> Tensor:
    num_dst = bounds.size(0) - 1
    if x.size(0) == 0:
        return x.new_zeros((num_dst, *x.shape[1:]))
    src, dst, _ = _ends(src, bounds)
    rows = x.index_select(0, src)
    return scatter(rows, dst, 0, num_dst + 1, "min" if is_min else "max")[:num_dst]


def _extreme_grad(
    out: Tensor, grad: Tensor, made: Tensor, x: Tensor, src: Tensor, bounds: Tensor
) -> None:
    given = _rows(x, 1), *_edges(src, bounds), _rows(made, 1), _rows(grad, 1)
    _core.neighbor_max_backward(*given, _rows(out, 1))


neighbor_max = _operator(
    "neighbor_max(Tensor x, Tensor src, Tensor bounds, bool is_min) -> Tensor",
    lambda out, x, src, bounds, is_min: _core.neighbor_max(
        _rows(x, 1), *_edges(src, bounds), is_min, _rows(out, 1)
    ),
    check=lambda x, src, bounds, is_min: check_sum(x, src, bounds),
    results=lambda x, src, bounds, is_min: [_Result(x, (bounds.size(0) - 1, *x.shape[1:]))],
    fallback=_extreme,
    keep=(-1, 0, 1, 2),
    backward=lambda ctx, grad: (
        neighbor_max_backward(grad, *ctx.saved_tensors), None, None, None,
    ),
)  # fmt: skip
neighbor_max_backward: Any = _operator(
    "neighbor_max_backward(Tensor grad, Tensor made, Tensor x, Tensor src, Tensor bounds) -> "
    "Tensor",
    _extreme_grad,
    results=lambda grad, made, x, *rest: [_Result(x, x.shape)],
)


# Functions of torch, in memory of the engine ------------------------------------------------------


def _multiply(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    if bias is None:
        torch.mm(x, weight.t(), out=out)
    else:
        torch.addmm(bias, x, weight.t(), out=out)


def _product_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    return (
        None if weight is None else product(grad, weight.t(), None),
        None if x is None else grad.t() @ x,
        grad.sum(0) if ctx.needs_input_grad[2] else None,
    )


product = _operator(
    "product(Tensor x, Tensor weight, Tensor? bias) -> Tensor",
    _multiply,
    results=lambda x, weight, bias: [_Result(x, (x.size(0), weight.size(0)))],
    keep=((0, 1), (1, 0)),
    backward=_product_backward,
)
relu = _operator(
    "relu(Tensor x) -> Tensor",
    lambda out, x: torch.clamp_min(x, 0, out=out),
    keep=(-1,),
    backward=lambda ctx, grad: relu_backward(grad, *ctx.saved_tensors),
)
relu_backward: Any = _operator(
    "relu_backward(Tensor grad, Tensor made) -> Tensor",
    lambda out, grad, made: torch.ops.aten.threshold_backward.grad_input(
        grad, made, 0, grad_input=out
    ),
    keep=(1,),
    backward=lambda ctx, grad: (relu_backward(grad, *ctx.saved_tensors), None),
)


def _dropped(out: Tensor, x: Tensor, p: float, key: int) -> None:
    _core.dropout(_array(x.contiguous().view(-1, 1, 1)), p, key, _array(out.view(-1, 1, 1)))


dropout: Any = _operator(
    "dropout(Tensor x, float p, int key) -> Tensor",
    _dropped,
    check=check_dropout,
    backward=lambda ctx, grad: (dropout(grad, *ctx.others[1:]), None, None),
)
