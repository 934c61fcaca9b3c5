"""Data that is needed again once read: in memory while it is little, else in temporary files.

A spool takes batches and becomes a table that is read slab by slab, in any order, any number of
times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from pyg_graphzero.store.rows import (
    ArrayRows,
    ChainRows,
    FileRows,
    Rows,
    as_bytes,
)
from pyg_graphzero.util.workspace import Workspace

_SLAB_WORDS = 1 << 17
_NO_WORDS = pa.array([], pa.string())


class _Spool:
    """Collects batches.

    Args:
        workspace: Says what fits in memory, and where files go.
        name: Part of the file's name.

    Attributes:
        bounds: The least and the greatest value, where they are known.
    """

    bounds: tuple[int, int] | None = None

    def __init__(self, workspace: Workspace, name: str) -> None:
        self._workspace = workspace
        self._name = name
        self._parts: list[Any] = []

    @cached_property
    def _path(self) -> Path:
        return self._workspace.file(self._name)


class RowSpool(_Spool):
    """Collects batches of rows.

    Args:
        workspace: Says what fits in memory, and where files go.
        name: Part of the file's name.
        empty: The rows if no batch comes, ``[0, ...]``.
    """

    def __init__(self, workspace: Workspace, name: str, empty: Tensor) -> None:
        super().__init__(workspace, name)
        self._empty = empty

    def append(self, batch: Tensor) -> None:
        """More rows, of the shape of those before; the dtype may be another."""
        if not len(batch):
            return
        batch = batch.contiguous()
        if self._workspace.hold(batch.nbytes):
            self._parts.append(ArrayRows(batch))
            return
        with self._path.open("ab") as file:
            at = file.tell()
            file.write(as_bytes(batch))
        last = self._parts[-1] if self._parts else None
        if isinstance(last, FileRows) and last.dtype == batch.dtype:
            last.shape = (len(last) + len(batch), *last.shape[1:])
        else:
            self._parts.append(FileRows(self._path, at, batch.shape, batch.dtype))

    def finish(self) -> Rows:
        """All rows, in a dtype that holds those of all batches."""
        if not self._parts:
            return ArrayRows(self._empty)
        dtype = reduce(torch.promote_types, [part.dtype for part in self._parts])
        return ChainRows([part.map(dtype, lambda slab, _: slab.to(dtype)) for part in self._parts])


class TextRows(ABC):
    """Strings that may be read any number of times, as :class:`Rows` of numbers are."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, begin: int, end: int) -> Any:
        """Strings ``begin … end - 1`` as an Arrow array."""

    def slabs(self) -> Iterator[Any]:
        """All strings in order, in pieces of a few megabytes."""
        for begin in range(0, len(self), _SLAB_WORDS):
            yield self.read(begin, min(begin + _SLAB_WORDS, len(self)))


class PrintedRows(TextRows):
    """Integers as the text they are printed as.

    Args:
        rows: The integers, ``[n]``.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, begin: int, end: int) -> Any:
        """See :meth:`TextRows.read`."""
        return pc.cast(pa.array(self._rows.read(begin, end).numpy()), pa.string())


class Batches(TextRows):
    """Record batches in memory, or in an Arrow file; their first column as :class:`TextRows`.

    Args:
        parts: Batches, or the numbers of those in ``file``.
        lengths: How many rows each has.
        file: The file, if there is one.

    Attributes:
        starts: The first row of each batch, and the number of rows.
    """

    def __init__(
        self, parts: Sequence[Any], lengths: Sequence[int], file: Path | None = None
    ) -> None:
        self.starts: list[int] = np.cumsum([0, *lengths]).tolist()
        self._parts = parts
        self._file = file
        self._last: tuple[int, Any] = (-1, None)

    def __len__(self) -> int:
        return self.starts[-1]

    def read(self, begin: int, end: int) -> Any:
        """See :meth:`TextRows.read`."""
        pieces = []
        number = bisect_right(self.starts, begin) - 1
        while begin < end:
            start = self.starts[number]
            pieces.append(self._first(number)[begin - start : end - start])
            number += 1
            begin = self.starts[number]
        return pieces[0] if len(pieces) == 1 else pa.concat_arrays([_NO_WORDS, *pieces])

    def slabs(self) -> Iterator[Any]:
        """See :meth:`TextRows.slabs`."""
        yield from map(self._first, range(len(self._parts)))

    def _first(self, number: int) -> Any:
        if self._last[0] != number:
            self._last = (number, self.column(number, 0))
        return self._last[1]

    def column(self, number: int, position: int) -> Any:
        """A column of one batch."""
        part = self._parts[number]
        if not isinstance(part, int):
            return part.column(position)
        options = pa.ipc.IpcReadOptions(included_fields=[position])
        with pa.OSFile(str(self._file)) as raw, pa.ipc.open_file(raw, options=options) as file:
            return file.get_batch(part).column(0)

    def slices(self, position: int, row: int, num_rows: int) -> Iterator[tuple[int, Any]]:
        """A column from the batch with ``row`` on, in pieces: their first rows, and arrays."""
        last = len(self._parts)
        for number in range(max(bisect_right(self.starts, row, hi=last) - 1, 0), last):
            column = self.column(number, position)
            for begin in range(0, len(column), num_rows):
                yield self.starts[number] + begin, column.slice(begin, num_rows)


class BatchSpool(_Spool):
    """Collects record batches."""

    def __init__(self, workspace: Workspace, name: str) -> None:
        super().__init__(workspace, name)
        self._lengths: list[int] = []
        self._file: Any = None
        self._num_written = 0

    def append(self, batch: Any) -> None:
        """More rows, with the columns of those before: a batch, or an array for a single column."""
        if not len(batch):
            return
        if not isinstance(batch, pa.RecordBatch):
            batch = pa.record_batch([batch], ["text"])
        if self._workspace.hold(batch.nbytes):
            self._parts.append(batch)
            self._lengths.append(len(batch))
            return
        if self._file is None:
            self._file = pa.ipc.new_file(str(self._path), batch.schema)
        for begin in range(0, len(batch), _SLAB_WORDS):
            piece = batch.slice(begin, _SLAB_WORDS)
            self._file.write_batch(piece)
            self._parts.append(self._num_written)
            self._lengths.append(len(piece))
            self._num_written += 1

    def finish(self) -> Batches:
        """All rows."""
        path = None
        if self._file is not None:
            self._file.close()
            path = self._path
        return Batches(self._parts, self._lengths, path)


def word_rows(words: Any) -> Batches:
    """An Arrow array of strings as rows."""
    return Batches([pa.record_batch([words], ["text"])], [len(words)])
