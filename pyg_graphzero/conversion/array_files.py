"""NumPy's `.npy` and `.npz` and torch's `.pt` files as rows: data is read when rows are asked for.

A member of an archive that is only stored lies in it as a `.npy` file would, and is read in place;
so are tensors, since ``torch.save`` wraps an archive whose members are only stored. A deflated
member is decompressed as it is read, and never held whole.
"""

from __future__ import annotations

import pickle
import re
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero.errors import InputError
from pyg_graphzero.store.rows import (
    ArrayRows,
    FileRows,
    FortranRows,
    Rows,
    Spool,
    inflated_rows,
)
from pyg_graphzero.util.reading import reading
from pyg_graphzero.util.system import mapped_at

_LOCAL_HEADER = struct.Struct("<4s22xHH")  # of a zip member: magic, length of name and of extras
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}

_TRUST = (
    "If you trust the file, load it yourself (torch.load with weights_only=False, or the dataset's "
    "class) and pass gz.convert the Data or the dataset."
)


@dataclass(frozen=True)
class _Header:
    """A `.npy` header, and its length in bytes."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    size: int


def open_npy(path: Path) -> Rows | np.ndarray:
    """The array of a `.npy` file; strings and single values come read.

    Raises:
        InputError: The file is damaged, cut short, or holds objects.
    """
    with open(path, "rb") as file:
        header = _read_header(file, path, "file")
        if _is_whole(header):
            with reading(path, "file", "an array of NumPy"):
                return _whole(file, header)
    return _in_file(path, 0, header)


def open_npz(path: Path, spool: Spool) -> dict[str, Callable[[], Rows | np.ndarray]]:
    """The members of a `.npz` file, each to be opened by calling it.

    Args:
        path: The archive.
        spool: Makes a temporary file, for what is deflated but not to be read row by row.

    Raises:
        InputError: The archive is damaged or cut short.
    """
    with (
        reading(path, "file", "a whole .npz file", what="a damaged archive"),
        zipfile.ZipFile(path) as archive,
    ):
        members = archive.infolist()
    return {
        info.filename.removesuffix(".npy"): partial(_open_member, path, info, spool)
        for info in members
    }


def _open_member(path: Path, info: zipfile.ZipInfo, spool: Spool) -> Rows | np.ndarray:
    where = f"member {info.filename.removesuffix('.npy')!r}"
    with reading(path, where, "an array of numbers"), _stream(path, info) as stream:
        header = _read_header(stream, path, where)
        if _is_whole(header):
            return _whole(stream, header)
    size = header.size + prod(header.shape) * header.dtype.itemsize
    if info.file_size != size:
        raise InputError(path, where, f"{info.file_size} bytes", f"{size}, as its header says")
    if info.compress_type == zipfile.ZIP_STORED:
        return _in_file(path, _data_offset(path, info), header)
    if header.fortran:
        raw = inflated_rows(
            path, where, partial(_stream, path, info), (info.file_size,), torch.uint8
        )
        return _in_file(raw.to_file(spool(info.filename.replace("/", "-"))).path, 0, header)

    def data() -> BinaryIO:
        stream = _stream(path, info)
        stream.read(header.size)
        return stream

    return inflated_rows(path, where, data, header.shape, *_torch_dtype(header.dtype))


def _stream(path: Path, info: zipfile.ZipInfo) -> BinaryIO:
    # The member's stream keeps the file of the archive open until it is closed itself.
    with zipfile.ZipFile(path) as archive:
        return cast(BinaryIO, archive.open(info))


def _data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    with open(path, "rb") as file:
        file.seek(info.header_offset)
        _, name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    return info.header_offset + _LOCAL_HEADER.size + name + extra


def _read_header(file: BinaryIO, path: Path, where: str) -> _Header:
    begin = file.tell()
    with reading(path, where, "an array of NumPy"):
        version = np.lib.format.read_magic(file)
        if version not in _READERS:
            raise ValueError(f"version {version} of the format")
        shape, fortran, dtype = _READERS[version](file)
        if any(type(size) is not int or size < 0 for size in shape):
            raise ValueError(f"shape {shape}")
    if dtype.hasobject:
        found = "pickled Python objects, which are not loaded"
        raise InputError(path, where, found, "numbers, booleans or strings")
    if dtype.kind not in "USbiufc" or (dtype.kind in "fc" and dtype.itemsize > 8):
        raise InputError(path, where, str(dtype), "numbers, booleans or strings")
    # One-dimensional arrays are both at once.
    return _Header(shape, fortran and len(shape) > 1, dtype, file.tell() - begin)


def _is_whole(header: _Header) -> bool:
    """Whether it is no table of numbers, and small enough to be read at once."""
    return header.dtype.kind in "US" or not header.shape


def _whole(stream: BinaryIO, header: _Header) -> np.ndarray:
    raw = np.frombuffer(stream.read(), header.dtype)
    return raw.reshape(header.shape, order="F" if header.fortran else "C")


def _in_file(path: Path, offset: int, header: _Header) -> Rows:
    kind = FortranRows if header.fortran else FileRows
    return kind(path, offset + header.size, header.shape, *_torch_dtype(header.dtype))


def _torch_dtype(dtype: np.dtype) -> tuple[torch.dtype, bool]:
    """The dtype in torch, and whether its bytes have to be swapped."""
    native = dtype.newbyteorder("=")
    return torch.from_numpy(np.empty(0, native)).dtype, not dtype.isnative


def load_torch(path: Path, expected: str = "tensors") -> Any:
    """A file that ``torch.save`` wrote, memory-mapped unless it is a very old one.

    Args:
        path: The file.
        expected: Contents that messages ask for.

    Raises:
        InputError: The file is damaged, or holds what torch does not load unless it is trusted.
    """
    with reading(path, "file", expected, what="a file that torch cannot load"):
        mmap = zipfile.is_zipfile(path)
        try:
            return torch.load(path, weights_only=True, map_location="cpu", mmap=mmap)
        except pickle.UnpicklingError as error:
            if "Weights only" not in str(error):
                raise
            named = re.search(r"GLOBAL (\S+)", str(error))
            found = "pickled Python objects, which are not loaded"
            found += f" ({named[1]})" if named else ""
            raise InputError(path, "file", found, expected, _TRUST) from error


def tensor_rows(tensor: Tensor, path: Path | None = None) -> Rows:
    """The rows of a tensor; those of one that :func:`load_torch` mapped are read from its file.

    Args:
        tensor: Dense, on the CPU, ``[num_rows, ...]``.
        path: The file it was loaded from, if it was.
    """
    if path is not None and tensor.is_contiguous() and tensor.numel():
        # To read the tensor itself would count as memory of this process, page by page.
        offset = mapped_at(path, tensor.data_ptr())
        if offset is not None:
            return FileRows(path, offset, tensor.shape, tensor.dtype)
    return ArrayRows(tensor, path)
