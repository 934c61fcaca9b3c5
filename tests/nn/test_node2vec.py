"""Node2Vec: PyG's, over walks of the engine."""

from __future__ import annotations

import gc
from itertools import pairwise

import pytest
import torch
from torch_geometric.nn import Node2Vec as StockNode2Vec

import graphs
import pyg_graphzero as gz

SIZES = {"embedding_dim": 8, "walk_length": 6, "context_size": 3}


def test_samples_are_windows_of_walks():
    data = graphs.homogeneous()
    model = gz.nn.Node2Vec(data, **SIZES, walks_per_node=2, num_negative_samples=3)
    positive, negative = model.sample([1, 2, 3])
    runs = 6 - 3 + 1
    assert positive.shape == (3 * 2 * runs, 3)
    assert negative.shape == (3 * 2 * 3 * runs, 3)
    edges = set(map(tuple, data.edge_index.t().tolist()))
    for row in positive.tolist():
        for step in pairwise(row):
            assert step in edges or step[0] == step[1]  # a walk that ended stays
    # In PyG's order: all first windows, then all second ones.
    assert positive[:6, 0].tolist() == [1, 2, 3] * 2
    assert torch.equal(positive[:-6, 1:], positive[6:, :-1])
    assert negative[:18, 0].tolist() == [1, 2, 3] * 6


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_depend_on_the_seed_alone(shuffle):
    model = gz.nn.Node2Vec(graphs.homogeneous().edge_index, **SIZES, num_nodes=300)
    loader = model.loader(batch_size=128, shuffle=shuffle)
    assert len(loader) == 3
    epochs = []
    for _ in range(2):
        torch.manual_seed(5)
        batches = [(*batch, torch.rand(1)) for batch in loader]  # a model draws, too
        epochs.append(batches)
    assert [len(batch[0]) for batch in epochs[0]] == [128 * 4, 128 * 4, 44 * 4]
    for one, other in zip(*epochs, strict=True):
        assert all(map(torch.equal, one, other))
    assert len([*model.loader(batch_size=100, num_workers=1)]) == 3


def test_persistent_workers_end_with_their_loader():
    """At once. The garbage collector would end them too late to be told: they would be killed."""
    model = gz.nn.Node2Vec(graphs.homogeneous().edge_index, **SIZES, num_nodes=300)
    loader = model.loader(batch_size=100, num_workers=2, persistent_workers=True)
    assert len(list(loader)) == 3
    workers = loader._iterator._workers
    gc.disable()
    try:
        del loader
        assert [worker.exitcode for worker in workers] == [0, 0]
    finally:
        gc.enable()


def test_it_learns_from_a_store_as_pygs_does(tmp_path):
    """Two cliques: neighbours come to lie closer than others."""
    clique = torch.combinations(torch.arange(10)).t()
    edge_index = torch.cat([clique, clique.flip(0), clique + 10, clique.flip(0) + 10], dim=1)
    gz.convert(edge_index, tmp_path / "s", progress=False)
    for model in (
        gz.nn.Node2Vec(gz.open(tmp_path / "s"), 16, 10, 5, walks_per_node=5, p=0.5, q=2.0),
        StockNode2Vec(edge_index, 16, 10, 5, walks_per_node=5)
        if hasattr(torch.ops.pyg, "random_walk")
        else gz.nn.Node2Vec(edge_index, 16, 10, 5, walks_per_node=5),
    ):
        torch.manual_seed(0)
        model.reset_parameters()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(30):
            for positive, negative in model.loader(batch_size=20, shuffle=True):
                optimizer.zero_grad()
                model.loss(positive, negative).backward()
                optimizer.step()
        z = torch.nn.functional.normalize(model().detach(), dim=1)
        near = z @ z.t()
        assert near[:10, :10].mean() > near[:10, 10:].mean() + 0.3


def test_wrong_arguments_are_refused(tmp_path):
    data = graphs.homogeneous()
    with pytest.raises(ValueError, match="walk_length=2, context_size=3: expected a context of 2"):
        gz.nn.Node2Vec(data, 8, 2, 3)
    with pytest.raises(ValueError, match="num_nodes: found 5, expected 300"):
        gz.nn.Node2Vec(data, 8, 4, 3, num_nodes=5)
    gz.convert(data, tmp_path / "s", progress=False)
    with pytest.raises(gz.UnsupportedError, match="create_csr"):
        gz.nn.Node2Vec(gz.open(tmp_path / "s"), 8, 4, 3)
