"""Checks of the arguments of :mod:`pyg_graphzero.nn.ops`, on any device."""

from __future__ import annotations

import torch
from torch import Tensor

_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def sum_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which numbers of a type are added up."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def expect(holds: bool, name: str, found: object, expected: str) -> None:
    """Raises ``ValueError`` where a condition does not hold."""
    if not holds:
        raise ValueError(f"{name}: found {found}, expected {expected}")


def check_edges(bounds: Tensor, *of_edges: tuple[str, Tensor]) -> int:
    """Checks bounds, and arrays with an entry for each edge; returns the number of destinations."""
    for name, value in (("bounds", bounds), *of_edges[:1]):
        if value.dtype != torch.int64 or value.dim() != 1:
            shape = f"{value.dtype} {list(value.shape)}"
            expect(False, name, shape, "int64, of one dimension")
    expect(bounds.size(0) > 0, "bounds", "none", "one more than destinations")
    for name, value in of_edges[1:]:
        if value.size(0) != of_edges[0][1].size(0):
            rows = f"{value.size(0)} rows"
            expect(False, name, rows, f"one for each of the {of_edges[0][1].size(0)} of src")
    return bounds.size(0) - 1


def check_rows(name: str, rows: Tensor, *others: Tensor | None) -> None:
    """Checks the type, shape and place of rows."""
    if rows.dtype not in _TYPES:
        expect(False, name, rows.dtype, "float32, float64, bfloat16 or float16")
    if rows.dim() not in (2, 3):
        found = list(rows.shape)
        expect(False, name, found, "rows [rows, channels] or [rows, heads, channels]")
    for other in others:
        if other is not None and other.device != rows.device:
            devices = f"{rows.device} and {other.device}"
            expect(False, name, devices, "all arguments on one device")


def check_dropout(x: Tensor, p: float) -> None:
    """Checks the type of the numbers, and the probability of dropping one."""
    if x.dtype not in _TYPES:
        expect(False, "x", x.dtype, "float32, float64, bfloat16 or float16")
    expect(0 <= p <= 1, "p", p, "a probability, 0 to 1")


def check_weight(rows: Tensor, weight: Tensor | None) -> int:
    """Checks weights; returns their number of heads."""
    if weight is None or weight.dim() == 1:
        return 1
    if weight.dim() != 2 or rows.dim() != 3 or weight.size(1) != rows.size(1):
        found = f"{list(weight.shape)} for rows {list(rows.shape)}"
        expect(False, "weight", found, "[edges], or [edges, heads] for rows with as many heads")
    return weight.size(1)


def check_sum(
    name: str, rows: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None
) -> tuple[int, int]:
    """Checks arguments of a sum; returns the numbers of destinations and of heads in weights."""
    check_rows(name, rows, src, bounds, weight)
    of_edges = [("src", src)] if weight is None else [("src", src), ("weight", weight)]
    num_dst = check_edges(bounds, *of_edges)
    if weight is not None and not weight.is_floating_point():
        expect(False, "weight", weight.dtype, "numbers with a fraction")
    return num_dst, check_weight(rows, weight)


def check_dot(q: Tensor, k: Tensor, src: Tensor, bounds: Tensor) -> int:
    """Checks arguments of a product for each edge; returns the number of heads."""
    check_rows("k", k, q, src, bounds)
    num_dst = check_edges(bounds, ("src", src))
    if q.dtype != k.dtype or q.shape[1:] != k.shape[1:] or q.size(0) != num_dst:
        found = f"{q.dtype} {list(q.shape)}"
        rest = ", ".join(map(str, k.shape[1:]))
        expect(False, "q", found, f"rows of the destinations, {k.dtype} [{num_dst}, {rest}]")
    return 1 if k.dim() == 2 else k.size(1)


def check_scores(scores: Tensor, bounds: Tensor) -> None:
    """Checks arguments of a softmax."""
    if scores.dtype not in _TYPES or scores.dim() not in (1, 2):
        found = f"{scores.dtype} {list(scores.shape)}"
        expect(False, "scores", found, "numbers with a fraction, [edges] or [edges, heads]")
    if scores.device != bounds.device:
        expect(False, "bounds", bounds.device, f"all arguments on {scores.device}")
    check_edges(bounds)


def check_score(
    x_src: Tensor,
    x_dst: Tensor,
    att: Tensor,
    src: Tensor,
    bounds: Tensor,
    edge: Tensor | None,
) -> None:
    """Checks arguments of a GATv2 score."""
    check_rows("x_src", x_src, x_dst, att, src, bounds, edge)
    num_dst = check_edges(bounds, ("src", src))
    expect(x_src.dim() == 3, "x_src", list(x_src.shape), "rows [sources, heads, channels]")
    heads, channels = x_src.shape[1:]
    wanted = {"x_dst": (x_dst, num_dst), "edge": (edge, src.size(0))}
    for name, (rows, size) in wanted.items():
        if rows is not None and (
            rows.shape != (size, heads, channels) or rows.dtype != x_src.dtype
        ):
            shape = f"{rows.dtype} {list(rows.shape)}"
            expect(False, name, shape, f"{x_src.dtype} [{size}, {heads}, {channels}]")
    if att.shape != (heads, channels) or not att.is_floating_point():
        shape = f"{att.dtype} {list(att.shape)}"
        expect(False, "att", shape, f"[{heads}, {channels}], numbers with a fraction")
