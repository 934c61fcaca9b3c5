"""Columns of text, Parquet or Arrow files: which are meant, and their ids and attributes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from pyg_graphzero.conversion import text
from pyg_graphzero.conversion.arrays import id_column
from pyg_graphzero.conversion.blocks import Places
from pyg_graphzero.conversion.dialect import Dialect
from pyg_graphzero.conversion.ids import IdColumn, IdSpace
from pyg_graphzero.conversion.names import is_neo4j_id
from pyg_graphzero.conversion.options import MULTIPLIED, Choices, Fill, filled_dtype
from pyg_graphzero.conversion.spool import BatchSpool, RowSpool
from pyg_graphzero.conversion.tables import ArrowTable, ColumnRows
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.rows import Rows, StackedRows
from pyg_graphzero.util.progress import Progress
from pyg_graphzero.util.workspace import Workspace

Columns = Dialect | ArrowTable


@dataclass(frozen=True)
class Loaded:
    """A table, and how to name one of its rows in a message.

    Attributes:
        path: The input it comes from.
        where: From row to place.
        categories: Names of the values 0, 1 …, an Arrow array of strings; None if they have none.
    """

    rows: Rows
    path: str | Path
    where: Callable[[int], str]
    categories: Any = None

    def fail(self, row: int, found: str, expected: str) -> InputError:
        """The error for one row."""
        return InputError(self.path, self.where(row), found, expected)


class ColumnReader:
    """Reads columns for one conversion.

    Args:
        choices: Dtypes asked for, and what stands for missing values.
        progress: Where to show slow steps.
        space: Memory and temporary files.
    """

    def __init__(self, choices: Choices, progress: Progress, space: Workspace) -> None:
        self.choices = choices
        self.progress = progress
        self.space = space

    def columns(
        self,
        columns: Columns,
        attrs: Mapping[str, list[int]],
        ids: list[tuple[int, bool]],
    ) -> tuple[list[IdColumn], dict[str, Loaded]]:
        """Id columns and attributes from the columns of text, Parquet or Arrow files.

        Args:
            columns: The files.
            attrs: Column positions of each attribute; several make a matrix.
            ids: Position of each id column, and whether it is text.
        """
        if isinstance(columns, Dialect):
            return self._text_columns(columns, attrs, ids)
        loaded = {}
        for name, positions in attrs.items():
            fill = self.choices.fill(name)
            if len(positions) == 1 and self.is_coded(name) and columns.is_text(positions[0]):
                loaded[name] = self.coded(name, self._words(columns, positions[0], name, fill))
                continue
            parts = [ColumnRows(columns, position, name, fill) for position in positions]
            for part, position in zip(parts, positions, strict=True):
                if len(parts) > 1 and len(part.shape) > 1:
                    where = f"column {columns.label(position)}"
                    found = f"lists of {part.shape[1]}"
                    raise InputError(columns.path, where, found, "single values, beside others")
            rows = StackedRows(parts) if len(parts) > 1 else parts[0]
            loaded[name] = self.cast(name, Loaded(rows, columns.path, columns.where(positions[0])))
        return [self._table_ids(columns, *each) for each in ids], loaded

    def cast(self, name: str, loaded: Loaded) -> Loaded:
        """The rows of an attribute in the dtype that is asked for."""
        return replace(loaded, rows=self.choices.cast(name, loaded.rows, loaded.fail))

    def coded(self, name: str, column: IdColumn) -> Loaded:
        """Text as numbers, the places of its names in ascending order.

        Args:
            name: The attribute.
            column: Its text; empty strings, if it has a fill, are missing.
        """
        space = IdSpace(self.space, name, "map", columns=[column])
        fill = self.choices.fill(name)
        space.resolve()
        rows, names = space.rows_of(column), space.ids
        if fill is not None and len(names) and not names[0].as_py():
            dtype, names = filled_dtype(torch.int64, fill, name), names[1:]
            rows = rows.map(
                dtype, lambda slab, _: (slab - 1).to(dtype).masked_fill(slab == 0, fill)
            )
        return self.cast(name, Loaded(rows, column.path, column.where, names))

    def is_coded(self, name: str) -> bool:
        """Whether text may be an attribute, by the dtype that is asked for."""
        dtype = self.choices.dtype(name) or torch.int64
        return not (dtype.is_floating_point or dtype == torch.bool)

    def _words(
        self, table: ArrowTable, position: int, attr: str = "", fill: Fill | None = None
    ) -> IdColumn:
        spool = BatchSpool(self.space, "words")
        for words in table.words(position, attr, fill):
            spool.append(words)
        return IdColumn(table.path, table.where(position), spool.finish())

    def _table_ids(self, table: ArrowTable, position: int, is_text: bool) -> IdColumn:
        if table.is_text(position):
            return self._words(table, position)
        return id_column(ColumnRows(table, position), table.path, table.where(position), is_text)

    def _text_columns(
        self,
        dialect: Dialect,
        attrs: Mapping[str, list[int]],
        ids: list[tuple[int, bool]],
    ) -> tuple[list[IdColumn], dict[str, Loaded]]:
        """Columns of text, from one pass over the files.

        An attribute of a column that ids or another attribute are of takes a pass of its own.
        """
        columns: dict[int, text.Column] = {}
        now, later = dict[str, list[int]](), dict[str, list[int]]()
        for name, positions in attrs.items():
            if {at for at, _ in ids}.union(columns).isdisjoint(positions):
                now[name], is_alone = positions, len(positions) == 1
                columns |= {at: self._text_column(dialect, at, name, is_alone) for at in positions}
            else:
                later[name] = positions
        columns |= {at: text.Column(text.TEXT if is_text else text.ID) for at, is_text in ids}
        places = Places(dialect)
        parts = [[at] for at, _ in ids] + [*now.values()]
        spools = [self._spool([columns[at] for at in positions]) for positions in parts]
        for batch in text.read(places, columns, self.progress):
            for spool, positions in zip(spools, parts, strict=True):
                spool.append(_side_by_side([batch[at] for at in positions]))
        self._note_otherwise(places, [at for at, is_text in ids if not is_text])

        def where(position: int) -> Callable[[int], str]:
            return lambda row: f"{places.line(row)}, column {dialect.label(position)}"

        read = [
            IdColumn(dialect.path, where(positions[0]), spool.finish(), spool.bounds)
            for spool, positions in zip(spools, parts, strict=True)
        ]
        loaded = {}
        for column, name in zip(read[len(ids) :], now, strict=True):
            if isinstance(column.rows, Rows):
                loaded[name] = self.cast(name, Loaded(column.rows, column.path, column.where))
            else:
                loaded[name] = self.coded(name, column)
        if later:
            loaded |= self._text_columns(dialect, later, [])[1]
        return read[: len(ids)], loaded

    def _spool(self, columns: list[text.Column]) -> RowSpool | BatchSpool:
        """Collects columns that are parsed, side by side."""
        kind = columns[0].kind
        if kind is text.TEXT:
            return BatchSpool(self.space, "column")
        empty = _side_by_side([column.empty for column in columns])
        return (_IntegerIds if kind is text.ID else RowSpool)(self.space, "column", empty)

    def _note_otherwise(self, places: Places, integers: list[int]) -> None:
        """Notes lines that are taken for comments, and ids whose zeros are lost."""
        dialect = places.dialect
        name, rows = dialect.path.name, dialect.sample
        if places.num_comments:
            lines = f"{places.num_comments:,} lines below its first row"
            hint = "comment=None (--comment '') takes them"
            self.choices.note(f"{name}: {lines} begin with {dialect.comment!r}: no data; {hint}")
        cells = [row[at] for at in integers for row in rows if len(row) == dialect.num_columns]
        for cell in [cell for cell in cells if re.fullmatch("-?0[0-9]+", cell)][:1]:
            hint = "id_type='str' (--id-type str) keeps their zeros"
            self.choices.note(f"{name}: ids such as {cell[:20]!r} are numbers here; {hint}")

    def _text_column(
        self, dialect: Dialect, position: int, name: str, is_alone: bool
    ) -> text.Column:
        """How a column is parsed that becomes an attribute, or part of one."""
        dtype, fill = self.choices.dtype(name), self.choices.fill(name)
        dtype = torch.float32 if dtype is None and name in MULTIPLIED else dtype
        kind = text.guess(dialect, position, fill is not None)
        asked = dtype or torch.int64
        if kind is text.TEXT and (asked.is_floating_point or asked == torch.bool or not is_alone):
            kind = text.FLOAT
        if dtype is not None and kind not in (text.TEXT, *text.TIMES.values()):
            kind = text.FLOAT if dtype.is_floating_point else text.INTEGER
            kind = text.BOOLEAN if dtype == torch.bool else kind
        if fill is not None and kind not in (text.FLOAT, text.TEXT):
            own = torch.bool if kind is text.BOOLEAN else torch.int64
            if filled_dtype(own, fill, name).is_floating_point:
                if kind in text.TIMES.values():
                    expected = "an integer, as times are"
                    raise ValueError(f"fill of {name!r}: found {fill}, expected {expected}")
                kind = text.FLOAT
        return text.Column(kind, name, dtype, fill)


class _IntegerIds(RowSpool):
    """Collects a column of integer ids, in no wider a type than they need."""

    def append(self, batch: Tensor) -> None:
        """See :meth:`RowSpool.append`."""
        low, high = (int(bound) for bound in batch.aminmax())
        least, most = self.bounds or (low, high)
        self.bounds = min(low, least), max(high, most)
        is_short = low >= -(1 << 31) and high < 1 << 31
        super().append(batch.to(torch.int32) if is_short else batch)


def _side_by_side(columns: list[Tensor]) -> Tensor:
    """Columns as a matrix; a single one stays 1-D."""
    if len(columns) == 1:
        return columns[0]
    dtype = reduce(torch.promote_types, [column.dtype for column in columns])
    return torch.stack([column.to(dtype) for column in columns], dim=1)


def is_boolean(columns: Columns, position: int) -> bool:
    """Whether a column holds truth values."""
    if isinstance(columns, Dialect):
        return text.guess(columns, position) is text.BOOLEAN
    return bool(columns.schema.field(position).type == pa.bool_())


def holds_ids(columns: Columns, position: int) -> bool | None:
    """Whether a column holds integers or text, by its beginning or its type.

    None if it holds other numbers or a type of a database (``uuid``, ``numeric``), which ids may
    have become by mistake.
    """
    if isinstance(columns, Dialect):
        kind = text.guess(columns, position)
        return None if kind is text.FLOAT else kind in (text.TEXT, text.GUESSED_INTEGER)
    kind = columns.schema.field(position).type
    is_number = pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    if is_number or isinstance(kind, pa.BaseExtensionType) or pa.types.is_fixed_size_binary(kind):
        return None
    return columns.is_text(position) or bool(pa.types.is_integer(kind))


def select(dialect: Columns, columns: Any) -> list[int]:
    """Positions of columns given as ``"a"``, ``"a,b"``, ``"f*"``, a position, or a list of these.

    Raises:
        InputError: One of them is not there.
    """
    if isinstance(columns, list | tuple):
        return [position for column in columns for position in select(dialect, column)]
    if isinstance(columns, str) and columns not in dialect.by_name:
        if "," in columns:
            return select(dialect, columns.split(","))
        if "*" in columns:
            names = dialect.names or tuple(map(str, range(dialect.num_columns)))
            found = [i for i, name in enumerate(names) if fnmatchcase(name, columns)]
            if found:
                return found
    return [dialect.position(columns)]


def first_column(columns: Columns, option: str = "") -> int:
    """The column of ids where none is named: Neo4j's, or the first; ``option`` would name one.

    Raises:
        InputError: It has no name while the others have: the row numbers that pandas writes.
    """
    if is_unnamed(columns):
        found = "no name, as the row numbers that pandas writes"
        names = f"{', '.join(columns.names[1:9])}; or 0 for this one"
        hint = f"Name the column that is meant{f' ({option})' if option else ''}: {names}."
        raise InputError(columns.path, "column 0", found, "a name", hint)
    return next((at for at, name in enumerate(columns.names) if is_neo4j_id(name)), 0)


def is_unnamed(columns: Columns) -> bool:
    """Whether the first column has no name while others have."""
    return len(columns.names) > 1 and columns.names[0].lower() in ("", "unnamed: 0")


def wanted(member: str | None) -> tuple[str, ...]:
    """The columns that a member names one by one."""
    return tuple(part for part in (member or "").split(",") if part and "*" not in part)
