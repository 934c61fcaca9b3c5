"""Files of arrays, read in place and in pieces: `.npy`, `.npz`, `.pt`."""

from __future__ import annotations

import subprocess
import sys

import chunks
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from convert_support import converted, edges_from, edges_of, random_edges, refused

import pyg_graphzero as gz
from pyg_graphzero import InputError
from pyg_graphzero.store.rows import FileRows, inflated_rows
from pyg_graphzero.util.workspace import Workspace

EDGES = random_edges(20, 60)
PAIRS = [tuple(pair) for pair in EDGES.T.tolist()]


@chunks.tiny
@pytest.mark.parametrize("dtype", ["int64", "uint8", ">i4"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("form", ["npy", "npy 2.0", "stored", "deflated"])
def test_edges_of_any_layout(tmp_path, dtype, order, transposed, form):
    array = np.array(EDGES.T if transposed else EDGES, dtype=dtype, order=order)
    path = tmp_path / ("e.npy" if "npy" in form else "e.npz")
    if form == "npy 2.0":
        with path.open("wb") as file:
            np.lib.format.write_array(file, array, version=(2, 0))
    else:
        {"npy": np.save, "stored": np.savez, "deflated": np.savez_compressed}[form](path, array)
    assert edges_from(path, tmp_path / "s") == PAIRS
    assert {each.name for each in tmp_path.iterdir()} == {path.name, "s"}


@chunks.both
def test_many_files_of_arrays(tmp_path):
    edges, attrs = tmp_path / "edges", {"x": tmp_path / "x"}
    edges.mkdir()
    attrs["x"].mkdir()
    x = np.random.default_rng(0).random((20, 3)).round(3)
    for part, (begin, end) in enumerate([(0, 25), (25, 25), (25, 60)]):
        np.save(edges / f"{part}.npy", EDGES[:, begin:end].astype(np.int32))
    for part, rows in enumerate([x[:7], x[7:]]):
        np.save(attrs["x"] / f"{part}.npy", rows)
    summary = gz.convert(edges, tmp_path / "s", node_attrs=attrs)
    assert edges_of(tmp_path / "s") == PAIRS
    assert np.array_equal(gz.open(tmp_path / "s").data().x.numpy(), x.astype(np.float32))
    asked = "dtypes={'x': 'float64'} (--dtype x=float64)"
    assert summary.notes == [f"x: float64 is stored as float32; {asked} keeps it"]
    wide = converted(edges, tmp_path / "w", node_attrs=attrs, dtypes={"x": "float64"})
    assert np.array_equal(wide.x.numpy(), x)

    x[9, 1] = 1e6
    np.save(attrs["x"] / "1.npy", x[7:])
    words, half = r"x: 1\.npy: row 2: found 1000000\.0, expected a value", {"x": "float16"}
    refused(edges, tmp_path / "t", words, node_attrs=attrs, dtypes=half)
    np.save(attrs["x"] / "1.npy", x[7:].astype(np.float32))
    words = r"1\.npy: dtype: found float32\[3\], expected float64\[3"
    refused(edges, tmp_path / "t", words, node_attrs=attrs)
    np.save(edges / "2.npy", EDGES[:, 25:] - 20)
    refused(edges, tmp_path / "t", r"edges: 2\.npy: src\[0\]: found id -\d+, expected an id")


def test_files_that_end_before_their_rows(tmp_path):
    path = tmp_path / "short.bin"
    path.write_bytes(bytes(39))
    with pytest.raises(InputError, match="found 39 bytes, expected 40 or more, for 10 rows"):
        FileRows(path, 0, (10,), torch.int32)
    path.write_bytes(bytes(40))
    rows = FileRows(path, 0, (10,), torch.int32)
    path.write_bytes(bytes(12))
    with pytest.raises(InputError, match=r"short\.bin: file: found 12 bytes"):
        rows.read(0, 10)
    stream = inflated_rows(path, "member 'x'", lambda: path.open("rb"), (5,), torch.int32)
    with pytest.raises(InputError, match="member 'x': found an end after 3 rows, expected 5"):
        list(stream.slabs(2))


def test_temporary_files_are_made_where_asked_and_removed(tmp_path):
    left = tmp_path / "tmp" / ".store.scratch-0a"
    left.mkdir(parents=True)
    (left / "lock").touch()
    with Workspace(tmp_path / "store", tmp=tmp_path / "tmp") as space:
        first, second = space.file("a"), space.file("a")
        assert first != second
        assert first.parent == second.parent
        assert first.parent.parent == tmp_path / "tmp"
        assert not left.exists(), "nothing held its lock"
        first.write_bytes(bytes(32))
    assert list((tmp_path / "tmp").iterdir()) == []


MEMORY = """
import resource, sys
import numpy as np
import pyg_graphzero as gz
from pyg_graphzero.conversion import tables
from pyg_graphzero.store import rows

rows.SLAB_BYTES = tables.SLAB_BYTES = 1 << 20
folder, *sources = sys.argv[1:]
ring = np.array([[0, 1, 2], [1, 2, 0]])

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

gz.convert(ring, folder + "/first", num_nodes=60_000, node_attrs={"y": np.zeros(60_000)})
for source in sources:
    before = peak()
    gz.convert(ring, f"{folder}/s", num_nodes=60_000, node_attrs={"x": source}, force=True)
    print(source, peak() - before)
"""


@pytest.mark.long
def test_memory_does_not_grow_with_the_features(tmp_path):
    x = np.zeros((60_000, 128), dtype=np.float32)  # 30,000 KiB
    np.save(tmp_path / "c.npy", x)
    np.save(tmp_path / "f.npy", np.asfortranarray(x))
    np.savez(tmp_path / "stored.npz", x)
    np.savez_compressed(tmp_path / "deflated.npz", x)
    torch.save(torch.from_numpy(x), tmp_path / "t.pt")
    lists = pa.FixedSizeListArray.from_arrays(x.reshape(-1), 128)
    pq.write_table(pa.table({"x": lists}), tmp_path / "t.parquet", row_group_size=5000)
    sources = [str(path) for path in sorted(tmp_path.iterdir())]
    command = [sys.executable, "-c", MEMORY, str(tmp_path), *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    grown = dict(line.rsplit(maxsplit=1) for line in done.stdout.splitlines())
    assert len(grown) == 6
    assert all(int(growth) < 20_000 for growth in grown.values()), done.stdout
