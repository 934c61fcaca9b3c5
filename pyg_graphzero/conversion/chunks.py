"""Edges that a Python program makes: an iterator of chunks, or a function that returns one.

A chunk is a pair ``(src, dst)``, an array or tensor ``[2, n]``, or a dict with ``src`` and ``dst``
(or ``edge_index``) and edge attributes ``[n, ...]`` by name. Chunks are kept in memory, or in
temporary files where they are many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero.conversion.arrays import as_array
from pyg_graphzero.conversion.options import as_tensor
from pyg_graphzero.conversion.spool import RowSpool
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.csc import EdgeChunk
from pyg_graphzero.store.rows import Rows, describe
from pyg_graphzero.util.workspace import Workspace

PATH = Path("<chunks>")
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def is_chunks(value: Any) -> bool:
    """Whether this is an iterator, or a function that may return one."""
    return isinstance(value, Iterator) or (callable(value) and not isinstance(value, type))


def read_chunks(source: Any, space: Workspace) -> dict[str, Rows]:
    """The columns of all chunks: ``src``, ``dst`` and the attributes, one row per edge.

    Args:
        source: As :func:`is_chunks` says.
        space: Memory and temporary files.

    Raises:
        InputError: A chunk is none, or has other columns than the first; names its number.
    """
    spools: dict[str, RowSpool] = {}
    empty: dict[str, Tensor] = {}
    for chunk in _checked(source if isinstance(source, Iterator) else iter(source())):
        for name, column in chunk.items():
            spools.setdefault(name, RowSpool(space, "chunks")).append(column)
            empty.setdefault(name, column[:0])
    return {name: spool.finish(empty[name]) for name, spool in spools.items()}


def _checked(source: Iterator[Any]) -> Iterator[dict[str, Tensor]]:
    """The columns of every chunk, which have to be those of the first."""
    first: dict[str, str] = {}
    for number, value in enumerate(source):
        where = f"chunk {number}"
        columns = _columns(value, where)
        chunk = {name: _tensor(column, name, where) for name, column in columns.items()}
        kinds = {name: describe(column) for name, column in chunk.items()}
        first = first or kinds
        if kinds != first:
            raise InputError(PATH, where, kinds, f"{first} as in chunk 0")
        for end in ("src", "dst"):
            if chunk[end].dtype not in _INTEGERS or chunk[end].dim() != 1:
                shape = f"{kinds[end]}, shape {list(chunk[end].shape)}"
                raise InputError(PATH, f"{where}, {end}", shape, "integers [n]")
        for name, column in chunk.items():
            if len(column) != len(chunk["src"]):
                expected = f"{len(chunk['src'])}, as many as src has"
                raise InputError(PATH, f"{where}, {name}", f"{len(column)} rows", expected)
        yield chunk
    if not first:
        raise InputError(PATH, "chunks", "none", "at least one")


def _tensor(column: Any, name: str, where: str) -> Tensor:
    found = np.asarray(column) if isinstance(column, list) else as_array(column, name)
    if isinstance(found, np.ndarray) and found.dtype.kind not in "biuf":
        hint = "Text goes in a stream of Arrow: pa.RecordBatchReader.from_batches(schema, batches)."
        raise InputError(PATH, f"{where}, {name}", str(found.dtype), "numbers", hint)
    return as_tensor(found)


def _columns(value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, EdgeChunk):
        return {"src": value.src, "dst": value.dst, **value.columns}
    if isinstance(value, Mapping):
        columns = dict(value)
        if "edge_index" in columns:
            ends = columns.pop("edge_index")
            columns = {"src": ends[0], "dst": ends[1], **columns}
        if "src" in columns and "dst" in columns:
            return columns
        found = ", ".join(columns) or "nothing"
        raise InputError(PATH, where, found, "src and dst, or edge_index")
    if isinstance(value, tuple | list | np.ndarray | Tensor) and len(value) == 2:
        return {"src": value[0], "dst": value[1]}
    found = type(value).__name__
    raise InputError(PATH, where, found, "(src, dst), an array [2, n], or a dict of columns")
