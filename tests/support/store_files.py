"""Damaging store files on purpose, by the field tables of docs/format.md."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import xxhash

import pyg_graphzero as gz
from pyg_graphzero.store import schema
from pyg_graphzero.store.csc import EdgeChunk
from pyg_graphzero.store.writer import StoreWriter

FORMAT_PAGE = Path(__file__).parents[2] / "docs" / "format.md"
HEADER = 4096


@dataclass(frozen=True)
class Field:
    """One number of a header."""

    name: str
    offset: int
    size: int

    def read(self, raw: bytes) -> int:
        return int.from_bytes(raw[self.offset : self.offset + self.size], "little")


def _fields() -> tuple[list[Field], list[Field]]:
    """The fields of `.gd` and `.gl` headers as the format page lists them."""
    sections: dict[str, list[Field]] = {}
    title = ""
    for line in FORMAT_PAGE.read_text().splitlines():
        if line.startswith("## "):
            title = line[3:]
        found = re.match(r"\| (\d+) \| (\d+) \| `(\w+)` \|", line)
        if found is None:
            continue
        offset, size, name = int(found[1]), int(found[2]), found[3]
        parts = size // 8 if size > 8 else 1
        for i in range(parts):
            part = Field(f"{name}[{i}]" if parts > 1 else name, offset + 8 * i, size // parts)
            sections.setdefault(title, []).append(part)
    common = sections["The header"]
    return common + sections["Columns: `.gd`"], common + sections["Topologies: `.gl`"]


def page_reader() -> dict[str, Any]:
    """The functions of the reader on the format page."""
    (code,) = re.findall(r"```python\n(.*?)```", FORMAT_PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    return names


COLUMN_FIELDS, TOPOLOGY_FIELDS = _fields()


def field(name: str, path: Path) -> Field:
    """The field called ``name`` in the header of the file at ``path``."""
    fields = TOPOLOGY_FIELDS if path.suffix == ".gl" else COLUMN_FIELDS
    return next(f for f in fields if f.name == name)


def set_field(path: Path, name: str, value: int, rehash: bool = True) -> None:
    """Writes one header field, and unless told otherwise the right header hash after it."""
    raw = bytearray(path.read_bytes()[:HEADER])
    at = field(name, path)
    raw[at.offset : at.offset + at.size] = value.to_bytes(at.size, "little")
    if rehash:
        struct.pack_into("<Q", raw, HEADER - 8, xxhash.xxh64_intdigest(bytes(raw[: HEADER - 8])))
    overwrite(path, 0, bytes(raw))


def overwrite(path: Path, offset: int, data: bytes) -> None:
    """Replaces bytes in the middle of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def flip(path: Path, offset: int) -> None:
    """Flips a bit of a byte."""
    overwrite(path, offset, bytes([path.read_bytes()[offset] ^ 1 << offset % 8]))


def edit_schema(store: Path, change: Any, rehash: bool = True) -> None:
    """Calls ``change(document)`` on the parsed store.json and writes it with a valid checksum."""
    path = store / "store.json"
    body = json.loads(path.read_text())
    change(body)
    write_body(path, body, rehash)


def write_body(path: Path, body: dict[str, Any], rehash: bool) -> None:
    """Writes a document, with the checksum that it should have or the one it has."""
    if rehash:
        body.pop("checksum", None)
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        body["checksum"] = xxhash.xxh64_hexdigest(text.encode())
    path.write_text(json.dumps(body))


def reseal(store: Path) -> None:
    """Makes store.json agree with the sizes and header hashes the files have now."""

    def change(body: dict[str, Any]) -> None:
        for name, record in body["files"].items():
            if (file := store / name).is_file():
                record["bytes"] = file.stat().st_size
                record["header_hash"] = schema.header_hash(file)

    edit_schema(store, change)


def not_opened(store: Path, words: str) -> None:
    """Asserts that opening the store is refused with words that match."""
    with pytest.raises(gz.FormatError, match=words):
        gz.open(store)


def make_store(path: Path, force: bool = False, value: float = 1.0) -> Path:
    """A homogeneous store with every kind of file: 50 nodes, 200 edges."""
    generator = torch.Generator().manual_seed(0)
    src, dst = torch.randint(50, (2, 200), generator=generator)
    with StoreWriter(path, is_hetero=False, force=force) as store:
        store.add_node_type(None, 50)
        store.add_node_attr(None, "x", torch.full((50, 7), value))
        store.add_node_attr(None, "y", torch.arange(50))
        store.add_index_set(None, "train_idx", torch.arange(10))
        store.add_node_ids(None, [f"n{i}" for i in range(50)])
        columns = {"weight": torch.arange(200.0)}
        store.add_edge_type(None, [EdgeChunk(src, dst, columns)])
        store.finish()
    return path
