"""The operations of :mod:`pyg_graphzero.nn.ops` as torch's operators: gradients and shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.nn import by_engine, by_torch
from pyg_graphzero.nn.checks import (
    check_dot,
    check_dropout,
    check_score,
    check_scores,
    check_sum,
    sum_type,
)

_LIBRARY = torch.library.Library("pyg_graphzero", "DEF")

# Gradients ----------------------------------------------------------------------------------------


def _keep_for_product(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, _ = inputs
    needs_x, needs_weight = ctx.needs_input_grad[:2]
    ctx.save_for_backward(x if needs_weight else None, weight if needs_x else None)


def _product_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    return (
        None if weight is None else product(grad, weight.t(), None),
        None if x is None else grad.t() @ x,
        grad.sum(0) if ctx.needs_input_grad[2] else None,
    )


def _keep_for_relu(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output)


def _relu_backward(ctx: Any, grad: Tensor) -> Tensor:
    return relu_backward(grad, *ctx.saved_tensors)


def _keep_for_relu_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])


def _relu_backward_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return relu_backward(grad, *ctx.saved_tensors), None


def _keep_for_dropout(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, ctx.p, ctx.key = inputs


def _dropout_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    return dropout(grad, ctx.p, ctx.key), None, None


def _keep_for_sum(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Rows are kept where the gradient of weights is wanted; it alone needs them."""
    rows, src, bounds, weight, ctx.is_mean, *_ = inputs
    ctx.num_rows = rows.size(0)
    kept = rows if ctx.needs_input_grad[3] else None
    ctx.save_for_backward(kept, src, bounds, weight)


def _sum_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, src, bounds, weight = ctx.saved_tensors
    grad_x = grad_weight = None
    if ctx.needs_input_grad[0]:
        grad_x = source_sum(grad, src, bounds, weight, ctx.is_mean, ctx.num_rows)
    if ctx.needs_input_grad[3]:
        grad_weight = _weight_grad(grad, x, src, bounds, weight, ctx.is_mean)
    return grad_x, None, None, grad_weight, None


def _source_sum_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    rows, src, bounds, weight = ctx.saved_tensors
    grad_rows = grad_weight = None
    if ctx.needs_input_grad[0]:
        grad_rows = neighbor_sum(grad, src, bounds, weight, ctx.is_mean)
    if ctx.needs_input_grad[3]:
        grad_weight = _weight_grad(rows, grad, src, bounds, weight, ctx.is_mean)
    return grad_rows, None, None, grad_weight, None, None


def _weight_grad(
    of_dst: Tensor, of_src: Tensor, src: Tensor, bounds: Tensor, weight: Tensor, is_mean: bool
) -> Tensor:
    if weight.dim() == 1:
        of_dst, of_src = of_dst.flatten(1), of_src.flatten(1)
    return edge_dot(of_dst, of_src, src, bounds, is_mean).to(weight.dtype)


def _keep_for_dot(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q, k, src, bounds, ctx.is_mean = inputs
    ctx.num_src = k.size(0)
    needs_q, needs_k = ctx.needs_input_grad[:2]
    ctx.save_for_backward(q if needs_k else None, k if needs_q else None, src, bounds)


def _dot_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    q, k, src, bounds = ctx.saved_tensors
    grad_q = grad_k = None
    if ctx.needs_input_grad[0]:
        grad_q = neighbor_sum(k, src, bounds, grad, ctx.is_mean)
    if ctx.needs_input_grad[1]:
        grad_k = source_sum(q, src, bounds, grad, ctx.is_mean, ctx.num_src)
    return grad_q, grad_k, None, None, None


def _keep_for_softmax(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output, inputs[1])


def _softmax_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    made, bounds = ctx.saved_tensors
    return neighbor_softmax_backward(made, grad, bounds), None


def _keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    pass


def _keep_for_score(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.slope = inputs
    ctx.save_for_backward(*tensors)


def _score_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    inputs = grad, *ctx.saved_tensors, ctx.slope
    att, edge = inputs[3], inputs[6]
    grad_src = grad_dst = grad_att = grad_edge = None
    if ctx.needs_input_grad[0]:
        grad_src = source_score_backward(*inputs)
    if any(ctx.needs_input_grad[i] for i in (1, 2, 5)):
        grad_dst, grad_att, grad_edge = neighbor_score_backward(*inputs)
        grad_att = grad_att.to(att.dtype)
    return grad_src, grad_dst, grad_att, None, None, None if edge is None else grad_edge, None


def _keep_for_max(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output, *inputs[:3])


def _max_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return neighbor_max_backward(grad, *ctx.saved_tensors), None, None, None


def _raise_twice(ctx: Any, *grads: Tensor) -> Any:
    raise RuntimeError(
        "found a gradient of a gradient of neighbor_softmax, neighbor_score, neighbor_max or "
        "neighbor_min, which there is none of. Sums, means and products have one; for the others, "
        "use torch_geometric.utils.softmax and scatter"
    )


# Registration -------------------------------------------------------------------------------------


def _operator(
    schema: str,
    fake: Callable[..., Any],
    keep: Callable[..., None],
    backward: Callable[..., Any],
) -> Any:
    """One operator: the engine's function of that name on the CPU, torch's elsewhere.

    Args:
        schema: Name, arguments and result of the operator.
        fake: Function that checks arguments and makes a result without numbers.
        keep: Function that keeps the tensors that the gradient needs.
        backward: Function that computes the gradient.
    """
    name = schema.split("(")[0]
    full_name = f"{_LIBRARY.ns}::{name}"
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, getattr(by_torch, name), "CompositeExplicitAutograd")
    _LIBRARY.impl(name, getattr(by_engine, name), "CPU")
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
        if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
            return for_transforms.apply(*args)
        return operator(*args)

    return call


def _fake_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty((x.size(0), weight.size(0)))


def _fake_relu(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _fake_relu_backward(grad: Tensor, made: Tensor) -> Tensor:
    return torch.empty_like(made, memory_format=torch.contiguous_format)


def _fake_dropout(x: Tensor, p: float, key: int) -> Tensor:
    check_dropout(x, p)
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _fake_sum(x: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None, mean: bool) -> Tensor:
    num_dst, _ = check_sum("x", x, src, bounds, weight)
    return x.new_empty((num_dst, *x.shape[1:]))


def _fake_source_sum(
    rows: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None, mean: bool, num_src: int
) -> Tensor:
    check_sum("rows", rows, src, bounds, weight)
    return rows.new_empty((num_src, *rows.shape[1:]))


def _fake_dot(q: Tensor, k: Tensor, src: Tensor, bounds: Tensor, mean: bool) -> Tensor:
    check_dot(q, k, src, bounds)
    return k.new_empty((src.size(0), *k.shape[1:-1]))


def _fake_softmax(scores: Tensor, bounds: Tensor) -> Tensor:
    check_scores(scores, bounds)
    return torch.empty_like(scores, memory_format=torch.contiguous_format)


def _fake_softmax_backward(made: Tensor, grad: Tensor, bounds: Tensor) -> Tensor:
    return torch.empty_like(made, memory_format=torch.contiguous_format)


def _fake_score(
    x_src: Tensor,
    x_dst: Tensor,
    att: Tensor,
    src: Tensor,
    bounds: Tensor,
    edge: Tensor | None,
    slope: float,
) -> Tensor:
    check_score(x_src, x_dst, att, src, bounds, edge)
    return x_src.new_empty((src.size(0), x_src.size(1)))


def _fake_score_backward(
    grad: Tensor, x_src: Tensor, x_dst: Tensor, att: Tensor, src: Tensor, bounds: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    num_rows = 0 if rest[0] is None else src.size(0)
    return (
        x_dst.new_empty(x_dst.shape),
        att.new_empty(att.shape, dtype=sum_type(x_src.dtype)),
        x_src.new_empty((num_rows, *x_src.shape[1:])),
    )


def _fake_source_score_backward(grad: Tensor, x_src: Tensor, *rest: Any) -> Tensor:
    return x_src.new_empty(x_src.shape)


def _fake_max(x: Tensor, src: Tensor, bounds: Tensor, is_min: bool) -> Tensor:
    num_dst, _ = check_sum("x", x, src, bounds, None)
    return x.new_empty((num_dst, *x.shape[1:]))


def _fake_max_backward(
    grad: Tensor, made: Tensor, x: Tensor, src: Tensor, bounds: Tensor
) -> Tensor:
    return x.new_empty(x.shape)


_SCORED = (
    "Tensor x_src, Tensor x_dst, Tensor att, Tensor src, Tensor bounds, Tensor? edge, float slope"
)

product = _operator(
    "product(Tensor x, Tensor weight, Tensor? bias) -> Tensor",
    _fake_product,
    _keep_for_product,
    _product_backward,
)
relu = _operator("relu(Tensor x) -> Tensor", _fake_relu, _keep_for_relu, _relu_backward)
relu_backward = _operator(
    "relu_backward(Tensor grad, Tensor made) -> Tensor",
    _fake_relu_backward,
    _keep_for_relu_backward,
    _relu_backward_backward,
)
dropout = _operator(
    "dropout(Tensor x, float p, int key) -> Tensor",
    _fake_dropout,
    _keep_for_dropout,
    _dropout_backward,
)
neighbor_sum = _operator(
    "neighbor_sum(Tensor x, Tensor src, Tensor bounds, Tensor? weight, bool mean) -> Tensor",
    _fake_sum,
    _keep_for_sum,
    _sum_backward,
)
source_sum = _operator(
    "source_sum(Tensor rows, Tensor src, Tensor bounds, Tensor? weight, bool mean, "
    "SymInt num_src) -> Tensor",
    _fake_source_sum,
    _keep_for_sum,
    _source_sum_backward,
)
edge_dot = _operator(
    "edge_dot(Tensor q, Tensor k, Tensor src, Tensor bounds, bool mean) -> Tensor",
    _fake_dot,
    _keep_for_dot,
    _dot_backward,
)
neighbor_softmax = _operator(
    "neighbor_softmax(Tensor scores, Tensor bounds) -> Tensor",
    _fake_softmax,
    _keep_for_softmax,
    _softmax_backward,
)
neighbor_softmax_backward = _operator(
    "neighbor_softmax_backward(Tensor made, Tensor grad, Tensor bounds) -> Tensor",
    _fake_softmax_backward,
    _keep_nothing,
    _raise_twice,
)
neighbor_score = _operator(
    f"neighbor_score({_SCORED}) -> Tensor", _fake_score, _keep_for_score, _score_backward
)
neighbor_score_backward = _operator(
    f"neighbor_score_backward(Tensor grad, {_SCORED}) -> (Tensor, Tensor, Tensor)",
    _fake_score_backward,
    _keep_nothing,
    _raise_twice,
)
source_score_backward = _operator(
    f"source_score_backward(Tensor grad, {_SCORED}) -> Tensor",
    _fake_source_score_backward,
    _keep_nothing,
    _raise_twice,
)
neighbor_max = _operator(
    "neighbor_max(Tensor x, Tensor src, Tensor bounds, bool is_min) -> Tensor",
    _fake_max,
    _keep_for_max,
    _max_backward,
)
neighbor_max_backward = _operator(
    "neighbor_max_backward(Tensor grad, Tensor made, Tensor x, Tensor src, Tensor bounds) -> "
    "Tensor",
    _fake_max_backward,
    _keep_nothing,
    _raise_twice,
)
