"""A store written again with its rows in another order, in bounded memory.

Every byte is read and written front to back, twice where rows do not fit into memory: they wait in
a temporary file, by ranges of where they go. Nothing here maps a file, whose pages would count as
the process's memory.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import FileIO
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.store.columns import (
    DTYPES,
    engine_array,
    inverse_permutation,
    look_up,
    row_table,
)
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.csc import BuildRoom, CscOptions, EdgeChunk, slot_ranges
from pyg_graphzero.store.rows import FileRows
from pyg_graphzero.store.schema import EdgeType, EdgeTypeSchema, FileRecord
from pyg_graphzero.store.writer import StoreWriter, edge_folder, node_folder
from pyg_graphzero.util.locks import StoreLock
from pyg_graphzero.util.progress import Progress
from pyg_graphzero.util.workspace import Workspace

# Rows are read and written in pieces of at most so many bytes, of this share of the memory there
# is, and of at most so many rows; edges likewise.
_SLAB_BYTES = 16 << 20
_SLAB_SHARE = 16
_SLAB_ROWS = 1 << 18
# Positions of a row within its range, while that is put in order.
_INDEX_BYTES = 32


@dataclass
class Order:
    """A permutation of the rows of a node type.

    Attributes:
        order: The old row of every new one, ``int32`` or ``int64 [num_nodes]``.
        rank: The new row of every old one, likewise.
    """

    order: Tensor
    rank: Tensor

    @classmethod
    def of(cls, order: Tensor) -> Order:
        """With the inverse of ``order``."""
        return cls(order, inverse_permutation(order))

    def ranks(self, begin: int, end: int) -> Tensor:
        """The new rows of the old ones from ``begin`` to ``end``: ``int64``."""
        return self.rank[begin:end].to(torch.int64)


class StoreRewriter(StoreWriter):
    """Writes a store that holds what another one does. Use as a context manager.

    Args:
        path: The new store.
        old: The other one.
        orders: By node type, what becomes of its rows; types that are not there stay as they are.
        space: Memory and temporary files.
        progress: Where to show slow steps.
        force: Replace an existing store, which may be ``old``.
        replaced: The lock on that, if the caller has it.
    """

    def __init__(
        self,
        path: Path,
        old: StoreContents,
        orders: dict[str | None, Order],
        space: Workspace,
        progress: Progress,
        force: bool = False,
        replaced: StoreLock | None = None,
    ) -> None:
        super().__init__(path, is_hetero=old.schema.is_hetero, force=force, replaced=replaced)
        self._old = old
        self._orders = orders
        self._space = space
        self._progress = progress

    def write(self) -> None:
        """Writes everything but ``store.json``, for which there is ``finish``."""
        for node_type in self._old.schema.node_types:
            self._write_nodes(node_type.name)
        for edge_type in self._old.schema.edge_types:
            self._write_edges(edge_type.name)
        self._schema.graph_attrs = self._copy_loose("graph", self._old.schema.graph_attrs)

    def _write_nodes(self, name: str | None) -> None:
        old, folder = self._old.node_type(name), node_folder(name)
        self.add_node_type(name, old.num_nodes)
        new, order = self._node_type(name), self._orders.get(name)
        for attr, file in old.attrs.items():
            new.attrs[attr] = self._column(folder, attr, file, order)
        # These speak of nodes, not of rows.
        new.index_sets = {key: self._copy(folder, file) for key, file in old.index_sets.items()}
        new.others = self._copy_loose(folder, old.others)
        new.ids = None if old.ids is None else self._copy(folder, old.ids)
        new.id_offsets = None if old.id_offsets is None else self._copy(folder, old.id_offsets)
        if order is not None:
            before = self._old.order(name)
            nodes = order.order if before is None else permuted_numbers(before, order.order)
            self.add_node_order(name, nodes, inverse_permutation(nodes))
        elif old.order is not None and old.rank is not None:
            new.order, new.rank = self._copy(folder, old.order), self._copy(folder, old.rank)

    def _column(self, folder: str, attr: str, file: str, order: Order | None) -> str:
        column = self._old.column(file)

        def write(path: Path) -> None:
            writer = _core.ColumnWriter.like(str(path), column)
            size = prod(column.shape[:1]) * column.row_bytes
            with self._progress.step(f"writing {attr}", size) as bar:
                for rows in reordered(column, order, self._space):
                    writer.append(engine_array(rows.view(-1)))
                    bar.update(rows.numel())
            writer.finish()

        return self._made(folder, attr, ".gd", write, self._old.schema.files.get(file))

    def _copy_loose(self, folder: str, entries: dict[str, Any]) -> dict[str, Any]:
        return {
            key: {"file": self._copy(folder, entry["file"])} if "file" in entry else entry
            for key, entry in entries.items()
        }

    def _copy(self, folder: str, file: str) -> str:
        def write(path: Path) -> None:
            shutil.copyfile(self._old.path / file, path)
            with path.open("rb") as copied:
                os.fsync(copied.fileno())

        record = self._old.schema.files[file]
        return self._made(folder, Path(file).stem, Path(file).suffix, write, record)

    def _made(
        self,
        folder: str,
        name: str,
        suffix: str,
        write: Callable[[Path], object],
        old: FileRecord | None,
    ) -> str:
        file = self._files.made(folder, name, suffix, write)
        self._schema.files[file].encoding = None if old is None else old.encoding
        return file

    def _write_edges(self, name: EdgeType | None) -> None:
        old, folder = self._old.edge_type(name), edge_folder(name)
        src, dst = (None, None) if name is None else (name[0], name[2])
        if src not in self._orders and dst not in self._orders:
            new = EdgeTypeSchema(name, old.num_edges, self._copy(folder, old.topology))
            new.edge_id = None if old.edge_id is None else self._copy(folder, old.edge_id)
            new.edge_ids = old.edge_ids
            new.attrs = {a: self._column(folder, a, file, None) for a, file in old.attrs.items()}
        else:
            new = self._sorted_edges(name, src, dst)
        new.time_order = old.time_order  # neighbourhoods stay as they are
        new.others = self._copy_loose(folder, old.others)
        if old.csr is not None:
            self._files.csr(new, BuildRoom(self._space.left(), self._space.folder))
        self._schema.edge_types.append(new)

    def _sorted_edges(
        self, name: EdgeType | None, src: str | None, dst: str | None
    ) -> EdgeTypeSchema:
        old = self._old.edge_type(name)
        files = dict(old.attrs)
        edge_id = "edge_id"
        while edge_id in files:  # an attribute may have any name
            edge_id += "_"
        if old.edge_id is not None:
            files[edge_id] = old.edge_id
        label = "edges" if name is None else " → ".join(name)
        with (
            self._progress.step(f"reading {label}", old.num_edges, "edges") as reading,
            self._progress.step(f"sorting {label}", None, "edges") as sorting,
        ):

            def show(done: int, total: int) -> None:
                sorting.total = total
                sorting.update(max(done - sorting.n, 0))

            room = BuildRoom(
                self._space.left(), self._space.folder, reading=reading.update, sorting=show
            )
            new, _ = self._files.edges(
                name,
                self._chunks(name, src, dst, files),
                self._old.node_type(src).num_nodes,
                self._old.node_type(dst).num_nodes,
                old.num_edges,
                CscOptions(bipartite=src != dst, edge_ids=old.edge_ids),
                room,
            )
        if old.num_edges == 0:  # there was no chunk to say which columns there are
            folder = edge_folder(name)
            new.attrs = {a: self._column(folder, a, f, None) for a, f in old.attrs.items()}
            return new
        if old.edge_id is not None:
            self._drop(new.edge_id)  # the builder's are the old slots
            new.edge_id = new.attrs.pop(edge_id)
        new.attrs = {
            attr: self._recoded(attr, name, file, new.attrs[attr])
            for attr, file in old.attrs.items()
        }
        return new

    def _recoded(self, attr: str, name: EdgeType | None, file: str, made: str) -> str:
        """What was made of an edge attribute's codes, as the column that it was."""
        column = self._old.column(file)
        if column.encoding is None:
            return made
        codes = _core.Column.open(str(self._files.directory / made))

        def write(path: Path) -> None:
            writer = _core.ColumnWriter.like(str(path), column)
            for rows in reordered(codes, None, self._space):
                writer.append(engine_array(rows.view(-1)))
            writer.finish()

        record = self._old.schema.files.get(file)
        recoded = self._made(edge_folder(name), attr, ".gd", write, record)
        self._drop(made)
        return recoded

    def _drop(self, file: str | None) -> None:
        if file is not None:
            (self._files.directory / file).unlink()
            del self._schema.files[file]

    def _chunks(
        self, name: EdgeType | None, src: str | None, dst: str | None, files: dict[str, str]
    ) -> Iterator[EdgeChunk]:
        """All edges, slot by slot, between new rows, with what these columns hold."""
        columns = {attr: self._old.column(file) for attr, file in files.items()}
        payload = {attr: raw_rows(column) for attr, column in columns.items()}
        src_order, dst_order = self._orders.get(src), self._orders.get(dst)
        for slots, sources, rows in slot_ranges(self._old.topology(name)):
            if src_order is not None:
                sources = look_up(src_order.rank, sources)
            if dst_order is not None:
                rows = look_up(dst_order.rank, rows)
            values = {
                attr: as_stored(columns[attr], raw.read(slots.start, slots.stop))
                for attr, raw in payload.items()
            }
            yield EdgeChunk(sources, rows, values)


def permuted_numbers(numbers: Tensor, order: Tensor) -> Tensor:
    """``numbers[order]``, of the dtype of ``order``; a piece of it at a time as ``int64``."""
    out = torch.empty_like(order)
    for into, part in zip(out.split(_SLAB_ROWS), order.split(_SLAB_ROWS), strict=True):
        into.copy_(look_up(numbers, part.to(torch.int64)))
    return out


def raw_rows(column: _core.Column) -> FileRows:
    """The rows of a column as they lie in its file: ``uint8 [num_rows, row_stride]``."""
    shape = (prod(column.shape[:1]), column.row_stride)
    return FileRows(Path(column.path), column.data_offset, shape, torch.uint8)


def as_stored(column: _core.Column, raw: Tensor) -> Tensor:
    """Some raw rows of a column as what they are, ``[n, ...]``."""
    rows = raw[:, : column.row_bytes].contiguous()
    return rows.view(-1).view(DTYPES[column.dtype]).view(len(raw), *column.shape[1:])


def reordered(column: _core.Column, order: Order | None, space: Workspace) -> Iterator[Tensor]:
    """All rows of a column as they are stored, ``uint8 [n, row_bytes]`` at a time.

    Args:
        column: An opened column.
        order: Theirs; None leaves them as they are.
        space: What of them may be in memory, and where the others wait.
    """
    raw, width = raw_rows(column), column.row_bytes
    num_rows, stride = raw.shape
    if num_rows == 0 or width == 0:
        return
    room = space.left()
    step = max(1, min(min(_SLAB_BYTES, room // _SLAB_SHARE) // stride, _SLAB_ROWS))
    if order is None:
        for slab in raw.slabs(step):
            yield slab[:, :width].contiguous()
    elif num_rows * stride <= room * 3 // 4:
        yield from _picked(raw.read(0, num_rows)[:, :width], order.order, step)
    else:
        most = max(1, (room // 2) // (width + _INDEX_BYTES))
        yield from through_file(raw, width, order.order, order.ranks, most, step, space)


def _picked(rows: Tensor, order: Tensor, step: int) -> Iterator[Tensor]:
    """``rows[order]``, ``step`` rows at a time."""
    table = row_table(rows)
    assert table is not None  # there are some, with some bytes
    for part in order.split(step):
        out = torch.empty((part.numel(), rows.size(1)), dtype=torch.uint8)
        _core.gather_rows(table, engine_array(part.to(torch.int64)), engine_array(out))
        yield out


def through_file(
    raw: FileRows,
    width: int,
    order: Tensor,
    ranks: Callable[[int, int], Tensor],
    most: int,
    step: int,
    space: Workspace,
) -> Iterator[Tensor]:
    """Rows by way of a temporary file, in which each range of ``most`` new rows lies together.

    Within their range they lie as they did before.

    Args:
        raw: All rows as they lie.
        width: Bytes of each that are kept.
        order: The old row of every new one, ``int32`` or ``int64 [n]``; it may leave some out.
        ranks: Finds the new rows of the old ones in a range: ``int64``, ``n`` or more where there
            is none.
        most: Rows that are put in order at once.
        step: Rows that are read at once.
        space: Where they wait.
    """
    num_rows = order.numel()
    if num_rows == 0:
        return
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


def _write_all(file: FileIO, part: Tensor, at: int) -> None:
    view: Any = memoryview(part.numpy())  # type: ignore[arg-type]
    file.seek(at)
    while len(view):
        view = view[file.write(view) :]
