"""Times and weights of edges in the form the engine samples by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero.store.columns import in_memory
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.arguments import of_type

# Weights become integers of at most this many bits beside the heaviest edge of a neighbourhood, so
# that sums are exact; probabilities move by less than 2^-32.
_WEIGHT_BITS = 32


@dataclass
class EdgeOrder:
    """The edges of one type by rank: sorted by time within each neighbourhood, with weights.

    Attributes:
        slots: ``int64 [num_edges]``, the CSC slot of every rank; None where they are equal.
        times: ``int64 [num_edges]`` by rank, rising within a neighbourhood; None without times.
        cumulative: ``int64 [num_edges]`` by rank, running sums of integer weights over the whole
            array (they may wrap; sums within a neighbourhood do not); None without weights.
    """

    slots: Tensor | None = None
    times: Tensor | None = None
    cumulative: Tensor | None = None


def comparable_times(times: Tensor, what: str, as_float: bool) -> Tensor:
    """Times as ``int64`` numbers of the same order.

    Args:
        times: Integers, or floats if ``as_float``.
        what: How to call them in an error.
        as_float: Some times of the graph are fractional, so all are compared as ``float64``.

    Raises:
        ValueError: A time is NaN, or the tensor is not one-dimensional.
        TypeError: The times are not numbers.
    """
    times = times.detach().cpu()
    if times.dim() == 2 and times.size(1) == 1:
        times = times.view(-1)
    if as_float or times.dtype != torch.int64:
        times = in_memory(times)
    if times.dim() != 1:
        raise ValueError(f"{what}: found shape {list(times.shape)}, expected one time each")
    if times.dtype == torch.bool or times.dtype.is_complex:
        raise TypeError(f"{what}: found {times.dtype}, expected integers or floats")
    if not as_float:
        return times.to(torch.int64).contiguous()
    numbers = times.to(torch.float64) + 0.0  # no negative zero
    if numbers.isnan().any():
        at = int(numbers.isnan().nonzero()[0, 0])
        raise ValueError(f"{what}: row {at}: found NaN, expected a time")
    return _ordered_bits(numbers.view(torch.int64))


def earlier(times: Tensor, by: Any, as_float: bool) -> Tensor:
    """Comparable times that are so much earlier.

    Args:
        times: From ``comparable_times``.
        by: A length of time, 0 or more, or one for each.
        as_float: See ``comparable_times``.
    """
    by = torch.tensor(by, dtype=torch.float64) if isinstance(by, float) else torch.as_tensor(by)
    if as_float:
        numbers = _ordered_bits(times).view(torch.float64) - by.to(torch.float64)
        return comparable_times(numbers.where(~by.isinf(), -torch.inf), "times", True)
    unlimited = by >= 2.0**63 if by.is_floating_point() else torch.zeros_like(by, dtype=torch.bool)
    out = times - by.where(~unlimited, 0).floor().to(torch.int64)
    return out.where(~unlimited & (out <= times), torch.iinfo(torch.int64).min)


def _ordered_bits(bits: Tensor) -> Tensor:
    """IEEE numbers compare like their bits, negative ones in reverse; the same again undoes it."""
    return torch.where(bits < 0, bits ^ torch.iinfo(torch.int64).max, bits).contiguous()


def rank_edges(
    indptr: Tensor,
    times: Tensor | None,
    weights: Tensor | None,
    name: EdgeType | None,
    is_sorted: bool = False,
) -> EdgeOrder:
    """Ranks the edges of one type. Costs 8 to 24 bytes an edge, once.

    Args:
        indptr: ``int64 [num_dst + 1]``, known to rise from 0 to the number of edges.
        times: ``int64 [num_edges]`` in CSC order (see ``comparable_times``), or None.
        weights: Real numbers ``[num_edges]`` in CSC order, or None.
        name: The edge type.
        is_sorted: The caller knows that times rise within each neighbourhood.

    Raises:
        ValueError: A weight is negative, infinite or NaN.
    """
    order = EdgeOrder()
    if times is not None and not is_sorted:
        times = in_memory(times)
    if times is not None and not is_sorted and not _rise(indptr, times):
        dst = torch.repeat_interleave(torch.arange(indptr.numel() - 1), indptr.diff())
        order.slots = torch.from_numpy(np.lexsort((times.numpy(), dst.numpy())))
        times = times[order.slots]
    order.times = times
    if weights is not None:
        integers = _integer_weights(indptr, weights, name)
        order.cumulative = (integers if order.slots is None else integers[order.slots]).cumsum(0)
    return order


def _rise(indptr: Tensor, times: Tensor) -> bool:
    falls = times[1:] < times[:-1]
    inner = indptr[1:-1]
    inner = inner[(inner > 0) & (inner < times.numel())]
    falls[inner - 1] = False  # from one neighbourhood to the next
    return not bool(falls.any())


def _integer_weights(indptr: Tensor, weights: Tensor, name: EdgeType | None) -> Tensor:
    weights = in_memory(weights.detach().cpu())
    if weights.dim() == 2 and weights.size(1) == 1:
        weights = weights.view(-1)
    if weights.dim() != 1 or weights.dtype.is_complex:
        raise ValueError(
            f"weights{of_type(name)}: found {weights.dtype} {list(weights.shape)}, expected one "
            "real number per edge"
        )
    numbers = weights.to(torch.float64)
    bad = ~(numbers >= 0) | numbers.isinf()
    if bad.any():
        at = int(bad.nonzero()[0, 0])
        raise ValueError(
            f"weights{of_type(name)}: edge at slot {at}: found {float(numbers[at])}, expected a "
            "finite number of at least 0"
        )
    if numbers.numel() == 0:
        return numbers.to(torch.int64)
    degree = indptr.diff()
    heaviest = torch.zeros(degree.numel(), dtype=torch.float64)
    dst = torch.repeat_interleave(torch.arange(degree.numel()), degree)
    heaviest.scatter_reduce_(0, dst, numbers, "amax")
    scaled = (numbers / heaviest[dst].clamp(min=torch.finfo(torch.float64).tiny)) * 2**_WEIGHT_BITS
    return torch.where(numbers > 0, scaled.round().clamp(min=1), 0).to(torch.int64)
