"""Batches of a loader, sampled to see what training will ask for: the topology only, no rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.memory.measure import Accesses
from pyg_graphzero.memory.source import BatchSource
from pyg_graphzero.store.columns import engine_array, row_table

# Keys of these batches: none of those that are counted before (see measure).
_FIRST_KEY = 1 << 40
# What batches under way may take.
_AHEAD_BYTES = 512 << 20
# Seeds are shuffled, all of them, where they are no more than so many times those that are used.
_SHUFFLED = 16
# The table that a copy is timed with: larger than caches are.
_TIMED_BYTES = 64 << 20
_TIMED_ROWS = 20_000


@dataclass
class Traffic:
    """Batches that follow each other in an epoch.

    Attributes:
        epoch: How many batches a whole one has.
        batches: For each: the rows of every node type, then the slots of every edge type (left
            out where nothing is gathered by them), ``int64``.
        nodes: Of all these batches together.
        edges: Likewise.
        most_edges: Of the batch that has most of them.
        sample: Seconds it took to sample them, summed over threads.
    """

    epoch: int
    batches: list[list[Tensor]] = field(default_factory=list)
    nodes: int = 0
    edges: int = 0
    most_edges: int = 0
    sample: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether these are all batches of an epoch."""
        return len(self.batches) == self.epoch

    def accesses(self, loader: BatchSource) -> Accesses:
        """How often these batches of a loader had each node, and how large they are."""
        types: dict[str | None, int] = loader.graph_sampler.graph.node_types
        found = Accesses.none(types)
        for lists in self.batches:
            found.count(lists[: len(types)])
        found.edges = self.most_edges
        return found


def sample_traffic(
    loader: BatchSource,
    most: int,
    seconds: float,
    max_bytes: int,
    num_threads: int,
    keeps_edges: bool,
) -> Traffic:
    """Samples the beginning of a shuffled epoch.

    torch's generator is left as it is.

    Args:
        loader: Whose seeds and sampler are used.
        most: Batches to sample.
        seconds: When to stop, with one batch at least.
        max_bytes: What the lists of rows may take; at least one batch is kept.
        num_threads: Threads that sample, each a batch of its own.
        keeps_edges: Keep slots of edges, too.
    """
    sampler: Any = loader.graph_sampler
    num_seeds = len(loader.dataset)
    size: int = getattr(loader, "batch_size", None) or 1
    generator = torch.Generator().manual_seed(1)
    if num_seeds <= _SHUFFLED * max(1, most) * size:
        order = torch.randperm(num_seeds, generator=generator)
    else:  # hardly any comes twice
        order = torch.randint(num_seeds, (most * size,), generator=generator)
    traffic = Traffic(-(-num_seeds // size))
    if num_seeds == 0:
        return traffic
    recipe = sampler.recipe()
    positions = iter(order.split(size)[: max(1, most)])
    # Memory of dead batches would be kept for the next ones; these all live on.
    pipeline = _core.Pipeline(max(1, num_threads), min(_AHEAD_BYTES, max_bytes))
    begun = perf_counter()
    held = asked = 0
    try:
        while True:
            while pipeline.num_pending < 2 * max(1, num_threads):
                index = next(positions, None)
                if index is None:
                    break
                prepared = loader.trial(index, _FIRST_KEY + asked)
                pipeline.submit(recipe, prepared.seeds, _FIRST_KEY + asked)
                asked += 1
            if pipeline.num_pending == 0:
                return traffic
            batch = pipeline.next()
            assert batch is not None  # without a timeout it waits
            lists = [*batch.nodes, *batch.slots] if keeps_edges else batch.nodes
            traffic.batches.append(lists)
            traffic.nodes += batch.num_nodes
            traffic.edges += batch.num_edges
            traffic.most_edges = max(traffic.most_edges, batch.num_edges)
            traffic.sample += batch.sample_seconds
            held += sum(rows.nbytes for rows in lists)
            if perf_counter() - begun > seconds or held > max_bytes:
                return traffic
    finally:
        pipeline.close()


def gather_seconds(num_rows: int, row_bytes: int) -> float:
    """What one thread takes to copy one row of so many out of memory into a batch."""
    table = torch.ones(
        (min(num_rows, _TIMED_BYTES // max(1, row_bytes)), row_bytes), dtype=torch.uint8
    )
    rows = row_table(table)
    if rows is None:  # no rows, or rows of no bytes
        return 0.0
    generator = torch.Generator().manual_seed(0)
    index = engine_array(torch.randint(len(table), (_TIMED_ROWS,), generator=generator))
    out = engine_array(torch.empty((_TIMED_ROWS, row_bytes), dtype=torch.uint8))
    took = []
    for _ in range(6):  # the first one makes the memory that is written to
        begun = perf_counter()
        _core.gather_rows(rows, index, out, 1)
        took.append(perf_counter() - begun)
    return min(took) / _TIMED_ROWS  # other work on the machine only slows it down
