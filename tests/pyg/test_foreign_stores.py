"""Feature and graph stores of somebody else, sampled here and read through their own calls."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.testing import MyFeatureStore, MyGraphStore

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous
from pyg_graphzero.loader import LinkNeighborLoader, NeighborLoader


def stores_of(data, layout, feature_store, graph_store):
    for node_type in data.node_types:
        if "x" in data[node_type]:
            feature_store.put_tensor(
                data[node_type].x, group_name=node_type, attr_name="x", index=None
            )
    for name in data.edge_types:
        row, col = data[name].edge_index
        size = (data[name[0]].num_nodes, data[name[2]].num_nodes)
        if layout == "csc":
            order = torch.argsort(col, stable=True)
            row = row[order]
            col = torch.cat([torch.zeros(1, dtype=torch.long),
                             torch.bincount(col, minlength=size[1]).cumsum(0)])  # fmt: skip
        graph_store.put_edge_index((row, col), edge_type=name, layout=layout, size=size)
    return feature_store, graph_store


@pytest.mark.parametrize("layout", ["coo", "csc"])
@pytest.mark.parametrize("kind", [MyFeatureStore, HeteroData])
def test_heterogeneous_stores(layout, kind):
    data = heterogeneous()
    del data["venue"], data["paper", "in", "venue"], data["venue", "hosts", "author"]
    graph_store = MyGraphStore() if kind is MyFeatureStore or layout == "csc" else HeteroData()
    stores = stores_of(data, layout, kind(), graph_store)
    loader = NeighborLoader(stores, [-1, -1], input_nodes=("paper", range(40)), batch_size=20)
    direct = NeighborLoader(data, [-1, -1], input_nodes=("paper", range(40)), batch_size=20)
    for batch, want in zip(loader, direct, strict=True):
        assert batch["paper"].batch_size == 20
        for node_type in ("paper", "author"):
            assert torch.equal(
                batch[node_type].n_id.sort().values, want[node_type].n_id.sort().values
            )
            assert torch.equal(batch[node_type].x, data[node_type].x[batch[node_type].n_id])
        for name in data.edge_types:
            assert batch[name].edge_index.size(1) == want[name].edge_index.size(1)


def test_homogeneous_stores():
    data = homogeneous()
    features, graph = MyFeatureStore(), MyGraphStore()
    features.put_tensor(data.x, group_name=None, attr_name="x", index=None)
    graph.put_edge_index(tuple(data.edge_index), edge_type=None, layout="coo", size=(300, 300))
    loader = NeighborLoader((features, graph), [3, 2], input_nodes=torch.arange(60), batch_size=30)
    for batch in loader:
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])


def test_times_of_stores():
    data = heterogeneous()
    del data["venue"], data["paper", "in", "venue"], data["venue", "hosts", "author"]
    features, graph = stores_of(data, "coo", MyFeatureStore(), MyGraphStore())
    features.put_tensor(torch.arange(200), group_name="paper", attr_name="time", index=None)
    loader = NeighborLoader(
        (features, graph), [5, 5], input_nodes="paper", time_attr="time", batch_size=50
    )
    for batch in loader:
        paper = batch["paper"]
        assert (paper.time <= paper.n_id[:50][paper.batch]).all()
        assert torch.equal(paper.time, paper.n_id)


@pytest.mark.parametrize("group", [None, "node", ("a", "b")])
@pytest.mark.parametrize("level", ["nodes", "edges"])
def test_times_of_homogeneous_stores(group, level):
    # A group may have any name; how many times there are tells whether they are of nodes.
    data = homogeneous()
    features, graph = MyFeatureStore(), MyGraphStore()
    graph.put_edge_index(tuple(data.edge_index), edge_type=None, layout="coo", size=(300, 300))
    times = torch.randperm(300 if level == "nodes" else 3000)
    features.put_tensor(times, group_name=group, attr_name="at", index=None)
    if level == "nodes" and isinstance(group, tuple):
        with pytest.raises(ValueError, match=r"at of None: found shape \[300\], expected 3000"):
            NeighborLoader((features, graph), [5], input_nodes=torch.arange(9), time_attr="at")
        return
    limit = torch.full((60,), times.numel() // 2)
    loader = NeighborLoader(
        (features, graph), [5, 5], input_nodes=torch.arange(60), input_time=limit, time_attr="at",
        batch_size=30,
    )  # fmt: skip
    for batch in loader:
        drawn = batch.n_id[batch.edge_index[0]] if level == "nodes" else batch.e_id
        assert drawn.numel() > 0
        assert (times[drawn] <= limit[0]).all()


def test_times_of_edges_of_stores():
    data = heterogeneous()
    del data["venue"], data["paper", "in", "venue"], data["venue", "hosts", "author"]
    cites = ("paper", "cites", "paper")
    features, graph = stores_of(data, "coo", MyFeatureStore(), MyGraphStore())
    times = torch.randperm(900)
    features.put_tensor(times, group_name=cites, attr_name="at", index=None)
    loader = NeighborLoader(
        (features, graph), [5, 5], input_nodes="paper", input_time=torch.full((200,), 400),
        time_attr="at", batch_size=50,
    )  # fmt: skip
    for batch in loader:
        assert (times[batch[cites].e_id] <= 400).all()
        assert batch["author", "writes", "paper"].e_id.numel() > 0  # has no times


def test_times_that_are_not_there():
    data = homogeneous()
    features, graph = MyFeatureStore(), MyGraphStore()
    graph.put_edge_index(tuple(data.edge_index), edge_type=None, layout="coo", size=(300, 300))
    given = {"input_nodes": torch.arange(9), "time_attr": "time"}
    with pytest.raises(ValueError, match="time_attr='time': found it in no node or edge type"):
        NeighborLoader((features, graph), [5], **given)
    features.put_tensor(torch.arange(7), group_name="node", attr_name="time", index=None)
    with pytest.raises(ValueError, match="'time' of None: found 7 times, expected 300"):
        NeighborLoader((features, graph), [5], **given)
    features.put_tensor(torch.arange(300), group_name="other", attr_name="time", index=None)
    with pytest.raises(ValueError, match=r"in the groups \['node', 'other'\] of a homogeneous"):
        NeighborLoader((features, graph), [5], **given)


def test_links_of_stores():
    data = heterogeneous()
    del data["venue"], data["paper", "in", "venue"], data["venue", "hosts", "author"]
    stores = stores_of(data, "coo", MyFeatureStore(), MyGraphStore())
    name = ("author", "writes", "paper")
    loader = LinkNeighborLoader(stores, [3], edge_label_index=(name, None), batch_size=50)
    batch = next(iter(loader))
    ends = batch[name].edge_label_index
    got = torch.stack([batch["author"].n_id[ends[0]], batch["paper"].n_id[ends[1]]])
    assert torch.equal(got, data[name].edge_index[:, :50])


def test_what_they_cannot_do():
    data = homogeneous()
    features, graph = MyFeatureStore(), MyGraphStore()
    graph.put_edge_index(tuple(data.edge_index), edge_type=None, layout="coo", size=(300, 300))
    with pytest.raises(gz.UnsupportedError, match="stores of another package, with weights"):
        NeighborLoader((features, graph), [3], input_nodes=torch.arange(9), weight_attr="w")
    with pytest.raises(IndexError, match="found node 300"):
        next(iter(NeighborLoader((features, graph), [3], input_nodes=torch.tensor([300]))))
    small = MyGraphStore()
    small.put_edge_index(tuple(data.edge_index), edge_type=None, layout="coo")
    with pytest.raises(ValueError, match="graph store: found no size"):
        NeighborLoader((features, small), [3], input_nodes=torch.arange(9))
