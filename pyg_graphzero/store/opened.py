"""The files of a store, opened and checked against its schema, and tensors over them.

Opening reads headers only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from pyg_graphzero import _core
from pyg_graphzero.errors import FormatError, MissingAttributeError
from pyg_graphzero.store import schema
from pyg_graphzero.store.adopted import open_adopted
from pyg_graphzero.store.columns import (
    DTYPES,
    EncodedRows,
    column_rows,
    is_written,
    view_column,
)
from pyg_graphzero.store.leftovers import Draft
from pyg_graphzero.store.rows import Rows
from pyg_graphzero.store.schema import EdgeType, EdgeTypeSchema, NodeTypeSchema

#: ``row_cache`` of a store whose loaders read a copy that is there, and make none.
ONLY_FOUND = "found"


@dataclass(frozen=True)
class Opening:
    """How a store is opened; ``gz.open`` says more.

    Attributes:
        memory: Memory of the process, in bytes or such as ``"8GB"``; None takes most of what the
            machine and its cgroups leave.
        processes: How many share that memory, and have the store open.
        strict: To bring a large part of the store into memory is an error, not a warning.
        row_cache: Whether loaders may write rows once more: ``"auto"``, how many bytes, False,
            or :data:`ONLY_FOUND`.
        drafts: Drafts that are complete, to be attributes all the same.
    """

    memory: int | str | None = None
    processes: int = 1
    strict: bool = False
    row_cache: int | str | bool = "auto"
    drafts: tuple[Draft, ...] = ()


class OpenedFiles:
    """Columns and topologies of one store directory.

    Views are made once per column and shared, so that what one sees another sees.

    Args:
        path: The store's directory.
        how: How it is opened.

    Raises:
        FileNotFoundError: No store at ``path``.
        FormatError: A file contradicts the format or the schema.
    """

    def __init__(self, path: Path, how: Opening | None = None) -> None:
        self.path = path
        self.how = how or Opening()
        self.schema = schema.load(path)
        schema.check_files(path, self.schema)
        for draft in self.how.drafts:
            draft.join(path, self.schema)
        self._columns: dict[str, _core.Column] = {}
        self._topologies: dict[EdgeType | None, _core.Topology] = {}
        self._csr: dict[EdgeType | None, _core.Topology] = {}
        self._views: dict[str, Tensor] = {}
        self._files: Any = WeakTensorKeyDictionary()  # by view, others' than those above too
        for edges in self.schema.edge_types:
            (src, _, dst), count = edges.name or (None, None, None), edges.num_edges
            ends = self.node_type(src).num_nodes, self.node_type(dst).num_nodes
            self._topologies[edges.name] = self._open_topology(edges.topology, *ends, count)
            if edges.csr is not None:
                self._csr[edges.name] = self._open_topology(edges.csr, *ends[::-1], count)
        for record in self.schema.types:
            for file, rows, kinds in schema.columns_of(record):
                self._open_column(file, rows, kinds)
            for column in map(self.column, record.category_offsets.values()):
                if not column.shape[0]:
                    raise FormatError.of(column.path, "shape", "[0]", "1 row or more")
        for file in self.schema.loose_files:
            self._open_column(file)

    def _open_column(self, file: str, rows: int | None = None, kinds: tuple[str, ...] = ()) -> None:
        """Opens a column of ``rows`` rows (None: any); ``kinds``: 1-D of one of these dtypes."""
        if file in self.schema.adopted:
            column = open_adopted(self.path, file, self.schema.adopted[file])
        else:
            column = _core.Column.open(str(self.path / file))
        if rows is not None and list(column.shape[:1]) != [rows]:
            raise FormatError.of(column.path, "shape", list(column.shape), f"{rows} rows")
        if kinds and (len(column.shape) != 1 or column.dtype not in kinds):
            found = f"{column.dtype} {list(column.shape)}"
            raise FormatError.of(column.path, "dtype, shape", found, f"{' or '.join(kinds)} [any]")
        self._columns[file] = column

    def _open_topology(self, file: str, src: int, dst: int, num_edges: int) -> _core.Topology:
        topology, expected = _core.Topology.open(str(self.path / file)), (src, dst, num_edges)
        found = (topology.num_src, topology.num_dst, topology.num_edges)
        if found != expected:
            raise FormatError.of(topology.path, "num_src, num_dst, num_edges", found, expected)
        return topology

    def node_type(self, name: str | None) -> NodeTypeSchema:
        """The node type called ``name``; MissingAttributeError if there is none."""
        record = self.schema.node_type(name)
        if record is None:
            names = [t.name for t in self.schema.node_types]
            raise MissingAttributeError(f"{self.path}: node type {name!r}: expected {_one(names)}")
        return record

    def edge_type(self, name: EdgeType | None) -> EdgeTypeSchema:
        """The edge type called ``name``; MissingAttributeError if there is none."""
        record = self.schema.edge_type(name)
        if record is None:
            names = [t.name for t in self.schema.edge_types]
            raise MissingAttributeError(f"{self.path}: edge type {name!r}: expected {_one(names)}")
        return record

    @property
    def columns(self) -> list[str]:
        """The files of all columns."""
        return list(self._columns)

    def column(self, file: str) -> _core.Column:
        """The opened column in ``file``, a name from the schema."""
        return self._columns[file]

    def topology(self, name: EdgeType | None) -> _core.Topology:
        """The opened topology of an edge type."""
        self.edge_type(name)
        return self._topologies[name]

    def csr(self, name: EdgeType | None) -> _core.Topology | None:
        """The topology of the same edges with both ends exchanged, if the store has one."""
        self.edge_type(name)
        return self._csr.get(name)

    def view(self, file: str) -> Tensor:
        """Values stored in ``file``, as a tensor over the mapped file."""
        if file not in self._views:
            self._views[file] = self._new_view(file)
        return self._views[file]

    def _new_view(self, file: str) -> Tensor:
        view = view_column(self._columns[file])
        self._files[view] = file
        return view

    def file_of(self, stored: Tensor) -> str | None:
        """The file that a tensor is a view of and as good as; None where it was written to."""
        if stored.requires_grad or is_written(stored):
            return None
        file: str | None = self._files.get(stored)
        return file

    def copy_of(self, view: Tensor) -> Tensor | None:
        """Another view of a view's file; None where it is no view, or was written to.

        Writes to the one do not show in the other.
        """
        file = self.file_of(view)
        return None if file is None else self._new_view(file)

    def rows(self, file: str) -> Tensor | EncodedRows:
        """The column in ``file`` as it was meant: its view, or rows to be decoded."""
        return column_rows(self._columns[file], self.view(file))


def _one(names: list[Any]) -> str:
    return "None, since the graph has one type" if names == [None] else f"one of {names}"


class RowFile(Rows):
    """Rows of a column in the order of its file, read in pieces; decoded where they are encoded.

    Unlike a view over the mapped file, which is made for rows here and there.
    """

    def __init__(self, opened: OpenedFiles, file: str) -> None:
        self._column, self._rows = opened.column(file), opened.rows(file)
        super().__init__(self._column.shape, self._rows.dtype)

    def read(self, begin: int, end: int) -> Tensor:
        """Rows ``begin … end - 1``.

        Raises:
            OSError: The file ends before.
        """
        column, stride, count = self._column, self._column.row_stride, end - begin
        wanted = max(0, (count - 1) * stride + column.row_bytes)
        offset = column.data_offset + begin * stride
        raw = np.fromfile(column.path, np.uint8, wanted, offset=offset)
        if raw.size < wanted:
            raise OSError(
                f"{column.path}: found its end at row {begin} and {raw.size} bytes, expected "
                f"{count} rows of {stride} bytes more"
            )
        rows = torch.from_numpy(raw).as_strided((count, column.row_bytes), (stride, 1)).contiguous()
        values = rows.view(DTYPES[column.dtype]).view(count, *column.shape[1:])
        if not isinstance(self._rows, EncodedRows):
            return values
        return EncodedRows(values, self._rows.scale, self._rows.zero_point)[:]
