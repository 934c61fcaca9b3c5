"""Graphs that DGL holds in memory, to a specification.

They are told by what they can do, so DGL need not be installed.
"""

from __future__ import annotations

from typing import Any

from pyg_graphzero.conversion.plan import EdgeType, NodeType
from pyg_graphzero.conversion.spec import EdgeSpec, GraphSpec, NodeSpec

# Names of attributes in DGL's datasets, and in PyG.
_NODES = {"feat": "x", "label": "y"}
_EDGES = {"feat": "edge_attr", "weight": "edge_weight", "w": "edge_weight"}


def is_dgl(value: Any) -> bool:
    """Whether this is a graph of DGL."""
    members = ("ntypes", "canonical_etypes", "num_nodes", "edges")
    return not isinstance(value, type) and all(hasattr(value, name) for name in members)


def dgl_spec(graph: Any) -> GraphSpec:
    """Nodes, edges and their data; of one type, they have no names."""
    is_hetero = len(graph.ntypes) > 1 or len(graph.canonical_etypes) > 1
    nodes: dict[NodeType, NodeSpec] = {}
    for kind in graph.ntypes:
        attrs = {_NODES.get(name, name): value for name, value in graph.nodes[kind].data.items()}
        num_nodes = int(graph.num_nodes(kind))
        nodes[kind if is_hetero else None] = NodeSpec(attrs=attrs, num_nodes=num_nodes, ids="dense")
    edges = []
    for triplet in graph.canonical_etypes:
        src, dst = graph.edges(etype=triplet)
        values = graph.edges[triplet].data.items()
        attrs = {_EDGES.get(name, name): value for name, value in values}
        edge_type: EdgeType = (triplet[0], triplet[1], triplet[2]) if is_hetero else None
        edges.append(EdgeSpec(edge_type, (src, dst), attrs=attrs))
    name = type(graph).__name__
    return GraphSpec(nodes, edges, f"<{name}>", f"DGL {name}")
