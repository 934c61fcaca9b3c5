"""Columns that join a store row by row: larger than memory, in any order, over several runs.

``Store.create_column`` returns a :class:`Column`. Its rows go to a file of the store that no reader
knows of until :meth:`Column.publish`; the engine's ``ColumnDraft`` writes it,
:mod:`pyg_graphzero.store.unpublished` remembers it.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.errors import ClosedStoreError
from pyg_graphzero.store import unpublished
from pyg_graphzero.store.columns import (
    DTYPES,
    dtype_name,
    engine_array,
    look_up,
)
from pyg_graphzero.store.encoding import EncodingLoss, encode_rows
from pyg_graphzero.store.handle import StoreHandle
from pyg_graphzero.store.schema import check_new_attr
from pyg_graphzero.store.unpublished import ROUNDED, Journal, Unpublished
from pyg_graphzero.util.arguments import as_row_index, as_tensor

# Rows are encoded and written in pieces of about this many bytes.
_PIECE_BYTES = 32 << 20


class Column:
    """A column of nodes that is being written; from ``Store.create_column``.

    Rows may be written in any order and more than once. Those written in the order in which they
    lie on disk cost one pass over the disk; memory is two bits per row and a few MB. Until
    :meth:`publish`, no reader sees any of it. All methods may be called from any thread.

    Attributes:
        name: Of the attribute.
        node_type: The node type it belongs to; None in a homogeneous store.
        shape: Of one row.
        dtype: Of the rows that are given, and of those that are read.
        encoding: What float32 rows are stored as; None: as themselves.
        num_rows: How many there will be, one for each node.
        note: What was given to ``create_column``.

    Example:
        >>> import torch
        >>> import pyg_graphzero as gz
        >>> with gz.open(example_store, mode="r+") as store:
        ...     column = store.create_column("h", 2)
        ...     column.write(2, torch.ones(2, 2))  # rows 2 and 3 on disk
        ...     column.put_tensor(torch.zeros(2, 2), index=torch.tensor([1, 0]))  # of these nodes
        ...     column.publish()
        ...     store.data().h.tolist()
        [[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
    """

    def __init__(self, handle: StoreHandle, record: Unpublished, draft: _core.ColumnDraft) -> None:
        journal = record.journal
        self.name = journal.name
        self.node_type = journal.node_type
        self.shape = tuple(journal.shape[1:])
        self.num_rows = journal.shape[0]
        self.dtype = torch.float32 if journal.encoding else DTYPES[journal.dtype]
        self.encoding = journal.encoding
        self.note = journal.note
        self._handle = handle
        self._record = record
        self._draft: _core.ColumnDraft | None = draft
        self._ended: Exception | None = None
        # The engine's calls take turns by themselves; the sums of what encoding costs do not.
        self._lock = threading.RLock()
        items = math.prod(self.shape)
        encoding = journal.stored_as
        self._encoder = None if encoding is None else _core.RowEncoder(encoding, items)
        self._rows_encoded = 0

    def __repr__(self) -> str:
        kind = str(self.dtype).removeprefix("torch.")
        state = f"done={self.done}" if self._draft is not None else "ended"
        return f"Column({self.name!r}, {[self.num_rows, *self.shape]}, {kind}, {state})"

    @property
    def done(self) -> int:
        """Rows ``[0, done)``, in the order on disk, are written and durable."""
        return self._open().durable_front

    def write(self, start: int, rows: Tensor | np.ndarray) -> None:
        """Writes rows by where they lie on disk.

        ``store.nodes_in_order()`` says of which nodes these are.

        Args:
            start: The first row.
            rows: ``[n, *shape]`` of ``dtype``; halves of the kind that is stored are taken too.
                NaN and infinity are kept; other numbers beyond the range of an encoding become the
                largest in it, as when converting.

        Raises:
            ValueError: The shape or dtype is another.
            IndexError: Rows before the first or behind the last.
            OSError: The disk is full or fails. What was committed stays; the rest may have to be
                written again from ``done`` on.
        """
        tensor = self._checked(rows)
        first, end = int(start), int(start) + len(tensor)
        if first < 0 or end > self.num_rows:
            raise IndexError(
                f"{self._what}: found rows {first} to {end}, expected 0 <= row < {self.num_rows}"
            )
        with self._lock:
            draft = self._open()
            for piece in self._pieces(tensor):
                draft.write(first, self._stored(piece))
                first += len(piece)

    def put_tensor(
        self, rows: Tensor | np.ndarray, index: Tensor | np.ndarray | slice | None = None
    ) -> None:
        """Writes rows by node.

        Args:
            rows: See :meth:`write`.
            index: The node of each: ``int64 [n]``, a mask ``[num_rows]``, a slice of nodes, or None
                for all. Of a node that is named twice the last row counts.

        Raises:
            ValueError: The shape or dtype is another, or there are more or fewer nodes than rows.
            IndexError: A node that there is not.
            OSError: See :meth:`write`.
        """
        tensor = self._checked(rows)
        rank = self._handle.contents.rank(self.node_type)
        if index is None or isinstance(index, slice):
            begin, end, step = (index or slice(None)).indices(self.num_rows)
            nodes = torch.arange(begin, max(begin, end), step) if step > 0 else None
            if nodes is None:
                raise ValueError(f"{self._what}: index: found a step of {step}, expected 1 or more")
        else:
            nodes = as_row_index(index, self.num_rows)
        if len(nodes) != len(tensor):
            raise ValueError(f"{self._what}: found {len(tensor)} rows for {len(nodes)} nodes")
        places = nodes if rank is None else look_up(rank, nodes)
        in_order = len(places) < 2 or bool((places.diff() >= 0).all())
        # By place, before it is cut into pieces: rows that fill a part of the file do so in one go.
        order = None if in_order else places.argsort(stable=True)
        with self._lock:
            draft = self._open()
            for begin in range(0, len(tensor) if math.prod(self.shape) else 0, self._piece_rows):
                part: Tensor | slice = slice(begin, begin + self._piece_rows)
                part = part if order is None else order[part]
                draft.put(engine_array(places[part]), self._stored(tensor[part]))

    def commit(self) -> None:
        """Makes durable what was written; ``create_column(resume=True)`` gives it back.

        Raises:
            OSError: The disk is full or fails; see :meth:`write`.
        """
        self._open().commit()

    def publish(self) -> None:
        """Makes an attribute of the column, in one atomic step.

        It is then like any other: for ``store.data()``, for loaders, and for everyone who opens
        the store from now on. Handles that are open keep what they opened.

        Raises:
            ValueError: Rows are missing; names the first of them. Or the name was taken meanwhile.
            OSError: The disk is full or fails; the column can be published later. Where the message
                says that the new content is in place, that makes sure that it lasts.
        """
        with self._lock:
            self._finish()
            self._handle.edit(lambda editor: editor.publish([self._record], [self._loss()]))
            self._end("was published; create_column() makes another")

    def complete(self) -> None:
        """Makes a column of it that nobody sees yet; ``Store.publish_columns`` publishes several.

        Raises:
            ValueError: Rows are missing.
            OSError: The disk is full or fails; see :meth:`write`.
        """
        with self._lock:
            self._finish()
            self._end("is complete, and waits to be published")

    def _finish(self) -> None:
        draft = self._open()
        begin, end = draft.first_missing
        if begin < self.num_rows:
            raise ValueError(
                f"{self._what}: found nothing in rows {begin} to {end} (on disk), expected "
                f"every row to be written"
            )
        draft.finish()

    def discard(self) -> None:
        """Removes the column and what was written of it."""
        with self._lock:
            self._open()
            self._end("was discarded")
            self._record.remove()

    @property
    def _what(self) -> str:
        return f"{self._handle.path}: column {self.name!r} of {self.node_type!r}"

    def _open(self) -> _core.ColumnDraft:
        if self._draft is None:
            assert self._ended is not None
            raise self._ended
        return self._draft

    def _end(self, reason: str) -> None:
        """Nothing can be done with the column from now on."""
        self._ended = ClosedStoreError(f"{self._what}: {reason}")
        self._draft = None
        self._handle.drafts.pop((self.node_type, self.name), None)

    def _checked(self, rows: Any) -> Tensor:
        tensor = as_tensor(rows, self._what)
        if tensor.dim() == 0 or tuple(tensor.shape[1:]) != self.shape:
            expected = ", ".join(["n", *map(str, self.shape)])
            raise ValueError(
                f"{self._what}: shape: found {list(tensor.shape)}, expected [{expected}]"
            )
        allowed = [self.dtype] if self.encoding is None else [self.dtype, DTYPES[self.encoding]]
        if tensor.dtype not in allowed:
            raise ValueError(
                f"{self._what}: dtype: found {tensor.dtype}, expected "
                f"{' or '.join(map(str, allowed))}; use rows.to({self.dtype})"
            )
        return tensor

    @property
    def _piece_rows(self) -> int:
        return max(1, _PIECE_BYTES // max(1, math.prod(self.shape) * self.dtype.itemsize))

    def _pieces(self, rows: Tensor) -> Iterator[Tensor]:
        # Rows without items have no bytes, and are there as soon as the column is.
        if len(rows) and math.prod(self.shape):
            yield from rows.split(self._piece_rows)

    def _stored(self, rows: Tensor) -> Any:
        """The bytes of rows as they are stored."""
        if self._encoder is not None and rows.dtype == torch.float32:
            self._rows_encoded += len(rows)
            rows = encode_rows(self._encoder, rows, DTYPES[self._record.journal.dtype])
        return engine_array(rows.contiguous().reshape(-1).view(torch.uint8))

    def _loss(self) -> EncodingLoss | None:
        """What encoding has cost; None unless every row was encoded here, and once."""
        if self._encoder is None or self._rows_encoded != self.num_rows:
            return None
        assert self.encoding is not None
        return EncodingLoss.of(self.encoding, self._encoder.losses)


def create_column(
    handle: StoreHandle,
    name: str,
    width: int | tuple[int, ...],
    node_type: str | None,
    dtype: torch.dtype,
    encoding: str | None,
    resume: bool,
    note: dict[str, Any] | None,
) -> Column:
    """See ``Store.create_column``."""
    editor = handle.editor
    record = handle.contents.node_type(node_type)
    published = handle.contents.schema
    check_new_attr(handle.path, record, name)
    what = f"{handle.path}: column {name!r} of {node_type!r}"
    shape = (record.num_nodes, *_row_shape(width, what))
    stored = _stored_name(dtype, encoding, what)
    kept = _plain(note, what)

    live = handle.drafts.get((node_type, name))
    if live is not None:
        live._end("is being written by another handle, which create_column() returned later")
    editor.sweep()
    for found in unpublished.find(handle.path, published):
        if (found.journal.node_type, found.journal.name) != (node_type, name):
            continue
        if resume and found.has_files:
            _check_same(found.journal, shape, stored, encoding, kept, what)
            return _register(handle, found, _draft(found, _core.ColumnDraft.resume))
        found.remove()
    file = editor.place_node_attr(node_type, name)
    path = unpublished.new_path(handle.path, file.removesuffix(".gd").replace("/", "--"))
    journal = Journal(name, node_type, shape, stored, encoding, file, kept)
    fresh = Unpublished(handle.path, path, journal)
    try:
        fresh.write()
        draft = _draft(fresh, _core.ColumnDraft.create)
        _core.sync_directory(str(fresh.file.parent))
        _core.sync_directory(str(path.parent))
    except BaseException:
        fresh.remove()
        raise
    return _register(handle, fresh, draft)


def _register(handle: StoreHandle, record: Unpublished, draft: _core.ColumnDraft) -> Column:
    column = Column(handle, record, draft)
    handle.drafts[column.node_type, column.name] = column
    return column


def end_columns(handle: StoreHandle) -> None:
    """Ends all columns that are being written, when their store is closed."""
    for column in list(handle.drafts.values()):
        column._end("the store was closed; open it again, and create_column(resume=True)")


def _draft(record: Unpublished, make: Any) -> _core.ColumnDraft:
    journal = record.journal
    paths = str(record.file), str(record.rows_file)
    draft: _core.ColumnDraft = make(*paths, journal.dtype, list(journal.shape), journal.stored_as)
    return draft


def _row_shape(width: int | tuple[int, ...], what: str) -> tuple[int, ...]:
    shape = tuple(width) if isinstance(width, (tuple, list, torch.Size)) else (width,)
    if not all(isinstance(d, int) and not isinstance(d, bool) and d >= 0 for d in shape):
        raise ValueError(
            f"{what}: width: found {width!r}, expected a number of items or the shape of one row"
        )
    return shape


def _stored_name(dtype: torch.dtype, encoding: str | None, what: str) -> str:
    if encoding is None:
        return dtype_name(dtype)
    if encoding not in ROUNDED:
        hint = "; int8 needs a look at all rows first: convert(features=)"
        raise ValueError(
            f"{what}: encoding: found {encoding!r}, expected {' or '.join(ROUNDED)}"
            f"{hint if encoding == 'int8' else ''}"
        )
    if dtype != torch.float32:
        raise ValueError(
            f"{what}: dtype: found {dtype} with encoding={encoding!r}, expected torch.float32, "
            f"which is what encoded rows are read as"
        )
    return encoding


def _plain(note: Any, what: str) -> Any:
    """``note`` as it comes back from a file."""
    try:
        return json.loads(json.dumps(note))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what}: note: {error}, expected what JSON can say") from None


def _check_same(
    journal: Journal,
    shape: tuple[int, ...],
    stored: str,
    encoding: str | None,
    note: Any,
    what: str,
) -> None:
    wanted = {"shape": shape, "dtype": stored, "encoding": encoding, "note": note}
    for field, expected in wanted.items():
        found = getattr(journal, field)
        if found != expected:
            raise ValueError(
                f"{what}: {field} of the unpublished one: found {found!r}, expected {expected!r}; "
                f"resume=False starts again"
            )
