"""Text of any size: several files, compressed, spilled to disk, with faulty rows."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
from collections import Counter

import chunks
import numpy as np
import pyarrow as pa
import pytest
import torch
from commands import graphzero
from convert_support import edges_from, edges_of, kinds, refused, write
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import pyg_graphzero as gz
from pyg_graphzero import InputError
from pyg_graphzero.conversion import blocks, text
from pyg_graphzero.conversion.distinct import distinct_integers
from pyg_graphzero.store.rows import ArrayRows
from pyg_graphzero.util.workspace import Workspace

PATH = [(0, 1), (1, 2), (2, 0)]


@pytest.fixture
def tight(request, monkeypatch):
    """Blocks of a few rows, runs of a few ids, nothing kept in memory, or one of three things."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 64)
    monkeypatch.setattr(text, "_PIECE_BYTES", 16)
    given = getattr(request, "param", None)
    turns = itertools.cycle(given or [False])
    monkeypatch.setattr(Workspace, "hold", lambda space, size: next(turns))
    start = Workspace.__init__

    def init(space, *args, **options):
        start(space, *args, **options)
        space.room = 1 << 16 if given else 4096

    monkeypatch.setattr(Workspace, "__init__", init)


@pytest.mark.parametrize(
    ("suffix", "codec"), [(".gz", "gzip"), (".zst", "zstd"), (".bz2", "bz2"), (".lz4", "lz4")]
)
def test_compressed(tmp_path, suffix, codec):
    path = tmp_path / f"e.csv{suffix}"
    with pa.CompressedOutputStream(str(path), codec) as out:
        out.write(b"0,1\n1,2\n2,0\n")
    assert edges_from(path, tmp_path / "store") == PATH
    path.write_bytes(path.read_bytes()[:-5])
    refused(path, tmp_path / "other", rf"file: found damaged {codec} data .*, expected a whole")


def test_gzip_of_several_members(tmp_path):
    path = tmp_path / "e.csv.gz"
    path.write_bytes(gzip.compress(b"0,1\n1,") + gzip.compress(b"2\n2,0\n"))
    assert edges_from(path, tmp_path / "store") == PATH


@pytest.fixture
def parts(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    write(folder / "a.csv", "# first\nsrc,dst,w\n0,1,5\n1,2,6")
    write(folder / "b.csv.gz", "src,dst,w\n2,0,7\n")
    write(folder / "c.csv", "")
    write(folder / "d.csv", "0,2,8\n")  # without a header, as `split` leaves it
    for name in ("_SUCCESS", ".hidden.csv", "_tmp/x.csv"):
        (folder / name).parent.mkdir(exist_ok=True)
        write(folder / name, "no,part\n")
    return folder


EDGES = [(0, 1, 5), (1, 2, 6), (2, 0, 7), (0, 2, 8)]


@pytest.mark.parametrize(
    "source", ["parts", "parts/*.csv*", "./**/[abd].*", ["parts/[ab].*", "parts/d.csv"]], ids=str
)
def test_several_files_are_one_table(tmp_path, parts, source, monkeypatch):
    """Hidden files and files of hidden folders are no parts; order is by name."""
    monkeypatch.chdir(tmp_path)
    gz.convert(source, "store", edge_attrs=["w"])
    assert edges_of(tmp_path / "store", None, "w") == EDGES


def test_paths_that_lead_to_no_file(tmp_path, parts):
    for path, words in (
        ("nine*.csv", r"No file matches.*nine\*\.csv"),
        ("nine.csv", "No such file"),
    ):
        refused(tmp_path / path, tmp_path / "s", words, FileNotFoundError)
    odd = write(tmp_path / "odd[1].csv", "7,8\n8,7\n")  # a file before a pattern
    assert edges_from(odd, tmp_path / "s") == [(7, 8), (8, 7)]
    (tmp_path / "in/bare").mkdir(parents=True)
    spec = {"edges": [{"file": tmp_path / "in/bare"}]}
    refused(spec, tmp_path / "t", "directory: found no files, expected at least one")


def test_several_files_on_the_command_line_and_in_a_spec(tmp_path, parts):
    done = graphzero("convert", parts / "*", "-o", tmp_path / "a", code=2)
    assert "found .csv, no suffix, expected files of one kind" in done.output
    write(tmp_path / "g.toml", '[[edges]]\nfile = ["parts/a.csv", "parts/d.csv"]\n')
    assert edges_from(tmp_path / "g.toml", tmp_path / "b") == [(0, 1), (1, 2), (0, 2)]


def test_faults_in_one_of_several_files(tmp_path, parts):
    write(parts / "d.csv", "0,2,8\n\n0,x,9\n")
    refused(parts, tmp_path / "store", r"parts: d\.csv, line 3, column 'dst': found 'x'")
    write(parts / "d.csv", "0,2,8\n0,-4,9\n")
    refused(parts, tmp_path / "store", r"parts: d\.csv, line 2, column 'dst': found id -4")
    write(parts / "d.csv", "dst,src,w\n0,2,8\n")
    words = r"d\.csv: line 1: found dst, src, w, expected src, dst, w as in .*a\.csv"
    refused(parts, tmp_path / "store", words)
    write(parts / "d.csv", "0,2\n")
    refused(parts, tmp_path / "store", r"d\.csv, line 1: found 2 cells \('0,2'\), expected 3")
    far = write(tmp_path / "far.csv", "0,q,1\n")
    with pytest.raises(InputError, match=r": far\.csv, line 1, column 'dst': found 'q'"):
        gz.convert([parts / "a.csv", far], tmp_path / "store")


FAULTY = """\
src,dst,w,s
0,1,0.5,a
1,2
1,x,0.5,a
2,0,,a
2,0,0.25,"b
c"
0,2,0.5,a,b
-1,2,0.5,a
0,99999999999999999999,1,a
1,0,1,a
"""


@pytest.mark.usefixtures("tight")
def test_the_first_faulty_row_is_named(tmp_path):
    """Row after row is mended, until none is left."""
    faults = [
        "line 3: found 2 cells ('1,2'), expected 4 cells separated by ','",
        "line 4, column 'dst': found 'x', expected an integer id below 2**63. "
        'If ids are text, pass id_type="str" (--id-type str).',
        "line 5, column 'w': found an empty cell, expected a number. "
        "To fill it, pass fill={'w': float('nan')} (--fill w=nan).",
        "line 8: found 5 cells ('0,2,0.5,a,b'), expected 4 cells separated by ','",
        "line 10, column 'dst': found '99999999999999999999', expected an integer id below "
        '2**63. If ids are text, pass id_type="str" (--id-type str).',
        "line 9, column 'src': found id -1, expected an id of 0 or more. "
        "If it is meant, pass ids='map' (--ids map).",
    ]
    lines = FAULTY.splitlines(keepends=True)
    for fault in faults:
        path = write(tmp_path / "e.csv", "".join(lines))
        error = refused(path, tmp_path / "s", edge_attrs=["w"])
        assert error == f"{path}: {fault}"
        number = int(fault.split()[1].rstrip(":,"))
        lines[number - 1] = "0,0,0,a\n"
    write(path, "".join(lines))
    found = edges_from(path, tmp_path / "s", "w", edge_attrs=["w"])
    kept = {0: (0, 1, 0.5), 4: (2, 0, 0.25), 8: (1, 0, 1.0)}
    assert found == [kept.get(row, (0, 0, 0.0)) for row in range(9)]


@pytest.mark.usefixtures("tight")
def test_spilled_node_table(tmp_path):
    order = np.random.default_rng(0).permutation(100)
    rows = "".join(f"{i},{i / 2},{i % 3},{i}\n" for i in order)
    table = write(tmp_path / "n.csv", "id,f0,f1,y\n" + rows)
    path = write(tmp_path / "e.csv", "".join(f"{i},{(i * 7) % 100}\n" for i in range(100)))
    summary = gz.convert(
        path, tmp_path / "s", nodes=str(table), node_attrs={"x": "f*", "y": "y", "both": "f0,y"}
    )
    data = gz.open(tmp_path / "s").data()
    found = kinds(summary.info["node_types"][0])
    assert found == {"x": "float32[2]", "y": "int64", "both": "float64[2]"}
    assert data.y.tolist() == order.tolist()
    assert np.array_equal(data.x.numpy(), np.stack([order / 2, order % 3], axis=1))
    assert edges_of(tmp_path / "s") == [(i, (i * 7) % 100) for i in range(100)]
    assert [entry.name for entry in tmp_path.iterdir() if "scratch" in entry.name] == []


@pytest.mark.usefixtures("tight")
def test_a_map_that_does_not_fit_names_the_memory_it_needs(tmp_path):
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 2**60, (400, 2))
    path = write(tmp_path / "e.csv", "\n".join(f"{a},{b}" for a, b in edges))
    words = r"memory: mapping the ids of 800 nodes takes .* pass memory='\d+MB' or more"
    refused(path, tmp_path / "s", words, error=ValueError)


@pytest.mark.usefixtures("tight")
def test_a_quote_that_never_ends_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "MAX_ROW_BYTES", 100)
    path = write(tmp_path / "e.csv", 'a,b\n1,2\n"open,2\n' + "3,4\n" * 100)
    refused(path, tmp_path / "s", "line 3: found a row of more than 0 MiB, expected", header=True)


spilled = pytest.mark.parametrize("tight", [[True], [False], [True, False, False]], indirect=True)


@spilled
def test_many_runs_are_merged_in_rounds(tmp_path, tight):
    value = np.random.default_rng(0).integers(0, 1 << 40, 40_000)
    rows = [ArrayRows(torch.from_numpy(part)) for part in np.array_split(value, 200)]
    with Workspace(tmp_path / "store") as space:
        space.room = 1 << 14
        found = distinct_integers(rows, 0, space)
        assert np.array_equal(found.read(0, len(found)).numpy(), np.unique(value))


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), min_size=1).map(
    lambda text: text.strip(" \t") or "x"
)
FAST = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])


@chunks.tiny
@spilled
@FAST
@given(
    edges=st.lists(
        st.tuples(
            st.integers(0, 2**63 - 1),
            st.integers(0, 2**63 - 1),
            st.floats(allow_nan=False, allow_infinity=False),
            st.integers(-(2**63), 2**63 - 1),
        ),
        min_size=1,
    ),
    delimiter=st.sampled_from([",", "\t", ";", "|"]),
    header=st.booleans(),
)
def test_any_integers_come_back(tmp_path, tight, edges, delimiter, header):
    rows = [[str(s), str(d), repr(w), str(t)] for s, d, w, t in edges]
    if header:
        rows.insert(0, ["source", "target", "w", "t"])
    path = write(tmp_path / "e.csv", "\n".join(map(delimiter.join, rows)))
    gz.convert(
        path,
        tmp_path / "store",
        edge_attrs={"w": 2, "t": 3},
        dtypes={"w": "float64", "t": "int64"},
        ids="map",
        force=True,
    )
    assert Counter(edges_of(tmp_path / "store", None, "w", "t")) == Counter(edges)


@chunks.tiny
@spilled
@FAST
@given(edges=st.lists(st.tuples(CELLS, CELLS), min_size=1))
@example(edges=[("0", "FALSE")])
def test_any_text_ids_come_back(tmp_path, tight, edges):
    buffer = io.StringIO()
    csv.writer(buffer, quoting=csv.QUOTE_ALL).writerows(edges)
    path = write(tmp_path / "e.csv", buffer.getvalue())
    gz.convert(
        path,
        tmp_path / "store",
        id_type="str",
        header=False,
        delimiter=",",
        comment=None,
        force=True,
    )
    assert edges_of(tmp_path / "store") == edges
    ids = list(gz.open(tmp_path / "store").ids())
    assert ids == sorted(set(ids))
