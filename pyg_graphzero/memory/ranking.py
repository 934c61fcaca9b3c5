"""Which rows of a graph training will ask for, and the order they should lie in for that.

Found out by sampling the topology, nothing else.

Degrees tell little where seeds are clustered (``docs/out-of-core.md``, "Order"); what the sampler
itself reaches from the seeds at hand is what will be gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.memory.profile import AccessCounts, sampled_batches
from pyg_graphzero.memory.source import BatchSource
from pyg_graphzero.sampling.base import Reading, Seeds
from pyg_graphzero.store.columns import engine_array

#: Number of epochs that are counted.
EPOCHS = 2.0
#: Rows that more batches of these than this use are ordered by how many these are; the others by
#: what they are used with. See benchmarks/ranking.py.
HOT = 4
#: Seeds that lie together are sampled together in batches of this size.
TOUCH_BATCH = 128
# Bytes of batches that wait to be counted.
_AHEAD_BYTES = 64 << 20
# Rows that are looked at by one call where all are.
_PIECE = 1 << 20
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
    found: AccessCounts | None = None,
) -> AccessCounts:
    """Samples shuffled batches as a loader would, gathers nothing, and counts which rows they have.

    Args:
        source: The loader.
        epochs: How often to go over its seeds, with what was counted before; a part of 1.0 takes
            that part of them.
        seconds: Stop after that long, however many batches that were (at least one).
        num_threads: Threads that sample; 0 uses as many as torch does.
        seed: Seed of the shuffle and of sampling; torch's generator is left alone.
        reading: Where it finds neighbours, see ``GraphSampler.recipe``.
        each: Called after each batch.
        found: Earlier counts, to which these are added.

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
    if found is None:
        found = AccessCounts.of(source.graph_sampler.graph, torch.int32)
    elif (epochs := epochs - epochs_of(source, found)) <= 0:
        return found
    positions = _shuffled(len(source.dataset), _batch_size(source), epochs, seed)
    for batch in _sampled(source, positions, 2 * seed + 1, num_threads, reading):
        found.add(batch)
        each()
        if seconds is not None and perf_counter() - begin >= seconds:
            break
    found.seconds = perf_counter() - begin
    return found


class RankedRows:
    """Rows of a node type that are used, in the order in which they should lie.

    Args:
        num_nodes: The type's nodes.

    Attributes:
        used: How many there are.
    """

    def __init__(self, num_nodes: int) -> None:
        self.used = 0
        # Memory that is never written to is not taken.
        self._list = torch.empty(num_nodes, dtype=_dtype(num_nodes))
        self._bits = torch.zeros(-(-num_nodes // 8), dtype=torch.uint8)

    @property
    def order(self) -> Tensor:
        """The rows: ``int32`` or (of more than 2^31 nodes) ``int64 [used]``."""
        return self._list[: self.used]

    def add(self, rows: Tensor) -> None:
        """Puts those of some rows (``int64``) behind the others that are not there yet."""
        arrays = engine_array(rows), engine_array(self._bits), engine_array(self._list)
        self.used = _core.add_rows(*arrays, self.used)

    def rank(self, counts: Tensor, hot: int) -> None:
        """First what is used most, then what is used together.

        Rows that more than ``hot`` batches used come first, by how many these were; equals, and
        then the others, as they were added; then those that are counted and were not.

        Args:
            counts: ``int16`` or ``int32 [num_nodes]``, how many batches used each row.
            hot: Counts above this are told apart.
        """
        for begin in range(0, len(counts), _PIECE):
            self.add(counts[begin : begin + _PIECE].nonzero().view(-1).add_(begin))
        _core.hottest_first(engine_array(counts), engine_array(self.order), hot)


def number_by_first_touch(
    source: BatchSource,
    *,
    size: int = TOUCH_BATCH,
    share: float = 1.0,
    num_threads: int = 0,
    seed: int = 0,
    reading: Reading | None = None,
    each: Callable[[], object] = lambda: None,
) -> dict[str | None, RankedRows]:
    """Samples around a loader's seeds as they lie on disk, and lists rows as they are met.

    Rows that neighbouring seeds reach lie together in this list.

    Args:
        source: The loader.
        size: Seeds per batch.
        share: Share of the seeds that is used, spread over all of them.
        num_threads: Threads that sample; 0 uses as many as torch does.
        seed: Seed of sampling.
        reading: Where it finds neighbours, see :func:`count_accesses`.
        each: Called after each batch.

    Returns:
        The rows of every node type.
    """
    types = source.graph_sampler.graph.node_types
    found = {name: RankedRows(num_nodes) for name, num_nodes in types.items()}
    at = source.seed_rows()
    pieces = (torch.arange(len(source.dataset)) if at is None else at.argsort()).split(size)
    count = max(1, round(share * len(pieces)))
    some = (pieces[number * len(pieces) // count] for number in range(count))
    for batch in _sampled(source, some, 2 * seed + 2, num_threads, reading):
        for rows, nodes in zip(found.values(), batch.nodes, strict=True):
            rows.add(nodes)
        each()
    return found


def rank_rows(
    source: BatchSource,
    counted: AccessCounts,
    *,
    epochs: float = EPOCHS,
    num_threads: int = 0,
    seed: int = 0,
    reading: Reading | None = None,
    each: Callable[[], object] = lambda: None,
) -> dict[str | None, RankedRows]:
    """The order in which rows should lie for a loader's batches.

    Args:
        source: The loader. It is sampled from, and no row is read.
        counted: Which rows batches have.
        epochs: How often each seed was to be sampled from for that. Where it was less, only as many
            seeds are looked at for what lies together.
        num_threads: Threads that sample; 0 uses as many as torch does.
        seed: Seed of sampling.
        reading: Where it finds neighbours, see :func:`count_accesses`.
        each: Called after each batch.

    Returns:
        The rows of each node type.
    """
    share = min(1.0, epochs_of(source, counted) / min(1.0, epochs))
    ranked = number_by_first_touch(
        source, share=share, num_threads=num_threads, seed=seed, reading=reading, each=each
    )
    for name, rows in ranked.items():
        rows.rank(counted.counts[name], hot_above(source, counted))
    return ranked


def hot_above(source: BatchSource, counted: AccessCounts) -> int:
    """Number of counted batches: rows that more batches than these have are hot and come first."""
    return hot_in(epochs_of(source, counted))


def hot_in(epochs: float) -> int:
    """:func:`hot_above` for batches of ``epochs`` epochs."""
    return max(1, round(HOT * epochs / EPOCHS))


def rank_bytes(num_nodes: int, used: int | None = None, hot: int | None = None) -> int:
    """Memory that ranking a type's rows takes, beside their counts.

    Args:
        num_nodes: Its nodes.
        used: How many of them are used; None: at most.
        hot: How many are put first; None: at most.
    """
    used = num_nodes if used is None else used
    return (used + (used if hot is None else hot)) * _dtype(num_nodes).itemsize + num_nodes // 8


def epochs_of(source: BatchSource, found: AccessCounts) -> float:
    """How many epochs the batches are that were counted."""
    return found.num_batches / max(1, -(-len(source.dataset) // _batch_size(source)))


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
