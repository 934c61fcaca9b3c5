"""Edge lists in text that are no tables: MatrixMarket, adjacency lists and N-Triples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch

from pyg_graphzero.conversion.decompress import TextFile
from pyg_graphzero.conversion.dialect import BLANKS, NUMBER, Dialect, Part, first_lines
from pyg_graphzero.conversion.faults import SHOWN
from pyg_graphzero.conversion.ids import IdColumn
from pyg_graphzero.conversion.sources import Inputs
from pyg_graphzero.conversion.spool import RowSpool, TextSpool
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


class MatrixMarket:
    """A sparse matrix in text: entries by row and column, counted from 1.

    Args:
        path: The file.

    Attributes:
        dialect: Of its entries.
        shape: Rows and columns.
        num_entries: As stated.
        is_symmetric: Whether each entry stands for its mirror image too.
        has_values: Whether entries have a third column.

    Raises:
        InputError: It is no such file, or of a kind that no graph is.
    """

    def __init__(self, path: Path) -> None:
        lines, _ = first_lines(path, _HEAD_BYTES)
        banner = lines[0].lower().split()
        if " ".join(banner[:3]) != _BANNER or len(banner) != 5:
            expected = "%%MatrixMarket matrix coordinate FIELD SYMMETRY"
            raise InputError(path, "line 1", repr(lines[0][:60]), expected)
        field, symmetry = banner[3:]
        if field not in _FIELDS or symmetry not in _SYMMETRIES:
            expected = f"one of {', '.join(_FIELDS)}, and one of {', '.join(_SYMMETRIES)}"
            raise InputError(path, "line 1", f"{field} {symmetry}", expected)
        blank = (number for number, line in enumerate(lines) if _is_data(line))
        at = next(blank, 0)
        cells = lines[at].split()
        if len(cells) != 3 or not all(cell.isdecimal() for cell in cells):
            found, expected = repr(lines[at][:60]), "numbers of rows, columns and entries"
            raise InputError(path, f"line {at + 1}", found, expected)
        self.shape = int(cells[0]), int(cells[1])
        self.num_entries = int(cells[2])
        self.is_symmetric = symmetry == "symmetric"
        self.has_values = field != "pattern"
        sample = tuple(tuple(line.split()) for line in lines[at + 1 : at + 50] if _is_data(line))
        width = 3 if self.has_values else 2
        self.dialect = Dialect((Part(path, at + 1),), " ", (), width, "%", sample)

    def read(self, inputs: Inputs, attrs: Mapping[str, int]) -> tuple[list[IdColumn], Any]:
        """Rows and columns of the entries, from 0 on, and attributes."""
        positions = {name: [position] for name, position in attrs.items()}
        found, loaded = inputs.columns(self.dialect, positions, [(0, False), (1, False)])
        if len(found[0]) != self.num_entries and not inputs.faults.skip:
            path, count = self.dialect.path, len(found[0])
            raise InputError(path, "entries", count, f"{self.num_entries}, the number stated")
        return [_from_0(*each) for each in zip(found, self.shape, strict=True)], loaded


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


def read_adjacency(
    files: tuple[Path, ...], id_type: str, comment: str | None, inputs: Inputs
) -> tuple[IdColumn, IdColumn, IdColumn]:
    """Lines of a node and its neighbours: sources, destinations, and the node of each line.

    Args:
        files: They follow one another.
        id_type: ``"auto"``, ``"int"`` or ``"str"``.
        comment: What a comment starts with, wherever it stands.
        inputs: Where to keep what is read.

    Raises:
        InputError: An id is no integer although the first one is.
    """
    spools: list[Any] = []
    is_text = id_type == "str"
    for path in files:
        for lines in _lines(path, comment):
            cells = pc.ascii_split_whitespace(lines)
            first = pc.list_element(cells, 0)
            if not spools:
                start = first[0].as_py()
                is_text = is_text or (id_type == "auto" and not NUMBER.fullmatch(start))
                kind = TextSpool if is_text else RowSpool
                spools = [kind(inputs.space, "ids") for _ in range(3)]
            ends = pc.list_flatten(cells)
            owners = pc.list_parent_indices(cells)
            is_first = pc.equal(
                owners, pa.concat_arrays([pa.array([-1], owners.type), owners[:-1]])
            )
            columns = (first.take(owners).filter(is_first), ends.filter(is_first), first)
            for spool, column in zip(spools, columns, strict=True):
                spool.append(column if is_text else _integers(column, path))
    if not spools:
        raise InputError(files[0], "file", "no lines", "a node and its neighbours in each")
    rows = [
        spool.finish() if is_text else spool.finish(torch.empty(0, dtype=torch.int64))
        for spool in spools
    ]
    path = files[0] if len(files) == 1 else files[0].parent
    names = ("source of edge {}", "destination of edge {}", "node of line {}")
    ids = [IdColumn(path, name.format, each) for name, each in zip(names, rows, strict=True)]
    return ids[0], ids[1], ids[2]


def read_triples(
    files: tuple[Path, ...], inputs: Inputs
) -> tuple[IdColumn, IdColumn, IdColumn, int]:
    """N-Triples between nodes: subjects, predicates and objects, and the number of literals.

    Raises:
        InputError: A line is no triple.
    """
    spools = [TextSpool(inputs.space, "ids") for _ in range(3)]
    num_literals = 0
    for path in files:
        for whole in _lines(path, None):
            lines = whole.filter(pc.invert(pc.starts_with(whole, "#")))
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


def _integers(words: Any, path: Path) -> torch.Tensor:
    try:
        return torch.from_numpy(pc.cast(words, pa.int64()).to_numpy().copy())
    except pa.ArrowInvalid as error:
        hint = 'If ids are text, pass id_type="str" (--id-type str).'
        raise InputError(path, "ids", str(error), "integers, as the first one is", hint) from error


def _lines(path: Path, comment: str | None) -> Iterator[Any]:
    """Lines that hold something, in pieces."""
    rest = b""
    with TextFile(path) as file:
        while chunk := file.read(_BLOCK_BYTES):
            *whole, rest = (rest + chunk).split(b"\n")
            if len(kept := _kept(path, whole, comment)):
                yield kept
    if len(kept := _kept(path, [rest], comment)):
        yield kept


def _kept(path: Path, lines: list[bytes], comment: str | None) -> Any:
    with reading(path, "file", "UTF-8 text"):
        texts = [line.partition((comment or "\n").encode())[0].decode() for line in lines]
    kept = [text for text in (text.strip(BLANKS + "\r") for text in texts) if text]
    return pa.array(kept, pa.string())
