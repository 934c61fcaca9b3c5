"""Parquet and Arrow files, or a stream of Arrow data, as one table whose columns are read apart.

Several files follow one another.
Frames of pandas and polars, Arrow's tables, readers and datasets, relations of DuckDB and tables of
Ibis have ``__arrow_c_stream__``, and a cursor of ADBC fetches what has it. Its batches are read
once, and kept in memory, or in a temporary file where they are many.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import torch
from torch import Tensor

from pyg_graphzero.conversion.dialect import NamedColumns
from pyg_graphzero.conversion.options import Fill, dtype_of, fill_hint, filled_dtype
from pyg_graphzero.conversion.paths import name_in, place_of
from pyg_graphzero.conversion.spool import BatchSpool
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.rows import SLAB_BYTES, StreamRows
from pyg_graphzero.util.arguments import as_tensor
from pyg_graphzero.util.reading import reading
from pyg_graphzero.util.workspace import Workspace

PARQUET_SUFFIXES = (".parquet", ".pq")
_BATCH_ROWS = 1 << 17
_BUFFER_BYTES = 1 << 20  # of a column chunk, instead of all of it


class ArrowTable(NamedColumns):
    """The files of one table: the names of its columns, and how to read each.

    Args:
        files: One or more, all Parquet or all Arrow.
        is_parquet: Which of the two.

    Attributes:
        path: The file, or the directory that all of them are in.
        names: Names of the columns.

    Raises:
        InputError: A file is damaged or cut short.
    """

    def __init__(self, files: Sequence[Path], is_parquet: bool) -> None:
        self.files = files
        self.path = place_of(files)
        self.is_parquet = is_parquet
        opened = [_open_file(path, self.is_parquet) for path in files]
        self.schemas = [schema for schema, _ in opened]
        self.schema = self.schemas[0]
        self.names = tuple(self.schema.names)
        self.num_columns = len(self.names)
        self.starts: list[int] = np.cumsum([0, *(count for _, count in opened)]).tolist()
        self.num_rows = self.starts[-1]

    def place(self, row: int) -> str:
        """Where a row is, seen from :attr:`path`, for messages."""
        file = self._file_of(row)
        return f"{name_in(self.files, file, ': ')}row {row - self.starts[file]}"

    def _file_of(self, row: int) -> int:
        return max(bisect_right(self.starts, row, hi=len(self.files)) - 1, 0)

    def where(self, position: int) -> Callable[[int], str]:
        """Where the value of a row is, for messages."""
        return lambda row: f"{self.place(row)}, column {self.label(position)}"

    def fail(
        self, row: int, position: int, found: str, expected: str, hint: str = ""
    ) -> InputError:
        """The error for one value."""
        return InputError(self.path, self.where(position)(row), found, expected, hint)

    def reading(self, position: int) -> AbstractContextManager[None]:
        """A block that only turns values of a column into others."""
        return _reading(self.path, f"column {self.label(position)}")

    def is_text(self, position: int) -> bool:
        """Whether a column holds text."""
        kind = self.schema.field(position).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return pa.types.is_string(kind) or pa.types.is_large_string(kind)

    def words(self, position: int, attr: str = "", fill: Fill | None = None) -> Iterator[Any]:
        """A column of text, as Arrow arrays; arguments as those of :class:`ColumnRows`.

        With a fill, nulls are empty strings.
        """
        self.check(position)
        for start, batch in self.batches(position, 0, _BATCH_ROWS):
            if fill is None:
                self.refuse_null(batch, start, position, fill_hint(attr, False) if attr else "")
            with self.reading(position):
                words = pc.cast(batch, pa.string())
            yield words if fill is None else words.fill_null("")

    def check(self, position: int) -> None:
        """Refuse a column that is missing from a file, or of another type there."""
        name = self.names[position]
        first = None
        for path, schema in zip(self.files, self.schemas, strict=True):
            if schema.get_field_index(name) < 0:
                raise InputError(path, "columns", ", ".join(schema.names), f"a column {name!r}")
            kind = schema.field(name).type
            first = first or (kind, path)
            if kind != first[0]:
                raise InputError(path, f"column {name!r}", kind, f"{first[0]} as in {first[1]}")

    def refuse_null(self, batch: Any, start: int, position: int, hint: str = "") -> None:
        """Raise for the first value of a batch that is missing."""
        if batch.null_count:
            row = int(np.argmax(batch.is_null().to_numpy(zero_copy_only=False)))
            raise self.fail(start + row, position, "null", "a value", hint)

    def batches(self, position: int, row: int, num_rows: int) -> Iterator[tuple[int, Any]]:
        """A column from the file that holds ``row`` on: number of the first row, Arrow array."""
        name = self.names[position]
        for file in range(self._file_of(row), len(self.files)):
            at, end = self.starts[file : file + 2]
            for batch in self._file_batches(file, name, num_rows):
                yield at, batch
                at += len(batch)
            if at != end:
                found, expected = (f"{each - self.starts[file]} rows" for each in (at, end))
                raise InputError(self.files[file], "file", f"an end after {found}", expected)

    def _file_batches(self, file: int, name: str, num_rows: int) -> Iterator[Any]:
        path = self.files[file]
        with _reading(path), ExitStack() as stack:
            if self.is_parquet:
                # A scanner of pyarrow.dataset would decode a column of a whole row group at once.
                source = pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES)
                batches = stack.enter_context(source).iter_batches(num_rows, columns=[name])
            else:
                raw = stack.enter_context(pa.OSFile(str(path)))
                index = self.schemas[file].get_field_index(name)
                options = pa.ipc.IpcReadOptions(included_fields=[index])
                reader = stack.enter_context(pa.ipc.open_file(raw, options=options))
                batches = map(reader.get_batch, range(reader.num_record_batches))
            for number, batch in enumerate(batches):
                # Arrow takes lengths and offsets as they are in the file; what is not checked here
                # reads, and writes, outside of its buffers.
                with _reading(path, f"batch {number}, column {name!r}"):
                    batch.validate(full=True)
                yield batch.column(0)


def _open_file(path: Path, is_parquet: bool) -> tuple[Any, int]:
    """Schema and number of rows of one file."""
    with _reading(path):
        if is_parquet:
            with pq.ParquetFile(path) as source:
                return _with_names(source.schema_arrow), source.metadata.num_rows
        with pa.OSFile(str(path)) as raw, pa.ipc.open_file(raw) as reader:
            schema = _with_names(reader.schema)
        return schema, pads.dataset(str(path), format="ipc").count_rows()


def _with_names(schema: Any) -> Any:
    """``schema``, whose names are text: Arrow looks when they are first asked for."""
    assert len(schema.names) == len(schema)
    return schema


def _reading(path: Path, where: str = "file") -> AbstractContextManager[None]:
    kind = "Parquet" if path.suffix in PARQUET_SUFFIXES else "Arrow"
    return reading(path, where, f"a whole {kind} file")


class ColumnRows(StreamRows):
    """A column of numbers, booleans, times or lists of one length.

    Args:
        table: The table.
        position: Which column.
        attr: The attribute that it becomes; none if it is of ids.
        fill: Value in place of a null; None if there may be none.

    Raises:
        InputError: It holds something else, or files disagree about its type.
    """

    def __init__(
        self, table: ArrowTable, position: int, attr: str = "", fill: Fill | None = None
    ) -> None:
        table.check(position)
        self.table, self.position = table, position
        self._attr, self._fill = attr, fill
        kind = table.schema.field(position).type
        self._length: int | None = None  # of the lists, if it holds lists
        if pa.types.is_fixed_size_list(kind):
            self._length = kind.list_size
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            first = next((batch for _, batch in table.batches(position, 0, 1) if len(batch)), None)
            self._length = 0 if first is None else pc.list_value_length(first)[0].as_py() or 0
        if self._length is not None:
            kind = kind.value_type
        shape = (table.num_rows,) if self._length is None else (table.num_rows, self._length)
        super().__init__(shape, filled_dtype(self._dtype(kind), fill, attr), self._tensors)

    def _dtype(self, kind: Any) -> torch.dtype:
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if pa.types.is_temporal(kind):
            return torch.int64
        known = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        if not known:
            label = self.table.label(self.position)
            name, expected = label.strip("'"), "numbers, booleans, times, text or lists of numbers"
            to = f"frame[{label}].astype('float64'), or CAST({name} AS DOUBLE PRECISION)"
            if not self._attr:
                expected = "ids that are integers or text"
                to = f"frame[{label}].astype('str'), or CAST({name} AS BIGINT) or AS TEXT"
            hint = f"Convert it before: {to} in a query."
            raise InputError(self.table.path, f"column {label}", str(kind), expected, hint)
        return dtype_of(kind)

    def _tensors(self, row: int) -> Iterator[Tensor]:
        num_rows = min(_BATCH_ROWS, max(1, SLAB_BYTES // max(1, self.row_bytes)))
        for start, batch in self.table.batches(self.position, row, num_rows):
            if start + len(batch) > row:
                skip = max(row - start, 0)
                with self.table.reading(self.position):
                    tensor = self._tensor(batch.slice(skip), start + skip)
                yield tensor

    def _tensor(self, batch: Any, start: int) -> Tensor:
        table = self.table
        if self._fill is None or self._length is not None:
            table.refuse_null(batch, start, self.position, self._hint())
        if self._length is not None:
            lengths = pc.list_value_length(batch).to_numpy(zero_copy_only=False)
            other = lengths != self._length
            if other.any():
                row = int(np.argmax(other))
                raise table.fail(
                    start + row,
                    self.position,
                    f"a list of {lengths[row]}",
                    f"{self._length} values, as in the first row",
                )
            batch = batch.flatten()
            if batch.null_count:
                at = int(np.argmax(batch.is_null().to_numpy(zero_copy_only=False)))
                row = start + at // max(self._length, 1)
                raise table.fail(row, self.position, "null in a list", "a value")
        if pa.types.is_dictionary(batch.type):
            batch = batch.dictionary_decode()
        if pa.types.is_temporal(batch.type):
            width = pa.int32() if batch.type.bit_width == 32 else pa.int64()
            batch = pc.cast(batch.view(width), pa.int64())
        missing = batch.is_null().to_numpy(zero_copy_only=False) if batch.null_count else None
        if missing is not None:
            batch = batch.fill_null(False if pa.types.is_boolean(batch.type) else 0)
        tensor = as_tensor(batch.to_numpy(zero_copy_only=False), self._attr).to(self.dtype)
        if missing is not None and self._fill is not None:
            tensor = tensor.masked_fill(torch.from_numpy(missing), self._fill)
        return tensor if self._length is None else tensor.view(-1, self._length)

    def _hint(self) -> str:
        if not self._attr:
            return ""
        if self._length is not None:
            return "Give it a value there, or leave that row out: lists have no fill."
        return fill_hint(self._attr, self.dtype.is_floating_point)


_STRING_VIEW = getattr(pa, "string_view", pa.large_string)()  # Arrow 16 has it


def is_frame(value: Any) -> bool:
    """Whether this is a table that a program hands over; a series is one with its index."""
    if isinstance(value, type) or is_series(value):
        return False
    is_arrow = isinstance(value, pa.RecordBatch | pads.Dataset)
    return is_arrow or hasattr(value, "__arrow_c_stream__") or hasattr(value, "fetch_arrow")


def is_series(value: Any) -> bool:
    """Whether this is one column in memory."""
    is_series = hasattr(value, "to_numpy") and hasattr(value, "to_frame")
    return is_series or isinstance(value, pa.Array | pa.ChunkedArray)


class FrameTable(ArrowTable):
    """A table that is no file, whose columns are read as those of one.

    Args:
        schema: The schema of its batches.
        batches: Record batches, which are read once.
        space: Memory and temporary files.
        name: The table, for messages.

    Attributes:
        index: Names of the columns that were the index of a frame of pandas.
    """

    def __init__(self, schema: Any, batches: Iterable[Any], space: Workspace, name: str) -> None:
        self.path = Path(name)
        self.files = (self.path,)
        self.schema = pa.schema(map(_plain, schema), schema.metadata)
        spool = BatchSpool(space, "frame")
        for batch in batches:
            spool.append(self._taken(batch))
        self.names = tuple(self.schema.names)
        self.num_columns = len(self.names)
        kept = (self.schema.pandas_metadata or {}).get("index_columns", [])
        self.index = tuple(each for each in kept if each in self.names)
        self._batches = spool.finish()
        self.num_rows = self._batches.starts[-1]
        self.schemas, self.starts = [self.schema], [0, self.num_rows]

    def _taken(self, batch: Any) -> Any:
        """A batch without dictionaries."""
        columns = []
        for field, column in zip(self.schema, batch.columns, strict=True):
            if pa.types.is_dictionary(column.type):
                column = pc.cast(column.dictionary, field.type).take(column.indices)
            columns.append(column if column.type == field.type else pc.cast(column, field.type))
        return pa.record_batch(columns, schema=self.schema)

    def batches(self, position: int, row: int, num_rows: int) -> Iterator[tuple[int, Any]]:
        """See :meth:`ArrowTable.batches`."""
        return self._batches.slices(position, row, num_rows)


def frame_table(value: Any, space: Workspace) -> FrameTable:
    """The table that a program hands over, or a series. An index that is no row number is a column.

    Raises:
        InputError: A column holds what Arrow has no type for.
    """
    name = f"<{type(value).__name__}>"
    hint = "Give each column one type: frame['id'].astype('int64'), or a CAST in a query."
    with reading(name, "table", "columns of numbers, text or times", hint=hint):
        reader = pa.RecordBatchReader.from_stream(_stream(value))
        return FrameTable(reader.schema, reader, space, name)


def _plain(field: Any) -> Any:
    """A column's field, without dictionary and view."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return pa.field(field.name, pa.large_string() if kind == _STRING_VIEW else kind)


def _stream(value: Any) -> Any:
    """The object that gives the stream of a table or series."""
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return pa.table({"value": value})
    if isinstance(value, pads.Dataset):
        return value.scanner().to_reader()
    if is_series(value):
        value = value.to_frame()
    if not hasattr(value, "__arrow_c_stream__"):
        return value.fetch_arrow()  # a cursor
    # A frame's labels may be numbers, and Arrow's names are text.
    return value.rename(columns=str) if hasattr(value, "iloc") else value
