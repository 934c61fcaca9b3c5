"""Windows of time: how much earlier than its seed a neighbour may be; and the seeds' times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.store.edge_order import comparable_times
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.arguments import of_type

#: Stands for a window that each seed brings with it.
PER_SEED = "per seed"


@dataclass(frozen=True)
class Windows:
    """The windows of a sampler.

    Attributes:
        lengths: Lengths that differ; ``PER_SEED`` where each seed has its own.
        rows: By edge type and hop, the number of the window, from 1 on; 0: as early as there is.
    """

    lengths: tuple[Any, ...]
    rows: list[list[int]]


def check_window(value: Any, where: str = "time_window") -> Any:
    """A window as a sampler is given it: a number, a tuple by hop, a dict of these by edge type.

    Args:
        value: The window; None (or infinity) is no window.
        where: How to call it in an error.

    Raises:
        ValueError: It is none of these, or below 0.
    """
    if isinstance(value, Mapping):
        return {name: check_window(own, f"{where}[{name}]") for name, own in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_length(own, f"{where}[{hop}]") for hop, own in enumerate(value))
    return value if value == PER_SEED else _length(value, where)


def _length(value: Any, where: str) -> Any:
    value = value.item() if isinstance(value, Tensor) and value.dim() == 0 else value
    if value is None or (isinstance(value, Real) and value == float("inf")):
        return None
    if not isinstance(value, Real) or isinstance(value, bool) or not float(value) >= 0:
        raise ValueError(
            f"{where}: found {value!r}, expected a length of time, 0 or more, in the units of "
            "time_attr"
        )
    return float(value) if float(value) >= 2.0**63 else value


def split_window(value: Any) -> tuple[Any, Tensor | None]:
    """The sampler's part of a loader's window, and what each seed brings.

    Raises:
        ValueError: A tensor that is no list of lengths of time.
    """
    if not hasattr(value, "shape") or not len(value.shape):
        return value, None
    own = torch.as_tensor(value)
    if own.dim() != 1 or own.dtype == torch.bool or own.is_complex():
        raise ValueError(
            f"time_window: found {own.dtype} of shape {list(own.shape)}, expected a number, a list "
            "by hop, a dict by edge type, or a tensor with a number for each seed"
        )
    if bool((own < 0).any()) or bool(own.isnan().any()):
        at = int(((own < 0) | own.isnan()).nonzero()[0, 0])
        raise ValueError(f"time_window[{at}]: found {own[at].item()}, expected 0 or more")
    return PER_SEED, own


def check_seed_windows(windows: Tensor | None, num_seeds: int) -> None:
    """Seeds need as many windows as there are.

    Raises:
        ValueError: There are more or fewer.
    """
    if windows is not None and windows.numel() != num_seeds:
        raise ValueError(
            f"time_window: found {windows.numel()}, expected one for each of {num_seeds} seeds (a "
            "list, not a tensor, is by hop)"
        )


def windows_of(value: Any, names: list[EdgeType | None], num_hops: int) -> Windows:
    """The windows by edge type and hop.

    Args:
        value: From ``check_window``.
        names: The edge types, in order.
        num_hops: Hops.

    Raises:
        ValueError: An edge type that there is not, or a list of another number of hops.
    """
    if isinstance(value, dict):
        unknown = [name for name in value if name not in names]
        if unknown:
            raise ValueError(f"time_window: found {unknown[0]!r}, expected some of {names}")
    lengths: list[Any] = []

    def row(own: Any) -> int:
        if own is None:
            return 0
        if own not in lengths:
            lengths.append(own)
        return lengths.index(own) + 1

    rows = []
    for name in names:
        own = value.get(name) if isinstance(value, dict) else value
        by_hop = own if isinstance(own, tuple) else (own,) * num_hops
        if len(by_hop) != num_hops:
            raise ValueError(
                f"time_window{of_type(name)}: found {len(by_hop)} lengths, expected {num_hops}, "
                "one a hop"
            )
        rows.append([row(length) for length in by_hop])
    return Windows(tuple(lengths), rows)


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
    if times.numel() != count:
        raise ValueError(f"{what}: found {times.numel()}, expected {count}")
    if times.dtype.is_floating_point and not as_float:
        raise ValueError(
            f"{what}: found {times.dtype}, expected integers as {time_attr!r} has them"
        )
    return comparable_times(times, what, as_float)


def latest_seen(times: Tensor, strictly: bool) -> Tensor:
    """The latest time that seeds of some comparable times may see."""
    return times.clamp(min=torch.iinfo(torch.int64).min + 1) - 1 if strictly else times
