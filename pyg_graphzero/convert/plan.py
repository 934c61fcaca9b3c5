"""The graph plan: what every reader produces and the one thing that gets written.

A plan says what a graph consists of; it does not copy it. Arrays may be memory-mapped and edges
are a factory of chunk streams, so that a builder may read them as often and as slowly as it
likes. A homogeneous graph has one node type and one edge type, both called ``None``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from .csc import EdgeChunk

Array = np.ndarray | torch.Tensor
NodeType = str | None
EdgeType = tuple[str, str, str] | None

# Slices of whole edge arrays handed to the builder: 64 MiB of endpoints.
CHUNK_EDGES = 1 << 22
_NO_ROWS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class EdgeOptions:
    """How the edges of one type become a CSC; see :func:`pyg_graphzero.convert.convert`."""

    undirected: bool = False
    coalesce: str | None = None
    self_loops: str = "keep"


@dataclass
class NodePlan:
    """One node type.

    Attributes:
        num_nodes: Rows of every attribute.
        attrs: Tensors whose first dimension is ``num_nodes``.
        index_sets: 1-D ``int64`` rows, of any length (``train_idx`` …).
        ids: The user's id of each row (``int64`` or strings); ``None`` when it is the row.
        note: How the ids were understood, for the summary.
    """

    num_nodes: int
    attrs: dict[str, Array] = field(default_factory=dict)
    index_sets: dict[str, Array] = field(default_factory=dict)
    ids: Any = None
    note: str = ""


@dataclass
class EdgePlan:
    """One edge type.

    Attributes:
        chunks: Starts a new stream over the same edges in the same order; endpoints are rows.
        num_edges: Edges in that stream.
        options: How they become a CSC.
    """

    chunks: Callable[[], Iterator[EdgeChunk]]
    num_edges: int
    options: EdgeOptions = EdgeOptions()

    def reversed(self) -> EdgePlan:
        """The same edges with source and destination swapped and the same columns."""

        def chunks() -> Iterator[EdgeChunk]:
            for chunk in self.chunks():
                yield EdgeChunk(src=chunk.dst, dst=chunk.src, columns=chunk.columns)

        return replace(self, chunks=chunks)


@dataclass
class GraphPlan:
    """A whole graph.

    Attributes:
        nodes: By node type; ``{None: ...}`` when homogeneous.
        edges: By edge type; ``{None: ...}`` when homogeneous.
        graph_attrs: Tensors of any shape, or JSON scalars.
        notes: What the user should know and could not see from the result.
    """

    is_hetero: bool
    nodes: dict[NodeType, NodePlan] = field(default_factory=dict)
    edges: dict[EdgeType, EdgePlan] = field(default_factory=dict)
    graph_attrs: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

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


def sliced(
    src: np.ndarray, dst: np.ndarray, columns: dict[str, Array], start: int = 0
) -> Iterator[EdgeChunk]:
    """Whole arrays as a stream of chunks, at least one; no copy unless ids have to be widened.

    Args:
        src: Source rows, any integer dtype (``[num_edges]``).
        dst: Destination rows, likewise.
        columns: Edge attributes, read from row ``start`` on.
        start: Position of the first edge among the rows of ``columns``.
    """
    # Without edges there is still a chunk: it tells which columns there are, and their dtypes.
    for begin in range(0, max(len(src), 1), CHUNK_EDGES):
        end = min(begin + CHUNK_EDGES, len(src))
        yield EdgeChunk(
            src=src[begin:end].astype(np.int64, copy=False),
            dst=dst[begin:end].astype(np.int64, copy=False),
            columns={name: col[start + begin : start + end] for name, col in columns.items()},
        )


def stream(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]], columns: dict[str, Array]
) -> Callable[[], Iterator[EdgeChunk]]:
    """A chunk factory over endpoint arrays that follow one another.

    Args:
        pairs: ``(src, dst)`` row arrays.
        columns: Edge attributes with as many rows as all pairs together.
    """

    def chunks() -> Iterator[EdgeChunk]:
        start = 0
        for src, dst in pairs or [(_NO_ROWS, _NO_ROWS)]:
            yield from sliced(src, dst, columns, start)
            start += len(src)

    return chunks


def edge_label(edge_type: EdgeType) -> str:
    """``user,rates,movie``; the empty string for the only type of a homogeneous graph."""
    return "" if edge_type is None else ",".join(edge_type)
