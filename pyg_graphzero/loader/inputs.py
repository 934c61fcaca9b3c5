"""Inputs of loaders, checked: graphs, seed nodes and seed edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_graphzero.pyg.lazy import OnDemand, raw_items
from pyg_graphzero.sampling.graph import plain, resolve
from pyg_graphzero.sampling.neighbor import NeighborSampler
from pyg_graphzero.sampling.options import OF_NEIGHBORS, Description, options_of
from pyg_graphzero.sampling.windows import check_window
from pyg_graphzero.store.columns import in_memory
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.arguments import check_index_set


def check_input_nodes(data: Data | HeteroData, input_nodes: Any) -> Any:
    """``input_nodes`` as PyG takes them, after checking that they are nodes of the graph."""
    if isinstance(data, HeteroData):
        name, nodes = input_nodes, None
        if isinstance(input_nodes, (tuple, list)) and len(input_nodes) == 2:
            name, nodes = input_nodes
        if not isinstance(name, str):
            raise ValueError(
                f"input_nodes: found {type(input_nodes).__name__}, expected a node type or "
                f"(node type, index or mask); node types are {data.node_types}"
            )
        if name not in data.node_types:
            raise ValueError(
                f"input_nodes: found node type {name!r}, expected one of {data.node_types}"
            )
        return name, _check_nodes(nodes, int(data[name].num_nodes))
    _refuse_type("input_nodes", input_nodes, "all nodes, an index or a mask")
    return _check_nodes(input_nodes, int(data.num_nodes))


def _refuse_type(name: str, seeds: Any, remedy: str) -> None:
    """Refuses seeds of a homogeneous graph that name a type, alone or with some of it."""
    if isinstance(seeds, (tuple, list)) and not all(isinstance(each, str) for each in seeds):
        seeds = seeds[0]
    is_name = isinstance(seeds, (tuple, list)) and seeds and isinstance(seeds[0], str)
    if is_name or isinstance(seeds, str):
        raise ValueError(
            f"{name}: found the type {seeds!r}, and this graph is homogeneous, its nodes and edges "
            f"have none; expected None for {remedy}"
        )


def homogeneous(data: Any, name: str) -> Data:
    """A loader's graph, as ``Data``.

    Raises:
        TypeError: It is heterogeneous, or no graph that a store or ``Data`` stands for.
    """
    data = resolve(data)
    if not isinstance(data, Data):
        raise TypeError(
            f"{name}: found a heterogeneous graph, expected a homogeneous one; NeighborLoader "
            "takes both, with disjoint=True and subgraph_type='induced' too"
        )
    return data


def seed_nodes(data: Data, nodes: Any) -> Tensor:
    """The ids of the seeds of a homogeneous graph, however they were given, ``int64 [n]``."""
    nodes = check_input_nodes(data, nodes)
    if nodes is None:
        return torch.arange(data.num_nodes)
    return nodes.nonzero().view(-1) if nodes.dtype == torch.bool else nodes


def sampler_of(loader: Any, data: Any, arguments: Mapping[str, Any], taken: tuple[str, ...]) -> Any:
    """The sampler of a loader of neighbours; sets the attributes that say how the loader draws.

    Args:
        loader: The loader.
        data: Its graph.
        arguments: Its arguments by name: ``neighbor_sampler``, or how to make one.
        taken: Options that it takes, those of neighbours aside.

    Raises:
        ValueError: An argument that does not fit the graph, or the sampler that is given.
    """
    given, window = arguments["neighbor_sampler"], check_window(arguments["time_window"])
    of_seeds = window if isinstance(window, Tensor) else None
    window = window if of_seeds is None else None
    if given is None:
        options = options_of(arguments["options"], loader, (*OF_NEIGHBORS, *taken))
        described = {**arguments, "time_window": window, "options": options}
        given = NeighborSampler.of(data, arguments["num_neighbors"], Description.of(described))
    elif window not in (None, getattr(given, "time_window", None)):
        raise ValueError(
            f"time_window: found {window!r} beside a neighbor_sampler, which draws in its own way; "
            "give it to the sampler instead"
        )
    if of_seeds is not None and not (isinstance(given, NeighborSampler) and given.time_attr):
        raise ValueError("time_window: found one for each seed and no time_attr, expected both")
    # Lightning makes loaders anew from attributes named as their arguments are.
    for name in ("num_neighbors", "time_attr", "time_window", "first_aggregation"):
        setattr(loader, name, arguments[name])
    loader.neighbor_sampler, loader.seed_windows = given, of_seeds
    return given


def _check_nodes(nodes: Any, num_nodes: int) -> Tensor | None:
    if nodes is None:
        return None
    if isinstance(nodes, str):
        raise ValueError(f"input_nodes: found {nodes!r}, expected a node type, an index or a mask")
    nodes = in_memory(plain(torch.as_tensor(nodes)).cpu())
    if nodes.numel() == 0 and nodes.dtype == torch.get_default_dtype():
        nodes = nodes.to(torch.int64)  # torch.as_tensor([]) is a float tensor
    if nodes.dim() == 2 and nodes.size(1) == 1:
        nodes = nodes.reshape(-1)
    if nodes.dtype != torch.bool:
        return check_index_set(nodes, num_nodes, "input_nodes")
    if list(nodes.shape) != [num_nodes]:
        raise ValueError(
            f"input_nodes: found a mask of {list(nodes.shape)}, expected one of [{num_nodes}] nodes"
        )
    return nodes


def check_edge_labels(data: Data | HeteroData, edges: Any) -> tuple[EdgeType | None, Any]:
    """The edge type and the seed edges a link loader was given.

    Args:
        data: The graph.
        edges: None (all edges; homogeneous only), a tensor ``[2, n]``, a mask ``[num_edges]`` or
            the name of an edge attribute that is one, an edge type, or (edge type, one of these).

    Returns:
        The edge type, and ``int64 [2, n]``, a mask as it was given, or None for all.

    Raises:
        ValueError: It is none of these, or no edge type of the graph.
        IndexError: An end is not a node.
    """
    name: Any = None
    if isinstance(data, HeteroData):
        if not isinstance(edges, (tuple, list)) or not edges:
            raise ValueError(
                f"edge_label_index: found {type(edges).__name__}, expected an edge type or "
                f"(edge type, tensor); edge types are {data.edge_types}"
            )
        name, edges = (edges, None) if isinstance(edges[0], str) else (edges[0], edges[1])
        name = data._to_canonical(*name)
        # Seeds may be of a relation that messages do not go along: only its ends must be there.
        has_ends = {name[0], name[2]} <= set(data.node_types) and not _are_of_graph(edges)
        if name not in data.edge_types and not has_ends:
            raise ValueError(
                f"edge_label_index: found edge type {name}, expected one of {data.edge_types}, or "
                f"seed edges [2, n] between two of {data.node_types}"
            )
    elif not isinstance(edges, str):  # which names a mask
        _refuse_type("edge_label_index", edges, "all edges, integers [2, n], or a mask")
    if edges is None:
        return name, None
    if _are_of_graph(edges):
        return name, _check_mask(data if name is None else data[name], edges)
    edges = in_memory(plain(torch.as_tensor(edges)).cpu())
    if edges.dim() != 2 or edges.size(0) != 2 or edges.dtype.is_floating_point:
        raise ValueError(
            f"edge_label_index: found {edges.dtype} of shape {list(edges.shape)}, expected "
            "integers [2, n]"
        )
    edges = edges.to(torch.int64)
    ends = (None, None) if name is None else (name[0], name[2])
    for i, node_type in enumerate(ends):
        num_nodes = int(data.num_nodes if node_type is None else data[node_type].num_nodes)
        check_index_set(edges[i], num_nodes, f"edge_label_index[{i}]")
    return name, edges


def _are_of_graph(edges: Any) -> bool:
    """Whether seeds are edges of the graph: all, or those of a mask or its name."""
    of_mask = getattr(edges, "dtype", None) in (torch.bool, bool)
    return edges is None or isinstance(edges, str) or of_mask


def _is_mask(value: Any, num_edges: int) -> bool:
    return getattr(value, "dtype", None) == torch.bool and list(value.shape) == [num_edges]


def _check_mask(store: Any, mask: Any) -> Any:
    """A mask of edges; an attribute of a store on disk is not read."""
    what = "a mask"
    if isinstance(mask, str):
        what, values = f"edge attribute {mask!r}", dict(raw_items(getattr(store, "_store", store)))
        if mask not in values:
            masks = [name for name, value in values.items() if _is_mask(value, store.num_edges)]
            there = f"one of {', '.join(masks)}" if masks else "there are none"
            raise ValueError(
                f"edge_label_index: found {mask!r}, expected the name of a mask of edges: {there}"
            )
        mask = values[mask]
    if not isinstance(mask, OnDemand):
        mask = torch.as_tensor(mask)
    if not _is_mask(mask, store.num_edges):
        raise ValueError(
            f"edge_label_index: found {what} of {mask.dtype}, {list(mask.shape)}, expected "
            f"torch.bool [{store.num_edges}]"
        )
    return mask
