"""Edges in RDF's N-Triples, which are text and no table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyg_graphzero.conversion.dialect import BLANKS
from pyg_graphzero.conversion.ids import IdColumn
from pyg_graphzero.conversion.options import SHOWN
from pyg_graphzero.conversion.paths import TextFile
from pyg_graphzero.conversion.sources import Inputs
from pyg_graphzero.conversion.spool import BatchSpool
from pyg_graphzero.errors import InputError
from pyg_graphzero.util.reading import reading

_BLOCK_BYTES = 1 << 20
_TRIPLE = (
    r'^(?P<s><[^>]*>|_:\S+)\s+(?P<p><[^>]*>)\s+(?P<o><[^>]*>|_:\S*[^\s.]|".*")'
    r"(?:\^\^<[^>]*>|@\S+)?\s*\.\s*(?:#.*)?$"
)


def read_triples(
    files: tuple[Path, ...], inputs: Inputs
) -> tuple[IdColumn, IdColumn, IdColumn, int]:
    """N-Triples between nodes: subjects, predicates and objects, and the number of literals.

    Raises:
        InputError: A line is no triple.
    """
    spools = [BatchSpool(inputs.space, "ids") for _ in range(3)]
    num_literals = 0
    for path in files:
        for lines in _lines(path):
            parts = pc.extract_regex(lines, _TRIPLE)
            bad = lines.filter(parts.is_null())
            expected = "<subject> <predicate> <object> ."
            errors = [
                partial(InputError, path, "line", repr(line[:80]), expected)
                for line in bad[:SHOWN].to_pylist()
            ]
            inputs.faults.add(*errors, count=len(bad))
            parts = parts.drop_null()
            is_literal = pc.starts_with(parts.field("o"), '"')
            num_literals += pc.sum(is_literal).as_py() or 0
            parts = parts.filter(pc.invert(is_literal))
            for spool, name in zip(spools, "spo", strict=True):
                spool.append(pc.replace_substring_regex(parts.field(name), "^<|>$", ""))
    path = files[0] if len(files) == 1 else files[0].parent
    names = ("subject of triple {}", "predicate of triple {}", "object of triple {}")
    src, relation, dst = (
        IdColumn(path, name.format, spool.finish())
        for name, spool in zip(names, spools, strict=True)
    )
    if not len(src):
        raise InputError(path, "file", "no triples between nodes", "at least one")
    return src, relation, dst, num_literals


def _lines(path: Path) -> Iterator[Any]:
    """Lines that hold a triple, in pieces."""
    rest = b""
    with TextFile(path) as file:
        while chunk := file.read(_BLOCK_BYTES):
            *whole, rest = (rest + chunk).split(b"\n")
            yield _kept(path, whole)
    yield _kept(path, [rest])


def _kept(path: Path, lines: list[bytes]) -> Any:
    with reading(path, "file", "UTF-8 text"):
        texts = [line.decode().strip(BLANKS + "\r") for line in lines]
    return pa.array([text for text in texts if text and text[0] != "#"], pa.string())
