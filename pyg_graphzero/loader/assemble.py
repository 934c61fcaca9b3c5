"""Batches from samples: joining sampled nodes and edges with their attributes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import BaseStorage
from torch_geometric.loader.utils import index_select
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from pyg_graphzero.columns import gather
from pyg_graphzero.data import OnDemand, raw_items
from pyg_graphzero.sampler import GraphSampler
from pyg_graphzero.schema import EdgeType


def assemble(
    data: Data | HeteroData,
    sampler: GraphSampler,
    out: SamplerOutput | HeteroSamplerOutput,
) -> Data | HeteroData:
    """A plain ``Data``/``HeteroData`` batch from what was sampled and the attributes of ``data``.

    What is known of the seeds (``out.metadata``) is left to the caller.

    Args:
        data: Where attributes come from, on disk or in memory.
        sampler: Knows the original ids of sampled edges.
        out: The sample; ``edge`` holds CSC slots, or None where edges have no identity.
    """
    if isinstance(out, SamplerOutput):
        batch = Data()
        fill_nodes(data._store, batch._store, out.node)
        fill_edges(data._store, batch._store, sampler, None, out.row, out.col, out.edge)
        batch.batch = out.batch
        batch.num_sampled_nodes = out.num_sampled_nodes
        batch.num_sampled_edges = out.num_sampled_edges
        return batch
    batch = HeteroData()
    for key, value in data._global_store.items():
        batch[key] = value
    for name in data.node_types:
        fill_nodes(data[name], batch[name], out.node[name])
    for name in data.edge_types:
        slots = None if out.edge is None else out.edge[name]
        fill_edges(data[name], batch[name], sampler, name, out.row[name], out.col[name], slots)
    batch.set_value_dict("batch", out.batch)
    batch.set_value_dict("num_sampled_nodes", out.num_sampled_nodes)
    batch.set_value_dict("num_sampled_edges", out.num_sampled_edges)
    return batch


def fill_nodes(store: BaseStorage, out: BaseStorage, n_id: Tensor) -> None:
    """Node attributes of the sampled nodes, and everything that is neither node nor edge level."""
    for key, value in raw_items(store):
        if key == "num_nodes":
            out.num_nodes = n_id.numel()
        elif key == "adj_t" or store.is_edge_attr(key):
            continue
        elif store.is_node_attr(key):
            out[key] = _select(store, key, value, n_id)
        else:
            out[key] = value
    if "n_id" not in out:
        out["n_id"] = n_id


def fill_edges(
    store: BaseStorage,
    out: BaseStorage,
    sampler: GraphSampler,
    name: EdgeType | None,
    row: Tensor,
    col: Tensor,
    slots: Tensor | None,
) -> None:
    """The sampled edges and their attributes, joined by original edge id."""
    e_id = None if slots is None else sampler.original_edge_ids(name, slots)
    for key, value in raw_items(store):
        if key == "edge_index" or (key == "adj_t" and isinstance(value, Tensor)):
            out.edge_index = torch.stack([row, col])
        elif key == "adj_t":  # torch_sparse's SparseTensor
            weight = value.storage.value()
            if weight is not None:
                weight = None if e_id is None else gather(weight, e_id)
            sizes = out.size()[::-1]
            out.adj_t = type(value)(row=col, col=row, value=weight, sparse_sizes=sizes)
        elif isinstance(value, OnDemand):
            if not store.is_edge_attr(key):
                continue
            on_disk = sampler.graph.on_disk(name) and not value.is_built
            if slots is not None and on_disk and value.rows is not None:
                out[key] = gather(value.rows, slots, sampler.num_threads)
            elif e_id is not None:
                out[key] = gather(value.value(), e_id, sampler.num_threads)
        elif store.is_edge_attr(key):
            if e_id is not None:
                out[key] = _select(store, key, value, e_id)
        elif name is not None:
            out[key] = value
    if e_id is not None and "e_id" not in out:
        out["e_id"] = e_id


def _select(store: BaseStorage, key: str, value: Any, index: Tensor) -> Any:
    if isinstance(value, OnDemand):
        rows = value.rows if value.rows is not None and not value.is_built else value.value()
        return gather(rows, index)
    dim = store._parent().__cat_dim__(key, value, store)
    if isinstance(value, Tensor) and value.is_cpu and value.layout == torch.strided and dim == 0:
        return gather(value, index)
    if isinstance(value, (list, tuple)):
        return [value[i] for i in index.tolist()]
    return index_select(value, index.to(value.device) if isinstance(value, Tensor) else index, dim)
