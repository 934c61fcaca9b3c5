"""Parquet, Arrow and Feather: one file and many, edges, node tables and attributes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chunks
import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import torch
from convert_support import edges_from, edges_of, refused, stored

import pyg_graphzero as gz
from pyg_graphzero import InputError

ROWS = [(0, 1, 0.5), (1, 2, 1.5), (2, 3, 2.5), (3, 0, 3.5), (3, 0, 4.5)]


def table(rows: list[tuple[int, int, float]] = ROWS, **more: Any) -> pa.Table:
    src, dst, weight = zip(*rows, strict=True)
    return pa.table({"src": src, "dst": dst, "weight": weight, **more})


def save(path: Path, value: pa.Table, row_group_size: int = 2) -> Path:
    """In the format that the suffix names, in pieces of a few rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in (".parquet", ".pq"):
        pq.write_table(value, path, row_group_size=row_group_size)
    elif path.suffix == ".feather":
        feather.write_feather(value, path, chunksize=row_group_size)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, value.schema) as writer:
            writer.write_table(value, max_chunksize=row_group_size)
    return path


SUFFIXES = ["parquet", "pq", "feather", "arrow", "ipc"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_one_file(tmp_path, suffix):
    path = save(tmp_path / f"e.{suffix}", table(note=["a"] * 5))
    summary = gz.convert(path, tmp_path / "s", edge_attrs={"w": "weight"})
    assert edges_of(tmp_path / "s", None, "w") == ROWS
    assert summary.notes == [f"e.{suffix}: columns not taken: 'note'"]


@chunks.both
@pytest.mark.parametrize("suffix", ["parquet", "feather"])
@pytest.mark.parametrize("how", ["directory", "glob", "list"])
def test_many_files(tmp_path, suffix, how):
    parts = [save(tmp_path / "in" / f"{i}.{suffix}", table(ROWS[i : i + 2])) for i in (0, 2)]
    parts.append(save(tmp_path / "in" / "deep" / f"4.{suffix}", table(ROWS[4:])))
    source = {
        "directory": tmp_path / "in",
        "glob": f"{tmp_path}/in/**/*.{suffix}",
        "list": [str(part) for part in parts],
    }[how]
    summary = gz.convert(source, tmp_path / "s", edge_attrs={"w": "weight"})
    assert sorted(edges_of(tmp_path / "s", None, "w")) == sorted(ROWS)
    assert summary.what.endswith(", 3 files")


def test_directories_are_columns_of_a_dataset(tmp_path):
    for year in (2019, 2020):
        save(tmp_path / "in" / f"year={year}" / "part.parquet", table())
    gz.convert(tmp_path / "in", tmp_path / "s")
    assert gz.info(tmp_path / "s")["edge_types"][0]["num_edges"] == 2 * len(ROWS)
    dataset = pads.dataset(tmp_path / "in", partitioning="hive")
    assert edges_from(dataset, tmp_path / "s", "year", edge_attrs=["year"], force=True) == [
        (src, dst, year) for year in (2019, 2020) for src, dst, _ in ROWS
    ]


@chunks.both
@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_node_table_with_text_ids(tmp_path, suffix):
    nodes = pa.table(
        {
            "name": pa.array(["zoe", "adam", "lone"]).dictionary_encode(),
            "age": pa.array([3, 4, 5], pa.int16()),
            "emb": pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32())),
            "fixed": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2)),
            "joined": pa.array([0, 10**9, 2 * 10**9], pa.timestamp("us")),
            "ok": [True, False, True],
        }
    )
    edges = pa.table({"from": ["adam", "zoe"], "to": ["zoe", "adam"]})
    store = stored(
        save(tmp_path / f"e.{suffix}", edges),
        tmp_path / "s",
        nodes=save(tmp_path / f"n.{suffix}", nodes),
        node_attrs={
            "x": "emb",
            "age": "age",
            "fixed": "fixed",
            "time": "joined",
            "pair": "age,ok",
            "train_mask": "ok",
            "train_idx": f"{tmp_path}/e.{suffix}:to",
        },
        dtypes={"age": "int64"},
    )
    data = store.data()
    assert list(store.ids()) == ["zoe", "adam", "lone"]
    assert edges_of(tmp_path / "s") == [("adam", "zoe"), ("zoe", "adam")]
    assert data.x.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert data.x.dtype == torch.float32
    assert (data.age.dtype, data.age.tolist()) == (torch.int64, [3, 4, 5])
    assert data.fixed.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert data.time.tolist() == [0, 10**9, 2 * 10**9]
    assert data.pair.tolist() == [[3, 1], [4, 0], [5, 1]]
    assert data.train_mask.tolist() == [True, False, True]
    assert data.train_idx.tolist() == [0, 1]


def message(source: Any, tmp_path: Path, **options: Any) -> str:
    return refused(source, tmp_path / "s", **options).replace(f"{tmp_path}/", "")


def test_nulls_name_file_and_row_group(tmp_path):
    weights = pa.array([1.0, 2.0, 3.0, None, 5.0])
    save(tmp_path / "in" / "0.parquet", table())
    save(tmp_path / "in" / "1.parquet", table().set_column(2, "weight", weights))
    assert message(tmp_path / "in", tmp_path, edge_attrs=["weight"]) == (
        "in: 1.parquet: row 3, column 'weight': found null, expected a value. "
        "To fill it, pass fill={'weight': float('nan')} (--fill weight=nan)."
    )
    path = save(tmp_path / "ids.feather", pa.table({"src": [0, None, 2], "dst": [1, 2, 0]}))
    assert message(path, tmp_path) == (
        "ids.feather: row 1, column 'src': found null, expected a value"
    )
    path = save(tmp_path / "text.parquet", pa.table({"src": ["a", None], "dst": ["b", "c"]}))
    assert message(path, tmp_path).startswith("text.parquet: row 1, column 'src'")


def test_lists_of_several_lengths(tmp_path):
    path = save(tmp_path / "x.parquet", pa.table({"x": [[1.0, 2.0], [3.0, 4.0], [5.0]]}))
    attrs = {"x": f"{path}:x"}
    edges = np.array([[0, 1, 2], [1, 2, 0]])
    assert message(edges, tmp_path, node_attrs=attrs) == (
        "x.parquet: row 2, column 'x': found a list of 1, expected 2 values, as in the first row"
    )
    save(path, pa.table({"x": [[1.0, 2.0], [3.0, None], [5.0, 6.0]]}))
    assert "row 1, column 'x': found null in a list" in message(edges, tmp_path, node_attrs=attrs)


def test_files_that_differ(tmp_path):
    save(tmp_path / "in" / "0.parquet", table())
    save(tmp_path / "in" / "1.parquet", table().cast(_schema(pa.int32())))
    assert message(tmp_path / "in", tmp_path) == (
        "in/1.parquet: column 'src': found int32, expected int64 as in in/0.parquet"
    )
    save(tmp_path / "in" / "1.parquet", table().drop_columns(["dst"]))
    assert message(tmp_path / "in", tmp_path) == (
        "in/1.parquet: columns: found src, weight, expected a column 'dst'"
    )


def _schema(ids: Any) -> Any:
    return pa.schema([("src", ids), ("dst", ids), ("weight", pa.float64())])


def test_faults(tmp_path):
    path = save(tmp_path / "e.parquet", table())
    assert message(path, tmp_path, dst="to").startswith(
        "e.parquet: columns: found src, dst, weight, expected a column 'to'"
    )
    assert message(path, tmp_path, src="weight", dst="dst").startswith(
        "e.parquet: row 0, column 'weight': found float64, expected integers or str"
    )
    assert message(path, tmp_path, num_nodes=3).startswith(
        "e.parquet: row 3, column 'src': found id 3, expected an id below 3"
    )
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    assert message(path, tmp_path).startswith("e.parquet: file: found ")
    cut = save(tmp_path / "e.feather", table())
    cut.write_bytes(cut.read_bytes()[:-20])
    assert "expected a whole Arrow file" in message(cut, tmp_path)
    text = save(tmp_path / "t.parquet", table(name=["a"] * 5))
    asked = {"edge_attrs": ["name"], "dtypes": {"name": "float32"}}
    assert "found string, expected numbers" in message(text, tmp_path, **asked)
    with pytest.raises(ValueError, match="delimiter is an option for delimited text"):
        gz.convert(text, tmp_path / "s", delimiter=",")


@chunks.both
def test_dtypes_are_cast_and_checked(tmp_path):
    path = save(tmp_path / "e.parquet", table())
    gz.convert(path, tmp_path / "s", edge_attrs=["weight"], dtypes={"weight": "float16"})
    assert gz.open(tmp_path / "s").data().weight.dtype == torch.float16
    with pytest.raises(InputError, match=r"row 0, column 'weight': found 0\.5, exp"):
        gz.convert(path, tmp_path / "t", edge_attrs=["weight"], dtypes={"weight": "int64"})
