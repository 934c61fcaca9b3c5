"""docs/format.md is enough to read a store, and says what the writer does."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
import xxhash
from store_files import COLUMN_FIELDS, FORMAT_PAGE, TOPOLOGY_FIELDS, make_store, page_reader

import pyg_graphzero as gz
from pyg_graphzero.store import schema
from pyg_graphzero.store.columns import DTYPE_NAMES, decoded, write_column
from pyg_graphzero.store.encoding import ENCODINGS
from pyg_graphzero.store.writer import StoreWriter

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(params=["v1/hetero", "v1/homogeneous", "fresh", "encoded"])
def store(request, tmp_path):
    if request.param == "encoded":
        with StoreWriter(tmp_path / "store", is_hetero=False) as writer:
            writer.add_node_type(None, 300)
            for encoding in ENCODINGS:
                for items in ((), (7,), (125,), (2, 3)):
                    name = f"{encoding}{list(items)}"
                    writer.add_node_attr(None, name, torch.randn(300, *items), encoding=encoding)
            writer.finish()
        return tmp_path / "store"
    if request.param == "fresh":
        return make_store(tmp_path / "store")
    return GOLDEN / request.param


def pairs(indptr: np.ndarray, indices: np.ndarray) -> list[tuple[int, int]]:
    """Neighbour and owner of each slot, sorted."""
    owners = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return sorted(zip(indices.tolist(), owners.tolist(), strict=True))


def test_the_reader_on_the_page(store):
    reader = page_reader()
    document = reader["read_schema"](store)
    opened = gz.open(store)
    contents = opened.contents
    for name in document["files"]:
        if name.endswith(".gd"):
            found = reader["read_column"](store / name)
            expected = decoded(contents.rows(name))
            assert found.shape == tuple(expected.shape)
            if expected.dtype == torch.bfloat16:
                expected = expected.view(torch.uint16)
            assert np.array_equal(found, expected.numpy())
    for record in document["edge_types"]:
        indptr, indices = reader["read_topology"](store / record["topology"])
        name = None if record["name"] is None else tuple(record["name"])
        expected_indptr, expected_indices = contents.csc(name)
        assert np.array_equal(indptr, expected_indptr.numpy())
        assert np.array_equal(indices, expected_indices.numpy())
        assert len(indices) == record["num_edges"]
        if record["csr"] is not None:
            by_source = reader["read_topology"](store / record["csr"])
            assert pairs(*by_source) == sorted((dst, src) for src, dst in pairs(indptr, indices))
    for name, record in document["adopted"].items():
        assert np.array_equal(
            reader["read_adopted"](store, record), contents.rows(name).numpy(), equal_nan=True
        )


def test_headers_are_as_the_tables_say(store):
    for path in sorted(store.rglob("*.g[dl]")):
        raw = path.read_bytes()
        fields = TOPOLOGY_FIELDS if path.suffix == ".gl" else COLUMN_FIELDS
        value = {f.name: f.read(raw) for f in fields}
        named = {i for f in fields for i in range(f.offset, f.offset + f.size)}
        assert all(raw[i] == 0 for i in range(4096) if i not in named)
        assert value["version"] == 1
        assert value["byte_order"] == 0x0A0B0C0D
        assert value["file_bytes"] == len(raw)
        assert (value["header_bytes"], value["section_alignment"]) == (4096, 4096)
        assert value["block_bytes"] == 1 << 20
        assert value["header_hash"] == xxhash.xxh64_intdigest(raw[:4088])
        end = value["checksums_offset"]
        blocks = [raw[i : min(i + (1 << 20), end)] for i in range(4096, end, 1 << 20)]
        assert value["num_blocks"] == len(blocks)
        table = b"".join(xxhash.xxh64_intdigest(b).to_bytes(8, "little") for b in blocks)
        assert raw[end:] == table
        assert value["checksums_hash"] == xxhash.xxh64_intdigest(table)


def test_every_member_is_in_a_table():
    section = FORMAT_PAGE.read_text().split("## `store.json`")[1].split("\n## ")[0]
    tables = [
        re.findall(r"`(\w+)`", "".join(re.findall(r"^\|([^|]+)\|", table, re.MULTILINE)))
        for table in section.split("| member | value |")[1:]
    ]
    kinds = (schema.StoreSchema, schema.NodeTypeSchema, schema.EdgeTypeSchema, schema.AdoptedRecord)
    expected = [{member.name for member in fields(kind)} for kind in kinds]
    expected[0] |= {"format", "version", "flags", "checksum"}
    assert [set(table) for table in tables] == expected


def test_every_flag_is_in_the_table():
    section = FORMAT_PAGE.read_text().split("| flag | there if |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == sorted(schema.FLAGS)


def test_dtype_codes_are_as_the_table_says(tmp_path):
    cells = re.findall(r"\| (\d+) \| (\w+)", FORMAT_PAGE.read_text())
    codes = {name: int(code) for code, name in cells if name in DTYPE_NAMES}
    assert sorted(codes.values()) == list(range(1, 22))
    for i, (name, code) in enumerate(codes.items()):
        dtype = getattr(torch, name, None)
        if dtype is None:
            continue  # a torch older than the type
        zeros = torch.zeros(2, dtype.itemsize, dtype=torch.uint8).view(dtype)
        write_column(tmp_path / f"{i}.gd", zeros)
        raw = (tmp_path / f"{i}.gd").read_bytes()
        assert next(f for f in COLUMN_FIELDS if f.name == "dtype").read(raw) == code


@pytest.mark.parametrize(
    ("items", "dtype", "stride"),
    [
        (125, "float32", 512),
        (124, "float32", 496),
        (1023, "float32", 4096),
        (1025, "float32", 4100),
        (31, "uint8", 31),
        (63, "uint8", 64),
        (0, "float32", 0),
    ],
)
def test_row_stride_rule(tmp_path, items, dtype, stride):
    write_column(tmp_path / "c.gd", torch.ones(3, items, dtype=getattr(torch, dtype)))
    raw = (tmp_path / "c.gd").read_bytes()
    assert next(f for f in COLUMN_FIELDS if f.name == "row_stride").read(raw) == stride
    row_bytes = items * getattr(torch, dtype).itemsize
    for row in range(3):
        assert not any(raw[4096 + row * stride + row_bytes : 4096 + (row + 1) * stride])
