"""The operators of :mod:`pyg_graphzero.nn.ops`, one entry each.

An entry is a class, and the call that registers it:

    schema      name, arguments and result
    check       raises where arguments do not fit
    results     the results' shapes; without it, one as the first argument is
    engine      computes them on the CPU: given memory for each, and the arguments
    fallback    computes them elsewhere, by PyG's and torch's own functions, which have gradients;
                missing where an operator is only used on the CPU
    keep        keeps the tensors that the gradient needs
    backward    the gradient on the CPU; missing where there is none

The fallbacks make an array of messages, and wait for no device: errors do not say which edge is
wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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


def _heads(weight: Tensor | None) -> int:
    return 1 if weight is None or weight.dim() == 1 else weight.size(1)


def _ends(src: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Ends of each edge, and whether it has a destination; else they are 0 and one too many."""
    last = bounds.size(0) - 1
    edges = torch.arange(src.size(0), device=bounds.device)
    dst = torch.searchsorted(bounds, edges, right=True) - 1
    dst = dst.where(dst >= 0, last)
    is_used = dst < last
    return src.where(is_used, 0), dst, is_used


def _like(is_used: Tensor, of_edges: Tensor) -> Tensor:
    return is_used.view(-1, *[1] * (of_edges.dim() - 1))


# Registration -------------------------------------------------------------------------------------


def _raise_twice(ctx: Any, *grads: Tensor) -> Any:
    raise RuntimeError(
        "found a gradient of a gradient of neighbor_softmax, neighbor_score, neighbor_max or "
        "neighbor_min, which there is none of. Sums, means and products have one; for the others, "
        "use torch_geometric.utils.softmax and scatter"
    )


def _keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    pass


def _like_first(first: Tensor, *rest: Any) -> list[_Result]:
    return [_Result(first, first.shape)]


def _operator(entry: Any) -> Any:
    """Registers an entry of the table; returns the function that calls it."""
    name = entry.schema.split("(")[0]
    full_name = f"{_LIBRARY.ns}::{name}"
    check = getattr(entry, "check", lambda *args: None)
    keep = getattr(entry, "keep", _keep_nothing)
    backward = getattr(entry, "backward", _raise_twice)
    results_of = getattr(entry, "results", _like_first)
    fallback = getattr(entry, "fallback", None)

    def fake(*args: Any) -> Any:
        check(*args)
        made = [result.fake() for result in results_of(*args)]
        return made[0] if len(made) == 1 else tuple(made)

    def engine(*args: Any) -> Any:
        check(*args)
        results = results_of(*args)
        out = [result.memory() for result in results]
        entry.engine(*out, *args)
        made = [each.to(result.like.dtype) for each, result in zip(out, results, strict=True)]
        return made[0] if len(made) == 1 else tuple(made)

    _LIBRARY.define(entry.schema)
    _LIBRARY.impl(name, engine, "CPU")
    torch.library.register_fake(full_name, fake, lib=_LIBRARY)
    torch.library.register_autograd(full_name, backward, setup_context=keep, lib=_LIBRARY)
    operator = getattr(getattr(torch.ops, _LIBRARY.ns), name).default

    # torch.func cannot use the gradient that is registered. It asks for a function that keeps the
    # tensors for the gradient itself; such a function takes longer to call.
    def one_by_one(info: Any, in_dims: Sequence[int | None], *args: Any) -> Any:
        made = []
        for i in range(info.batch_size):
            pairs = zip(args, in_dims, strict=True)
            made.append(call(*(arg if dim is None else arg.select(dim, i) for arg, dim in pairs)))
        if isinstance(made[0], Tensor):
            return torch.stack(made), 0
        return tuple(map(torch.stack, zip(*made, strict=True))), (0,) * len(made[0])

    parts = {
        "forward": lambda *args: operator(*args),
        "setup_context": keep,
        "backward": backward,
        "vmap": one_by_one,
    }
    members = {part: staticmethod(function) for part, function in parts.items()}
    for_transforms: Any = type(name, (torch.autograd.Function,), members)

    def call(*args: Any) -> Any:
        if fallback is not None and args[0].device.type != "cpu":
            check(*args)
            return fallback(*args)
        if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
            return for_transforms.apply(*args)
        return operator(*args)

    call.fallback = fallback  # type: ignore[attr-defined]
    return call


# Sums ---------------------------------------------------------------------------------------------


def _keep_for_sum(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Rows are kept where the gradient of weights is wanted; it alone needs them."""
    rows, src, bounds, weight, ctx.is_mean, *_ = inputs
    ctx.num_rows = rows.size(0)
    kept = rows if ctx.needs_input_grad[3] else None
    ctx.save_for_backward(kept, src, bounds, weight)


def _weight_grad(
    of_dst: Tensor, of_src: Tensor, src: Tensor, bounds: Tensor, weight: Tensor, is_mean: bool
) -> Tensor:
    if weight.dim() == 1:
        of_dst, of_src = of_dst.flatten(1), of_src.flatten(1)
    return edge_dot(of_dst, of_src, src, bounds, is_mean).to(weight.dtype)


class _NeighborSum:
    schema = (
        "neighbor_sum(Tensor x, Tensor src, Tensor bounds, Tensor? weight, bool mean) -> Tensor"
    )

    @staticmethod
    def check(x: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None, mean: bool) -> None:
        check_sum("x", x, src, bounds, weight)

    @staticmethod
    def results(x: Tensor, src: Tensor, bounds: Tensor, *rest: Any) -> list[_Result]:
        return [_Result(x, (bounds.size(0) - 1, *x.shape[1:]))]

    @staticmethod
    def engine(
        out: Tensor, x: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None, mean: bool
    ) -> None:
        heads, weights = _heads(weight), _numbers(weight, x.dtype)
        _core.neighbor_sum(_rows(x, heads), *_edges(src, bounds), weights, mean, _rows(out, heads))

    @staticmethod
    def fallback(
        x: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None, mean: bool
    ) -> Tensor:
        num_dst = bounds.size(0) - 1
        if x.size(0) == 0:
            return x.new_zeros((num_dst, *x.shape[1:]))
        src, dst, _ = _ends(src, bounds)
        rows = x.index_select(0, src).to(sum_type(x.dtype))
        if weight is not None:
            rows = rows * weight.to(rows.dtype).view(*weight.shape, *[1] * (x.dim() - weight.dim()))
        how = "mean" if mean else "sum"
        return scatter(rows, dst, 0, num_dst + 1, how)[:num_dst].to(x.dtype)

    keep = staticmethod(_keep_for_sum)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, src, bounds, weight = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = source_sum(grad, src, bounds, weight, ctx.is_mean, ctx.num_rows)
        if ctx.needs_input_grad[3]:
            grad_weight = _weight_grad(grad, x, src, bounds, weight, ctx.is_mean)
        return grad_x, None, None, grad_weight, None


neighbor_sum = _operator(_NeighborSum)


class _SourceSum:
    schema = (
        "source_sum(Tensor rows, Tensor src, Tensor bounds, Tensor? weight, bool mean, "
        "SymInt num_src) -> Tensor"
    )

    @staticmethod
    def check(rows: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None, *rest: Any) -> None:
        check_sum("rows", rows, src, bounds, weight)

    @staticmethod
    def results(rows: Tensor, *rest: Any) -> list[_Result]:
        return [_Result(rows, (rest[-1], *rows.shape[1:]))]

    @staticmethod
    def engine(
        out: Tensor, rows: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None, mean: bool,
        num_src: int,
    ) -> None:  # fmt: skip
        heads, weights = _heads(weight), _numbers(weight, rows.dtype)
        _core.source_sum(_rows(rows, heads), *_edges(src, bounds), weights, mean, _rows(out, heads))

    keep = staticmethod(_keep_for_sum)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, src, bounds, weight = ctx.saved_tensors
        grad_rows = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_rows = neighbor_sum(grad, src, bounds, weight, ctx.is_mean)
        if ctx.needs_input_grad[3]:
            grad_weight = _weight_grad(rows, grad, src, bounds, weight, ctx.is_mean)
        return grad_rows, None, None, grad_weight, None, None


source_sum = _operator(_SourceSum)


class _EdgeDot:
    schema = "edge_dot(Tensor q, Tensor k, Tensor src, Tensor bounds, bool mean) -> Tensor"

    @staticmethod
    def check(q: Tensor, k: Tensor, src: Tensor, bounds: Tensor, mean: bool) -> None:
        check_dot(q, k, src, bounds)

    @staticmethod
    def results(q: Tensor, k: Tensor, src: Tensor, *rest: Any) -> list[_Result]:
        return [_wide(k, (src.size(0), *k.shape[1:-1]))]

    @staticmethod
    def engine(out: Tensor, q: Tensor, k: Tensor, src: Tensor, bounds: Tensor, mean: bool) -> None:
        heads, numbers = 1 if k.dim() == 2 else k.size(1), _numbers(out, out.dtype)
        _core.edge_dot(_rows(q, heads), _rows(k, heads), *_edges(src, bounds), mean, numbers)

    @staticmethod
    def fallback(q: Tensor, k: Tensor, src: Tensor, bounds: Tensor, mean: bool) -> Tensor:
        if q.size(0) == 0 or k.size(0) == 0:
            return k.new_zeros((src.size(0), *k.shape[1:-1]))
        src, dst, is_used = _ends(src, bounds)
        left = q.index_select(0, dst.where(is_used, 0)).to(sum_type(q.dtype))
        out = (left * k.index_select(0, src)).sum(-1)
        if mean:
            degrees = bounds.diff().clamp(min=1)[dst.where(is_used, 0)]
            out = out / degrees.view_as(_like(is_used, out))
        return torch.where(_like(is_used, out), out, 0).to(k.dtype)

    @staticmethod
    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        q, k, src, bounds, ctx.is_mean = inputs
        ctx.num_src = k.size(0)
        needs_q, needs_k = ctx.needs_input_grad[:2]
        ctx.save_for_backward(q if needs_k else None, k if needs_q else None, src, bounds)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, src, bounds = ctx.saved_tensors
        grad_q = grad_k = None
        if ctx.needs_input_grad[0]:
            grad_q = neighbor_sum(k, src, bounds, grad, ctx.is_mean)
        if ctx.needs_input_grad[1]:
            grad_k = source_sum(q, src, bounds, grad, ctx.is_mean, ctx.num_src)
        return grad_q, grad_k, None, None, None


edge_dot = _operator(_EdgeDot)


# Softmax ------------------------------------------------------------------------------------------


class _NeighborSoftmax:
    schema = "neighbor_softmax(Tensor scores, Tensor bounds) -> Tensor"
    check = staticmethod(check_scores)

    @staticmethod
    def results(scores: Tensor, bounds: Tensor) -> list[_Result]:
        return [_wide(scores, scores.shape)]

    @staticmethod
    def engine(out: Tensor, scores: Tensor, bounds: Tensor) -> None:
        given, to = _numbers(scores, scores.dtype), _numbers(out, out.dtype)
        _core.neighbor_softmax(given, _array(bounds.contiguous()), None, to)

    @staticmethod
    def fallback(scores: Tensor, bounds: Tensor) -> Tensor:
        _, dst, is_used = _ends(scores.new_zeros(scores.size(0), dtype=torch.int64), bounds)
        made = softmax(scores.to(sum_type(scores.dtype)), dst, num_nodes=bounds.size(0))
        return torch.where(_like(is_used, scores), made, 0).to(scores.dtype)

    @staticmethod
    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output, inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        made, bounds = ctx.saved_tensors
        return neighbor_softmax_backward(made, grad, bounds), None


neighbor_softmax = _operator(_NeighborSoftmax)


class _NeighborSoftmaxBackward:
    schema = "neighbor_softmax_backward(Tensor made, Tensor grad, Tensor bounds) -> Tensor"

    @staticmethod
    def results(made: Tensor, grad: Tensor, bounds: Tensor) -> list[_Result]:
        return [_wide(made, made.shape)]

    @staticmethod
    def engine(out: Tensor, made: Tensor, grad: Tensor, bounds: Tensor) -> None:
        given, to = _numbers(made, made.dtype), _numbers(out, out.dtype)
        _core.neighbor_softmax(given, _array(bounds.contiguous()), _numbers(grad, made.dtype), to)


neighbor_softmax_backward = _operator(_NeighborSoftmaxBackward)


# Scores of GATv2 ----------------------------------------------------------------------------------

_SCORED = (
    "Tensor x_src, Tensor x_dst, Tensor att, Tensor src, Tensor bounds, Tensor? edge, float slope"
)


def _scored(
    x_src: Tensor, x_dst: Tensor, att: Tensor, src: Tensor, bounds: Tensor, edge: Tensor | None
) -> tuple[Any, Any, Any, Any, Any, Any]:
    """The memory of the arguments that scores are made of."""
    heads = x_src.size(1)
    of_edges = None if edge is None else _rows(edge, heads)
    rows = _rows(x_src, heads), _rows(x_dst, heads)
    return *rows, _numbers(att, x_src.dtype), *_edges(src, bounds), of_edges


class _NeighborScore:
    schema = f"neighbor_score({_SCORED}) -> Tensor"

    @staticmethod
    def check(*args: Any) -> None:
        check_score(*args[:-1])

    @staticmethod
    def results(
        x_src: Tensor, x_dst: Tensor, att: Tensor, src: Tensor, *rest: Any
    ) -> list[_Result]:
        return [_wide(x_src, (src.size(0), x_src.size(1)))]

    @staticmethod
    def engine(out: Tensor, *args: Any) -> None:
        _core.neighbor_score(*_scored(*args[:-1]), args[-1], _array(out))

    @staticmethod
    def fallback(
        x_src: Tensor, x_dst: Tensor, att: Tensor, src: Tensor, bounds: Tensor,
        edge: Tensor | None, slope: float,
    ) -> Tensor:  # fmt: skip
        if x_src.size(0) == 0 or x_dst.size(0) == 0:
            return x_src.new_zeros((src.size(0), x_src.size(1)))
        src, dst, is_used = _ends(src, bounds)
        sums = x_src.index_select(0, src).to(sum_type(x_src.dtype))
        sums = sums + x_dst.index_select(0, dst.where(is_used, 0))
        made = (leaky_relu(sums if edge is None else sums + edge, slope) * att).sum(-1)
        return torch.where(_like(is_used, made), made, 0).to(x_src.dtype)

    @staticmethod
    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.slope = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs: Any = grad, *ctx.saved_tensors, ctx.slope
        grad_src = grad_dst = grad_att = grad_edge = None
        if ctx.needs_input_grad[0]:
            grad_src = source_score_backward(*inputs)
        if any(ctx.needs_input_grad[i] for i in (1, 2, 5)):
            grad_dst, grad_att, grad_edge = neighbor_score_backward(*inputs)
        grad_edge = None if inputs[6] is None else grad_edge
        return grad_src, grad_dst, grad_att, None, None, grad_edge, None


neighbor_score = _operator(_NeighborScore)


class _NeighborScoreBackward:
    schema = f"neighbor_score_backward(Tensor grad, {_SCORED}) -> (Tensor, Tensor, Tensor)"

    @staticmethod
    def results(
        grad: Tensor, x_src: Tensor, x_dst: Tensor, att: Tensor, src: Tensor, bounds: Tensor,
        edge: Tensor | None, slope: float,
    ) -> list[_Result]:  # fmt: skip
        num_rows = 0 if edge is None else src.size(0)
        return [
            _Result(x_dst, x_dst.shape),
            _Result(att, att.shape, sum_type(x_src.dtype)),
            _Result(x_src, (num_rows, *x_src.shape[1:])),
        ]

    @staticmethod
    def engine(
        out_dst: Tensor, out_att: Tensor, out_edge: Tensor, grad: Tensor, *scored: Any
    ) -> None:
        x_src, *_, edge, slope = scored
        of_edges = None if edge is None else _array(out_edge)
        given = _scored(*scored[:-1])
        grads = _numbers(grad, x_src.dtype), _array(out_dst), _array(out_att), of_edges
        _core.neighbor_score_backward(*given, slope, *grads)


neighbor_score_backward = _operator(_NeighborScoreBackward)


class _SourceScoreBackward:
    schema = f"source_score_backward(Tensor grad, {_SCORED}) -> Tensor"

    @staticmethod
    def results(grad: Tensor, x_src: Tensor, *rest: Any) -> list[_Result]:
        return [_Result(x_src, x_src.shape)]

    @staticmethod
    def engine(out: Tensor, grad: Tensor, *scored: Any) -> None:
        numbers = _numbers(grad, scored[0].dtype)
        _core.source_score_backward(*_scored(*scored[:-1]), scored[-1], numbers, _array(out))


source_score_backward = _operator(_SourceScoreBackward)


# Extremes -----------------------------------------------------------------------------------------


class _NeighborMax:
    schema = "neighbor_max(Tensor x, Tensor src, Tensor bounds, bool is_min) -> Tensor"

    @staticmethod
    def check(x: Tensor, src: Tensor, bounds: Tensor, is_min: bool) -> None:
        check_sum("x", x, src, bounds, None)

    @staticmethod
    def results(x: Tensor, src: Tensor, bounds: Tensor, is_min: bool) -> list[_Result]:
        return [_Result(x, (bounds.size(0) - 1, *x.shape[1:]))]

    @staticmethod
    def engine(out: Tensor, x: Tensor, src: Tensor, bounds: Tensor, is_min: bool) -> None:
        _core.neighbor_max(_rows(x, 1), *_edges(src, bounds), is_min, _rows(out, 1))

    @staticmethod
    def fallback(x: Tensor, src: Tensor, bounds: Tensor, is_min: bool) -> Tensor:
        num_dst = bounds.size(0) - 1
        if x.size(0) == 0:
            return x.new_zeros((num_dst, *x.shape[1:]))
        src, dst, _ = _ends(src, bounds)
        rows = x.index_select(0, src)
        return scatter(rows, dst, 0, num_dst + 1, "min" if is_min else "max")[:num_dst]

    @staticmethod
    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output, *inputs[:3])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return neighbor_max_backward(grad, *ctx.saved_tensors), None, None, None


neighbor_max = _operator(_NeighborMax)


class _NeighborMaxBackward:
    schema = (
        "neighbor_max_backward(Tensor grad, Tensor made, Tensor x, Tensor src, Tensor bounds) -> "
        "Tensor"
    )

    @staticmethod
    def results(grad: Tensor, made: Tensor, x: Tensor, *rest: Any) -> list[_Result]:
        return [_Result(x, x.shape)]

    @staticmethod
    def engine(
        out: Tensor, grad: Tensor, made: Tensor, x: Tensor, src: Tensor, bounds: Tensor
    ) -> None:
        given = _rows(x, 1), *_edges(src, bounds), _rows(made, 1), _rows(grad, 1)
        _core.neighbor_max_backward(*given, _rows(out, 1))


neighbor_max_backward = _operator(_NeighborMaxBackward)


# Functions of torch, in memory of the engine ------------------------------------------------------


class _Product:
    schema = "product(Tensor x, Tensor weight, Tensor? bias) -> Tensor"

    @staticmethod
    def results(x: Tensor, weight: Tensor, bias: Tensor | None) -> list[_Result]:
        return [_Result(x, (x.size(0), weight.size(0)))]

    @staticmethod
    def engine(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        if bias is None:
            torch.mm(x, weight.t(), out=out)
        else:
            torch.addmm(bias, x, weight.t(), out=out)

    @staticmethod
    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _ = inputs
        needs_x, needs_weight = ctx.needs_input_grad[:2]
        ctx.save_for_backward(x if needs_weight else None, weight if needs_x else None)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return (
            None if weight is None else product(grad, weight.t(), None),
            None if x is None else grad.t() @ x,
            grad.sum(0) if ctx.needs_input_grad[2] else None,
        )


product = _operator(_Product)


class _Relu:
    schema = "relu(Tensor x) -> Tensor"

    @staticmethod
    def engine(out: Tensor, x: Tensor) -> None:
        torch.clamp_min(x, 0, out=out)

    @staticmethod
    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return relu_backward(grad, *ctx.saved_tensors)


relu = _operator(_Relu)


class _ReluBackward:
    schema = "relu_backward(Tensor grad, Tensor made) -> Tensor"

    @staticmethod
    def engine(out: Tensor, grad: Tensor, made: Tensor) -> None:
        torch.ops.aten.threshold_backward.grad_input(grad, made, 0, grad_input=out)

    @staticmethod
    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return relu_backward(grad, *ctx.saved_tensors), None


relu_backward = _operator(_ReluBackward)


class _Dropout:
    schema = "dropout(Tensor x, float p, int key) -> Tensor"

    @staticmethod
    def check(x: Tensor, p: float, key: int) -> None:
        check_dropout(x, p)

    @staticmethod
    def engine(out: Tensor, x: Tensor, p: float, key: int) -> None:
        _core.dropout(_array(x.contiguous().view(-1, 1, 1)), p, key, _array(out.view(-1, 1, 1)))

    @staticmethod
    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.p, ctx.key = inputs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return dropout(grad, ctx.p, ctx.key), None, None


dropout = _operator(_Dropout)
