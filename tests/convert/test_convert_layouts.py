"""Dataset directories: what is converted from each layout is the graph that was written in it."""

from __future__ import annotations

import gzip
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import layouts
import numpy as np
import pytest
import torch
from commands import graphzero
from convert_support import edges_of, kinds, refused, write
from layouts import Graph, academic, citations
from torch_geometric.data import Data, HeteroData, InMemoryDataset

import pyg_graphzero as gz
from pyg_graphzero import InputError


def unlabeled(graph: Graph) -> Graph:
    """Returns the graph with every third paper unlabelled."""
    return replace(graph, y=np.where(np.arange(30) % 3 == 0, -1, graph.y))


def check(
    store: Path, graph: Graph, *, year: str | None = "node_year", masks: bool = True
) -> Data | HeteroData:
    """The store holds the graph, with the types' names if there are several."""
    data = gz.open(store).data()
    is_hetero = len(graph.edges) > 1
    papers = data["paper"] if is_hetero else data
    for triplet, edges in graph.edges.items():
        want = [tuple(pair) for pair in edges.T.tolist()]
        assert edges_of(store, triplet if is_hetero else None) == want
    for kind, count in graph.num_nodes.items():
        assert (data[kind] if is_hetero else data).num_nodes == count
    assert np.array_equal(papers.x.numpy(), graph.x["paper"].astype(papers.x.numpy().dtype))
    assert papers.y.dtype == torch.int64
    assert papers.y.tolist() == graph.y.tolist()
    if year is not None:
        assert papers[year].view(-1).tolist() == graph.year.tolist()
    if masks:
        for name, mask in graph.masks.items():
            assert papers[name].dtype == torch.bool
            assert papers[name].tolist() == mask.tolist(), name
    return data


def test_ogb_csv(tmp_path):
    graph = citations()
    summary = gz.convert(layouts.ogb_csv(tmp_path / "ogbn_arxiv", graph), tmp_path / "s")
    check(tmp_path / "s", graph)
    assert summary.what == "OGB directory, CSV files, split 'time'"
    assert summary.num_edges == 90


def test_ogb_products_has_the_other_direction_added(tmp_path):
    graph = citations()
    summary = gz.convert(layouts.ogb_csv(tmp_path / "ogbn_products", graph), tmp_path / "s")
    (edges,) = graph.edges.values()
    back = edges[::-1, edges[0] != edges[1]]
    want = np.concatenate([edges, back], axis=1)
    assert sorted(edges_of(tmp_path / "s")) == sorted(map(tuple, want.T.tolist()))
    assert summary.notes[0] == "ogbn-products has one direction of each edge; the other is added"


@pytest.mark.parametrize("deflated", [False, True])
def test_ogb_npz(tmp_path, deflated):
    graph = unlabeled(citations(172))
    path = layouts.ogb_npz(tmp_path / "ogbn_papers100M", graph, deflated)
    summary = gz.convert(path, tmp_path / "s")
    check(tmp_path / "s", graph)
    assert summary.what == "OGB directory, binary files, split 'time'"
    found = kinds(summary.info["node_types"][0])
    assert (found["x"], found["node_year"]) == ("float32[4]", "int64")


@pytest.mark.parametrize("make", [layouts.ogb_hetero_csv, layouts.ogb_hetero_npz])
def test_ogb_hetero(tmp_path, make):
    graph = academic(349)
    gz.convert(make(tmp_path / "ogbn_mag", graph), tmp_path / "s")
    data = check(tmp_path / "s", graph)
    if make is layouts.ogb_hetero_csv:
        assert data["author", "writes", "paper"].edge_reltype.shape == (50,)


def split_as(root: Path, parts: dict[str, Any], name: str = "split_dict") -> None:
    """The split as ``torch.save`` has it."""
    folder = root / "split" / "time"
    for file in folder.rglob("*.csv.gz"):
        file.unlink()
    torch.save(parts, folder / f"{name}.pt")


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_ogb_split_of_its_own_saver(tmp_path, kind):
    graph = citations()
    root = layouts.ogb_csv(tmp_path / "ogbn_arxiv", graph)
    split_as(root, {part: kind(ids) for part, ids in graph.split.items()})
    summary = gz.convert(root, tmp_path / "s")
    check(tmp_path / "s", graph)
    assert summary.what == "OGB directory, CSV files, split 'time'"

    graph = academic(349)
    root = layouts.ogb_hetero_csv(tmp_path / "ogbn_mag", graph)
    split_as(root, {part: {"paper": kind(ids)} for part, ids in graph.split.items()})
    gz.convert(root, tmp_path / "t")
    check(tmp_path / "t", graph)


def test_ogb_split_of_links_is_left_out(tmp_path):
    root = layouts.ogb_csv(tmp_path / "ogbl_citation2", citations())
    pairs = {"edge": np.arange(12).reshape(6, 2), "kind": ["a"] * 6}
    split_as(root, dict.fromkeys(("train", "valid", "test"), pairs))
    summary = gz.convert(root, tmp_path / "s")
    assert summary.what == "OGB directory, CSV files, no split"
    assert any("being no ids of nodes: train, valid, test" in note for note in summary.notes)


def test_ogb_split_that_is_unknown(tmp_path):
    graph = citations()
    root = layouts.ogb_csv(tmp_path / "ogbn_arxiv", graph)
    split_as(root, {"train": [1, 2]}, "folds")
    summary = gz.convert(root, tmp_path / "s")
    assert summary.what == "OGB directory, CSV files, no split"
    assert any("being no ids of nodes: folds.pt" in note for note in summary.notes)
    split_as(root, {"a": [1, 2]})
    refused(root, tmp_path / "t", r"split_dict\.pt: members: found a, expected train, valid")


def test_files_that_another_numpy_pickled(tmp_path):
    """Pickles name the maker of arrays in ``numpy.core`` (NumPy 1) or ``numpy._core`` (2)."""
    graph = citations()
    root = layouts.ogb_csv(tmp_path / "ogbn_arxiv", graph)
    parts = {part: np.asarray(ids) for part, ids in graph.split.items()}
    split_as(root, parts)
    path = root / "split" / "time" / "split_dict.pt"
    torch.save(parts, path, _use_new_zipfile_serialization=False)
    raw = path.read_bytes()
    assert (b"numpy._core.multiarray" in raw) != (b"numpy.core.multiarray" in raw)
    for old, new in ((b"numpy._core.", b"numpy.core."), (b"numpy.core.", b"numpy._core.")):
        path.write_bytes(raw.replace(old, new))
        gz.convert(root, tmp_path / "s", force=True)
        check(tmp_path / "s", graph)


def test_mag240m(tmp_path):
    graph = unlabeled(academic())
    summary = gz.convert(layouts.mag240m(tmp_path / "mag240m_kddcup2021", graph), tmp_path / "s")
    check(tmp_path / "s", graph, year="year")
    (papers,) = [t for t in summary.info["node_types"] if t["name"] == "paper"]
    assert kinds(papers)["x"] == "float16[4]"
    assert summary.what == "MAG240M directory"


@pytest.mark.parametrize("headerless", [False, True])
def test_igb(tmp_path, headerless):
    graph = citations(19, width=1024)
    gz.convert(layouts.igb(tmp_path / "medium", graph, headerless), tmp_path / "s")
    data = check(tmp_path / "s", graph, year=None, masks=False)
    assert data.y_2K.tolist() == graph.y.tolist()
    assert data.train_mask.nonzero().view(-1).tolist() == list(range(18))
    assert data.val_mask.nonzero().view(-1).tolist() == list(range(18, 24))
    assert data.test_mask.nonzero().view(-1).tolist() == list(range(24, 30))


def test_igb_hetero(tmp_path):
    graph = academic(19)
    written = graph.edges.pop(("author", "writes", "paper"))[::-1]
    graph.edges["paper", "written_by", "author"] = written
    gz.convert(layouts.igb(tmp_path / "medium", graph), tmp_path / "s")
    check(tmp_path / "s", graph, year=None, masks=False)


@pytest.mark.parametrize("edge_format", ["csv", "numpy"])
@pytest.mark.parametrize("kind", ["homogeneous", "heterogeneous"])
def test_graphbolt(tmp_path, kind, edge_format):
    graph = citations() if kind == "homogeneous" else academic(40)
    unsplit = np.isin(np.arange(30), np.concatenate([*graph.split.values()]), invert=True)
    graph.y[unsplit] = -1  # labels come with the sets
    gz.convert(layouts.graphbolt(tmp_path / "toy", graph, edge_format), tmp_path / "s")
    check(tmp_path / "s", graph, year="year")


# PyG loads what it saves with a warning, if it may not unpickle the class.
@pytest.mark.filterwarnings("ignore:Weights only load failed:UserWarning")
def test_pyg_dataset_root_and_object(tmp_path):
    graph = Data(x=torch.randn(4, 2), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    hetero = HeteroData()
    hetero["a"].x = torch.randn(3, 2)
    hetero["a", "to", "a"].edge_index = torch.tensor([[0, 1], [2, 2]])

    class Toy(InMemoryDataset):
        def __init__(self, root, data):
            self.original = data
            super().__init__(str(root))
            self.load(self.processed_paths[0], data_cls=type(data))

        raw_file_names = ()
        processed_file_names = "data.pt"

        def process(self):
            self.save([self.original], self.processed_paths[0])

        def get_idx_split(self):  # as ogb's datasets have it
            ids = torch.tensor([1, 2])
            nodes = ids if isinstance(self.original, Data) else {"a": ids}
            return {"valid": nodes, "test": {"edge": ids}, "folds": ids}

    for name, value in (("homo", graph), ("hetero", hetero)):
        dataset = Toy(tmp_path / name, value)
        for source in (tmp_path / name, tmp_path / name / "processed" / "data.pt", dataset):
            summary = gz.convert(source, tmp_path / "s", force=True)
            assert summary.num_edges == value.num_edges
            got = gz.open(tmp_path / "s").data()
            part, want = (got, value) if name == "homo" else (got["a"], value["a"])
            assert torch.equal(part.x, want.x)
        assert part.val_mask.nonzero().view(-1).tolist() == [1, 2]
        assert "<Toy>: not taken, being no ids of nodes: test" in summary.notes
    torch.save((graph, None), tmp_path / "old.pt")
    gz.convert(tmp_path / "old.pt", tmp_path / "s", force=True)
    assert torch.equal(gz.open(tmp_path / "s").data().edge_index, graph.edge_index)


def test_a_dataset_of_several_graphs_is_refused(tmp_path):
    graph = Data(x=torch.randn(4, 2), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    InMemoryDataset.save([graph, graph, graph], str(tmp_path / "data.pt"))
    with pytest.raises(InputError, match=r"data\.pt: dataset: found 3 graphs, expected one, which"):
        gz.convert(tmp_path / "data.pt", tmp_path / "s")


@pytest.mark.parametrize(
    ("name", "at", "line", "message"),
    [
        ("raw/edge.csv.gz", 4, "3,30", "line 5, column 1: found id 30, expected an id below"),
        ("raw/edge.csv.gz", 4, "-3,2", "line 5, column 0: found id -3, expected an id of 0"),
        ("raw/edge.csv.gz", 4, "nan,2", "line 5, column 0: found 'nan', expected an integer"),
        ("raw/edge.csv.gz", -1, None, "edges: found 89, expected 90, the number stated"),
        ("raw/node-feat.csv.gz", -1, None, "found 29, expected 30, the number of nodes by their"),
        ("raw/node-label.csv.gz", 7, "-2", "line 8, column 0: found class -2, expected a cl"),
        ("raw/node-label.csv.gz", 7, "2.5", "line 8, column 0: found 2.5, expected a value"),
        ("raw/num-node-list.csv.gz", -1, "9",
         "graphs: found 2, expected one"),
        ("split/time/train.csv.gz", 2, "99", "line 3, column 0: found id 99, expected an id"),
    ],
)  # fmt: skip
def test_faults_in_ogb_files(tmp_path, name, at, line, message):
    """A line is another one, is missing or one too many."""
    root = layouts.ogb_csv(tmp_path / "ogbn_arxiv", citations())
    lines = gzip.decompress((root / name).read_bytes()).decode().splitlines()
    at %= len(lines) + 1 if line else len(lines)
    lines[at : at + 1] = [line] * bool(line)
    write(root / name, "\n".join(lines))
    error = refused(root, tmp_path / "s")
    assert error.startswith(f"{root}/{name}")
    assert message in error


def test_a_directory_of_nothing_known_says_what_was_looked_for(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("0,1\n")
    (tmp_path / "in" / "b.npy").touch()
    error = refused(tmp_path / "in", tmp_path / "s")
    for each in ("GraphBolt (metadata.yaml)", "OGB (raw/", "MAG240M (proc", "IGB (processed/"):
        assert each in error
    gz.convert(np.array([[0, 1, 2], [1, 2, 0]]), tmp_path / "store")
    refused(tmp_path / "store", tmp_path / "s", "found a store, expected a dataset")


def test_options_of_a_flat_graph_do_not_apply(tmp_path):
    path = layouts.ogb_csv(tmp_path / "ogbn_arxiv", citations())
    words = r"num_nodes: not an option here, because .* describes the"
    refused(path, tmp_path / "s", words, error=ValueError, num_nodes=3)
    gz.convert(path, tmp_path / "s", skip=["x"], undirected=True, dtypes={"x": "float16"})
    assert "x" not in gz.open(tmp_path / "s").data()


def test_the_command_says_what_it_found(tmp_path):
    path = layouts.ogb_csv(tmp_path / "ogbn_arxiv", citations())
    result = graphzero("convert", path, "-o", tmp_path / "s", "--progress")
    line = "OGB directory, CSV files, split 'time'"
    assert f"{path}: {line}" in result.stderr
    assert f"  from: {line}" in result.stdout


def test_graphbolt_without_pyyaml(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    path = layouts.graphbolt(tmp_path / "gb", citations())
    refused(path, tmp_path / "s", "needs PyYAML: pip install pyyaml", error=gz.GraphZeroError)
