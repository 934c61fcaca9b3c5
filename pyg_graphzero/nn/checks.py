"""Checks of the arguments of :mod:`pyg_graphzero.nn.ops`, on any device."""

from __future__ import annotations

import torch
from torch import Tensor

_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def sum_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which numbers of a type are added up."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _expect(fits: bool, name: str, found: object, expected: str) -> None:
    if fits:
        return
    if isinstance(found, Tensor):
        found = f"{found.dtype} {list(found.shape)}"
    raise ValueError(f"{name}: found {found}, expected {expected}")


def _check_bounds(bounds: Tensor, src: Tensor | None = None) -> int:
    """Checks bounds and sources; returns the number of destinations."""
    for name, value in (("bounds", bounds), ("src", src)):
        fits = value is None or (value.dtype == torch.int64 and value.dim() == 1)
        _expect(fits, name, value, "int64, of one dimension")
    num_dst = bounds.size(0) - 1
    _expect(num_dst >= 0, "bounds", "none", "one more than destinations")
    return num_dst


def _check_numbers(name: str, numbers: Tensor, *others: Tensor | None) -> None:
    """Checks the type of numbers, and the place of all arguments."""
    is_known = numbers.dtype in _TYPES
    _expect(is_known, name, numbers.dtype, "float32, float64, bfloat16 or float16")
    devices = dict.fromkeys(str(each.device) for each in (numbers, *others) if each is not None)
    _expect(len(devices) == 1, name, " and ".join(devices), "all arguments on one device")


def _check_rows(name: str, rows: Tensor, *others: Tensor | None) -> None:
    _check_numbers(name, rows, *others)
    expected = "rows [rows, channels] or [rows, heads, channels]"
    _expect(rows.dim() in (2, 3), name, list(rows.shape), expected)


def check_dropout(x: Tensor, p: float, key: int) -> None:
    """Checks the type of the numbers, and the probability of dropping one."""
    _check_numbers("x", x)
    _expect(0 <= p <= 1, "p", p, "a probability, 0 to 1")


def check_sum(
    x: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None = None, *rest: object
) -> None:
    """Checks arguments of a sum."""
    _check_rows("x", x, src, bounds, weight)
    _check_bounds(bounds, src)
    if weight is not None:
        has_heads = weight.dim() == 2 and x.dim() == 3 and weight.size(1) == x.size(1)
        fits = weight.size(0) == src.size(0) and (weight.dim() == 1 or has_heads)
        expected = "numbers with a fraction, [edges], or [edges, heads] of rows with as many heads"
        expected += f", for {src.size(0)} edges and rows {list(x.shape)}"
        _expect(fits and weight.is_floating_point(), "weight", weight, expected)


def check_dot(q: Tensor, k: Tensor, src: Tensor, bounds: Tensor, mean: bool) -> None:
    """Checks arguments of a product for each edge."""
    _check_rows("k", k, q, src, bounds)
    wanted = [_check_bounds(bounds, src), *k.shape[1:]]
    fits = q.dtype == k.dtype and list(q.shape) == wanted
    _expect(fits, "q", q, f"rows of the destinations, {k.dtype} {wanted}")


def check_scores(scores: Tensor, bounds: Tensor, grad: Tensor | None) -> None:
    """Checks arguments of a softmax."""
    _check_numbers("scores", scores, bounds)
    _expect(scores.dim() in (1, 2), "scores", scores, "[edges] or [edges, heads]")
    _check_bounds(bounds)


def check_score(
    x_src: Tensor, x_dst: Tensor, att: Tensor, src: Tensor, bounds: Tensor, slope: float
) -> None:
    """Checks arguments of a GATv2 score."""
    _check_rows("x_src", x_src, x_dst, att, src, bounds)
    num_dst = _check_bounds(bounds, src)
    _expect(x_src.dim() == 3, "x_src", list(x_src.shape), "rows [sources, heads, channels]")
    wanted = list(x_src.shape[1:])
    fits = x_dst.dtype == x_src.dtype and list(x_dst.shape) == [num_dst, *wanted]
    _expect(fits, "x_dst", x_dst, f"{x_src.dtype} {[num_dst, *wanted]}")
    fits = att.is_floating_point() and list(att.shape) == wanted
    _expect(fits, "att", att, f"{wanted}, numbers with a fraction")
