"""Node2Vec and MetaPath2Vec: PyG's, over walks of the engine."""

from __future__ import annotations

import gc
from itertools import pairwise

import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn import MetaPath2Vec as StockMetaPath2Vec
from torch_geometric.nn import Node2Vec as StockNode2Vec

import graphs
import pyg_graphzero as gz

SIZES = {"embedding_dim": 8, "walk_length": 6, "context_size": 3}
PATH = [("a", "to", "b"), ("b", "back", "a")]


def typed():
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = 20, 30
    data["a", "to", "b"].edge_index = graphs.random_edges(20, 30, 60)
    data["b", "back", "a"].edge_index = data["a", "to", "b"].edge_index.flip(0)
    return data


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


def test_metapaths(tmp_path):
    data = typed()
    gz.convert(data, tmp_path / "s", progress=False)
    sizes = {"embedding_dim": 8, "metapath": PATH, "walk_length": 4, "context_size": 3}
    stock = StockMetaPath2Vec(data.edge_index_dict, num_nodes_dict={"a": 20, "b": 30}, **sizes)
    for source in (gz.open(tmp_path / "s"), data, data.edge_index_dict):
        sized = {"num_nodes_dict": {"a": 20, "b": 30}} if isinstance(source, dict) else {}
        model = gz.nn.MetaPath2Vec(source, **sizes, **sized)
        assert model.embedding.weight.shape == stock.embedding.weight.shape
        assert torch.equal(model.offset, stock.offset)
        positive, negative = next(iter(model.loader(batch_size=20)))
        theirs, _ = next(iter(stock.loader(batch_size=20)))
        assert positive.shape == theirs.shape
        edges = set(map(tuple, data["a", "to", "b"].edge_index.t().tolist()))
        for a, b in positive[:20, :2].tolist():
            assert b == model.dummy_idx or (a, b - 20) in edges
        assert negative.max() < model.dummy_idx
        for positive, negative in model.loader(batch_size=7):
            model.loss(positive, negative).backward()
        assert model("b").shape == (30, 8)


def test_what_is_wrong_is_said(tmp_path):
    data = graphs.homogeneous()
    with pytest.raises(ValueError, match="walk_length=2, context_size=3: expected a context of 2"):
        gz.nn.Node2Vec(data, 8, 2, 3)
    with pytest.raises(ValueError, match="num_nodes: found 5, expected 300"):
        gz.nn.Node2Vec(data, 8, 4, 3, num_nodes=5)
    gz.convert(data, tmp_path / "s", progress=False)
    with pytest.raises(gz.UnsupportedError, match="create_csr"):
        gz.nn.Node2Vec(gz.open(tmp_path / "s"), 8, 4, 3)
    with pytest.raises(ValueError, match="walk_length=3: found a metapath of 1 edge types"):
        gz.nn.MetaPath2Vec(typed(), 8, PATH[:1], 3, 2)


@pytest.mark.parametrize("on_disk", [False, True])
def test_metapath2vec(tmp_path, on_disk):
    """PyG's script: authors who publish where others do come to lie near them."""
    generator = torch.Generator().manual_seed(0)
    fields = {name: torch.arange(count) % 3 for name, count in (("a", 60), ("p", 240), ("v", 6))}

    def edges(source, target, count):
        ends = torch.stack([
            torch.randint(len(fields[name]), (count,), generator=generator)
            for name in (source, target)
        ])  # fmt: skip
        same = fields[source][ends[0]] == fields[target][ends[1]]
        return ends[:, same | (torch.rand(count, generator=generator) < 0.05)]

    data = HeteroData()
    for name, field in fields.items():
        data[name].y = field
    data["a", "writes", "p"].edge_index = edges("a", "p", 1500)
    data["p", "in", "v"].edge_index = edges("p", "v", 900)
    data["v", "has", "p"].edge_index = data["p", "in", "v"].edge_index.flip(0)
    data["p", "by", "a"].edge_index = data["a", "writes", "p"].edge_index.flip(0)
    path = [("a", "writes", "p"), ("p", "in", "v"), ("v", "has", "p"), ("p", "by", "a")]
    gz.convert(data, tmp_path / "s", progress=False)
    source = gz.open(tmp_path / "s") if on_disk else data.edge_index_dict

    torch.manual_seed(0)
    model = gz.nn.MetaPath2Vec(
        source, embedding_dim=16, metapath=path, walk_length=12, context_size=5,
        walks_per_node=5, num_negative_samples=5, sparse=True,
    )  # fmt: skip
    loader = model.loader(batch_size=16, shuffle=True)
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.1)
    for _ in range(10):
        for positive, negative in loader:
            optimizer.zero_grad()
            model.loss(positive, negative).backward()
            optimizer.step()
    z = torch.nn.functional.normalize(model("a", batch=torch.arange(60)).detach(), dim=1)
    centers = torch.stack([z[:30][fields["a"][:30] == field].mean(0) for field in range(3)])
    right = (z[30:] @ centers.t()).argmax(1) == fields["a"][30:]
    assert right.float().mean() > 0.8
