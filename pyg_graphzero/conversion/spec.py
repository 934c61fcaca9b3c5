"""Specification of a graph in files: a dict in Python, TOML or JSON on disk.

::

    [nodes.movie]
    file = "movies.csv"
    id = "movieId"
    attrs = { x = "genres.npy" }

    [[edges]]
    type = ["user", "rates", "movie"]
    file = "ratings.csv"
    src = "userId"
    dst = "movieId"
    attrs = { edge_weight = "rating", time = "timestamp" }

Every key is a field of :class:`NodeSpec` or :class:`EdgeSpec`. A homogeneous graph is one of
each, both for the type ``None``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar

from pyg_graphzero.conversion.plan import EdgeType, NodeType
from pyg_graphzero.conversion.tables import is_frame
from pyg_graphzero.errors import InputError
from pyg_graphzero.util.reading import reading

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SPEC_SUFFIXES = (".toml", ".json")
# Arguments of ``convert`` that describe a graph without a specification.
_LAYOUT = ("delimiter", "header", "comment")
_ABOUT = "src dst edge_attrs nodes node_attrs num_nodes edge_type ids id_type edge_layout format"
FLAT = (*_ABOUT.split(), *_LAYOUT)


@dataclass
class NodeSpec:
    """One node type.

    Attributes:
        file: Node table (text, Parquet or Arrow): one row per node, in the order the store will
            have.
        id: Its id column, the first one by default; or, without a table, any source of ids.
        attrs: Attribute or index set → column(s) of the table, or any source.
        num_nodes: Number of nodes, where edges alone do not tell.
        ids: ``"auto"``, ``"dense"`` or ``"map"``.
        id_type: ``"auto"``, ``"int"`` or ``"str"``.
        delimiter, header, comment: Layout of the table; detected.
        sets: Names of attributes that are sets of nodes; None for those that are called so.
        others: Tensors of any shape, or JSON scalars, that belong to the type as a whole.
    """

    file: Any = None
    id: Any = None
    attrs: dict[str, Any] = field(default_factory=dict)
    num_nodes: int | None = None
    ids: str = "auto"
    id_type: str = "auto"
    delimiter: str | None = None
    header: bool | None = None
    comment: str | None = "#"
    sets: set[str] | None = None
    others: dict[str, Any] = field(default_factory=dict)


@dataclass
class EdgeSpec:
    """One edge type.

    Attributes:
        type: ``(source type, relation, destination type)``; ``None`` when homogeneous.
        file: Files with one edge per row, or any source of an edge index.
        src, dst: Columns of the file; by the usual names, else the first two.
        attrs: Attribute → column(s) of the file, or any source.
        format: Kind of the file, where its name does not tell: ``"text"``, ``"nt"`` …
        edge_layout: ``"2xE"`` or ``"Ex2"`` where the shape does not tell.
        delimiter, header, comment: Layout of the file; detected.
        num_edges: Number of edges in the file, if it is known: another one is an error.
        undirected, coalesce, self_loops: Options of ``convert`` for this type alone.
        name: Arrays in memory, for messages.
        others: Tensors of any shape, or JSON scalars, that belong to the type as a whole.
    """

    type: EdgeType = None
    file: Any = None
    src: Any = None
    dst: Any = None
    attrs: dict[str, Any] = field(default_factory=dict)
    format: str | None = None
    edge_layout: str | None = None
    delimiter: str | None = None
    header: bool | None = None
    comment: str | None = "#"
    num_edges: int | None = None
    undirected: bool | None = None
    coalesce: str | None = None
    self_loops: str | None = None
    name: Path = Path("<edge_index>")
    others: dict[str, Any] = field(default_factory=dict)


#: Fields that readers set and users do not.
_INTERNAL = ("sets", "others", "name")


@dataclass
class GraphSpec:
    """A graph in files.

    Attributes:
        name: Where it was read from, for messages.
        what: Kind of the input.
        notes: Sentences on facts that the result does not show.
        graph_attrs: Tensors that belong to the graph as a whole.
        is_exact: Whether ``float64`` stays so, of ``x`` too.
        base: Directory that relative paths start from.
    """

    nodes: dict[NodeType, NodeSpec]
    edges: list[EdgeSpec]
    name: str | Path = "<spec>"
    what: str = "specification"
    notes: list[str] = field(default_factory=list)
    graph_attrs: dict[str, Any] = field(default_factory=dict)
    is_exact: bool = False
    base: Path = Path()

    @property
    def is_hetero(self) -> bool:
        """Whether types have names."""
        return any(edge.type is not None for edge in self.edges) or None not in self.nodes


def layout_of(spec: NodeSpec | EdgeSpec) -> dict[str, Any]:
    """The layout of the text of a table, as far as it is known."""
    return {key: getattr(spec, key) for key in _LAYOUT}


def load_spec(path: Path) -> dict[str, Any]:
    """Parse a TOML or JSON file.

    Raises:
        InputError: It is neither.
    """
    with reading(path, "spec", f"valid {path.suffix[1:].upper()}"):
        raw = path.read_text(encoding="utf-8")
        value = json.loads(raw) if path.suffix == ".json" else tomllib.loads(raw)
    if not isinstance(value, dict):
        raise InputError(path, "spec", type(value).__name__, "a table with nodes and edges")
    return value


def parse_spec(value: Mapping[str, Any], name: str | Path = "<spec>") -> GraphSpec:
    """Check a spec and give it types.

    Raises:
        InputError: A key is unknown or missing, or a value is of the wrong kind.
    """
    for key in value:
        if key not in ("nodes", "edges"):
            raise InputError(name, f"key {key!r}", "an unknown key", "nodes or edges")
    nodes: dict[NodeType, NodeSpec] = {}
    raw_nodes, raw_edges = value.get("nodes", {}), value.get("edges", [])
    if not isinstance(raw_nodes, Mapping):
        raise InputError(name, "nodes", type(raw_nodes).__name__, "a table of node types")
    if not isinstance(raw_edges, list | tuple):
        raise InputError(name, "edges", type(raw_edges).__name__, "a list of edge types")
    for node_type, body in raw_nodes.items():
        nodes[node_type] = parse_node(body, f"nodes.{node_type}", name)
    edges = []
    for number, body in enumerate(raw_edges):
        where = f"edges[{number}]"
        edge = _fill(EdgeSpec, body, where, name)
        if edge.file is None:
            raise InputError(name, where, "no file", "a file with the edges")
        if edge.type is not None:
            edge.type = edge_type_of(edge.type, f"{where}.type", name)
        edges.append(edge)
    homogeneous = [edge for edge in edges if edge.type is None]
    if homogeneous and (len(edges) > 1 or nodes):
        raise InputError(name, "edges", "an edge type without a type", "a type for each")
    types = [edge.type for edge in edges]
    for edge_type in types:
        if types.count(edge_type) > 1:
            raise InputError(name, "edges", f"{edge_type} twice", "each edge type once")
    if not nodes and not edges:
        raise InputError(name, "spec", "neither nodes nor edges", "at least one edge type")
    return GraphSpec({None: NodeSpec()} if homogeneous else nodes, edges, name)


def parse_node(body: Any, where: str, name: str | Path) -> NodeSpec:
    """One node type from a mapping, or from the path of its table."""
    if isinstance(body, str | os.PathLike) or is_frame(body):
        body = {"file": body}
    return _fill(NodeSpec, body, where, name)


def parse_attrs(value: Any, where: str, name: str | Path) -> dict[str, Any]:
    """Attributes as a mapping; a list of columns names them after themselves."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return {str(key): source for key, source in value.items()}
    if isinstance(value, list | tuple) and all(isinstance(column, str) for column in value):
        columns = [part.strip() for column in value for part in column.split(",")]
        return {column: column for column in columns}
    raise InputError(name, where, type(value).__name__, "attribute = source, or a list of columns")


def flat_spec(source: Any, flat: Mapping[str, Any]) -> GraphSpec:
    """One edge type and its node types from the arguments of ``convert``.

    Raises:
        ValueError: With an edge type, an argument does not say which node type it is about.
    """
    given = {key: flat[key] for key in ("src", "dst", "format", "edge_layout", *_LAYOUT)}
    given["attrs"] = parse_attrs(flat["edge_attrs"], "edge_attrs", "convert")
    edge = _fill(EdgeSpec, given | {"file": source}, "", "convert")
    ends: tuple[NodeType, ...] = (None,)
    if flat["edge_type"] is not None:
        edge.type = edge_type_of(flat["edge_type"], "edge_type", "convert")
        ends = (edge.type[0], edge.type[2])
    options = {key: flat[key] for key in ("ids", "id_type") if flat[key] is not None}
    tables, counts = (_by_type(option, flat[option], ends) for option in ("nodes", "num_nodes"))
    nodes: dict[NodeType, NodeSpec] = {}
    for end in ends:
        body = tables.get(end, {})
        body = body if isinstance(body, Mapping) else {"file": body}
        counted = {"num_nodes": counts[end]} if end in counts else {}
        where = "nodes" if end is None else f"nodes.{end}"
        nodes[end] = parse_node({**body, **options, **counted}, where, "convert")
    for name, value in parse_attrs(flat["node_attrs"], "node_attrs", "convert").items():
        end, _, attr = (None, "", name) if edge.type is None else name.rpartition(".")
        if end not in nodes:
            there = " or ".join(f"{each}.{name}" for each in nodes)
            raise ValueError(f"node_attrs names {name!r}, but no node type: expected {there}")
        is_bare = isinstance(value, str) and value == name  # and its column is called so
        nodes[end].attrs[attr] = attr if is_bare else value
    return GraphSpec(nodes, [edge])


def _by_type(option: str, value: Any, types: Collection[NodeType]) -> Mapping[NodeType, Any]:
    """An option by node type, which it has to name where there are several."""
    if value is None:
        return {}
    if None in types:
        return {None: value}
    if not isinstance(value, Mapping) or not value.keys() <= {*types}:
        found = list(value) if isinstance(value, Mapping) else value
        raise ValueError(
            f"{option}: found {found!r}, expected node type = value beside edge_type, for "
            f"{' or '.join(map(str, dict.fromkeys(types)))}"
        )
    return value


def edge_type_of(value: Any, where: str, name: str | Path) -> tuple[str, str, str]:
    """An edge type out of three words, or of text with commas between them.

    Raises:
        InputError: There are more or fewer, or one is empty.
    """
    parts = value.split(",") if isinstance(value, str) else value
    parts = list(parts) if isinstance(parts, list | tuple) else []
    if len(parts) != 3 or not all(isinstance(part, str) and part for part in parts):
        raise InputError(name, where, repr(value), '["src", "rel", "dst"]')
    return parts[0].strip(), parts[1].strip(), parts[2].strip()


# Types of fields that are looked at, by how these declare them; a truth value is no number.
_KINDS = {"int": Integral, "bool": bool, "str": str}
Spec = TypeVar("Spec", NodeSpec, EdgeSpec)


def _fill(kind: type[Spec], body: Any, where: str, name: str | Path) -> Spec:
    if not isinstance(body, Mapping):
        raise InputError(name, where, type(body).__name__, "a table of keys")
    known = {each.name: str(each.type) for each in fields(kind) if each.name not in _INTERNAL}
    values = dict(body)
    for key, value in body.items():
        place = f"{where}.{key}".lstrip(".")
        if key not in known:
            raise InputError(name, place, "an unknown key", ", ".join(known))
        wanted = known[key].partition(" | ")[0]
        is_kind = isinstance(value, _KINDS.get(wanted, object))
        if value is not None and (not is_kind or (wanted == "int" and isinstance(value, bool))):
            raise InputError(name, place, repr(value), f"a value of type {wanted}")
        if value is not None and wanted == "int":
            values[key] = int(value)  # NumPy's, too
    values["attrs"] = parse_attrs(values.get("attrs"), f"{where}.attrs", name)
    return kind(**values)
