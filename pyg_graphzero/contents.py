"""The opened files of a store, checked against its schema; what every view and sampler holds on to.

Opening reads headers only. An object here outlives the ``Store`` it came from, and pickles by path.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero import _core, schema
from pyg_graphzero.adopted import open_adopted
from pyg_graphzero.columns import (
    EncodedRows,
    column_rows,
    decoded,
    gather,
    view_column,
    view_topology,
)
from pyg_graphzero.errors import FormatError, MissingAttributeError
from pyg_graphzero.schema import EdgeType, EdgeTypeSchema, NodeTypeSchema


class StoreContents:
    """Columns and topologies of one store directory.

    Views are made once per column and shared, so that what one sees another sees.

    Args:
        path: The store's directory.
        keep_half: Attributes (``"x"``, ``"paper.x"``) that are float16 or bfloat16 for float32 and
            are to be left so; True for all.

    Raises:
        ValueError: ``keep_half`` names what is no such attribute.
        FileNotFoundError: No store at ``path``.
        FormatError: A file contradicts the format or the schema.
    """

    def __init__(self, path: Path, keep_half: bool | Collection[str] = False) -> None:
        self.path = path
        self.keep_half = keep_half
        self.schema = schema.load(path)
        schema.check_files(path, self.schema)
        self._columns: dict[str, _core.Column] = {}
        self._topologies: dict[EdgeType | None, _core.Topology] = {}
        self._views: dict[str, Tensor] = {}
        self._left_half: set[str] = set()
        self._positions: dict[EdgeType | None, Tensor] = {}
        for node_type in self.schema.node_types:
            self._open_node_type(node_type)
        for edge_type in self.schema.edge_types:
            self._open_edge_type(edge_type)
        for entry in self.schema.graph_attrs.values():
            if "file" in entry:
                self._open_column(entry["file"], None)
        self._leave_half()

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreContents, (self.path, self.keep_half)

    def _open_column(self, file: str, rows: int | None, *numbers: str) -> None:
        """Opens a column of ``rows`` rows (None: any); ``numbers``: 1-D of one of these dtypes."""
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

    def _open_node_type(self, record: NodeTypeSchema) -> None:
        for file in record.attrs.values():
            self._open_column(file, record.num_nodes)
        for file in record.index_sets.values():
            self._open_column(file, None, "int64")
        if record.id_offsets is not None:
            self._open_column(record.id_offsets, record.num_nodes + 1, "int64")
        if record.ids is not None:
            text = record.id_offsets is not None
            rows, dtype = (None, "uint8") if text else (record.num_nodes, "int64")
            self._open_column(record.ids, rows, dtype)

    def _open_edge_type(self, record: EdgeTypeSchema) -> None:
        topology = _core.Topology.open(str(self.path / record.topology))
        src = self.node_type(None if record.name is None else record.name[0]).num_nodes
        dst = self.node_type(None if record.name is None else record.name[2]).num_nodes
        found = (topology.num_src, topology.num_dst, topology.num_edges)
        if found != (src, dst, record.num_edges):
            raise FormatError.of(
                topology.path, "num_src, num_dst, num_edges", found, (src, dst, record.num_edges)
            )
        self._topologies[record.name] = topology
        for file in record.attrs.values():
            self._open_column(file, record.num_edges)
        if record.edge_id is not None:
            self._open_column(record.edge_id, record.num_edges, "int32", "int64")

    def _leave_half(self) -> None:
        """Finds the columns that ``keep_half`` is about."""
        half: dict[str, set[str]] = {}
        types: list[NodeTypeSchema | EdgeTypeSchema] = []
        types += self.schema.node_types
        types += self.schema.edge_types
        for t in types:
            owner = ",".join(t.name) if isinstance(t.name, tuple) else t.name
            for attr, file in t.attrs.items():
                if self._columns[file].is_encoded and self._columns[file].dtype != "int8":
                    half[file] = {attr, f"{owner}.{attr}"}
        if isinstance(self.keep_half, bool):
            self._left_half = set(half) if self.keep_half else set()
            return
        if isinstance(self.keep_half, str):
            raise ValueError(f"keep_half={self.keep_half!r}: expected True or a list of names")
        wanted = set(self.keep_half)
        self._left_half = {file for file, names in half.items() if names & wanted}
        missing = sorted(wanted.difference(*half.values()))
        if missing:
            raise ValueError(
                f"keep_half names {missing[0]!r}, which {self.path} has not in half precision "
                f"for float32"
            )

    def node_type(self, name: str | None) -> NodeTypeSchema:
        """The node type called ``name``; MissingAttributeError if there is none."""
        record = self.schema.node_type(name)
        if record is None:
            names = [t.name for t in self.schema.node_types]
            raise MissingAttributeError(f"{self.path}: node type {name!r}: expected one of {names}")
        return record

    def edge_type(self, name: EdgeType | None) -> EdgeTypeSchema:
        """The edge type called ``name``; MissingAttributeError if there is none."""
        record = self.schema.edge_type(name)
        if record is None:
            names = [t.name for t in self.schema.edge_types]
            raise MissingAttributeError(f"{self.path}: edge type {name!r}: expected one of {names}")
        return record

    def column(self, file: str) -> _core.Column:
        """The opened column in ``file``, a name from the schema."""
        return self._columns[file]

    def topology(self, name: EdgeType | None) -> _core.Topology:
        """The opened topology of an edge type."""
        self.edge_type(name)
        return self._topologies[name]

    def view(self, file: str) -> Tensor:
        """What is stored in ``file``, as a tensor over the mapped file."""
        if file not in self._views:
            self._views[file] = view_column(self._columns[file])
        return self._views[file]

    def rows(self, file: str) -> Tensor | EncodedRows:
        """The column in ``file`` as it was meant: its view, or rows to be decoded."""
        if file in self._left_half:
            return self.view(file)
        return column_rows(self._columns[file], self.view(file))

    def csc(self, name: EdgeType | None) -> tuple[Tensor, Tensor]:
        """``indptr`` and ``indices`` (``uint32`` or ``int64``) over the mapped file."""
        return view_topology(self.topology(name))

    def edge_id(self, name: EdgeType | None) -> Tensor | None:
        """Original edge ids by CSC slot (``int32`` or ``int64``), None if identical."""
        file = self.edge_type(name).edge_id
        return None if file is None else self.view(file)

    def edge_position(self, name: EdgeType | None) -> Tensor | None:
        """CSC slots by original edge id, None if identical. Costs 8 bytes an edge, once."""
        ids = self.edge_id(name)
        if ids is None:
            return None
        if name not in self._positions:
            self._positions[name] = self._invert(ids, name)
        return self._positions[name]

    def _invert(self, ids: Tensor, name: EdgeType | None) -> Tensor:
        position = torch.full((ids.numel(),), -1)
        inside = (ids >= 0) & (ids < ids.numel())
        if bool(inside.all()):
            position[ids.to(torch.int64)] = torch.arange(ids.numel())
        if bool((position < 0).any()):
            file = self.edge_type(name).edge_id
            raise FormatError.of(
                self.path / str(file),
                "rows",
                "edge ids that repeat or are out of range",
                f"each of 0 … {ids.numel() - 1} once; run `graphzero verify` on the store",
            )
        return position

    def edge_index(self, name: EdgeType | None) -> Tensor:
        """COO ``int64 [2, num_edges]`` in the order of original edge ids, built in memory."""
        indptr, indices = self.csc(name)
        topology = self.topology(name)
        row = indices.to(torch.int64)
        degrees = indptr[1:] - indptr[:-1]
        for part, good, expected in (
            (
                "indptr",
                indptr[0] == 0 and indptr[-1] == row.numel() and bool((degrees >= 0).all()),
                f"numbers that rise from 0 to {row.numel()}",
            ),
            (
                "indices",
                bool(((row >= 0) & (row < topology.num_src)).all()),
                f"0 <= node < {topology.num_src}",
            ),
        ):
            if not good:
                expected += "; run `graphzero verify` on the store"
                raise FormatError.of(topology.path, part, "something else", expected)
        col = torch.repeat_interleave(torch.arange(degrees.numel()), degrees)
        position = self.edge_position(name)
        if position is not None:
            row, col = row[position], col[position]
        return torch.stack([row, col])

    def edge_column(self, name: EdgeType | None, attr: str) -> Tensor:
        """An edge attribute in the order of original edge ids; copied unless that is CSC order."""
        rows = self.rows(self.edge_type(name).attrs[attr])
        position = self.edge_position(name)
        return decoded(rows) if position is None else gather(rows, position)
