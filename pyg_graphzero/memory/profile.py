"""Profiles of an epoch: batches of a loader are sampled and counted, and no row is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from itertools import count, islice
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.plan import BatchSize
from pyg_graphzero.memory.source import BatchSource
from pyg_graphzero.sampling.base import Reading, Seeds
from pyg_graphzero.sampling.graph import SampledGraph
from pyg_graphzero.store.columns import engine_array
from pyg_graphzero.store.schema import EdgeType

#: Batches are counted for this long, and one batch more.
SECONDS = 3.0
#: Batches that are counted, at most.
MOST_BATCHES = 512
# Seeds of a batch, where the user's own batch sampler decides how many there are.
_BATCH_SIZE = 1024
# Batches asked for ahead, for each thread, and bytes of finished batches that wait.
_AHEAD = 2
_AHEAD_BYTES = 64 << 20
# All seeds are shuffled if they are at most this many times those that are used; else some are
# drawn.
_SHUFFLED = 16
# More seeds than these are taken as they come, not by node: sorting would take too long.
_SORTED = 1 << 22
# Keys of the batches that are kept begin here: they must be other batches than those that are
# counted, and than those that rows were ranked by.
_KEPT_KEY = 1 << 40


@dataclass
class AccessCounts:
    """How many batches asked for each row.

    Attributes:
        counts: By node type: ``int32`` or ``int16 [num_nodes]``, the batches that had the row, or
            the most that there can be.
        num_batches: Number of batches.
        num_nodes: Nodes of all batches together, by node type.
        num_edges: Edges of all batches together, by edge type.
        max_nodes: The most nodes that a batch had, by node type.
        max_inner: The most nodes before the last hop that a batch had, by node type.
        max_edges: The most edges that a batch had, of all types together.
        max_waiting: The most bytes of a batch that waits for rows, without its slots of edges.
        max_slots: The most bytes of a batch's slots of edges.
        seconds: How long counting took.
    """

    counts: dict[str | None, Tensor]
    num_batches: int = 0
    num_nodes: dict[str | None, int] = field(default_factory=dict)
    num_edges: dict[EdgeType | None, int] = field(default_factory=dict)
    max_nodes: dict[str | None, int] = field(default_factory=dict)
    max_inner: dict[str | None, int] = field(default_factory=dict)
    max_edges: int = 0
    max_waiting: int = 0
    max_slots: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, graph: SampledGraph, dtype: torch.dtype | None) -> AccessCounts:
        """Counts of no batch yet; without a ``dtype``, rows are not to be counted."""
        types = graph.node_types
        counts = {} if dtype is None else {n: torch.zeros(k, dtype=dtype) for n, k in types.items()}
        none = dict.fromkeys(types, 0)
        edges = dict.fromkeys(graph.edge_types, 0)
        return cls(counts, 0, none, edges, dict(none), dict(none))

    def add(self, batch: _core.Batch) -> None:
        """Counts a batch."""
        for (name, total), nodes in zip(self.num_nodes.items(), batch.nodes, strict=True):
            self.num_nodes[name] = total + nodes.numel()
            self.max_nodes[name] = max(self.max_nodes[name], nodes.numel())
            if name in self.counts:
                _core.count_rows(engine_array(nodes), engine_array(self.counts[name]))
        for name, hops in zip(self.max_inner, batch.num_sampled_nodes, strict=True):
            self.max_inner[name] = max(self.max_inner[name], sum(hops[:-1]))
        names = list(self.num_edges)
        for number, slots in enumerate(batch.slots):  # of a sampler that walks both ways twice each
            self.num_edges[names[number % len(names)]] += slots.numel()
        self.max_edges = max(self.max_edges, batch.num_edges)
        ids = [*batch.nodes, *batch.trees, *(end for both in batch.edge_index for end in both)]
        self.max_waiting = max(self.max_waiting, sum(map(_narrow_bytes, ids)))
        self.max_slots = max(self.max_slots, sum(map(_narrow_bytes, batch.slots)))
        self.num_batches += 1

    @property
    def nodes_per_batch(self) -> dict[str | None, float]:
        """The mean number of nodes, by node type."""
        return {name: n / max(1, self.num_batches) for name, n in self.num_nodes.items()}

    @property
    def edges_per_batch(self) -> dict[EdgeType | None, float]:
        """The mean number of edges, by edge type."""
        return {name: n / max(1, self.num_batches) for name, n in self.num_edges.items()}

    @property
    def sampling_bytes(self) -> int:
        """Bytes of the largest batch until its ids are narrowed."""
        return costs.NODE * sum(self.max_nodes.values()) + costs.EDGE * self.max_edges

    def hottest(self, node_type: str | None, size: int, group_bits: int = 0) -> Tensor:
        """The rows that most batches had, ascending; of equal ones, the first.

        Args:
            node_type: The node type of the rows.
            size: How many rows.
            group_bits: Instead of rows, groups of ``2**group_bits`` that follow each other.

        Returns:
            ``int64``, ``size`` of them, or fewer where fewer were used.
        """
        counts = self.counts[node_type]
        if group_bits > 0:
            whole = -len(counts) % (1 << group_bits)
            groups = torch.nn.functional.pad(counts, (0, whole)).view(-1, 1 << group_bits)
            counts = groups.sum(1)
        return top_rows(counts, size)

    def batch_size(
        self,
        row_bytes: Mapping[str | None, int],
        inner_bytes: Mapping[str | None, int],
        keeps_slots: bool = True,
    ) -> BatchSize:
        """Size of the largest batch, with some slack.

        Args:
            row_bytes: Bytes of a node's attributes.
            inner_bytes: Further bytes of a node before the last hop.
            keeps_slots: The batch has the slots of its edges, also while it waits.
        """
        nodes = sum(self.max_nodes.values())
        whole = self.sampling_bytes + sum(
            row_bytes[name] * count for name, count in self.max_nodes.items()
        )
        whole += sum(inner_bytes[name] * count for name, count in self.max_inner.items())
        waits = self.max_waiting + keeps_slots * self.max_slots
        inner = sum(self.max_inner.values())
        reading = costs.READ_EDGE * self.max_edges + costs.READ_NODE * inner
        waits, whole, reading = (int(costs.SLACK * size) for size in (waits, whole, reading))
        return BatchSize(waits, whole, nodes, reading)


def _narrow_bytes(ids: Tensor) -> int:
    return _core.narrow_bytes(engine_array(ids))


def top_rows(counts: Tensor, size: int) -> Tensor:
    """The ``size`` rows of the highest counts, fewer if fewer have any (``int64``, ascending).

    The count of the last of them is found by bisection: to sort would take eight bytes a row.
    """
    low, high = 0, int(counts.max()) if counts.numel() else 0
    while low < high:  # the lowest count that at most `size` rows are above of
        middle = (low + high) // 2
        if int((counts > middle).sum()) <= size:
            high = middle
        else:
            low = middle + 1
    chosen = counts > low
    if low > 0:
        ties = (counts == low).nonzero().view(-1)
        chosen[ties[: size - int(chosen.sum())]] = True
    return chosen.nonzero().view(-1)


@dataclass
class Profile:
    """Batches that follow each other in a shuffled epoch.

    Attributes:
        epoch: How many batches a whole epoch has.
        accesses: Counts of the batches that were counted.
        batches: The first batches, which are kept: for each the rows of every node type, then the
            slots of every edge type (left out where nothing is gathered by them), ``int64``.
        nodes: Nodes of the kept batches together.
        edges: Edges of the kept batches together.
        sample: Seconds of sampling the kept batches, summed over threads.
    """

    epoch: int
    accesses: AccessCounts
    batches: list[list[Tensor]] = field(default_factory=list)
    nodes: int = 0
    edges: int = 0
    sample: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether all batches of an epoch are kept."""
        return len(self.batches) == self.epoch

    def first(self, count: int) -> Profile:
        """A profile that keeps at most ``count`` batches."""
        return replace(self, batches=self.batches[:count])


def profile(
    source: BatchSource,
    reading: Reading | None = None,
    *,
    seconds: float = SECONDS,
    most: int = MOST_BATCHES,
    counts: bool = True,
    keep: int = 0,
    keep_seconds: float = 0.0,
    keep_bytes: int = 0,
    keeps_edges: bool = False,
    num_threads: int = 1,
    each: Callable[[], object] = lambda: None,
) -> Profile:
    """Samples the beginning of a shuffled epoch, as the loader would; always the same batches.

    The kept batches are those of any loader that samples in the same way around the same seeds, in
    whichever order these are given.

    Some are kept, to see what would be read for them. Others are counted: rows that were chosen to
    stay in memory by the very batches that are read for would seem better than they are.
    There is one batch at least, if there are seeds. torch's generator is left as it is.

    Args:
        source: The loader.
        reading: Where it finds neighbours, see ``GraphSampler.recipe``.
        seconds: When to stop counting.
        most: Batches to count, at most those of an epoch; 0: count the ones that are kept.
        counts: Count how many batches had each row; else only how large batches are.
        keep: Batches whose rows are kept.
        keep_seconds: No further batch is kept after this time.
        keep_bytes: Most bytes of the kept rows; one batch is kept in any case.
        keeps_edges: Keep slots of edges, too.
        num_threads: Threads that sample, each a batch of its own.
        each: Called after each batch.
    """
    sampler: Any = source.graph_sampler
    num_seeds = len(source.dataset)
    size = min(max(1, num_seeds), getattr(source, "batch_size", None) or _BATCH_SIZE)
    accesses = AccessCounts.of(sampler.graph, torch.int16 if counts else None)
    found = Profile(-(-num_seeds // size), accesses)
    if num_seeds == 0:
        return found
    recipe, counted = sampler.recipe(None, reading), min(most, found.epoch)

    def requests(positions: Iterator[Tensor], first_key: int) -> Iterator[tuple[Seeds, int]]:
        for key, index in enumerate(positions, first_key):
            yield source.trial(index, key).seeds, key

    begun, held, by_node = perf_counter(), 0, _by_node(source)
    kept = _shuffled(num_seeds, size, keep)
    follow = requests(kept if by_node is None else (by_node[at] for at in kept), _KEPT_KEY)
    for batch in sampled_batches(recipe, follow, num_threads, min(_AHEAD_BYTES, keep_bytes)):
        slots = batch.slots[: len(sampler.graph.edge_types)] if keeps_edges else []
        found.batches.append([*batch.nodes, *slots])
        found.nodes += batch.num_nodes
        found.edges += batch.num_edges
        found.sample += batch.sample_seconds
        held += sum(rows.nbytes for rows in found.batches[-1])
        if counted == 0:
            accesses.add(batch)
        each()
        if held > keep_bytes or perf_counter() - begun > keep_seconds:
            break
    begun = perf_counter()
    others = requests(_drawn(num_seeds, size, counted), 0)
    for batch in sampled_batches(recipe, others, num_threads, 1):
        accesses.add(batch)
        each()
        if perf_counter() - begun > seconds:
            break
    return found


def _by_node(source: BatchSource) -> Tensor | None:
    """Positions of the seeds in the order of their nodes; None: as they are."""
    nodes = source.seed_rows()
    if nodes is None or len(nodes) > _SORTED or bool((nodes[1:] >= nodes[:-1]).all()):
        return None
    return nodes.argsort(stable=True)


def _shuffled(num_seeds: int, size: int, count: int) -> Iterator[Tensor]:
    """Positions of the seeds of the first batches of an epoch."""
    generator = torch.Generator().manual_seed(1)
    if num_seeds <= _SHUFFLED * max(1, count) * size:
        order = torch.randperm(num_seeds, generator=generator)
    else:  # hardly any comes twice
        order = torch.randint(num_seeds, (count * size,), generator=generator)
    return iter(order.split(size)[:count])


def _drawn(num_seeds: int, size: int, count: int) -> Iterator[Tensor]:
    """Positions of random seeds, for ``count`` batches."""
    generator = torch.Generator().manual_seed(0)
    return (torch.randint(num_seeds, (size,), generator=generator) for _ in range(count))


def sampled_batches(
    recipe: _core.Recipe, requests: Iterator[tuple[Seeds, int]], num_threads: int, max_bytes: int
) -> Iterator[_core.Batch]:
    """Batches in order, made ahead by threads of the engine.

    Args:
        recipe: How the batches are made.
        requests: The seeds and the key of each batch.
        num_threads: How many threads.
        max_bytes: Most bytes of finished batches that wait.
    """
    epoch = _core.Epoch(num_threads, max_bytes)  # its threads end when it is freed
    for number in count():
        for seeds, key in islice(requests, number + _AHEAD * num_threads - epoch.end):
            epoch.add(epoch.end, recipe, seeds, key)
        if epoch.end == number:
            return
        batch = epoch.get(number)
        assert batch is not None  # without a timeout it waits
        yield batch


def larger(a: BatchSize, b: BatchSize) -> BatchSize:
    """One that is as large as both in every respect."""
    pairs = zip(astuple(a), astuple(b), strict=True)
    return BatchSize(*(max(pair) for pair in pairs))
