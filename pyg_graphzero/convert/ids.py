"""From the user's ids to rows 0…n-1, for one node type at a time.

Ids are integers or text. Rows follow the node table if there is one; else integers that start at
0 and fill 0…max well enough *are* the rows, and anything else is sorted ascending (text by code
point) and numbered. All of it is vectorised; nothing is sized by the largest id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError

POLICIES = ("auto", "dense", "map")
_SPARSE_ENOUGH = 2  # auto: dense while rows are at most twice the ids
_DENSE_LIMIT = 16  # dense without num_nodes: refused beyond 16 rows per id …
_DENSE_FREE = 1 << 24  # … where the rows are more than a few megabytes
_FLAG_BYTES = 8  # flags instead of sorting while they take no more room than the ids
_NO_IDS = np.empty(0, np.int64)


@dataclass
class IdColumn:
    """Ids as one input column gives them, in chunks; rows once the space is resolved.

    Attributes:
        path: The input, for messages.
        where: Position of the n-th value in the input, for messages.
        chunks: ``int64`` arrays, or pyarrow string arrays when ``is_text``.
    """

    path: str | Path
    where: Callable[[int], str]
    chunks: list[Any]
    is_text: bool

    def __len__(self) -> int:
        return sum(len(chunk) for chunk in self.chunks)

    def value(self, position: int) -> str:
        """The id at ``position``, as messages show it."""
        for chunk in self.chunks:
            if position < len(chunk):
                value = chunk[position]
                return repr(value.as_py() if self.is_text else int(value))
            position -= len(chunk)
        raise IndexError(position)

    def fail(self, position: int, expected: str, hint: str = "") -> InputError:
        """The error for one value."""
        return InputError(
            self.path, self.where(position), f"id {self.value(position)}", expected, hint
        )

    def first(self, test: Callable[[Any], np.ndarray]) -> int | None:
        """Position of the first value for which ``test`` (chunk to mask) holds."""
        start = 0
        for chunk in self.chunks:
            mask = test(chunk)
            if mask.any():
                return start + int(mask.argmax())
            start += len(chunk)
        return None


@dataclass
class IdSpace:
    """The ids of one node type, gathered from every column that mentions them.

    Attributes:
        label: The node type, for messages; empty when homogeneous.
        policy: ``"auto"``, ``"dense"`` or ``"map"``.
        num_nodes: Number of rows if the user or the input says so.
        known_rows: Rows of the attribute arrays, and where that is known from.
        table: The node table's id column: one id per row, in row order.
        columns: Columns that refer to nodes of this type; rewritten to rows by :meth:`resolve`.
    """

    label: str = ""
    policy: str = "auto"
    num_nodes: int | None = None
    known_rows: tuple[int, str] | None = None
    table: IdColumn | None = None
    columns: list[IdColumn] = field(default_factory=list)

    ids: Any = None
    note: str = ""

    def resolve(self) -> int:
        """Decide on the rows, rewrite every column to them, and return the number of rows.

        Raises:
            InputError: An id is negative, out of range, missing from the node table, twice in
                it, or text among integers; the first such one is named.
        """
        if self.policy not in POLICIES:
            raise ValueError(f"ids={self.policy!r}: expected one of {', '.join(POLICIES)}")
        if self.num_nodes is not None and self.num_nodes < 0:
            raise ValueError(f"num_nodes={self.num_nodes}: expected 0 or more")
        self._check_alike()
        if self.table is not None:
            rows = self._resolve_table(self.table)
        elif any(column.is_text for column in self.columns):
            if self.policy == "dense":
                column = next(column for column in self.columns if column.is_text)
                raise column.fail(0, "an integer id, as ids='dense' says")
            rows = self._resolve_map()
        else:
            rows = self._resolve_integers()
        self._check_rows(rows)
        return rows

    def lookup(self, column: IdColumn) -> np.ndarray:
        """Rows of the ids in ``column``, which need not be one of :attr:`columns`.

        Raises:
            InputError: An id is not one of this type's.
        """
        if self.ids is None:
            raise RuntimeError("lookup needs a map")
        self._to_rows([column], self.ids)
        return np.concatenate(column.chunks) if column.chunks else _NO_IDS

    def _check_alike(self) -> None:
        everything = [self.table, *self.columns] if self.table else self.columns
        filled = [column for column in everything if column and len(column)]
        for column in filled[1:]:
            if column.is_text != filled[0].is_text:
                kinds = ("text ids", "integer ids")
                raise InputError(
                    column.path,
                    column.where(0),
                    f"id {column.value(0)}",
                    f"{kinds[not filled[0].is_text]} as in {filled[0].path}, {filled[0].where(0)}"
                    f" ({filled[0].value(0)})",
                    'If all ids are text, pass id_type="str" (--id-type str).',
                )

    def _resolve_table(self, table: IdColumn) -> int:
        if not table.is_text and self.policy != "map":
            _refuse_negative(table)
        ids = _concatenate(table)
        num_ids = len(ids)
        distinct = pc.count_distinct(pa.array(ids)).as_py() if num_ids else 0
        if distinct != num_ids:
            raise table.fail(_second_occurrence(ids), "every id once")
        self._to_rows(self.columns, ids)
        if not table.is_text and np.array_equal(ids, np.arange(num_ids)):
            self.note = "ids are the rows of the node table"
        else:
            self.ids = ids
            self.note = "ids mapped to the rows of the node table"
        return num_ids

    def _resolve_map(self) -> int:
        ids = _distinct(self.columns)
        self._to_rows(self.columns, ids)
        self.ids = ids
        self.note = f"{'text' if isinstance(ids, pa.Array) else 'integer'} ids mapped, ascending"
        return len(ids)

    def _resolve_integers(self) -> int:
        if self.policy == "map":
            return self._resolve_map()
        for column in self.columns:
            _refuse_negative(column)
        filled = [chunk for column in self.columns for chunk in column.chunks if len(chunk)]
        num_rows = max((int(chunk.max()) + 1 for chunk in filled), default=0)
        num_refs = sum(len(chunk) for chunk in filled)
        given = self.num_nodes
        if given is None and self.known_rows is not None:
            given = self.known_rows[0]
        if given is not None:
            self._refuse_beyond(given)
            self.note = "ids are rows"
            return given
        if self.policy == "dense":
            if num_rows > _DENSE_FREE and num_rows > _DENSE_LIMIT * num_refs:
                column, position = self._find(num_rows - 1)
                raise column.fail(
                    position,
                    f"ids that fill 0…max, as ids='dense' says, not {num_refs} ids",
                    "Pass ids='map' (--ids map), or num_nodes if that many rows are meant.",
                )
            self.note = "ids are rows"
            return num_rows
        # There are at most num_refs distinct ids: beyond that no need to count them.
        if num_rows <= _SPARSE_ENOUGH * num_refs:
            seen = np.zeros(num_rows, dtype=bool)
            for chunk in filled:
                seen[chunk] = True
            distinct = int(np.count_nonzero(seen))
            # Ids from 1 on are names: as rows they would bring a node 0 that nobody has.
            if seen[:1].all() and num_rows <= _SPARSE_ENOUGH * distinct:
                self.note = "ids are rows"
                if distinct < num_rows:
                    self.note += f" ({num_rows - distinct} of 0…{num_rows - 1} not in any edge)"
                return num_rows
        return self._resolve_map()

    def _find(self, value: int) -> tuple[IdColumn, int]:
        for column in self.columns:
            position = column.first(lambda chunk: chunk == value)
            if position is not None:
                return column, position
        raise KeyError(value)

    def _refuse_beyond(self, num_rows: int) -> None:
        for column in self.columns:
            position = column.first(lambda chunk: chunk >= num_rows)
            if position is not None:
                source = "num_nodes"
                if self.num_nodes is None and self.known_rows is not None:
                    source = self.known_rows[1]
                raise column.fail(
                    position,
                    f"an id below {num_rows}, the number of nodes by {source}",
                    "If ids are not rows, pass ids='map' (--ids map) or a node table.",
                )

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

    def _to_rows(self, columns: list[IdColumn], ids: Any) -> None:
        """Replace the ids in ``columns`` by their positions in ``ids``."""
        find = _finder(ids)
        for column in columns:
            # An empty column has no kind: its chunks may be of the other one.
            rows = find(column.chunks) if len(column) else [_NO_IDS for _ in column.chunks]
            start = 0
            for chunk in rows:
                if len(chunk) and chunk.min() < 0:
                    missing = start + int(np.argmax(chunk < 0))
                    table = self.table
                    known = f"an id in the node table {table.path}" if table else "an id in an edge"
                    raise column.fail(missing, known)
                start += len(chunk)
            column.chunks = rows
            column.is_text = False


def _refuse_negative(column: IdColumn) -> None:
    position = column.first(lambda chunk: chunk < 0)
    if position is not None:
        raise column.fail(
            position, "an id of 0 or more", "If it is meant, pass ids='map' (--ids map)."
        )


def _concatenate(column: IdColumn) -> Any:
    if column.is_text:
        return pa.chunked_array(column.chunks, pa.string()).combine_chunks()
    return np.concatenate([_NO_IDS, *column.chunks])


def _second_occurrence(ids: Any) -> int:
    values = np.asarray(pc.rank(pa.array(ids), sort_keys="ascending", tiebreaker="dense"))
    _, first = np.unique(values, return_index=True)
    again = np.ones(len(values), dtype=bool)
    again[first] = False
    return int(again.argmax())


def _distinct(columns: list[IdColumn]) -> Any:
    """Sorted distinct ids of all columns."""
    chunks = [chunk for column in columns for chunk in column.chunks]
    if any(column.is_text for column in columns):
        parts = [pc.unique(chunk) for chunk in chunks]
        values = pc.unique(pa.chunked_array(parts, pa.string()))
        return values.take(pc.sort_indices(values))
    chunks = [chunk for chunk in chunks if len(chunk)]
    low = min((int(chunk.min()) for chunk in chunks), default=0)
    span = max((int(chunk.max()) for chunk in chunks), default=-1) - low + 1
    if span <= _FLAG_BYTES * sum(map(len, chunks)):
        seen = np.zeros(span, dtype=bool)
        for chunk in chunks:
            seen[chunk - low] = True
        return np.flatnonzero(seen) + low
    values = np.concatenate(chunks)
    values.sort()
    return values[np.concatenate([[True], values[1:] != values[:-1]])]


def _finder(ids: Any) -> Callable[[list[Any]], list[np.ndarray]]:
    """A function from chunks of ids to chunks of positions in ``ids``, -1 where there is none."""
    if isinstance(ids, pa.Array):
        return lambda chunks: _find_text(ids, chunks)
    low = int(ids.min()) if len(ids) else 0
    span = int(ids.max()) - low + 1 if len(ids) else 0
    if span <= 4 * len(ids) + (1 << 16):
        table = np.full(span, -1, dtype=np.int64)
        table[ids - low] = np.arange(len(ids))

        def by_table(chunk: np.ndarray) -> np.ndarray:
            # Unsigned, what lies below the range lies beyond it.
            offset = (chunk - low).view(np.uint64)
            inside = offset < span
            return np.where(inside, table[np.where(inside, offset, 0).view(np.int64)], -1)

        if span:
            return lambda chunks: [by_table(chunk) for chunk in chunks]
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]

    def by_search(chunk: np.ndarray) -> np.ndarray:
        if not len(ordered):
            return np.full(len(chunk), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(ordered, chunk), len(ordered) - 1)
        return np.where(ordered[at] == chunk, order[at], -1)

    return lambda chunks: [by_search(chunk) for chunk in chunks]


def _find_text(ids: Any, chunks: list[Any]) -> list[np.ndarray]:
    """One hash table over ``ids`` for all chunks: pyarrow builds it anew with every call."""
    encoded = [chunk.dictionary_encode() for chunk in chunks]
    if not encoded:
        return []
    words = pa.chunked_array([chunk.dictionary for chunk in encoded], pa.string())
    found = pc.index_in(words, value_set=ids)
    rows = found.fill_null(-1).to_numpy().astype(np.int64)
    starts = np.cumsum([0] + [len(chunk.dictionary) for chunk in encoded])
    return [
        rows[start + chunk.indices.to_numpy()]
        for start, chunk in zip(starts, encoded, strict=False)
    ]
