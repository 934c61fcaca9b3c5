"""Attributes of nodes in tables of their own: which row is which node's, and what is blank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chunks
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from commands import graphzero
from convert_support import converted, edges_from, edges_of, refused, write

import pyg_graphzero as gz

pytestmark = chunks.both


def of_ids(store: Path, attr: str) -> dict[Any, Any]:
    """An attribute by the user's id."""
    opened = gz.open(store)
    ids = opened.ids()
    named = ids.tolist() if hasattr(ids, "tolist") else ids
    return dict(zip(named, opened.data()[attr].tolist(), strict=True))


@pytest.fixture
def edges(tmp_path):
    return write(tmp_path / "e.csv", "10,20\n20,30\n")


@pytest.mark.parametrize("ids", [None, "map"])
@pytest.mark.parametrize("header", ["id,y", "Node_ID,y", "y,node"])
def test_labels_are_joined_by_their_ids(edges, tmp_path, ids, header):
    rows = [(30, 2), (10, 0), (20, 1)]
    lines = [f"{y},{n}" if header[0] == "y" else f"{n},{y}" for n, y in rows]
    labels = write(tmp_path / "lab.csv", "\n".join([header, *lines, ""]))
    summary = gz.convert(edges, tmp_path / "s", node_attrs={"y": f"{labels}:y"}, ids=ids)
    assert of_ids(tmp_path / "s", "y") == {10: 0, 20: 1, 30: 2}
    assert summary.notes == []


def test_ids_that_are_rows_are_joined_too(tmp_path):
    path = write(tmp_path / "e.csv", "0,1\n1,2\n")
    labels = write(tmp_path / "lab.csv", "id,y\n3,3\n2,2\n0,0\n1,1\n")  # node 3 has no edges
    gz.convert(path, tmp_path / "s", node_attrs={"y": f"{labels}:y"})
    assert gz.open(tmp_path / "s").data().y.tolist() == [0, 1, 2, 3]


def test_a_column_called_as_in_the_edges_is_that_of_ids(tmp_path):
    path = write(tmp_path / "e.csv", "paper,cites\na,b\nb,c\n")
    labels = write(tmp_path / "lab.csv", "id,paper,y\n7,c,2\n8,a,0\n9,b,1\n")
    gz.convert(path, tmp_path / "s", header=True, node_attrs={"y": f"{labels}:y"})
    assert of_ids(tmp_path / "s", "y") == {"a": 0, "b": 1, "c": 2}


def test_all_columns_but_the_ids(edges, tmp_path):
    table = pa.table({"id": [20, 30, 10], "f0": [2.0, 3.0, 1.0], "f1": [5.0, 6.0, 4.0]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=2)
    gz.convert(edges, tmp_path / "s", node_attrs={"x": tmp_path / "x.parquet"})
    assert of_ids(tmp_path / "s", "x") == {10: [1, 4], 20: [2, 5], 30: [3, 6]}


def test_beside_a_node_table(edges, tmp_path):
    nodes = write(tmp_path / "n.csv", "who,age\n30,3\n10,1\n20,2\n")
    labels = write(tmp_path / "lab.csv", "who,y,train\n10,0,true\n20,1,false\n30,2,true\n")
    attrs = {"age": "age", "y": f"{labels}:y", "train_idx": f"{labels}:train"}
    gz.convert(edges, tmp_path / "s", nodes=nodes, node_attrs=attrs)
    assert of_ids(tmp_path / "s", "y") == {30: 2, 10: 0, 20: 1}
    assert of_ids(tmp_path / "s", "train_idx") == {30: True, 10: True, 20: False}


def message(edges: Path, out: Path, **options: Any) -> str:
    return refused(edges, out, **options).replace(f"{out.parent}/", "")


def test_tables_that_cannot_be_joined_are_refused(edges, tmp_path):
    def told(text, source="y", **options):
        write(tmp_path / "lab.csv", text)
        attrs = {"y": f"{tmp_path}/lab.csv:{source}"}
        return message(edges, tmp_path / "s", node_attrs=attrs, **options)

    assert told("id,y\n10,0\n20,1\n10,2\n30,1\n") == (
        "lab.csv: line 4, column 'id': found id 10, expected every id once"
    )
    assert told("id,y\n10,0\n20,1\n").startswith(
        "lab.csv: y: found no row for node 30, expected a row for every node. To fill it, pass fill"
    )
    assert told("id,node,y\n1,10,0\n").startswith("lab.csv: columns: found 'id', 'node', expected")
    # Not called as ids are, but they are those of all nodes, in another order.
    assert told("paper,y\n30,2\n10,0\n20,1\n", ids="map") == (
        "lab.csv: column 'paper': found the ids of all nodes, in another order than theirs, "
        "expected rows of 'y' in the order of the nodes, or a column with their ids, called "
        "'id'. "
        "Call it 'id' in the header, or pass the table as that of the nodes (--nodes lab.csv "
        "--node-id paper --node-attr y=y)."
    )
    assert told("paper,y\n30.5,2\n10,0\n20,1\n", ids="map").startswith(
        "lab.csv: y: found rows whose order nothing tells, since ids are not rows, expected "
    )
    write(tmp_path / "e.csv", "0,1\n1,2\n")
    assert told("paper,y\n2,2\n0,0\n1,1\n").startswith("lab.csv: column 'paper': found the ids of")
    nodes = write(tmp_path / "n.csv", "0\n1\n2\n")
    table = {"file": nodes, "header": False}
    assert told("id,y\n0,0\n1,1\n2,1\n3,1\n", nodes=table).startswith(
        "lab.csv: line 5, column 'id': found id 3, expected an id"
    )
    write(nodes, "id,y\n")
    assert message(edges, tmp_path / "s", nodes=nodes) == (
        "n.csv: file: found no rows, expected at least one node"
    )
    write(nodes, "0\n1\n")
    assert message(edges, tmp_path / "s", nodes=table) == (
        "e.csv: line 2, column 1: found id 2, expected an id below 2, the rows of n.csv"
    )


def test_rows_that_are_in_order_may_have_other_columns(tmp_path):
    path = write(tmp_path / "e.csv", "0,1\n1,2\n")
    labels = write(tmp_path / "lab.csv", "paper,title,y\n0,a,2\n1,b,1\n2,c,0\n")
    assert converted(path, tmp_path / "s", node_attrs={"y": f"{labels}:y"}).y.tolist() == [2, 1, 0]


def test_the_advice_of_the_error_leads_to_right_labels(edges, tmp_path):
    np.save(tmp_path / "y.npy", np.array([0, 1, 2]))
    told = message(edges, tmp_path / "s", node_attrs={"y": tmp_path / "y.npy"})
    assert told.startswith(
        "e.csv: line 1, column 0: found id 10, expected an id below 3, the number of nodes by y.npy"
        " (y). If ids are not rows, tell which id has which row: by a column 'id' beside the "
        "attribute's in one table, or by a node table (--nodes)."
    )
    summary = gz.convert(edges, tmp_path / "s", node_attrs={"y": tmp_path / "y.npy"}, ids="map")
    assert summary.notes == ["y: rows are taken in ascending order of the ids"]


# Missing values


def test_blank_labels_are_filled(edges, tmp_path):
    labels = write(tmp_path / "lab.csv", "id,y,age,train\n30,,NA,\n10,0,1,true\n20,1,nan,false\n")
    attrs = {name: f"{labels}:{name}" for name in ("y", "age", "train")}
    told = message(edges, tmp_path / "s", node_attrs=attrs)
    assert told == (
        "lab.csv: line 2, column 'y': found an empty cell, expected a number that int64 can hold. "
        "To fill it, pass fill={'y': -1} (--fill y=-1)."
    )
    arguments = [f"--node-attr={name}={source}" for name, source in attrs.items()]
    arguments += ["--fill", "y=-1", "--fill", "age=nan", "--fill", "train=false"]
    graphzero("convert", edges, "-o", tmp_path / "s", *arguments)
    data = gz.open(tmp_path / "s").data()
    assert data.y.dtype == torch.int64
    assert data.y.tolist() == [0, 1, -1]
    assert data.age.dtype == torch.float64
    assert data.age[0] == 1
    assert data.age[1:].isnan().all()
    assert data.train.tolist() == [True, False, False]


def test_nodes_that_a_table_does_not_have_are_filled(edges, tmp_path):
    labels = write(tmp_path / "lab.csv", "id,y,x\n30,2,0.5\n")
    attrs = {"y": f"{labels}:y", "x": f"{labels}:x"}
    summary = gz.convert(edges, tmp_path / "s", node_attrs=attrs, fill={"y": -1, "x": 0})
    assert summary.notes[0] == f"y: 2 of 3 nodes have no row in {labels}, and get -1"
    assert of_ids(tmp_path / "s", "y") == {10: -1, 20: -1, 30: 2}
    assert of_ids(tmp_path / "s", "x") == {10: 0, 20: 0, 30: 0.5}
    gz.convert(edges, tmp_path / "t", node_attrs={"y": f"{labels}:y"}, fill={"y": "nan"})
    assert gz.open(tmp_path / "t").data().y.isnan().tolist() == [True, True, False]


def test_cells_that_are_missing_and_that_are_wrong(edges, tmp_path):
    nodes = write(tmp_path / "n.csv", "id,y\n10,0\n20,\n30,two\n")
    options: dict[str, Any] = {"nodes": nodes, "node_attrs": ["y"]}
    assert message(edges, tmp_path / "s", **options).startswith(
        "n.csv: line 3, column 'y': found an empty cell, expected a number that int64 can hold. To"
    )
    assert message(edges, tmp_path / "s", fill={"y": -1}, **options).startswith(
        "n.csv: line 4, column 'y': found 'two', expected a number that int64 can hold"
    )
    write(nodes, "id,y\n10,0\n20,\n30,2\n")
    data = converted(edges, tmp_path / "s", fill={"y": -1}, **options)
    assert (data.y.tolist(), data.y.dtype) == ([0, -1, 2], torch.int64)
    labels = write(tmp_path / "lab.csv", "y\n0\nq\n2\n1\n")
    told = message(edges, tmp_path / "t", ids="map", node_attrs={"y": f"{labels}:y"})
    assert told.startswith("lab.csv: line 3, column 'y': found 'q', expected a number")


def test_attributes_of_edges_are_filled(tmp_path):
    path = write(tmp_path / "e.csv", "src,dst,w\n0,1,5\n1,2,\n2,0,7\n")
    gz.convert(path, tmp_path / "s", edge_attrs=["w"], fill={"w": 0})
    assert edges_of(tmp_path / "s", None, "w") == [(0, 1, 5), (1, 2, 0), (2, 0, 7)]
    assert gz.open(tmp_path / "s").data().w.dtype == torch.int64


def test_fills_that_fit_nothing(edges, tmp_path):
    labels = write(tmp_path / "lab.csv", "id,t\n10,true\n20,\n30,false\n")
    attrs = {"t": f"{labels}:t"}
    words = "fill of 't': found -1, expected true or false"
    refused(edges, tmp_path / "s", words, ValueError, node_attrs=attrs, fill={"t": -1})


# Row numbers


def test_row_numbers_of_pandas_are_no_ids(tmp_path):
    path = write(tmp_path / "e.csv", ",user_a,user_b,w\n0,7,9,1\n1,9,8,2\n")
    summary = gz.convert(path, tmp_path / "s", edge_attrs=["w"])
    assert edges_of(tmp_path / "s", None, "w") == [(7, 9, 1), (9, 8, 2)]
    assert "e.csv: columns not taken: ''" in summary.notes
    assert edges_from(path, tmp_path / "s", src=0, dst="user_b", force=True) == [(0, 9), (1, 8)]

    two = write(tmp_path / "two.csv", ",dst\n0,7\n1,9\n")
    assert message(two, tmp_path / "t") == (
        "two.csv: column 0: found no name, as the row numbers that pandas writes, expected a name. "
        "Name the column that is meant (src or dst, --src or --dst): dst; or 0 for this one."
    )
    nodes = write(tmp_path / "n.csv", ",who,age\n0,9,1\n1,8,2\n2,7,3\n")
    told = message(path, tmp_path / "t", nodes=nodes, node_attrs=["age"])
    assert told.startswith("n.csv: column 0: found no name, as the row numbers that pandas writes")
    gz.convert(path, tmp_path / "t", nodes={"file": nodes, "id": "who"}, node_attrs=["age"])
    assert of_ids(tmp_path / "t", "age") == {9: 1, 8: 2, 7: 3}
