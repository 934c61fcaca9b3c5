"""The distinct ids of any number of columns, ascending, in bounded memory: sorted runs, merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch.utils.dlpack import from_dlpack

from pyg_graphzero.conversion.spool import BatchSpool, RowSpool, TextRows
from pyg_graphzero.store.rows import Rows
from pyg_graphzero.util.workspace import Workspace

_MAX_RUNS = 16  # merged at once
_SLAB_ROWS = 1 << 19
_MIN_PIECE = 1 << 16


def distinct_integers(columns: Sequence[Rows], least: int, workspace: Workspace) -> Rows:
    """The distinct values of all columns from ``least`` on, ``int64``, ascending."""
    parts = (slab.to(torch.int64) for column in columns for slab in column.slabs(_SLAB_ROWS))
    slabs = (pa.array(part[part >= least].numpy()) for part in parts)
    spool = RowSpool(workspace, "ids", torch.empty(0, dtype=torch.int64))
    for piece in _Sorter(workspace).distinct(slabs):
        spool.append(from_dlpack(piece))
    return spool.finish()


def distinct_text(columns: Sequence[TextRows], workspace: Workspace) -> TextRows:
    """The distinct strings of all columns, ascending by code point."""
    slabs = (slab for column in columns for slab in column.slabs())
    return _Sorter(workspace).write(_Sorter(workspace).distinct(slabs))


class _Sorter:
    """External sorting of Arrow arrays."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        # Besides the values there are their copy and their order while they are sorted.
        self._run_bytes = workspace.room // 8
        self._piece_bytes = max(_MIN_PIECE, self._run_bytes // _MAX_RUNS)

    def distinct(self, slabs: Iterable[Any]) -> Iterator[Any]:
        """The distinct values of all slabs, ascending, slab by slab."""
        runs: list[TextRows] = []
        waiting: list[Any] = []
        size = 0
        for slab in slabs:
            if not len(slab):
                continue
            waiting.append(slab)
            size += slab.nbytes
            if size <= self._run_bytes:
                continue
            waiting = [_sorted(waiting)]
            size = waiting[0].nbytes
            # Most ids come again and again: a run ends when sorting no longer makes it short.
            if size > self._run_bytes // 2:
                runs.append(self.write(waiting))
                waiting, size = [], 0
            if len(runs) == _MAX_RUNS:
                runs = [self.write(_merged(runs))]
        last = [_sorted(waiting)] if waiting else []
        yield from _merged([*runs, self.write(last)]) if runs else last

    def write(self, slabs: Iterable[Any]) -> TextRows:
        """Values kept for reading again, in pieces so small that memory holds one of each run."""
        spool = BatchSpool(self._workspace, "ids")
        for slab in slabs:
            step = max(1, self._piece_bytes * len(slab) // max(1, slab.nbytes))
            for begin in range(0, len(slab), step):
                spool.append(slab[begin : begin + step])
        return spool.finish()


def _sorted(slabs: Sequence[Any]) -> Any:
    """The distinct values of all slabs, ascending."""
    values = pa.chunked_array(slabs)
    if pa.types.is_integer(values.type):
        numbers = np.sort(values.to_numpy())
        return pa.array(numbers[np.concatenate([[True], numbers[1:] != numbers[:-1]])])
    values = pc.unique(values)
    return values.take(pc.sort_indices(values))


def _merged(runs: Sequence[TextRows]) -> Iterator[Any]:
    """The distinct values of ascending runs, ascending, slab by slab."""
    sources = [run.slabs() for run in runs if len(run)]
    heads = [(next(source), source) for source in sources]
    while heads:
        # Values up to the least of the last ones at hand do not come again.
        bound = min(head[-1].as_py() for head, _ in heads)
        cuts = [pc.sum(pc.less_equal(head, bound)).as_py() for head, _ in heads]
        yield _sorted([head[:cut] for (head, _), cut in zip(heads, cuts, strict=True)])
        left = [
            (head[cut:] if cut < len(head) else next(source, None), source)
            for (head, source), cut in zip(heads, cuts, strict=True)
        ]
        heads = [(head, source) for head, source in left if head is not None]
