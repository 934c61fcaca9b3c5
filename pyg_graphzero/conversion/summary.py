"""Summary of a conversion, for people and for programs: the store, and what became of the input."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyg_graphzero.conversion.plan import EdgeType, NodeType, edge_label
from pyg_graphzero.store.info import Info, type_lines
from pyg_graphzero.util.html import Shown
from pyg_graphzero.util.sizes import format_bytes


@dataclass
class NodeSummary:
    """One node type.

    Attributes:
        num_nodes: Its nodes.
        isolated: Nodes without any edge, whatever its type or direction.
        ids: How the user's ids became rows; empty when they are the rows by definition.
    """

    num_nodes: int
    isolated: int = 0
    ids: str = ""

    @property
    def shown(self) -> list[str]:
        """All that is said behind the number of nodes."""
        parts = [f"{self.isolated:,} without edges"] if self.isolated else []
        return [*parts, self.ids] if self.ids else parts


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
        stats: Effects of the options: edges ``reversed``, ``merged``, ``input_self_loops`` found,
            ``self_loops_added``; ``scratch_bytes`` of edges written to temporary files, of which
            ``scratch_peak`` lay there at a time.
    """

    num_input: int
    num_edges: int
    duplicates: int = 0
    self_loops: int = 0
    degrees: dict[str, int] = field(default_factory=dict)
    time_order: str | None = None
    stats: dict[str, Any] = field(default_factory=dict)

    @property
    def shown(self) -> list[str]:
        """All that is said behind the number of edges."""
        counts = {"in the input": self.num_input if self.num_input != self.num_edges else 0}
        counts |= {"duplicates": self.duplicates, "self-loops": self.self_loops}
        parts = [f"{count:,} {name}" for name, count in counts.items() if count]
        return parts + [f"neighbourhoods by {self.time_order}"] * (self.time_order is not None)


@dataclass
class ConvertSummary(Shown):
    """Result of a conversion; ``str()`` of it is what the command line prints.

    Attributes:
        path: The store.
        info: Its contents: dtypes, shapes, bytes; see :func:`pyg_graphzero.info`.
        what: Kind of the input.
        nodes: By node type; ``None`` when homogeneous.
        edges: By edge type; ``None`` when homogeneous.
        notes: Sentences on facts that the result does not show.
        seconds: Wall time.
        peak_memory: The most that the process has had in memory, in bytes.
    """

    path: Path
    info: Info
    what: str = ""
    nodes: dict[NodeType, NodeSummary] = field(default_factory=dict)
    edges: dict[EdgeType, EdgeSummary] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
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
        size, memory = format_bytes(self.info["bytes"]), format_bytes(self.peak_memory)
        lines = [f"{self.path}: {size} in {self.seconds:.1f} s, {memory} of memory at most"]
        lines += [f"  from: {self.what}"] * bool(self.what)
        lines += type_lines(self.info, self.nodes, self.edges)
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])
