"""PyG's samplers that choose seeds by class, and parts by size, with loaders of ours."""

from __future__ import annotations

import pytest
import torch
from paging import paged
from torch_geometric.data import Data
from torch_geometric.loader import DynamicBatchSampler, ImbalancedSampler

import pyg_graphzero as gz
from graphs import write_store
from pyg_graphzero.loader import ClusterData, ClusterLoader, LinkNeighborLoader, NeighborLoader


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("source", ["memory", "data", "labels"])
def test_classes_come_alike(tmp_path, source, workers):
    y = (torch.arange(2000) % 20 == 0).long()  # one in twenty
    memory = Data(y=y, edge_index=torch.randint(0, 2000, (2, 6000)), num_nodes=2000)
    memory.train_mask = torch.arange(2000) >= 500
    data = memory
    if source != "memory":
        data = gz.open(write_store(memory, tmp_path / "store")).data()
    given = data.y if source == "labels" else data
    for seeds in (data.train_mask, torch.arange(1999, 500, -1), None):
        loader = NeighborLoader(
            data, [2], input_nodes=seeds, batch_size=500, num_workers=workers,
            sampler=ImbalancedSampler(given, input_nodes=seeds, num_samples=2000),
        )  # fmt: skip
        batches = list(loader)
        drawn = torch.cat([b.n_id[: b.batch_size] for b in batches])
        assert drawn.numel() == 2000
        assert torch.equal(torch.cat([b.y[: b.batch_size] for b in batches]), y[drawn])
        assert 0.44 < y[drawn].float().mean() < 0.56  # five standard deviations
        assert seeds is None or int(drawn.min()) >= 500


def test_links_by_label(store):
    labels = (torch.arange(3000) < 100).long()
    loader = LinkNeighborLoader(
        store, [2], edge_label=labels, batch_size=600, sampler=ImbalancedSampler(labels)
    )
    drawn = torch.cat([batch.edge_label for batch in loader])
    assert 0.44 < drawn.float().mean() < 0.56


@pytest.mark.parametrize("mode", ["node", "edge"])
def test_parts_by_size(data, store, mode):
    """The sampler does not know how many batches there are, which out of core is asked for."""
    cluster = torch.rand(300, generator=torch.Generator().manual_seed(1)).pow(3).mul(12).long()
    clusters = ClusterData(store, 12, partition=cluster)
    sampler = DynamicBatchSampler(clusters, 60 if mode == "node" else 300, mode)
    loader = ClusterLoader(clusters, batch_sampler=sampler, num_workers=2)
    # Not list(), which asks for the length.
    with paged():
        batches, parts = ([each for each in found] for found in (loader, sampler))  # noqa: C416
    assert sorted(torch.cat([batch.n_id for batch in batches]).tolist()) == list(range(300))
    for batch, own in zip(batches, parts, strict=True):
        assert torch.equal(batch.n_id, clusters.nodes_of(torch.tensor(own)))
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert mode == "edge" or len(own) == 1 or batch.num_nodes <= 60
