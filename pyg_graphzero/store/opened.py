"""The files of a store, opened and checked against its schema, and tensors over them.

Opening reads headers only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from pyg_graphzero import _core
from pyg_graphzero.errors import FormatError, MissingAttributeError
from pyg_graphzero.store import schema
from pyg_graphzero.store.adopted import open_adopted
from pyg_graphzero.store.columns import (
    EncodedRows,
    column_rows,
    copy_changed_rows,
    is_written,
    view_column,
)
from pyg_graphzero.store.leftovers import Draft
from pyg_graphzero.store.schema import EdgeType, EdgeTypeSchema, NodeTypeSchema, TypeSchema

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
        for node_type in self.schema.node_types:
            self._open_node_type(node_type)
        for edge_type in self.schema.edge_types:
            self._open_edge_type(edge_type)
        for entries in self.schema.loose:
            self._open_columns((entry.get("file") for entry in entries.values()), None)

    def _open_columns(self, files: Iterable[str | None], rows: int | None, *numbers: str) -> None:
        """Opens columns of ``rows`` rows (None: any); ``numbers``: 1-D of one of these dtypes."""
        for file in files:
            if file is None:
                continue
            if file in self.schema.adopted:
                column = open_adopted(self.path, file, self.schema.adopted[file])
            else:
                column = _core.Column.open(str(self.path / file))
            if rows is not None and list(column.shape[:1]) != [rows]:
                raise FormatError.of(column.path, "shape", list(column.shape), f"{rows} rows")
            if numbers and (len(column.shape) != 1 or column.dtype not in numbers):
                found = f"{column.dtype} {list(column.shape)}"
                expected = f"{' or '.join(numbers)} [any]"
                raise FormatError.of(column.path, "dtype, shape", found, expected)
            self._columns[file] = column

    def _open_attrs(self, record: TypeSchema) -> None:
        self._open_columns(record.attrs.values(), record.num_rows)
        self._open_columns(record.categories.values(), None, "uint8")
        self._open_columns(record.category_offsets.values(), None, "int64")
        for file in record.category_offsets.values():
            if not self._columns[file].shape[0]:
                raise FormatError.of(self._columns[file].path, "shape", "[0]", "1 row or more")

    def _open_node_type(self, record: NodeTypeSchema) -> None:
        self._open_attrs(record)
        self._open_columns(record.index_sets.values(), None, "int64")
        self._open_columns([record.id_offsets], record.num_nodes + 1, "int64")
        if record.id_offsets is None:
            self._open_columns([record.ids], record.num_nodes, "int64", "uint64")
        else:
            self._open_columns([record.ids], None, "uint8")

    def _open_edge_type(self, record: EdgeTypeSchema) -> None:
        src = self.node_type(None if record.name is None else record.name[0]).num_nodes
        dst = self.node_type(None if record.name is None else record.name[2]).num_nodes
        self._topologies[record.name] = self._open_topology(record.topology, src, dst, record)
        if record.csr is not None:
            self._csr[record.name] = self._open_topology(record.csr, dst, src, record)
        self._open_columns([record.csr_slot, record.edge_id], record.num_edges, "int32", "int64")
        self._open_attrs(record)

    def _open_topology(
        self, file: str, src: int, dst: int, record: EdgeTypeSchema
    ) -> _core.Topology:
        topology = _core.Topology.open(str(self.path / file))
        found = (topology.num_src, topology.num_dst, topology.num_edges)
        if found != (src, dst, record.num_edges):
            raise FormatError.of(
                topology.path, "num_src, num_dst, num_edges", found, (src, dst, record.num_edges)
            )
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
        """Another view of a view's file, with what was written to that; None if it is no view.

        From then on, writes to the one do not show in the other. In memory is what was written.
        """
        if view not in self._files or view.requires_grad:
            return None
        copy = self._new_view(self._files[view])
        if is_written(view):
            copy_changed_rows(view, copy)
        return copy

    def rows(self, file: str) -> Tensor | EncodedRows:
        """The column in ``file`` as it was meant: its view, or rows to be decoded."""
        return column_rows(self._columns[file], self.view(file))


def _one(names: list[Any]) -> str:
    return "None, since the graph has one type" if names == [None] else f"one of {names}"
