"""Rows of an input, read a slab at a time: what every reader hands on, whatever its size.

Nothing here maps a file: pages of a map count as the process's memory, which is what a budget is
about. Rows are read by system call into memory of the slab's size.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from io import FileIO
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero.errors import InputError
from pyg_graphzero.util.reading import reading

# Rows are read in pieces of about this many bytes.
SLAB_BYTES = 32 << 20
# Bytes that are read from a stream at once.
_READ_BYTES = 1 << 20

# Makes the path of a temporary file from a name for it, as `Workspace.file` does.
Spool = Callable[[str], Path]


class Rows(ABC):
    """A table of one dtype, ``[num_rows, ...]``, that may be read any number of times.

    Args:
        shape: With the number of rows first.
        dtype: Dtype of the tensors that come out.
    """

    def __init__(self, shape: Sequence[int], dtype: torch.dtype) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return prod(self.shape[1:]) * self.dtype.itemsize

    @abstractmethod
    def read(self, begin: int, end: int) -> Tensor:
        """Rows ``begin … end - 1``, contiguous; the caller must not write to them.

        Raises:
            InputError: The input is damaged, or shorter than it said.
        """

    def slabs(self, num_rows: int | None = None) -> Iterator[Tensor]:
        """All rows in order, in pieces of ``num_rows`` (or of about 32 MiB)."""
        step = num_rows or max(1, SLAB_BYTES // max(1, self.row_bytes))
        for begin in range(0, len(self), step):
            yield self.read(begin, min(begin + step, len(self)))

    def map(self, dtype: torch.dtype, function: Callable[[Tensor, int], Tensor]) -> Rows:
        """These rows through a function, row for row.

        Args:
            dtype: Dtype of the result.
            function: Slab and the number of its first row to slab.
        """
        return MadeRows(
            self.shape, dtype, lambda begin, end: function(self.read(begin, end), begin)
        )

    def columns(self) -> list[Rows]:
        """The columns of a narrow matrix ``[num_rows, k]``, each a table ``[num_rows]``."""
        read = lru_cache(1)(self.read)  # columns are often read in turns

        def pick(column: int) -> Rows:
            return MadeRows(
                self.shape[:1], self.dtype, lambda *rows: read(*rows)[:, column].contiguous()
            )

        return [pick(column) for column in range(self.shape[1])]

    def vectors(self, spool: Spool) -> list[Rows]:
        """The few rows of a matrix ``[k, n]``, each a table ``[n]``.

        Args:
            spool: Makes a temporary file, which rows that can only be read forwards need.
        """
        return self.to_file(spool("rows")).vectors(spool)

    def to_file(self, path: Path) -> FileRows:
        """These rows in a file of their own, written here."""
        with open(path, "wb") as file:
            for slab in self.slabs():
                file.write(as_bytes(slab))
        return FileRows(path, 0, self.shape, self.dtype)


class ArrayRows(Rows):
    """Rows that are in memory already.

    Args:
        value: A dense CPU tensor ``[num_rows, ...]``.
        path: The file it was loaded from, if it was, for messages.
    """

    def __init__(self, value: Tensor, path: Path | None = None) -> None:
        super().__init__(value.shape, value.dtype)
        self.value = value
        self.path = path

    def read(self, begin: int, end: int) -> Tensor:
        """See :meth:`Rows.read`."""
        return self.value[begin:end].contiguous()

    def vectors(self, spool: Spool) -> list[Rows]:
        """See :meth:`Rows.vectors`."""
        return [ArrayRows(row, self.path) for row in self.value]


class FileRows(Rows):
    """Rows that lie one after another in a file: `.npy`, stored `.npz` members.

    Args:
        path: The file.
        offset: Where the first row starts, in bytes.
        shape: With the number of rows first.
        dtype: How rows are stored.
        swapped: In the byte order that is not this machine's.

    Raises:
        InputError: The file is too short for that many rows.
    """

    def __init__(
        self,
        path: Path,
        offset: int,
        shape: Sequence[int],
        dtype: torch.dtype,
        swapped: bool = False,
    ) -> None:
        super().__init__(shape, dtype)
        self.path = path
        self.offset = offset
        self.swapped = swapped
        self._check(path.stat().st_size)

    def read(self, begin: int, end: int) -> Tensor:
        """See :meth:`Rows.read`."""
        out = np.empty((end - begin) * self.row_bytes, dtype=np.uint8)
        with open(self.path, "rb", buffering=0) as file:
            self._fill(file, out.data, self.offset + begin * self.row_bytes)
        return _typed(out, (end - begin, *self.shape[1:]), self.dtype, self.swapped)

    def vectors(self, spool: Spool) -> list[Rows]:
        """See :meth:`Rows.vectors`."""
        return [
            FileRows(
                self.path,
                self.offset + row * self.row_bytes,
                self.shape[1:],
                self.dtype,
                self.swapped,
            )
            for row in range(len(self))
        ]

    def _fill(self, file: FileIO, view: memoryview, at: int) -> None:
        file.seek(at)
        while len(view):
            count = file.readinto(view) or 0
            if count == 0:
                self._check(os.fstat(file.fileno()).st_size)
            view = view[count:]

    def _check(self, size: int) -> None:
        needed = self.offset + prod(self.shape) * self.dtype.itemsize
        if size < needed:
            raise InputError(
                self.path, "file", f"{size} bytes", f"{needed} or more, for {len(self)} rows"
            )


class FortranRows(FileRows):
    """Rows of a matrix that lies in its file column by column, as NumPy's Fortran order has it."""

    def read(self, begin: int, end: int) -> Tensor:
        """See :meth:`Rows.read`."""
        width = self.dtype.itemsize
        inner = self.shape[:0:-1]
        out = np.empty((prod(inner), (end - begin) * width), dtype=np.uint8)
        with open(self.path, "rb", buffering=0) as file:
            for column, part in enumerate(out):
                self._fill(file, part.data, self.offset + (column * len(self) + begin) * width)
        slab = _typed(out.reshape(-1), (*inner, end - begin), self.dtype, self.swapped)
        return slab.permute(*range(slab.dim() - 1, -1, -1)).contiguous()

    def columns(self) -> list[Rows]:
        """See :meth:`Rows.columns`."""
        return self._transposed().vectors(no_spool)

    def vectors(self, spool: Spool) -> list[Rows]:
        """See :meth:`Rows.vectors`."""
        return self._transposed().columns()

    def _transposed(self) -> FileRows:
        return FileRows(self.path, self.offset, self.shape[::-1], self.dtype, self.swapped)


def no_spool(name: str) -> Path:
    """The :data:`Spool` of what needs none."""
    raise AssertionError(f"{name}: a temporary file is not expected to be needed here")


class StreamRows(Rows):
    """Rows that can only be read forwards; going anywhere else starts again.

    Args:
        shape: With the number of rows first.
        dtype: Dtype of the tensors that come out.
        start: All rows from one on, in pieces of any length.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: torch.dtype,
        start: Callable[[int], Iterator[Tensor]],
    ) -> None:
        super().__init__(shape, dtype)
        self._start = start
        self._pieces: Iterator[Tensor] | None = None
        self._at = 0  # the row that comes next
        self._rest = torch.empty((0, *self.shape[1:]), dtype=dtype)

    def read(self, begin: int, end: int) -> Tensor:
        """See :meth:`Rows.read`."""
        pieces, rest, self._pieces = self._pieces, self._rest, None
        if pieces is None or begin != self._at:
            pieces, rest = self._start(begin), rest[:0]
        found, missing = [rest[:0]], end - begin
        while missing:
            piece = rest if len(rest) else next(pieces)
            found.append(piece[:missing])
            rest = piece[missing:]
            missing -= len(found[-1])
        self._at, self._rest = end, rest
        self._pieces = pieces if end < len(self) else None
        return found[-1].contiguous() if len(found) < 3 else torch.cat(found)


def inflated_rows(
    path: Path,
    where: str,
    open_stream: Callable[[], BinaryIO],
    shape: Sequence[int],
    dtype: torch.dtype,
    swapped: bool = False,
) -> StreamRows:
    """Rows out of a stream of bytes, such as a deflated member of an archive.

    Args:
        path: The input, for messages.
        where: The part of it, for messages.
        open_stream: Starts a stream at the first byte of the first row.
        shape: With the number of rows first.
        dtype: How rows are stored.
        swapped: In the byte order that is not this machine's.
    """
    row_bytes = prod(shape[1:]) * dtype.itemsize
    step = max(1, _READ_BYTES // max(1, row_bytes))

    def start(row: int) -> Iterator[Tensor]:
        with open_stream() as stream:
            for begin in range(0, shape[0], step):
                count = min(step, shape[0] - begin)
                with reading(path, where, "undamaged data"):
                    raw = bytearray(stream.read(count * row_bytes))
                if len(raw) < count * row_bytes:
                    done = begin + len(raw) // row_bytes
                    raise InputError(path, where, f"an end after {done} rows", f"{shape[0]} rows")
                if begin + count > row:
                    data = np.frombuffer(raw, np.uint8)
                    rows = _typed(data, (count, *shape[1:]), dtype, swapped)
                    yield rows[max(0, row - begin) :]

    return StreamRows(shape, dtype, start)


class MadeRows(Rows):
    """Rows that a function makes.

    Args:
        shape: With the number of rows first.
        dtype: Dtype of the tensors that come out.
        make: The first row and the one behind the last to a slab, as :meth:`Rows.read`.
    """

    def __init__(
        self, shape: Sequence[int], dtype: torch.dtype, make: Callable[[int, int], Tensor]
    ) -> None:
        super().__init__(shape, dtype)
        self._make = make

    def read(self, begin: int, end: int) -> Tensor:
        """See :meth:`Rows.read`."""
        return self._make(begin, end)


class StackedRows(Rows):
    """Tables ``[num_rows]`` side by side, as the columns of a matrix.

    Args:
        parts: One or more, of one length; of several dtypes the matrix has what NumPy makes of
            them, so that no value is lost.
    """

    def __init__(self, parts: Sequence[Rows]) -> None:
        dtypes = {part.dtype for part in parts}
        dtype = parts[0].dtype
        if len(dtypes) > 1:
            common = np.result_type(*(torch.empty(0, dtype=each).numpy() for each in dtypes))
            dtype = torch.from_numpy(np.empty(0, common)).dtype
        super().__init__((len(parts[0]), len(parts)), dtype)
        self.parts = parts

    def read(self, begin: int, end: int) -> Tensor:
        """See :meth:`Rows.read`."""
        columns = [part.read(begin, end).to(self.dtype) for part in self.parts]
        return torch.stack(columns, dim=1)


class ChainRows(Rows):
    """Tables that follow one another, such as the files of a directory.

    Args:
        parts: One or more, of one dtype and row shape.
    """

    def __init__(self, parts: Sequence[Rows]) -> None:
        self.starts = np.cumsum([0, *(len(part) for part in parts)]).tolist()
        super().__init__((self.starts[-1], *parts[0].shape[1:]), parts[0].dtype)
        self.parts = parts

    def part_of(self, row: int) -> tuple[int, int]:
        """The part that holds ``row``, and the row's number in it."""
        part = bisect_right(self.starts, row) - 1
        return part, row - self.starts[part]

    def read(self, begin: int, end: int) -> Tensor:
        """See :meth:`Rows.read`."""
        first = min(self.part_of(begin)[0], len(self.parts) - 1)
        pieces: list[Tensor] = []
        for part, start in zip(self.parts[first:], self.starts[first:], strict=False):
            if start >= end and pieces:
                break
            pieces.append(part.read(max(begin - start, 0), min(end - start, len(part))))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def scattered_rows(num_rows: int, index: Tensor, values: Tensor, base: float) -> Rows:
    """One value in all rows but for a few, which are kept in memory.

    Args:
        num_rows: Number of rows.
        index: Rows that have a value of their own, ``int64 [n]``; of a row named twice the last
            value counts.
        values: Theirs, ``[n, ...]``.
        base: The value of all others.
    """
    order = index.argsort(stable=True)
    order = order[torch.cat([index[order].diff() != 0, torch.ones(min(len(order), 1)) > 0])]
    rows = index[order].numpy()

    def make(begin: int, end: int) -> Tensor:
        out = torch.full((end - begin, *values.shape[1:]), base, dtype=values.dtype)
        first, last = np.searchsorted(rows, (begin, end))
        out[torch.from_numpy(rows[first:last]) - begin] = values[order[first:last]]
        return out

    return MadeRows((num_rows, *values.shape[1:]), values.dtype, make)


def describe(value: Any) -> str:
    """Dtype and row shape of rows, a tensor or an array: ``"float32[128]"``."""
    shape = ", ".join(map(str, value.shape[1:]))
    name = str(value.dtype).removeprefix("torch.")
    return f"{name}[{shape}]" if shape else name


def as_bytes(tensor: Tensor) -> Any:
    """The memory of a contiguous tensor of any dtype, ``uint8 [num_bytes]``."""
    if tensor.numel() == 0:
        return np.empty(0, np.uint8)
    return tensor.detach().reshape(-1).view(torch.uint8).numpy()


def _typed(data: np.ndarray, shape: Sequence[int], dtype: torch.dtype, swapped: bool) -> Tensor:
    """Bytes as they lie in the file as a tensor."""
    if swapped and dtype.itemsize > 1:
        width = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
        data = data.reshape(-1, width)[:, ::-1].reshape(-1)
    raw = torch.from_numpy(np.ascontiguousarray(data))
    return raw.view(dtype).view(tuple(shape)) if raw.numel() else torch.empty(shape, dtype=dtype)
