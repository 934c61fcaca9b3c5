"""Files of arrays, read in place and in pieces: `.npy`, `.npz`, `.pt`, `.safetensors`, raw rows."""

from __future__ import annotations

import json
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
from pyg_graphzero.conversion.tensors import open_safetensors
from pyg_graphzero.store.rows import (
    ArrayRows,
    FileRows,
)

EDGES = random_edges(20, 60)
PAIRS = [tuple(pair) for pair in EDGES.T.tolist()]


def save_safetensors(path: Path, **tensors: np.ndarray) -> Path:
    """Writes the format as its page specifies it: length, JSON padded with blanks, data."""
    names = {"float32": "F32", "int64": "I64", "float16": "F16"}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, array in tensors.items():
        span = [at, at := at + array.nbytes]
        dtype = names[str(array.dtype)]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": span}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(array.tobytes() for array in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


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


def test_safetensors(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((20, 3)).astype(np.float16)
    path = save_safetensors(tmp_path / "g.safetensors", edge_index=EDGES, x=x)
    gz.convert(path, tmp_path / "s", node_attrs={"x": f"{path}:x"})
    assert edges_of(tmp_path / "s") == PAIRS
    assert np.array_equal(gz.open(tmp_path / "s").data().x.numpy(), x)
    rows = open_safetensors(path)["x"]()
    assert isinstance(rows, FileRows)
    assert rows.shape == (20, 3)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "header: found a length of 0 bytes, expected at most 0"),
        (b"\xff" * 8 + b"{}", "header: found a length of 18446744073709551615 bytes, expected at"),
        ((9).to_bytes(8, "little") + b"not json!", "header: found Expecting value"),
        ((2).to_bytes(8, "little") + b"[]", "header: found list, expected a JSON object"),
        (
            {"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}},
            "tensor 'x': found 8 bytes, expected 12 for (3,)",
        ),
        (
            {"x": {"dtype": "F99", "shape": [3], "data_offsets": [0, 12]}},
            'tensor \'x\': found {"dtype": "F99"',
        ),
        (
            {"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}},
            "file: found 74 bytes, expected 82 or more, for 3 rows",
        ),
    ],
)
def test_damaged_safetensors(tmp_path: Path, raw: Any, message: str) -> None:
    if isinstance(raw, dict):
        text = json.dumps(raw).encode()
        raw = len(text).to_bytes(8, "little") + text + bytes(4)
    (tmp_path / "x.safetensors").write_bytes(raw)
    with pytest.raises(InputError) as caught:
        gz.convert(EDGES, tmp_path / "s", node_attrs={"x": f"{tmp_path}/x.safetensors:x"})
    assert message in str(caught.value)


def test_raw_rows(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((20, 3), dtype=np.float32)
    (tmp_path / "x.bin").write_bytes(x.tobytes())
    (tmp_path / "y.raw").write_bytes(np.arange(20).astype(">i2").tobytes())
    (tmp_path / "e.bin").write_bytes(EDGES.T.astype(np.int32).tobytes())
    (tmp_path / "two.bin").write_bytes(EDGES.tobytes())
    attrs = {"x": f"{tmp_path}/x.bin:float32[3]", "y": f"{tmp_path}/y.raw:>int16"}
    gz.convert(f"{tmp_path}/e.bin:int32[2]", tmp_path / "s", node_attrs=attrs)
    assert edges_of(tmp_path / "s") == PAIRS
    data = gz.open(tmp_path / "s").data()
    assert np.array_equal(data.x.numpy(), x)
    assert (data.y.dtype, data.y.tolist()) == (torch.int16, list(range(20)))
    gz.convert(f"{tmp_path}/two.bin:int64", tmp_path / "t", edge_layout="2xE")
    assert edges_of(tmp_path / "t") == PAIRS

    def message(source: str) -> str:
        with pytest.raises(InputError) as caught:
            gz.convert(f"{tmp_path}/{source}", tmp_path / "u")
        return str(caught.value).replace(f"{tmp_path}/", "")

    assert message("e.bin").startswith("e.bin: layout: found none, expected dtype and shape of a")
    assert "layout: found 'intt[2]', expected" in message("e.bin:intt[2]")
    assert "file: found 480 bytes, expected a multiple of 56, as int64[7]" in message(
        "e.bin:int64[7]"
    )
    assert "shape [160, 3], expected shape [2, E] or [E, 2]" in message("e.bin:int8[3]")


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


def test_members_not_taken_are_named(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    np.savez(
        path,
        edge_index=EDGES,
        x=np.ones((20, 3), np.float32),
        label=np.ones(20),
        train_idx=np.arange(3),
    )
    summary = gz.convert(path, tmp_path / "s", node_attrs={"x": f"{path}:x"})
    assert summary.notes == ["g.npz: members not taken: label, train_idx"]
    attrs = {name: f"{path}:{name}" for name in ("x", "label", "train_idx")}
    assert gz.convert(path, tmp_path / "t", node_attrs=attrs).notes == []


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
