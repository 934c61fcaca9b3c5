"""The distinct ids of any number of columns, ascending, in bounded memory: sorted runs, merged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from pyg_graphzero.conversion.spool import RowSpool, TextRows, TextSpool
from pyg_graphzero.store.rows import Rows
from pyg_graphzero.util.workspace import Workspace

_MAX_RUNS = 16  # merged at once
_SLAB_ROWS = 1 << 19
_MIN_PIECE = 1 << 16


def distinct_integers(columns: Sequence[Rows], least: int, workspace: Workspace) -> Rows:
    """The distinct values of all columns from ``least`` on, ``int64``, ascending."""
    parts = (slab for column in columns for slab in column.slabs(_SLAB_ROWS))
    slabs = (part.to(torch.int64) for part in parts)
    return _IntegerSorter(workspace).distinct(slab[slab >= least].numpy() for slab in slabs)


def distinct_text(columns: Sequence[TextRows], workspace: Workspace) -> TextRows:
    """The distinct strings of all columns, ascending by code point."""
    return _TextSorter(workspace).distinct(slab for column in columns for slab in column.slabs())


class _Sorter(ABC):
    """External sorting; integers and strings differ in what is abstract here."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        # Besides the values there are their copy and their order while they are sorted.
        self._run_bytes = workspace.room // 8
        self._piece_bytes = max(_MIN_PIECE, self._run_bytes // _MAX_RUNS)

    @abstractmethod
    def sort(self, slabs: Sequence[Any]) -> Any:
        """The distinct values of all slabs, ascending."""

    @abstractmethod
    def last(self, values: Any) -> Any:
        """The greatest of ascending values."""

    @abstractmethod
    def count_to(self, values: Any, bound: Any) -> int:
        """How many of ascending values are not above ``bound``."""

    @abstractmethod
    def write(self, pieces: Iterable[Any]) -> Any:
        """Values kept for reading again."""

    @abstractmethod
    def read(self, run: Any) -> Iterator[Any]:
        """What :meth:`write` kept, piece by piece."""

    def distinct(self, slabs: Iterable[Any]) -> Any:
        """The distinct values of all slabs, ascending, as :meth:`write` keeps them."""
        runs: list[Any] = []
        waiting: list[Any] = []
        size = 0
        for slab in slabs:
            if not len(slab):
                continue
            waiting.append(slab)
            size += slab.nbytes
            if size <= self._run_bytes:
                continue
            waiting = [self.sort(waiting)]
            size = waiting[0].nbytes
            # Most ids come again and again: a run ends when sorting no longer makes it short.
            if size > self._run_bytes // 2:
                runs.append(self.write(self._pieces(waiting)))
                waiting, size = [], 0
            if len(runs) == _MAX_RUNS:
                runs = [self.write(self._pieces(self._merge(runs)))]
        if waiting:
            runs.append(self.write(self._pieces([self.sort(waiting)])))
        return runs[0] if len(runs) == 1 else self.write(self._pieces(self._merge(runs)))

    def _pieces(self, slabs: Iterable[Any]) -> Iterator[Any]:
        """The same values in pieces small enough for one of each run to be in memory."""
        for slab in slabs:
            step = max(1, self._piece_bytes * len(slab) // max(1, slab.nbytes))
            for begin in range(0, len(slab), step):
                yield slab[begin : begin + step]

    def _merge(self, runs: Sequence[Any]) -> Iterator[Any]:
        """The distinct values of ascending runs, ascending, slab by slab."""
        heads = [(next(source), source) for source in map(self.read, runs)]
        while heads:
            # Of values up to the least of the last ones at hand there are no more to come.
            bound = min(self.last(head) for head, _ in heads)
            cuts = [self.count_to(head, bound) for head, _ in heads]
            yield self.sort([head[:cut] for (head, _), cut in zip(heads, cuts, strict=True)])
            left = [
                (head[cut:] if cut < len(head) else next(source, None), source)
                for (head, source), cut in zip(heads, cuts, strict=True)
            ]
            heads = [(head, source) for head, source in left if head is not None]


class _IntegerSorter(_Sorter):
    def sort(self, slabs: Sequence[np.ndarray]) -> np.ndarray:
        values = np.concatenate(slabs)
        values.sort()
        return values[np.concatenate([[True], values[1:] != values[:-1]])]

    def last(self, values: np.ndarray) -> int:
        return int(values[-1])

    def count_to(self, values: np.ndarray, bound: int) -> int:
        return int(np.searchsorted(values, bound, side="right"))

    def write(self, pieces: Iterable[np.ndarray]) -> Rows:
        spool = RowSpool(self.workspace, "ids")
        for piece in pieces:
            spool.append(torch.from_numpy(piece))
        return spool.finish(torch.empty(0, dtype=torch.int64))

    def read(self, run: Rows) -> Iterator[np.ndarray]:
        return (slab.numpy() for slab in run.slabs(max(1, self._piece_bytes // 8)))


class _TextSorter(_Sorter):
    def sort(self, slabs: Sequence[Any]) -> Any:
        values = pc.unique(pa.chunked_array(slabs, pa.string()))
        return values.take(pc.sort_indices(values))

    def last(self, values: Any) -> Any:
        return values[-1].as_py()

    def count_to(self, values: Any, bound: str) -> int:
        return pc.sum(pc.less_equal(values, bound)).as_py()

    def write(self, pieces: Iterable[Any]) -> TextRows:
        spool = TextSpool(self.workspace, "ids")
        for piece in pieces:
            spool.append(piece)
        return spool.finish()

    def read(self, run: TextRows) -> Iterator[Any]:
        return run.slabs()
