"""Graphs for the tests, and definitions to hold results against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NodeSamplerInput

import pyg_graphzero as gz


def random_edges(num_src: int, num_dst: int, num_edges: int, seed: int = 0) -> Tensor:
    """Edges with hubs, duplicates, self-loops, and isolated trailing nodes."""
    generator = torch.Generator().manual_seed(seed)
    last_src, last_dst = max(1, num_src - num_src // 10), max(1, num_dst - num_dst // 10)
    src = torch.rand(num_edges, generator=generator).pow(2).mul(last_src).long()
    dst = torch.rand(num_edges, generator=generator).pow(3).mul(last_dst).long()
    return torch.stack([src, dst])


def homogeneous(num_nodes: int = 300, num_edges: int = 3000, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed + 1)
    return Data(
        x=torch.randn(num_nodes, 8, generator=generator),
        y=torch.randint(0, 5, (num_nodes,), generator=generator),
        train_mask=torch.rand(num_nodes, generator=generator) < 0.3,
        train_idx=torch.randperm(num_nodes, generator=generator)[:50],
        edge_index=random_edges(num_nodes, num_nodes, num_edges, seed),
        edge_attr=torch.randn(num_edges, 3, generator=generator),
        num_nodes=num_nodes,
    )


def heterogeneous(seed: int = 0) -> HeteroData:
    generator = torch.Generator().manual_seed(seed + 1)
    data = HeteroData()
    data["paper"].x = torch.randn(200, 8, generator=generator)
    data["paper"].y = torch.randint(0, 4, (200,), generator=generator)
    data["paper"].train_mask = torch.rand(200, generator=generator) < 0.4
    data["author"].x = torch.randn(120, 5, generator=generator).half()
    data["venue"].num_nodes = 7  # no features
    data["paper", "cites", "paper"].edge_index = random_edges(200, 200, 900, seed)
    data["author", "writes", "paper"].edge_index = random_edges(120, 200, 600, seed + 1)
    data["author", "writes", "paper"].edge_attr = torch.randn(600, 2, generator=generator)
    data["paper", "rev_writes", "author"].edge_index = data[
        "author", "writes", "paper"
    ].edge_index.flip(0)
    data["paper", "in", "venue"].edge_index = random_edges(200, 7, 150, seed + 2)
    data["venue", "hosts", "author"].edge_index = torch.empty(2, 0, dtype=torch.long)
    return data


def star(degree: int, **attrs: Tensor) -> Data:
    """Edges 0 … degree-1, all into node 0."""
    edge_index = torch.stack([torch.arange(degree), torch.zeros(degree, dtype=torch.long)])
    return Data(edge_index=edge_index, num_nodes=degree, **attrs)


def sample(sampler: Any, seeds: Any, times: Any = None, key: Any = 7, node_type: Any = None) -> Any:
    """The output of a sampler for seeds that are a tensor or a list."""
    seeds = seeds if isinstance(seeds, Tensor) else torch.tensor(seeds, dtype=torch.long)
    times = None if times is None else torch.as_tensor(times)
    inputs = NodeSamplerInput(torch.arange(len(seeds)), seeds, times, node_type)
    return sampler.sample_from_nodes(inputs, key=key)


def write_store(data: Data | HeteroData, path: Path) -> Path:
    gz.convert(data, path, progress=False)
    return path


def check_rows(batch: Any, data: Any, *without: str, turned: bool = False) -> None:
    """Rows of a batch are those of its nodes and edges, and its edges join the nodes they join.

    Args:
        batch: Batch with ``n_id``; edges without ``e_id`` are left out.
        data: Graph that it is of.
        without: Attributes that are not by node or edge in a batch.
        turned: Whether edges may lie the other way round.
    """
    for whole in data.stores:
        name, is_typed = whole._key, isinstance(data, HeteroData)
        if is_typed and name is None:
            continue
        found = batch[name] if is_typed else batch
        for key in {*whole.keys()} - {*without, "edge_index", "num_nodes"}:
            if whole.is_node_attr(key):
                assert torch.equal(found[key], whole[key][found.n_id]), (name, key)
            elif whole.is_edge_attr(key) and "e_id" in found:
                assert torch.equal(found[key], whole[key][found.e_id]), (name, key)
        if "edge_index" in whole and "e_id" in found and not turned:
            ends = (batch[name[0]], batch[name[2]]) if is_typed else (batch, batch)
            pairs = [end.n_id[ids] for end, ids in zip(ends, found.edge_index, strict=True)]
            assert torch.equal(torch.stack(pairs), whole.edge_index[:, found.e_id]), name


def check_neighborhood(
    row: Tensor,
    col: Tensor,
    e_id: Tensor,
    src_ids: Tensor,
    dst_ids: Tensor,
    edge_index: Tensor,
    fanouts: list[int],
    num_dst_per_hop: list[int],
    num_edges_per_hop: list[int],
    replace: bool = False,
) -> None:
    """Checks a sample of one edge type against the definition, edge by edge.

    Args:
        row: Sampled sources, positions in ``src_ids``.
        col: Sampled destinations, positions in ``dst_ids``.
        e_id: Original ids of the sampled edges.
        src_ids: Global ids of the sampled source nodes.
        dst_ids: Global ids of the sampled destination nodes.
        edge_index: All edges, ``[2, num_edges]``.
        fanouts: Neighbours per hop, -1 for all.
        num_dst_per_hop: How many destination nodes each hop's frontier has.
        num_edges_per_hop: How many edges each hop sampled.
        replace: Whether draws repeat.
    """
    assert torch.equal(src_ids[row], edge_index[0, e_id])
    assert torch.equal(dst_ids[col], edge_index[1, e_id])
    assert sum(num_edges_per_hop) == row.numel()
    degree = torch.bincount(edge_index[1], minlength=int(dst_ids.max()) + 1 if len(dst_ids) else 0)
    first_edge, first_node = 0, 0
    for k, num_dst, num_edges in zip(fanouts, num_dst_per_hop, num_edges_per_hop, strict=False):
        hop = slice(first_edge, first_edge + num_edges)
        frontier = torch.arange(first_node, first_node + num_dst)
        assert (col[hop].diff() >= 0).all()  # grouped by destination
        counts = torch.bincount(col[hop], minlength=first_node + num_dst)[first_node:]
        assert counts.numel() == num_dst  # none outside the frontier
        available = degree[dst_ids[frontier]]
        if k < 0:
            expected = available
        elif replace:
            expected = torch.where(available > 0, k, 0)
        else:
            expected = available.clamp(max=k)
        assert torch.equal(counts, expected)
        if not replace:
            pairs = torch.stack([col[hop], e_id[hop]])
            assert pairs.unique(dim=1).size(1) == num_edges
        first_edge += num_edges
        first_node += num_dst
