"""Tensors over `.gd` and `.gl` files, and rows gathered from any tensor."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.errors import UnsupportedError

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

# Rows are handed to the writer in pieces of about this many bytes.
_WRITE_BYTES = 32 << 20


def dtype_name(dtype: torch.dtype) -> str:
    """The format's name of a torch dtype, e.g. ``"float32"``."""
    if dtype not in _NAME_OF:
        raise UnsupportedError(f"dtype: found {dtype}, expected one of {', '.join(DTYPES)}")
    return _NAME_OF[dtype]


def _as_bytes(tensor: Tensor) -> Tensor:
    """A contiguous tensor's memory as ``uint8``, one-dimensional."""
    if tensor.numel() == 0:
        return torch.empty(0, dtype=torch.uint8)
    return tensor.reshape(-1).view(torch.uint8)


def view_column(column: _core.Column) -> Tensor:
    """The column as a tensor whose memory is the file.

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


def view_topology(topology: _core.Topology) -> tuple[Tensor, Tensor]:
    """``indptr`` (``int64 [num_dst + 1]``), ``indices`` (``uint32`` or ``int64 [num_edges]``)."""
    indptr, indices = topology.view()
    dtype = torch.uint32 if topology.index_bytes == 4 else torch.int64
    empty = torch.empty(0, dtype=dtype)
    return indptr.view(torch.int64), indices.view(dtype) if topology.num_edges else empty


def write_column(path: str | os.PathLike[str], value: Tensor) -> None:
    """Writes a CPU tensor of any shape and dtype as a `.gd` file and syncs it."""
    writer = _core.ColumnWriter(os.fspath(path), dtype_name(value.dtype), list(value.shape))
    if value.numel():
        rows = value.reshape(1, -1) if value.dim() == 0 else value
        row_bytes = max(1, rows[0].numel() * rows.element_size())
        step = max(1, _WRITE_BYTES // row_bytes)
        for start in range(0, rows.size(0), step):
            writer.append(_as_bytes(rows[start : start + step].contiguous()))
    writer.finish()


def gather(table: Tensor, index: Tensor, num_threads: int = 0) -> Tensor:
    """Rows of a tensor, mapped or in memory, copied by all threads.

    Args:
        table: A CPU tensor ``[num_rows, ...]``; rows may be padded apart.
        index: ``int64 [n]`` on the CPU.
        num_threads: 0 uses as many as torch does.

    Returns:
        A contiguous tensor ``[n, ...]`` of the table's dtype.

    Raises:
        IndexError: An index is outside ``0 <= i < num_rows``.
        OSError: The table's file was truncated under its map.
    """
    table = table.detach()
    out = torch.empty((index.numel(), *table.shape[1:]), dtype=table.dtype)
    rows = table.unsqueeze(-1) if table.dim() == 1 else table.flatten(1)
    if rows.size(1) == 0 or rows.size(0) == 0:
        if index.numel() and (int(index.min()) < 0 or int(index.max()) >= rows.size(0)):
            raise IndexError(f"index: found a row outside 0 <= row < {rows.size(0)}")
        return out
    if rows.stride(1) != 1 or table.is_conj() or table.is_neg():
        return table.index_select(0, index)
    if out.numel():
        flat = out.view(index.numel(), -1).view(torch.uint8)
        _core.gather_rows(
            engine_array(rows.view(torch.uint8)),
            engine_array(index.contiguous()),
            engine_array(flat),
            num_threads,
        )
    return out


def engine_array(tensor: Tensor) -> Any:
    """The memory of a CPU tensor, as an engine call should be given it.

    A tensor is handed over by its ``__dlpack__``, which is Python code; a Ctrl-C that falls in
    there is lost, because the bindings take any exception for "not supported". NumPy's is C code.
    """
    return tensor.numpy()
