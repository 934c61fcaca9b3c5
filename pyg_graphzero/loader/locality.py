"""Shuffling that keeps seeds together that lie together, so that batches share neighbourhoods."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def check_locality(locality: int | None, arguments: dict[str, Any]) -> None:
    """Whether ``locality`` goes with the arguments of a loader's ``DataLoader``.

    Raises:
        ValueError: The loader does not shuffle seeds into batches.
    """
    if locality is None:
        return
    for name in ("sampler", "batch_sampler"):
        if arguments.get(name) is not None:
            raise ValueError(
                f"locality={locality}: found a {name}, which chooses seeds in its own way; "
                "expected shuffle=True alone (in Lightning with use_distributed_sampler=False)"
            )
    if not arguments.get("shuffle") or arguments.get("batch_size", 1) is None:
        raise ValueError(
            f"locality={locality}: found shuffle={arguments.get('shuffle')}, "
            f"batch_size={arguments.get('batch_size', 1)}, expected shuffle=True and a number"
        )


def grouped_order(
    rows: Tensor | None, size: int, group: int, generator: torch.Generator | None
) -> Tensor:
    """All positions, shuffled by groups of neighbours.

    Positions are sorted by row and cut into groups of ``group``, at places that differ from epoch
    to epoch; the groups are shuffled.

    Args:
        rows: ``int64 [size]``, where each seed lies; None: in the order of their positions.
        size: How many seeds there are.
        group: Seeds per group; the first and the last group may be smaller.
        generator: Where randomness comes from; None: torch's own.

    Returns:
        ``int64 [size]``, a permutation.
    """
    if group == 1 or size == 0:
        return torch.randperm(size, generator=generator)
    offset = int(torch.randint(min(group, size), (), generator=generator))
    starts = torch.arange(offset - group if offset else 0, size, group)
    order = torch.randperm(starts.numel(), generator=generator)
    ends = (starts + group).clamp(max=size)[order]
    starts = starts.clamp(min=0)[order]
    lengths = ends - starts
    before = lengths.cumsum(0) - lengths
    places = torch.repeat_interleave(starts - before, lengths) + torch.arange(size)
    if rows is None or bool((rows[1:] >= rows[:-1]).all()):
        return places
    return torch.argsort(rows, stable=True)[places]
