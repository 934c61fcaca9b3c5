"""A copy of rows in another order than the store's: it is written and opened."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from io import FileIO
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.errors import FormatError
from pyg_graphzero.memory.plan import FileSize
from pyg_graphzero.memory.simulate import Ranks
from pyg_graphzero.sampling.graph import SampledGraph
from pyg_graphzero.store.columns import (
    engine_array,
    in_memory,
    row_table,
    view_column,
    write_column,
)
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.copies import (
    DOCUMENT,
    PRIVATE,
    READABLE,
    SCRATCH,
    CopiedType,
    read_types,
    trust_of,
    write_types,
)
from pyg_graphzero.store.rows import FileRows
from pyg_graphzero.util.locks import LOCK_FILE, make_scratch
from pyg_graphzero.util.names import locate
from pyg_graphzero.util.system import drop_pages
from pyg_graphzero.util.workspace import Workspace

#: Memory that copying takes, in slabs: rows that wait, rows on their way, and malloc's holes.
WITH_SLAB = 4.5
# Rows are read and written by 1 / _STEPS of the slab at once: these rows are there twice, for a
# while, and the more they are, the fewer pieces they fall into. _INDEX_BYTES are a row's numbers.
_STEPS = 2
_INDEX_BYTES = 32
# Share of the disk that is left free.
_FREE_SHARE = 0.05


@dataclass
class OwnOrder:
    """A copy of rows in the order of their use, opened.

    Attributes:
        path: Its directory.
        columns: The copied rows by the store's file, as bytes.
        orders: Numbers of the copied rows, by the store's file.
        types: Numbers of the copied rows, by node type.
        used_rows: By the store's file, how many rows batches use, where the copy has all of them.
    """

    path: Path
    columns: dict[str, _core.Column]
    orders: dict[str, _core.RowOrder]
    types: dict[str | None, _core.RowOrder]
    used_rows: dict[str, int] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, contents: StoreContents) -> OwnOrder:
        """Opens what :func:`write_copy` wrote.

        Raises:
            FileNotFoundError: There is none.
            FormatError: It is damaged.
        """
        trust = trust_of(path, contents.path)

        def open_file(name: str) -> _core.Column:
            return _core.Column.open(str(locate(path, name, trust=trust)))

        found = cls(path, {}, {}, {})
        for copied in read_types(path, trust):
            record = contents.schema.node_type(copied.name)
            attrs = set() if record is None else set(record.attrs.values())
            if record is None or not attrs.issuperset(copied.files):
                found_here = f"{copied.files} of {copied.name!r}"
                raise FormatError.of(path / DOCUMENT, "files", found_here[:60], "the store's")
            places, *files = copied.places
            order = _read_order(open_file(places), copied.rows, record.num_nodes)
            found.types[copied.name] = order
            for file, place in zip(copied.files, files, strict=True):
                column = open_file(place)
                expected = [copied.rows, contents.column(file).row_bytes]
                if list(column.shape) != expected:
                    raise FormatError.of(column.path, "shape", list(column.shape), expected)
                found.columns[file], found.orders[file] = column, order
                if copied.is_whole:
                    found.used_rows[file] = copied.rows
        return found

    def files(self, files: Sequence[FileSize]) -> list[FileSize]:
        """Files that loaders read from with it: its tables, and files whose rows it has."""
        return [places_file(name, order) for name, order in self.types.items()] + [
            replace(f, is_ranked=True, used_rows=self.used_rows.get(f.name))
            if f.name in self.columns
            else f
            for f in files
        ]


def _read_order(numbers: _core.Column, num_rows: int, num_nodes: int) -> _core.RowOrder:
    """The rows that a copy has. All of the file is read, so all of it is checked."""
    found, expected = (numbers.dtype, list(numbers.shape)), ("int32", [num_rows])
    if found != expected:
        raise FormatError.of(numbers.path, "dtype, shape", found, expected)
    count, _ = _core.count_blocks(numbers.path)
    for bad in _core.verify_blocks(numbers.path, 0, count):
        raise FormatError(f"{numbers.path}: block {bad.block}: {bad.detail}", numbers.path, "rows")
    try:
        return _core.RowOrder(engine_array(in_memory(view_column(numbers))), num_nodes)
    except ValueError as error:
        raise FormatError.of(numbers.path, "rows", str(error), "rows") from None


def places_file(name: str | None, order: _core.RowOrder) -> FileSize:
    """The table in memory with the order of a node type's rows, as a file that loaders read."""
    num_bytes = order.num_bytes(order.num_rows, order.num_again)
    return FileSize(f"places {name}", num_bytes, 1, "indptr")


def ranks_of(orders: Mapping[str | None, _core.RowOrder], graph: SampledGraph) -> Ranks:
    """By node type, where rows would lie if those that are not copied followed the others."""

    def ranks(name: str | None, rows: Tensor) -> Tensor:
        return orders[name].ranks(engine_array(rows)) if name in orders else rows

    return {name: partial(ranks, name) for name in graph.node_types}


@dataclass
class CopyOf:
    """Rows of a node type that are written once more.

    Attributes:
        name: The type.
        num_nodes: Its nodes.
        order: The rows, ``int32``.
        columns: By file, where they are from.
        is_whole: These are all rows that batches were seen to use; else there was no room for all.
    """

    name: str | None
    num_nodes: int
    order: Tensor
    columns: Mapping[str, _core.Column]
    is_whole: bool = False


class Stopped(Exception):
    """Nobody wants the copy any more."""


class _Turns:
    """Leaves the disk to others, for ``rest`` times as long as it was used."""

    def __init__(self, stop: threading.Event, rest: float) -> None:
        self._stop, self._rest = stop, rest
        self._begun = perf_counter()

    def take(self) -> None:
        """Waits, in proportion to how long the last turn took."""
        if self._stop.wait(self._rest * (perf_counter() - self._begun)):
            raise Stopped
        self._begun = perf_counter()


class _RowsInTurns(FileRows):
    """Rows of a column's file, which leave the page cache as it was."""

    def __init__(self, column: _core.Column, turns: _Turns) -> None:
        shape = (column.shape[0], column.row_stride)
        super().__init__(Path(column.path), column.data_offset, shape, torch.uint8)
        self._turns = turns

    def read(self, begin: int, end: int) -> Tensor:
        self._turns.take()
        rows = super().read(begin, end)
        drop_pages(self.path, self.offset + begin * self.row_bytes, rows.numel())
        return rows


def write_copy(
    target: Path,
    parts: Sequence[CopyOf],
    slab: int,
    stop: threading.Event,
    rest: float = 1.0,
    each: Callable[[int], object] = lambda num_bytes: None,
) -> None:
    """Writes rows once more, complete or not at all.

    Args:
        target: The directory to be.
        parts: The rows.
        slab: Bytes of rows that wait for their order in memory; the others wait in a file. All of
            this takes :data:`WITH_SLAB` times as much.
        stop: Ends it early.
        rest: For how long the disk is left to others, as a share of the time that it is used.
        each: Told how many bytes were written.

    Raises:
        OSError: The disk is full, or cannot be read; nothing is left behind.
    """
    mode = target.parent.stat().st_mode & READABLE
    scratch, lock = make_scratch(target, SCRATCH, PRIVATE)
    turns, types = _Turns(stop, rest), []
    try:
        for number, part in enumerate(parts):
            copied = CopiedType.at(
                number, part.name, part.order.numel(), part.is_whole, tuple(part.columns)
            )
            types.append(copied)
            places, *files = (scratch / place for place in copied.places)
            places.parent.mkdir(mode)
            write_column(places, part.order)
            order = _core.RowOrder(engine_array(part.order), part.num_nodes)
            with Workspace(places.parent / "rows") as space:
                for file, column in zip(files, part.columns.values(), strict=True):
                    _copy_rows(file, column, part.order, order, slab, turns, space, each)
            _core.sync_directory(str(places.parent))
        write_types(scratch, types)
        _share(scratch, [column.path for part in parts for column in part.columns.values()])
        try:
            _core.publish_directory(str(scratch), str(target), False)
        except OSError:
            if not (target / DOCUMENT).exists():  # another process was faster
                raise
        else:
            (target / LOCK_FILE).unlink()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        del lock


def _share(copy: Path, sources: Iterable[str]) -> None:
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
    column: _core.Column,
    rows: Tensor,
    order: _core.RowOrder,
    slab: int,
    turns: _Turns,
    space: Workspace,
    each: Callable[[int], object],
) -> None:
    def ranks(begin: int, end: int) -> Tensor:
        return order.ranks(engine_array(torch.arange(begin, end)))

    raw, width = _RowsInTurns(column, turns), column.row_bytes
    most = max(1, slab // (width + _INDEX_BYTES))
    writer = _core.ColumnWriter(str(path), "uint8", [rows.numel(), width])
    step = max(1, slab // _STEPS // (column.row_stride + _INDEX_BYTES))
    for piece in _through_file(raw, width, rows, ranks, most, step, space):
        writer.append(engine_array(piece.view(-1)))
        each(piece.numel())
        turns.take()
    writer.finish()


def _through_file(
    raw: FileRows,
    width: int,
    order: Tensor,
    ranks: Callable[[int, int], Tensor],
    most: int,
    step: int,
    space: Workspace,
) -> Iterator[Tensor]:
    """Rows by way of a temporary file, in which each range of ``most`` copied rows lies together.

    Within their range they lie as they did before.

    Args:
        raw: All rows as they lie.
        width: Bytes of each that are kept.
        order: The row of every copied one, ``int32 [n]``.
        ranks: Finds the copied rows of a range of rows: ``int64``, ``n`` or more where there is
            none.
        most: Rows that are put in order at once.
        step: Rows that are read at once.
        space: Where they wait.
    """
    num_rows = order.numel()
    path = space.file("rows")
    try:
        with open(path, "xb", buffering=0) as file:
            ends = [begin * width for begin in range(0, num_rows, most)]
            for begin in range(0, len(raw), step):
                slab = raw.read(begin, min(begin + step, len(raw)))[:, :width]
                rank = ranks(begin, begin + len(slab))
                bucket = (rank // most).masked_fill_(rank >= num_rows, len(ends))
                kept = len(slab) - int((rank >= num_rows).sum())
                by_bucket = bucket.argsort(stable=True)[:kept]
                (rows,) = _picked(slab, by_bucket, len(slab))
                counts = torch.bincount(bucket[by_bucket], minlength=len(ends)).tolist()
                for number, part in enumerate(rows.split(counts)):
                    _write_all(file, part.reshape(-1), ends[number])
                    ends[number] += part.numel()
                del slab, rows, part  # they would be there while the next ones are read
        waiting = FileRows(path, 0, (num_rows, width), torch.uint8)
        for begin in range(0, num_rows, most):
            wanted = order[begin : begin + most]
            place = torch.empty(wanted.numel(), dtype=torch.int64)
            place[wanted.argsort()] = torch.arange(wanted.numel())
            yield from _picked(waiting.read(begin, begin + wanted.numel()), place, step)
    finally:
        path.unlink(missing_ok=True)


def _picked(rows: Tensor, order: Tensor, step: int) -> Iterator[Tensor]:
    """``rows[order]``, ``step`` rows at a time."""
    table = row_table(rows)
    assert table is not None  # there are some, with some bytes
    for part in order.split(step):
        out = torch.empty((part.numel(), rows.size(1)), dtype=torch.uint8)
        _core.gather_rows(table, engine_array(part), engine_array(out))
        yield out


def _write_all(file: FileIO, part: Tensor, at: int) -> None:
    view = memoryview(part.numpy())  # type: ignore[arg-type]
    file.seek(at)
    while len(view):
        view = view[file.write(view) :]


def is_writable(folder: Path) -> bool:
    """Whether it could be made and written to."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    return os.access(there, os.W_OK | os.X_OK)


def room_on_disk(folder: Path, limit: int | None) -> int:
    """Bytes that copying may take, with what waits for its order meanwhile."""
    found = shutil.disk_usage(next(each for each in (folder, *folder.parents) if each.exists()))
    left = int(found.free - _FREE_SHARE * found.total)
    return max(0, left if limit is None else min(left, 2 * limit))
