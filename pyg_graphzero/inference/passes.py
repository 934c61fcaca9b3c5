"""One sweep over all nodes of a type: rows in the order in which they lie on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from pyg_graphzero.inference.normalize import Degrees
from pyg_graphzero.inference.rows import RowFile
from pyg_graphzero.inference.schedule import Convolve, Replay, Sweep, bytes_of
from pyg_graphzero.inference.sweep import SweepLoader, sweep_bounds
from pyg_graphzero.loader.stats import LoaderStats
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.budget import Budget, how_many
from pyg_graphzero.nn.block import Block
from pyg_graphzero.nn.hgt import hgt
from pyg_graphzero.nn.program import Step
from pyg_graphzero.nn.rules import Value
from pyg_graphzero.pyg.data import contents_of, edge_storages, node_storages
from pyg_graphzero.pyg.lazy import raw_items
from pyg_graphzero.sampling.hops import Hops, SampledEdgeIndex, known_no_hops
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.util.system import private_rss

# Batches of which the rows lie in memory, where they are fetched from shards.
_FETCHED = 12
# Rows of a column in the order of the sweep, by its name.
Rows = Callable[[str], Any]


@dataclass(frozen=True)
class Task:
    """One sweep, and where its rows come from.

    Attributes:
        sweep: The sweep.
        columns: The column of each value that it reads.
        modules: The model's modules, by number.
        degrees: Degrees that convolutions normalise by.
        device: Where the model runs.
    """

    sweep: Sweep
    columns: dict[Value, str]
    modules: list[torch.nn.Module]
    degrees: Degrees
    device: torch.device


class Pass:
    """A sweep over all nodes of its type.

    Args:
        task: The sweep.
        contents: The store's files.
        own: Values of which the nodes' own rows are read, in the order of their columns.
        rows: Rows of a column, by its name; None: of the store's files.

    Attributes:
        peak_memory: The most that was taken between two batches; 0: its caller sees it.
    """

    def __init__(
        self, task: Task, contents: StoreContents, own: list[Value], rows: Rows | None = None
    ) -> None:
        self.task = task
        self.peak_memory = 0
        self._contents = contents
        self._replay = Replay(task.sweep)
        if rows is None:
            attrs = contents.node_type(task.sweep.node_type).attrs
            rows = lambda attr: RowFile(contents, attrs[attr])  # noqa: E731
        self._own = {value: rows(task.columns[value]) for value in own}
        self._stats = LoaderStats(num_workers=1)
        self._begun = perf_counter()

    def stats(self) -> LoaderStats:
        """Counts of reads and seconds of waiting until now."""
        return self._stats

    def __iter__(self) -> Iterator[tuple[int, list[Tensor]]]:
        """The first row of each batch, and rows of the sweep's outputs; on the CPU."""
        raise NotImplementedError

    def _read(self, first: int, count: int) -> dict[Value, Tensor]:
        return {v: file.read(first, count).to(self.task.device) for v, file in self._own.items()}

    def _computed(self, first: int, count: int, convolve: Convolve) -> list[Tensor]:
        self._stats.batches += 1
        self._stats.nodes += count
        self._stats.elapsed = perf_counter() - self._begun
        return self._replay(self._read(first, count), count, convolve)


class RowPass(Pass):
    """A sweep without convolutions.

    Args:
        task: The sweep.
        contents: The store's files.
        max_rows: Rows of a batch; None: as many as there is room for.
        own: Number of the rows, and rows of a column; None: all of the store's.
    """

    def __init__(
        self,
        task: Task,
        contents: StoreContents,
        max_rows: int | None = None,
        own: tuple[int, Rows] | None = None,
    ) -> None:
        super().__init__(task, contents, task.sweep.own, None if own is None else own[1])
        self._num_rows = (
            contents.node_type(task.sweep.node_type).num_nodes if own is None else own[0]
        )
        each = 4 * (3 * sum(f.row_bytes for f in self._own.values()) + task.sweep.row_bytes)
        most = costs.MAX_SUMS_ROWS if max_rows is None else max_rows
        budget = Budget(contents.memory, private_rss())
        self._batch = budget.take(costs.SUMS_SHARE, each, 1, most)

    def __iter__(self) -> Iterator[tuple[int, list[Tensor]]]:
        """The first row of each batch, and rows of the sweep's outputs; on the CPU."""
        for first in range(0, self._num_rows, self._batch):
            count = min(self._batch, self._num_rows - first)
            yield first, self._computed(first, count, lambda step, rows: {})


class LayerPass(Pass):
    """A sweep by batches of nodes and their neighbours.

    Args:
        task: The sweep.
        data: ``store.data()``; is cut down to the attributes that the sweep gathers.
        max_edges: Bounds a batch; None: as fits into memory.
        num_workers: Threads of the engine that work ahead.
        own: Nodes to sweep over, and rows of a column; None: all of the store's.

    Attributes:
        loader: Makes the batches.
    """

    def __init__(
        self,
        task: Task,
        data: Any,
        max_edges: int | None = None,
        num_workers: int = 0,
        own: tuple[range | Tensor, Rows] | None = None,
    ) -> None:
        contents = contents_of(data)
        assert contents is not None
        sweep = task.sweep
        nodes, of_column = own or (None, None)
        super().__init__(task, contents, sweep.own, of_column)
        only(data, task)
        if max_edges is None:
            rows: dict[str | None, int] = {}
            for value in sweep.gathered:
                name = value.space.name
                rows[name] = rows.get(name, 0) + bytes_of(value.row)
            room = contents.memory - private_rss()
            if nodes is not None:
                room //= _FETCHED
            max_edges = batch_edges(room, sweep.row_bytes + max(rows.values(), default=0))
        bounds = sweep_bounds(data, sweep.node_type, max_edges, nodes)
        self.loader = SweepLoader(data, sweep.node_type, bounds, num_workers, nodes)

    def stats(self) -> LoaderStats:
        """Counts of reads and seconds of waiting until now."""
        return self.loader.stats()

    def __iter__(self) -> Iterator[tuple[int, list[Tensor]]]:
        """The first row of each batch, and rows of the sweep's outputs; on the CPU."""
        for batch in self.loader:
            yield batch.first_row, self._layer_of(batch, batch.batch_size)

    def _layer_of(self, batch: Any, count: int) -> list[Tensor]:
        task, sweep = self.task, self.task.sweep
        rows = self._read(batch.first_row, count)
        is_hetero = isinstance(batch, HeteroData)
        stores: Any = batch if is_hetero else {None: batch}
        for value in (*sweep.gathered, *sweep.of_edges):
            attr = task.columns[value]
            rows[value] = known_no_hops(stores[value.space.name][attr]).to(task.device)
        none = torch.empty(2, 0, dtype=torch.int64, device=task.device)
        there = batch.edge_types if is_hetero else [None] if "edge_index" in batch else []
        edges = {
            name: known_no_hops(stores[name].edge_index).to(task.device) if name in there else none
            for name in sweep.edge_types
        }
        n_id = {name: stores[name].n_id for name in (batch.node_types if is_hetero else [None])}
        return self._replay(rows, count, Convolving(task, count, n_id, edges))


class Convolving:
    """Computes convolutions of one batch.

    Args:
        task: The sweep.
        count: Number of destinations, which come first among the nodes of their type.
        n_id: Rows of the batch's nodes in the store, by type.
        edges: Edges of the batch by type, by ascending destination.
    """

    def __init__(
        self, task: Task, count: int, n_id: dict[Any, Tensor], edges: dict[Any, Tensor]
    ) -> None:
        self._task = task
        self._count = count
        self._n_id = n_id
        self._nodes: dict[str | None, tuple[int, ...]] = {
            name: (count if name == task.sweep.node_type else 0, len(ids))
            for name, ids in n_id.items()
        }
        self._plain = edges
        hops = Hops(self._nodes, {name: (0, each.size(1)) for name, each in edges.items()})
        self._blocks = {
            name: Block(SampledEdgeIndex.of(each, hops, name), hops, 0)
            for name, each in edges.items()
        }

    def __call__(self, step: Step, rows: dict[Value, Tensor]) -> dict[Value, Tensor]:
        """Rows of a convolution's results."""
        assert isinstance(step.func, int)
        task, plan = self._task, step.about
        conv: Any = task.modules[step.func]
        if "edge_index_dict" in step.call:
            own = [value for value in step.outputs if value.space.name == task.sweep.node_type]
            x = {name: rows[value] for (_, name), value in step.inputs if value in rows}
            made = hgt(conv, x, self._blocks)
            return {value: made[value.space.name] for value in own}
        given = dict(step.call)
        del given["edge_index"]
        x = given.pop("x")
        is_pair = isinstance(x, tuple)
        src, dst = x if is_pair else (x, x)
        for name, value in given.items():
            given[name] = rows[value] if isinstance(value, Value) else value
        block = self._blocks[plan.edge_type]
        if plan.normalises:
            block, given["edge_weight"] = self._weighted(
                conv, plan.edge_type, given.get("edge_weight"), rows[src].dtype
            )
        to = block.destinations(rows[dst])
        out = plan.layer.compute(conv, block.sources(rows[src]), to, block, given, is_pair)
        return {step.outputs[0]: out}

    def _weighted(
        self, conv: Any, name: Any, weight: Tensor | None, dtype: torch.dtype
    ) -> tuple[Block, Tensor]:
        n_id = self._n_id[self._task.sweep.node_type]
        edge_index, values = self._task.degrees.weighted(
            conv, name, self._plain[name], n_id, self._count, weight, dtype
        )
        hops = Hops(self._nodes, {name: (0, edge_index.size(1))})
        return Block(SampledEdgeIndex.of(edge_index, hops, name), hops, 0), values


def only(data: Any, task: Task) -> None:
    """Cuts ``store.data()`` down to the attributes that batches of a sweep need.

    Args:
        data: Is changed.
        task: The sweep.
    """
    sweep = task.sweep
    nodes, edges = node_storages(data), edge_storages(data)
    kept: dict[Any, set[str]] = {name: {"num_nodes", "edge_index"} for name in (*nodes, *edges)}
    for value in (*sweep.gathered, *sweep.of_edges):
        kept[value.space.name].add(task.columns[value])
    for name, store in (nodes | edges).items():
        for key, _ in raw_items(store):
            if key not in kept[name]:
                del store[key]
    if sweep.node_type is None:
        return
    for name in edges:
        if name not in sweep.edge_types:
            del data[name]
    ends = {sweep.node_type, *(name[0] for name in sweep.edge_types if name is not None)}
    for name in nodes:
        if name not in ends:
            del data[name]
    for key in list(data._global_store.keys()):
        del data._global_store[key]


def batch_edges(memory: int, row_bytes: int) -> int:
    """How many edges a batch has where the user does not say: fewer in a small budget."""
    bounds = costs.LEAST_LAYER_EDGES, costs.MAX_LAYER_EDGES
    return how_many(memory, costs.LAYER_SHARE, row_bytes + costs.LAYER_EDGE, *bounds)
