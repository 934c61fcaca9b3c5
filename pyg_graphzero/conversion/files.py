"""A graph in files, as a spec describes it, to a plan: ids become rows, attributes find them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from pyg_graphzero.conversion.columns import Loaded, first_column
from pyg_graphzero.conversion.edges import RELATION, EdgeList, note_untaken, read_edges, split_own
from pyg_graphzero.conversion.ids import NO_ROWS, IdColumn, IdSpace
from pyg_graphzero.conversion.join import OfNodes, in_node_order, load_of_nodes
from pyg_graphzero.conversion.names import is_index_name
from pyg_graphzero.conversion.options import Fill
from pyg_graphzero.conversion.plan import (
    EdgePlan,
    EdgeType,
    GraphPlan,
    NodePlan,
    NodeType,
    stream,
)
from pyg_graphzero.conversion.sources import Inputs, Scattered
from pyg_graphzero.conversion.sparse import is_sparse
from pyg_graphzero.conversion.spec import EdgeSpec, GraphSpec, NodeSpec, layout_of
from pyg_graphzero.conversion.spool import RowSpool
from pyg_graphzero.conversion.tables import is_frame, is_series
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.csc import CscOptions, EdgeChunk
from pyg_graphzero.store.rows import Rows, scattered_rows
from pyg_graphzero.util.arguments import of_type

EACH = "*"  # instead of a relation: each is an edge type
ID_TYPES = ("auto", "int", "str")


def plan_files(spec: GraphSpec, inputs: Inputs) -> GraphPlan:
    """Read everything a spec names.

    Args:
        spec: The graph.
        inputs: Opens files, and has the options.

    Raises:
        InputError: A file is not what it should be; names the place.
    """
    choices = inputs.choices
    choices.is_exact = spec.is_exact
    choices.notes += spec.notes
    plan = GraphPlan(is_hetero=spec.is_hetero, what=spec.what)
    plan.graph_attrs = {k: v for k, v in spec.graph_attrs.items() if choices.wants("", k)}
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
        lists[edge.type] = read_edges(edge, id_types, inputs)
    spaces: dict[NodeType, IdSpace] = {}
    for node_type, node_spec in nodes.items():
        builder = _NodeBuilder(node_type, node_spec, inputs)
        for edge_type, edges in lists.items():
            columns = zip(edges.ends, edges.counts, edges.names, strict=True)
            for end, column in zip(plan.endpoints(edge_type), columns, strict=True):
                if end == node_type:
                    builder.refer(*column)
        plan.nodes[node_type] = builder.build(str(spec.name))
        plan.nodes[node_type].others = node_spec.others
        spaces[node_type] = builder.space
    for edge in spec.edges:
        of_ends, edges = [spaces[end] for end in plan.endpoints(edge.type)], lists[edge.type]
        planned = _plan_edges(edge, edges, of_ends, inputs.options)
        if edge.type is not None and edge.type[1] == EACH:
            plan.edges |= _by_relation(edge.type, planned, edges.path, inputs)
        else:
            plan.edges[edge.type] = planned
    return plan


def _plan_edges(
    spec: EdgeSpec, edges: EdgeList, spaces: list[IdSpace], options: CscOptions
) -> EdgePlan:
    num_edges = len(edges)
    if spec.num_edges not in (None, num_edges):
        raise InputError(edges.path, "edges", num_edges, f"{spec.num_edges}, the number stated")
    columns: dict[str, Rows] = {}
    for name, loaded in edges.attrs.items():
        if len(loaded.rows) != num_edges:
            raise InputError(
                loaded.path,
                name,
                f"{len(loaded.rows)} rows",
                f"{num_edges}, one per edge in {edges.path}",
            )
        columns[name] = loaded.rows
    own = {
        name: value
        for name in ("undirected", "coalesce", "self_loops")
        if (value := getattr(spec, name)) is not None
    }
    checked = replace(options, **own)
    named = {name: each.categories for name, each in edges.attrs.items()}
    _check_categories(spec.type, checked, [name for name in named if named[name] is not None])
    src, dst = (space.rows_of(each) for space, each in zip(spaces, edges.ends, strict=True))
    return EdgePlan(
        stream(src, dst, columns),
        num_edges,
        categories=named,
        others=spec.others,
        options=checked,
    )


def _by_relation(
    edge_type: tuple[str, str, str], edges: EdgePlan, path: Any, inputs: Inputs
) -> dict[EdgeType, EdgePlan]:
    """The edges of each relation as a type of their own."""
    names = edges.categories.get(RELATION)
    if names is None or len(edges.categories) > 1:
        found = ", ".join(edges.categories) or "no column of relations"
        raise InputError(path, f"edge_type {edge_type}", found, f"triples, {RELATION} alone")
    spool = RowSpool(inputs.space, "relations", torch.empty((0, 2), dtype=torch.int64))
    bounds = [np.zeros(len(names) + 1, np.int64)]
    for chunk in edges.chunks():
        codes = chunk.columns[RELATION].long()
        ends = torch.stack([chunk.src.long(), chunk.dst.long()], dim=1)
        spool.append(ends[codes.argsort(stable=True)])
        counts = torch.bincount(codes, minlength=len(names)).numpy()
        bounds.append(bounds[-1][-1] + np.cumsum([0, *counts]))
    rows = spool.finish()

    def chunks(code: int) -> Iterator[EdgeChunk]:
        for starts in bounds:
            src, dst = rows.read(starts[code], starts[code + 1]).unbind(1)
            yield EdgeChunk(src, dst)

    total = np.diff(np.stack(bounds)).sum(axis=0)
    return {
        (edge_type[0], name, edge_type[2]): EdgePlan(
            partial(chunks, code), int(total[code]), edges.options
        )
        for code, name in enumerate(names.to_pylist())
    }


def _check_categories(edge_type: EdgeType, options: CscOptions, names: list[str]) -> None:
    """Refuse to add names up, or to make up the name of a loop."""
    option = "coalesce" if options.coalesce in ("sum", "mean") else "self_loops"
    if names and (option == "coalesce" or options.self_loops == "add"):
        raise ValueError(
            f"{option}={getattr(options, option)!r}: found the edge attribute {names[0]!r}"
            f"{of_type(edge_type)} whose values are names, expected numbers; leave it out "
            f"(skip, --skip {names[0]}), or pass another {option}"
        )


class _NodeBuilder:
    """Gathers what is known of one node type, then settles its rows."""

    def __init__(self, node_type: NodeType, spec: NodeSpec, inputs: Inputs) -> None:
        self._spec = spec
        self._inputs = inputs
        self._label = node_type or ""
        self.space = IdSpace(inputs.space, self._label, policy=spec.ids, num_nodes=spec.num_nodes)
        wanted = {k: v for k, v in spec.attrs.items() if inputs.choices.wants(self._label, k)}
        self._attrs: dict[str, OfNodes] = {}
        self._id_names: set[str] = set()
        if spec.file is not None:
            wanted = self._read_table(wanted)
        elif spec.id is not None:
            is_text = {"auto": None, "int": False, "str": True}[spec.id_type]
            ids = inputs.load_ids(spec.id, is_text, "ids")
            if not isinstance(ids, IdColumn):
                raise InputError(ids.path, "ids", "booleans", "integers or strings")
            self.space.table = ids
        sets = {*filter(is_index_name, wanted)} if spec.sets is None else spec.sets
        self._sets = {k: v for k, v in wanted.items() if k in sets or isinstance(v, Scattered)}
        self._others = {k: v for k, v in wanted.items() if k not in self._sets}

    def _read_table(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Read the node table; returns the attributes that are not in it."""
        spec = self._spec
        named = () if spec.id is None else (spec.id,)
        dialect, reference = self._inputs.open(spec.file, "", named, **layout_of(spec))
        if dialect is None:
            place, found = f"<{self._label or 'nodes'}>", type(spec.file).__name__
            if reference.files:
                place, found = str(reference.path), reference.suffix
            raise InputError(place, "node table", found, "text, Parquet or Arrow")
        position = (
            first_column(dialect, "id, --node-id") if spec.id is None else dialect.position(spec.id)
        )
        is_text = spec.id_type == "str" or (spec.id_type == "auto" and dialect.is_text(position))
        own, external = split_own(dialect, wanted)
        ids, loaded = self._inputs.columns(dialect, own, [(position, is_text)])
        self._attrs = {name: OfNodes(each) for name, each in loaded.items()}
        self._id_names |= set(dialect.names[position : position + 1])
        self.space.table = ids[0]
        note_untaken(dialect, {position}.union(*own.values()), self._inputs)
        return external

    def refer(self, column: IdColumn, num_nodes: int | None, name: str) -> None:
        """Note a column of ids of this type, its name, and the number of nodes its input states."""
        self.space.columns.append(column)
        self._id_names |= {name} - {""}
        if num_nodes is not None and self.space.known_rows is None:
            self.space.known_rows = (num_nodes, str(column.path))

    def build(self, spec_name: str) -> NodePlan:
        """Settle the rows."""
        space = self.space
        self._read_attrs()
        known = (space.num_nodes, space.known_rows, space.table)
        if not space.columns and known == (None, None, None):
            raise InputError(
                spec_name, f"nodes.{self._label}", "no table, edges, num_nodes or attributes", "one"
            )
        num_nodes = space.resolve()
        if num_nodes == 0 and not self._label and known[:2] == (None, None):
            if space.table is not None:
                raise InputError(space.table.path, "file", "no rows", "at least one node")
            path = space.columns[0].path if space.columns else spec_name
            raise InputError(path, "file", "no edges and no nodes", "at least one node")
        node = NodePlan(num_nodes, ids=space.ids, note=space.note)
        for name, found in self._attrs.items():
            self._put(node, name, found, self._inputs.choices.fill(name))
        if space.ids is not None and space.table is None:
            in_order = ", ".join(name for name, found in self._attrs.items() if found.ids is None)
            if in_order:
                told = f"{in_order}: rows are taken in ascending order of the ids"
                self._inputs.choices.note(told)
        for name, source in self._sets.items():
            self._add_set(node, name, source)
        node.attrs = {name: node.attrs[name] for name in self._spec.attrs if name in node.attrs}
        return node

    def _read_attrs(self) -> None:
        """Open the attributes that are not columns of the node table."""
        known = None  # by the first that says it
        for name, source in self._others.items():
            found = self._attrs[name] = self._of_nodes(name, source)
            if found.ids is not None:
                self.space.columns.append(found.ids)
            else:
                known = known or (len(found.loaded.rows), f"{found.loaded.path} ({name})")
        self.space.known_rows = known or self.space.known_rows

    def _of_nodes(self, name: str, source: Any) -> OfNodes:
        columns = (self.space.table, *self.space.columns)
        kinds = [column.is_text for column in columns if column is not None and len(column)]
        is_text = kinds[0] if kinds else None
        return load_of_nodes(self._inputs, name, source, self._id_names, is_text)

    def _put(self, node: NodePlan, name: str, found: OfNodes, fill: Fill | None) -> None:
        """Give the nodes an attribute."""
        loaded = in_node_order(found, name, self.space, fill, self._inputs.choices.note)
        if len(loaded.rows) != node.num_nodes:
            called = f"{self._label!r} nodes" if self._label else "nodes"
            raise InputError(
                loaded.path,
                name,
                f"{len(loaded.rows)} rows",
                f"{node.num_nodes}, the number of {called} ({node.note})",
            )
        node.attrs[name], node.categories[name] = loaded.rows, loaded.categories

    def _add_set(self, node: NodePlan, name: str, source: Any) -> None:
        if isinstance(source, Scattered):
            node.attrs[name] = self._scattered(node, name, source)
            return
        found = self._find(node, name, source)
        if isinstance(found, Loaded):
            self._put(node, name, self._of_nodes(name, source), None)
        else:
            node.index_sets[name] = found

    def _find(self, node: NodePlan, name: str, source: Any) -> torch.Tensor | Loaded:
        """Rows of the nodes in a set; booleans come as they are, being a mask.

        A set holds ids as the user knows them, so it goes through the same map as the edges.
        """
        is_text = node.ids is not None and not isinstance(node.ids, Rows)
        found = self._inputs.load_ids(source, is_text, name)
        if isinstance(found, Loaded):
            return found
        return torch.cat([NO_ROWS, *self.space.rows_of(found).slabs()])

    def _scattered(self, node: NodePlan, name: str, source: Scattered) -> Rows:
        places, values = [], []
        for ids, value in source.parts:
            found = self._find(node, name, ids)
            if isinstance(found, Loaded):
                raise InputError(found.path, name, "booleans", "ids of nodes")
            places.append(found)
            if isinstance(value, bool):
                values.append(torch.full((len(found),), value))
                continue
            loaded = self._inputs.load(name, value)
            if loaded.rows.shape != (len(found),):
                expected = f"{len(found)} values, one per node of the set"
                raise InputError(loaded.path, name, f"shape {list(loaded.rows.shape)}", expected)
            values.append(loaded.rows.read(0, len(found)))
        return scattered_rows(node.num_nodes, torch.cat(places), torch.cat(values), source.fill)


def has_edges(value: Any) -> bool:
    """Whether a source in memory is edges: arrays, a table or a sparse matrix."""

    def is_array(part: Any) -> bool:
        return isinstance(part, np.ndarray | torch.Tensor) or is_series(part)

    if isinstance(value, tuple):
        return len(value) == 2 and all(map(is_array, value))
    if is_frame(value) or is_sparse(value):
        return True
    return is_array(value) or (isinstance(value, Mapping) and any(map(is_array, value.values())))
