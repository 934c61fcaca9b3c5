"""Graphs that other libraries hold in memory, NetworkX and DGL, to a specification.

They are told by what they can do, so neither library has to be installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pyg_graphzero.conversion.plan import EdgeType, NodeType
from pyg_graphzero.conversion.spec import EdgeSpec, GraphSpec, NodeSpec
from pyg_graphzero.conversion.tables import ROWS_ARE
from pyg_graphzero.errors import InputError
from pyg_graphzero.util.reading import reading

# Names of attributes in DGL's datasets, and in PyG.
_DGL_NODES = {"feat": "x", "label": "y"}
_DGL_EDGES = {"feat": "edge_attr", "weight": "edge_weight", "w": "edge_weight"}
_NUMBERS = (int, float, np.integer, np.floating, np.bool_)


def graph_spec(value: Any) -> GraphSpec | None:
    """The graph of an object of NetworkX or DGL; None if it is none of these.

    Raises:
        InputError: Its nodes are called by something else than integers or strings, or numbers
            among its attributes do not make a column.
    """
    if isinstance(value, type):
        return None
    if all(hasattr(value, name) for name in ("ntypes", "canonical_etypes", "num_nodes", "edges")):
        return _dgl(value)
    if all(hasattr(value, name) for name in ("is_directed", "adjacency", "nodes", "edges")):
        return _networkx(value)
    return None


def _networkx(graph: Any) -> GraphSpec:
    name = f"<{type(graph).__name__}>"
    nodes, notes = list(graph.nodes(data=True)), []
    ids = [node for node, _ in nodes]
    kinds = {type(node) for node in ids}
    if not kinds <= {int} and not kinds <= {str}:
        other = next(
            node for node in ids if type(node) is not type(ids[0]) or type(node) is not int
        )
        hint = "networkx.convert_node_labels_to_integers(graph, label_attribute=...) numbers them."
        raise InputError(name, "nodes", repr(other), "integers, or strings, for all nodes", hint)
    columns, left = _columns([attrs for _, attrs in nodes], name, "nodes")
    id_type = pa.int64() if kinds <= {int} else pa.string()
    with reading(name, "nodes", "integers below 2**63, or strings"):
        id_column = pa.array(ids, id_type)
    table = _table({"id": id_column}, columns, name, "node")
    node = NodeSpec(table, "id", _same(columns))
    edges = list(graph.edges(data=True))
    weights, also_left = _columns([attrs for *_, attrs in edges], name, "edges")
    ends = {
        end: pa.array([edge[place] for edge in edges], id_type)
        for place, end in enumerate(("source id", "target id"))
    }
    edge = EdgeSpec(None, _table(ends, weights, name, "edge"), attrs=_same(weights))
    edge.src, edge.dst = ends
    edge.undirected = not graph.is_directed()
    for what, names in (("nodes", left), ("edges", also_left)):
        if names:
            notes.append(f"of {what} not taken, being no numbers: {', '.join(names)}")
    return GraphSpec({None: node}, [edge], name, f"NetworkX {type(graph).__name__}", notes)


def _table(ids: dict[str, Any], columns: dict[str, Any], *called: str) -> Any:
    """A table that is called by a name, and its rows by a word and their ids, in messages."""
    metadata = {ROWS_ARE: "\n".join([*called, *ids])}
    return pa.table({**ids, **columns}).replace_schema_metadata(metadata)


def _columns(
    rows: list[Mapping[Any, Any]], graph: str, what: str
) -> tuple[dict[str, Any], list[str]]:
    """Attributes as Arrow arrays, null where one is missing, and the names of what is no number."""
    columns, left = {}, []
    for key in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(key) for row in rows]
        there = [value for value in values if value is not None]
        if not there or not all(_is_numeric(value) for value in there):
            left.append(str(key))
            continue
        expected = "numbers of one kind that 64 bits hold, or lists of them"
        hint = f"Convert it in the graph, or delete it there, for all {what}."
        with reading(graph, f"attribute {key!r} of {what}", expected, hint=hint):
            columns[str(key)] = pa.array(values)
    return columns, left


def _is_numeric(value: Any) -> bool:
    """Whether this is a number, a truth value, or a list of these."""
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and value.dtype.kind in "biuf"
    if isinstance(value, list | tuple):
        return all(isinstance(each, _NUMBERS) for each in value)
    return isinstance(value, _NUMBERS)


def _same(names: Iterable[str]) -> dict[str, Any]:
    return {name: [name] for name in names}


def _dgl(graph: Any) -> GraphSpec:
    is_hetero = len(graph.ntypes) > 1 or len(graph.canonical_etypes) > 1
    nodes: dict[NodeType, NodeSpec] = {}
    for kind in graph.ntypes:
        attrs = {
            _DGL_NODES.get(name, name): value for name, value in graph.nodes[kind].data.items()
        }
        num_nodes = int(graph.num_nodes(kind))
        nodes[kind if is_hetero else None] = NodeSpec(attrs=attrs, num_nodes=num_nodes, ids="dense")
    edges = []
    for triplet in graph.canonical_etypes:
        src, dst = graph.edges(etype=triplet)
        values = graph.edges[triplet].data.items()
        attrs = {_DGL_EDGES.get(name, name): value for name, value in values}
        edge_type: EdgeType = (triplet[0], triplet[1], triplet[2]) if is_hetero else None
        edges.append(EdgeSpec(edge_type, (src, dst), attrs=attrs))
    name = type(graph).__name__
    return GraphSpec(nodes, edges, f"<{name}>", f"DGL {name}")
