"""Stores written by released versions of the format stay readable, and are written the same.

Their bytes are those that ``golden/make.py`` has written; test_format_doc.py compares every column
with what the reader of the format page makes of it. Here is what a store makes of columns.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from golden.make import AUTHORS, CITES, LIKES, NEAR, RATES, WRITES, make

import pyg_graphzero as gz

ALL = Path(__file__).parents[1] / "golden"
GOLDEN = ALL / "v1"


@pytest.fixture(params=["hetero", "homogeneous"])
def store(request):
    return gz.open(GOLDEN / request.param)


@pytest.fixture
def hetero():
    return gz.open(GOLDEN / "hetero")


def test_nodes(hetero):
    data, i = hetero.data(), torch.arange(8)
    assert {t: data[t].num_nodes for t in data.node_types} == {"paper": 8, "author": 5, "venue": 3}
    paper, author = data["paper"], data["author"]
    attrs = {"x", "half", "brain", "mask", "nothing", "topic", "train_idx", "num_nodes"}
    assert {*paper.keys()} == attrs
    assert [*data["venue"].keys()] == ["country", "num_nodes"]
    assert paper.x.stride() == (128, 1)
    assert torch.equal(paper.x, i[:, None] + torch.arange(125) / 128)
    halves = (torch.arange(48).view(8, 2, 3) / 4).half()
    found = {"half": halves, "brain": (i * 1000.0).bfloat16(), "mask": i % 3 == 0}
    found |= {"nothing": torch.empty(8, 0), "train_idx": torch.tensor([6, 0, 3])}
    for name, value in found.items():
        assert paper[name].dtype == value.dtype
        assert torch.equal(paper[name], value)
    names = hetero.categories("topic", "paper")[:]
    assert [names[k] if k >= 0 else None for k in paper.topic] == [
        *("Käse", "", None, "李", "Käse", "Käse", "", None)
    ]
    square = torch.arange(5)[:, None] * torch.tensor([1.0, -0.5, 0.0])
    for name, error in (("float16", 0), ("bfloat16", 0), ("int8", 0.01)):
        assert torch.allclose(author[f"by {name}"], square, rtol=0, atol=error)


EDGES = {  # the edges of the input in its order, by CSC, and which edge is in which slot
    CITES: ([[1, 0, 0, 2, 0, 5, 4], [3, 1, 1, 2, 1, 0, 3]],
            [0, 1, 4, 5, 7, 7, 7, 7, 7], [5, 0, 0, 0, 2, 1, 4], [5, 1, 2, 4, 3, 0, 6]),
    WRITES: ([[4, 0, 1], [0, 2, 5]], [0, 1, 1, 2, 2, 2, 3, 3, 3], [4, 0, 1], [0, 1, 2]),
    LIKES: ([[], []], [0, 0, 0, 0], [], []),
    RATES: ([[0, 1, 2, 0, 3, 4], [1, 1, 1, 0, 1, 0]],  # by time
            [0, 2, 6, 6], [0, 4, 1, 3, 2, 0], [3, 5, 1, 4, 2, 0]),
}  # fmt: skip


def test_edges(hetero):
    data = hetero.data()
    assert data.edge_types == [*EDGES, NEAR]
    indices, indptr, perm = hetero.graph_store.csc()
    for name, (ends, *csc) in EDGES.items():
        assert data[name].edge_index.tolist() == ends
        slots = perm[name].tolist() if perm[name] is not None else [*range(len(ends[0]))]
        assert [indptr[name].tolist(), indices[name].tolist(), slots] == csc
    assert data[CITES].time.dtype == torch.int16
    assert data[CITES].time.tolist() == [*range(0, 70, 10)]
    assert data[CITES].why.tolist() == [0, 1, 1, 0, 1, 0, 0]
    assert hetero.categories("why", CITES)[:] == ["extends", "refutes"]
    assert data[RATES].when.tolist() == [5, 3, 4, 1, 3, 2]
    assert hetero.contents.edge_type(RATES).time_order == "when"
    assert hetero.contents.csr_slot(RATES).tolist() == [0, 5, 2, 4, 3, 1]
    loader = gz.loader.NeighborLoader(hetero, [-1, -1], input_nodes=("paper", [3]), batch_size=1)
    batch = next(iter(loader))
    assert batch["paper"].n_id.tolist() == [3, 1, 4, 0]
    assert batch[CITES].e_id.tolist() == [0, 6, 1, 2, 4]
    assert torch.equal(batch[CITES].time, 10 * batch[CITES].e_id)
    assert batch["paper"].x[:, 0].tolist() == [3, 1, 4, 0]


def test_edges_without_ids(hetero):
    """The edges of the input, then the reverse ones, without those there are."""
    indptr, indices = hetero.contents.csc(NEAR)
    assert (indptr.tolist(), indices.tolist()) == ([0, 2, 3, 4], [2, 1, 0, 0])
    assert hetero.contents.csr_slot(NEAR) is None
    loader = gz.loader.NeighborLoader(hetero, [-1], input_nodes=("venue", [1]), batch_size=1)
    batch = next(iter(loader))
    assert batch["venue"].n_id.tolist() == [1, 0]
    assert "e_id" not in batch[NEAR]
    assert "e_id" in batch[RATES]


def test_ids_and_graph_attrs(hetero):
    assert [*hetero.ids("author")] == AUTHORS
    assert hetero.lookup(["李", "Ada"], "author").tolist() == [3, 0]
    assert hetero.ids("venue").tolist() == [2**64 - 1, 5, 2**63]
    assert hetero.lookup([5, 2**63], "venue").tolist() == [1, 2]
    data = hetero.data()
    assert (data["scale"].dtype, data["scale"].shape, data["scale"]) == (torch.float64, (), 0.5)
    assert (data["title"], data["year"], data["ratio"]) == ("golden ✓", 2024, 0.1)
    assert data["venue"].country == "Iceland"
    assert data[CITES].pairs.tolist() == [[1, 0], [3, 2]]


def test_checksums_and_flags(store):
    report = store.verify()
    assert report.ok, str(report)
    assert store.info()["flags"] == ["edge_ids_absent" if store.is_hetero else "adopted_rows"]


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
