"""``BatchPlan``: how batches get each attribute of a graph, decided once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import BaseStorage
from torch_geometric.loader.utils import index_select
from torch_geometric.utils import to_torch_csr_tensor

from pyg_graphzero import _core
from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.memory.residence import Residence
from pyg_graphzero.pyg.data import contents_of, edge_storages, empty_like, node_storages
from pyg_graphzero.pyg.lazy import OnDemand, called, raw_items
from pyg_graphzero.sampling.base import GraphSampler, Reading, Sampled
from pyg_graphzero.sampling.graph import SampledGraph
from pyg_graphzero.sampling.hops import are_hops_wanted, attach_hops
from pyg_graphzero.sampling.inner_rows import InnerRows
from pyg_graphzero.store.columns import EncodedRows, engine_array, gather, is_written, row_table
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.arguments import of_type


@dataclass
class _Part:
    """One node or edge type of a batch: its ids, and the rows gathered for all of the batch."""

    out: BaseStorage
    rows: list[Tensor]
    ids: Any  # a tensor; None where edges have no identity
    edge_index: Tensor | None = None
    fetched: dict[str, Tensor] = field(default_factory=dict)


_Value = Callable[[_Part], Any]


@dataclass
class _Storage:
    """How one storage of a batch is filled.

    Attributes:
        values: Attributes that are always there, by key.
        by_edge: Attributes that are there if the sampled edges have an identity.
        edge_ids: Number of the looked-up list with original edge ids; None: slots are the ids.
        remote: Kinds of rows in shards that it has, as :mod:`.shards.exchange` calls them.
    """

    values: dict[str, _Value] = field(default_factory=dict)
    by_edge: dict[str, _Value] = field(default_factory=dict)
    edge_ids: int | None = None
    remote: set[str] = field(default_factory=set)

    def fill(self, part: _Part, fetched: Fetched, name: Any) -> None:
        for kind in self.remote:
            part.fetched |= fetched.get((kind, name), {})
        # Not by setattr: a new storage has no caches to clear, and there are many attributes.
        mapping = part.out._mapping
        for key, value in self.values.items():
            mapping[key] = value(part)
        if part.ids is not None:
            for key, value in self.by_edge.items():
                mapping[key] = value(part)


#: Rows in shards of one batch, by kind and type, and by attribute.
Fetched = Mapping[tuple[str, Any], Mapping[str, Tensor]]


@dataclass(eq=False)
class BatchPlan:
    """How batches of one graph are put together from what was sampled.

    The engine gathers rows of tensors in main memory; Python selects the rest (lists, tensors
    elsewhere or batched along another dimension).

    Attributes:
        data: Where attributes come from, on disk or in memory.
        sampler: Knows the graph, and the original ids of sampled edges.
        edge_ids: Batches have ``e_id``.
        files: Which of the store's columns are not in memory whole; None: all are.
        reading: Where the sampler finds neighbours; None: in memory, or mapped.
        first_aggregation: How features of neighbours are added up, ``"sum"`` or ``"mean"``; None:
            they are not.

    Raises:
        UnsupportedError: ``first_aggregation``, and features that cannot be added up.
    """

    data: Data | HeteroData
    sampler: InitVar[GraphSampler]
    edge_ids: bool = True
    files: Residence | None = None
    reading: Reading | None = None
    first_aggregation: str | None = None

    def __post_init__(self, sampler: GraphSampler) -> None:
        data = self.data
        contents = contents_of(data)
        self.shards = None if contents is None else contents.shards
        self._paged: dict[tuple[str, int], int] = {}  # numbers of paged rows by file and list
        self.is_by_edge = self.first_aggregation is not None  # rows are gathered for each edge
        self.graph = sampler.graph
        self.node_types = list(self.graph.node_types)
        self.edge_types = self.graph.edge_types
        self.columns = _core.GatherPlan(len(self.node_types) + len(self.edge_types))
        nodes, edges, lists = node_storages(data), edge_storages(data), count()
        self._nodes = {
            name: self._plan_nodes(name, nodes[name], next(lists)) for name in self.node_types
        }
        self._edges = {
            name: self._plan_edges(name, edges[name], next(lists)) for name in self.edge_types
        }
        # They wait for their batch's rows with it: a third of what it takes meanwhile.
        self.columns.keeps_slots = not sampler.is_final or any(
            storage.by_edge or "adj_t" in storage.values for storage in self._edges.values()
        )
        if self.first_aggregation is not None and not self.columns.needs_hops:
            raise self._unsummed("no x of nodes", "features")
        self._seen = _seen(data)
        self.files = None  # they keep the plans that were made by them

    def is_for(self, data: Any, graph: SampledGraph, first_aggregation: str | None) -> bool:
        """Whether it was made for these, and the graph's attributes are still what they were."""
        same = data is self.data and graph is self.graph
        return same and first_aggregation == self.first_aggregation and self._seen == _seen(data)

    def gather(self, sampled: Sampled, num_threads: int) -> _core.Gathered:
        """Has the engine gather the rows of a sample."""
        none = torch.empty(0, dtype=torch.int64)
        lists: list[Tensor | None] = [*sampled.nodes, *sampled.slots]
        arrays = [engine_array(none if ids is None else ids.contiguous()) for ids in lists]
        if self.first_aggregation is None:
            return self.columns.gather(arrays, num_threads)
        inner = [sum(counts[:-1]) for counts in sampled.num_sampled_nodes or []]
        edges = [
            (engine_array(src.contiguous()), engine_array(dst.contiguous()))
            for src, dst in sampled.edge_index
        ]
        return self.columns.gather(arrays, num_threads, inner, edges)

    def assemble(
        self,
        sampled: Sampled,
        gathered: _core.Gathered,
        batch: Data | None = None,
        fetched: Fetched | None = None,
    ) -> Data | HeteroData:
        """A batch of a sample and its rows; labels of its seeds are left to the caller.

        Args:
            sampled: The sample, as it was drawn or as a transform has changed it.
            gathered: Its rows, from :meth:`gather` or the pipeline.
            batch: The ``Data`` to fill; None for a new one.
            fetched: Its rows in shards; None: they are fetched now, if there are any.
        """
        if fetched is None and self.shards is not None:
            fetched = self.shards.ask(lambda: ([], [self.wanted(sampled)])).rows(0)
        fetched = fetched or {}
        batch = empty_like(self.data) if batch is None else batch
        if isinstance(batch, HeteroData):
            for key, value in self.data.stores[0].items():
                batch[key] = value
            nodes = [batch[name] for name in self.node_types]
            edges = [batch[name] for name in self.edge_types]
        else:
            nodes = [batch.stores[0]]
            edges = nodes * len(self.edge_types)

        ids, rows = gathered.lists, gathered.columns
        for out, name, n_id in zip(nodes, self.node_types, sampled.nodes, strict=True):
            self._nodes[name].fill(_Part(out, rows, n_id), fetched, name)
        for out, edge_type, edge_index, slots in zip(
            edges, self.edge_types, sampled.edge_index, sampled.slots, strict=True
        ):
            storage = self._edges[edge_type]
            by_id = slots is not None and storage.edge_ids is not None
            e_id = ids[storage.edge_ids] if by_id else slots  # type: ignore[index]
            storage.fill(_Part(out, rows, e_id, edge_index), fetched, edge_type)
        for key, stores, values in (
            ("batch", nodes, sampled.trees),
            ("num_sampled_nodes", nodes, sampled.num_sampled_nodes),
            ("num_sampled_edges", edges, sampled.num_sampled_edges),
        ):
            if values is not None:
                for out, value in zip(stores, values, strict=True):
                    out._mapping[key] = value
        if self.first_aggregation is not None or are_hops_wanted():
            attach_hops(batch)
        return batch

    def wanted(self, sampled: Sampled) -> dict[tuple[str, Any], Tensor]:
        """Numbers of the rows in shards that a batch of a sample has, by kind and type."""
        storages = [*self._nodes.items(), *self._edges.items()]
        return {
            (kind, name): ids
            for (name, own), ids in zip(storages, [*sampled.nodes, *sampled.slots], strict=True)
            for kind in own.remote
            if ids is not None
        }

    def _look_up(self, by: int, ids: Tensor | None) -> int:
        """The number of the index list of ids in the places of list ``by``.

        It is ``by`` itself where there are no ids because places are the ids.
        """
        table = None if ids is None else row_table(ids)
        if ids is None or table is None:
            return by
        self.is_by_edge = True
        return self.columns.add_lookup(by, table, self._page(ids, by))

    def _plan_nodes(self, name: str | None, store: BaseStorage, rows: int) -> _Storage:
        """Node attributes, and everything that is neither node nor edge level."""
        out = _Storage()
        for key, value in raw_items(store):
            if key == "num_nodes":
                out.values[key] = _count
            elif key == "adj_t" or store.is_edge_attr(key):
                continue
            elif not store.is_node_attr(key):
                out.values[key] = _constant(value)
            elif _is_remote(value):
                if self.first_aggregation is not None:
                    found = f"{called(name, key)} in shards"
                    raise self._unsummed(found, "rows that every rank has")
                out.values[key] = _fetched(key)
                out.remote.add("node")
            else:
                if isinstance(value, OnDemand):
                    value = value.value() if value.stored is None else value.stored
                if key == "x" and self.first_aggregation is not None:
                    out.values[key] = self._inner_rows(name, value, rows)
                    out.values["num_nodes"] = _count
                else:
                    out.values[key] = self._rows(store, key, value, rows)
        out.values.setdefault("n_id", lambda part: part.ids)
        return out

    def _is_of_one_store(self) -> bool:
        """Whether slots of the sampled topology are those of the attributes on disk."""
        mine, theirs = self.data.__dict__.get("_contents"), self.graph.contents
        if mine is None or theirs is None:
            return False
        # Opened twice it is still one, by the checksums in the schema.
        return mine is theirs or bool(mine.schema == theirs.schema)

    def _plan_edges(self, name: EdgeType | None, store: BaseStorage, slots: int) -> _Storage:
        """The sampled edges and their attributes, joined by original edge id."""
        out = _Storage()
        attrs = {
            key: value
            for key, value in raw_items(store)
            if key == "adj_t" or (key != "edge_index" and store.is_edge_attr(key))
        }
        on_disk = self.graph.on_disk(name) and self._is_of_one_store()

        def is_by_id(value: Any) -> bool:
            by_slot = on_disk and isinstance(value, OnDemand) and value.stored is not None
            return not (by_slot or _is_remote(value))

        joined = [key for key, value in attrs.items() if is_by_id(value)]
        for key in joined:
            if self.graph.shards is not None:
                raise UnsupportedError(
                    f"{called(name, key)}: found edges in shards, expected no attribute of theirs "
                    "that is not in the store"
                )
            self.graph.need_edge_ids(name, called(name, key))
        has_ids = self.edge_ids and name not in self.graph.unnumbered
        by = self._look_up(slots, self.graph.ids(name) if has_ids or joined else None)
        out.edge_ids = None if by == slots else by - len(self.node_types) - len(self.edge_types)
        for key, value in raw_items(store):
            if key == "edge_index":
                out.values[key] = lambda part: part.edge_index
            elif key == "adj_t":
                out.values[key] = _sparse(value)
            elif key not in attrs:
                if name is not None and not isinstance(value, OnDemand):
                    out.values[key] = _constant(value)
            elif _is_remote(value):
                self.is_by_edge = True
                out.by_edge[key] = _fetched(key)
                out.remote.add("edge")
            elif is_by_id(value):
                value = value.value() if isinstance(value, OnDemand) else value
                out.by_edge[key] = self._rows(store, key, value, by)
            else:
                out.by_edge[key] = self._rows(store, key, value.stored, slots)
        if has_ids and "e_id" not in out.values:
            out.by_edge.setdefault("e_id", lambda part: part.ids)
            if self.graph.shards is not None:
                self.is_by_edge = True
                out.by_edge["e_id"] = lambda part: part.fetched["e_id"].to(torch.int64)
                out.remote.add("edge_id")
        return out

    def _rows(self, store: BaseStorage, key: str, value: Any, by: int) -> _Value:
        """Rows of an attribute: by the engine in index list ``by``, or in Python."""
        dim = store._parent().__cat_dim__(key, value, store)
        is_rows = isinstance(value, Tensor | EncodedRows) and dim == 0
        # Parameters are selected by torch when a batch is handed over: by then the optimizer has
        # made its last step, and the gradient finds its way back.
        is_trained = isinstance(value, Tensor) and value.requires_grad
        table = row_table(value) if is_rows and not is_trained else None
        if table is None:
            return lambda part: _select(value, part.ids, dim)
        self.is_by_edge |= by >= len(self.node_types)
        file = None if self.files is None else self.files.file_of(value)
        held = None if self.files is None or file is None else self.files.held_rows(file)
        number = self.columns.add_column(by, held or table, self._page(value, by))
        dtype, shape = value.dtype, (-1, *value.shape[1:])
        if len(value.shape) == 2:
            return lambda part: part.rows[number].view(dtype)
        return lambda part: part.rows[number].view(dtype).view(shape)

    def _unsummed(self, found: str, expected: str) -> UnsupportedError:
        return UnsupportedError(
            f"first_aggregation={self.first_aggregation!r}: found {found}, expected {expected}; "
            "leave it out"
        )

    def _inner_rows(self, name: str | None, value: Any, by: int) -> _Value:
        """Features of inner nodes, and sums of features for inner nodes that edges lead to."""
        reduction, what = self.first_aggregation, f"x{of_type(name)}"
        assert reduction is not None
        is_rows = isinstance(value, Tensor | EncodedRows)
        if isinstance(value, Tensor) and value.requires_grad:
            raise self._unsummed(
                f"{what} that is trained", "features, so that no sum needs a gradient"
            )
        table = row_table(value) if is_rows else None
        if table is None or value.dtype != torch.float32 or len(value.shape) != 2:
            found = f"{value.dtype} {list(value.shape)}" if is_rows else type(value).__name__
            raise self._unsummed(
                f"{what} of {found}",
                "float32 in main memory or in a store (encoded or not), [num_nodes, num_features]",
            )
        types, page, is_mean = self.node_types, self._page(value, by), reduction == "mean"
        rows = self.columns.add_column(by, table, page, inner_of=types.index(name))
        sums = {}
        for number, edge_type in enumerate(self.edge_types):
            src, _, dst = edge_type or (None, None, None)
            if src == name:
                to = types.index(dst)
                sums[edge_type] = self.columns.add_sum(by, table, number, to, is_mean, page)

        def make(part: _Part) -> InnerRows:
            of_edges = {key: part.rows[at].view(torch.float32) for key, at in sums.items()}
            return InnerRows.of(part.rows[rows].view(torch.float32), of_edges, reduction, name)

        return make

    def _page(self, value: Tensor | EncodedRows, by: int) -> int:
        """The number of the paged rows that an attribute's come from; -1 where it is in memory."""
        file = None if self.files is None else self.files.file_of(value)
        num_lists = len(self.node_types) + len(self.edge_types)
        if file is None or by >= num_lists:  # ids from looked-up lists are known too late to page
            return -1
        if (file, by) not in self._paged:
            assert self.files is not None
            rows = self.files.rows(file)
            self._paged[file, by] = -1 if rows is None else self.columns.add_paged(by, rows)
        return self._paged[file, by]


def _seen(data: Data | HeteroData) -> list[tuple[str, int, int, int]]:
    """State of a graph's attributes, to compare with a later one; takes microseconds."""
    seen = []
    for store in data.stores:
        for key, value in raw_items(store):
            if isinstance(value, OnDemand) and value.is_built:
                value = value.value()
            at = state = 0
            if isinstance(value, Tensor):
                at = value.data_ptr() if value.is_cpu and value.layout == torch.strided else 0
                state = 2 * value.requires_grad + is_written(value)
            seen.append((key, id(value), at, state))
    return seen


def _is_remote(value: Any) -> bool:
    return isinstance(value, OnDemand) and value.is_remote


def _count(part: _Part) -> Any:
    return part.ids.numel()


def _constant(value: Any) -> _Value:
    return lambda part: value


def _fetched(key: str) -> _Value:
    return lambda part: part.fetched[key]


def _sparse(adj_t: Any) -> _Value:
    """A batch's ``adj_t``: a ``SparseTensor`` if the graph's is one, else torch's CSR."""
    is_torchs = isinstance(adj_t, Tensor)
    weight = adj_t.to_sparse_coo().coalesce().values() if is_torchs else adj_t.storage.value()

    def make(part: _Part) -> Any:
        assert part.edge_index is not None
        row, col = part.edge_index
        sizes = part.out.size()[::-1]
        value = None if weight is None or part.ids is None else gather(weight, part.ids)
        if is_torchs:
            return to_torch_csr_tensor(torch.stack([col, row]), value, size=sizes)
        return type(adj_t)(row=col, col=row, value=value, sparse_sizes=sizes)

    return make


def _select(value: Any, index: Tensor, dim: int) -> Any:
    if isinstance(value, EncodedRows):
        return gather(value, index)
    if isinstance(value, (list, tuple)):
        return [value[i] for i in index.tolist()]
    return index_select(value, index.to(value.device) if isinstance(value, Tensor) else index, dim)
