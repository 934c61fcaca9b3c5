"""The topology a sampler walks, from a store or a graph in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_graphzero import _core
from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.pyg.data import contents_of, edge_storages, node_storages, open_data
from pyg_graphzero.pyg.edges import DiskGraphStore
from pyg_graphzero.pyg.features import DiskFeatureStore
from pyg_graphzero.pyg.lazy import OnDemand, raw_items
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.sampling.walks import one_way
from pyg_graphzero.store.columns import decoded, engine_array, gather, in_memory, view_topology
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.edge_order import EdgeOrder
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.arguments import of_type


@dataclass(frozen=True)
class Unmapped:
    """Parts of an edge type in a store's files that are found elsewhere than in their map.

    Attributes:
        indices: Its neighbours (``ColumnFile.of_indices``), of which memory holds a part only.
        bounds: Where neighbourhoods begin.
        packed: Its neighbours, all of them.
    """

    indices: _core.PagedRows | None = None
    bounds: _core.PackedBounds | None = None
    packed: _core.PackedSources | None = None


_MAPPED = Unmapped()


@dataclass
class SampledGraph:
    """Node types with sizes, edge types with CSC.

    Homogeneous graphs have the one node type None and the one edge type None. Walked
    backward, a store's edges are those of its files by source.

    Attributes:
        node_types: Number of nodes by type.
        edge_types: The edge types, in sampling order.
        backward: Edges are walked from source to destination.
        contents: The store that holds the topologies, or None.
        mirrors: Edge type that has the same edges with both ends exchanged, by edge type that is
            walked backward and has no file by source.
        arrays: ``(indptr, indices)`` by edge type where they are in memory.
        edge_ids: Original edge ids of these, ``int64 [num_edges]``; see :meth:`ids`.
        unnumbered: Edge types whose edges have no ids in the store.
        orders: Times and weights by edge type.
        node_times: Comparable times of the nodes by type, where the time attribute is theirs.
        float_times: Whether times are compared as floats; None without times.
    """

    node_types: dict[str | None, int]
    edge_types: list[EdgeType | None]
    backward: bool = False
    contents: StoreContents | None = None
    mirrors: dict[EdgeType | None, EdgeType | None] = field(default_factory=dict)
    arrays: dict[EdgeType | None, tuple[Tensor, Tensor]] = field(default_factory=dict)
    edge_ids: dict[EdgeType | None, Tensor | None] = field(default_factory=dict)
    unnumbered: set[EdgeType | None] = field(default_factory=set)
    orders: dict[EdgeType | None, EdgeOrder] = field(default_factory=dict)
    node_times: dict[str | None, Tensor] = field(default_factory=dict)
    float_times: bool | None = None

    def ends(self, name: EdgeType | None) -> tuple[str | None, str | None]:
        """The node types an edge type is walked from (neighbours) and to (frontier)."""
        if name is None:
            return None, None
        return (name[2], name[0]) if self.backward else (name[0], name[2])

    def on_disk(self, name: EdgeType | None) -> bool:
        """Whether slots of an edge type are those of the store's files."""
        return self.contents is not None and name not in self.arrays

    @property
    def store(self) -> StoreContents:
        """The store, of a graph that has one."""
        assert self.contents is not None
        return self.contents

    @property
    def shards(self) -> Any:
        """The shards that other ranks have neighbours in; None where all are here."""
        shards = None if self.contents is None else self.contents.shards
        return shards if shards is not None and shards.has_topology else None

    def need_edge_ids(self, name: EdgeType | None, what: str) -> None:
        """Refuses what needs ids of edges that have none; see ``StoreContents.need_edge_ids``."""
        if name in self.unnumbered:
            self.store.need_edge_ids(name, what)

    def topology(self, name: EdgeType | None) -> _core.Topology:
        """The store's file of an edge type.

        Raises:
            UnsupportedError: Edges are walked backward, and the store has them by destination only.
        """
        if not self.backward or name in self.mirrors:
            return self.store.topology(self.mirrors.get(name, name))
        found = self.store.csr(name)
        if found is None:
            raise self.store.without_csr(name, "out-neighbours")
        return found

    def ids(self, name: EdgeType | None) -> Tensor | None:
        """The original edge id of every CSC slot (``int32`` or ``int64``); None: slots are ids."""
        return self.store.edge_id(name) if self.on_disk(name) else self.edge_ids.get(name)

    def csc(self, name: EdgeType | None) -> tuple[Tensor, Tensor]:
        """``indptr`` and ``indices`` of an edge type."""
        return self.arrays[name] if name in self.arrays else view_topology(self.topology(name))

    def bounds(self, name: EdgeType | None) -> Tensor:
        """``indptr`` in memory, for callers that read all of it; see ``StoreContents.bounds``."""
        if name in self.arrays:
            return self.arrays[name][0]
        topology = self.topology(name)
        return topology.bounds(0, topology.num_dst)

    def sources(self, name: EdgeType | None) -> Tensor:
        """``indices`` in memory (``int64``), likewise; see ``StoreContents.sources``."""
        if name in self.arrays:
            return in_memory(self.arrays[name][1], torch.int64)
        return self.store.sources(name)

    def builder(
        self, unmapped: Mapping[EdgeType | None, Unmapped], behind: SampledGraph | None = None
    ) -> _core.SamplerBuilder:
        """Builder of the engine's samplers over these arrays.

        Args:
            unmapped: Parts of a store's files that are not read through their map.
            behind: Graph of the same nodes whose edge types come behind those of this one.
        """
        builder = _core.SamplerBuilder(list(self.node_types.values()))
        position = {name: i for i, name in enumerate(self.node_types)}
        edge_types = [(self, name) for name in self.edge_types]
        if behind is not None:
            edge_types += [(behind, name) for name in behind.edge_types]
        for number, (graph, name) in enumerate(edge_types):
            src_type, dst_type = graph.ends(name)
            src, dst = position[src_type], position[dst_type]
            if name in graph.arrays:
                indptr, indices = graph.arrays[name]
                num_src = graph.node_types[src_type]
                builder.add_arrays(src, dst, indptr, indices, num_src, f"edge type {name}")
            else:
                other = _MAPPED if graph is behind else unmapped.get(name, _MAPPED)
                shards = graph.store.shards
                starts = None if shards is None else shards.starts.get(name)
                builder.add_file(
                    src, dst, graph.topology(name), other.indices, other.bounds, other.packed,
                    None if starts is None else engine_array(starts),
                )  # fmt: skip
            if name in graph.orders:
                order = graph.orders[name]
                builder.set_order(number, order.slots, order.times, order.cumulative)
        return builder

    def in_slots(self, name: EdgeType | None, value: Any, what: str) -> Tensor:
        """An edge attribute in the order of slots, from what a storage holds of it.

        Raises:
            ValueError: It has more or fewer values than there are edges.
            UnsupportedError: The edges have no slots in the direction that they are walked in.
        """
        if name in self.mirrors:
            raise one_way(self.store, name, f"walks along edges by {what!r}")
        if isinstance(value, OnDemand) and value.is_remote:
            return self.shards.slots(name, what)
        on_disk = self.on_disk(name)
        if isinstance(value, OnDemand) and on_disk and value.stored is not None:
            rows, numbers = decoded(value.stored), None
        else:
            self.need_edge_ids(name, what)
            value = value.value() if isinstance(value, OnDemand) else value
            rows, numbers = torch.as_tensor(value).detach().cpu(), self.ids(name)
            num_edges = self.csc(name)[1].numel()
            if rows.dim() == 0 or rows.size(0) != num_edges:
                found = f"{what}{of_type(name)}: found shape {list(rows.shape)}"
                raise ValueError(f"{found}, expected {num_edges} edges")
        by_source = self.store.csr_slot(name) if on_disk and self.backward else None
        for index in (numbers, by_source):
            rows = rows if index is None else gather(rows, in_memory(index, torch.int64))
        return rows


def resolve(data: Any) -> Any:
    """A graph in any form as ``Data`` or ``HeteroData``.

    Raises:
        TypeError: It is none of the inputs that they take.
    """
    if isinstance(data, Store):
        return data.data()
    if isinstance(data, (Data, HeteroData)):
        return data
    found = type(data).__name__
    if isinstance(data, (tuple, list)) and len(data) == 2:
        features, graph = data
        ours = isinstance(features, DiskFeatureStore) and isinstance(graph, DiskGraphStore)
        if ours and features.handle.path == graph.handle.path:
            return open_data(features.handle.contents)
        found = f"({type(features).__name__}, {type(graph).__name__})"
    raise TypeError(
        f"data: found {found}, expected a Store, its .data(), its feature store and graph store, "
        "or Data or HeteroData in memory; stores of another package are for PyG's own loaders"
    )


@dataclass(frozen=True)
class EdgePermutation:
    """Original edge ids by CSC slot, for whoever indexes a permutation of all edges.

    Attributes:
        sampler: The sampler that drew the slots.
        name: The edge type.
    """

    sampler: Any
    name: EdgeType | None

    def __getitem__(self, slots: Tensor) -> Tensor:
        self.sampler.graph.need_edge_ids(self.name, "edge_permutation")
        ids: Tensor = self.sampler.original_edge_ids(self.name, slots.to("cpu", torch.int64))
        return ids.to(slots.device)

    def to(self, device: Any) -> EdgePermutation:
        """Itself; ids are delivered where the slots are."""
        return self


def graph_of(
    data: Any,
    backward: bool = False,
    only: Collection[EdgeType | None] | None = None,
    stays: bool = False,
) -> SampledGraph:
    """The graph of a store's ``.data()``, or of ``Data``/``HeteroData`` in memory.

    In memory, and to walk backwards, the edges are sorted once; features are not touched.

    Args:
        data: The graph.
        backward: Edges are walked from source to destination.
        only: The edge types that count; None: all.
        stays: Edges of a store stay on disk to walk backwards, too.

    Raises:
        UnsupportedError: An edge type has no ``edge_index``.
        ValueError: It has no ends of edges.
        IndexError: An edge names a node that is not there.
    """
    node_types = {name: int(store.num_nodes) for name, store in node_storages(data).items()}
    contents = contents_of(data)
    graph = SampledGraph(node_types, [], backward, contents)
    for name, store in edge_storages(data).items():
        if only is not None and name not in only:
            continue
        edge_index = dict(raw_items(store)).get("edge_index")
        if edge_index is None:
            edge_index = _adjacency(store)
        if edge_index is None:
            if name is not None:
                raise UnsupportedError(f"edge type {name}: found neither edge_index nor adj_t")
            edge_index = torch.empty(2, 0, dtype=torch.int64)
        graph.edge_types.append(name)
        if isinstance(edge_index, OnDemand) and contents is not None:
            graph.unnumbered |= set() if contents.edge_type(name).edge_ids else {name}
        if isinstance(edge_index, OnDemand):
            if not edge_index.is_built and (stays or not backward):
                continue
            edge_index = edge_index.value()
        edges = plain(torch.as_tensor(edge_index, device="cpu"))
        if edges.shape[:-1] != (2,) or (edges.is_floating_point() and edges.numel()):
            found = f"{edges.dtype} of shape {list(edges.shape)}"
            raise ValueError(f"edge_index{of_type(name)}: found {found}, expected integers [2, n]")
        row, col = edges.to(torch.int64).contiguous()
        src, dst = graph.ends(name)
        if backward:
            row, col = col, row
        # By way of NumPy, as engine_array() says.
        indptr, order = _core.sort_by_destination(
            engine_array(row), engine_array(col), node_types[src], node_types[dst]
        )
        is_sorted = torch.equal(order, torch.arange(order.numel()))
        graph.arrays[name] = (indptr, row if is_sorted else gather(row, order))
        graph.edge_ids[name] = None if is_sorted else order
    return graph


def plain(tensor: Tensor) -> Tensor:
    """The tensor itself, where PyG has wrapped one (``EdgeIndex``, ``Index``)."""
    unwrap = getattr(tensor, "as_tensor", None)
    return tensor if unwrap is None else unwrap()


def _adjacency(store: Any) -> Tensor | None:
    """COO of ``adj_t`` (a ``SparseTensor`` or torch's sparse CSR), edges in its own order."""
    if "adj_t" not in store:
        return None
    adj_t = store["adj_t"]
    if isinstance(adj_t, Tensor):
        col, row = adj_t.to_sparse_coo().coalesce().indices()
    else:
        col, row, _ = adj_t.coo()
    return torch.stack([row, col])
