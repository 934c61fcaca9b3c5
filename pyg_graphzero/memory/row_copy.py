"""A copy of rows in another order than the store's: it is written, opened, found and removed."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter

import torch
import xxhash
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.errors import FormatError
from pyg_graphzero.memory.plan import FileSize
from pyg_graphzero.memory.simulate import Ranks
from pyg_graphzero.sampling.graph import SampledGraph
from pyg_graphzero.store.columns import engine_array, view_column, write_column
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.rewrite import through_file
from pyg_graphzero.store.rows import FileRows
from pyg_graphzero.util.disk import cache_folder
from pyg_graphzero.util.documents import check_whole, read_document, write_document
from pyg_graphzero.util.locks import LOCK_FILE, make_scratch, remove_abandoned
from pyg_graphzero.util.system import drop_pages
from pyg_graphzero.util.workspace import Workspace

#: Of a store's directory, or of the user's cache.
FOLDER = "orders"
DOCUMENT = "order.json"
_FORMAT = 2
#: Memory that copying takes, in slabs: rows that wait, rows on their way, and malloc's holes.
WITH_SLAB = 4.5
# What is read or written at once, as a part of what waits for its order: it is there twice, for a
# while, and the more it is, the fewer pieces it falls into. Of a row, its numbers.
_STEPS = 2
_INDEX_BYTES = 32
# Left free on the disk, of its size.
_FREE_SHARE = 0.05


@dataclass
class OwnOrder:
    """A copy of rows in the order of their use, opened.

    Attributes:
        path: Its directory.
        columns: By the store's file, those of its rows that lie once more, as bytes.
        orders: By the store's file, which rows these are.
        types: The same by node type.
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
        document = path / DOCUMENT
        body = read_document(document)
        check_whole(body, document)
        if body.get("format") != _FORMAT:
            raise FormatError.of(document, "format", body.get("format"), _FORMAT)
        found = cls(path, {}, {}, {})
        for number, record in enumerate(body["node_types"]):
            rows = _core.Column.open(str(path / str(number) / "rows.gd"))
            expected = ("int32", [record["rows"]])
            if (rows.dtype, list(rows.shape)) != expected:
                raise FormatError.of(
                    rows.path, "dtype, shape", (rows.dtype, list(rows.shape)), expected
                )
            num_nodes = contents.node_type(record["name"]).num_nodes
            try:
                order = _core.RowOrder(engine_array(view_column(rows).clone()), num_nodes)
            except ValueError as error:
                raise FormatError.of(rows.path, "rows", str(error), "rows") from None
            found.types[record["name"]] = order
            for each, file in enumerate(record["files"]):
                column = _core.Column.open(str(path / str(number) / f"{each}.gd"))
                expected_shape = [record["rows"], contents.column(file).row_bytes]
                if list(column.shape) != expected_shape:
                    raise FormatError.of(column.path, "shape", list(column.shape), expected_shape)
                found.columns[file], found.orders[file] = column, order
                if record.get("is_whole"):
                    found.used_rows[file] = record["rows"]
        return found

    def files(self, files: Sequence[FileSize]) -> list[FileSize]:
        """What loaders read from with it: its tables, and files whose rows it has."""
        return [places_file(name, order) for name, order in self.types.items()] + [
            replace(f, is_ranked=True, used_rows=self.used_rows.get(f.name))
            if f.name in self.columns
            else f
            for f in files
        ]


def places_file(name: str | None, order: _core.RowOrder) -> FileSize:
    """What memory holds of the order of a node type's rows, among what loaders read from."""
    num_bytes = order.num_bytes(order.num_rows, order.num_again)
    return FileSize(f"places {name}", num_bytes, 1, "indptr")


def ranks_of(orders: Mapping[str | None, _core.RowOrder], graph: SampledGraph) -> Ranks:
    """By node type, where rows would lie if those that are not copied followed the others."""

    def ranks(name: str | None, rows: Tensor) -> Tensor:
        return orders[name].ranks(engine_array(rows)) if name in orders else rows

    return {name: partial(ranks, name) for name in graph.node_types}


@dataclass
class CopyOf:
    """What of a node type is written once more.

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
    target: Path, parts: Sequence[CopyOf], slab: int, stop: threading.Event, rest: float = 1.0
) -> None:
    """Writes rows once more, complete or not at all.

    Args:
        target: The directory to be.
        parts: The rows.
        slab: Bytes of rows that wait for their order in memory; the others wait in a file. All of
            this takes :data:`WITH_SLAB` times as much.
        stop: Ends it early.
        rest: For how long the disk is left to others, as a share of the time that it is used.

    Raises:
        OSError: The disk is full, or cannot be read; nothing is left behind.
    """
    scratch, lock = make_scratch(target, "partial")
    turns, records = _Turns(stop, rest), []
    try:
        for number, part in enumerate(parts):
            folder = scratch / str(number)
            folder.mkdir()
            write_column(folder / "rows.gd", part.order)
            order = _core.RowOrder(engine_array(part.order), part.num_nodes)
            with Workspace(folder / "rows") as space:
                for each, column in enumerate(part.columns.values()):
                    _copy_rows(folder / f"{each}.gd", column, part.order, order, slab, turns, space)
            record = {"name": part.name, "rows": part.order.numel(), "is_whole": part.is_whole}
            records.append(record | {"files": list(part.columns)})
        write_document({"format": _FORMAT, "node_types": records}, scratch / DOCUMENT)
        try:
            scratch.rename(target)
        except OSError:
            if not (target / DOCUMENT).exists():  # another process was faster
                raise
        else:
            (target / LOCK_FILE).unlink()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        del lock


def _copy_rows(
    path: Path,
    column: _core.Column,
    rows: Tensor,
    order: _core.RowOrder,
    slab: int,
    turns: _Turns,
    space: Workspace,
) -> None:
    def ranks(begin: int, end: int) -> Tensor:
        return order.ranks(engine_array(torch.arange(begin, end)))

    raw, width = _RowsInTurns(column, turns), column.row_bytes
    most = max(1, slab // (width + _INDEX_BYTES))
    writer = _core.ColumnWriter(str(path), "uint8", [rows.numel(), width])
    step = max(1, slab // _STEPS // (column.row_stride + _INDEX_BYTES))
    for piece in through_file(raw, width, rows, ranks, most, step, space):
        writer.append(engine_array(piece.view(-1)))
        turns.take()
    writer.finish()


# Where copies are #################################################################################


def copy_folders(store: Path) -> list[Path]:
    """Where a store's copies may be: with it, else in the user's cache."""
    cache = cache_folder()
    name = xxhash.xxh64_hexdigest(os.fsencode(store))
    return [store / FOLDER, *([] if cache is None else [cache / FOLDER / name])]


def is_writable(folder: Path) -> bool:
    """Whether it could be made and written to."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    return os.access(there, os.W_OK | os.X_OK)


def room_on_disk(folder: Path, limit: int | None) -> int:
    """Bytes that copying may take, with what waits for its order meanwhile."""
    found = shutil.disk_usage(next(each for each in (folder, *folder.parents) if each.exists()))
    left = int(found.free - _FREE_SHARE * found.total)
    return max(0, left if limit is None else min(left, 2 * limit))


def _copies(folder: Path) -> list[Path]:
    """The copies in a folder, the oldest first."""
    with suppress(FileNotFoundError, NotADirectoryError):
        found = [each for each in folder.iterdir() if (each / DOCUMENT).is_file()]
        return sorted(found, key=lambda each: each.stat().st_mtime)
    return []


def sweep(folder: Path) -> None:
    """Removes what was begun by processes that have died."""
    for each in folder.glob(".*.partial-*"):
        remove_abandoned(folder / each.name[1:].partition(".")[0], "partial")


def remove_oldest(folder: Path, count: int) -> None:
    """Leaves no more copies than so many."""
    for each in _copies(folder)[: -count or None]:
        shutil.rmtree(each, ignore_errors=True)


def remove_copies(store: str | os.PathLike[str]) -> tuple[int, int]:
    """Removes all that loaders wrote of a store's rows, and what they began and never ended.

    Whoever reads from it now goes on to the end of its epoch.

    Args:
        store: The store's directory.

    Returns:
        How many there were, and their bytes.

    Raises:
        FileNotFoundError: There is no store.
        OSError: One cannot be removed.
    """
    path = Path(os.path.realpath(store))
    StoreContents(path)  # or it is something else's directory
    count = num_bytes = 0
    for folder in copy_folders(path):
        for each in _copies(folder):
            num_bytes += sum(f.stat().st_size for f in each.rglob("*") if f.is_file())
            shutil.rmtree(each)
            count += 1
        sweep(folder)
        if folder.is_dir():
            with suppress(OSError):  # somebody makes one
                folder.rmdir()
    return count, num_bytes
