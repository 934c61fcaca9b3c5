"""Edges that a Python program makes: an iterator of chunks, or a function that returns one.

A chunk is a pair ``(src, dst)``, an array or tensor ``[2, n]``, or a dict with ``src`` and ``dst``
(or ``edge_index``) and edge attributes ``[n, ...]`` by name. A function is called anew whenever the
edges are needed again; what an iterator yields is kept in temporary files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
    if isinstance(source, Iterator):
        return _spooled(source, space)
    replay = _Replay(source)
    return {name: _Column(replay, name) for name in replay.first}


def _spooled(source: Iterator[Any], space: Workspace) -> dict[str, Rows]:
    spools: dict[str, RowSpool] = {}
    empty: dict[str, Tensor] = {}
    for chunk in _checked(source):
        for name, column in chunk.items():
            spools.setdefault(name, RowSpool(space, "chunks")).append(column)
            empty.setdefault(name, column[:0])
    return {name: spool.finish(empty[name]) for name, spool in spools.items()}


class _Replay:
    """The chunks of a function, those kept that a reader of this place still needs.

    The columns of a graph are read side by side, so a chunk is wanted by all of them before the
    next one is.

    Attributes:
        first: The first chunk.
        num_rows: Edges in all chunks.
    """

    def __init__(self, source: Callable[[], Any]) -> None:
        self._source = source
        self._chunks: Iterator[dict[str, Tensor]] = iter(())
        self._kept: list[tuple[int, dict[str, Tensor]]] = []
        self._start = self._end = 0  # the rows they hold
        self.num_rows = 0
        self._restart()
        for number, chunk in enumerate(self._chunks):
            if number == 0:
                self.first = chunk
            self.num_rows += len(chunk["src"])
        self._restart()

    def read(self, name: str, begin: int, end: int) -> Tensor:
        """Rows of one column."""
        if begin < self._start:
            self._restart()
        while self._end < end:
            self._pull(begin)
        pieces = [
            chunk[name][max(begin - start, 0) : max(end - start, 0)] for start, chunk in self._kept
        ]
        return torch.cat([self.first[name][:0], *pieces])

    def _pull(self, begin: int) -> None:
        """One more chunk; those that end before ``begin`` are let go."""
        chunk = next(self._chunks, None)
        if chunk is None:
            found = f"{self._end} edges when asked again"
            raise InputError(PATH, "function", found, f"{self.num_rows}, as the first time")
        self._kept = [each for each in self._kept if each[0] + len(each[1]["src"]) > begin]
        self._start = self._kept[0][0] if self._kept else self._end
        self._kept.append((self._end, chunk))
        self._end += len(chunk["src"])

    def _restart(self) -> None:
        self._chunks = _checked(iter(self._source()))
        self._kept = []
        self._start = self._end = 0


class _Column(Rows):
    """One column of replayed chunks."""

    def __init__(self, replay: _Replay, name: str) -> None:
        sample = replay.first[name]
        super().__init__((replay.num_rows, *sample.shape[1:]), sample.dtype)
        self._replay, self._name = replay, name

    def read(self, begin: int, end: int) -> Tensor:
        """See :meth:`Rows.read`."""
        return self._replay.read(self._name, begin, end)


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
