"""Damaged input of every kind: an error that names file and place, whatever the library raised."""

from __future__ import annotations

import bz2
import gzip
import struct
import zipfile
from pathlib import Path

import layouts
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pythons
import torch
from convert_support import converted, edges_from, refused, write
from torch_geometric.data import Data

import pyg_graphzero as gz
from pyg_graphzero import InputError

# Arrow uses lengths and offsets as they are in the file: in a process of its own, since what is to
# be shown is that the process lives.
ALIVE = """
import sys
import pyg_graphzero as gz
for path in sys.argv[1:]:
    try:
        gz.convert(path, path + ".store", ids="map", edge_attrs=["list", "coded"])
    except gz.InputError as error:
        print(error)
"""


def words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


BUFFERS = [
    ("src", words(8, 16, 24), words(8, 2**31 - 1, 24), "out of bounds"),
    ("src", words(8, 16, 24), words(8, -(2**31), 24), "ffset"),
    ("src", words(8, 16, 24), words(8, 7, 24), "non-monotonic"),
    ("src", b"source17", b"sour\xffe17", "UTF8"),
    ("dst", words(3, 4, 5), words(3, 2**31 - 1, 5), "out of bounds"),
    ("dst", words(14, 21), words(-14, 21), "ffset"),
    ("list", words(6, 8, 10), words(6, 2**30, 10), "out of bounds"),
    ("coded", words(5, 6, 0), words(5, -9, 0), "out of bounds"),
]


def test_arrow_files_whose_buffers_lie(tmp_path):
    count = np.arange(60)
    table = pa.table(
        {
            "src": [f"source{i:02}" for i in count],
            "dst": pa.array([f"word{i:03}" for i in count]).dictionary_encode(),
            "list": [[float(i), 0.0] for i in count],
            "coded": pa.array(count % 7 + 1000).dictionary_encode(),
        }
    )
    paths = [tmp_path / f"{number}.arrow" for number in range(len(BUFFERS))]
    for path, (_, old, new, _) in zip(paths, BUFFERS, strict=True):
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
        raw = path.read_bytes()
        assert old in raw
        path.write_bytes(raw.replace(old, new, 1))
    done = pythons.run(ALIVE, *paths, timeout=200)
    assert done.returncode == 0, done.stderr
    errors = done.stdout.splitlines()
    for path, (column, _, _, message), error in zip(paths, BUFFERS, errors, strict=True):
        assert error.startswith(f"{path}: batch 0, column '{column}': found In column 0: "), error
        assert message in error
        assert error.endswith(", expected a whole Arrow file")


def test_parquet_text_that_is_none(tmp_path):
    path = tmp_path / "edges.parquet"
    table = pa.table({"src": ["a", "bcdefg"], "dst": ["a", "a"]})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    path.write_bytes(path.read_bytes().replace(b"bcdefg", b"bc\xff\xfffg"))
    assert refused(path, tmp_path / "store").startswith(f"{path}: batch 0, column 'src': found ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"{'descr'", b"{'desc('"),  # TokenError of Python's tokenizer
        (b"(2, 30)", b"(2, 3$)"),  # SyntaxError
        (b"(2, 30)", b"(2,-30)"),
        (b"(2, 30)", b"(2,1.0)"),
        (b"'<i8'", b"'<i9'"),  # TypeError
        (b"'<i8'", b"'<08'"),
        (b"(2, 30), }", b"(2, 1" + b"0" * 300 + b"), }"),  # OverflowError
    ],
)
def test_npy_headers(tmp_path, old, new):
    path = tmp_path / "edges.npy"
    np.save(path, np.zeros((2, 30), np.int64))
    raw = path.read_bytes().replace(old, new)
    path.write_bytes(raw[:8] + struct.pack("<H", 118 + len(new) - len(old)) + raw[10:])
    assert refused(path, tmp_path / "store").startswith(f"{path}: file: found ")


@pytest.mark.parametrize("at", [80, 5000])
def test_a_deflated_member(tmp_path, at):
    """zlib.error, in the header of the array and in the midst of its rows."""
    path = tmp_path / "graph.npz"
    edges = np.random.default_rng(0).integers(0, 1000, (2, 5000))
    np.savez_compressed(path, edge_index=edges)
    raw = bytearray(path.read_bytes())
    raw[at : at + 40] = b"\xff" * 40
    path.write_bytes(raw)
    assert refused(path, tmp_path / "store").startswith(f"{path}: member 'edge_index': found ")


def test_an_archive_that_points_before_its_begin(tmp_path):
    """OSError of the operating system, but not its fault."""
    path = tmp_path / "graph.npz"
    np.savez(path, edge_index=np.zeros((2, 30), np.int64))
    raw = path.read_bytes()
    at = raw.index(b"PK\x05\x06") + 16  # where the directory begins
    (begin,) = struct.unpack_from("<I", raw, at)
    path.write_bytes(raw[:at] + struct.pack("<I", begin + 100) + raw[at + 4 :])
    assert refused(path, tmp_path / "store").startswith(f"{path}: ")


def test_an_empty_compressed_file(tmp_path):
    for suffix in (".bz2", ".gz", ".zst", ".lz4"):
        path = tmp_path / f"edges.csv{suffix}"
        path.write_bytes(b"")
        assert refused(path, tmp_path / "store").startswith(f"{path}: file: found ")


@pytest.mark.parametrize("at", [4, 60, -10])
def test_damaged_bz2(tmp_path, at):
    raw = bytearray(bz2.compress(b"src,dst\n" + b"1,2\n" * 2000))
    raw[at] ^= 0x55
    path = tmp_path / "edges.csv.bz2"
    path.write_bytes(raw)
    assert refused(path, tmp_path / "store").startswith(f"{path}: file: found damaged bz2 data (")


@pytest.mark.parametrize("quote", ["", '"'])
def test_long_cells(tmp_path, quote):
    """csv's own limit is 131,072 characters; ours is a row of 64 MiB."""
    long = quote + "x" * 300_000 + quote
    path = write(tmp_path / "edges.csv", f"src,dst,note\na,b,{long}\nb,{long},c\n")
    bad = write(tmp_path / "bad.csv", f"src,dst,note\na,b,{long}\nb,c,d,e\n")
    assert refused(bad, tmp_path / "store").startswith(f"{bad}: line 3: found 4 cells")
    assert edges_from(path, tmp_path / "store") == [("a", "b"), ("b", "x" * 300_000)]


@pytest.mark.timeout(100)  # time by the square of its length would be many minutes
@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
def test_a_first_line_of_megabytes(tmp_path, suffix):
    text = f"src,dst,{'x' * (8 << 20)}\n1,2,3\n4,5,6\n"
    path = write(tmp_path / f"edges.{suffix}", text)
    assert edges_from(path, tmp_path / "store", ids="map") == [(1, 2), (4, 5)]


@pytest.mark.timeout(100)  # looking for each among all would take minutes
def test_tens_of_thousands_of_columns(tmp_path):
    names = [f"c{i}" for i in range(50_000)]
    rows = [f"{i},{i + 1},{','.join(map(str, range(i, i + len(names))))}" for i in range(2)]
    path = write(tmp_path / "edges.csv", "\n".join([",".join(["src", "dst", *names]), *rows, ""]))
    found = converted(path, tmp_path / "store", edge_attrs={"edge_attr": names[::-1]}).edge_attr
    assert torch.equal(found, torch.arange(len(names)).flip(0) + torch.arange(2)[:, None])


def test_a_line_without_end(tmp_path):
    """200 MB of it in a file of 200 kB: no more than the limit is read."""
    path = tmp_path / "edges.csv.gz"
    path.write_bytes(gzip.compress(b"# here it comes\n") + gzip.compress(b"x" * 10**6) * 200)
    error = refused(path, tmp_path / "store")
    expected = "found more than 64 MiB without an end of line, expected rows of at most 64 MiB"
    assert error == f"{path}: line 2: {expected}"


def test_numbers_of_thousands_of_digits(tmp_path):
    path = write(tmp_path / "edges.csv", f"src,dst\n1,2\n3,{'9' * 5000}\n")
    assert refused(path, tmp_path / "store").startswith(f"{path}: line 3, column 'dst': found '999")
    path = write(tmp_path / "zeros.csv", f"src,dst\n1,2\n3,{'0' * 5000}1\n")
    assert edges_from(path, tmp_path / "store", ids="map") == [(1, 2), (3, 1)]


def nested(path: Path) -> Path:
    deep = b"[" * (5_000 if path.suffix == ".yaml" else 200_000)
    if path.suffix == ".toml":
        path.write_bytes(b"a = " + deep)
    else:
        path.write_bytes(deep)
    return path


@pytest.mark.parametrize("name", ["g.json", "g.toml", "metadata.yaml"])
def test_brackets_without_end(tmp_path, name):
    """RecursionError of the parsers."""
    path = nested(tmp_path / name)
    source = tmp_path if path.suffix == ".yaml" else path
    assert refused(source, tmp_path / "store").startswith(f"{path}: ")


@pytest.mark.parametrize("legacy", [False, True])
def test_torch_files(tmp_path, legacy):
    """Every byte of the pickle in turn: a store, or an error that names the file."""
    path, good = tmp_path / "graph.pt", tmp_path / "good.pt"
    data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
    torch.save(data, good, _use_new_zipfile_serialization=not legacy)
    raw = good.read_bytes()
    begin = raw.index(b"torch_geometric")
    rng = np.random.default_rng(0)
    errors = []
    for at in rng.integers(begin, begin + 600, 60).tolist():
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 0x41]) + raw[at + 1 :])
        try:
            gz.convert(path, tmp_path / "store", force=True)
        except InputError as error:
            errors.append(str(error))
    assert len(errors) > 20
    assert all(error.startswith(str(path)) for error in errors)


def _rename_key(path: Path) -> None:
    torch.save({1: 5, "paper": "many"}, path)


@pytest.mark.parametrize(
    ("make", "name", "damage"),
    [
        (layouts.mag240m, "meta.pt", _rename_key),
        (layouts.mag240m, "split_dict.pt", lambda path: torch.save({3: "x"}, path)),
        (layouts.mag240m, "split_dict.pt", lambda p: torch.save({"train": {"a": 1}}, p)),
        (layouts.mag240m, "split_dict.pt", lambda p: torch.save({"train": torch.tensor([999])}, p)),
        (layouts.ogb_hetero_csv, "raw/num-node-dict.csv.gz", lambda p: write(p, "a,b\n1,x\n")),
        (layouts.ogb_hetero_csv, "raw/num-node-dict.csv.gz", lambda p: write(p, "a,b\n1\n")),
        (layouts.graphbolt, "metadata.yaml", lambda p: p.write_text("graph: {nodes: 5}\n")),
        (layouts.graphbolt, "metadata.yaml", lambda p: p.write_text("when: 2020-99-99\n")),
    ],
)
def test_layouts(tmp_path, make, name, damage):
    root = make(tmp_path / "dataset", layouts.academic())
    damage(root / name)
    assert refused(root, tmp_path / "store").startswith(str(root))


def test_the_first_row_of_a_split_is_no_header(tmp_path):
    """A damaged id looks like the name of a column."""
    root = layouts.ogb_csv(tmp_path / "dataset", layouts.citations())
    path = root / "split" / "time" / "train.csv.gz"
    write(path, "v\n3\n4\n")
    assert refused(root, tmp_path / "store").startswith(f"{path}: line 1, column 0: found 'v'")


def test_errors_of_the_system_name_the_input(tmp_path):
    """They pass as they are: the disk is to blame, not the file."""
    path = tmp_path / "graph.npz"
    np.savez_compressed(path, edge_index=np.zeros((2, 3), np.int64))

    def fails(*_, **__):
        raise OSError(5, "Input/output error")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zipfile.ZipFile, "infolist", fails)
        with pytest.raises(OSError, match="Input/output error") as caught:
            gz.convert(path, tmp_path / "store")
    assert (caught.value.errno, caught.value.filename) == (5, str(path))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
@pytest.mark.parametrize("pointers", [[0, 1, 5, 2], [1, 1, 2, 2], [0, -4, 1, 2], [0, 1, 2, 9]])
def test_a_sparse_tensor_that_torch_does_not_check(tmp_path, pointers):
    inner, values = torch.tensor([0, 1]), torch.ones(2)
    crow = torch.tensor(pointers)
    adj = torch.sparse_csr_tensor(crow, inner, values, (3, 3), check_invariants=False)
    error = refused(Data(x=torch.ones(3, 1), adj_t=adj), tmp_path / "store")
    assert error.startswith("Data: adj_t: found pointers ")
    assert error.endswith("expected 0 ascending to 2")
