"""Loaders of induced subgraphs: random nodes, and parts of a graph, against PyG's definitions."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
import torch_geometric.loader
from torch_geometric.data import Batch, Data
from torch_geometric.utils import subgraph

import pyg_graphzero as gz
from graphs import check_rows, write_store
from pyg_graphzero.loader import ClusterData, ClusterLoader, RandomNodeLoader


def check(batch, data):
    """All edges among the nodes, each once, and the attributes of both."""
    check_rows(batch, data)
    _, _, mask = subgraph(batch.n_id, data.edge_index, num_nodes=300, return_edge_mask=True)
    assert sorted(batch.e_id.tolist()) == mask.nonzero().view(-1).tolist()
    assert batch.num_nodes == batch.n_id.numel()


def as_edges(batch):
    """A batch's edges with their attributes, sorted, so that their order does not matter."""
    rows = torch.cat([batch.edge_index.t().double(), batch.edge_attr.double()], dim=1)
    return sorted(map(tuple, rows.tolist()))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("source", ["memory", "store"])
def test_random_nodes(data, store, source, workers):
    given = data if source == "memory" else store
    loader = RandomNodeLoader(given, num_parts=7, shuffle=True, num_workers=workers)
    assert isinstance(loader, torch_geometric.loader.RandomNodeLoader)
    batches = list(loader)
    assert len(batches) == len(loader) == 7
    for batch in batches:
        check(batch, data)
    assert sorted(torch.cat([b.n_id for b in batches]).tolist()) == list(range(300))


def test_random_nodes_are_pygs(data, store):
    torch.manual_seed(5)
    mine = list(RandomNodeLoader(store, num_parts=4, shuffle=True))
    torch.manual_seed(5)
    theirs = list(torch_geometric.loader.RandomNodeLoader(data, num_parts=4, shuffle=True))
    for a, b in zip(mine, theirs, strict=True):
        assert set(a.keys()) - set(b.keys()) == {"n_id", "e_id"}
        assert set(b.keys()) <= set(a.keys())
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.train_idx, b.train_idx)
        assert as_edges(a) == as_edges(b)


@pytest.mark.parametrize("source", ["memory", "store"])
def test_random_nodes_of_types(hetero, source):
    data, store = hetero
    loader = RandomNodeLoader(data if source == "memory" else store, num_parts=3, shuffle=True)
    for batch in loader:
        chosen = {name: batch[name].n_id for name in data.node_types}
        want = data.subgraph(chosen)
        for name in data.node_types:
            assert batch[name].num_nodes == want[name].num_nodes
        assert torch.equal(batch["paper"].x, want["paper"].x)
        for name in data.edge_types:
            found, expected = (each[name].edge_index.t().tolist() for each in (batch, want))
            assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("sparse_format", ["csr", "csc"])
@pytest.mark.parametrize("source", ["memory", "store"])
def test_clusters_are_pygs(data, store, source, sparse_format, monkeypatch):
    """Clusters of one partition have PyG's parts, nodes and edges."""
    part = torch.randint(0, 8, (300,), generator=torch.Generator().manual_seed(2))
    stock = torch_geometric.loader.ClusterData
    known = copy.copy(data)
    known.n_id = torch.arange(300)
    with monkeypatch.context() as patch:
        patch.setattr(stock, "_metis", lambda *_: part)
        theirs = stock(known, 8, sparse_format=sparse_format, log=False)
    given = data if source == "memory" else store
    mine = ClusterData(given, 8, sparse_format=sparse_format, partition=part)
    assert isinstance(mine, stock)
    assert len(mine) == len(theirs) == 8
    assert torch.equal(mine.partition.partptr, theirs.partition.partptr)

    def same(a, b):  # PyG's order of nodes within a part is any
        assert set(a.keys()) - set(b.keys()) == {"e_id"}
        assert set(b.keys()) <= set(a.keys())
        here, there = a.n_id.argsort(), b.n_id.argsort()
        for key in ("n_id", "x", "y", "train_mask"):
            assert torch.equal(a[key][here], b[key][there])
        for each in (a, b):
            each.edge_index = each.n_id[each.edge_index]
        assert as_edges(a) == as_edges(b)

    for i in range(8):
        assert torch.equal(mine[i].n_id, (part == i).nonzero().view(-1))
        check(mine[i], data)
        same(mine[i], theirs[i])
    assert torch.equal(mine[-1].n_id, mine[7].n_id)
    torch.manual_seed(3)
    ours = list(ClusterLoader(mine, batch_size=3, shuffle=True))
    torch.manual_seed(3)
    stocks = torch_geometric.loader.ClusterLoader(theirs, batch_size=3, shuffle=True)
    for a, b in zip(ours, stocks, strict=True):
        check(a, data)
        same(a, b)


def cliques(count=6, size=20):
    """A ring of cliques, edges one way; and their nodes, clique by clique."""
    pairs = torch.combinations(torch.arange(size)).t()
    edges = torch.cat([pairs + size * i for i in range(count)], dim=1)
    bridges = torch.arange(count) * size
    edges = torch.cat([edges, torch.stack([bridges, bridges.roll(1)])], dim=1)
    place = torch.randperm(count * size, generator=torch.Generator().manual_seed(0))
    return Data(edge_index=place[edges], x=torch.randn(count * size, 4)), place


@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.parametrize("source", ["memory", "store"])
def test_metis_finds_communities(source, recursive, tmp_path):
    data, place = cliques()
    given = data if source == "memory" else gz.open(write_store(data, tmp_path / "store"))
    parts = ClusterData(given, 6, recursive=recursive, save_dir=str(tmp_path))
    for clique in place.view(6, 20):
        assert parts.cluster[clique].unique().numel() == 1
    folder = "part_6_recursive" if recursive else "part_6"
    kept = torch.load(tmp_path / folder / "clusters.pt")
    assert torch.equal(kept, parts.cluster)
    torch.save(kept.roll(1), tmp_path / folder / "clusters.pt")
    again = ClusterData(given, 6, recursive=recursive, save_dir=str(tmp_path))
    assert torch.equal(again.cluster, kept.roll(1))


def test_without_metis(homo, monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match=r"found no METIS, expected pymetis \(pip install"):
        ClusterData(homo[1], 4)


@pytest.mark.parametrize("num_parts", [1, 7, 299, 300])
@pytest.mark.parametrize("source", ["memory", "store"])
def test_ranges_are_of_nodes_and_of_like_size(data, store, source, num_parts):
    given = data if source == "memory" else store
    clusters = ClusterData(given, num_parts, partition="ranges")
    sizes = clusters.partition.partptr.diff()
    assert int(sizes.sum()) == 300
    assert sizes.max() - sizes.min() <= 1
    assert torch.equal(clusters.cluster, torch.arange(num_parts).repeat_interleave(sizes))
    assert clusters[num_parts - 1].n_id.tolist() == list(range(300 - int(sizes[-1]), 300))


def test_a_partition_is_a_column(store):
    part = ClusterData(store, 5, partition="ranges").cluster
    store.close()
    with gz.open(store.path, mode="r+") as writable:
        writable.feature_store.put_tensor(part, group_name=None, attr_name="part", index=None)
    clusters = ClusterData(gz.open(store.path), 5, partition="part")
    assert torch.equal(clusters.cluster, part)
    assert (clusters[2].part == 2).all()


def test_bad_partitions(store, hetero):
    for error, words, data, given in (
        (TypeError, "found a heterogeneous graph, expected a homogeneous", hetero[1], {}),
        (ValueError, r"partition\[1\]: found part 4, expected 0 <= part < 4", store,
         {"partition": torch.tensor([0, 4] * 150)}),
        (ValueError, "expected an integer for each of 300", store, {"partition": torch.ones(3)}),
        (KeyError, "partition='no': found no such attribute", store, {"partition": "no"}),
        (gz.UnsupportedError, "clust.*: found True", store, {"keep_inter_cluster_edges": True}),
        (ValueError, "num_parts: found 0, expected 1 or more", store, {"num_parts": 0}),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            ClusterData(data, **{"num_parts": 4, **given})
    with pytest.raises(ValueError, match="num_parts: found 0, expected 1 or more"):
        RandomNodeLoader(store, 0)
    with pytest.raises(TypeError, match=r"expected gz\.loader\.ClusterData"):
        ClusterLoader(store)
    with pytest.raises(IndexError, match="part: found 4, expected 0 <= part < 4"):
        ClusterData(store, 4, partition="ranges")[4]


@pytest.mark.parametrize("source", ["memory", "store"])
def test_one_graph_made_of_several(tmp_path, source):
    """Every node comes once an epoch, with its graph, as in PyG's script for PPI."""
    whole = Batch.from_data_list(
        [
            Data(x=torch.randn(50, 3), edge_index=torch.randint(0, 50, (2, 400)), y=torch.rand(50))
            for _ in range(4)
        ]
    )
    given = whole
    if source == "store":
        given = gz.open(write_store(whole, tmp_path / "store")).data()
    clusters = ClusterData(given, num_parts=12, recursive=False, save_dir=str(tmp_path))
    nodes = []
    for data in ClusterLoader(clusters, batch_size=1, shuffle=True, num_workers=2):
        assert torch.equal(data.y, whole.y[data.n_id])
        assert torch.equal(data.batch, whole.batch[data.n_id])
        nodes.append(data.n_id)
    assert torch.cat(nodes).sort().values.tolist() == list(range(200))
