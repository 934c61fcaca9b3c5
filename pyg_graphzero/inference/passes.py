"""One sweep over all nodes of a type: rows in the order in which they lie on disk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_graphzero.inference.normalize import RootsOf
from pyg_graphzero.inference.schedule import Convolve, Replay, Sweep, bytes_of
from pyg_graphzero.inference.sweep import SweepLoader, runs_of
from pyg_graphzero.loader.stats import LoaderStats
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.budget import Budget, how_many
from pyg_graphzero.nn.block import Block
from pyg_graphzero.nn.convs import computed
from pyg_graphzero.nn.degrees import Rule
from pyg_graphzero.nn.program import Step
from pyg_graphzero.nn.rules import Value
from pyg_graphzero.nn.small import map_leaves
from pyg_graphzero.pyg.data import edge_storages, node_storages, open_data
from pyg_graphzero.pyg.lazy import raw_items
from pyg_graphzero.sampling.hops import Hops, SampledEdgeIndex, known_no_hops
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.opened import RowFile
from pyg_graphzero.store.rows import Rows
from pyg_graphzero.util.system import private_rss

# First row of a part of a sweep, its number of rows, gathered rows, and its convolutions.
Part = tuple[int, int, dict[Value, Tensor], Convolve]

# Batches of which the rows lie in memory, where they are fetched from shards.
_FETCHED = 12


class Own(NamedTuple):
    """Nodes to sweep over, of those that a store has.

    Attributes:
        nodes: Their numbers.
        rows_of: Gives rows of a column, by its name, in the order of the nodes.
    """

    nodes: range | Tensor
    rows_of: Callable[[str], Rows]


@dataclass(frozen=True)
class Task:
    """One sweep, and where its rows come from.

    Attributes:
        sweep: The sweep.
        columns: The column of each value that it reads.
        modules: The model's modules, by number.
        roots_of: Roots of the degrees that convolutions normalise by.
        device: Where the model runs.
    """

    sweep: Sweep
    columns: dict[Value, str]
    modules: list[torch.nn.Module]
    roots_of: RootsOf
    device: torch.device


class Pass(ABC):
    """A sweep over all nodes of its type, by parts: each of some nodes that follow one another.

    Args:
        task: The sweep.
        contents: The store's files.
        values: Values of which the nodes' own rows are read, in the order of their columns.
        own: Nodes to sweep over, and rows of a column by its name; None: all of the store's.

    Attributes:
        nodes: The nodes.
        num_rows: Number of the nodes.
        peak_memory: The most that was taken between two parts; 0: its caller sees it.
        stats: Counts of reads and seconds of waiting until now.
    """

    nodes: range | Tensor

    def __init__(
        self, task: Task, contents: StoreContents, values: list[Value], own: Own | None = None
    ) -> None:
        record = contents.node_type(task.sweep.node_type)
        self.nodes, rows_of = own or (
            range(record.num_nodes), lambda attr: RowFile(contents, record.attrs[attr])
        )  # fmt: skip
        self.task = task
        self.num_rows = len(self.nodes)
        self.peak_memory = 0
        self._contents = contents
        self._replay = Replay(task.sweep)
        self._own = {value: rows_of(task.columns[value]) for value in values}
        self.stats = LoaderStats(num_workers=1)

    def __iter__(self) -> Iterator[tuple[int, list[Tensor]]]:
        """The first row of each part, and rows of the sweep's outputs; on the CPU."""
        begun = perf_counter()
        for first, count, rows, convolve in self._parts():
            for value, file in self._own.items():
                rows[value] = file.read(first, first + count).to(self.task.device)
            self.stats.elapsed = perf_counter() - begun
            made = self._replay(rows, count, convolve)
            del rows, convolve
            yield first, made

    @abstractmethod
    def _parts(self) -> Iterator[Part]:
        """The parts."""


class RowPass(Pass):
    """A sweep without convolutions.

    Args:
        task: The sweep.
        contents: The store's files.
        max_rows: Rows of a part; None: as many as there is room for.
        own: See :class:`Pass`.
    """

    def __init__(
        self, task: Task, contents: StoreContents, max_rows: int | None, own: Own | None = None
    ) -> None:
        super().__init__(task, contents, task.sweep.own, own)
        each = 4 * (3 * sum(f.row_bytes for f in self._own.values()) + task.sweep.row_bytes)
        most = costs.MAX_SUMS_ROWS if max_rows is None else max_rows
        budget = Budget(contents.memory, private_rss())
        self._part_rows = budget.take(costs.SUMS_SHARE, each, 1, most)

    def _parts(self) -> Iterator[Part]:
        for first in range(0, self.num_rows, self._part_rows):
            yield first, min(self._part_rows, self.num_rows - first), {}, lambda step, rows: {}


class LayerPass(Pass):
    """A sweep by batches of nodes and their neighbours.

    Args:
        task: The sweep.
        contents: The store's files.
        max_edges: Bounds a batch; None: as fits into memory.
        num_workers: See :class:`~.sweep.SweepLoader`.
        own: See :class:`Pass`.
    """

    def __init__(
        self, task: Task, contents: StoreContents, max_edges: int | None, num_workers: int,
        own: Own | None = None,
    ) -> None:  # fmt: skip
        sweep = task.sweep
        super().__init__(task, contents, sweep.own, own)
        data = only(open_data(contents), task)
        if max_edges is None:
            row_bytes = Counter({sweep.node_type: 0})
            for value in sweep.gathered:
                row_bytes[value.space.name] += bytes_of(value.row)
            room = contents.memory - private_rss()
            max_edges = how_many(
                room if own is None else room // _FETCHED,
                costs.LAYER_SHARE,
                sweep.row_bytes + max(row_bytes.values()) + costs.LAYER_EDGE,
                costs.LEAST_LAYER_EDGES,
                costs.MAX_LAYER_EDGES,
            )
        runs = runs_of(contents, sweep.edge_types, self.nodes, max_edges)
        self._loader = SweepLoader(data, sweep.node_type, self.nodes, runs, num_workers)

    def _parts(self) -> Iterator[Part]:
        batches = iter(self._loader)
        self.stats = self._loader.stats()
        return map(self._part, batches)

    def _part(self, batch: Any) -> Part:
        task, sweep, count = self.task, self.task.sweep, batch.batch_size
        nodes, there = node_storages(batch), edge_storages(batch)
        stores = nodes | there
        rows = {
            value: stores[value.space.name][task.columns[value]].to(task.device)
            for value in (*sweep.gathered, *sweep.of_edges)
        }
        none = torch.empty(2, 0, dtype=torch.int64, device=task.device)
        edges = {
            name: known_no_hops(there.get(name, {}).get("edge_index", none)).to(task.device)
            for name in sweep.edge_types
        }
        n_id = {name: store.n_id for name, store in nodes.items()}
        return batch.first_row, count, rows, Convolving(task, count, n_id, edges)


class Convolving:
    """Computes convolutions of one batch.

    Args:
        task: The sweep.
        count: Number of destinations, which come first among the nodes of their type.
        n_id: Rows of the batch's nodes in the store, by type.
        edges: Edges of the batch by type, by ascending destination.
    """

    def __init__(
        self, task: Task, count: int, n_id: dict[Any, Any], edges: dict[Any, Tensor]
    ) -> None:
        self._task = task
        self._count = count
        self._n_id = n_id
        self._nodes: dict[str | None, tuple[int, ...]] = {
            name: (count if name == task.sweep.node_type else 0, len(ids))
            for name, ids in n_id.items()
        }
        self._plain = edges
        self._blocks = {name: self._block(name, each) for name, each in edges.items()}

    def _block(self, name: Any, edge_index: Tensor) -> Block:
        hops = Hops(self._nodes, {name: (0, edge_index.size(1))})
        return Block(SampledEdgeIndex.of(edge_index, hops, name), hops, 0)

    def __call__(self, step: Step, rows: dict[Value, Tensor]) -> dict[Value, Tensor]:
        """Rows of a convolution's results."""
        assert isinstance(step.func, int)
        plan, blocks, node_type = step.about, self._blocks, self._task.sweep.node_type
        conv = self._task.modules[step.func]
        given = map_leaves(step.call, lambda value, _: rows.get(value), kind=Value)
        if plan.normalises:  # edges lead from nodes of a type to nodes of the same
            name, weight = plan.edge_type, given.get("edge_weight")
            rule = Rule.of(conv, weight is not None)
            roots = self._task.roots_of(name, rule)[self._n_id[node_type]].to(given["x"])
            plain = self._plain[name]
            values = plain.new_ones(plain.size(1)) if weight is None else weight.reshape(-1)
            edge_index, given["edge_weight"] = rule.weighted(
                roots, plain, self._count, values.to(roots.dtype)
            )
            blocks = blocks | {name: self._block(name, edge_index)}
        made = computed(conv, plan, given, blocks)
        (value,) = (each for each in step.outputs if each.space.name == node_type)
        return {value: made[node_type] if isinstance(made, dict) else made}


def only(data: Any, task: Task) -> Any:
    """``store.data()`` with what batches of a sweep need.

    Args:
        data: Is changed, but for one of several types, which is copied.
        task: The sweep.
    """
    sweep = task.sweep
    if sweep.node_type is not None:
        data = data.edge_type_subgraph(sweep.edge_types)
        for key in list(data.stores[0].keys()):  # of the graph as a whole
            del data.stores[0][key]
    kept: dict[Any, set[str]] = defaultdict(lambda: {"num_nodes", "edge_index"})
    for value in (*sweep.gathered, *sweep.of_edges):
        kept[value.space.name].add(task.columns[value])
    for name, store in (node_storages(data) | edge_storages(data)).items():
        for key, _ in raw_items(store):
            if key not in kept[name]:
                del store[key]
    return data
