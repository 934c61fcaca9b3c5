"""MatrixMarket, and files whose names do not tell what they are."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import chunks
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp
from click.testing import CliRunner
from convert_support import edges_of, write

import pyg_graphzero as gz
from pyg_graphzero import InputError
from pyg_graphzero_cli import main

pytestmark = chunks.both


@pytest.mark.parametrize("name", ["m.mtx", "m.mtx.gz"])
def test_matrix_market(tmp_path: Path, name: str) -> None:
    matrix = sp.random(9, 9, 0.3, random_state=1, format="coo")
    raw = io.BytesIO()
    scipy.io.mmwrite(raw, matrix, comment="a comment\n1 1 1")
    path = write(tmp_path / name, raw.getvalue())
    summary = gz.convert(path, tmp_path / "s")
    entries = zip(matrix.row, matrix.col, matrix.data.astype(np.float32), strict=True)
    want = sorted((int(row), int(column), float(value)) for row, column, value in entries)
    assert sorted(edges_of(tmp_path / "s", None, "edge_weight")) == want
    assert (summary.num_nodes, summary.what) == (9, "MatrixMarket")


def test_kinds_of_matrices(tmp_path: Path) -> None:
    def convert(text: str, **options: Any) -> list[Any]:
        path = write(tmp_path / "m.mtx", f"%%MatrixMarket matrix coordinate {text}")
        gz.convert(path, tmp_path / "s", force=True, **options)
        edge_type = options.get("edge_type")
        return sorted(edges_of(tmp_path / "s", edge_type))

    def told(text: str) -> str:
        with pytest.raises(InputError) as caught:
            convert(text)
        return str(caught.value).partition("m.mtx: ")[2]

    both = [(0, 1), (1, 0), (2, 2)]
    assert convert("pattern symmetric\n3 3 2\n2 1\n3 3\n") == both
    assert convert("integer general\n% \n\n3 3 2\n2 1 7\n3 3 8\n") == [(1, 0), (2, 2)]
    edge_type = ("user", "rates", "item")
    assert convert("real general\n2 5 2\n2 5 1.5\n1 1 2\n", edge_type=edge_type) == [(0, 0), (1, 4)]
    assert told("real general\n2 5 1\n1 1 2\n").startswith(
        "shape: found 2 rows and 5 columns, expe"
    )
    assert told("complex general\n2 2 1\n1 1 2 3\n").startswith(
        "line 1: found complex general, exp"
    )
    assert told("real skew-symmetric\n2 2 1\n1 1 2\n").startswith("line 1: found real skew-symmetr")
    assert told("real general\n2 2 3\n1 1 2\n") == "entries: found 1, expected 3, the number stated"
    assert told("pattern general\n2 2 1\n1 3\n") == (
        "line 3, column 1: found id 3, expected a number of 1…2, as the header says"
    )
    assert told("pattern general\n2 2 1\n0 1\n").startswith(
        "line 3, column 0: found id 0, expected"
    )
    assert told("pattern general\n2 2\n").startswith(
        "line 2: found '2 2', expected numbers of rows"
    )
    write(tmp_path / "m.mtx", "1 2\n")
    with pytest.raises(InputError, match=r"m\.mtx: line 1: found '1 2', expected %%MatrixMarket"):
        gz.convert(tmp_path / "m.mtx", tmp_path / "t")
    with pytest.raises(
        InputError, match=r"m\.mtx: file: found edges \(mtx\), expected an attribute"
    ):
        gz.convert(np.array([[0], [1]]), tmp_path / "t", node_attrs={"x": tmp_path / "m.mtx"})


def test_any_name(tmp_path: Path) -> None:
    path = write(tmp_path / "ratings.dat", "1::2::5\n2::3::4\n")
    with pytest.raises(InputError, match=r"found \.dat, .*Or say what it is: format='text'"):
        gz.convert(path, tmp_path / "s")
    command = ["convert", str(path), "-o", str(tmp_path / "s"), "--format", "text"]
    command += ["--edge-attr", "w=2,v=0", "--edge-attr", "x=2,0"]
    run = CliRunner().invoke(main, [*command, "--no-header"])
    assert run.exit_code == 0, run.output
    found = edges_of(tmp_path / "s", None, "w", "v", "x")
    assert found == [(1, 2, 5, 1, [5, 1]), (2, 3, 4, 2, [4, 2])]
    pq.write_table(pa.table({"src": [0, 1], "dst": [1, 0]}), tmp_path / "part-0")
    gz.convert(tmp_path / "part-0", tmp_path / "t", format="parquet")
    assert edges_of(tmp_path / "t") == [(0, 1), (1, 0)]
    folder = tmp_path / "out.moreno"
    folder.mkdir()
    write(folder / "out.1", "% asym\n1 2\n")
    write(folder / "out.2", "% asym\n2 3\n")
    gz.convert([folder / "out.1", folder / "out.2"], tmp_path / "u", format="text")
    assert edges_of(tmp_path / "u") == [(1, 2), (2, 3)]
    spec = {"edges": [{"file": path, "format": "text", "header": False, "type": "u,r,i"}]}
    gz.convert(spec, tmp_path / "v")
    assert edges_of(tmp_path / "v", ("u", "r", "i")) == [(1, 2), (2, 3)]
    with pytest.raises(ValueError, match="format='cvs': expected one of text, parquet, arrow, mtx"):
        gz.convert(path, tmp_path / "w", format="cvs")


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"src,dst\n5,7\n7,8\n")))
    gz.convert("-", tmp_path / "s")
    assert edges_of(tmp_path / "s") == [(5, 7), (7, 8)]
    assert [each.name for each in tmp_path.iterdir()] == ["s"]


def test_standard_input_of_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pyg_graphzero", "convert", "-", "-o", str(tmp_path / "s")]
    done = subprocess.run(
        [*command, "--no-header"], input="1 2\n1 3\n2 3\n", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert edges_of(tmp_path / "s") == [(1, 2), (1, 3), (2, 3)]
