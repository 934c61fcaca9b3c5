"""What a conversion is going to do and to take, found out without writing anything."""

from __future__ import annotations

from math import prod
from pathlib import Path

import torch

from pyg_graphzero.conversion.plan import EdgeType, GraphPlan
from pyg_graphzero.conversion.storage import Storage
from pyg_graphzero.conversion.summary import ConvertEstimate, EdgeEstimate
from pyg_graphzero.conversion.write import (
    check_edge_ids,
    check_time_attr,
    csc_options,
    first_chunk,
    marks_bytes,
)
from pyg_graphzero.store.csc import BuildRoom, CscBuild
from pyg_graphzero.util.system import rss
from pyg_graphzero.util.workspace import READ_ROOM, Workspace

# As in csrc/build: what has been sorted at once, and what a thread takes to sort a record of it.
_SLAB_BYTES = 32 << 20
_SORTED_RECORDS = _SLAB_BYTES // 12
_SORTED_RECORD = 4 + 32 + 32
_PARTS = 32  # files that edges wait in


def estimate(plan: GraphPlan, out: Path, storage: Storage, workspace: Workspace) -> ConvertEstimate:
    """What :func:`.write.write_plan` would do.

    Raises:
        ValueError: As :func:`.write.write_plan` does.
    """
    check_time_attr(plan)
    check_edge_ids(plan)
    reserved = marks_bytes(plan)
    left = workspace.left(reserved)
    result = ConvertEstimate(out, notes=list(plan.notes))
    for node_type, node in plan.nodes.items():
        result.num_nodes[node_type] = node.num_nodes
        for attr, rows in node.attrs.items():
            result.output_bytes += storage.num_bytes(node_type or "", attr, rows) + 4096
        for index in node.index_sets.values():
            result.output_bytes += prod(index.shape) * index.dtype.itemsize + 4096
    result.disk_bytes = result.output_bytes
    for edge_type in plan.edges:
        found = _estimate_edges(plan, edge_type, BuildRoom(left, Path()))
        result.edges[edge_type] = found
        result.disk_bytes = max(result.disk_bytes, result.output_bytes + found.disk_bytes)
        result.output_bytes += found.output_bytes
    scratch = [edge.scratch_bytes for edge in result.edges.values()]
    memory = [edge.buffer_bytes for edge in result.edges.values()]
    result.scratch_bytes = max(scratch, default=0)
    result.peak_memory = rss() + reserved + max(memory, default=0)
    return result


def _estimate_edges(plan: GraphPlan, edge_type: EdgeType, room: BuildRoom) -> EdgeEstimate:
    edge = plan.edges[edge_type]
    num_src, num_dst = (plan.nodes[end].num_nodes for end in plan.endpoints(edge_type))
    chunk = first_chunk(plan, edge_type)
    options = csc_options(plan, edge_type)
    build = CscBuild(chunk, num_src, num_dst, edge.num_edges, options, room)
    records = edge.num_edges * (2 if options.undirected else 1)
    waiting = records * build.record_bytes
    spills = waiting > build.keep_bytes
    num_edges = records + (num_dst if options.self_loops == "add" else 0)
    rows = [prod(row.shape[1:]) * row.element_size() for row in build.dtypes.values()]
    widths = [4 if num_src <= 1 << 32 else 8, *rows]
    number = 4 if num_edges <= 1 << 31 else 8
    again = 0
    if plan.both_directions:
        both = 4 if num_dst <= 1 << 32 else 8
        again = num_edges * (both + number * options.edge_ids) + 8 * (num_src + 1) + 2 * 8192
    if options.edge_ids:
        widths.append(number)
    numbers = 8 * num_edges if options.coalesce and options.edge_ids else 0
    per_record = build.record_bytes + _SORTED_RECORD
    sorting = min(records * per_record, torch.get_num_threads() * _SORTED_RECORDS * per_record)
    buffers = READ_ROOM + min(num_edges * sum(widths), _SLAB_BYTES) + sorting
    scratch = waiting if spills else 0
    output = num_edges * sum(widths) + 8 * (num_dst + 1) + 8192 * len(widths)
    most = max(scratch, output + numbers, output + max(scratch, again) if again else 0)
    return EdgeEstimate(
        edge.num_edges,
        scratch_bytes=scratch + numbers,
        output_bytes=output + again,
        # What waits goes part by part while the topology is written.
        disk_bytes=most + scratch // _PARTS,
        buffer_bytes=room.memory if spills else waiting + min(room.memory // 2, buffers),
        edge_ids=options.edge_ids,
    )
