"""Tables in memory: pandas and polars frames, Arrow tables, and whatever hands out Arrow data."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyg_graphzero.conversion.tables import ArrowTable
from pyg_graphzero.util.reading import reading


def is_frame(value: Any) -> bool:
    """Whether this is a table in memory; a series is one with its index."""
    if isinstance(value, pa.Table | pa.RecordBatch):
        return True
    has_columns = hasattr(value, "columns") and not isinstance(value, type)
    return has_columns and (_is_pandas(value) or hasattr(value, "to_arrow"))


def is_series(value: Any) -> bool:
    """Whether this is one column in memory."""
    is_series = hasattr(value, "to_numpy") and hasattr(value, "to_frame")
    return is_series or isinstance(value, pa.Array | pa.ChunkedArray)


def _is_pandas(value: Any) -> bool:
    return hasattr(value, "iloc") and hasattr(value, "index")


class FrameTable(ArrowTable):
    """A table in memory, whose columns are read as those of a file.

    Args:
        value: What :func:`is_frame` or :func:`is_series` recognises. An index of pandas that is
            more than row numbers is a column.

    Attributes:
        index: What the columns are called that were the index.

    Raises:
        InputError: A column holds what Arrow has no type for.
    """

    def __init__(self, value: Any) -> None:
        name = f"<{type(value).__name__}>"
        with reading(name, "table", "columns of numbers, text or times"):
            table = _as_table(value)
        for position, column in enumerate(table.schema):
            if column.type == getattr(pa, "string_view", pa.large_string)():
                words = pc.cast(table.column(position), pa.large_string())
                table = table.set_column(position, column.name, words)
        self.path = Path(name)
        self.files = (self.path,)
        self.schema = table.schema
        self.names = tuple(self.schema.names)
        kept = (self.schema.pandas_metadata or {}).get("index_columns", [])
        self.index = tuple(each for each in kept if each in self.names)
        self.num_rows = table.num_rows
        self._table = table

    def place(self, row: int) -> tuple[Path, str]:
        """See :meth:`ArrowTable.place`."""
        return self.path, f"row {row}"

    def check(self, position: int) -> None:
        """There is one part: nothing can differ."""

    def batches(self, position: int, row: int, num_rows: int) -> Iterator[tuple[int, Any]]:
        """See :meth:`ArrowTable.batches`."""
        chunks = self._table.column(position).chunks
        starts = [0]
        for chunk in chunks:
            starts.append(starts[-1] + len(chunk))
        first = max(bisect_right(starts, row, hi=len(chunks)) - 1, 0)
        for start, chunk in zip(starts[first:], chunks[first:], strict=False):
            for begin in range(0, len(chunk), num_rows):
                yield start + begin, chunk.slice(begin, num_rows)


def _as_table(value: Any) -> pa.Table:
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return pa.table({"value": value})
    if not hasattr(value, "columns"):
        value = value.to_frame()
    if _is_pandas(value):
        # A frame's labels may be numbers, and Arrow's names are text.
        named = value.rename(columns=str)
        return pa.Table.from_pandas(named)
    return value.to_arrow()
