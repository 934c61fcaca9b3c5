"""From the user's ids to rows 0…n-1, for one node type at a time.

Ids are integers or text. Rows follow the node table if there is one; else integers that start at
0 and fill 0…max well enough *are* the rows, and anything else is sorted ascending (text by code
point) and numbered.

Columns of ids are read slab by slab and never rewritten: their rows are looked up whenever they
are read. Memory is sized by the number of nodes (by the ids' range, a bit each, where
that is less), never by the number of edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.conversion.distinct import distinct_integers, distinct_text
from pyg_graphzero.conversion.spool import TextRows
from pyg_graphzero.errors import InputError, MemoryBudgetError
from pyg_graphzero.store.ids import text_bytes
from pyg_graphzero.store.rows import ArrayRows, MadeRows, Rows
from pyg_graphzero.util.workspace import Workspace

POLICIES = ("auto", "dense", "map")
_SPARSE_ENOUGH = 2  # auto: dense while rows are at most twice the ids
_DENSE_LIMIT = 16  # dense without num_nodes: refused beyond 16 rows per id …
_DENSE_FREE = 1 << 24  # … where the rows are more than a few megabytes
_BITS_PER_ID = 64  # a bit for every id of a range that takes no more room than the ids
_BITS_SHARE = 0.25  # of the room
_SLAB_ROWS = 1 << 19
_TOP = -(1 << 63)
NO_ROWS = torch.empty(0, dtype=torch.int64)
_ASK_FOR_TEXT = (
    'If all ids are text, pass id_type="str" (--id-type str); if the ends of edges are two kinds '
    'of nodes, edge_type="user,to,item" (--edge-type user,to,item).'
)
_ASK_FOR_TABLE = (
    "If ids are not rows, tell which id has which row: by a column 'id' beside the attribute's in "
    "one table, or by a node table (--nodes)."
)
_ASK_FOR_MAP = "If it is meant, pass ids='map' (--ids map)."


@dataclass(eq=False)
class IdColumn:
    """Ids as one input column gives them.

    Attributes:
        path: The input, for messages.
        where: Position of the n-th value in the input, for messages.
        rows: The ids: of any integer dtype below 2**63, ``[n]``, or strings.
        bounds: The least and the greatest integer, where they are known already.
        is_unsigned: Whether the rows are those of :func:`as_unsigned`.
    """

    path: str | Path
    where: Callable[[int], str]
    rows: Rows | TextRows
    bounds: tuple[int, int] | None = None
    is_unsigned: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_text(self) -> bool:
        """Whether ids are strings."""
        return isinstance(self.rows, TextRows)

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest integer; ``(0, -1)`` if there are none."""
        if self.bounds is None:
            pairs = [slab.aminmax() for _, slab in self.slabs() if len(slab)]
            low = min((int(pair.min) for pair in pairs), default=0)
            self.bounds = low, max((int(pair.max) for pair in pairs), default=-1)
        return self.bounds

    def slabs(self) -> Iterator[tuple[int, Any]]:
        """The ids, with the position of the first one of each slab."""
        for begin in range(0, len(self), _SLAB_ROWS):
            yield begin, self.rows.read(begin, min(begin + _SLAB_ROWS, len(self)))

    def value(self, position: int) -> str:
        """The id at ``position``, as messages show it."""
        value: Any = self.rows.read(position, position + 1)[0]
        return repr(value.as_py() if self.is_text else int(value) - self.is_unsigned * _TOP)

    def become_unsigned(self) -> None:
        """Has integers be those of :func:`as_unsigned`, as others of the same nodes are.

        Raises:
            InputError: One is negative.
        """
        if self.is_unsigned or not isinstance(self.rows, Rows) or not len(self):
            return
        if self.range[0] < 0:
            expected = "an id of 0 or more, as others are 2**63 and beyond"
            raise self.fail(self.first(lambda slab: slab < 0), expected)
        self.rows, self.bounds, self.is_unsigned = as_unsigned(self.rows), None, True

    def fail(self, position: int, expected: str, hint: str = "") -> InputError:
        """The error for one value."""
        return InputError(
            self.path, self.where(position), f"id {self.value(position)}", expected, hint
        )

    def first(self, test: Callable[[Any], Tensor]) -> int:
        """Position of the first value for which ``test`` (slab to mask) holds; REQUIRES one."""
        for begin, slab in self.slabs():
            mask = test(slab)
            if mask.any():
                return begin + int(mask.int().argmax())
        raise AssertionError(f"{self.path}: found no such id")


@dataclass
class IdSpace:
    """The ids of one node type, gathered from every column that mentions them.

    Attributes:
        workspace: Memory and temporary files.
        label: The node type, for messages; empty when homogeneous.
        policy: ``"auto"``, ``"dense"`` or ``"map"``.
        num_nodes: Number of rows if the user or the input says so.
        known_rows: Rows of the attribute arrays, and where that is known from.
        table: The node table's id column: one id per row, in row order.
        columns: Columns that refer to nodes of this type.
        ids: Once resolved, the id of every row: integer rows, or an Arrow array of strings;
            ``None`` when it is the row.
        note: Once resolved, how the ids were understood.
        is_unsigned: Once resolved, whether some ids are 2**63 or more.
        num_rows: Once resolved, the number of nodes.
    """

    workspace: Workspace
    label: str = ""
    policy: str = "auto"
    num_nodes: int | None = None
    known_rows: tuple[int, str] | None = None
    table: IdColumn | None = None
    columns: list[IdColumn] = field(default_factory=list)

    ids: Any = None
    note: str = ""
    is_unsigned: bool = False
    num_rows: int = 0
    _find: Callable[[Any], Tensor] | None = None

    def resolve(self) -> int:
        """Decide on the rows, and return their number.

        Raises:
            InputError: An id is negative, out of range, twice in the node table, or text among
                integers; the first such one is named.
            MemoryBudgetError: The map from ids to rows takes more memory than there is.
        """
        if self.policy not in POLICIES:
            raise ValueError(f"ids={self.policy!r}: expected one of {', '.join(POLICIES)}")
        if self.num_nodes is not None and self.num_nodes < 0:
            raise ValueError(f"num_nodes={self.num_nodes}: expected 0 or more")
        everything = [*([self.table] if self.table else []), *self.columns]
        _check_alike([column for column in everything if len(column)])
        self.is_unsigned = any(column.is_unsigned for column in everything)
        if self.is_unsigned:
            self.policy = "map"
            for column in everything:
                column.become_unsigned()
        if self.table is not None:
            self.num_rows = self._resolve_table(self.table)
        else:
            texts = [column for column in self.columns if column.is_text]
            if texts and self.policy == "dense":
                raise texts[0].fail(0, "an integer id, as ids='dense' says")
            is_map = texts or self.policy == "map"
            self.num_rows = self._resolve_map() if is_map else self._resolve_integers()
        self._check_rows(self.num_rows)
        if self.is_unsigned:
            kind = torch.uint64
            self.ids = self.ids.map(kind, lambda slab, _: (slab ^ _TOP).view(kind))
        return self.num_rows

    def id_of(self, row: int) -> str:
        """The id of a row, as messages show it."""
        if self.ids is None:
            return str(row)
        ids: Any = self.ids.read(row, row + 1) if isinstance(self.ids, Rows) else self.ids[row:]
        return repr(ids[0].as_py()) if not isinstance(self.ids, Rows) else str(int(ids[0]))

    def rows_of(self, column: IdColumn) -> Rows:
        """The row of every id in ``column``, looked up when read.

        An id without a row is an error then.
        """
        if not len(column):  # has no kind: it may be text among integers
            return ArrayRows(NO_ROWS)
        if self.is_unsigned:
            column.become_unsigned()
        elif column.is_unsigned:
            raise column.fail(column.first(lambda slab: slab >= 0), "an id below 2**63")
        if self._find is None and isinstance(column.rows, Rows):
            low, high = column.range
            if low >= 0 and high < self.num_rows:
                return column.rows

        def found(begin: int, end: int) -> Tensor:
            rows = self.find(column.rows.read(begin, end))
            if bool((rows < 0).any()):
                raise self.missing(column, begin + int((rows < 0).int().argmax()))
            return rows

        return MadeRows((len(column),), torch.int64, found)

    def find(self, ids: Any) -> Tensor:
        """Rows of a slab of ids, ``int64``; -1 where there is none."""
        if self._find is not None:
            return self._find(ids)
        return torch.where((ids < 0) | (ids >= self.num_rows), -1, ids)

    def missing(self, column: IdColumn, position: int) -> InputError:
        """The error for an id that has no row."""
        if self._find is None:
            return column.fail(position, *self._in_range(column, position))
        table = f"an id in the node table {self.table.path}" if self.table else "an id in an edge"
        return column.fail(position, table)

    def _in_range(self, column: IdColumn, position: int) -> tuple[str, str]:
        if column not in self.columns:
            return f"an id of 0…{self.num_rows - 1}", ""
        if int(column.rows.read(position, position + 1)[0]) < 0:
            return "an id of 0 or more", "" if self.policy == "dense" else _ASK_FOR_MAP
        if self.table is not None:
            return f"an id below {self.num_rows}, the rows of {self.table.path}", ""
        source = "num_nodes"
        if self.num_nodes is None:
            source = "the edges" if self.known_rows is None else self.known_rows[1]
        expected = f"an id below {self.num_rows}, the number of nodes by {source}"
        if self.policy == "dense":
            return expected, "Set num_nodes if there are more nodes than that."
        if self.num_nodes is not None or source in {str(each.path) for each in self.columns}:
            return expected, "If ids are not rows, pass ids='map' (--ids map)."
        alone = f"With ids='map' (--ids map) alone, rows of {source} go by ascending id."
        return expected, f"{_ASK_FOR_TABLE} {alone}"

    def _resolve_table(self, table: IdColumn) -> int:
        if isinstance(table.rows, Rows):
            if self.policy != "map" and table.range[0] < 0:
                position = table.first(lambda slab: slab < 0)
                raise table.fail(position, "an id of 0 or more", _ASK_FOR_MAP)
            if all(_counts_on(slab, begin) for begin, slab in table.slabs()):
                self.note = "ids are the rows of the node table"
                return len(table)
        second = self._index(table.rows)
        if second >= 0:
            raise table.fail(second, "every id once")
        self.note = "ids mapped to the rows of the node table"
        return len(table)

    @property
    def _least(self) -> int:
        """The least integer that may be an id."""
        return -(1 << 63) if self.policy == "map" or self.table is not None else 0

    def _resolve_map(self) -> int:
        texts = [column.rows for column in self.columns if isinstance(column.rows, TextRows)]
        if texts:
            self._index(distinct_text(texts, self.workspace))
            self.note = "text ids mapped, ascending"
            return len(self.ids)
        filled = [column for column in self.columns if len(column)]
        low = max(min((column.range[0] for column in filled), default=0), self._least)
        span = max((column.range[1] for column in filled), default=-1) - low + 1
        num_refs = sum(map(len, filled))
        # There are at most num_refs distinct ids: beyond that no need to count them.
        may_be_rows = self.policy == "auto" and low + span <= _SPARSE_ENOUGH * num_refs
        num_bytes = _core.IdBits.num_bytes(min(span, _BITS_PER_ID * num_refs))
        is_narrow = span <= _BITS_PER_ID * num_refs
        self.note = "integer ids mapped, ascending"
        if not may_be_rows and not (is_narrow and num_bytes <= _BITS_SHARE * self.workspace.room):
            numbers = [column.rows for column in filled if isinstance(column.rows, Rows)]
            self._index(distinct_integers(numbers, self._least, self.workspace))
            return len(self.ids)
        self.take(num_bytes, span)
        bits = _core.IdBits(span, low)
        for column in filled:
            for _, slab in column.slabs():
                bits.add(slab.to(torch.int64))
        count = bits.rank()
        # Ids from 1 on are names: as rows they would bring a node 0 that is none.
        if may_be_rows and low == 0 < count and span <= _SPARSE_ENOUGH * count:
            self.note = "ids are rows"
            if count < span:
                self.note += f" ({span - count} of 0…{span - 1} not in any edge)"
            self.workspace.room += num_bytes
            return span
        self.ids = MadeRows((count,), torch.int64, bits.read)
        self._find = _on_integers(bits.find)
        return count

    def _index(self, ids: Rows | TextRows) -> int:
        """Look ids up in ``ids`` from now on; the first row whose id occurs before it, or -1."""
        if isinstance(ids, Rows):
            self.take(_core.IntegerIndex.num_bytes(len(ids)) + 8 * len(ids), len(ids))
            whole = torch.empty(len(ids), dtype=torch.int64)
            for begin in range(0, len(ids), _SLAB_ROWS):
                end = min(begin + _SLAB_ROWS, len(ids))
                whole[begin:end] = ids.read(begin, end)
            numbers = _core.IntegerIndex(whole)
            self.ids, self._find = ArrayRows(whole), _on_integers(numbers.find)
            return numbers.second
        size = sum(int(text_bytes(slab)[0][[0, -1]].diff()) for slab in ids.slabs())
        self.take(_core.TextIndex.num_bytes(len(ids)) + size + 8 * len(ids), len(ids))
        offsets, text = (
            torch.zeros(len(ids) + 1, dtype=torch.int64),
            torch.empty(size, dtype=torch.uint8),
        )
        row = 0
        for slab in ids.slabs():
            bounds, part = text_bytes(slab)
            bounds = bounds + (offsets[row] - bounds[0])
            offsets[row : row + len(bounds)] = bounds
            text[bounds[0] : bounds[-1]] = part
            row += len(slab)
        words = _core.TextIndex(offsets, text)
        buffers = [None, pa.py_buffer(offsets.numpy()), pa.py_buffer(text.numpy())]
        self.ids = pa.Array.from_buffers(pa.large_string(), len(ids), buffers)
        self._find = lambda slab: words.find(*text_bytes(slab))
        return words.second

    def take(self, num_bytes: int, num_ids: int) -> None:
        """Memory for as long as rows are looked up."""
        room = self.workspace.room
        if num_bytes > room:
            least = -(-(self.workspace.memory - room + num_bytes) // 10**6)
            raise MemoryBudgetError(
                f"memory: mapping the ids of {num_ids} {self._called()} takes {num_bytes >> 20} "
                f"MiB, but of {self.workspace.memory >> 20} MiB {room >> 20} MiB are left; pass "
                f"memory='{least}MB' or more"
            )
        self.workspace.room -= num_bytes

    def _resolve_integers(self) -> int:
        filled = [column for column in self.columns if len(column)]
        num_rows = max([0, *(column.range[1] + 1 for column in filled)])  # all may be negative
        num_refs = sum(map(len, filled))
        given = self.num_nodes
        if given is None and self.known_rows is not None:
            given = self.known_rows[0]
        limit = num_rows if given is None else given
        self.num_rows = limit
        for column in filled:
            if column.range[0] < 0 or column.range[1] >= limit:
                position = column.first(lambda slab: (slab < 0) | (slab >= limit))
                raise column.fail(position, *self._in_range(column, position))
        if given is not None:
            self.note = "ids are rows"
            return given
        if self.policy == "dense":
            if num_rows > _DENSE_FREE and num_rows > _DENSE_LIMIT * num_refs:
                column = next(column for column in filled if column.range[1] == num_rows - 1)
                raise column.fail(
                    column.first(lambda slab: slab == num_rows - 1),
                    f"ids that fill 0…max, as ids='dense' says, not {num_refs} ids",
                    "Pass ids='map' (--ids map), or num_nodes if that many rows are meant.",
                )
            self.note = "ids are rows"
            return num_rows
        return self._resolve_map()

    def _check_rows(self, rows: int) -> None:
        """A number of rows said elsewhere must be the one found."""
        if self.num_nodes is not None and self.num_nodes != rows:
            raise ValueError(
                f"num_nodes={self.num_nodes} for {self._called()}, but there are {rows} ids"
            )
        if self.known_rows is not None and self.known_rows[0] != rows:
            raise InputError(
                self.known_rows[1],
                "rows",
                str(self.known_rows[0]),
                f"{rows}, the number of {self._called()} by their ids",
            )

    def _called(self) -> str:
        return f"{self.label!r} nodes" if self.label else "nodes"


def _check_alike(columns: list[IdColumn]) -> None:
    """Refuses text among integers, and the other way round."""
    for column in columns[1:]:
        first, kinds = columns[0], ("text ids", "integer ids")
        if column.is_text != first.is_text:
            raise column.fail(
                0,
                f"{kinds[not first.is_text]} as in {first.path}, {first.where(0)}"
                f" ({first.value(0)})",
                _ASK_FOR_TEXT,
            )


def as_unsigned(rows: Rows) -> Rows:
    """Integers up to 2**64 less 2**63: in the same order, and all of them are ``int64``."""

    def lower(slab: Tensor, begin: int) -> Tensor:
        return (slab.view(torch.int64) if slab.dtype == torch.uint64 else slab.long()) ^ _TOP

    return rows.map(torch.int64, lower)


def _on_integers(find: Callable[[Tensor], Tensor]) -> Callable[[Any], Tensor]:
    return lambda slab: find(slab.to(torch.int64))


def _counts_on(slab: Tensor, begin: int) -> bool:
    return torch.equal(slab, torch.arange(begin, begin + len(slab), dtype=slab.dtype))
