"""ShaDowKHopSampler: each seed's own subgraph, by definition."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.loader
from torch_geometric.data import Batch
from torch_geometric.utils import k_hop_subgraph, subgraph

from graphs import check_rows
from pyg_graphzero.loader import ShaDowKHopSampler


def trees(batch):
    for tree in range(batch.ptr.numel() - 1):
        yield tree, slice(int(batch.ptr[tree]), int(batch.ptr[tree + 1]))


@pytest.mark.parametrize("source", ["store", "memory"])
@pytest.mark.parametrize("replace", [False, True])
def test_every_subgraph_is_induced_and_whole(data, store, source, replace):
    loader = ShaDowKHopSampler(
        store if source == "store" else data, depth=2, num_neighbors=3,
        node_idx=data.train_mask, replace=replace, batch_size=16,
    )  # fmt: skip
    assert isinstance(loader, torch_geometric.loader.ShaDowKHopSampler)
    seeds = data.train_mask.nonzero().view(-1)
    for i, batch in enumerate(loader):
        assert isinstance(batch, Batch)
        roots = seeds[16 * i : 16 * i + 16]
        assert torch.equal(batch.n_id[batch.root_n_id], roots)
        assert torch.equal(batch.y, data.y[roots])
        check_rows(batch, data, "y")
        assert batch.num_graphs == roots.numel()
        ends = batch.batch[batch.edge_index]
        assert torch.equal(ends[0], ends[1])
        for tree, nodes in trees(batch):
            assert (batch.batch[nodes] == tree).all()
            inside = batch.n_id[nodes]
            reach, *_ = k_hop_subgraph(int(roots[tree]), 2, data.edge_index, num_nodes=300)
            assert inside.unique().numel() == inside.numel()
            assert torch.isin(inside, reach).all()
            _, _, mask = subgraph(inside, data.edge_index, num_nodes=300, return_edge_mask=True)
            assert sorted(batch.e_id[ends[0] == tree].tolist()) == mask.nonzero().view(-1).tolist()


def test_all_neighbors_is_the_whole_neighborhood(data, store):
    batch = next(iter(ShaDowKHopSampler(store, depth=2, num_neighbors=-1, batch_size=20)))
    for tree, nodes in trees(batch):
        reach, *_ = k_hop_subgraph(tree, 2, data.edge_index, num_nodes=300)
        assert sorted(batch.n_id[nodes].tolist()) == reach.tolist()


def test_bad_input(homo, hetero):
    with pytest.raises(TypeError, match="found a heterogeneous graph, expected a homogeneous one"):
        ShaDowKHopSampler(hetero[1], 2, 3)
    with pytest.raises(IndexError, match="found node 300"):
        ShaDowKHopSampler(homo[1], 2, 3, node_idx=[300])
    with pytest.raises(ValueError, match="found -2, expected a count"):
        ShaDowKHopSampler(homo[1], 2, -2)
    with pytest.raises(ValueError, match="depth: found -1, expected 0 or more"):
        ShaDowKHopSampler(homo[1], -1, 2)
