"""Which rows of a graph training will ask for, and the order they should lie in for that.

Found out by sampling the topology, nothing else.

Degrees tell little where seeds are clustered (``docs/out-of-core.md``, "Order"); what the sampler
itself reaches from the seeds at hand is what will be gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.memory.profile import AccessCounts, sampled_batches
from pyg_graphzero.memory.source import BatchSource
from pyg_graphzero.sampling.base import Reading, Seeds
from pyg_graphzero.store.columns import engine_array

#: Rows that more batches of two epochs than this use are ordered by how many these are; the others
#: by what they are used with. See benchmarks/ranking.py.
HOT = 4
#: Seeds that lie together are sampled together in batches of this size.
TOUCH_BATCH = 128
# What batches that wait to be counted may take.
_AHEAD_BYTES = 64 << 20
# Keys of batches are other ones than those of the profile, and than each other's: they begin at
# multiples of this.
_KEYS = 1 << 41


def count_accesses(
    source: BatchSource,
    *,
    epochs: float = 1.0,
    seconds: float | None = None,
    num_threads: int = 0,
    seed: int = 0,
    reading: Reading | None = None,
    each: Callable[[], object] = lambda: None,
) -> AccessCounts:
    """Samples shuffled batches as a loader would, gathers nothing, and counts which rows they have.

    Args:
        source: The loader.
        epochs: How often to go over its seeds; a part of 1.0 takes that part of them.
        seconds: Stop after that long, however many batches that were (at least one).
        num_threads: Threads that sample; 0 uses as many as torch does.
        seed: Of the shuffle and of sampling; torch's generator is left alone.
        reading: Where it finds neighbours, see ``GraphSampler.recipe``.
        each: Called after each batch.

    Raises:
        ValueError: ``epochs`` is not positive.
        IndexError: A seed is not a node.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> from pyg_graphzero.memory.ranking import count_accesses
        >>> data = gz.open(example_store).data()
        >>> loader = gz.loader.NeighborLoader(data, [-1], torch.tensor([1, 2]), batch_size=1)
        >>> count_accesses(loader).counts[None].tolist()
        [2, 2, 1, 0]
    """
    begin = perf_counter()
    found = AccessCounts.of(source.graph_sampler.graph, torch.int32)
    positions = _shuffled(len(source.dataset), _batch_size(source), epochs, seed)
    for batch in _sampled(source, positions, 2 * seed + 1, num_threads, reading):
        found.add(batch)
        each()
        if seconds is not None and perf_counter() - begin >= seconds:
            break
    found.seconds = perf_counter() - begin
    return found


def number_by_first_touch(
    source: BatchSource,
    *,
    size: int = TOUCH_BATCH,
    share: float = 1.0,
    num_threads: int = 0,
    seed: int = 0,
    reading: Reading | None = None,
    each: Callable[[], object] = lambda: None,
) -> dict[str | None, Tensor]:
    """Samples around a loader's seeds as they lie on disk, and numbers rows as they are met.

    What neighbouring seeds reach lies together by these numbers.

    Args:
        source: The loader.
        size: Seeds per batch.
        share: Of the seeds, spread over all of them.
        num_threads: Threads that sample; 0 uses as many as torch does.
        seed: Of sampling.
        reading: As in :func:`count_accesses`.
        each: Called after each batch.

    Returns:
        By node type, ``int32`` or (of more than 2^31 nodes) ``int64 [num_nodes]``; -1: not met.
    """
    places = {
        name: torch.full((num_nodes,), -1, dtype=_dtype(num_nodes))
        for name, num_nodes in source.graph_sampler.graph.node_types.items()
    }
    at = source.seed_rows()
    pieces = (torch.arange(len(source.dataset)) if at is None else at.argsort()).split(size)
    count = max(1, round(share * len(pieces)))
    some = (pieces[number * len(pieces) // count] for number in range(count))
    next_number = dict.fromkeys(places, 0)
    for batch in _sampled(source, some, 2 * seed + 2, num_threads, reading):
        for name, rows in zip(places, batch.nodes, strict=True):
            next_number[name] = _core.number_rows(
                engine_array(rows), engine_array(places[name]), next_number[name]
            )
        each()
    return places


@dataclass
class RankedRows:
    """The rows of a node type as they should lie.

    Attributes:
        counts: ``int32 [num_nodes]``, how many batches had each row.
        order: ``int32`` or ``int64 [num_nodes]``, the old row of every new one.
        used: So many of its first ones are rows that some batch had.
    """

    counts: Tensor
    order: Tensor
    used: int


def rank_rows(
    source: BatchSource,
    *,
    epochs: float = 2.0,
    seconds: float | None = None,
    num_threads: int = 0,
    seed: int = 0,
    reading: Reading | None = None,
    each: Callable[[], object] = lambda: None,
) -> tuple[AccessCounts, Iterator[tuple[str | None, RankedRows]]]:
    """The order in which rows should lie for a loader's batches.

    Args:
        source: The loader. It is sampled from, and no row is read.
        epochs: How often each seed is sampled from for counting.
        seconds: When to stop counting; then only as many seeds are looked at.
        num_threads: Threads that sample; 0 uses as many as torch does.
        seed: Of the sampling.
        reading: As in :func:`count_accesses`.
        each: Called after each batch.

    Returns:
        What was counted, and each node type with its rows: one after the other, because what sorts
        them takes memory. The counts are gone from the former then.

    Raises:
        ValueError: ``epochs`` is not positive.
    """
    how: Any = {"num_threads": num_threads, "seed": seed, "reading": reading, "each": each}
    found = count_accesses(source, epochs=epochs, seconds=seconds, **how)
    done = found.num_batches * _batch_size(source) / max(1, len(source.dataset))
    share = 1.0 if seconds is None else min(1.0, done)
    places = number_by_first_touch(source, share=share, **how)
    hot = max(1, round(HOT * min(epochs, done) / 2))

    def ranked() -> Iterator[tuple[str | None, RankedRows]]:
        for name in list(places):
            counts, order = found.counts.pop(name), places.pop(name)
            used = order_rows(counts, order, hot)
            yield name, RankedRows(counts, order, used)

    return found, ranked()


def rank_bytes(num_nodes: int) -> int:
    """Memory that ranking a type's rows takes: counts; and numbers, or rows in order, twice."""
    return num_nodes * (torch.int32.itemsize + 2 * _dtype(num_nodes).itemsize)


def _batch_size(source: BatchSource) -> int:
    return min(max(1, len(source.dataset)), getattr(source, "batch_size", None) or TOUCH_BATCH)


def _dtype(num_rows: int) -> torch.dtype:
    return torch.int32 if num_rows <= 1 << 31 else torch.int64


def _shuffled(num_seeds: int, size: int, epochs: float, seed: int) -> Iterator[Tensor]:
    """Positions of the seeds of every batch, in a new order each epoch."""
    if not epochs > 0:
        raise ValueError(f"epochs: found {epochs}, expected more than 0")
    generator = torch.Generator().manual_seed(seed)
    left = -int(-num_seeds * epochs // 1)
    while left > 0:
        order = torch.randperm(num_seeds, generator=generator)[:left]
        yield from order.split(size)
        left -= order.numel()


def _sampled(
    source: BatchSource,
    positions: Iterator[Tensor],
    keys: int,
    num_threads: int,
    reading: Reading | None,
) -> Iterator[_core.Batch]:
    """Samples batches around the seeds at these positions, ahead, by the engine's threads."""

    def requests() -> Iterator[tuple[Seeds, int]]:
        for key, index in enumerate(positions, keys * _KEYS):
            yield source.trial(index, key % 2**64).seeds, key % 2**64

    recipe, threads = source.graph_sampler.recipe(None, reading), _core.num_threads(num_threads)
    return sampled_batches(recipe, requests(), threads, _AHEAD_BYTES)


def order_rows(counts: Tensor, places: Tensor, hot: int) -> int:
    """The order in which rows should lie: first what is used most, then what is used together.

    Rows that more than ``hot`` batches used come first, by how many these were; equals, and then
    the other rows that were used, by first touch; then the rest as they lay.

    Args:
        counts: ``int32 [num_nodes]``, how many batches used each row.
        places: ``int32`` or ``int64 [num_nodes]``, from ``number_by_first_touch``; becomes the
            order, the old row of every new one.
        hot: Counts above this are told apart.

    Returns:
        How many rows were used: so many of the first ones.
    """
    return _core.order_rows(engine_array(counts), engine_array(places), hot)
