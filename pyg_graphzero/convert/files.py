"""A graph in files, as a spec describes it, to a plan: ids become rows, attributes find them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..errors import InputError
from . import text
from .dialect import Dialect, sniff
from .edges import EdgeList, read_edges, split_own, untaken
from .ids import IdColumn, IdSpace
from .options import Selection, edge_options
from .plan import (
    Array,
    EdgeOptions,
    EdgePlan,
    EdgeType,
    GraphPlan,
    NodePlan,
    NodeType,
    stream,
)
from .sources import Inputs, Loaded
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
    columns: dict[str, Array] = {}
    for name, loaded in edges.attrs.items():
        if len(loaded.array) != num_edges:
            raise InputError(
                loaded.path,
                name,
                f"{len(loaded.array)} rows",
                f"{num_edges}, one per edge in {edges.src.path}",
            )
        columns[name] = loaded.array
    own = {
        name: value
        for name in ("undirected", "coalesce", "self_loops")
        if (value := getattr(spec, name)) is not None
    }
    checked = replace(options, **own)
    return EdgePlan(
        stream(list(zip(edges.src.chunks, edges.dst.chunks, strict=True)), columns),
        num_edges,
        edge_options(checked.undirected, checked.coalesce, checked.self_loops),
    )


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
        self._sets = {k: v for k, v in wanted.items() if is_index_name(k)}
        for name in wanted.keys() - self._sets.keys():
            self._attrs[name] = inputs.load(name, wanted[name])
        for name in wanted:  # in the order given
            if name in self._attrs and self._space.known_rows is None:
                loaded = self._attrs[name]
                self._space.known_rows = (len(loaded.array), f"{loaded.path} ({name})")

    def _read_table(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Read the node table; returns the attributes that are not in it."""
        spec = self._spec
        named = () if spec.id is None else (spec.id,)
        reference = self._inputs.reference(spec.file)
        if reference.kind != "text":
            raise InputError(reference.path, "node table", reference.path.suffix, "text")
        dialect: Dialect = sniff(
            reference.path,
            delimiter=spec.delimiter,
            header=spec.header,
            comment=spec.comment,
            wanted=named,
        )
        position = dialect.position(0 if spec.id is None else spec.id)
        is_text = spec.id_type == "str" or (
            spec.id_type == "auto" and text.is_text_id(dialect, position)
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

    def _checked(self, name: str, loaded: Loaded, num_nodes: int) -> Array:
        if len(loaded.array) != num_nodes:
            called = f"{self._label!r} nodes" if self._label else "nodes"
            raise InputError(
                loaded.path,
                name,
                f"{len(loaded.array)} rows",
                f"{num_nodes}, the number of {called} ({self._space.note})",
            )
        return loaded.array

    def _add_set(self, node: NodePlan, name: str, source: Any) -> None:
        """A set holds ids as the user knows them, so it goes through the same map as the edges."""
        ids = node.ids
        is_text = ids is not None and not isinstance(ids, np.ndarray)
        found = self._inputs.load_ids(source, is_text, name)
        if isinstance(found, Loaded):
            node.attrs[name] = self._checked(name, found, node.num_nodes)
            return
        space = self._space
        if ids is not None:
            node.index_sets[name] = space.lookup(found)
            return
        bad = found.first(lambda chunk: (chunk < 0) | (chunk >= node.num_nodes))
        if bad is not None:
            raise found.fail(bad, f"an id of 0…{node.num_nodes - 1}")
        node.index_sets[name] = np.concatenate([np.empty(0, np.int64), *found.chunks])


def has_edges(value: Any) -> bool:
    """Whether a source in memory is an edge index: an array, a pair of them, or named ones."""

    def is_array(part: Any) -> bool:
        return isinstance(part, np.ndarray | torch.Tensor)

    if isinstance(value, tuple):
        return len(value) == 2 and all(map(is_array, value))
    return is_array(value) or (isinstance(value, Mapping) and any(map(is_array, value.values())))
