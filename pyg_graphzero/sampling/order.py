"""Times and weights of a graph's edges, which neighbours are drawn by."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.pyg.data import edge_storages, node_storages
from pyg_graphzero.pyg.lazy import OnDemand, raw_items
from pyg_graphzero.sampling.graph import SampledGraph
from pyg_graphzero.store.columns import gather
from pyg_graphzero.store.edge_order import comparable_times, rank_edges
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.arguments import of_type


def add_order(
    graph: SampledGraph,
    data: Any,
    time_attr: str | None,
    weight_attr: str | None,
    is_sorted: bool = False,
    of_nodes: bool = True,
) -> None:
    """Ranks the graph's edges by time and gives them weights.

    Args:
        graph: The graph of ``data``.
        data: Where the attributes are.
        time_attr: An edge attribute, or one of nodes. Types without it are not restricted where
            others have it, as in PyG.
        weight_attr: An edge attribute; types without it are drawn from uniformly.
        is_sorted: Neighbourhoods are sorted by time already.
        of_nodes: ``time_attr`` may be an attribute of nodes.

    Raises:
        ValueError: No type has the attribute, node and edge types both have it, or it is not one
            value each.
    """
    node_times: dict[str | None, Any] = {}
    edge_times: dict[EdgeType | None, Any] = {}
    weights: dict[EdgeType | None, Any] = {}
    if time_attr is not None:
        node_times = _node_values(data, time_attr) if of_nodes else {}
        edge_times = edge_values(graph, data, time_attr, may_be_node_level=of_nodes)
        if bool(node_times) == bool(edge_times):
            found, expected = "both node and edge types", "one of the two"
            if not node_times:
                found = f"no {'node or ' * of_nodes}edge type"
                expected = _attributes_of(data, of_nodes)
            raise ValueError(f"time_attr={time_attr!r}: found in {found}, expected {expected}")
        values = [*node_times.values(), *edge_times.values()]
        graph.float_times = any(torch.as_tensor(v).dtype.is_floating_point for v in values)
    if weight_attr is not None:
        weights = edge_values(graph, data, weight_attr)
        if not weights:
            there = _attributes_of(data, of_nodes=False)
            raise ValueError(
                f"weight_attr={weight_attr!r}: found in no edge type, expected {there}"
            )

    as_float, shards = bool(graph.float_times), graph.shards
    for node_type, value in node_times.items():
        what, count = f"{time_attr!r}{of_type(node_type)}", graph.node_types[node_type]
        if len(value) != count:
            raise ValueError(f"{what}: found {len(value)} times, expected {count}")
        graph.node_times[node_type] = comparable_times(torch.as_tensor(value), what, as_float)
    for name in graph.edge_types:
        src, _ = graph.ends(name)
        times: Tensor | None = None
        if name in edge_times:
            times = comparable_times(edge_times[name], f"{time_attr!r}{of_type(name)}", as_float)
        elif src in graph.node_times:
            sources = graph.sources(name) if shards is None else shards.slots(name)
            times = gather(graph.node_times[src], sources.to(torch.int64))
        if times is not None or name in weights:
            bounds = graph.bounds(name)
            graph.orders[name] = rank_edges(
                bounds if shards is None else shards.in_slots(name, bounds),
                times,
                weights.get(name),
                name,
                is_sorted or _has_order(graph, data, name, time_attr),
            )


def _has_order(graph: SampledGraph, data: Any, name: EdgeType | None, attr: str | None) -> bool:
    """Whether the store has the neighbourhoods of an edge type sorted by these very times."""
    if not graph.on_disk(name) or graph.backward:
        return False
    record = graph.store.edge_type(name)
    if attr is None or record.time_order != attr:
        return False
    if attr in record.attrs:
        file, storage = record.attrs[attr], edge_storages(data)[name]
    else:
        source = None if name is None else name[0]
        file, storage = graph.store.node_type(source).attrs[attr], node_storages(data)[source]
    value = dict(raw_items(storage)).get(attr)
    if isinstance(value, OnDemand):
        return not value.is_built
    return isinstance(value, Tensor) and graph.store.file_of(value) == file


def _attributes_of(data: Any, of_nodes: bool) -> str:
    """The attributes that there are."""
    stores = [*edge_storages(data).values(), *(node_storages(data).values() if of_nodes else ())]
    names = {
        name
        for store in stores
        for name, value in raw_items(store)
        if of_nodes or list(getattr(value, "shape", ()))[:1] == [store.num_edges]
    }
    names -= {"edge_index", "adj_t", "num_nodes"}
    return f"one of {', '.join(sorted(names))}" if names else "an attribute, and there are none"


def _node_values(data: Any, attr: str) -> dict[str | None, Any]:
    """A node attribute by node type, for those that have it."""
    found: dict[str | None, Any] = {}
    for name, store in node_storages(data).items():
        # One type of several may have the wrong length, which is said later.
        if attr in store and (name is not None or store.is_node_attr(attr)):
            value = dict(raw_items(store))[attr]
            found[name] = value.copy() if isinstance(value, OnDemand) else value
    return found


def edge_values(
    graph: SampledGraph, data: Any, attr: str, may_be_node_level: bool = False
) -> dict[EdgeType | None, Tensor]:
    """An edge attribute in CSC order, for the edge types that have it."""
    found = {}
    stores = edge_storages(data)
    for name in graph.edge_types:
        if attr not in stores[name]:
            continue
        if name is None and may_be_node_level and not stores[name].is_edge_attr(attr):
            continue
        found[name] = graph.in_slots(name, dict(raw_items(stores[name]))[attr], attr)
    return found
