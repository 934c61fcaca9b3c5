"""How a loader's batches use nodes, found by sampling as it would; no row is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count, islice
from time import perf_counter

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.memory.ranking import RankedRows
from pyg_graphzero.memory.source import BatchSource
from pyg_graphzero.sampling.base import Prepared, Reading
from pyg_graphzero.sampling.graph import SampledGraph
from pyg_graphzero.store.columns import engine_array

#: Number of epochs that are counted, at most.
EPOCHS = 2
#: Seeds that lie together are sampled together in batches of this size.
TOUCH_BATCH = 128
# Seeds of a batch, where the user's own batch sampler decides how many there are.
_BATCH_SIZE = 1024
# Batches asked for ahead, for each thread or of a window, and bytes of finished ones that wait.
_AHEAD = 2
_AHEAD_BYTES = 64 << 20
# More seeds than these are taken as they come, not by node: sorting would take too long.
_SORTED = 1 << 22
# Keys of batches: a trial, counting, and the list of first touches each have their own.
_TRIAL_KEY, _COUNT_KEY, _TOUCH_KEY = 1 << 40, 1 << 41, 1 << 42


class Usage:
    """How batches use rows.

    Args:
        graph: The graph that the batches are from.
        epoch: How many batches an epoch has.
        lists: Count nodes whose neighbours are drawn, too.

    Attributes:
        counts: By node type: ``int16 [num_nodes]``, the batches that had the row, or the most that
            there can be.
        expanded: By node type: ``int16 [num_nodes]``, the batches that drew neighbours of it; empty
            where that is not counted.
        ranked: The rows of each node type as seeds that lie together met them, then in order; empty
            where that is not known.
        num_batches: Number of batches that were counted.
    """

    def __init__(self, graph: SampledGraph, epoch: int, *, lists: bool) -> None:
        def zeros() -> dict[str | None, Tensor]:
            types = graph.node_types.items()
            return {name: torch.zeros(num, dtype=torch.int16) for name, num in types}

        self.counts = zeros()
        self.expanded = zeros() if lists else {}
        self.ranked: dict[str | None, RankedRows] = {}
        self.num_batches = 0
        self._epoch = max(1, epoch)
        self._lock = threading.Lock()

    @staticmethod
    def num_bytes(graph: SampledGraph) -> int:
        """Memory for a graph's counts, of rows and of nodes whose neighbours are drawn."""
        return sum(2 * 2 * num_nodes for num_nodes in graph.node_types.values())

    @property
    def epochs(self) -> float:
        """How many epochs were counted."""
        return self.num_batches / self._epoch

    @property
    def is_done(self) -> bool:
        """Whether an epoch was counted."""
        return self.num_batches >= self._epoch

    def add(self, batch: _core.Batch) -> None:
        """Counts a batch; from any thread."""
        with self._lock:
            for name, nodes, hops in zip(
                self.counts, batch.nodes, batch.num_sampled_nodes, strict=True
            ):
                _core.count_rows(engine_array(nodes), engine_array(self.counts[name]))
                if name in self.expanded:
                    inner = engine_array(nodes[: sum(hops[:-1])])
                    _core.count_rows(inner, engine_array(self.expanded[name]))
            self.num_batches += 1


def count_accesses(
    source: BatchSource,
    *,
    epochs: int = 1,
    seconds: float | None = None,
    reading: Reading | None = None,
    each: Callable[[], object] = lambda: None,
    lists: bool = False,
) -> Usage:
    """Samples shuffled batches as a loader would, gathers nothing, and counts which rows they have.

    Args:
        source: The loader.
        epochs: How often to go over its seeds.
        seconds: Stop after that long, however many batches that were (at least one).
        reading: Where it finds neighbours, see ``GraphSampler.recipe``.
        each: Called after each batch.
        lists: Count nodes whose neighbours are drawn, too.

    Raises:
        IndexError: A seed is not a node.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> from pyg_graphzero.memory.usage import count_accesses
        >>> data = gz.open(example_store).data()
        >>> loader = gz.loader.NeighborLoader(data, [-1], torch.tensor([1, 2]), batch_size=1)
        >>> count_accesses(loader).counts[None].tolist()
        [2, 2, 1, 0]
    """
    begun, size, num_seeds = perf_counter(), _batch_size(source), len(source.dataset)
    found = Usage(source.graph_sampler.graph, -(-num_seeds // size), lists=lists)
    generator = torch.Generator().manual_seed(0)
    orders = (
        torch.randperm(num_seeds, generator=generator) for _ in range(epochs if num_seeds else 0)
    )
    positions = (index for order in orders for index in order.split(size))
    for batch in sampled(source, positions, _COUNT_KEY, reading):
        found.add(batch)
        each()
        if seconds is not None and perf_counter() - begun >= seconds:
            break
    return found


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
    types = source.graph_sampler.graph.node_types
    found = {name: RankedRows(num_nodes) for name, num_nodes in types.items()}
    at = source.seed_rows()
    pieces = (torch.arange(len(source.dataset)) if at is None else at.argsort()).split(TOUCH_BATCH)
    most = max(1, round(share * len(pieces)))
    some = (pieces[number * len(pieces) // most] for number in range(most))
    for batch in sampled(source, some, _TOUCH_KEY, reading):
        for rows, nodes in zip(found.values(), batch.nodes, strict=True):
            rows.add(nodes)
        each()
    return found


def sampled_uses(
    source: BatchSource,
    reading: Reading | None,
    *,
    lists: bool,
    seconds: float | None = None,
    each: Callable[[], object] = lambda: None,
) -> Usage:
    """How batches use rows, by some that are sampled for it: of two epochs, or for ``seconds``."""
    found = count_accesses(
        source, epochs=EPOCHS, seconds=seconds, reading=reading, each=each, lists=lists
    )
    share = min(1.0, found.epochs)
    found.ranked = number_by_first_touch(source, share=share, reading=reading, each=each)
    return found


def trial_batch(source: BatchSource, reading: Reading | None = None) -> _core.Batch | None:
    """A batch around seeds from all over, always the same one; None where there are no seeds.

    Any loader that samples in the same way around the same seeds, in whichever order these are
    given, has the same one.

    Args:
        source: The loader.
        reading: Where it finds neighbours, see ``GraphSampler.recipe``.
    """
    num_seeds, size = len(source.dataset), _batch_size(source)
    if num_seeds == 0:
        return None
    positions, nodes = torch.arange(size) * num_seeds // size, source.seed_rows()
    if nodes is not None and len(nodes) <= _SORTED:
        positions = nodes.argsort(stable=True)[positions]
    return next(sampled(source, iter([positions]), _TRIAL_KEY, reading))


def sampled(
    source: BatchSource,
    positions: Iterator[Tensor],
    first_key: int,
    reading: Reading | None = None,
) -> Iterator[_core.Batch]:
    """Samples batches around the seeds at these positions, in order, ahead by the engine's threads.

    Args:
        source: The loader.
        positions: Positions of each batch's seeds.
        first_key: Key of the first batch's randomness.
        reading: Where it finds neighbours, see ``GraphSampler.recipe``.
    """

    def requests() -> Iterator[tuple[Prepared, int]]:
        for key, index in enumerate(positions, first_key):
            yield source.trial(index, key % 2**64), key % 2**64

    recipe, threads = source.graph_sampler.recipe(None, reading), _core.num_threads(0)
    together = 1 if reading is None else reading.window[0]
    ahead = _AHEAD * max(threads, together)
    # Its threads end when it is freed.
    asked, epoch = requests(), _core.Epoch(threads, _AHEAD_BYTES)
    for number in count():
        for prepared, key in islice(asked, number + ahead - epoch.end):
            epoch.add(epoch.end, recipe, prepared.seeds, key, prepared.excluded)
        if epoch.end == number:
            return
        batch = epoch.get(number)
        assert batch is not None  # without a timeout it waits
        yield batch


def _batch_size(source: BatchSource) -> int:
    num_seeds = max(1, len(source.dataset))
    return min(num_seeds, getattr(source, "batch_size", None) or _BATCH_SIZE)
