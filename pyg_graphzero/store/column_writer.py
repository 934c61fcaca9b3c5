"""Columns that join a store row by row: larger than memory, in any order, from several threads.

``Store.create_column`` returns a :class:`Column`. Its rows go to a draft, a file that no reader
knows of until :meth:`Column.publish`; the engine's ``RowWriter`` writes it.
"""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.errors import ClosedStoreError, FormatError
from pyg_graphzero.store.columns import (
    DTYPES,
    dtype_name,
    engine_array,
)
from pyg_graphzero.store.encoding import encode_rows
from pyg_graphzero.store.handle import StoreHandle
from pyg_graphzero.store.leftovers import Draft, draft_stem
from pyg_graphzero.store.schema import check_new_attr
from pyg_graphzero.util.arguments import as_row_index, as_tensor, of_type
from pyg_graphzero.util.documents import check_text

# Rows are encoded and written in pieces of about this many bytes.
_PIECE_BYTES = 32 << 20
# May stand for float32 without a look at all rows first.
_ROUNDED = tuple(each.name for each in _core.Encoding if not each.has_scales)


class Column:
    """A column of nodes that is being written; from ``Store.create_column``.

    Rows may be written in any order and more than once; :meth:`publish` reads them once, for their
    checksums. Memory is a bit per row and a few MB. No reader sees any of it before. All methods
    may be called from any thread.

    A draft lasts as long as the store is open: whoever does not publish writes all rows again.

    Attributes:
        name: The attribute's.
        node_type: The node type it belongs to; None in a homogeneous store.
        shape: The shape of one row.
        dtype: The dtype of rows, given and read.
        encoding: Name of the halves that stand for float32; None: rows are stored as they are.
        num_rows: How many there will be, one for each node.

    Example:
        >>> import torch
        >>> import pyg_graphzero as gz
        >>> with gz.open(example_store, mode="r+") as store:
        ...     column = store.create_column("h", 2)
        ...     column.write(2, torch.ones(2, 2))  # of nodes 2 and 3
        ...     column.put_tensor(torch.zeros(2, 2), index=torch.tensor([1, 0]))
        ...     column.publish()
        ...     store.data().h.tolist()
        [[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
    """

    def __init__(
        self,
        handle: StoreHandle,
        draft: Draft,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        encoding: str | None,
    ) -> None:
        self.name = draft.name
        self.node_type = draft.node_type
        self.shape = shape[1:]
        self.num_rows = shape[0]
        self.dtype = dtype
        self.encoding = encoding
        self._handle = handle
        self._draft = draft
        self._stored_dtype = dtype if encoding is None else DTYPES[encoding]
        engine = None if encoding is None else _core.Encoding[encoding]
        path = handle.editor.place_draft(draft.file)
        try:
            stored = dtype_name(self._stored_dtype)
            self._writer: _core.RowWriter | None = _core.RowWriter(
                str(path), stored, list(shape), engine
            )
        except BaseException:
            handle.editor.remove_draft(draft.file)
            raise
        self._ended: Exception | None = None
        # The writer's calls need no turns; the encoder's sums of what encoding costs do.
        self._lock = threading.RLock()
        self._encoder = None if engine is None else _core.RowEncoder(engine, math.prod(self.shape))

    def __repr__(self) -> str:
        kind = str(self.dtype).removeprefix("torch.")
        ended = "" if self._writer is not None else ", ended"
        return f"Column({self.name!r}, {[self.num_rows, *self.shape]}, {kind}{ended})"

    def write(self, start: int, rows: Tensor | np.ndarray) -> None:
        """Writes the rows of nodes that follow each other.

        Args:
            start: The first node.
            rows: ``[n, *shape]`` of ``dtype``; halves of the kind that is stored are taken too.
                NaN and infinity are kept; other numbers beyond the range of an encoding become the
                largest in it, as when converting.

        Raises:
            ValueError: The shape or dtype is another.
            IndexError: Rows before the first or behind the last.
            OSError: The disk is full or fails; these rows count as not written.
        """
        tensor = self._checked(rows)
        first, end = int(start), int(start) + len(tensor)
        if first < 0 or end > self.num_rows:
            raise IndexError(
                f"{self._what}: found rows {first} to {end}, expected 0 <= row < {self.num_rows}"
            )
        self._write(tensor, range(first, end))

    def put_tensor(
        self, rows: Tensor | np.ndarray, index: Tensor | np.ndarray | slice | None = None
    ) -> None:
        """Writes the rows of any nodes.

        Args:
            rows: See :meth:`write`.
            index: The node of each: ``int64 [n]``, a mask ``[num_rows]``, a slice of nodes, or None
                for all. A node that is named twice has the last of its rows.

        Raises:
            ValueError: The shape or dtype is another, or there are more or fewer nodes than rows.
            IndexError: A node that there is not.
            OSError: See :meth:`write`.
        """
        tensor = self._checked(rows)
        nodes: range | Tensor
        if index is None or isinstance(index, slice):
            nodes = range(self.num_rows)[index or slice(None)]
            if nodes.step != 1:
                nodes = torch.arange(nodes.start, nodes.stop, nodes.step)
        else:
            nodes = as_row_index(index, self.num_rows)
        if len(nodes) != len(tensor):
            raise ValueError(f"{self._what}: found {len(tensor)} rows for {len(nodes)} nodes")
        self._write(tensor, nodes)

    def _write(self, rows: Tensor, nodes: range | Tensor) -> None:
        """Writes the rows of nodes that follow each other, or of any."""
        order: Tensor | None = None
        if isinstance(nodes, Tensor) and not bool((nodes.diff() >= 0).all()):
            # Before they are cut into pieces: rows that fill a part of the file do so in one go.
            order = nodes.argsort(stable=True)
        items = math.prod(self.shape)
        step = max(1, _PIECE_BYTES // max(1, items * self.dtype.itemsize))
        with self._lock:
            writer = self._open()
            # Rows without items have no bytes, and are there as soon as the column is.
            for begin in range(0, len(rows) if items else 0, step):
                part = slice(begin, begin + step)
                if isinstance(nodes, range):
                    writer.write(nodes[part].start, self._stored(rows[part]))
                else:
                    at = part if order is None else order[part]
                    writer.put(engine_array(nodes[at]), self._stored(rows[at]))

    def publish(self) -> None:
        """Makes an attribute of the column, in one atomic step.

        It is then like any other: for ``store.data()``, for loaders, and for everyone who opens
        the store from now on. Handles that are open keep what they opened.

        Raises:
            ValueError: Rows are missing; names the first of them. Or the name was taken meanwhile.
            OSError: The disk is full or fails; the column can be published later, with its rows
                written again if the message is about them. Where the message says that the new
                content is in place, the column is published.
        """
        with self._lock:
            draft, editor = self._finish(), self._handle.editor
            with self._handle.turn:
                try:
                    self._handle.edit(lambda editor: editor.publish([draft]))
                finally:
                    if editor.is_replaced:  # even if it could not be synced
                        self._end("was published; create_column() makes another")

    def complete(self) -> Draft:
        """Makes a column of it that waits in its file to be published with others.

        Raises:
            ValueError: Rows are missing.
            OSError: The disk is full or fails; see :meth:`write`.
        """
        with self._lock:
            draft = self._finish()
            self._end("is complete, and waits to be published")
            return draft

    def _finish(self) -> Draft:
        writer = self._open()
        begin, end = writer.first_missing
        if begin < self.num_rows:
            raise ValueError(
                f"{self._what}: found nothing in rows {begin} to {end}, expected "
                f"every row to be written"
            )
        writer.finish()
        return self._draft

    def discard(self) -> None:
        """Removes the column and what was written of it."""
        with self._lock, self._handle.turn:
            self._open()
            self._end("was discarded")
            self._handle.editor.remove_draft(self._draft.file)

    @property
    def _what(self) -> str:
        return f"{self._handle.path}: column {self.name!r}{of_type(self.node_type)}"

    def _open(self) -> _core.RowWriter:
        if self._writer is None:
            assert self._ended is not None
            raise self._ended
        return self._writer

    def _end(self, reason: str) -> None:
        """Nothing can be done with the column from now on."""
        self._ended = ClosedStoreError(f"{self._what}: {reason}")
        self._writer = None
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

    def _stored(self, rows: Tensor) -> Any:
        """The bytes of rows as they are stored."""
        if self._encoder is not None and rows.dtype == torch.float32:
            rows = encode_rows(self._encoder, rows, self._stored_dtype)
        return engine_array(rows.contiguous().reshape(-1).view(torch.uint8))


def create_column(
    handle: StoreHandle,
    name: str,
    width: int | tuple[int, ...],
    node_type: str | None,
    dtype: torch.dtype,
    encoding: str | None,
    file: str | None = None,
) -> Column:
    """See ``Store.create_column``; ``file`` is where the draft goes, if not where its name says."""
    handle.editor  # noqa: B018 - a store that is open for reading says so
    record = handle.contents.node_type(node_type)
    check_new_attr(handle.path, record, name)
    check_text(name, handle.path)
    what = f"{handle.path}: column {name!r}{of_type(node_type)}"
    shape = (record.num_nodes, *_row_shape(width, what))
    _check_stored(dtype, encoding, what)
    live = handle.drafts.get((node_type, name))
    if live is not None:
        live._end("is being written by another handle, which create_column() returned later")
    draft = Draft(node_type, name, file or f"{draft_stem(node_type, name)}.gd")
    column = Column(handle, draft, shape, dtype, encoding)
    handle.drafts[node_type, name] = column
    return column


def end_columns(handle: StoreHandle) -> None:
    """Removes all columns that are being written, when their store is closed."""
    for column in list(handle.drafts.values()):
        with suppress(OSError, FormatError):  # what is there is no draft of this store any more
            column.discard()
        column._end("the store was closed before it was published")


def _row_shape(width: int | tuple[int, ...], what: str) -> tuple[int, ...]:
    shape = tuple(width) if isinstance(width, (tuple, list, torch.Size)) else (width,)
    if not all(isinstance(d, int) and not isinstance(d, bool) and d >= 0 for d in shape):
        raise ValueError(
            f"{what}: width: found {width!r}, expected a number of items or the shape of one row"
        )
    return shape


def _check_stored(dtype: torch.dtype, encoding: str | None, what: str) -> None:
    if encoding is None:
        dtype_name(dtype)
        return
    if encoding not in _ROUNDED:
        hint = "; int8 needs a look at all rows first: convert(features=)"
        raise ValueError(
            f"{what}: encoding: found {encoding!r}, expected {' or '.join(_ROUNDED)}"
            f"{hint if encoding == 'int8' else ''}"
        )
    if dtype != torch.float32:
        raise ValueError(
            f"{what}: dtype: found {dtype} with encoding={encoding!r}, expected torch.float32, "
            f"which is what encoded rows are read as"
        )
