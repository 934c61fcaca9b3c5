"""Operations over the edges of a sampled batch, without an array of messages.

Edges are grouped by destination: those into destination ``d`` are ``bounds[d]`` to before
``bounds[d + 1]``, and ``src[e]`` is the row of the node that edge ``e`` comes from. Edges before
``bounds[0]`` and from ``bounds[-1]`` on are nobody's: they count nowhere, and what there is one of
for each edge is 0 for them.

- Numbers may be float32, float64, bfloat16 or float16. Sums are taken in float32 (float64 of
  float64) and rounded once, to the type of the rows that went in; weights may have another type.
  ``torch.autocast`` changes nothing here, as it changes nothing of PyG's own messages: what a
  linear layer before has rounded comes in rounded.
- On the CPU the engine does it, and results have the same bits for any number of threads. On other
  devices torch's own functions do it, with an array of messages while they do.
- They work under ``torch.compile``, ``torch.utils.checkpoint``, ``torch.func.grad`` and ``vmap``
  (one after the other); there is no forward-mode derivative (``jvp``). Sums, means and products
  can be differentiated any number of times; softmax raises the second time.
- Bounds or sources that do not fit raise :class:`ValueError` or :class:`IndexError` on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.nn import by_engine, by_torch
from pyg_graphzero.nn.checks import check_dot, check_scores, check_sum

_LIBRARY = torch.library.Library("pyg_graphzero", "DEF")

# What is called -----------------------------------------------------------------------------------


def neighbor_sum(
    x: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None = None, mean: bool = False
) -> Tensor:
    """The sum, or mean, over every destination's in-edges of the sources' rows.

    Args:
        x: Rows of the sources, ``[num_src, channels]`` or ``[num_src, heads, channels]``.
        src: ``[num_edges]``, ``int64``.
        bounds: ``[num_dst + 1]``, ``int64``, ascending.
        weight: What to multiply a row with, ``[num_edges]`` or ``[num_edges, heads]``.
        mean: Whether sums are divided by the number of in-edges.

    Returns:
        ``[num_dst, ...]`` of the type of ``x``; 0 where there are no in-edges.

    Example:
        >>> x = torch.tensor([[1.0], [2.0], [4.0]])
        >>> src, bounds = torch.tensor([0, 2, 1]), torch.tensor([0, 2, 2, 3])
        >>> gz.nn.ops.neighbor_sum(x, src, bounds).tolist()
        [[5.0], [0.0], [2.0]]
    """
    return _neighbor_sum(x, src, bounds, weight, mean)


def neighbor_dot(q: Tensor, k: Tensor, src: Tensor, bounds: Tensor) -> Tensor:
    """The product of every edge's destination's row and its source's.

    Args:
        q: Rows of the destinations, ``[num_dst, channels]`` or ``[num_dst, heads, channels]``.
        k: Rows of the sources, of the same shape and type.
        src: ``[num_edges]``, ``int64``.
        bounds: ``[num_dst + 1]``, ``int64``, ascending.

    Returns:
        ``[num_edges]`` or ``[num_edges, heads]``.
    """
    return _edge_dot(q, k, src, bounds, False)


def neighbor_softmax(scores: Tensor, bounds: Tensor) -> Tensor:
    """Softmax over every destination's in-edges, as :func:`torch_geometric.utils.softmax`.

    Args:
        scores: ``[num_edges]`` or ``[num_edges, heads]``.
        bounds: ``[num_dst + 1]``, ``int64``, ascending.

    Returns:
        As ``scores``.
    """
    return _neighbor_softmax(scores, bounds)


# Gradients ----------------------------------------------------------------------------------------


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
        grad_x = _source_sum(grad, src, bounds, weight, ctx.is_mean, ctx.num_rows)
    if ctx.needs_input_grad[3]:
        grad_weight = _weight_grad(grad, x, src, bounds, weight, ctx.is_mean)
    return grad_x, None, None, grad_weight, None


def _source_sum_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    rows, src, bounds, weight = ctx.saved_tensors
    grad_rows = grad_weight = None
    if ctx.needs_input_grad[0]:
        grad_rows = _neighbor_sum(grad, src, bounds, weight, ctx.is_mean)
    if ctx.needs_input_grad[3]:
        grad_weight = _weight_grad(rows, grad, src, bounds, weight, ctx.is_mean)
    return grad_rows, None, None, grad_weight, None, None


def _weight_grad(
    of_dst: Tensor, of_src: Tensor, src: Tensor, bounds: Tensor, weight: Tensor, is_mean: bool
) -> Tensor:
    if weight.dim() == 1:
        of_dst, of_src = of_dst.flatten(1), of_src.flatten(1)
    return _edge_dot(of_dst, of_src, src, bounds, is_mean).to(weight.dtype)


def _keep_for_dot(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q, k, src, bounds, ctx.is_mean = inputs
    ctx.num_src = k.size(0)
    needs_q, needs_k = ctx.needs_input_grad[:2]
    ctx.save_for_backward(q if needs_k else None, k if needs_q else None, src, bounds)


def _dot_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    q, k, src, bounds = ctx.saved_tensors
    grad_q = grad_k = None
    if ctx.needs_input_grad[0]:
        grad_q = _neighbor_sum(k, src, bounds, grad, ctx.is_mean)
    if ctx.needs_input_grad[1]:
        grad_k = _source_sum(q, src, bounds, grad, ctx.is_mean, ctx.num_src)
    return grad_q, grad_k, None, None, None


def _keep_for_softmax(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output, inputs[1])


def _softmax_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    made, bounds = ctx.saved_tensors
    return _neighbor_softmax_backward(made, grad, bounds), None


def _keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    pass


def _raise_twice(ctx: Any, grad: Tensor) -> Any:
    raise RuntimeError(
        "neighbor_softmax was differentiated twice, which it cannot be. Use "
        "torch_geometric.utils.softmax where gradients of gradients are wanted"
    )


# Registration -------------------------------------------------------------------------------------


def _operator(
    schema: str,
    fake: Callable[..., Tensor],
    keep: Callable[..., None],
    backward: Callable[..., Any],
) -> Any:
    """One operator: the engine's function of that name on the CPU, torch's elsewhere.

    Args:
        schema: Its name, arguments and result.
        fake: Checks arguments and makes a result without numbers.
        keep: Keeps what the gradient needs.
        backward: The gradient.
    """
    name = schema.split("(")[0]
    full_name = f"{_LIBRARY.ns}::{name}"
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, getattr(by_torch, name), "CompositeExplicitAutograd")
    _LIBRARY.impl(name, getattr(by_engine, name), "CPU")
    torch.library.register_fake(full_name, fake, lib=_LIBRARY)
    torch.library.register_autograd(full_name, backward, setup_context=keep, lib=_LIBRARY)
    operator = getattr(getattr(torch.ops, _LIBRARY.ns), name).default

    # torch.func cannot use the gradient that is registered. It asks for a function that keeps what
    # the gradient needs by itself, which takes longer to call.
    def one_by_one(info: Any, in_dims: Sequence[int | None], *args: Any) -> tuple[Tensor, int]:
        made = []
        for i in range(info.batch_size):
            pairs = zip(args, in_dims, strict=True)
            made.append(call(*(arg if dim is None else arg.select(dim, i) for arg, dim in pairs)))
        return torch.stack(made), 0

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


_neighbor_sum = _operator(
    "neighbor_sum(Tensor x, Tensor src, Tensor bounds, Tensor? weight, bool mean) -> Tensor",
    _fake_sum,
    _keep_for_sum,
    _sum_backward,
)
_source_sum = _operator(
    "source_sum(Tensor rows, Tensor src, Tensor bounds, Tensor? weight, bool mean, "
    "SymInt num_src) -> Tensor",
    _fake_source_sum,
    _keep_for_sum,
    _source_sum_backward,
)
_edge_dot = _operator(
    "edge_dot(Tensor q, Tensor k, Tensor src, Tensor bounds, bool mean) -> Tensor",
    _fake_dot,
    _keep_for_dot,
    _dot_backward,
)
_neighbor_softmax = _operator(
    "neighbor_softmax(Tensor scores, Tensor bounds) -> Tensor",
    _fake_softmax,
    _keep_for_softmax,
    _softmax_backward,
)
_neighbor_softmax_backward = _operator(
    "neighbor_softmax_backward(Tensor made, Tensor grad, Tensor bounds) -> Tensor",
    _fake_softmax_backward,
    _keep_nothing,
    _raise_twice,
)
