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
from torch_geometric.sampler import NodeSamplerInput

from pyg_graphzero import _core
from pyg_graphzero.memory.profile import AccessCounts, sampled_batches
from pyg_graphzero.sampling.base import GraphSampler, Seeds
from pyg_graphzero.sampling.graph import SampledGraph
from pyg_graphzero.store.columns import engine_array, inverse_permutation

#: Rows that more batches of two epochs than this use are ordered by how many these are; the others
#: by what they are used with. See benchmarks/ranking.py.
HOT = 4
#: Seeds that lie together are sampled together in batches of this size.
TOUCH_BATCH = 128
# What batches that wait to be counted may take.
_AHEAD_BYTES = 64 << 20
# Rows that are looked at by one call where all are.
_PIECE = 1 << 22


def count_accesses(
    sampler: GraphSampler,
    node_type: str | None,
    seeds: Tensor,
    batch_size: int,
    *,
    times: Tensor | None = None,
    seconds: float | None = None,
    epochs: float = 1.0,
    num_threads: int = 0,
    seed: int = 0,
    each: Callable[[], object] = lambda: None,
) -> AccessCounts:
    """Samples shuffled batches, gathers nothing, and counts which rows they have.

    Args:
        sampler: Samples as training will.
        node_type: Of the seeds; None in a homogeneous graph.
        seeds: The nodes that training starts from, ``int64 [num_seeds]``.
        batch_size: Seeds per batch.
        times: The seeds' times, where the sampler needs them.
        seconds: Stop after that long, however many batches that were (at least one).
        epochs: How often to go over the seeds; a part of 1.0 takes that part of them.
        num_threads: Threads that sample; 0 uses as many as torch does.
        seed: Of the shuffle and of sampling; torch's generator is left alone.
        each: Called after each batch.

    Raises:
        ValueError: ``batch_size`` or ``epochs`` is not positive.
        IndexError: A seed is not a node.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> from pyg_graphzero.memory.ranking import count_accesses
        >>> sampler = gz.sampler.NeighborSampler(gz.open(example_store).data(), [-1])
        >>> count_accesses(sampler, None, torch.tensor([1, 2]), 1).counts[None].tolist()
        [2, 2, 1, 0]
    """
    batches = shuffled(seeds, batch_size, epochs, seed)
    made = sampled(sampler, node_type, seeds, batches, times, num_threads, seed)
    return count_rows_of(sampler.graph, made, seconds, each)


def count_rows_of(
    graph: SampledGraph,
    batches: Iterator[_core.Batch],
    seconds: float | None = None,
    each: Callable[[], object] = lambda: None,
) -> AccessCounts:
    """Counts which rows batches have, whoever samples them; see :func:`count_accesses`."""
    begin = perf_counter()
    found = AccessCounts.of(graph, torch.int32)
    for batch in batches:
        found.add(batch)
        each()
        if seconds is not None and perf_counter() - begin >= seconds:
            break
    found.seconds = perf_counter() - begin
    return found


def shuffled(seeds: Tensor, batch_size: int, epochs: float, seed: int) -> Iterator[Tensor]:
    """Positions of the seeds of every batch, in a new order each epoch.

    Raises:
        ValueError: ``batch_size`` or ``epochs`` is not positive.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size: found {batch_size}, expected at least 1")
    if not epochs > 0:
        raise ValueError(f"epochs: found {epochs}, expected more than 0")
    generator = torch.Generator().manual_seed(seed)
    left = -int(-seeds.numel() * epochs // 1)
    while left > 0:
        order = torch.randperm(seeds.numel(), generator=generator)[:left]
        yield from order.split(batch_size)
        left -= order.numel()


def sampled(
    sampler: GraphSampler,
    node_type: str | None,
    seeds: Tensor,
    batches: Iterator[Tensor],
    times: Tensor | None = None,
    num_threads: int = 0,
    seed: int = 0,
) -> Iterator[_core.Batch]:
    """Samples batches, made ahead by the engine's threads.

    Args:
        sampler: Samples.
        node_type: Of the seeds.
        seeds: ``int64 [num_seeds]``.
        batches: Positions of the seeds of each batch.
        times: The seeds' times, where the sampler needs them.
        num_threads: 0 uses as many as torch does.
        seed: Of sampling.
    """

    def requests() -> Iterator[tuple[Seeds, int]]:
        for number, index in enumerate(batches):
            of_seeds = None if times is None else times[index]
            inputs = NodeSamplerInput(index, seeds[index], of_seeds, node_type)
            yield sampler.prepare_nodes(inputs).seeds, (seed + number) % 2**64

    threads = _core.num_threads(num_threads)
    return sampled_batches(sampler.recipe(), requests(), threads, _AHEAD_BYTES)


def number_by_first_touch(
    sampler: GraphSampler,
    node_type: str | None,
    seeds: Tensor,
    batch_size: int,
    places: dict[str | None, Tensor],
    *,
    times: Tensor | None = None,
    num_threads: int = 0,
    seed: int = 0,
    each: Callable[[], object] = lambda: None,
) -> None:
    """Samples around the seeds in their order, and numbers rows as they are met.

    What neighbouring seeds reach lies together by these numbers.

    Args:
        sampler: Samples as training will.
        node_type: Of the seeds.
        seeds: ``int64 [num_seeds]``.
        batch_size: Seeds per batch.
        places: By node type, ``int32`` or ``int64 [num_nodes]`` full of -1, to be filled in.
        times: The seeds' times, where the sampler needs them.
        num_threads: 0 uses as many as torch does.
        seed: Of sampling.
        each: Called after each batch.
    """
    batches = iter(torch.arange(seeds.numel()).split(batch_size))
    made = sampled(sampler, node_type, seeds, batches, times, num_threads, seed)
    number_rows_of(made, places, each)


def number_rows_of(
    batches: Iterator[_core.Batch],
    places: dict[str | None, Tensor],
    each: Callable[[], object] = lambda: None,
) -> None:
    """Numbers rows as batches have them; see :func:`number_by_first_touch`."""
    next_number = dict.fromkeys(places, 0)
    for batch in batches:
        for name, rows in zip(places, batch.nodes, strict=True):
            next_number[name] = _core.number_rows(
                engine_array(rows), engine_array(places[name]), next_number[name]
            )
        each()


def order_rows(counts: Tensor, places: Tensor, hot: int) -> Tensor:
    """The order in which rows should lie: first what is used most, then what is used together.

    Rows that more than ``hot`` batches used come first, by how many these were; equals, and then
    the other rows that were used, by first touch; then the rest as they lay.

    Args:
        counts: ``int32 [num_nodes]``, how many batches used each row.
        places: ``int32`` or ``int64 [num_nodes]``, from ``number_by_first_touch``; filled up here.
        hot: Counts above this are told apart.

    Returns:
        The old row of every new one, of the dtype of ``places``.
    """
    num_rows, pieces = counts.numel(), range(0, counts.numel(), _PIECE)
    number = int(places.max()) + 1 if num_rows else 0
    # Used, but not met when first touches were noted; then everything else.
    for is_used in (True, False):
        for begin in pieces:
            rows = torch.arange(begin, min(begin + _PIECE, num_rows))
            if is_used:
                rows = rows[counts[begin : begin + _PIECE] > 0]
            number = _core.number_rows(engine_array(rows), engine_array(places), number)
    order = inverse_permutation(places)
    by_touch = torch.empty_like(counts)
    for begin in pieces:
        piece = order[begin : begin + _PIECE].to(torch.int64)
        by_touch[begin : begin + _PIECE] = counts[piece]
    is_hot = by_touch > hot
    by_count = by_touch[is_hot].sort(descending=True, stable=True).indices
    first = order[is_hot][by_count]
    del by_count
    rest = order[~is_hot]
    order[: first.numel()] = first
    order[first.numel() :] = rest
    return order
