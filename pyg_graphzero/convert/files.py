"""A graph in files, as a spec describes it, to a plan: ids become rows, attributes find them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..errors import InputError
from .edges import EdgeList, read_edges, split_own, untaken
from .ids import IdColumn, IdSpace
from .options import Selection, as_tensor, edge_options
from .plan import (
    EdgeOptions,
    EdgePlan,
    EdgeType,
    GraphPlan,
    NodePlan,
    NodeType,
    stream,
)
from .rows import ArrayRows, ChainRows, Rows, ScatterRows
from .sources import Inputs, Loaded, Scattered, is_text_column
from .spec import EdgeSpec, GraphSpec, NodeSpec

_INDEX_NAME = re.compile(r"(^|_)(idx|index|indices)(_|$)")
ID_TYPES = ("auto", "int", "str")


def is_index_name(name: str) -> bool:
    """Whether an attribute is called like a set of nodes (``train_idx``)."""
    return _INDEX_NAME.search(name) is not None


def plan_files(
    spec: GraphSpec, options: EdgeOptions, selection: Selection, inputs: Inputs
) -> GraphPlan:
    """Read everything a spec names.

    Args:
        spec: What there is.
        options: For edge types that say nothing of their own.
        selection: Which attributes to take.
        inputs: Opens files.

    Raises:
        InputError: A file is not what it should be; names the place.
    """
    plan = GraphPlan(is_hetero=spec.is_hetero)
    nodes: dict[NodeType, NodeSpec] = dict(spec.nodes)
    for edge in spec.edges:
        for node_type in plan.endpoints(edge.type):
            nodes.setdefault(node_type, NodeSpec())
    for node_spec in nodes.values():
        if node_spec.id_type not in ID_TYPES:
            raise ValueError(f"id_type={node_spec.id_type!r}: expected {', '.join(ID_TYPES)}")

    lists: dict[EdgeType, EdgeList] = {}
    for edge in spec.edges:
        ends = plan.endpoints(edge.type)
        id_types = (nodes[ends[0]].id_type, nodes[ends[1]].id_type)
        lists[edge.type] = read_edges(edge, id_types, selection, inputs)
        plan.notes += lists[edge.type].notes
    for node_type, node_spec in nodes.items():
        builder = _NodeBuilder(node_type, node_spec, selection, inputs)
        for edge_type, edges in lists.items():
            src_type, dst_type = plan.endpoints(edge_type)
            if src_type == node_type:
                builder.refer(edges.src, edges.num_src)
            if dst_type == node_type:
                builder.refer(edges.dst, edges.num_dst)
        plan.nodes[node_type] = builder.build(str(spec.name))
        plan.notes += builder.notes
    for edge in spec.edges:
        plan.edges[edge.type] = _plan_edges(edge, lists[edge.type], options)
    return plan


def _plan_edges(spec: EdgeSpec, edges: EdgeList, options: EdgeOptions) -> EdgePlan:
    num_edges = len(edges.src)
    columns: dict[str, Rows] = {}
    for name, loaded in edges.attrs.items():
        if len(loaded.rows) != num_edges:
            raise InputError(
                loaded.path,
                name,
                f"{len(loaded.rows)} rows",
                f"{num_edges}, one per edge in {edges.src.path}",
            )
        columns[name] = loaded.rows
    own = {
        name: value
        for name in ("undirected", "coalesce", "self_loops")
        if (value := getattr(spec, name)) is not None
    }
    checked = replace(options, **own)
    return EdgePlan(
        stream(_rows_of(edges.src), _rows_of(edges.dst), columns),
        num_edges,
        edge_options(checked.undirected, checked.coalesce, checked.self_loops),
    )


def _rows_of(column: IdColumn) -> Rows:
    parts: list[Rows] = [ArrayRows(as_tensor(chunk)) for chunk in column.chunks]
    return ChainRows(parts or [ArrayRows(torch.empty(0, dtype=torch.int64))])


class _NodeBuilder:
    """Gathers what is known of one node type, then settles its rows."""

    def __init__(
        self, node_type: NodeType, spec: NodeSpec, selection: Selection, inputs: Inputs
    ) -> None:
        self._spec = spec
        self._inputs = inputs
        self._label = node_type or ""
        self.notes: list[str] = []
        self._space = IdSpace(label=self._label, policy=spec.ids, num_nodes=spec.num_nodes)
        wanted = {k: v for k, v in spec.attrs.items() if selection.wants(self._label, k)}
        self._attrs: dict[str, Loaded] = {}
        if spec.file is not None:
            wanted = self._read_table(wanted)
        elif spec.id is not None:
            is_text = {"auto": None, "int": False, "str": True}[spec.id_type]
            ids = inputs.load_ids(spec.id, is_text, "ids")
            if not isinstance(ids, IdColumn):
                raise InputError(ids.path, "ids", "booleans", "integers or strings")
            self._space.table = ids
        self._sets = {
            k: v for k, v in wanted.items() if is_index_name(k) or isinstance(v, Scattered)
        }
        for name in wanted.keys() - self._sets.keys():
            self._attrs[name] = inputs.load(name, wanted[name])
        for name in wanted:  # in the order given
            if name in self._attrs and self._space.known_rows is None:
                loaded = self._attrs[name]
                self._space.known_rows = (len(loaded.rows), f"{loaded.path} ({name})")

    def _read_table(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Read the node table; returns the attributes that are not in it."""
        spec = self._spec
        named = () if spec.id is None else (spec.id,)
        reference = self._inputs.reference(spec.file)
        if reference.kind not in ("text", "table"):
            raise InputError(
                reference.path, "node table", reference.path.suffix, "text, Parquet or Arrow"
            )
        dialect = self._inputs.open_columns(
            reference,
            named,
            delimiter=spec.delimiter,
            header=spec.header,
            comment=spec.comment,
        )
        position = dialect.position(0 if spec.id is None else spec.id)
        is_text = spec.id_type == "str" or (
            spec.id_type == "auto" and is_text_column(dialect, position)
        )
        own, external = split_own(dialect, wanted)
        ids, self._attrs = self._inputs.columns(dialect, own, [(position, is_text)])
        self._space.table = ids[0]
        self.notes += untaken(dialect, {position}.union(*own.values()))
        return external

    def refer(self, column: IdColumn, num_nodes: int | None) -> None:
        """Note a column of ids of this type, and the number of nodes its input states."""
        self._space.columns.append(column)
        if num_nodes is not None and self._space.known_rows is None:
            self._space.known_rows = (num_nodes, str(column.path))

    def build(self, spec_name: str) -> NodePlan:
        """Settle the rows; the columns referred to hold rows from now on."""
        space = self._space
        if not (space.columns or space.table or space.num_nodes or space.known_rows):
            raise InputError(
                spec_name, f"nodes.{self._label}", "no table, edges, num_nodes or attributes", "one"
            )
        num_nodes = space.resolve()
        if num_nodes == 0 and not self._label:
            path = space.columns[0].path if space.columns else spec_name
            raise InputError(path, "file", "no edges and no nodes", "at least one node")
        node = NodePlan(num_nodes, ids=space.ids, note=space.note)
        for name, loaded in self._attrs.items():
            node.attrs[name] = self._checked(name, loaded, num_nodes)
        for name, source in self._sets.items():
            self._add_set(node, name, source)
        node.attrs = {name: node.attrs[name] for name in self._spec.attrs if name in node.attrs}
        return node

    def _checked(self, name: str, loaded: Loaded, num_nodes: int) -> Rows:
        if len(loaded.rows) != num_nodes:
            called = f"{self._label!r} nodes" if self._label else "nodes"
            raise InputError(
                loaded.path,
                name,
                f"{len(loaded.rows)} rows",
                f"{num_nodes}, the number of {called} ({self._space.note})",
            )
        return loaded.rows

    def _add_set(self, node: NodePlan, name: str, source: Any) -> None:
        if isinstance(source, Scattered):
            node.attrs[name] = self._scattered(node, name, source)
            return
        found = self._find(node, name, source)
        if isinstance(found, Loaded):
            node.attrs[name] = self._checked(name, found, node.num_nodes)
        else:
            node.index_sets[name] = found

    def _find(self, node: NodePlan, name: str, source: Any) -> np.ndarray | Loaded:
        """Rows of the nodes in a set; a mask comes as it is.

        A set holds ids as the user knows them, so it goes through the same map as the edges.
        """
        is_text = node.ids is not None and not isinstance(node.ids, np.ndarray)
        found = self._inputs.load_ids(source, is_text, name)
        if isinstance(found, Loaded):
            return found
        if node.ids is not None:
            return self._space.lookup(found)
        bad = found.first(lambda chunk: (chunk < 0) | (chunk >= node.num_nodes))
        if bad is not None:
            raise found.fail(bad, f"an id of 0…{node.num_nodes - 1}")
        return np.concatenate([np.empty(0, np.int64), *found.chunks])

    def _scattered(self, node: NodePlan, name: str, source: Scattered) -> Rows:
        places, values = [], []
        for ids, value in source.parts:
            found = self._find(node, name, ids)
            if isinstance(found, Loaded):
                raise InputError(found.path, name, "booleans", "ids of nodes")
            places.append(torch.from_numpy(found))
            if isinstance(value, bool):
                values.append(torch.full((len(found),), value))
                continue
            loaded = self._inputs.load(name, value)
            if loaded.rows.shape != (len(found),):
                expected = f"{len(found)} values, one per node of the set"
                raise InputError(loaded.path, name, f"shape {list(loaded.rows.shape)}", expected)
            values.append(loaded.rows.read(0, len(found)))
        return ScatterRows(node.num_nodes, torch.cat(places), torch.cat(values), source.fill)


def has_edges(value: Any) -> bool:
    """Whether a source in memory is an edge index: an array, a pair of them, or named ones."""

    def is_array(part: Any) -> bool:
        return isinstance(part, np.ndarray | torch.Tensor)

    if isinstance(value, tuple):
        return len(value) == 2 and all(map(is_array, value))
    return is_array(value) or (isinstance(value, Mapping) and any(map(is_array, value.values())))
