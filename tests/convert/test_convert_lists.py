"""Files whose names do not tell what they are."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from commands import graphzero
from convert_support import edges_from, edges_of, refused, write

import pyg_graphzero as gz


def test_any_name(tmp_path, monkeypatch):
    path = write(tmp_path / "ratings.dat", "1::2::5\n2::3::4\n")
    refused(path, tmp_path / "s", r"found \.dat, .*Or say what it is: format='text'")
    options = ["--format", "text", "--edge-attr", "w=2,v=0", "--edge-attr", "x=2,0", "--no-header"]
    graphzero("convert", path, "-o", tmp_path / "s", *options)
    found = edges_of(tmp_path / "s", None, "w", "v", "x")
    assert found == [(1, 2, 5, 1, [5, 1]), (2, 3, 4, 2, [4, 2])]
    pq.write_table(pa.table({"src": [0, 1], "dst": [1, 0]}), tmp_path / "part-0")
    assert edges_from(tmp_path / "part-0", tmp_path / "t", format="parquet") == [(0, 1), (1, 0)]
    monkeypatch.chdir(tmp_path)
    found = edges_from([tmp_path / "part-0", "part-0"], tmp_path / "x", format="parquet")
    assert found == [(0, 1), (1, 0), (0, 1), (1, 0)]
    (folder := tmp_path / "out.moreno").mkdir()
    write(folder / "out.1", "% asym\n1 2\n")
    write(folder / "out.2", "% asym\n2 3\n")
    gz.convert([folder / "out.1", folder / "out.2"], tmp_path / "u", format="text")
    assert edges_of(tmp_path / "u") == [(1, 2), (2, 3)]
    spec = {"edges": [{"file": path, "format": "text", "header": False, "type": "u,r,i"}]}
    gz.convert(spec, tmp_path / "v")
    assert edges_of(tmp_path / "v", ("u", "r", "i")) == [(1, 2), (2, 3)]
    with pytest.raises(ValueError, match="format='cvs': expected one of text, parquet, arrow, nt"):
        gz.convert(path, tmp_path / "w", format="cvs")
    with pytest.raises(ValueError, match="format='text': found arrays in memory, expected a file"):
        gz.convert(torch.tensor([[0], [1]]), tmp_path / "w", format="text")


def test_standard_input_of_the_command_line(tmp_path):
    graphzero("convert", "-", "-o", tmp_path / "s", "--no-header", given="1 2\n1 3\n2 3\n")
    assert edges_of(tmp_path / "s") == [(1, 2), (1, 3), (2, 3)]
    assert [each.name for each in tmp_path.iterdir()] == ["s"]
