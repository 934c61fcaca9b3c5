"""Several node and edge types in files: the specification as a dict, TOML and JSON."""

from __future__ import annotations

import json

import chunks
import numpy as np
import pytest
import torch
from convert_support import edges_of, kinds, refused, write

import pyg_graphzero as gz

RATES = ("user", "rates", "movie")

TOML = """
[nodes.movie]
file = "movies.csv"
id = "movieId"
attrs = { year = "year", x = "features.npy" }

[[edges]]
type = ["user", "rates", "movie"]
file = "ratings.csv.gz"
src = "userId"
dst = "movieId"
attrs = { edge_weight = "rating", time = "timestamp" }

[[edges]]
type = "movie,like,movie"
file = "similar.npy"
undirected = true
"""


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    write(
        folder / "movies.csv",
        "movieId,title,year\n"
        '10,"American President, The (1995)",1995\n'
        "1,Toy Story,1996\n"
        '7,"He said ""hi"",\nand left",1997\n',
    )
    write(
        folder / "ratings.csv.gz",
        "userId,movieId,rating,timestamp\n5,1,4.0,964982703\n5,7,3.5,964982704\n9,10,1,964982705\n",
    )
    np.save(folder / "similar.npy", np.array([[10, 1, 7], [1, 1, 10]]))
    np.save(folder / "features.npy", np.arange(6, dtype=np.float32).reshape(3, 2))
    write(folder / "graph.toml", TOML)
    return folder


@chunks.both
def test_toml(folder, tmp_path):
    summary = gz.convert(folder / "graph.toml", tmp_path / "s")
    store = gz.open(tmp_path / "s")
    assert store.ids("movie").tolist() == [10, 1, 7]
    assert store.ids("user").tolist() == [5, 9]
    data = store.data()
    assert data["movie"].year.tolist() == [1995, 1996, 1997]
    assert data["movie"].x.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert edges_of(tmp_path / "s", RATES, "edge_weight", "time") == [
        (5, 1, 4.0, 964982703),
        (5, 7, 3.5, 964982704),
        (9, 10, 1.0, 964982705),
    ]
    likes = edges_of(tmp_path / "s", ("movie", "like", "movie"))
    assert sorted(likes) == [(1, 1), (1, 10), (7, 10), (10, 1), (10, 7)]
    assert data["movie", "like", "movie"].edge_index.dtype == torch.int64
    assert summary.notes == ["movies.csv: columns not taken: 'title'"]
    assert "user → rates → movie: 3 edges" in str(summary)


def test_dict_and_json_say_the_same(folder, tmp_path):
    edge = {"type": RATES, "file": folder / "ratings.csv.gz", "src": "userId", "dst": "movieId"}
    edge["attrs"] = ["rating", "timestamp"]
    movie = {"file": folder / "movies.csv", "id": "movieId", "attrs": ["year"]}
    value = {"nodes": {"movie": movie}, "edges": [edge]}
    text = write(folder / "graph.json", json.dumps(value, default=str))
    for source in (value, text):
        gz.convert(source, tmp_path / "s", force=True)
        rows = edges_of(tmp_path / "s", RATES, "rating")
        assert rows == [(5, 1, 4.0), (5, 7, 3.5), (9, 10, 1.0)]


def test_an_edge_type_may_be_empty(tmp_path):
    path = write(tmp_path / "e.csv", "src,dst,w\n")
    value = {
        "nodes": {"a": {"num_nodes": 3}, "b": {"num_nodes": 2}},
        "edges": [{"type": "a,to,b", "file": path, "attrs": ["w"]}],
    }
    summary = gz.convert(value, tmp_path / "s")
    assert summary.num_edges == 0
    assert summary.num_nodes == 5
    assert kinds(summary.info["edge_types"][0]) == {"w": "float64"}
    assert gz.open(tmp_path / "s").data()["a", "to", "b"].edge_index.shape == (2, 0)


def test_node_types_without_edges_or_table(tmp_path):
    value = {
        "nodes": {
            "a": {"attrs": {"x": np.zeros((3, 2))}},
            "b": {"id": np.array(["u", "v"]), "attrs": {"train_idx": np.array(["v"])}},
        },
        "edges": [],
    }
    summary = gz.convert(value, tmp_path / "s")
    assert {name: node.num_nodes for name, node in summary.nodes.items()} == {"a": 3, "b": 2}
    assert gz.open(tmp_path / "s").data()["b"].train_idx.tolist() == [1]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"edgez": []}, "key 'edgez': found an unknown key, expected nodes or edges"),
        ({"edges": {}}, "edges: found dict, expected a list of edge types"),
        ({"nodes": [1]}, "nodes: found list, expected a table of node types"),
        ({"edges": []}, "spec: found neither nodes nor edges"),
        ({"edges": [{"type": "a,b,c"}]}, "edges[0]: found no file, expected a file with"),
        ({"edges": [{"file": "x.csv", "foo": 1}]},
         "edges[0].foo: found an unknown key, expected type, file, src"),
        ({"edges": [{"file": "x.csv", "type": "a,b"}]},
         'edges[0].type: found \'a,b\', expected ["src", "rel", "dst"]'),
        ({"nodes": {"a": {}}, "edges": [{"file": "x.csv"}]},
         "edges: found an edge type without a type, expected a type for each"),
        ({"edges": [{"file": "x.csv", "type": "a,b,c"}, {"file": "y.csv", "type": "a,b,c"}]},
         "edges: found ('a', 'b', 'c') twice, expected each edge type once"),
        ({"nodes": {"a": {}}},
         "nodes.a: found no table, edges, num_nodes or attributes, expected one"),
        ({"nodes": {"a": {"num_nodes": "3"}}}, "nodes.a.num_nodes: found '3', expected a"),
        ({"edges": [{"file": "x.csv", "attrs": 3}]},
         "edges[0].attrs: found int, expected attribute = source"),
    ],
)  # fmt: skip
def test_faults_in_the_specification(tmp_path, value, message):
    assert refused(value, tmp_path / "s").startswith(f"<spec>: {message}")


def test_broken_toml(tmp_path):
    path = write(tmp_path / "g.toml", "[nodes\n")
    refused(path, tmp_path / "s", r"g\.toml: spec: found .*expected valid TOML")
