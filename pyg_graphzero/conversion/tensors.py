"""Tensors in `.pt` and `.safetensors` files and in raw binary ones, as rows read in place.

``torch.save`` wraps an archive whose members are only stored, so its tensors lie in the file as
they do in memory. A `.safetensors` file is eight bytes of length, that much JSON, and the tensors.
Raw rows tell nothing of themselves: ``feat.bin:float32[128]`` does.
"""

from __future__ import annotations

import json
import pickle
import re
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.conversion.options import parse_dtype
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.rows import ArrayRows, FileRows, Rows
from pyg_graphzero.util.reading import reading
from pyg_graphzero.util.system import mapped_at

_MAX_HEADER = 100 << 20
_SAFETENSORS = {"BOOL": "bool", "BF16": "bfloat16"}
_SAFETENSORS |= {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
_SAFETENSORS |= {f"F{bits}": f"float{bits}" for bits in (16, 32, 64)}
_SAFETENSORS |= {f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}
_SAFETENSORS |= {f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)}
_TRUST = (
    "If you trust the file, load it yourself (torch.load with weights_only=False, or the dataset's "
    "class) and pass gz.convert the Data or the dataset."
)
_RAW = re.compile(r"(?P<order>[<>]?)(?P<dtype>\w+)(?:\[(?P<shape>\d+(?:,\d+)*)\])?")


def load_torch(path: Path, expected: str = "tensors") -> Any:
    """A file that ``torch.save`` wrote, memory-mapped unless it is a very old one.

    Args:
        path: The file.
        expected: Contents that messages ask for.

    Raises:
        InputError: The file is damaged, or holds what torch does not load unless it is trusted.
    """
    with reading(path, "file", expected):
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


def open_safetensors(path: Path) -> dict[str, Callable[[], Rows]]:
    """The tensors of a `.safetensors` file by name, each to be opened by calling it.

    Raises:
        InputError: The header is damaged or points beyond the file.
    """
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MAX_HEADER):
            raise InputError(
                path, "header", f"a length of {length} bytes", f"at most {max(size - 8, 0)}"
            )
        with reading(path, "header", "a JSON object"):
            header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise InputError(path, "header", type(header).__name__, "a JSON object")
    header.pop("__metadata__", None)
    return {name: partial(_record, path, 8 + length, name, header[name]) for name in header}


def _record(path: Path, base: int, name: str, record: Any) -> Rows:
    expected = "shape, data_offsets and a dtype that torch has"
    with reading(path, f"tensor {name!r}", expected, what=json.dumps(record)[:80]):
        shape, (begin, end) = tuple(record["shape"]), record["data_offsets"]
        if any(type(number) is not int or number < 0 for number in (*shape, begin, end)):
            raise ValueError("no counts")
        dtype: torch.dtype = getattr(torch, _SAFETENSORS[record["dtype"]])
    needed = prod(shape) * dtype.itemsize
    if end - begin != needed:
        raise InputError(path, f"tensor {name!r}", f"{end - begin} bytes", f"{needed} for {shape}")
    return FileRows(path, base + begin, shape, dtype, sys.byteorder == "big")


def open_raw(path: Path, layout: str | None) -> FileRows:
    """Rows that fill a file, as ``layout`` says: ``float32``, ``float32[128]``, ``>int64[2]``.

    Args:
        path: The file.
        layout: Dtype and shape of a row, little-endian unless it starts with ``>``.

    Raises:
        InputError: No or another kind of layout, or the file is no whole number of rows.
    """
    match = _RAW.fullmatch(layout or "")
    if match is None:
        raise InputError(
            path,
            "layout",
            "none" if layout is None else repr(layout),
            "dtype and shape of a row",
            f"Write {path.name}:float32[128], or {path.name}:int64 for single values.",
        )
    try:
        dtype = parse_dtype(match["dtype"])
    except ValueError as error:
        raise InputError(path, "layout", repr(layout), str(error)) from error
    inner = tuple(map(int, (match["shape"] or "").split(","))) if match["shape"] else ()
    width, size = prod(inner) * dtype.itemsize, path.stat().st_size
    if not width or size % width:
        raise InputError(path, "file", f"{size} bytes", f"a multiple of {width}, as {layout} says")
    big = match["order"] == ">"
    return FileRows(path, 0, (size // width, *inner), dtype, big != (sys.byteorder == "big"))
