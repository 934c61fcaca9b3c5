"""Stores written by released versions of the format stay readable, and are written the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from golden.make import make

import pyg_graphzero as gz

ALL = Path(__file__).parents[1] / "golden"
GOLDEN = ALL / "v1"
RATES, NEAR = ("author", "rates", "venue"), ("venue", "near", "venue")


def test_hetero_nodes():
    data = gz.open(GOLDEN / "hetero").data()
    assert data.node_types == ["paper", "author", "venue"]
    assert [data[t].num_nodes for t in data.node_types] == [8, 5, 3]
    paper = data["paper"]
    assert sorted(paper.keys()) == sorted(
        ["x", "half", "brain", "mask", "nothing", "topic", "train_idx", "num_nodes"]
    )
    assert paper.topic.tolist() == [1, 0, -1, 2, 1, 1, 0, -1]
    assert gz.open(GOLDEN / "hetero").categories("topic", "paper")[:] == ["", "Käse", "李"]
    assert (paper.x.dtype, paper.x.shape, paper.x.stride()) == (torch.float32, (8, 125), (128, 1))
    assert all(paper.x[i, j] == i + j / 128 for i in range(8) for j in range(125))
    assert (paper.half.dtype, paper.half.shape) == (torch.float16, (8, 2, 3))
    assert paper.half[3].tolist() == [[4.5, 4.75, 5.0], [5.25, 5.5, 5.75]]
    assert paper.brain.dtype == torch.bfloat16
    assert paper.brain.tolist() == [0, 1000, 2000, 3008, 4000, 4992, 6016, 7008]
    assert paper.mask.tolist() == [True, False, False, True, False, False, True, False]
    assert (paper.nothing.dtype, paper.nothing.shape) == (torch.float32, (8, 0))
    assert paper.train_idx.tolist() == [6, 0, 3]
    author = data["author"]
    for half in (author["by float16"], author["by bfloat16"]):
        assert half.dtype == torch.float32
        assert half.tolist() == [[i, -i / 2, 0] for i in range(5)]
    codes = torch.tensor([0, 63, 127, 190, 254])
    assert torch.allclose(author["by int8"][:, 0], codes * (4 / 254))
    assert list(data["venue"].keys()) == ["country", "num_nodes"]


def test_hetero_edges():
    store = gz.open(GOLDEN / "hetero")
    data = store.data()
    cites, writes, likes, *others = data.edge_types
    assert others == [RATES, NEAR]
    assert cites == ("paper", "cites", "paper")
    assert data[cites].edge_index.tolist() == [[1, 0, 0, 2, 0, 5, 4], [3, 1, 1, 2, 1, 0, 3]]
    assert data[cites].time.dtype == torch.int16
    assert data[cites].time.tolist() == [0, 10, 20, 30, 40, 50, 60]
    assert data[cites].why.tolist() == [0, 1, 1, 0, 1, 0, 0]
    assert store.categories("why", cites)[:] == ["extends", "refutes"]
    assert data[writes].edge_index.tolist() == [[4, 0, 1], [0, 2, 5]]
    assert data[likes].edge_index.shape == (2, 0)
    indices, indptr, perm = store.graph_store.csc()
    assert indptr[cites].tolist() == [0, 1, 4, 5, 7, 7, 7, 7, 7]
    assert indices[cites].tolist() == [5, 0, 0, 0, 2, 1, 4]
    assert perm[cites].tolist() == [5, 1, 2, 4, 3, 0, 6]
    assert indptr[likes].tolist() == [0, 0, 0, 0]


def test_edges_by_time_and_in_both_directions():
    store = gz.open(GOLDEN / "hetero")
    data = store.data()
    assert data[RATES].edge_index.tolist() == [[0, 1, 2, 0, 3, 4], [1, 1, 1, 0, 1, 0]]
    assert data[RATES].when.tolist() == [5, 3, 4, 1, 3, 2]
    indices, indptr, perm = store.graph_store.csc()
    assert (indptr[RATES].tolist(), indices[RATES].tolist()) == ([0, 2, 6, 6], [0, 4, 1, 3, 2, 0])
    assert perm[RATES].tolist() == [3, 5, 1, 4, 2, 0]
    record = store.contents.edge_type(RATES)
    assert record.time_order == "when"
    slots = store.contents.csr_slot(RATES)
    assert slots is not None
    assert slots.tolist() == [0, 5, 2, 4, 3, 1]


def test_edges_without_ids():
    """The edges of the input, then the reverse ones, without those there are."""
    store = gz.open(GOLDEN / "hetero")
    assert store.info()["flags"] == ["edge_ids_absent"]
    indptr, indices = store.contents.csc(NEAR)
    assert (indptr.tolist(), indices.tolist()) == ([0, 2, 3, 4], [2, 1, 0, 0])
    assert store.contents.csr_slot(NEAR) is None
    loader = gz.loader.NeighborLoader(store, [-1], input_nodes=("venue", [1]), batch_size=1)
    batch = next(iter(loader))
    assert batch["venue"].n_id.tolist() == [1, 0]
    assert "e_id" not in batch[NEAR]
    assert "e_id" in batch[RATES]


def test_hetero_ids_and_graph_attrs():
    store = gz.open(GOLDEN / "hetero")
    names = ["Ada", "Émile", "", "李", "a b\tc"]
    assert list(store.ids("author")) == names
    assert store.lookup(["李", "Ada"], "author").tolist() == [3, 0]
    assert store.ids("venue").tolist() == [2**64 - 1, 5, 2**63]
    assert store.lookup([5, 2**63], "venue").tolist() == [1, 2]
    data = store.data()
    assert (data["scale"].dtype, data["scale"].shape) == (torch.float64, ())
    assert float(data["scale"]) == 0.5
    assert (data["title"], data["year"], data["ratio"]) == ("golden ✓", 2024, 0.1)
    assert data["venue"].country == "Iceland"
    assert data["paper", "cites", "paper"].pairs.tolist() == [[1, 0], [3, 2]]


def test_hetero_batch():
    loader = gz.loader.NeighborLoader(
        gz.open(GOLDEN / "hetero"), [-1, -1], input_nodes=("paper", [3]), batch_size=1
    )
    batch = next(iter(loader))
    assert batch["paper"].n_id.tolist() == [3, 1, 4, 0]
    assert batch["paper", "cites", "paper"].e_id.tolist() == [0, 6, 1, 2, 4]
    assert batch["paper", "cites", "paper"].time.tolist() == [0, 60, 10, 20, 40]
    assert batch["paper"].x[:, 0].tolist() == [3, 1, 4, 0]


def test_homogeneous():
    store = gz.open(GOLDEN / "homogeneous")
    data = store.data()
    assert data.num_nodes == 6
    assert data.x.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    assert store.info()["flags"] == ["adopted_rows"]
    assert data.z.dtype == torch.int16
    assert data.z.tolist() == [[3 * i, 3 * i + 1, 3 * i + 2] for i in range(6)]
    assert data.y.dtype == torch.uint8
    assert data.y.tolist() == [0, 1, 0, 1, 0, 1]
    assert data.edge_index.tolist() == [[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]]
    assert data.edge_weight.dtype == torch.float64
    assert data.edge_weight.tolist() == [0, 0.125, 0.25, 0.375, 0.5]
    assert store.ids().tolist() == [10, 20, 30, 40, 50, 60]
    assert store.lookup([60, 10]).tolist() == [5, 0]


@pytest.mark.parametrize("name", ["hetero", "homogeneous"])
def test_checksums(name):
    report = gz.open(GOLDEN / name).verify()
    assert report.ok, str(report)


@pytest.mark.parametrize("name", ["hetero", "homogeneous"])
def test_an_edit_keeps_all_else(name, tmp_path):
    """Files that no type, attribute or graph names are deleted by the next edit."""
    golden = shutil.copytree(GOLDEN, tmp_path / "v1")
    with gz.open(golden / name, "r+") as store:
        first = store.contents.schema.node_types[0]
        store.feature_store[first.name, "new", None] = torch.ones(first.num_nodes)
    was = gz.open(GOLDEN / name).contents.schema
    store = gz.open(golden / name)
    now = store.contents.schema
    added = {now.node_types[0].attrs.pop("new")}
    assert (now.node_types, now.edge_types, now.graph_attrs) == (
        was.node_types, was.edge_types, was.graph_attrs,
    )  # fmt: skip
    assert (set(now.files) - added, now.adopted) == (set(was.files), was.adopted)
    assert all((golden / name / file).exists() for file in now.files)


def test_written_the_same(tmp_path):
    make(tmp_path)
    files = {p.relative_to(ALL) for p in ALL.glob("v[0-9]*/**/*") if p.is_file()}
    assert files == {p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file()}
    for file in sorted(files):
        old, new = (ALL / file).read_bytes(), (tmp_path / file).read_bytes()
        if file.name == "store.json":
            was, now = json.loads(old), json.loads(new)
            for document in (was, now):  # they name the release that wrote them
                del document["created_by"], document["checksum"]
            assert was == now
        else:
            assert old == new, file
