"""The one way from a plan to a store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyg_graphzero import _core
from pyg_graphzero.conversion.plan import EdgePlan, EdgeType, GraphPlan, NodePlan, NodeType
from pyg_graphzero.conversion.sources import Inputs
from pyg_graphzero.conversion.summary import ConvertSummary, EdgeSummary, NodeSummary
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.csc import BuildRoom, CscOptions
from pyg_graphzero.store.edge_order import comparable_times
from pyg_graphzero.store.encoding import work_bytes
from pyg_graphzero.store.info import info
from pyg_graphzero.store.writer import StoreWriter
from pyg_graphzero.util.system import peak_rss

_COUNTS = ("num_input", "num_edges", "duplicates", "self_loops")
_DEGREES = ("min", "25%", "median", "75%", "99%", "max")


def write_plan(plan: GraphPlan, out: Path, inputs: Inputs, force: bool) -> ConvertSummary:
    """Write the store that ``plan`` describes.

    Args:
        plan: The graph.
        out: Directory of the new store.
        inputs: Says how node attributes are kept; has memory and temporary files.
        force: Replace a store that is there already.

    Raises:
        FileExistsError: ``out`` exists and ``force`` is not given.
        OSError: Writing failed; nothing is left behind.
        ValueError: There is no such time attribute, or too little memory.
    """
    choices = inputs.choices
    check_time_attr(plan)
    check_edge_ids(plan)
    nodes: dict[NodeType, NodeSummary] = {}
    edges: dict[EdgeType, EdgeSummary] = {}
    with StoreWriter(out, is_hetero=plan.is_hetero, force=force) as writer:
        for node_type, node in plan.nodes.items():
            writer.add_node_type(node_type, node.num_nodes)
            for name, index in node.index_sets.items():
                writer.add_index_set(node_type, name, index)
            if node.ids is not None:
                writer.add_node_ids(node_type, node.ids)
            nodes[node_type] = NodeSummary(node.num_nodes, ids=node.note)
            for attr, rows in node.attrs.items():
                if choices.adopts(rows, node_type or "", attr):
                    writer.adopt_node_attr(node_type, attr, rows)
                    continue
                encoding = choices.encoding(node_type or "", attr)
                with inputs.progress.step(f"writing {attr}", work_bytes(rows, encoding)) as bar:
                    writer.add_node_attr(node_type, attr, rows, bar.update, encoding)
            _write_categories(writer, node_type, node, False)
            for attr, value in node.others.items():
                writer.add_graph_attr(attr, value, node_type)
        # A bit per node, which says whether it has edges.
        inputs.space.left(sum(node.num_nodes // 8 + 8 for node in plan.nodes.values()))
        marks = {name: _core.NodeMarks(node.num_nodes) for name, node in plan.nodes.items()}
        for edge_type in list(plan.edges):
            edges[edge_type] = _write_edges(plan, edge_type, writer, marks, inputs)
        for attr, value in plan.graph_attrs.items():
            writer.add_graph_attr(attr, value)
        writer.finish()
    for node_type, linked in marks.items():
        nodes[node_type].isolated = plan.nodes[node_type].num_nodes - linked.count()
    found = info(StoreContents(out))
    summary = ConvertSummary(out, found, plan.what, nodes, edges, choices.notes)
    summary.peak_memory = peak_rss()
    return summary


def check_time_attr(plan: GraphPlan) -> None:
    """Refuse a time attribute that no edge type could be sorted by.

    Raises:
        ValueError: Names it.
    """
    time_attr = plan.time_attr
    if time_attr is None or not plan.edges:
        return
    for edge_type in plan.edges:
        source, edge = plan.nodes[plan.endpoints(edge_type)[0]], plan.edges[edge_type]
        if (source.categories | edge.categories).get(time_attr) is not None:
            found = "names, of which none is before another"
            raise ValueError(f"time_attr={time_attr!r}: found {found}, expected numbers or times")
        if time_attr in source.attrs or time_attr in edge.categories:
            return
    raise ValueError(
        f"time_attr={time_attr!r}: found in no edge type and no source of one, expected an "
        "attribute of either"
    )


def check_edge_ids(plan: GraphPlan) -> None:
    """Refuse edge attributes where edges are to have no ids.

    Raises:
        ValueError: Names them.
    """
    for edge_type, edge in plan.edges.items():
        if edge.categories and not edge.options.edge_ids:
            names = ", ".join(edge.categories)
            owner = "edges" if edge_type is None else f"edges {edge_type}"
            raise ValueError(
                f"edge_ids=False: found {owner} with the attributes {names}, whose rows are by "
                "edge id, expected none; leave them out (skip, --skip), or keep ids"
            )


def csc_options(plan: GraphPlan, edge_type: EdgeType) -> CscOptions:
    """How the edges of one type become a CSC."""
    edge, time_attr = plan.edges[edge_type], plan.time_attr
    src_type, dst_type = plan.endpoints(edge_type)
    bipartite = src_type != dst_type
    options = replace(edge.options, bipartite=bipartite, time_attr=time_attr)
    times = plan.nodes[src_type].attrs.get(time_attr or "")
    if time_attr is not None and times is not None:
        value = times.read(0, len(times))
        floating = value.dtype.is_floating_point
        comparable = comparable_times(value, f"{time_attr!r} of {src_type}", floating)
        options = replace(options, source_times=comparable)
    return options


def _write_categories(
    writer: StoreWriter, owner: NodeType | EdgeType, plan: NodePlan | EdgePlan, of_edges: bool
) -> None:
    for attr, names in plan.categories.items():
        if names is not None:
            writer.add_categories(owner, attr, names, of_edges)


def _write_edges(
    plan: GraphPlan,
    edge_type: EdgeType,
    writer: StoreWriter,
    marks: dict[NodeType, _core.NodeMarks],
    inputs: Inputs,
) -> EdgeSummary:
    options = csc_options(plan, edge_type)
    edge = plan.edges.pop(edge_type)  # let go of the input as soon as it is written
    src_type, dst_type = plan.endpoints(edge_type)
    label = "edges" if edge_type is None else " → ".join(edge_type)
    with (
        inputs.progress.step(f"reading {label}", edge.num_edges, "edges") as reading,
        inputs.progress.step(f"sorting {label}", None, "edges") as sorting,
    ):

        def show(done: int, total: int) -> None:
            sorting.total = total
            sorting.update(max(done - sorting.n, 0))

        space, linked = inputs.space, (marks[src_type], marks[dst_type])
        room = BuildRoom(space.left(), space.folder, linked, reading.update, show)
        csc = writer.add_edge_type(
            edge_type, edge.chunks(), edge.num_edges, options, room, plan.both_directions
        )
    for attr, value in edge.others.items():
        writer.add_graph_attr(attr, value, edge_type)
    _write_categories(writer, edge_type, edge, True)
    stats = csc.stats
    counts = {name: stats.pop(name) for name in _COUNTS}
    return EdgeSummary(
        **counts,
        degrees=dict(zip(_DEGREES, stats.pop("degree_quantiles"), strict=True)),
        time_order=csc.time_order,
        stats=stats,
    )
