"""Which files of a store a loader reads from, and how large their rows are."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.plan import FileSize
from pyg_graphzero.memory.source import BatchSource
from pyg_graphzero.pyg.data import edge_storages, node_storages
from pyg_graphzero.pyg.lazy import OnDemand, raw_items
from pyg_graphzero.store.columns import EncodedRows
from pyg_graphzero.store.contents import StoreContents


def files_of(loader: BatchSource) -> list[FileSize]:
    """Files of a store that a loader reads from."""
    graph = loader.graph_sampler.graph
    contents: StoreContents = graph.contents
    sharers = contents.processes

    def column(file: str, kind: str) -> FileSize:
        found = contents.column(file)
        return FileSize(file, found.shape[0], found.row_bytes, kind, sharers)

    files: list[FileSize] = []
    for i, name in enumerate(graph.edge_types):
        if not graph.on_disk(name):
            continue
        topology, record = contents.topology(name), contents.edge_type(name)
        num_edges = topology.num_edges
        packed = _core.PackedBounds.num_bytes(topology.num_dst, num_edges)
        files.append(
            FileSize(bounds_of(i), topology.num_dst + 1, 8, "indptr", sharers, packed_bytes=packed)
        )
        packed = _core.PackedSources.num_bytes(topology.num_src, num_edges)
        sizes = num_edges, topology.index_bytes
        files.append(FileSize(record.topology, *sizes, "indices", sharers, packed_bytes=packed))
        if record.edge_id is not None and loader.edge_ids:
            files.append(column(record.edge_id, "edge"))
    edge_files = {f for t in contents.schema.edge_types for f in t.attrs.values()}
    for file in _attributes(contents, loader.data):
        files.append(column(file, "edge" if file in edge_files else "node"))
    return files


def bounds_of(edge_type: int) -> str:
    """Name of the bounds of an edge type's neighbourhoods, which are a part of its topology."""
    return f"indptr {edge_type}"


def _attributes(contents: StoreContents, data: Any) -> Iterator[str]:
    """Files of node and edge attributes that are in ``data`` still."""
    for store in data.stores:
        for _, value in raw_items(store):
            file = file_of(contents, value)
            if file is not None:
                yield file


def file_of(contents: StoreContents, value: Any) -> str | None:
    """The file that an attribute's rows are in; None where they are not, or were changed."""
    if isinstance(value, OnDemand):
        value = None if value.is_built else value.rows
    stored = value.stored if isinstance(value, EncodedRows) else value
    if not isinstance(stored, Tensor) or stored.dim() == 0:
        return None
    return contents.file_of(stored)


def bytes_of_rows(data: Any, *, but: str | None = None) -> dict[str | None, int]:
    """Bytes of one node's attributes and id in a batch, by node type.

    Args:
        data: The graph.
        but: An attribute that does not count.
    """
    found: dict[str | None, int] = {}
    for name, store in node_storages(data).items():
        found[name] = costs.NODE
        for key, value in raw_items(store):
            is_rows = isinstance(value, Tensor | EncodedRows | OnDemand)
            if is_rows and key != but and store.is_node_attr(key):
                found[name] += prod(value.shape[1:]) * value.dtype.itemsize
    return found


def bytes_of_batches(
    loader: BatchSource,
) -> tuple[dict[str | None, int], dict[str | None, int], bool]:
    """Bytes of a node in a loader's batches, and bytes more of a node before the last hop.

    With ``ahead`` only nodes before the last hop have features, and a sum for each edge type that
    leads to them.

    Returns:
        Both by node type, and whether batches have slots of edges: for edge ids, or attributes.
    """
    every = bytes_of_rows(loader.data)
    has_slots = loader.edge_ids or any(
        key == "adj_t" or (key != "edge_index" and store.is_edge_attr(key))
        for store in edge_storages(loader.data).values()
        for key, _ in raw_items(store)
    )
    if loader.ahead is None:
        return every, dict.fromkeys(every, 0), has_slots
    others = bytes_of_rows(loader.data, but="x")
    ends = [name if name is None else name[2] for name in loader.graph_sampler.graph.edge_types]
    inner = {name: (every[name] - others[name]) * (1 + ends.count(name)) for name in every}
    return others, inner, has_slots
