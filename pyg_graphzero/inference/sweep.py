"""Every node once, in order, with all of its neighbours.

Layer-wise inference computes one layer with it. Batches are runs of rows with a bounded number of
edges, so that the topology is read from front to back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.inference.blocks import Block, Source, plan_sweep
from pyg_graphzero.loader.plan import BatchPlan, Fetched
from pyg_graphzero.loader.stats import LoaderStats
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.needs import Kind, bytes_of_rows, files_of
from pyg_graphzero.memory.prefetch import prefetch_files
from pyg_graphzero.sampling.neighbor import NeighborSampler
from pyg_graphzero.shards.exchange import Wanted
from pyg_graphzero.shards.window import Request, made_alone
from pyg_graphzero.store.columns import engine_array, gather, numbers_of, view_bounds
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.system import private_rss

T = TypeVar("T")

# Number of rows whose bounds are looked at together.
_ROWS_AT_ONCE = 1 << 18
# Number of batches that are made ahead, one after the other.
_AHEAD = 2


@dataclass(eq=False)
class Batches:
    """Batches of consecutive nodes of one type, each with all in-neighbours of its nodes.

    In a batch ``n_id`` begins with the destinations: ``batch_size`` of them, from ``first_row`` on.
    There is no ``e_id``. Where the budget does not hold all rows, they are read by blocks.

    Args:
        data: ``store.data()``, with the attributes that batches shall have. They must be the
            store's own; edge types that end elsewhere cost nothing but their tables.
        node_type: The node type of the rows; None in a homogeneous store.
        nodes: The nodes that rows stand for: all, or a rank's own where the store is in shards.
        bounds: ``int64 [num_batches + 1]``, ascending: batch ``i`` has the rows from
            ``bounds[i]`` to ``bounds[i + 1]``; see :func:`sweep_bounds`.
        num_workers: Threads of the engine inside a batch, two of which are made ahead; 0: each is
            made when it is asked for, by as many threads as torch has.
        stats: Edges, reads, and seconds of waiting and in the engine are added to these.

    Raises:
        MemoryBudgetError: There is no room for two blocks of one batch.

    Example:
        >>> import pyg_graphzero as gz
        >>> store = gz.open(example_store)
        >>> bounds = sweep_bounds(store.contents, [None], range(4), max_edges=4)
        >>> batches = Batches(store.data(), None, range(4), bounds, 0, LoaderStats(num_workers=0))
        >>> [(batch.first_row, batch.batch_size) for batch in batches]
        [(0, 2), (2, 2)]
    """

    data: Any
    node_type: str | None
    nodes: range | Tensor
    bounds: Tensor
    num_workers: int
    stats: LoaderStats
    edge_ids = False

    def __post_init__(self) -> None:
        self.graph_sampler = NeighborSampler(self.data, [-1], num_threads=self.num_workers)
        self._ahead = _AHEAD if self.num_workers else 0
        self._source = self._source_of()

    def _source_of(self) -> Source | None:
        """Reads the rows; None where the store is in memory whole, or in shards."""
        bounds, graph = self.bounds, self.graph_sampler.graph
        contents: Any = graph.contents
        rows = bounds.diff()
        if rows.numel() == 0 or contents.shards is not None:
            return None
        edges = torch.zeros_like(rows)
        for name in graph.edge_types:
            if name is None or name[2] == self.node_type:
                edges += contents.bounds_at(name, bounds).diff()
        nodes, files = rows + edges, files_of(self)  # type: ignore[arg-type]
        out_bytes = max(bytes_of_rows(self.data).values())
        sizes = nodes * out_bytes + edges * costs.EDGE
        flight = int(sizes.topk(min(rows.numel(), 2 + self._ahead)).values.sum())
        stored = max((file.row_bytes for file in files if file.kind is Kind.ROWS), default=0)
        of_edges = sum(file.row_bytes for file in files if file.kind is Kind.EDGES)
        largest = int(nodes.max()) * stored + int(edges.max()) * of_edges
        _core.free_idle_blocks()  # of the last sweep's batches
        room = plan_sweep(contents.memory, private_rss(), files, flight, largest)
        prefetch_files(contents, [file.name for file in files] if room is None else room.held)
        return None if room is None else Source(contents, room, bounds, self.node_type, graph)

    def __iter__(self) -> Iterator[Any]:
        batches = self._of_blocks()
        while True:
            begun = perf_counter()
            batch = next(batches, None)
            self.stats.wait += perf_counter() - begun
            if batch is None:
                return
            yield batch

    def _of_blocks(self) -> Iterator[Any]:
        source, stop = self._source, 0
        plan = BatchPlan(self.data, self.graph_sampler, False, source)
        whole = Block(self.bounds.numel() - 1)
        unread, none = plan.columns, {} if source is None else source.none
        try:
            for block in [whole] if source is None else ahead(source.blocks(), 1):
                self.stats.add_read(block.reads)
                self.stats.topology_bytes += block.topology_bytes
                # A block has no rows of edges that end elsewhere; those stay empty.
                plan.columns = unread.with_loaded([*(none | block.rows).values()])
                first, stop = stop, block.stop
                del block
                yield from self._made(plan, range(first, stop))
                plan.columns = unread
        finally:
            if source is not None:
                source.is_cancelled.set()

    def _run(self, number: int) -> list[int]:
        """The first row of a batch, and one past its last."""
        run: list[int] = self.bounds[number : number + 2].tolist()
        return run

    def _made(self, plan: BatchPlan, numbers: range) -> Iterator[Any]:
        """Makes batches of rows that are in memory."""
        sampler = self.graph_sampler
        shards: Any = plan.shards
        recipe = sampler.recipe(plan.columns)
        dst_type = plan.node_types.index(self.node_type)

        def request(number: int) -> Request:
            rows = engine_array(numbers_of(self.nodes, *self._run(number)))
            return recipe, [(dst_type, rows, None)], number, number, []

        def finished(number: int, made: _core.Batch, fetched: Fetched | None) -> Any:
            batch = plan.assemble(sampler.sample_of(made), made.gathered, None, fetched)
            first, stop = self._run(number)
            batch.first_row, batch.batch_size = first, stop - first
            return made, batch

        def alone() -> Iterator[Any]:
            for number in numbers:
                yield finished(number, made_alone(request(number), sampler.num_threads), None)

        def in_windows() -> Iterator[Any]:
            for part, window in ahead(windows(), 1):
                for place, number in enumerate(part):
                    yield finished(number, window.batch(place), window.rows(place))

        def wanted_of(place: int, made: _core.Batch) -> Wanted:
            return plan.wanted(sampler.sample_of(made))

        def windows() -> Iterator[Any]:
            left = numbers
            while left:
                count = shards.together  # which goes by the largest batch until now
                part, left = left[:count], left[count:]
                requests = [request(number) for number in part]
                yield part, shards.sample(requests, wanted_of, sampler.num_threads)

        batches = alone() if shards is None else in_windows()
        for made, batch in ahead(batches, self._ahead):
            self.stats.sample += made.sample_seconds
            self.stats.gather += made.gather_seconds
            self.stats.edges += made.num_edges
            if self._source is not None:
                self._source.forget(made.num_edges)
            yield batch


def ahead(made: Iterable[T], most: int) -> Iterator[T]:
    """Has a thread make items ahead.

    Args:
        made: Makes the items. An item lives no longer than the caller keeps it.
        most: Number of items that wait, or are made, while the caller uses one; 0: no thread.
    """
    items, none = iter(made), object()
    if most == 0:
        yield from items
        return
    thread = ThreadPoolExecutor(1, "graphzero-sweep")
    waiting: deque[Future[Any]] = deque()
    try:
        while True:
            while len(waiting) <= most:
                waiting.append(thread.submit(next, items, none))
            item = waiting.popleft().result()
            if item is none:
                return
            yield item
            del item
    finally:
        thread.shutdown(cancel_futures=True)


def sweep_bounds(
    contents: StoreContents,
    edge_types: Collection[EdgeType | None],
    nodes: range | Tensor,
    max_edges: int,
) -> Tensor:
    """Cuts nodes of a type into runs with a bounded number of edges.

    Args:
        contents: The store's files.
        edge_types: Types whose edges are counted, all of which end in the node type.
        nodes: The nodes, in order; the rows of a run are places among them.
        max_edges: In-edges and rows of a batch together; a row that has more is a batch alone.

    Returns:
        ``int64 [num_batches + 1]``, 8 bytes a batch; ``[0]`` where there are no rows.
    """
    at_once = max(_ROWS_AT_ONCE, max_edges)
    ends = edge_types if contents.schema.edge_types else []

    def costs_of(first: int, last: int) -> Any:
        """Edges and rows before each of these rows."""
        costs = torch.arange(last - first + 1)
        for name in ends:
            if isinstance(nodes, range):
                costs += contents.bounds(name, nodes.start + first, nodes.start + last)
            else:
                rows = numbers_of(nodes, first, last)
                indptr = view_bounds(contents.topology(name))
                costs[1:] += (gather(indptr, rows + 1) - gather(indptr, rows)).cumsum(0)
        return costs.numpy()

    bounds = [0]
    for first in range(0, len(nodes), at_once):  # where a run ends, too
        costs, at = costs_of(first, min(first + at_once, len(nodes))), 0
        while at < len(costs) - 1:
            # The run ends before the first row whose end is beyond the bound.
            at = max(at + 1, bisect_right(costs, int(costs[at]) + max_edges, at + 1) - 1)
            bounds.append(first + at)
    return torch.tensor(bounds)
