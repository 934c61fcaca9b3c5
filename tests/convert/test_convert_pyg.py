"""PyG objects: what goes in comes out, level by level, or is refused by name."""

from __future__ import annotations

import warnings

import chunks
import pytest
import torch
from convert_support import converted, edges_of, refused
from differential import difference
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import ToUndirected

import pyg_graphzero as gz

EDGE_INDEX = torch.tensor([[0, 1, 2, 3, 3], [1, 2, 3, 0, 0]])


def full_data() -> Data:
    """Node, edge and graph attributes, masks and sets; nodes 4 and 5 are isolated."""
    return Data(
        x=torch.randn(6, 2),
        edge_index=EDGE_INDEX,
        y=torch.arange(6),
        train_mask=torch.tensor([1, 0, 1, 0, 1, 0], dtype=torch.bool),
        train_idx=torch.tensor([5, 1]),
        edge_attr=torch.arange(10.0).reshape(5, 2).bfloat16(),
        edge_time=torch.arange(5),
        graph_label=torch.zeros(1, 3),
        edge_label_index=torch.zeros(2, 4, dtype=torch.int64),
        scale=torch.tensor(2.5),
        name="toy",
        version=3,
    )


def full_hetero() -> HeteroData:
    data = HeteroData()
    data["paper"].x = torch.randn(3, 2)
    data["paper"].train_idx = torch.tensor([2])
    data["author"].num_nodes = 4
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 3], [2, 1, 2]])
    data["author", "writes", "paper"].time = torch.tensor([5, 6, 7])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 2], [1, 1]])
    data["paper", "like", "paper"].edge_index = torch.empty(2, 0, dtype=torch.int64)
    data["paper", "like", "paper"].edge_attr = torch.empty(0, 4)
    data.year = 2024
    return data


@chunks.both
def test_data_round_trip(tmp_path):
    data = full_data()
    summary = gz.convert(data, tmp_path / "s")
    assert not difference(gz.open(tmp_path / "s").data(), data)
    assert summary.nodes[None].isolated == 2
    assert summary.info["node_types"][0]["index_sets"]["train_idx"]["shape"] == [2]
    assert summary.edges[None].duplicates == 1
    names = {"graph_label", "edge_label_index", "scale", "name", "version"}
    assert {*summary.info["graph_attrs"]} == names
    assert "6 nodes, 2 without edges" in str(summary)


@chunks.both
def test_hetero_round_trip(tmp_path):
    data = full_hetero()
    summary = gz.convert(data, tmp_path / "s")
    assert not difference(gz.open(tmp_path / "s").data(), data)
    assert summary.nodes["author"].isolated == 1
    assert summary.edges["author", "writes", "paper"].self_loops == 0


def test_hetero_undirected_is_what_pyg_makes(tmp_path):
    data = full_hetero()
    gz.convert(data, tmp_path / "s", undirected=True, coalesce="first")
    want = ToUndirected()(data)
    got = gz.open(tmp_path / "s").data()
    assert set(got.edge_types) == set(want.edge_types)
    for edge_type in want.edge_types:
        edges = {tuple(pair) for pair in want[edge_type].edge_index.T.tolist()}
        assert set(edges_of(tmp_path / "s", edge_type)) == edges
    reverse = ("paper", "rev_writes", "author")
    assert edges_of(tmp_path / "s", reverse, "time") == [(2, 0, 5), (1, 1, 6), (2, 3, 7)]
    refused(want, tmp_path / "t", "rev_writes", error=ValueError, undirected=True)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_adj_t(tmp_path, layout):
    src, dst = torch.tensor([0, 1, 2, 3, 1]), torch.tensor([1, 2, 3, 0, 0])
    weight = torch.arange(5.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its sparse layouts a beta
        adj = torch.sparse_coo_tensor(torch.stack([dst, src]), weight, (4, 4))
        if layout == "csr":
            adj = adj.to_sparse_csr()
        elif layout == "csc":
            adj = adj.to_sparse_csc()
    gz.convert(Data(x=torch.randn(4, 1), adj_t=adj), tmp_path / "s")
    want = list(zip(src.tolist(), dst.tolist(), weight.tolist(), strict=True))
    assert sorted(edges_of(tmp_path / "s", None, "edge_weight")) == sorted(want)


def test_adj_t_of_torch_sparse(tmp_path):
    torch_sparse = pytest.importorskip("torch_sparse")
    adj = torch_sparse.SparseTensor(row=EDGE_INDEX[1], col=EDGE_INDEX[0], sparse_sizes=(6, 6))
    gz.convert(Data(x=torch.randn(6, 1), adj_t=adj), tmp_path / "s")
    assert sorted(edges_of(tmp_path / "s")) == sorted(map(tuple, EDGE_INDEX.T.tolist()))


def test_number_of_nodes(tmp_path):
    def count(data):
        summary = gz.convert(data, tmp_path / "s", force=True)
        return summary.num_nodes, summary.notes

    assert count(Data(edge_index=EDGE_INDEX)) == (4, ["num_nodes is not set: 4 by the edges"])
    assert count(Data(edge_index=EDGE_INDEX, num_nodes=9)) == (9, [])
    assert count(Data(edge_index=EdgeIndex(EDGE_INDEX, sparse_size=(7, 7)))) == (7, [])
    assert count(Data(x=torch.randn(3, 1))) == (3, [])
    hetero = HeteroData()
    hetero["a", "to", "b"].edge_index = torch.tensor([[2], [4]])
    summary = gz.convert(hetero, tmp_path / "s", force=True)
    assert {name: node.num_nodes for name, node in summary.nodes.items()} == {"a": 3, "b": 5}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"foo": [1, 2]}, "Data: foo: found list, expected a tensor. Leave it out with"),
        ({"foo": {"a": 1}}, "Data: foo: found dict, expected a tensor"),
        ({"foo": torch.eye(6).to_sparse()}, "Data: foo: found a tensor of layout torch.sparse_coo"),
        ({"foo": torch.zeros(6, dtype=torch.complex64)}, "Data: foo: found torch.complex64"),
        ({"edge_attr": torch.zeros(3)}, "Data: edge_attr: found shape [3], expected 5 rows, one"),
        ({"num_nodes": 3, "x": None}, "Data: src[3]: found id 3, expected an id below 3"),
        ({"edge_index": torch.tensor([[0, -1], [1, 1]])},
         "Data: src[1]: found id -1, expected an id of 0 or more"),
        ({"edge_index": EDGE_INDEX.float()}, "Data: edge_index: found float32, expected int64"),
        ({"edge_index": EDGE_INDEX[0]}, "Data: edge_index: found shape [5], expected shape [2,"),
    ],
)  # fmt: skip
def test_data_that_cannot_be_stored_is_refused(tmp_path, changes, message):
    data = full_data()
    if "edge_index" in changes:
        del data.edge_attr, data.edge_time
    data.num_nodes = 6
    if "x" in changes:
        for name in ("y", "train_mask", "train_idx", "x"):
            del data[name]
    for name, value in changes.items():
        data[name] = value
    error = refused(data, tmp_path / "s")
    assert error.startswith(message)
    if "foo" in changes:
        assert "foo" not in converted(data, tmp_path / "s", skip=["foo"])


def test_hetero_refusals(tmp_path):
    data = full_hetero()
    data["paper"].bad = torch.zeros(7)
    refused(data, tmp_path / "s", r"HeteroData\['paper'\]: bad: found shape \[7\], expected 3")
    gz.convert(data, tmp_path / "s", skip=["paper.bad"])
    del data["paper"].bad
    data["paper", "cites", "paper"].label = torch.zeros(3)
    refused(data, tmp_path / "t", r"label: found shape \[3\], expected 2 rows, one per edge")
    gz.convert(data, tmp_path / "t", skip=["paper,cites,paper.label"])


def test_the_input_object_is_left_alone(tmp_path):
    data = full_data()
    before = data.to_dict()
    gz.convert(data, tmp_path / "s", undirected=True, self_loops="add", skip=["edge_label_index"])
    assert data.to_dict().keys() == before.keys()
    assert torch.equal(data.edge_index, EDGE_INDEX)
