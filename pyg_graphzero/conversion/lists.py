"""Edge lists in text that are no tables: MatrixMarket and N-Triples."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch

from pyg_graphzero.conversion.columns import Loaded
from pyg_graphzero.conversion.dialect import BLANKS, Dialect, Part, first_lines
from pyg_graphzero.conversion.ids import IdColumn
from pyg_graphzero.conversion.options import SHOWN
from pyg_graphzero.conversion.paths import TextFile
from pyg_graphzero.conversion.sources import Inputs
from pyg_graphzero.conversion.spool import BatchSpool
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.rows import MappedRows, Rows
from pyg_graphzero.util.reading import reading

_BANNER = "%%matrixmarket matrix coordinate"
_HEAD_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 20
_TRIPLE = (
    r'^(?P<s><[^>]*>|_:\S+)\s+(?P<p><[^>]*>)\s+(?P<o><[^>]*>|_:\S*[^\s.]|".*")'
    r"(?:\^\^<[^>]*>|@\S+)?\s*\.\s*(?:#.*)?$"
)
_SYMMETRIES = ("general", "symmetric")
_FIELDS = ("real", "double", "integer", "pattern")


def read_matrix(
    path: Path, takes_values: bool, inputs: Inputs
) -> tuple[list[IdColumn], dict[str, Loaded], tuple[int, int], bool]:
    """A sparse matrix in MatrixMarket's format: entries by row and column, counted from 1.

    Args:
        path: The file.
        takes_values: Whether to read values of entries, if they have any, as ``edge_weight``.
        inputs: Reads columns.

    Returns:
        Rows and columns of the entries, from 0 on; attributes; number of rows and of columns;
        whether each entry stands for its mirror image too.

    Raises:
        InputError: It is no such file, or of a kind that no graph is.
    """
    lines, _ = first_lines(path, _HEAD_BYTES)
    banner = lines[0].lower().split()
    if " ".join(banner[:3]) != _BANNER or len(banner) != 5:
        expected = "%%MatrixMarket matrix coordinate FIELD SYMMETRY"
        raise InputError(path, "line 1", repr(lines[0][:60]), expected)
    kind, symmetry = banner[3:]
    if kind not in _FIELDS or symmetry not in _SYMMETRIES:
        expected = f"one of {', '.join(_FIELDS)}, and one of {', '.join(_SYMMETRIES)}"
        raise InputError(path, "line 1", f"{kind} {symmetry}", expected)
    at = next((number for number, line in enumerate(lines) if _is_data(line)), 0)
    cells = lines[at].split()
    if len(cells) != 3 or not all(cell.isdecimal() for cell in cells):
        found, expected = repr(lines[at][:60]), "numbers of rows, columns and entries"
        raise InputError(path, f"line {at + 1}", found, expected)
    num_rows, num_columns, num_entries = map(int, cells)
    sample = tuple(tuple(line.split()) for line in lines[at + 1 : at + 50] if _is_data(line))
    has_values = kind != "pattern"
    dialect = Dialect((Part(path, at + 1),), " ", (), 2 + has_values, "%", sample)
    attrs = {"edge_weight": [2]} if takes_values and has_values else {}
    ends, loaded = inputs.columns(dialect, attrs, [(0, False), (1, False)])
    if len(ends[0]) != num_entries and not inputs.faults.skip:
        raise InputError(path, "entries", len(ends[0]), f"{num_entries}, the number stated")
    shape = num_rows, num_columns
    ends = [_from_0(*each) for each in zip(ends, shape, strict=True)]
    return ends, loaded, shape, symmetry == "symmetric"


def _from_0(column: IdColumn, size: int) -> IdColumn:
    low, high = column.range
    if len(column) and (low < 1 or high > size):
        position = column.first(lambda slab: (slab < 1) | (slab > size))
        raise column.fail(position or 0, f"a number of 1…{size}, as the header says")
    base = column.rows
    assert isinstance(base, Rows)
    rows = MappedRows(base, base.shape, torch.int64, lambda slab, _: slab.long() - 1)
    return IdColumn(column.path, column.where, rows, (low - 1, high - 1))


def _is_data(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("%")


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
