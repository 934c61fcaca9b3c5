"""Small inputs of every kind, and what the libraries that made them read in them.

A kind writes its files and says what to convert. Its reference reads the same files, whatever has
become of them, with the plain library calls a user would make.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import random
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from mutate import mutate
from torch_geometric.data import Data, HeteroData

from pyg_graphzero.conversion.pyg import safe_globals

Triplet = tuple[str, str, str]


@dataclass
class Graph:
    """The graph that a plain reader finds.

    Attributes:
        edges: Sources, destinations and attributes by edge type; ids as the input has them.
        nodes: Attributes by node type.
    """

    edges: dict[Triplet | None, tuple[Any, Any, dict[str, Any]]] = field(default_factory=dict)
    nodes: dict[str | None, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Input:
    """Something to convert.

    Attributes:
        source: Source of the conversion.
        options: Options of the conversion.
        files: Files of the input.
        read: Reads the reference; errors of its libraries pass through.
        repack: Files that are compressed: damages what is inside, by path.
    """

    source: Any
    files: list[Path]
    read: Callable[[], Graph]
    options: dict[str, Any] = field(default_factory=dict)
    repack: dict[Path, Callable[[random.Random], None]] = field(default_factory=dict)


Kind = Callable[[random.Random, Path], Input]


def _numbers(rng: random.Random, *shape: int, high: int = 20) -> np.ndarray:
    return np.random.default_rng(rng.randrange(1 << 32)).integers(0, high, shape)


def _floats(rng: random.Random, *shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(rng.randrange(1 << 32)).random(shape).astype(dtype)


# Text


_BLANKS = " \t"
_INTEGER = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(nan|inf|infinity)", re.I
)


_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


def _decompress(path: Path) -> bytes:
    raw = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(raw)
    if path.suffix == ".bz2":
        return bz2.decompress(raw)
    if path.suffix not in _CODECS:
        return raw
    with pa.CompressedInputStream(pa.BufferReader(raw), _CODECS[path.suffix]) as stream:
        return stream.read()


def _compress(path: Path, raw: bytes) -> None:
    if path.suffix not in _CODECS:
        path.write_bytes(raw)
        return
    with pa.CompressedOutputStream(str(path), _CODECS[path.suffix]) as stream:
        stream.write(raw)


def cells(path: Path, delimiter: str) -> list[list[str]]:
    """Rows as the guide to text describes them."""
    raw = _decompress(path).removeprefix(b"\xef\xbb\xbf")
    text = raw.decode("utf-8", errors="replace")
    is_within = False  # a record, whose quotes go on over the end of a line

    def lines() -> Iterator[str]:
        nonlocal is_within
        for line in text.split("\n"):
            line = line.removesuffix("\r")
            bare = line.strip(_BLANKS)
            if not is_within and (not line.strip(" \t\r") or bare.startswith("#")):
                continue
            is_within = True
            line = re.sub(r"[ \t]+", " ", bare) if delimiter == " " else line
            yield line + "\n"

    csv.field_size_limit(1 << 30)
    rows = []
    for row in csv.reader(lines(), delimiter=delimiter):
        is_within = False
        rows.append([cell.strip(_BLANKS) for cell in row])
    return rows


def _integer(cell: str) -> int:
    if not _INTEGER.fullmatch(cell) or not -(2**63) <= int(cell) < 2**63:
        raise ValueError(cell)
    return int(cell)


def _number(cell: str) -> float:
    if not _NUMBER.fullmatch(cell):
        raise ValueError(cell)
    return float(cell)


def _word(cell: str) -> str:
    if not cell or "\ufffd" in cell:
        raise ValueError(cell)
    return cell


def text(rng: random.Random, directory: Path) -> Input:
    """Delimited text in one or two files, with ids that are integers or words."""
    delimiter = rng.choice([",", "\t", ";", "|", " "])
    suffix = rng.choice([".csv", ".tsv", ".txt"]) + rng.choice(["", "", *_CODECS])
    has_header, is_text = rng.random() < 0.6, rng.random() < 0.4
    names = ["src", "dst", "weight", "time"]
    files = [directory / f"edges-{part}{suffix}" for part in range(rng.choice([1, 1, 1, 2]))]
    for file in files:
        rows = []
        for _ in range(rng.randrange(1, 60)):
            ends = [rng.randrange(30), rng.randrange(30)]
            shown = [f"n{end}" for end in ends] if is_text else list(map(str, ends))
            if is_text and delimiter != " " and rng.random() < 0.1:
                shown[0] = f'"{shown[0]}{delimiter}"'
            rows.append([*shown, repr(rng.random()), str(rng.randrange(10**6))])
        lines = [delimiter.join(row) for row in ([names] if has_header else []) + rows]
        if rng.random() < 0.3:
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(["# a comment", "", "  "]))
        end = rng.choice(["\n", "\n", "\r\n"])
        _compress(file, end.join([*lines, ""]).encode())

    def read() -> Graph:
        tables = [cells(file, delimiter) for file in files]
        header = next(table[0] for table in tables if table) if has_header else None
        rows = []
        for table in tables:
            if header is not None and table and table[0] == header:
                table = table[1:]
            rows += table
        width = len(header or rows[0])
        at = [header.index(name) for name in names] if header is not None else [0, 1, 2, 3]
        if any(len(row) != width for row in rows):
            raise ValueError("cells")
        value = _word if is_text else _integer
        src, dst = ([value(row[column]) for row in rows] for column in at[:2])
        weight = np.array([_number(row[at[2]]) for row in rows], np.float32)
        words = [row[at[3]] for row in rows]
        if any(_NUMBER.fullmatch(word) for word in words):
            is_whole = all(_INTEGER.fullmatch(word) for word in words)
            time = np.array([(_integer if is_whole else _number)(word) for word in words])
        else:  # a category
            order = sorted({_word(word) for word in words})
            time = np.array([order.index(word) for word in words])
        return Graph({None: (src, dst, {"edge_weight": weight, "time": time})})

    named: list[Any] = names if has_header else [0, 1, 2, 3]
    options = {"delimiter": delimiter, "header": has_header, "ids": "map"}
    options |= {"src": named[0], "dst": named[1], "id_type": "str" if is_text else "int"}
    options["edge_attrs"] = {"edge_weight": named[2], "time": named[3]}

    source = files[0] if len(files) == 1 else files
    compressed = {file: inside(file) for file in files if file.suffix in _CODECS}
    return Input(source, files, read, options, compressed)


# Arrays


def _ends(table: np.ndarray) -> tuple[Any, Any]:
    if table.ndim != 2 or table.dtype.kind not in "iu" or 2 not in table.shape:
        raise ValueError("no edges")
    src, dst = table if table.shape[0] == 2 else table.T
    return src.tolist(), dst.tolist()


def _arrays(rng: random.Random) -> dict[str, np.ndarray]:
    edges = _numbers(rng, 2, rng.randrange(3, 40)).astype(rng.choice(["int64", "int32", ">i8"]))
    if rng.random() < 0.5:
        edges = np.asfortranarray(edges.T)
    x = _floats(rng, 20, 3, dtype=rng.choice(["float32", "float64", "float16", ">f4"]))
    if rng.random() < 0.3:
        x = np.asfortranarray(x)
    return {"edge_index": edges, "x": x, "w": _floats(rng, max(edges.shape))}


def npy(rng: random.Random, directory: Path) -> Input:
    """An edge index, features and weights, each in a file of its own."""
    arrays = _arrays(rng)
    files = {name: directory / f"{name}.npy" for name in arrays}
    for name, value in arrays.items():
        np.save(files[name], value)

    def read() -> Graph:
        found = {name: np.load(file, allow_pickle=False) for name, file in files.items()}
        edges = {None: (*_ends(found["edge_index"]), {"w": found["w"]})}
        return Graph(edges, {None: {"x": found["x"]}})

    options = {"node_attrs": {"x": files["x"]}, "edge_attrs": {"w": files["w"]}}
    if rng.random() < 0.3:
        options["adopt"] = True
    return Input(files["edge_index"], list(files.values()), read, options)


def members(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an archive. Checksums do not count: rows that are only stored are read where
    they lie, as they would be of a `.npy` file.
    """
    found = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            with archive.open(info) as member:
                if info.compress_type == zipfile.ZIP_STORED:
                    member._expected_crc = None
                value = np.lib.format.read_array(member, allow_pickle=False)
                found[info.filename.removesuffix(".npy")] = value
                if member.read(1):
                    raise ValueError("more than an array")
    return found


def inside(path: Path) -> Callable[[random.Random], None]:
    """Damages a member of an archive, or what is compressed in a file."""

    def damage(rng: random.Random) -> None:
        if path.suffix != ".npz":
            return _compress(path, mutate(_decompress(path), rng))
        with zipfile.ZipFile(path) as archive:
            kind = archive.infolist()[0].compress_type
            parts = {name: archive.read(name) for name in archive.namelist()}
        name = rng.choice(sorted(parts))
        parts[name] = mutate(parts[name], rng)
        with zipfile.ZipFile(path, "w", kind) as archive:
            for member, raw in parts.items():
                archive.writestr(member, raw)

    return damage


def npz(rng: random.Random, directory: Path) -> Input:
    """An archive of them, stored or deflated; edges as an index, or compressed rows."""
    path = directory / "graph.npz"
    arrays = _arrays(rng)
    if rows := rng.random() < 0.4:
        counts = _numbers(rng, 20, high=4)
        indptr = np.concatenate([[0], counts.cumsum()])
        arrays = {"indptr": indptr, "indices": _numbers(rng, int(indptr[-1])), "x": arrays["x"]}
        arrays["w"] = _floats(rng, int(indptr[-1]))
    save = rng.choice([np.savez, np.savez_compressed])
    save(path, **arrays)

    def read() -> Graph:
        found = members(path)
        if rows:
            counts = np.diff(found["indptr"])
            if (
                found["indptr"][0] != 0
                or (counts < 0).any()
                or counts.sum() != len(found["indices"])
            ):
                raise ValueError("indptr")
            src = np.arange(len(counts)).repeat(counts).tolist()
            ends: tuple[Any, Any] = (src, found["indices"].tolist())
        else:
            ends = _ends(found["edge_index"])
        return Graph({None: (*ends, {"w": found["w"]})}, {None: {"x": found["x"]}})

    options = {"node_attrs": {"x": f"{path}:x"}, "edge_attrs": {"w": f"{path}:w"}}
    return Input(path, [path], read, options, {path: inside(path)})


# Tables


def _table(rng: random.Random, is_text: bool) -> pa.Table:
    count = rng.randrange(3, 120)

    def ids() -> Any:
        numbers = _numbers(rng, count, high=30)
        if not is_text:
            return pa.array(numbers.astype(rng.choice(["int64", "int32", "uint16"])))
        words = pa.array([f"n{number}" for number in numbers])
        return rng.choice([words, words.cast(pa.large_string()), words.dictionary_encode()])

    x = pa.array(list(_floats(rng, count, 2)))
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(_floats(rng, 2 * count)), 2)
    return pa.table(
        {
            "src": ids(),
            "dst": ids(),
            "w": pa.array(_floats(rng, count, dtype="float64")),
            "x": rng.choice([x, x.cast(pa.large_list(pa.float32())), fixed]),
            "b": pa.array(_numbers(rng, count, high=2).astype(bool)),
            "t": pa.array(_numbers(rng, count, high=10**6), pa.timestamp("s")),
            "d": pa.array(_numbers(rng, count, high=5)).dictionary_encode(),
        }
    )


_ATTRS = ("w", "x", "b", "t", "d")


def table(rng: random.Random, directory: Path) -> Input:
    """Parquet, Arrow or Feather."""
    is_text = rng.random() < 0.5
    path = directory / f"edges{rng.choice(['.parquet', '.parquet', '.arrow', '.feather', '.ipc'])}"
    value, rows = _table(rng, is_text), rng.choice([20, 1000])
    is_parquet = path.suffix == ".parquet"
    if is_parquet:
        pq.write_table(
            value,
            path,
            row_group_size=rows,
            compression=rng.choice(["none", "snappy", "zstd", "gzip"]),
            use_dictionary=rng.random() < 0.5,
            data_page_version=rng.choice(["1.0", "2.0"]),
            write_page_checksum=rng.random() < 0.2,
        )
    else:
        codec = rng.choice([None, None, "lz4", "zstd"])
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with pa.ipc.new_file(str(path), value.schema, options=options) as writer:
            writer.write_table(value, max_chunksize=rows)

    def plain(found: pa.Table, name: str) -> np.ndarray:
        column = found[name].combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_temporal(column.type):
            column = pc.cast(column, pa.int64())
        if column.null_count:
            raise ValueError("null")
        if hasattr(column.type, "value_type"):
            flat = column.flatten()
            if flat.null_count or len({*pc.list_value_length(column).to_pylist()}) > 1:
                raise ValueError("lists")
            return flat.to_numpy(zero_copy_only=False).reshape(len(column), -1)
        return column.to_numpy(zero_copy_only=False)

    def read() -> Graph:
        if is_parquet:
            found = pq.ParquetFile(path).read()
        else:
            with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as reader:
                found = reader.read_all()
        found.select(["src", "dst", *_ATTRS]).validate(full=True)
        ends = (plain(found, name).tolist() for name in ("src", "dst"))
        return Graph({None: (*ends, {name: plain(found, name) for name in _ATTRS})})

    options = {"src": "src", "dst": "dst", "ids": "map", "edge_attrs": list(_ATTRS)}
    return Input(path, [path], read, options)


# torch


def torch_file(rng: random.Random, directory: Path) -> Input:
    """A file of ``torch.save``: tensors by name, ``Data``, ``HeteroData``; new or old format."""
    path = directory / "graph.pt"
    edges = torch.from_numpy(_numbers(rng, 2, rng.randrange(3, 40)))
    x, w = torch.from_numpy(_floats(rng, 20, 3)), torch.from_numpy(_floats(rng, edges.shape[1]))
    form = rng.choice(["dict", "data", "hetero", "adj"])
    value: Any
    if form == "dict":
        value = {"edge_index": edges, "x": x, "w": w}
    elif form == "hetero":
        value = HeteroData()
        value["a"].x = x
        value["b"].num_nodes = 20
        value["a", "to", "b"].edge_index, value["a", "to", "b"].w = edges, w
    else:
        value = Data(x=x, edge_index=edges, w=w, y=_numbers(rng, 20), name="a graph")
        if form == "adj":
            shape = (20, 20)
            value = Data(x=x, adj_t=torch.sparse_coo_tensor(edges.flip(0), w, shape))
            if rng.random() < 0.5:
                value.adj_t = value.adj_t.to_sparse_csr()
    torch.save(value, path, _use_new_zipfile_serialization=rng.random() < 0.8)

    def read() -> Graph:
        with safe_globals():
            mmap = zipfile.is_zipfile(path)
            found = torch.load(path, weights_only=True, map_location="cpu", mmap=mmap)
        if form == "hetero":
            ends = _ends(found["a", "to", "b"].edge_index.numpy())
            attrs = {"w": found["a", "to", "b"].w.numpy()}
            return Graph({("a", "to", "b"): (*ends, attrs)}, {"a": {"x": found["a"].x.numpy()}})
        if form == "adj":
            adj = found["adj_t"]
            if adj.layout == torch.sparse_coo:
                (dst, src), values = adj._indices().tolist(), adj._values()
            else:
                counts, src = np.diff(adj.crow_indices()), adj.col_indices().tolist()
                dst, values = np.arange(len(counts)).repeat(counts).tolist(), adj.values()
            attrs = {"edge_weight": values.numpy()}
            return Graph({None: (src, dst, attrs)}, {None: {"x": found["x"].numpy()}})
        if any(name not in found for name in ("x", "w", "edge_index")):
            return Graph()  # a name was damaged: attributes may be called as they like
        attrs = {"w": found["w"].numpy()}
        ends = _ends(found["edge_index"].numpy())
        return Graph({None: (*ends, attrs)}, {None: {"x": found["x"].numpy()}})

    options = {}
    if form == "dict":
        options = {"node_attrs": {"x": f"{path}:x"}, "edge_attrs": {"w": f"{path}:w"}}
    return Input(path, [path], read, options)
