"""The graph plan: what every reader produces and the one thing that gets written.

A plan says what a graph consists of; it does not hold it. Attributes are rows that are read when
they are written, and edges a factory of chunk streams, so that a builder may read them as often
and as slowly as it likes. A homogeneous graph has one node type and one edge type, both called
``None``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from pyg_graphzero.store.csc import CscOptions, EdgeChunk
from pyg_graphzero.store.rows import Rows

Array = np.ndarray | torch.Tensor
NodeType = str | None
EdgeType = tuple[str, str, str] | None

# Edges handed to the builder at once: 16 MiB of endpoints and attributes.
CHUNK_BYTES = 16 << 20


@dataclass
class NodePlan:
    """One node type.

    Attributes:
        num_nodes: Rows of every attribute.
        attrs: Tables of ``num_nodes`` rows.
        index_sets: 1-D ``int64`` rows, of any length (``train_idx`` …).
        ids: The user's id of each row (``int64`` or strings); ``None`` when it is the row.
        note: How the ids were understood, for the summary.
        categories: Attribute → names of its values 0, 1 …, strings; None if they have none.
        others: Attributes of the type as a whole: tensors of any shape, or JSON scalars.
    """

    num_nodes: int
    attrs: dict[str, Rows] = field(default_factory=dict)
    index_sets: dict[str, Array] = field(default_factory=dict)
    ids: Any = None
    note: str = ""
    categories: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)


@dataclass
class EdgePlan:
    """One edge type.

    Attributes:
        chunks: Starts a new stream over the same edges in the same order; endpoints are rows.
        num_edges: Edges in that stream.
        options: How they become a CSC.
        categories: An entry for every attribute; see :class:`NodePlan`.
        others: See :class:`NodePlan`.
    """

    chunks: Callable[[], Iterator[EdgeChunk]]
    num_edges: int
    options: CscOptions = field(default_factory=CscOptions)
    categories: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)

    def reversed(self) -> EdgePlan:
        """These edges with source and destination swapped and the same columns."""

        def chunks() -> Iterator[EdgeChunk]:
            for chunk in self.chunks():
                yield EdgeChunk(src=chunk.dst, dst=chunk.src, columns=chunk.columns)

        return replace(self, chunks=chunks, others={})


@dataclass
class GraphPlan:
    """A whole graph.

    Attributes:
        nodes: By node type; ``{None: ...}`` when homogeneous.
        edges: By edge type; ``{None: ...}`` when homogeneous.
        graph_attrs: Tensors of any shape, or JSON scalars.
        what: Kind of the input.
        time_attr: Sort neighbourhoods by this attribute of the edges, or of their sources.
        both_directions: Write edges sorted by source, too.
    """

    is_hetero: bool
    nodes: dict[NodeType, NodePlan] = field(default_factory=dict)
    edges: dict[EdgeType, EdgePlan] = field(default_factory=dict)
    graph_attrs: dict[str, Any] = field(default_factory=dict)
    what: str = ""
    time_attr: str | None = None
    both_directions: bool = False

    def endpoints(self, edge_type: EdgeType) -> tuple[NodeType, NodeType]:
        """Source and destination node type of ``edge_type``."""
        return (None, None) if edge_type is None else (edge_type[0], edge_type[2])

    def expand_undirected(self) -> None:
        """Give every undirected edge type between two node types a reverse type.

        One edge type cannot hold both directions when its ends differ, so the other direction
        becomes ``(dst, "rev_" + rel, src)``, as ``torch_geometric.transforms.ToUndirected`` does.

        Raises:
            ValueError: The reverse type exists already.
        """
        for edge_type, edge in list(self.edges.items()):
            if edge_type is None or edge_type[0] == edge_type[2]:
                continue
            undirected = edge.options.undirected
            # Only an edge type whose ends are alike can hold a loop.
            edge.options = replace(edge.options, undirected=False, self_loops="keep")
            if not undirected:
                continue
            reverse = (edge_type[2], f"rev_{edge_type[1]}", edge_type[0])
            if reverse in self.edges:
                raise ValueError(
                    f"undirected=True adds the edge type {reverse}, but the input has it already. "
                    f"Leave one of them out, or pass undirected=False"
                )
            self.edges[reverse] = edge.reversed()


def stream(src: Rows, dst: Rows, columns: dict[str, Rows]) -> Callable[[], Iterator[EdgeChunk]]:
    """A chunk factory over tables that have a row per edge.

    Args:
        src: Source rows, integers ``[num_edges]``.
        dst: Destination rows, likewise.
        columns: Edge attributes.
    """
    num_edges = len(src)
    width = src.row_bytes + dst.row_bytes + sum(rows.row_bytes for rows in columns.values())
    step = max(1, CHUNK_BYTES // width)

    def chunks() -> Iterator[EdgeChunk]:
        # Without edges there is still a chunk: it tells which columns there are, and their dtypes.
        for begin in range(0, max(num_edges, 1), step):
            end = min(begin + step, num_edges)
            ends = src.read(begin, end), dst.read(begin, end)
            yield EdgeChunk(*ends, {name: rows.read(begin, end) for name, rows in columns.items()})

    return chunks


def edge_label(edge_type: EdgeType) -> str:
    """``user,rates,movie``; the empty string for the only type of a homogeneous graph."""
    return "" if edge_type is None else ",".join(edge_type)
