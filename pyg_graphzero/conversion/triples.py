"""Edges in RDF's N-Triples, which are text and no table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyg_graphzero.conversion.arrays import Reference
from pyg_graphzero.conversion.dialect import BLANKS
from pyg_graphzero.conversion.paths import TextFile
from pyg_graphzero.conversion.tables import FrameTable
from pyg_graphzero.errors import InputError
from pyg_graphzero.util.reading import reading
from pyg_graphzero.util.workspace import Workspace

_BLOCK_BYTES = 1 << 20
_TRIPLE = (
    r'^(?P<s><[^>]*>|_:\S+)\s+(?P<p><[^>]*>)\s+(?P<o><[^>]*>|_:\S*[^\s.]|".*")'
    r"(?:\^\^<[^>]*>|@\S+)?\s*\.\s*(?:#.*)?$"
)


_SCHEMA = pa.schema([(name, pa.string()) for name in ("subject", "predicate", "object")])


def read_triples(
    reference: Reference, space: Workspace, note: Callable[[str], object]
) -> FrameTable:
    """N-Triples between nodes as a table.

    Args:
        reference: The files.
        space: Memory and temporary files.
        note: Told how many triples are left out.

    Raises:
        InputError: A line is no triple.
    """
    files, path, num_literals = reference.files, reference.place, 0

    def batches() -> Iterator[Any]:
        nonlocal num_literals
        for file in files:
            above = 0
            for lines in _lines(file):
                parts = pc.extract_regex(lines, _TRIPLE)
                bad = pc.index(pc.and_(parts.is_null(), lines.is_valid()), True).as_py()
                if bad >= 0:
                    where, found = f"line {above + bad + 1}", repr(lines[bad].as_py()[:80])
                    raise InputError(file, where, found, "<subject> <predicate> <object> .")
                above, parts = above + len(lines), parts.drop_null()
                is_literal = pc.starts_with(parts.field("o"), '"')
                num_literals += pc.sum(is_literal).as_py() or 0
                words = parts.filter(pc.invert(is_literal)).flatten()
                words = [pc.replace_substring_regex(each, "^<|>$", "") for each in words]
                yield pa.RecordBatch.from_arrays(words, schema=_SCHEMA)

    table = FrameTable(_SCHEMA, batches(), space, str(path))
    if not table.num_rows:
        raise InputError(path, "file", "no triples between nodes", "at least one")
    if num_literals:
        note(f"{files[0].name}: {num_literals:,} triples to literals are no edges")
    return table


def _lines(path: Path) -> Iterator[Any]:
    """All lines, in pieces; null for those that hold no triple."""
    rest = b""
    with TextFile(path) as file:
        while chunk := file.read(_BLOCK_BYTES):
            *whole, rest = (rest + chunk).split(b"\n")
            yield _kept(path, whole)
    yield _kept(path, [rest])


def _kept(path: Path, lines: list[bytes]) -> Any:
    with reading(path, "file", "UTF-8 text"):
        texts = [line.decode().strip(BLANKS + "\r") for line in lines]
    return pa.array([text if text and text[0] != "#" else None for text in texts], pa.string())
