"""Tensors over `.gd` and `.gl` files, and rows gathered from any tensor."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.errors import FormatError, UnsupportedError
from pyg_graphzero.store.encoding import ColumnEncoder
from pyg_graphzero.store.rows import ArrayRows, Rows, as_bytes

# Format v1 names its element types as torch does; a torch too old for one of them lacks the name.
# fmt: off
DTYPE_NAMES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
    "complex64", "complex128", "uint16", "uint32", "uint64", "complex32", "float8_e4m3fn",
    "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
)
# fmt: on
DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name) for name in DTYPE_NAMES if hasattr(torch, name)
}
_NAME_OF = {dtype: name for name, dtype in DTYPES.items()}

# Rows that are decoded by one call where all of a column are.
_DECODED_ROWS = 1 << 18
# Numbers that are inverted at a time, in 24 bytes each.
_INVERTED_ROWS = 1 << 20


def dtype_name(dtype: torch.dtype) -> str:
    """The format's name of a torch dtype, e.g. ``"float32"``."""
    if dtype not in _NAME_OF:
        raise UnsupportedError(f"dtype: found {dtype!r}, expected torch's {', '.join(DTYPES)}")
    return _NAME_OF[dtype]


@dataclass(frozen=True)
class EncodedRows:
    """Rows of ``float32`` that are stored in fewer bytes and decoded when they are gathered.

    Attributes:
        stored: ``[num_rows, ...]`` of ``float16``, ``bfloat16`` or ``int8``, over the mapped file.
        scale: For ``int8``: ``float32``, one for each item of a row.
        zero_point: Zero points of the same shape; an item is ``code * scale + zero_point``.
    """

    stored: Tensor
    scale: Tensor | None = None
    zero_point: Tensor | None = None

    @property
    def encoding(self) -> _core.Encoding:
        """Encoding of ``float32``."""
        return _core.Encoding[dtype_name(self.stored.dtype)]

    @property
    def shape(self) -> torch.Size:
        """Shape of the rows, stored and decoded alike."""
        return self.stored.shape

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the decoded rows."""
        return torch.float32

    def size(self, dim: int) -> int:
        """Length of one dimension."""
        return self.stored.size(dim)

    def __getitem__(self, index: int | slice) -> Tensor:
        if isinstance(index, int):
            return gather(self, torch.tensor([range(len(self.stored))[index]]))[0]
        begin, end, stride = index.indices(len(self.stored))
        out = torch.empty((len(range(begin, end, stride)), *self.shape[1:]))
        rows = row_table(self)
        if rows is not None:
            _gather_all(out, rows, lambda places: begin + stride * places)
        return out


def is_written(tensor: Tensor, version: int = 0) -> bool:
    """Whether a tensor was written to in place since its version was ``version``.

    Inference tensors do not count their writes: each is taken for written to.
    """
    return tensor.is_inference() or tensor._version > version


def writes_to(tensor: Tensor) -> Any:
    """Equal as long as torch counts no write to a tensor in place; see :func:`is_written`."""
    return object() if tensor.is_inference() else tensor._version


@torch.inference_mode(False)  # a view counts the writes to it, wherever it was made
def view_column(column: _core.Column) -> Tensor:
    """The column as a tensor whose memory is the file, of what is stored.

    Writing to it in place changes this process's copy of the touched pages, never the file.

    Args:
        column: An opened column.

    Returns:
        A tensor of the column's shape and dtype. It keeps the file mapped as long as it lives.

    Raises:
        FormatError: The file was cut short since it was opened.
        UnsupportedError: The installed torch lacks the column's dtype.
    """
    if column.dtype not in DTYPES:
        raise UnsupportedError(
            f"{column.path}: dtype: found {column.dtype}, which torch {torch.__version__} lacks"
        )
    dtype = DTYPES[column.dtype]
    shape = list(column.shape)
    if column.data_bytes == 0:
        return torch.empty(shape, dtype=dtype)
    raw, writable = column.view()
    if not writable:
        warnings.warn(
            f"{column.path}: strict memory overcommit (vm.overcommit_memory=2) refuses a "
            "copy-on-write map: this tensor is read-only, and writing to it in place will crash. "
            "Use .clone() before changing it.",
            RuntimeWarning,
            stacklevel=3,
        )
    flat = raw.view(dtype)
    if not shape:
        return flat.reshape(())
    inner = [1] * len(shape)
    for d in range(len(shape) - 2, 0, -1):
        inner[d] = inner[d + 1] * shape[d + 1]
    inner[0] = column.row_stride // dtype.itemsize
    return flat.as_strided(shape, inner)


def bytes_of_rows(table: Tensor) -> Tensor:
    """``uint8 [num_rows, bytes of a row]`` over the same memory; rows must be contiguous."""
    table = table.detach()
    return (table.unsqueeze(-1) if table.dim() == 1 else table.flatten(1)).view(torch.uint8)


def column_rows(column: _core.Column, stored: Tensor) -> Tensor | EncodedRows:
    """A column for :func:`gather`, which gives its rows as they were meant.

    Args:
        column: An opened column.
        stored: Its view.
    """
    if column.encoding is None:
        return stored
    if not column.encoding.has_scales:
        return EncodedRows(stored)
    return EncodedRows(stored, torch.tensor(column.scale), torch.tensor(column.zero_point))


def decoded(rows: Tensor | EncodedRows) -> Tensor:
    """All rows as a tensor: the same one, or ``float32`` in memory."""
    return rows if isinstance(rows, Tensor) else rows[:]


def view_topology(topology: _core.Topology) -> tuple[Tensor, Tensor]:
    """``indptr`` (``int64 [num_dst + 1]``), ``indices`` (``uint32`` or ``int64 [num_edges]``).

    Raises:
        UnsupportedError: Other ranks have its neighbours.
    """
    if not topology.index_bytes:
        raise UnsupportedError(
            f"{topology.path}: found neighbours in shards, expected all of them on this machine: "
            "only batches of neighbours over gz.open_shards() have those of others"
        )
    indices = topology.view()[1]
    dtype = torch.uint32 if topology.index_bytes == 4 else torch.int64
    empty = torch.empty(0, dtype=dtype)
    return view_bounds(topology), indices.view(dtype) if topology.num_edges else empty


def view_bounds(topology: _core.Topology) -> Tensor:
    """``indptr``, ``int64 [num_dst + 1]``."""
    return topology.view()[0].view(torch.int64)


def check_sources(topology: _core.Topology, rows: Tensor) -> Tensor:
    """``rows``, some of a topology's ``indices``.

    Raises:
        FormatError: One of them is no source.
    """
    if rows.numel() and not 0 <= int(rows.min()) <= int(rows.max()) < topology.num_src:
        expected = f"0 <= node < {topology.num_src}; run `graphzero verify` on the store"
        raise FormatError.of(topology.path, "indices", "something else", expected)
    return rows


def edge_prints(topology: _core.Topology) -> tuple[int, int]:
    """Two numbers: for the edges as they are, and with both ends exchanged.

    Equal where those edges are. By a pass over the topology.
    """
    builder = _core.SamplerBuilder([topology.num_src, topology.num_dst])
    builder.add_file(0, 1, topology)
    return _core.edge_prints(builder, 0)


def numbers_of(rows: range | Tensor, begin: int, end: int) -> Tensor:
    """The numbers ``begin … end - 1`` among those of some rows, ``int64 [end - begin]``."""
    if isinstance(rows, Tensor):
        return rows[begin:end]
    return torch.arange(rows.start + begin, rows.start + end)


class SomeRows(Rows):
    """Some rows of a tensor, or of an encoded column, decoded.

    Args:
        table: All of them, mapped or in memory.
        rows: Numbers of the rows, which follow one another, or ``int64 [n]``.
    """

    def __init__(self, table: Tensor | EncodedRows, rows: range | Tensor) -> None:
        super().__init__((len(rows), *table.shape[1:]), table.dtype)
        self._table, self._rows = table, rows

    def read(self, begin: int, end: int) -> Tensor:
        """See :meth:`Rows.read`."""
        return gather(self._table, numbers_of(self._rows, begin, end))


class StoredRows(SomeRows):
    """Some rows of a column as it stores them: encoded ones are not decoded.

    Args:
        column: The column.
        stored: Its view.
        rows: See :class:`SomeRows`.
    """

    def __init__(self, column: _core.Column, stored: Tensor, rows: range | Tensor) -> None:
        super().__init__(stored, rows)
        self.column = column


def write_column(
    path: str | os.PathLike[str],
    value: Tensor | Rows | ColumnEncoder,
    progress: Callable[[int], object] | None = None,
) -> None:
    """Writes a column as a `.gd` file and syncs it.

    Args:
        path: The new file.
        value: A CPU tensor of any shape and dtype; or rows, encoded or not, of which a slab at a
            time is read.
        progress: Called with the number of bytes of each piece written.
    """
    encoded: Any = ()
    if isinstance(value, ColumnEncoder):
        encoded = _core.Encoding[value.encoding], value.engine.scale, value.engine.zero_point
    elif isinstance(value, StoredRows):
        encoded = value.column.encoding, value.column.scale, value.column.zero_point
    shape, dtype = list(value.shape), dtype_name(value.dtype)
    writer = _core.ColumnWriter(os.fspath(path), dtype, shape, *encoded)
    if isinstance(value, Tensor):
        value = ArrayRows(value if value.dim() else value.reshape(1))
    for piece in value.slabs():
        writer.append(as_bytes(piece.contiguous()))
        if progress is not None:
            progress(piece.numel() * piece.element_size())
    writer.finish()


def gather(table: Tensor | EncodedRows, index: Tensor, num_threads: int = 0) -> Tensor:
    """Rows of a tensor or of an encoded column, mapped or in memory, copied by all threads.

    Args:
        table: A CPU tensor ``[num_rows, ...]``, whose rows may be padded apart; or encoded rows.
        index: ``int64 [n]`` on the CPU.
        num_threads: 0 uses as many as torch does.

    Returns:
        A contiguous tensor ``[n, ...]`` of the table's dtype; ``float32`` for encoded rows.

    Raises:
        IndexError: An index is outside ``0 <= i < num_rows``.
        OSError: The table's file was truncated under its map.
    """
    rows = row_table(table)
    if rows is None:
        if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < table.size(0):
            raise IndexError(f"index: found a row outside 0 <= row < {table.size(0)}")
        if index.numel() == 0 or isinstance(table, EncodedRows):  # no rows, or rows without items
            return torch.empty((index.numel(), *table.shape[1:]), dtype=table.dtype)
        return table.detach().index_select(0, index)
    out = torch.empty((index.numel(), *table.shape[1:]), dtype=table.dtype)
    gather_into(out, rows, index, num_threads)
    return out


def look_up(numbers: Tensor, index: Tensor, num_threads: int = 0) -> Tensor:
    """Items of a column that are numbers of its rows, as in a permutation.

    Args:
        numbers: ``int32`` or ``int64 [num_rows]``, mapped or in memory.
        index: ``int64 [n]``.
        num_threads: 0 uses as many as torch does.

    Returns:
        ``int64 [n]``.

    Raises:
        IndexError: An index is outside ``0 <= i < num_rows``.
        FormatError: An item is.
    """
    column = row_table(numbers)
    if column is None or index.numel() == 0:
        return gather(numbers, index).to(torch.int64)
    return _core.gather_int64(column, engine_array(index.contiguous()), num_threads)


def inverse(numbers: Tensor) -> Tensor | None:
    """Where each number is in a permutation, by a pass over it.

    Args:
        numbers: ``int32`` or ``int64 [n]``, mapped or in memory.

    Returns:
        ``int32 [n]``, ``int64`` where places do not fit; None if a number is not there.

    Raises:
        OSError: The file of the numbers was truncated under its map.
    """
    count = numbers.numel()
    places = np.full(count, -1, np.int32 if count <= 1 << 31 else np.int64)
    for first in range(0, count, _INVERTED_ROWS):
        index = torch.arange(first, min(first + _INVERTED_ROWS, count))
        part = look_up(numbers, index, num_threads=1).numpy()
        at = np.flatnonzero((part >= 0) & (part < count))
        places[part[at]] = at + first
    return None if places.size and places.min() < 0 else torch.from_numpy(places)


def in_memory(table: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor that torch may walk over: itself, or a copy of one that lies in a mapped file.

    Under torch a file that is cut short, or a disk that fails, would kill the process.

    Args:
        table: A tensor.
        dtype: Dtype of the result; None: the table's.

    Raises:
        OSError: The table's file was truncated under its map.
    """
    rows = row_table(table) if _core.is_mapped(table.data_ptr()) else None
    if rows is None:
        return table if dtype is None else table.to(dtype)
    out = torch.empty(tuple(table.shape), dtype=dtype or table.dtype)
    row = table.stride(0) * table.element_size()
    for first, piece in _pieces(out):
        # The map has no read-ahead: this piece, and the next one while this is copied.
        _core.will_need(table.data_ptr() + first * row, 2 * len(piece) * row)
        places = torch.arange(first, first + len(piece))
        if out.dtype == table.dtype:
            gather_into(piece, rows, places)
        else:
            piece.copy_(gather(table, places))
    return out


def permuted(table: Tensor | EncodedRows, index: Tensor) -> Tensor:
    """All rows in the order of a column of their numbers; ``float32`` for encoded rows.

    Args:
        table: See :func:`gather`.
        index: ``int32`` or ``int64 [num_rows]``.

    Raises:
        FormatError: A number is none of a row.
    """
    out = torch.empty(tuple(table.shape), dtype=table.dtype)
    rows = row_table(table)
    if rows is None:
        return gather(table, in_memory(index, torch.int64))
    _gather_all(out, rows, lambda places: look_up(index, places))
    return out


def _gather_all(out: Tensor, rows: _core.RowTable, index: Callable[[Tensor], Tensor]) -> None:
    for first, piece in _pieces(out):
        gather_into(piece, rows, index(torch.arange(first, first + len(piece))))


def _pieces(out: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Rows to fill, and the first one's number: an index of all might need more memory."""
    for first in range(0, len(out), _DECODED_ROWS):
        yield first, out[first : first + _DECODED_ROWS]


def gather_into(out: Tensor, rows: _core.RowTable, index: Tensor, num_threads: int = 0) -> None:
    """Puts rows into contiguous memory; see :func:`gather`."""
    if out.numel():
        flat = out.view(index.numel(), -1).view(torch.uint8)
        _core.gather_rows(rows, engine_array(index.contiguous()), engine_array(flat), num_threads)


def row_table(table: Tensor | EncodedRows) -> _core.RowTable | None:
    """A tensor's rows, or encoded ones, as the engine gathers from them, over the same memory.

    None where rows are not bytes in a row of main memory, and where there are none.
    """
    stored = table.stored if isinstance(table, EncodedRows) else table
    if stored.dim() == 0 or stored.numel() == 0 or not stored.is_cpu:
        return None
    if stored.layout != torch.strided or stored.is_conj() or stored.is_neg():
        return None
    if not stored[0].is_contiguous():
        return None
    items = stored.detach().unsqueeze(-1) if stored.dim() == 1 else stored.detach().flatten(1)
    if items.stride(1) != 1:
        return None
    raw = engine_array(items.view(torch.uint8))
    if isinstance(table, Tensor):
        return _core.RowTable(raw)
    scale, zero_point = (
        None if numbers is None else engine_array(numbers)
        for numbers in (table.scale, table.zero_point)
    )
    return _core.RowTable(raw, table.encoding, scale, zero_point)


def engine_array(tensor: Tensor) -> Any:
    """The memory of a CPU tensor, as an engine call should be given it.

    A tensor is handed over by its ``__dlpack__``, which is Python code; a Ctrl-C that falls in
    there is lost, because the bindings take any exception for "not supported". NumPy's is C code.
    """
    return tensor.numpy()
