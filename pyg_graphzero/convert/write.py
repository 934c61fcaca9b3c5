"""The one way from a plan to a store, counting on the way what the summary reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..encoding import work_bytes
from ..writer import StoreWriter
from .csc import build_csc
from .plan import EdgeType, GraphPlan, NodeType
from .progress import Progress
from .rows import Rows, describe
from .storage import Storage
from .summary import ConvertSummary, EdgeSummary, NodeSummary

_SLAB_EDGES = 1 << 22


def write_plan(
    plan: GraphPlan, out: Path, *, storage: Storage, force: bool, progress: Progress
) -> ConvertSummary:
    """Write the store that ``plan`` describes.

    Args:
        plan: The graph.
        out: Directory of the new store.
        storage: How node attributes are kept.
        force: Replace a store that is there already.
        progress: Where to show slow steps.

    Raises:
        FileExistsError: ``out`` exists and ``force`` is not given.
        OSError: Writing failed; nothing is left behind.
    """
    summary = ConvertSummary(
        out, what=plan.what, notes=list(plan.notes), graph_attrs=list(plan.graph_attrs)
    )
    with StoreWriter(out, is_hetero=plan.is_hetero, force=force) as writer:
        linked: dict[NodeType, np.ndarray] = {}
        for node_type, node in plan.nodes.items():
            writer.add_node_type(node_type, node.num_nodes)
            for name, index in node.index_sets.items():
                writer.add_index_set(node_type, name, index)
            if node.ids is not None:
                writer.add_node_ids(node_type, node.ids)
            summary.nodes[node_type] = NodeSummary(
                node.num_nodes,
                {attr: describe(rows) for attr, rows in node.attrs.items()},
                {name: len(index) for name, index in node.index_sets.items()},
                ids=node.note,
            )
            for attr, rows in node.attrs.items():
                kept = summary.nodes[node_type]
                _write_attr(writer, node_type, attr, rows, storage, progress, kept)
            linked[node_type] = np.zeros(node.num_nodes, dtype=bool)
        for edge_type in list(plan.edges):
            summary.edges[edge_type] = _write_edges(plan, edge_type, writer, linked, progress)
        for attr, value in plan.graph_attrs.items():
            writer.add_graph_attr(attr, value)
        writer.finish()
    for node_type, mask in linked.items():
        summary.nodes[node_type].isolated = int(np.count_nonzero(~mask))
    summary.num_bytes = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    return summary


def _write_attr(
    writer: StoreWriter,
    node_type: NodeType,
    attr: str,
    rows: Rows,
    storage: Storage,
    progress: Progress,
    summary: NodeSummary,
) -> None:
    adopted = storage.adopted(node_type or "", attr, rows)
    if adopted is not None:
        writer.adopt_node_attr(node_type, attr, adopted)
        summary.adopted[attr] = str(adopted.path)
        return
    encoding = storage.encoding(node_type or "", attr)
    with progress.step(f"writing {attr}", work_bytes(rows, encoding)) as bar:
        loss = writer.add_node_attr(node_type, attr, rows, bar.update, encoding)
    if loss is not None:
        summary.losses[attr] = loss


def _write_edges(
    plan: GraphPlan,
    edge_type: EdgeType,
    writer: StoreWriter,
    linked: dict[NodeType, np.ndarray],
    progress: Progress,
) -> EdgeSummary:
    edge = plan.edges.pop(edge_type)  # let go of the input as soon as it is written
    src_type, dst_type = plan.endpoints(edge_type)
    with progress.step(f"sorting {edge_type or 'edges'}", edge.num_edges, "edges") as bar:
        csc = build_csc(
            edge.chunks(),
            plan.nodes[src_type].num_nodes,
            plan.nodes[dst_type].num_nodes,
            bipartite=src_type != dst_type,
            undirected=edge.options.undirected,
            coalesce=edge.options.coalesce,
            self_loops=edge.options.self_loops,
            progress=bar.update,
        )
    writer.add_edge_type(edge_type, csc)
    indptr, indices = csc.indptr.numpy(), csc.indices.numpy()
    linked[src_type][indices] = True
    linked[dst_type] |= np.diff(indptr) > 0
    duplicates, self_loops = _count(indptr, indices, csc.num_src, src_type == dst_type)
    return EdgeSummary(
        num_input=edge.num_edges,
        num_edges=csc.num_edges,
        attrs={attr: describe(value) for attr, value in csc.columns.items()},
        duplicates=duplicates,
        self_loops=self_loops,
        stats=dict(csc.stats),
    )


def _count(
    indptr: np.ndarray, indices: np.ndarray, num_src: int, is_square: bool
) -> tuple[int, int]:
    """Parallel edges and self-loops, a slab of columns at a time."""
    duplicates = self_loops = 0
    num_dst = len(indptr) - 1
    begin = 0
    while begin < num_dst:
        # As many whole columns as hold about a slab of edges, one at least.
        end = int(np.searchsorted(indptr, indptr[begin] + _SLAB_EDGES, side="right")) - 1
        end = min(max(end, begin + 1), begin + _SLAB_EDGES, num_dst)
        keys = indices[indptr[begin] : indptr[end]].astype(np.int64)
        columns = np.repeat(np.arange(end - begin), np.diff(indptr[begin : end + 1]))
        if is_square:
            self_loops += int(np.count_nonzero(keys == columns + begin))
        keys += columns * num_src
        keys.sort()
        duplicates += int(np.count_nonzero(keys[1:] == keys[:-1]))
        begin = end
    return duplicates, self_loops
