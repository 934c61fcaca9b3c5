"""Windows of time: how much earlier than its seed a neighbour may be; and the seeds' times."""

from __future__ import annotations

from numbers import Real
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.store.edge_order import comparable_times


def check_window(value: Any) -> Any:
    """A window of time: a number; None where nothing is too early; a tensor of one for each seed.

    Raises:
        ValueError: It is none of these, or below 0.
    """
    expected = "a length of time, 0 or more, in the units of time_attr, or a tensor of one a seed"
    shape = getattr(value, "shape", None)
    if shape:
        own = torch.as_tensor(value)
        if own.dim() != 1 or own.dtype == torch.bool or own.is_complex():
            raise ValueError(
                f"time_window: found {own.dtype} of shape {list(own.shape)}, expected {expected}"
            )
        bad = ((own < 0) | own.isnan()).nonzero()
        if bad.numel():
            at = int(bad[0, 0])
            raise ValueError(f"time_window[{at}]: found {own[at].item()}, expected 0 or more")
        return own
    value = value if shape is None else value.item()
    if value is None or (isinstance(value, Real) and value == float("inf")):
        return None
    if not isinstance(value, Real) or isinstance(value, bool) or not float(value) >= 0:
        raise ValueError(f"time_window: found {value!r}, expected {expected}")
    return float(value) if float(value) >= 2.0**63 else value


def check_of_seeds(num_seeds: int, seeds: str = "seeds", **given: Any) -> None:
    """A tensor with values of seeds has a row for each.

    Args:
        num_seeds: How many seeds there are.
        seeds: How to call them in an error.
        given: Tensors, or anything else, by the argument that they were given as.

    Raises:
        ValueError: A tensor has more or fewer rows.
    """
    for what, rows in given.items():
        if isinstance(rows, Tensor) and (found := len(rows) if rows.dim() else 1) != num_seeds:
            raise ValueError(f"{what}: found {found}, expected one for each of {num_seeds} {seeds}")


def seed_times(given: Any, count: int, what: str, as_float: bool, time_attr: str | None) -> Tensor:
    """Comparable times of seeds.

    Args:
        given: A number for each seed.
        count: How many seeds there are.
        what: How to call them in an error.
        as_float: Whether the graph's times are compared as floats.
        time_attr: Name of these.

    Returns:
        ``int64 [count]``; see :func:`~.edge_order.comparable_times`.

    Raises:
        ValueError: There are more or fewer, or fractions where the graph has integers.
    """
    times = torch.as_tensor(given)
    check_of_seeds(count, "seeds", **{what: times.view(-1)})
    if times.dtype.is_floating_point and not as_float:
        raise ValueError(
            f"{what}: found {times.dtype}, expected integers as {time_attr!r} has them"
        )
    return comparable_times(times, what, as_float)


def latest_seen(times: Tensor, strictly: bool) -> Tensor:
    """The latest time that seeds of some comparable times may see."""
    return times.clamp(min=torch.iinfo(torch.int64).min + 1) - 1 if strictly else times
