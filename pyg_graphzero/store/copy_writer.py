"""Writes a copy of a store's rows, and of its neighbours, in the order that is given.

:mod:`.copies` says what a copy is; :mod:`pyg_graphzero.memory.making` chooses its rows.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.store.columns import engine_array, gather, write_column
from pyg_graphzero.store.copies import (
    DOCUMENT,
    GROUP_BITS,
    PRIVATE,
    READABLE,
    SCRATCH,
    CopiedPart,
    Uses,
    write_parts,
)
from pyg_graphzero.store.rows import FileRows
from pyg_graphzero.util.locks import LOCK_FILE, make_scratch
from pyg_graphzero.util.system import drop_pages

#: Memory that copying takes, in slabs: rows that wait, rows on their way, and malloc's holes.
WITH_SLAB = 4.5
# Rows are read and written by 1 / _STEPS of the slab at once: these rows are there twice, for a
# while, and the more they are, the fewer pieces they fall into. _INDEX_BYTES are a row's numbers.
_STEPS = 2
_INDEX_BYTES = 32


@dataclass(frozen=True)
class Rows:
    """Rows of a file, as they lie there.

    Attributes:
        path: The file.
        offset: Where in it they begin, in bytes.
        count: How many rows.
        stride: Bytes from one to the next.
        width: Bytes of each.
    """

    path: str
    offset: int
    count: int
    stride: int
    width: int

    @classmethod
    def of_column(cls, column: _core.Column) -> Rows:
        """The rows of a column."""
        sizes = column.shape[0], column.row_stride, column.row_bytes
        return cls(column.path, column.data_offset, *sizes)

    @classmethod
    def of_neighbours(cls, topology: _core.Topology) -> Rows:
        """The whole groups of neighbours of a topology."""
        width = topology.index_bytes << GROUP_BITS
        count = topology.num_edges >> GROUP_BITS
        return cls(topology.path, topology.indices_offset, count, width, width)


@dataclass
class CopyOf:
    """Rows that are written once more: of a node type, or groups of an edge type's neighbours.

    Attributes:
        name: The node type.
        order: The rows, ``int32``.
        uses: How often they are used, as :class:`~.copies.CopiedPart` says it.
        sources: By file, where they are from.
        lists: The topology's file, where these are groups of its neighbours.
    """

    name: str | None
    order: Tensor
    uses: tuple[Uses, ...]
    sources: Mapping[str, Rows]
    lists: str | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes that are written."""
        return self.order.numel() * sum(rows.width for rows in self.sources.values())

    def first(self, count: int) -> CopyOf:
        """Only its first rows."""
        uses, left = [], count
        for each, rows in self.uses:
            uses.append((each, min(rows, left)))
            left -= uses[-1][1]
        return replace(self, order=self.order[:count], uses=tuple(u for u in uses if u[1] > 0))


def write_copy(
    target: Path,
    parts: Sequence[CopyOf],
    slab: int,
    each: Callable[[int], object] = lambda num_bytes: None,
) -> None:
    """Writes rows once more, complete or not at all.

    Args:
        target: The directory to be.
        parts: The rows.
        slab: Bytes of rows that wait for their order in memory; the others wait in a file. All of
            this takes :data:`WITH_SLAB` times as much.
        each: Told how many bytes were written.

    Raises:
        OSError: The disk is full, or cannot be read; nothing is left behind.
    """
    mode = target.parent.stat().st_mode & READABLE
    scratch, lock = make_scratch(target, SCRATCH, PRIVATE)
    records = []
    try:
        for number, part in enumerate(parts):
            num_rows, uses = part.order.numel(), list(part.uses)
            copied = CopiedPart(part.name, part.lists, num_rows, uses, list(part.sources))
            records.append(copied)
            places, *files = (scratch / place for place in copied.places(number))
            places.parent.mkdir(mode)
            write_column(places, part.order)
            count = next(iter(part.sources.values())).count
            order = _core.RowOrder(engine_array(part.order), count)
            for file, source in zip(files, part.sources.values(), strict=True):
                _copy_rows(file, source, part.order, order, slab, each)
            _core.sync_directory(str(places.parent))
        write_parts(scratch, records)
        _share(scratch, {rows.path for part in parts for rows in part.sources.values()})
        try:
            _core.publish_directory(str(scratch), str(target), False)
        except OSError:
            if not (target / DOCUMENT).exists():  # another process was faster
                raise
        else:
            (target / LOCK_FILE).unlink(missing_ok=True)  # or another process has removed it all
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        del lock


def _share(copy: Path, sources: set[str]) -> None:
    """Lets read a copy whoever may read all its sources, by bits and groups of permissions.

    Until then it is its writer's alone. Writing to it stays its writer's.
    """
    statuses = [os.stat(source) for source in sources]
    for path in [path for path in copy.rglob("*") if path.is_file()]:
        status = path.stat()
        mode = status.st_mode & READABLE
        for source in statuses:
            group = 0 if source.st_gid == status.st_gid else stat.S_IRWXG
            mode &= source.st_mode & ~group
        path.chmod(mode | stat.S_IRUSR)
    copy.chmod((copy / "0").stat().st_mode & READABLE)


def _copy_rows(
    path: Path,
    source: Rows,
    rows: Tensor,
    order: _core.RowOrder,
    slab: int,
    each: Callable[[int], object],
) -> None:
    """Writes rows in their order, by way of a file in which each slab of them lies together."""
    most = max(1, slab // (source.width + _INDEX_BYTES))
    step = max(1, slab // _STEPS // (source.stride + _INDEX_BYTES))
    by_slab = path.with_suffix(".waiting")
    _write_by_slab(by_slab, source, order, most, step)
    waiting = FileRows(by_slab, 0, (rows.numel(), source.width), torch.uint8)
    writer = _core.ColumnWriter(str(path), "uint8", [rows.numel(), source.width])
    for piece in _sorted(waiting, rows, most, step):
        writer.append(engine_array(piece.view(-1)))
        each(piece.numel())
    writer.finish()
    by_slab.unlink()


def _write_by_slab(path: Path, source: Rows, order: _core.RowOrder, most: int, step: int) -> None:
    """Writes the rows of an order so that each ``most`` of it lie together, as they did before.

    Args:
        path: The file.
        source: All rows as they lie.
        order: The rows to write.
        most: Rows of a slab.
        step: Rows that are read at once.
    """
    count, width = order.num_again, source.width
    raw = FileRows(Path(source.path), source.offset, (source.count, source.stride), torch.uint8)
    ends = [begin * width for begin in range(0, count, most)]
    with open(path, "xb") as file:
        for begin in range(0, len(raw), step):
            whole = raw.read(begin, min(begin + step, len(raw)))
            # They leave the page cache as it was.
            drop_pages(raw.path, raw.offset + begin * raw.row_bytes, whole.numel())
            rank = order.ranks(engine_array(torch.arange(begin, begin + len(whole))))
            slab = (rank // most).masked_fill_(rank >= count, len(ends))
            by_slab = slab.argsort(stable=True)[: int((rank < count).sum())]
            rows = gather(whole[:, :width], by_slab)
            counts = torch.bincount(slab[by_slab], minlength=len(ends)).tolist()
            for number, part in enumerate(rows.split(counts)):
                file.seek(ends[number])
                ends[number] += file.write(part.numpy())
            del whole, rows, part  # they would be there while the next ones are read


def _sorted(waiting: FileRows, order: Tensor, most: int, step: int) -> Iterator[Tensor]:
    """The rows that :func:`_write_by_slab` wrote in their order, ``step`` at a time."""
    for begin in range(0, len(waiting), most):
        wanted = order[begin : begin + most]
        place = torch.empty(wanted.numel(), dtype=torch.int64)
        place[wanted.argsort()] = torch.arange(wanted.numel())
        rows = waiting.read(begin, begin + wanted.numel())
        for part in place.split(step):
            yield gather(rows, part)
