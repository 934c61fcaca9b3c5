"""Delimited text as a stream of typed columns, through pyarrow's streaming CSV reader.

pyarrow parses; this file hands it clean bytes (no comments, no header), tells it what each
column must be, and turns its refusals into errors that name the line and the column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from ..errors import InputError
from .dialect import BLANKS, DECODE_ERRORS, NUMBER, Dialect, open_text
from .progress import Progress

_BLOCK_BYTES = 4 << 20
_INTEGER = re.compile(r"-?\d+")
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True)
class Kind:
    """What the cells of a column must be.

    Attributes:
        arrow: The type pyarrow parses into.
        expected: How messages call it.
    """

    arrow: Any
    expected: str


ID = Kind(pa.int64(), "an integer id below 2**63")
INTEGER = Kind(pa.int64(), "an integer")
FLOAT = Kind(pa.float64(), "a number")
BOOLEAN = Kind(pa.bool_(), "true or false")
TEXT = Kind(pa.string(), "text")
# An integer column that nobody asked for as such: becomes FLOAT at the first fraction.
GUESSED_INTEGER = Kind(pa.int64(), "a number that int64 can hold")

Batch = dict[int, Any]  # by column position: np.ndarray, or pa.StringArray for TEXT


def guess(dialect: Dialect, position: int) -> Kind:
    """The kind of a column by its first cells."""
    cells = [row[position] for row in dialect.sample if len(row) == dialect.num_columns]
    if cells and all(_INTEGER.fullmatch(cell) for cell in cells):
        return GUESSED_INTEGER
    if cells and all(cell.lower() in ("true", "false") for cell in cells):
        return BOOLEAN
    return FLOAT


def is_text_id(dialect: Dialect, position: int) -> bool:
    """Whether a column of ids holds text: its first cell decides."""
    cells = [row[position] for row in dialect.sample[:1] if len(row) > position]
    return bool(cells) and bool(cells[0]) and not NUMBER.fullmatch(cells[0])


def read(dialect: Dialect, kinds: Mapping[int, Kind], progress: Progress) -> list[Batch]:
    """All rows of the wanted columns, batch by batch.

    Raises:
        InputError: A cell is missing or is not what ``kinds`` says, a row has another number of
            cells, the text is not UTF-8: names line, column, found and expected.
    """
    kinds = dict(kinds)
    while True:
        try:
            return list(_batches(dialect, kinds, progress))
        except (pa.ArrowInvalid, *DECODE_ERRORS) as error:
            position = _find_fault(dialect, kinds, error)
            kinds[position] = FLOAT


def _batches(dialect: Dialect, kinds: Mapping[int, Kind], progress: Progress) -> Iterator[Batch]:
    with (
        open_text(dialect.path) as file,
        progress.step(f"reading {dialect.path.name}", dialect.path.stat().st_size) as bar,
    ):
        source = _DataLines(file, dialect)
        if not source.peek():
            return
        for batch in _open(dialect, kinds, source):
            result: Batch = {}
            for position in kinds:
                column = batch.column(str(position))
                if column.null_count:
                    raise pa.ArrowInvalid("a cell is missing")
                result[position] = _unwrap(column)
            bar.update(source.taken_since())
            yield result


def _unwrap(column: Any) -> Any:
    if pa.types.is_string(column.type):
        column = pc.utf8_trim(column, BLANKS)
        if pc.any(pc.equal(column, "")).as_py():
            raise pa.ArrowInvalid("a cell is missing")
        return column
    return column.to_numpy(zero_copy_only=False)


def _open(dialect: Dialect, kinds: Mapping[int, Kind], source: _DataLines) -> Any:
    names = [str(position) for position in range(dialect.num_columns)]
    return pacsv.open_csv(
        pa.PythonFile(source, mode="r"),
        read_options=pacsv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES),
        parse_options=pacsv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
        convert_options=pacsv.ConvertOptions(
            include_columns=[str(position) for position in kinds],
            column_types={str(position): kind.arrow for position, kind in kinds.items()},
            null_values=[""],
            true_values=["true", "True", "TRUE", "1"],
            false_values=["false", "False", "FALSE", "0"],
        ),
    )


class _DataLines:
    """A readable file of the data lines alone: whole lines in, comments and header out."""

    def __init__(self, file: IO[bytes], dialect: Dialect) -> None:
        self._file = file
        self._squeeze = dialect.delimiter == " "
        self._path = dialect.path
        mark = re.escape(dialect.comment.encode()) if dialect.comment else rb"(?!)"
        self._noise = re.compile(rb"^[ \t]*(?:(%s)[^\n]*|[ \t]\r?$)\n?" % mark, re.MULTILINE)
        self._mark = dialect.comment.encode() if dialect.comment else None
        self._quotes = 0
        self._rest = b""
        self._ready = memoryview(b"")
        self._tell = 0
        self.closed = False
        for _ in range(dialect.skip_lines):
            file.readline()
        if not dialect.skip_lines:
            head = file.read(3)
            self._rest = b"" if head == b"\xef\xbb\xbf" else head

    def peek(self) -> bool:
        """Whether any data is left."""
        while not self._ready:
            if not self._fill():
                return False
        return True

    def read(self, size: int = -1) -> bytes:
        """At most ``size`` bytes; empty at the end only."""
        if not self.peek():
            return b""
        size = len(self._ready) if size < 0 else size
        taken = bytes(self._ready[:size])
        self._ready = self._ready[size:]
        return taken

    def close(self) -> None:
        """Required of a Python file; the opener closes the real one."""
        self.closed = True

    def taken_since(self) -> int:
        """Bytes of the file on disk consumed since the last call."""
        raw = getattr(self._file, "fileobj", None) or self._file
        before, self._tell = self._tell, raw.tell()
        return self._tell - before

    def _fill(self) -> bool:
        block = self._file.read(_BLOCK_BYTES)
        data = self._rest + block
        if not data:
            return False
        if block:
            cut = data.rfind(b"\n") + 1
            data, self._rest = data[:cut], data[cut:]
        else:
            self._rest = b""
        blank = b"\n " in data or b"\n\t" in data or data[:1] in (b" ", b"\t")
        num_quotes = data.count(b'"')
        if blank or (self._mark is not None and self._mark in data):
            keep = self._keep_quoted if num_quotes or self._quotes % 2 else b""
            data = self._noise.sub(keep, data)
        self._quotes += num_quotes
        if self._squeeze and (b"  " in data or b"\t" in data or b"\n " in data or b" \n" in data):
            data = re.sub(rb"[ \t]+", b" ", data)
            data = re.sub(rb"^ | (?=\r?$)", b"", data, flags=re.MULTILINE)
        self._ready = memoryview(data)
        return True

    def _keep_quoted(self, line: re.Match[bytes]) -> bytes:
        """A line without data to drop, unless it is part of a quoted cell."""
        if (self._quotes + line.string.count(b'"', 0, line.start())) % 2 == 0:
            return b""
        if line[1] is None:
            return line[0]
        raise InputError(
            self._path,
            "quotes",
            f"a line {line[0].decode(errors='replace').strip()[:40]!r} after an open quote",
            "comments outside of cells",
            "Pass comment=None (--comment '') if it is data.",
        )


def _find_fault(dialect: Dialect, kinds: Mapping[int, Kind], error: Exception) -> int:
    """Raise for the first faulty cell, or return the guessed column that must be a float one."""
    if isinstance(error, DECODE_ERRORS):
        found = f"damaged gzip data ({error})"
        raise InputError(dialect.path, "file", found, "a whole gzip file") from error
    for line, cells in dialect.rows():
        if len(cells) != dialect.num_columns:
            shown = dialect.delimiter.join(cells)[:60]
            raise InputError(
                dialect.path,
                f"line {line}",
                f"{len(cells)} cell{'s' * (len(cells) != 1)} ({shown!r})",
                f"{dialect.num_columns} cells separated by {dialect.delimiter!r}",
            ) from None
        for position, kind in kinds.items():
            cell = cells[position]
            if _fits(cell, kind):
                continue
            # An integer too long for int64 is no reason to lose its last digits.
            if kind is GUESSED_INTEGER and _fits(cell, FLOAT) and not _INTEGER.fullmatch(cell):
                return position
            hint = 'If ids are text, pass id_type="str" (--id-type str).' if kind is ID else ""
            raise InputError(
                dialect.path,
                f"line {line}, column {dialect.label(position)}",
                f"{cell[:60]!r}" if cell else "an empty cell",
                kind.expected,
                hint,
            ) from None
    raise InputError(dialect.path, "file", str(error), "delimited text") from error


def _fits(cell: str, kind: Kind) -> bool:
    if kind is TEXT:
        return bool(cell) and "\ufffd" not in cell
    if kind is BOOLEAN:
        return cell.lower() in _BOOLEANS
    if kind is FLOAT:
        return NUMBER.fullmatch(cell) is not None
    return _INTEGER.fullmatch(cell) is not None and -(1 << 63) <= int(cell) < 1 << 63


def line_of_value(dialect: Dialect, row: int, position: int) -> str:
    """Where a value of data row ``row`` stands, for messages."""
    return f"line {dialect.line_of(row)}, column {dialect.label(position)}"


def concatenate(batches: list[Batch], position: int) -> np.ndarray:
    """One numeric column of all batches."""
    return np.concatenate([batch[position] for batch in batches] or [np.empty(0)])
