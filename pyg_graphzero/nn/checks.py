"""Checks of the arguments of :mod:`pyg_graphzero.nn.ops`, on any device."""

from __future__ import annotations

from typing import NoReturn

import torch
from torch import Tensor

_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def sum_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which numbers of a type are added up."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _refuse(name: str, found: object, expected: str) -> NoReturn:
    if isinstance(found, Tensor):
        found = f"{found.dtype} {list(found.shape)}"
    raise ValueError(f"{name}: found {found}, expected {expected}")


def check_edges(bounds: Tensor, src: Tensor | None = None) -> int:
    """Checks bounds and sources; returns the number of destinations."""
    for name, value in (("bounds", bounds), ("src", src)):
        if value is not None and (value.dtype != torch.int64 or value.dim() != 1):
            _refuse(name, value, "int64, of one dimension")
    if bounds.size(0) == 0:
        _refuse("bounds", "none", "one more than destinations")
    return bounds.size(0) - 1


def check_numbers(name: str, numbers: Tensor, *others: Tensor | None) -> None:
    """Checks the type of numbers, and the place of all arguments."""
    if numbers.dtype not in _TYPES:
        _refuse(name, numbers.dtype, "float32, float64, bfloat16 or float16")
    for other in others:
        if other is not None and other.device != numbers.device:
            devices = f"{numbers.device} and {other.device}"
            _refuse(name, devices, "all arguments on one device")


def _check_rows(name: str, rows: Tensor, *others: Tensor | None) -> None:
    check_numbers(name, rows, *others)
    if rows.dim() not in (2, 3):
        found = list(rows.shape)
        _refuse(name, found, "rows [rows, channels] or [rows, heads, channels]")


def check_dropout(x: Tensor, p: float, key: int) -> None:
    """Checks the type of the numbers, and the probability of dropping one."""
    check_numbers("x", x)
    if not 0 <= p <= 1:
        _refuse("p", p, "a probability, 0 to 1")


def check_sum(
    x: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None = None, *rest: object
) -> None:
    """Checks arguments of a sum."""
    _check_rows("x", x, src, bounds, weight)
    check_edges(bounds, src)
    if weight is None:
        return
    if weight.size(0) != src.size(0):
        rows = f"{weight.size(0)} rows"
        _refuse("weight", rows, f"one for each of the {src.size(0)} of src")
    if not weight.is_floating_point():
        _refuse("weight", weight.dtype, "numbers with a fraction")
    has_heads = weight.dim() == 2 and x.dim() == 3 and weight.size(1) == x.size(1)
    if weight.dim() != 1 and not has_heads:
        found = f"{list(weight.shape)} for rows {list(x.shape)}"
        _refuse("weight", found, "[edges], or [edges, heads] for rows with as many heads")


def check_dot(q: Tensor, k: Tensor, src: Tensor, bounds: Tensor, mean: bool) -> None:
    """Checks arguments of a product for each edge."""
    _check_rows("k", k, q, src, bounds)
    num_dst = check_edges(bounds, src)
    if q.dtype != k.dtype or q.shape[1:] != k.shape[1:] or q.size(0) != num_dst:
        rest = ", ".join(map(str, k.shape[1:]))
        _refuse("q", q, f"rows of the destinations, {k.dtype} [{num_dst}, {rest}]")


def check_scores(scores: Tensor, bounds: Tensor, grad: Tensor | None) -> None:
    """Checks arguments of a softmax."""
    check_numbers("scores", scores, bounds)
    if scores.dim() not in (1, 2):
        _refuse("scores", scores, "[edges] or [edges, heads]")
    check_edges(bounds)


def check_score(
    x_src: Tensor, x_dst: Tensor, att: Tensor, src: Tensor, bounds: Tensor, slope: float
) -> None:
    """Checks arguments of a GATv2 score."""
    _check_rows("x_src", x_src, x_dst, att, src, bounds)
    num_dst = check_edges(bounds, src)
    if x_src.dim() != 3:
        _refuse("x_src", list(x_src.shape), "rows [sources, heads, channels]")
    heads, channels = x_src.shape[1:]
    if x_dst.shape != (num_dst, heads, channels) or x_dst.dtype != x_src.dtype:
        _refuse("x_dst", x_dst, f"{x_src.dtype} [{num_dst}, {heads}, {channels}]")
    if att.shape != (heads, channels) or not att.is_floating_point():
        _refuse("att", att, f"[{heads}, {channels}], numbers with a fraction")
