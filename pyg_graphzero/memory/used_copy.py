"""A copy of what training uses, in the order of its use: rows, and lists of neighbours.

:mod:`.making` says what it has, :mod:`pyg_graphzero.store.copy_writer` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pyg_graphzero import _core
from pyg_graphzero.errors import FormatError
from pyg_graphzero.memory.needs import Kind, Need, Needs
from pyg_graphzero.memory.ranking import Uses
from pyg_graphzero.store.columns import engine_array, in_memory, view_column
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.copies import DOCUMENT, GROUP_BITS, CopiedPart, read_parts, trust_of
from pyg_graphzero.store.copy_writer import Rows
from pyg_graphzero.util.names import locate


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
