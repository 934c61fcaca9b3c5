"""Tables that a program hands over: whatever gives a stream of Arrow data, read once.

Frames of pandas and polars, Arrow's tables, readers and datasets, relations of DuckDB, cursors of
ADBC, tables of Ibis: all have ``__arrow_c_stream__``. Its batches are kept in memory, or in a
temporary file where they are many.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from pyg_graphzero.conversion.spool import BatchSpool
from pyg_graphzero.conversion.tables import ArrowTable, order_of
from pyg_graphzero.util.reading import reading
from pyg_graphzero.util.workspace import Workspace

_STRING_VIEW = getattr(pa, "string_view", pa.large_string)()  # Arrow 16 has it
# Metadata of a table for messages: its name, a word for its rows, and the columns that call them.
ROWS_ARE = b"rows are"


def is_frame(value: Any) -> bool:
    """Whether this is a table that a program hands over; a series is one with its index."""
    if isinstance(value, type) or is_series(value):
        return False
    is_arrow = isinstance(value, pa.RecordBatch | pads.Dataset)
    return is_arrow or hasattr(value, "__arrow_c_stream__")


def is_series(value: Any) -> bool:
    """Whether this is one column in memory."""
    is_series = hasattr(value, "to_numpy") and hasattr(value, "to_frame")
    return is_series or isinstance(value, pa.Array | pa.ChunkedArray)


class FrameTable(ArrowTable):
    """A table that a program hands over, whose columns are read as those of a file.

    Args:
        value: One that :func:`is_frame` or :func:`is_series` recognises. An index of pandas that
            is more than row numbers is a column.
        space: Memory and temporary files.

    Attributes:
        index: Names of the columns that were the index.

    Raises:
        InputError: A column holds what Arrow has no type for.
    """

    def __init__(self, value: Any, space: Workspace) -> None:
        metadata = getattr(getattr(value, "schema", None), "metadata", None) or {}
        called = metadata.get(ROWS_ARE, f"<{type(value).__name__}>\nrow".encode()).decode()
        name, self._row_word, *self._called_by = called.split("\n")
        self.path = Path(name)
        self.files = (self.path,)
        self._orders: dict[str, dict[str, None]] = {}
        spool = BatchSpool(space, "frame")
        hint = "Give each column one type: frame['id'].astype('int64'), or a CAST in a query."
        with reading(name, "table", "columns of numbers, text or times", hint=hint):
            reader = pa.RecordBatchReader.from_stream(_stream(value))
            self.schema = pa.schema(map(_plain, reader.schema), reader.schema.metadata)
            for batch in reader:
                spool.append(self._taken(batch))
        self.names = tuple(self.schema.names)
        kept = (self.schema.pandas_metadata or {}).get("index_columns", [])
        self.index = tuple(each for each in kept if each in self.names)
        self._batches = spool.finish()
        self.num_rows = self._batches.starts[-1]

    def _taken(self, batch: Any) -> Any:
        """A batch without dictionaries, whose order of names is kept."""
        columns = []
        for field, column in zip(self.schema, batch.columns, strict=True):
            if pa.types.is_dictionary(column.type):
                if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
                    order_of(column, self._orders.setdefault(field.name, {}))
                column = pc.cast(column.dictionary, field.type).take(column.indices)
            columns.append(column if column.type == field.type else pc.cast(column, field.type))
        return pa.record_batch(columns, schema=self.schema)

    def place(self, row: int) -> tuple[Path, str]:
        """See :meth:`ArrowTable.place`."""
        positions = map(self.names.index, self._called_by)
        called = [next(self._batches.slices(at, row, 1 << 62)) for at in positions]
        shown = [repr(column[row - start].as_py()) for start, column in called]
        return self.path, f"{self._row_word} {' '.join(shown or [str(row)])}"

    def check(self, position: int) -> None:
        """There is one part: nothing can differ."""

    def order(self, position: int) -> Any:
        """See :meth:`ArrowTable.order`."""
        found = self._orders.get(self.names[position])
        return None if found is None else pa.array(found, pa.string())

    def batches(self, position: int, row: int, num_rows: int) -> Iterator[tuple[int, Any]]:
        """See :meth:`ArrowTable.batches`."""
        return self._batches.slices(position, row, num_rows)


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
    # A frame's labels may be numbers, and Arrow's names are text.
    return value.rename(columns=str) if hasattr(value, "iloc") else value
