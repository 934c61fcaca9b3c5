"""How a loader's batches use nodes, found by sampling as it would; no row is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from time import perf_counter

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.ranking import RankedRows
from pyg_graphzero.memory.source import BatchSource
from pyg_graphzero.sampling.base import Prepared, Reading
from pyg_graphzero.sampling.graph import SampledGraph
from pyg_graphzero.store.columns import engine_array

#: Number of epochs that are counted, at most.
EPOCHS = 2.0
#: Seeds that lie together are sampled together in batches of this size.
TOUCH_BATCH = 128
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
# Rows are listed by numbers of 32 bits.
_MOST_LISTED = 1 << 31
# Keys of batches: a trial, counting, and the list of first touches each have their own.
_TRIAL_KEY, _COUNT_KEY, _TOUCH_KEY = 1 << 40, 1 << 41, 1 << 42


@dataclass
class AccessCounts:
    """How many batches asked for each row.

    Attributes:
        counts: By node type: ``int16 [num_nodes]``, the batches that had the row, or the most that
            there can be.
        expanded: By node type: ``int16 [num_nodes]``, the batches that drew neighbours of it.
        num_batches: Number of batches.
        num_nodes: Nodes of all batches together, by node type.
        max_nodes: The most nodes that a batch had, by node type.
        max_inner: The most nodes before the last hop that a batch had, by node type.
        max_edges: The most edges that a batch had, of all types together.
        max_waiting: The most bytes of a batch that waits for rows, without its slots of edges.
        max_slots: The most bytes of a batch's slots of edges.
    """

    counts: dict[str | None, Tensor]
    expanded: dict[str | None, Tensor] = field(default_factory=dict)
    num_batches: int = 0
    num_nodes: dict[str | None, int] = field(default_factory=dict)
    max_nodes: dict[str | None, int] = field(default_factory=dict)
    max_inner: dict[str | None, int] = field(default_factory=dict)
    max_edges: int = 0
    max_waiting: int = 0
    max_slots: int = 0

    @classmethod
    def of(cls, graph: SampledGraph, lists: bool | None = False) -> AccessCounts:
        """Counts of no batch yet; with ``lists``, of expanded nodes too; None: of no node."""
        types = graph.node_types
        counts = {} if lists is None else _zeros(types)
        none = dict.fromkeys(types, 0)
        return cls(counts, _zeros(types) if lists else {}, 0, none, dict(none), dict(none))

    def add(self, batch: _core.Batch) -> None:
        """Counts a batch."""
        hops_of = batch.num_sampled_nodes
        for (name, total), nodes, hops in zip(
            self.num_nodes.items(), batch.nodes, hops_of, strict=True
        ):
            inner = sum(hops[:-1])
            self.num_nodes[name] = total + nodes.numel()
            self.max_nodes[name] = max(self.max_nodes[name], nodes.numel())
            self.max_inner[name] = max(self.max_inner[name], inner)
            if name in self.counts:
                _core.count_rows(engine_array(nodes), engine_array(self.counts[name]))
            if name in self.expanded:
                _core.count_rows(engine_array(nodes[:inner]), engine_array(self.expanded[name]))
        self.max_edges = max(self.max_edges, batch.num_edges)
        ids = [*batch.nodes, *batch.trees, *(end for both in batch.edge_index for end in both)]
        self.max_waiting = max(self.max_waiting, sum(map(_narrow_bytes, ids)))
        self.max_slots = max(self.max_slots, sum(map(_narrow_bytes, batch.slots)))
        self.num_batches += 1

    @property
    def sampling_bytes(self) -> int:
        """Bytes of the largest batch until its ids are narrowed."""
        return costs.NODE * sum(self.max_nodes.values()) + costs.EDGE * self.max_edges


def _zeros(types: dict[str | None, int]) -> dict[str | None, Tensor]:
    return {name: torch.zeros(num, dtype=torch.int16) for name, num in types.items()}


def _narrow_bytes(ids: Tensor) -> int:
    return _core.narrow_bytes(engine_array(ids))


@dataclass
class Usage:
    """How batches use rows.

    Attributes:
        counted: How many batches have each row, and draw neighbours of each node.
        ranked: The rows of each node type as they were met, or in order.
        epochs: How many epochs were counted.
    """

    counted: AccessCounts
    ranked: dict[str | None, RankedRows]
    epochs: float = 1.0

    @classmethod
    def sampled(
        cls,
        source: BatchSource,
        reading: Reading | None,
        *,
        lists: bool,
        seconds: float | None = None,
        each: Callable[[], object] = lambda: None,
    ) -> Usage:
        """By batches that are sampled for it, of two epochs, or for ``seconds``."""
        counted = count_accesses(
            source, epochs=EPOCHS, seconds=seconds, reading=reading, each=each, lists=lists
        )
        epochs = epochs_of(source, counted)
        ranked = number_by_first_touch(source, share=min(1.0, epochs), reading=reading, each=each)
        return cls(counted, ranked, epochs)


class Watch(Usage):
    """Counts an epoch's own batches as they are delivered, and lists rows as they are met.

    Where neighbours are read from disk, to sample more batches would take as long as training.

    Args:
        graph: The graph that the batches are from.
        epoch: How many batches to count.

    Attributes:
        is_done: All batches were counted.
    """

    def __init__(self, graph: SampledGraph, epoch: int) -> None:
        super().__init__(AccessCounts.of(graph, lists=True), _lists(graph))
        self.is_done = False
        self._epoch = epoch
        self._lock = threading.Lock()

    @staticmethod
    def num_bytes(graph: SampledGraph) -> int:
        """Memory that one takes for a graph: two counts, a bit, and at most a number a node."""
        return sum((4 + 4) * num + num // 8 for num in graph.node_types.values())

    def add(self, batch: _core.Batch) -> None:
        """Counts a batch."""
        with self._lock:
            if self.is_done:
                return
            self.counted.add(batch)
            _list_rows(self.ranked, batch)
            self.is_done = self.counted.num_batches >= self._epoch


def count_accesses(
    source: BatchSource,
    *,
    epochs: float = 1.0,
    seconds: float | None = None,
    reading: Reading | None = None,
    each: Callable[[], object] = lambda: None,
    lists: bool = False,
) -> AccessCounts:
    """Samples shuffled batches as a loader would, gathers nothing, and counts which rows they have.

    Args:
        source: The loader.
        epochs: How often to go over its seeds; a part of 1.0 takes that part of them.
        seconds: Stop after that long, however many batches that were (at least one).
        reading: Where it finds neighbours, see ``GraphSampler.recipe``.
        each: Called after each batch.
        lists: Count nodes whose neighbours are drawn, too.

    Raises:
        ValueError: ``epochs`` is not positive.
        IndexError: A seed is not a node.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> from pyg_graphzero.memory.usage import count_accesses
        >>> data = gz.open(example_store).data()
        >>> loader = gz.loader.NeighborLoader(data, [-1], torch.tensor([1, 2]), batch_size=1)
        >>> count_accesses(loader).counts[None].tolist()
        [2, 2, 1, 0]
    """
    begun = perf_counter()
    found = AccessCounts.of(source.graph_sampler.graph, lists)
    positions = _epochs(len(source.dataset), _batch_size(source), epochs)
    for batch in sampled(source, positions, _COUNT_KEY, reading):
        found.add(batch)
        each()
        if seconds is not None and perf_counter() - begun >= seconds:
            break
    return found


def epochs_of(source: BatchSource, found: AccessCounts) -> float:
    """How many epochs the batches are that were counted."""
    return found.num_batches / max(1, -(-len(source.dataset) // _batch_size(source)))


def number_by_first_touch(
    source: BatchSource,
    *,
    share: float = 1.0,
    reading: Reading | None = None,
    each: Callable[[], object] = lambda: None,
) -> dict[str | None, RankedRows]:
    """Samples around a loader's seeds as they lie on disk, and lists rows as they are met.

    Rows that neighbouring seeds reach lie together in this list.

    Args:
        source: The loader.
        share: Share of the seeds that is used, spread over all of them.
        reading: Where it finds neighbours, see :func:`count_accesses`.
        each: Called after each batch.

    Returns:
        The rows of every node type.
    """
    found = _lists(source.graph_sampler.graph)
    at = source.seed_rows()
    pieces = (torch.arange(len(source.dataset)) if at is None else at.argsort()).split(TOUCH_BATCH)
    most = max(1, round(share * len(pieces)))
    some = (pieces[number * len(pieces) // most] for number in range(most))
    for batch in sampled(source, some, _TOUCH_KEY, reading):
        _list_rows(found, batch)
        each()
    return found


def _lists(graph: SampledGraph) -> dict[str | None, RankedRows]:
    """Lists of rows, none of them met yet; those of types with too many nodes are left empty."""
    types = graph.node_types
    return {name: RankedRows(num if num < _MOST_LISTED else 0) for name, num in types.items()}


def _list_rows(lists: dict[str | None, RankedRows], batch: _core.Batch) -> None:
    for rows, nodes in zip(lists.values(), batch.nodes, strict=True):
        if rows.num_rows > 0:
            rows.add(nodes)


def shuffled_batches(
    source: BatchSource,
    most: int,
    reading: Reading | None = None,
    num_threads: int = 1,
) -> Iterator[_core.Batch]:
    """The first batches of a shuffled epoch, always the same ones.

    They are those of any loader that samples in the same way around the same seeds, in whichever
    order these are given. There is none where there are no seeds.

    Args:
        source: The loader.
        most: How many batches.
        reading: Where it finds neighbours, see ``GraphSampler.recipe``.
        num_threads: Threads that sample, each a batch of its own.
    """
    num_seeds = len(source.dataset)
    if num_seeds == 0:
        return
    size, by_node = _batch_size(source), _by_node(source)
    generator = torch.Generator().manual_seed(1)
    if num_seeds <= _SHUFFLED * max(1, most) * size:
        order = torch.randperm(num_seeds, generator=generator)
    else:  # hardly any comes twice
        order = torch.randint(num_seeds, (most * size,), generator=generator)
    positions = (at if by_node is None else by_node[at] for at in order.split(size)[:most])
    yield from sampled(source, positions, _TRIAL_KEY, reading, num_threads)


def sampled(
    source: BatchSource,
    positions: Iterator[Tensor],
    first_key: int,
    reading: Reading | None = None,
    num_threads: int = 0,
) -> Iterator[_core.Batch]:
    """Samples batches around the seeds at these positions, in order, ahead by the engine's threads.

    Args:
        source: The loader.
        positions: Positions of each batch's seeds.
        first_key: Key of the first batch's randomness.
        reading: Where it finds neighbours, see ``GraphSampler.recipe``.
        num_threads: Threads that sample; 0 uses as many as torch does.
    """

    def requests() -> Iterator[tuple[Prepared, int]]:
        for key, index in enumerate(positions, first_key):
            yield source.trial(index, key % 2**64), key % 2**64

    recipe, threads = source.graph_sampler.recipe(None, reading), _core.num_threads(num_threads)
    # Its threads end when it is freed.
    asked, epoch = requests(), _core.Epoch(threads, _AHEAD_BYTES)
    for number in count():
        for prepared, key in islice(asked, number + _AHEAD * threads - epoch.end):
            epoch.add(epoch.end, recipe, prepared.seeds, key, prepared.excluded)
        if epoch.end == number:
            return
        batch = epoch.get(number)
        assert batch is not None  # without a timeout it waits
        yield batch


def _batch_size(source: BatchSource) -> int:
    num_seeds = max(1, len(source.dataset))
    return min(num_seeds, getattr(source, "batch_size", None) or _BATCH_SIZE)


def _by_node(source: BatchSource) -> Tensor | None:
    """Positions of the seeds in the order of their nodes; None: as they are."""
    nodes = source.seed_rows()
    if nodes is None or len(nodes) > _SORTED or bool((nodes[1:] >= nodes[:-1]).all()):
        return None
    return nodes.argsort(stable=True)


def _epochs(num_seeds: int, size: int, epochs: float) -> Iterator[Tensor]:
    """Positions of the seeds of every batch, in a new order each epoch."""
    if not epochs > 0:
        raise ValueError(f"epochs: found {epochs}, expected more than 0")
    generator = torch.Generator().manual_seed(0)
    left = -int(-num_seeds * epochs // 1)
    while left > 0:
        order = torch.randperm(num_seeds, generator=generator)[:left]
        yield from order.split(size)
        left -= order.numel()
