"""Delimited text as a stream of typed columns.

pyarrow parses blocks of whole rows, several at once. A refused block is looked at again here, in
order and in ever smaller pieces, until the faulty row is known: it ends the conversion with line
and column.
"""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from pyg_graphzero.conversion.blocks import (
    Block,
    Places,
    clean,
    line_label,
    needs_cleaning,
    read_blocks,
    rows_of,
)
from pyg_graphzero.conversion.dialect import BLANKS, NUMBER, Dialect
from pyg_graphzero.conversion.options import (
    Fill,
    cast,
    dtype_of,
    fill_hint,
)
from pyg_graphzero.errors import InputError
from pyg_graphzero.util.progress import Progress
from pyg_graphzero.util.system import usable_cores

# Each has a block in memory, as bytes and as columns.
_MAX_THREADS = 4
# A block with a fault is parsed again in pieces of this size; those that fail, row by row.
_PIECE_BYTES = 32 << 10
_INTEGER = re.compile(r"-?[0-9]+")
_LETTER = re.compile(r"[^\W\d_]")
# Cells that say they are empty; NaN is a number, unless integers are wanted.
_NULLS = ("", "NA", "N/A", "NULL", "null", "None", "\\N")
_NANS = frozenset(("nan", "NaN", "NAN"))
_MISSING = frozenset(_NULLS) | _NANS
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d(:?\d\d(:?\d\d(?P<fraction>\.\d+)?)?)?"
    r"(?P<zone>Z|[+-]\d\d(:?\d\d)?)?)?"
)
_PYTHON: dict[Any, Any] = {pa.int64(): int, pa.float64(): float, pa.bool_(): bool}


@dataclass(frozen=True)
class Kind:
    """A kind of cells, which all of a column are.

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
TEXT = Kind(pa.string(), "UTF-8 text")
# Times of whole seconds, or with fractions; without and with an offset from UTC.
TIMES = {
    (is_fine, is_zoned): Kind(
        pa.timestamp("us" if is_fine else "s", "UTC" if is_zoned else None),
        f"a date or time of ISO 8601, {'with' if is_zoned else 'without'} an offset from UTC"
        + (", in whole seconds" if not is_fine else ""),
    )
    for is_fine in (False, True)
    for is_zoned in (False, True)
}
# An integer column that is one by a guess: becomes FLOAT at the first fraction.
GUESSED_INTEGER = Kind(pa.int64(), "a number that int64 can hold")


@dataclass(frozen=True)
class Column:
    """A wanted column.

    Attributes:
        attr: The attribute that is made of it, for messages; none if the column is of ids.
        dtype: Dtype of its values; ``None`` for what the kind is parsed into.
        fill: Value in place of an empty cell; ``None`` if there may be none.
    """

    kind: Kind
    attr: str = ""
    dtype: torch.dtype | None = None
    fill: Fill | None = None

    @property
    def empty(self) -> Tensor:
        """No values, in the dtype that they would have."""
        is_time = pa.types.is_timestamp(self.kind.arrow)
        own = torch.int64 if is_time else dtype_of(self.kind.arrow)
        return torch.empty(0, dtype=self.dtype or own)


Columns = Mapping[int, Column]  # by position
Batch = dict[int, Any]  # Tensor, or pa.StringArray for TEXT


def guess(dialect: Dialect, position: int, is_filled: bool = False) -> Kind:
    """The kind of a column by its first cells, but those that are to be filled."""
    rows = [row for row in dialect.sample if len(row) == dialect.num_columns]
    nothing = _MISSING if is_filled else ("",)
    cells = [row[position] for row in rows if row[position] not in nothing]
    numbers = [cell for cell in cells if NUMBER.fullmatch(cell)]
    if numbers and all(_INTEGER.fullmatch(cell) for cell in numbers):
        return GUESSED_INTEGER  # also among what is none: that is a fault, and no reason to round
    if cells and all(cell.lower() in ("true", "false") for cell in cells):
        return BOOLEAN
    times = [_TIME.fullmatch(cell) for cell in cells]
    if any(times):  # other cells are faults
        is_fine = any(time is not None and time["fraction"] for time in times)
        is_zoned = any(time is not None and time["zone"] for time in times)
        return TIMES[is_fine, is_zoned]
    is_text = not numbers and any(_LETTER.search(cell) for cell in {*cells} - _MISSING)
    return TEXT if is_text else FLOAT  # "5%" is a number that went wrong


class _Refused(Exception):
    """Some cell is missing, or is not what its column says."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(found, expected)
        self.found = found
        self.expected = expected


def read(places: Places, columns: Columns, progress: Progress) -> Iterator[Batch]:
    """All rows of the wanted columns, batch by batch.

    Args:
        places: Places of rows in the table to be read; learns where the rows of every batch stand.
        columns: The wanted ones. One that was guessed to hold integers may come as ``int64`` in
            some batches and as ``float64`` in others.
        progress: Where to show how far it is.

    Raises:
        InputError: A row that has another number of cells, misses a cell or holds one that is not
            what ``columns`` says; damaged compressed data.
    """
    reader = _Reader(places, dict(columns))
    threads = min(_MAX_THREADS, usable_cores())
    waiting: deque[tuple[Block, Future[Batch | None]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for block in read_blocks(places.dialect, progress):
                places.see(block)
                waiting.append((block, pool.submit(reader.parse, block)))
                if len(waiting) > threads:
                    yield from reader.settle(*waiting.popleft())
            while waiting:
                yield from reader.settle(*waiting.popleft())
        finally:
            for _, future in waiting:
                future.cancel()


class _Reader:
    def __init__(self, places: Places, columns: dict[int, Column]) -> None:
        self._places = places
        self._dialect = places.dialect
        self._columns = columns

    def settle(self, block: Block, parsed: Future[Batch | None]) -> Iterator[Batch]:
        """The batches of the next block: one, unless it has a fault."""
        batch = parsed.result()
        return self._salvage(block) if batch is None else self._noted(block, batch)

    def parse(self, block: Block) -> Batch | None:
        """The whole block at once, or None if a cell of it is refused."""
        names = range(self._dialect.num_columns)
        if not needs_cleaning(block.data, self._dialect):
            with suppress(_Refused):  # perhaps because of a blank line
                return _parse(block.data, self._dialect.separator, names, self._columns)
        with suppress(_Refused, InputError):
            cleaned = clean(block, self._dialect)
            return _parse(cleaned, self._dialect.separator, names, self._columns)
        return None

    def _noted(self, block: Block, batch: Batch) -> Iterator[Batch]:
        num_rows = len(next(iter(batch.values()))) if batch else 0
        if num_rows:
            self._places.add(block, num_rows)
            yield batch

    def _salvage(self, block: Block) -> Iterator[Batch]:
        """The rows of a block that pyarrow refuses, in small pieces."""
        for piece in block.split(self._dialect, _PIECE_BYTES):
            batch = self.parse(piece)
            yield from self._row_by_row(piece) if batch is None else self._noted(piece, batch)

    def _row_by_row(self, block: Block) -> Iterator[Batch]:
        rows = io.StringIO()
        writer = csv.writer(rows, quoting=csv.QUOTE_ALL, lineterminator="\n")
        for line, cells in rows_of(block, self._dialect):
            self._check(block, line, cells)
            writer.writerow([cells[position] for position in self._columns])
        data = rows.getvalue().encode()
        yield from self._noted(block, _parse(data, ",", self._columns, self._columns))

    def _check(self, block: Block, line: int, cells: list[str]) -> None:
        """Raises for the fault of a row, if it has one; empties cells that are to be filled."""
        dialect = self._dialect

        def fail(where: str, found: str, expected: str, hint: str = "") -> InputError:
            place = line_label(dialect, block, line) + where
            return InputError(dialect.path, place, found, expected, hint)

        if len(cells) != dialect.num_columns:
            shown = dialect.delimiter.join(cells)[:60]
            found = f"{len(cells)} cell{'s' * (len(cells) != 1)} ({shown!r})"
            expected = f"{dialect.num_columns} cells separated by {dialect.delimiter!r}"
            raise fail("", found, expected)
        for position, column in list(self._columns.items()):
            cell, kind = cells[position], column.kind
            where = f", column {dialect.label(position)}"
            is_missing = cell in _MISSING and not (kind is FLOAT and cell in _NANS)
            if column.fill is not None and is_missing:
                cells[position] = ""
                continue
            value: Any = _value(cell, kind)
            # An integer too long for int64 is no reason to lose its last digits.
            if kind is GUESSED_INTEGER and value is None and not _INTEGER.fullmatch(cell):
                value = _value(cell, FLOAT)
                self._columns[position] = replace(column, kind=FLOAT)
            if value is None:
                found = f"{cell[:60]!r}" if cell else "an empty cell"
                raise fail(where, found, kind.expected, _hint(cell, column))
            try:
                if kind is not TEXT:
                    _as_dtype(torch.from_numpy(np.array([value])), column.dtype)
            except _Refused as error:
                raise fail(where, error.found, error.expected) from error


def _hint(cell: str, column: Column) -> str:
    if column.kind is ID:
        return 'If ids are text, pass id_type="str" (--id-type str).'
    is_missing = cell in _MISSING and column.attr
    return fill_hint(column.attr, column.kind is FLOAT) if is_missing else ""


def _value(cell: str, kind: Kind) -> Any:
    """Content of a cell, as pyarrow parses it; None if that is not of its kind."""
    if kind.arrow == pa.int64() and not _INTEGER.fullmatch(cell):
        return None  # hexadecimal digits
    if kind is TEXT:
        return None if "\ufffd" in cell else cell or None
    try:
        value = pc.cast(pa.scalar(cell), kind.arrow)
    except pa.ArrowInvalid:
        return None
    value = pc.cast(value, pa.int64()) if pa.types.is_timestamp(kind.arrow) else value
    return value.as_py()


def _parse(data: bytes, delimiter: str, names: Iterable[int], columns: Columns) -> Batch:
    """The wanted columns of clean rows.

    Args:
        data: The rows.
        delimiter: The character between their cells.
        names: The position that each cell of a row has in the table.
        columns: The wanted ones.

    Raises:
        _Refused: A row or a cell is not as it should be.
    """
    if not data or data.isspace():
        return {}
    is_filled = any(column.fill is not None for column in columns.values())
    nulls = _NULLS if is_filled else ("",)
    types = {position: column.kind.arrow for position, column in columns.items()}
    table = _table(data, delimiter, names, types, nulls)
    integers = [position for position, arrow in types.items() if arrow == pa.int64()]
    if integers and (b"0x" in data or b"0X" in data):  # Arrow takes them for an integer's digits
        texts = _table(data, delimiter, names, dict.fromkeys(integers, pa.string()), nulls)
        for cells in texts.columns:
            if pc.any(pc.match_substring_regex(cells, "^-?0[xX]")).as_py():
                raise _Refused("hexadecimal digits", INTEGER.expected)
    batch: Batch = {}
    for position, column in columns.items():
        chunks = table.column(str(position))
        values = chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()
        if column.kind is TEXT:
            trim = b" " in data or b"\t" in data
            batch[position] = _words(values, trim, column.fill is not None)
        else:
            batch[position] = _as_dtype(_numbers(values, column), column.dtype)
    return batch


def _table(
    data: bytes, delimiter: str, names: Iterable[int], types: dict[int, Any], nulls: Sequence[str]
) -> Any:
    """Columns of clean rows by position, as Arrow types."""
    try:
        return pacsv.read_csv(
            pa.BufferReader(data),
            read_options=pacsv.ReadOptions(
                column_names=list(map(str, names)), block_size=len(data) + 1, use_threads=False
            ),
            parse_options=pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in data),
            convert_options=pacsv.ConvertOptions(
                include_columns=list(map(str, types)),
                column_types={str(position): arrow for position, arrow in types.items()},
                null_values=list(nulls),
                true_values=["true", "True", "TRUE", "1"],
                false_values=["false", "False", "FALSE", "0"],
            ),
        )
    except pa.ArrowException as error:
        raise _Refused(str(error), "delimited text") from error


def _words(values: Any, trim: bool, is_filled: bool) -> Any:
    if not values.null_count:
        values = pc.utf8_trim(values, BLANKS) if trim else values
    if is_filled:
        return pc.if_else(pc.is_in(values, pa.array([*_MISSING])), "", values)
    if values.null_count or pc.any(pc.equal(values, "")).as_py():
        raise _Refused("an empty cell", TEXT.expected)
    return values


def _numbers(values: Any, column: Column) -> Tensor:
    kind, fill = column.kind, column.fill
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    if values.null_count:
        if fill is None:
            raise _Refused("an empty cell", kind.expected)
        values = values.fill_null(pa.scalar(_PYTHON[values.type](fill), values.type))
    if kind is BOOLEAN:  # bits, which no tensor shares
        return torch.from_numpy(values.to_numpy(zero_copy_only=False))
    numbers = from_dlpack(values)
    if kind is FLOAT and fill is not None and fill == fill:
        numbers = numbers.masked_fill(numbers.isnan(), fill)
    return numbers


def _as_dtype(values: Tensor, dtype: torch.dtype | None) -> Tensor:
    return values if dtype is None else cast(values, dtype, _refuse)


def _refuse(row: int, found: str, expected: str) -> InputError:
    raise _Refused(found, expected)
