"""A copy of what training uses, in the order of its use: rows, and lists of neighbours.

It is written and opened here; :mod:`.making` says what it has.
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
from pyg_graphzero.errors import FormatError
from pyg_graphzero.memory.needs import Kind, Need, Needs
from pyg_graphzero.memory.plan import divide, least_memory, neighbours_are_held
from pyg_graphzero.memory.ranking import GROUP_BITS, Uses
from pyg_graphzero.store.columns import (
    engine_array,
    gather,
    in_memory,
    view_column,
    write_column,
)
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.copies import (
    DOCUMENT,
    PRIVATE,
    READABLE,
    SCRATCH,
    CopiedPart,
    read_parts,
    trust_of,
    write_parts,
)
from pyg_graphzero.store.rows import FileRows
from pyg_graphzero.util.locks import LOCK_FILE, make_scratch
from pyg_graphzero.util.names import locate
from pyg_graphzero.util.system import drop_pages

#: Memory that copying takes, in slabs: rows that wait, rows on their way, and malloc's holes.
WITH_SLAB = 4.5
# Rows are read and written by 1 / _STEPS of the slab at once: these rows are there twice, for a
# while, and the more they are, the fewer pieces they fall into. _INDEX_BYTES are a row's numbers.
_STEPS = 2
_INDEX_BYTES = 32
# Share of the disk that is left free.
_FREE_SHARE = 0.05


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


@dataclass(frozen=True)
class Copied:
    """Rows or neighbours of one of the store's files, as a copy has them.

    Attributes:
        column: The copied rows, or groups of neighbours, as bytes.
        order: Their numbers.
        uses: See :class:`~pyg_graphzero.memory.needs.Need`.
        group_bits: A row of ``column`` is a group of ``2 ** group_bits`` items: neighbours, or 0.
    """

    column: _core.Column
    order: _core.RowOrder
    uses: Uses
    group_bits: int = 0

    @property
    def items(self) -> _core.ColumnFile:
        """The copied items one by one."""
        column, bits = self.column, self.group_bits
        if bits == 0:
            return _core.ColumnFile.of(column)
        count, each = column.shape[0] << bits, column.row_bytes >> bits
        return _core.ColumnFile.open(column.path, column.data_offset, count, each, each)


@dataclass(frozen=True)
class UsedCopy:
    """A copy, opened.

    Attributes:
        path: Its directory.
        files: Rows and neighbours that it has, by the store's file.
    """

    path: Path
    files: Mapping[str, Copied]

    @classmethod
    def open(cls, path: Path, contents: StoreContents) -> UsedCopy:
        """Opens what :func:`write_copy` wrote.

        Raises:
            FileNotFoundError: There is none.
            FormatError: It is damaged.
        """
        trust = trust_of(path, contents.path)

        def open_file(name: str) -> _core.Column:
            return _core.Column.open(str(locate(path, name, trust=trust)))

        found = {}
        for number, part in enumerate(read_parts(path, trust)):
            sources, num_rows, bits = _sources(contents, part, path / DOCUMENT)
            places, *files = part.places(number)
            order = _read_order(open_file(places), part.rows, num_rows, bits)
            uses = tuple((uses, rows << bits) for uses, rows in part.uses)
            for file, place in zip(part.files, files, strict=True):
                column, expected = open_file(place), [part.rows, sources[file].width]
                if list(column.shape) != expected:
                    raise FormatError.of(column.path, "shape", list(column.shape), expected)
                found[file] = Copied(column, order, uses, bits)
        return cls(path, found)

    def suited(self, memory: int, baseline: int, needs: Needs) -> UsedCopy:
        """Its rows alone, where neighbours are held or their table does not fit; else all of it."""
        every = self.applied_to(needs)
        if least_memory(every, baseline) <= memory and not neighbours_are_held(
            divide(memory, baseline, every), needs
        ):
            return self
        rows = {file: copied for file, copied in self.files.items() if copied.group_bits == 0}
        return UsedCopy(self.path, rows)

    def applied_to(self, needs: Needs) -> Needs:
        """The needs of a loader that reads from it: its tables, and files that it has rows of."""
        tables = {id(copied.order): copied for copied in self.files.values()}
        places = []
        for number, copied in enumerate(tables.values()):
            order, bits = copied.order, copied.group_bits
            size = _core.RowOrder.num_bytes(order.num_rows, order.num_again >> bits, bits)
            places.append(Need(f"places {number}", size, 1, Kind.TABLE))
        files = [
            replace(file, uses=self.files[file.name].uses) if file.name in self.files else file
            for file in needs.files
        ]
        return replace(needs, files=(*places, *files))


def _sources(
    contents: StoreContents, part: CopiedPart, document: Path
) -> tuple[dict[str, Rows], int, int]:
    """The sources of a part: rows by file, how many there are, and bits of their groups."""
    names = {t.topology: t.name for t in contents.schema.edge_types}
    if part.lists in names:
        topology = contents.topology(names[part.lists])
        return {part.lists: Rows.of_neighbours(topology)}, topology.num_edges, GROUP_BITS
    record = contents.schema.node_type(part.name) if part.lists is None else None
    if record is None or not set(part.files) <= set(record.attrs.values()):
        found_here = f"{part.files} of {part.name!r}"
        raise FormatError.of(document, "files", found_here[:60], "the store's")
    columns = {file: Rows.of_column(contents.column(file)) for file in part.files}
    return columns, record.num_nodes, 0


def _read_order(
    numbers: _core.Column, count: int, num_rows: int, group_bits: int
) -> _core.RowOrder:
    """The rows or groups that a copy has. All of the file is read, so all of it is checked."""
    found, expected = (numbers.dtype, list(numbers.shape)), ("int32", [count])
    if found != expected:
        raise FormatError.of(numbers.path, "dtype, shape", found, expected)
    blocks, _ = _core.count_blocks(numbers.path)
    for bad in _core.verify_blocks(numbers.path, 0, blocks):
        raise FormatError(f"{numbers.path}: block {bad.block}: {bad.detail}", numbers.path, "rows")
    try:
        again = engine_array(in_memory(view_column(numbers)))
        return _core.RowOrder(again, num_rows, group_bits)
    except ValueError as error:
        raise FormatError.of(numbers.path, "rows", str(error), "rows") from None


@dataclass
class CopyOf:
    """Rows that are written once more: of a node type, or groups of an edge type's neighbours.

    Attributes:
        name: The node type.
        order: The rows, ``int32``.
        uses: How often they are used, see :func:`~pyg_graphzero.memory.ranking.uses_of`.
        sources: By file, where they are from.
        lists: The topology's file, where these are groups of its neighbours.
    """

    name: str | None
    order: Tensor
    uses: Uses
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


def is_writable(folder: Path) -> bool:
    """Whether it could be made and written to."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    return os.access(there, os.W_OK | os.X_OK)


def room_on_disk(folder: Path, limit: int | None) -> int:
    """Bytes that copying may take, with what waits for its order meanwhile."""
    found = shutil.disk_usage(next(each for each in (folder, *folder.parents) if each.exists()))
    left = int(found.free - _FREE_SHARE * found.total)
    return max(0, left if limit is None else min(left, 2 * limit))
