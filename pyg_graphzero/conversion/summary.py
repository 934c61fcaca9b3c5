"""Summaries of a conversion, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyg_graphzero.conversion.plan import EdgeType, NodeType, edge_label
from pyg_graphzero.store.encoding import EncodingLoss
from pyg_graphzero.util.html import Shown
from pyg_graphzero.util.sizes import format_bytes


@dataclass
class NodeSummary:
    """One node type.

    Attributes:
        attrs: Attribute → dtype and shape of a row, ``"float32[128]"``.
        index_sets: Name → length.
        losses: Encoded attribute → what encoding has cost.
        adopted: Attribute that was not copied → the file it lies in.
        isolated: Nodes without any edge, whatever its type or direction.
        ids: How the user's ids became rows; empty when they are the rows by definition.
        categories: Attribute that was text → how many names its values have.
        others: Attributes of the type as a whole.
    """

    num_nodes: int
    attrs: dict[str, str] = field(default_factory=dict)
    index_sets: dict[str, int] = field(default_factory=dict)
    losses: dict[str, EncodingLoss] = field(default_factory=dict)
    adopted: dict[str, str] = field(default_factory=dict)
    isolated: int = 0
    ids: str = ""
    categories: dict[str, int] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)


@dataclass
class EdgeSummary:
    """One edge type.

    Attributes:
        num_input: Edges read.
        num_edges: Edges stored.
        duplicates: Edges stored beyond the first between the same two nodes.
        self_loops: Stored edges from a node to itself; 0 between two node types.
        degrees: In-degrees: the least, quartiles, the 99th percentile and the largest.
        time_order: The attribute that neighbourhoods are sorted by.
        edge_ids: Whether it is kept which edge of the input is which.
        stats: Effects of the options: edges ``reversed``, ``merged``, ``input_self_loops`` found,
            ``self_loops_added``; ``scratch_bytes`` of edges written to temporary files, of which
            ``scratch_peak`` lay there at a time.
        categories: See :class:`NodeSummary`.
        others: Attributes of the type as a whole.
    """

    num_input: int
    num_edges: int
    attrs: dict[str, str] = field(default_factory=dict)
    duplicates: int = 0
    self_loops: int = 0
    degrees: dict[str, int] = field(default_factory=dict)
    time_order: str | None = None
    edge_ids: bool = True
    stats: dict[str, Any] = field(default_factory=dict)
    categories: dict[str, int] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)


@dataclass
class ConvertSummary(Shown):
    """Result of a conversion; ``str()`` of it is what the command line prints.

    Attributes:
        path: The store.
        what: Kind of the input.
        num_bytes: Its size on disk.
        seconds: Wall time.
        peak_memory: The most that the process has had in memory, in bytes.
        notes: Sentences on facts that the result does not show.
        two_kinds: The edge type that edges without types seem to be of: the ends are two kinds of
            nodes, by the names or the ranges of their columns.
    """

    path: Path
    what: str = ""
    nodes: dict[NodeType, NodeSummary] = field(default_factory=dict)
    edges: dict[EdgeType, EdgeSummary] = field(default_factory=dict)
    graph_attrs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    two_kinds: EdgeType = None
    num_bytes: int = 0
    seconds: float = 0.0
    peak_memory: int = 0

    @property
    def num_nodes(self) -> int:
        """Nodes of all types."""
        return sum(node.num_nodes for node in self.nodes.values())

    @property
    def num_edges(self) -> int:
        """Stored edges of all types."""
        return sum(edge.num_edges for edge in self.edges.values())

    def to_dict(self) -> dict[str, Any]:
        """For JSON; types by their label, ``""`` when homogeneous."""
        return vars(self) | {
            "path": str(self.path),
            "nodes": {name or "": asdict(node) for name, node in self.nodes.items()},
            "edges": {edge_label(name): asdict(edge) for name, edge in self.edges.items()},
        }

    def __str__(self) -> str:
        size, memory = format_bytes(self.num_bytes), format_bytes(self.peak_memory)
        lines = [f"{self.path}: {size} in {self.seconds:.1f} s, {memory} of memory at most"]
        if self.what:
            lines.append(f"  from: {self.what}")
        for name, node in self.nodes.items():
            lines.append(f"  {name or 'nodes'}: {node.num_nodes:,} nodes{_extras(node)}")
            lines += [f"    {attr}: {kind}{_kept(node, attr)}" for attr, kind in node.attrs.items()]
            lines += [f"    {attr}: {size:,} nodes" for attr, size in node.index_sets.items()]
            lines += [f"    of the type: {', '.join(node.others)}"] * bool(node.others)
        for edge_type, edge in self.edges.items():
            label = "edges" if edge_type is None else " → ".join(edge_type)
            lines.append(f"  {label}: {edge.num_edges:,} edges{_edge_extras(edge)}")
            lines += [
                f"    {attr}: {kind}{_named(edge, attr)}" for attr, kind in edge.attrs.items()
            ]
            lines += [f"    of the type: {', '.join(edge.others)}"] * bool(edge.others)
            if edge.num_edges:
                shares = ", ".join(f"{name} {value:,}" for name, value in edge.degrees.items())
                lines.append(f"    in-degrees: {shares}")
        if self.graph_attrs:
            lines.append(f"  graph: {', '.join(self.graph_attrs)}")
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def _kept(node: NodeSummary, attr: str) -> str:
    if attr in node.adopted:
        return f", adopted from {node.adopted[attr]}"
    loss = node.losses.get(attr)
    return _named(node, attr) if loss is None else f" as {loss.encoding}: {loss}"


def _named(summary: NodeSummary | EdgeSummary, attr: str) -> str:
    return f", {summary.categories[attr]:,} categories" if attr in summary.categories else ""


def _extras(node: NodeSummary) -> str:
    parts = [f"{node.isolated:,} without edges"] if node.isolated else []
    return "".join(f", {part}" for part in [*parts, node.ids] if part)


def _edge_extras(edge: EdgeSummary) -> str:
    parts = []
    if edge.num_input != edge.num_edges:
        parts.append(f"{edge.num_input:,} in the input")
    if edge.duplicates:
        parts.append(f"{edge.duplicates:,} duplicates")
    if edge.self_loops:
        parts.append(f"{edge.self_loops:,} self-loops")
    if edge.time_order is not None:
        parts.append(f"neighbourhoods by {edge.time_order}")
    if not edge.edge_ids:
        parts.append("no edge ids")
    return "".join(f", {part}" for part in parts)
