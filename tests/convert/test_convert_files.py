"""Files of arrays, read in place and in pieces: `.npy`, `.npz`, `.pt`."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import chunks
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from convert_support import edges_of, random_edges

import pyg_graphzero as gz
from pyg_graphzero import InputError
from pyg_graphzero.conversion import ends
from pyg_graphzero.conversion.ends import ExpandedRows
from pyg_graphzero.store.rows import ArrayRows

EDGES = random_edges(20, 60)
PAIRS = [tuple(pair) for pair in EDGES.T.tolist()]


@chunks.both
@pytest.mark.parametrize("dtype", ["int64", "uint8", ">i4"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("form", ["npy", "stored", "deflated"])
def test_edges_of_any_layout(
    tmp_path: Path, dtype: str, order: Any, transposed: bool, form: str
) -> None:
    array = np.array(EDGES.T if transposed else EDGES, dtype=dtype, order=order)
    path = tmp_path / ("e.npy" if form == "npy" else "e.npz")
    write = {"npy": np.save, "stored": np.savez, "deflated": np.savez_compressed}[form]
    write(path, array)
    gz.convert(path, tmp_path / "s")
    assert edges_of(tmp_path / "s") == PAIRS
    assert {each.name for each in tmp_path.iterdir()} == {path.name, "s"}


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_versions_of_the_header(tmp_path: Path, version: tuple[int, int]) -> None:
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array(file, EDGES, version=version)
    gz.convert(tmp_path / "a.npy", tmp_path / "s")
    assert edges_of(tmp_path / "s") == PAIRS


@chunks.both
def test_many_files_of_arrays(tmp_path: Path) -> None:
    (tmp_path / "edges").mkdir()
    (tmp_path / "x").mkdir()
    x = np.random.default_rng(0).random((20, 3)).round(3)
    for part, (begin, end) in enumerate([(0, 25), (25, 25), (25, 60)]):
        np.save(tmp_path / "edges" / f"{part}.npy", EDGES[:, begin:end].astype(np.int32))
    for part, (begin, end) in enumerate([(0, 7), (7, 20)]):
        np.save(tmp_path / "x" / f"{part}.npy", x[begin:end])
    summary = gz.convert(tmp_path / "edges", tmp_path / "s", node_attrs={"x": tmp_path / "x"})
    assert edges_of(tmp_path / "s") == PAIRS
    assert np.array_equal(gz.open(tmp_path / "s").data().x.numpy(), x.astype(np.float32))
    asked = "dtypes={'x': 'float64'} (--dtype x=float64)"
    assert summary.notes == [f"x: float64 is stored as float32; {asked} keeps it"]
    attrs, dtypes = {"x": tmp_path / "x"}, {"x": "float64"}
    gz.convert(tmp_path / "edges", tmp_path / "w", node_attrs=attrs, dtypes=dtypes)
    assert np.array_equal(gz.open(tmp_path / "w").data().x.numpy(), x)

    x[9, 1] = 1e6
    np.save(tmp_path / "x" / "1.npy", x[7:])
    with pytest.raises(InputError, match=r"x: 1\.npy: row 2: found 1000000\.0, expected a value"):
        gz.convert(
            tmp_path / "edges",
            tmp_path / "t",
            node_attrs={"x": tmp_path / "x"},
            dtypes={"x": "float16"},
        )
    np.save(tmp_path / "x" / "1.npy", x[7:].astype(np.float32))
    with pytest.raises(InputError, match=r"1\.npy: dtype: found float32\[3\], expected float64\[3"):
        gz.convert(tmp_path / "edges", tmp_path / "t", node_attrs={"x": tmp_path / "x"})
    np.save(tmp_path / "edges" / "2.npy", EDGES[:, 25:] - 20)
    with pytest.raises(InputError, match=r"edges: 2\.npy: src\[0\]: found id -\d+, expected an id"):
        gz.convert(tmp_path / "edges", tmp_path / "t")


def test_an_archive_that_ends_in_a_member(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "g.npz", edge_index=EDGES, x=np.random.random((20, 500)))
    with zipfile.ZipFile(tmp_path / "g.npz") as archive:
        at = archive.getinfo("x.npy").header_offset + 9000
    raw = bytearray((tmp_path / "g.npz").read_bytes())
    raw[at : at + 1000] = bytes(1000)
    (tmp_path / "g.npz").write_bytes(raw)
    with pytest.raises(InputError, match=r"g\.npz: member 'x': found .*, expected undamaged data"):
        gz.convert(tmp_path / "g.npz", tmp_path / "s", node_attrs={"x": f"{tmp_path}/g.npz:x"})
    assert [each.name for each in tmp_path.iterdir()] == ["g.npz"]


def test_pointers_expand_to_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "_STEP", 4)
    counts = np.array([0, 3, 0, 0, 1, 7, 0, 0, 0, 2, 0, 5, 0])
    pointers = np.concatenate([[0], np.cumsum(counts)])
    want = np.repeat(np.arange(13), counts)
    rows = ExpandedRows(ArrayRows(torch.from_numpy(pointers)), 18, Path("g.npz"))
    for begin in range(19):
        for end in range(begin, 19):
            assert rows.read(begin, end).tolist() == want[begin:end].tolist()
    pointers[6] = 20
    with pytest.raises(InputError, match="values that do not ascend"):
        ExpandedRows(ArrayRows(torch.from_numpy(pointers)), 18, Path("g.npz"))


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
def test_memory_does_not_grow_with_the_features(tmp_path: Path) -> None:
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
