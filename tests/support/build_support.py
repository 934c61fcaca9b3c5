"""The CSC of a stream of edges by definition, and the engine's in as little memory as is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pyg_graphzero import _core
from pyg_graphzero.store.columns import view_column, view_topology
from pyg_graphzero.store.csc import (
    BuildRoom,
    CscOptions,
    EdgeChunk,
    build_csc,
)


@dataclass
class Result:
    """A CSC in memory."""

    indptr: list[int]
    indices: list[int]
    edge_id: list[int]
    columns: dict[str, torch.Tensor] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)


def build(
    directory: Path,
    chunks: list[EdgeChunk],
    num_src: int,
    num_dst: int,
    memory: int = 1 << 24,
    options: CscOptions | None = None,
    num_edges: int | None = None,
    **room: Any,
) -> Result:
    """The graph that the engine builds from the chunks."""
    made = iter(range(1000))

    def place(name: str, suffix: str) -> Path:
        return directory / f"{next(made)}{suffix}"

    directory.mkdir(exist_ok=True)
    csc = build_csc(
        chunks, num_src, num_dst, place, BuildRoom(memory, directory, **room), num_edges, options
    )
    indptr, indices = view_topology(_core.Topology.open(str(csc.topology)))
    ids = torch.arange(csc.num_edges)
    if csc.edge_id is not None:
        ids = view_column(_core.Column.open(str(csc.edge_id)))
    columns = {k: view_column(_core.Column.open(str(v))) for k, v in csc.columns.items()}
    for block in [csc.topology, *csc.columns.values(), *([csc.edge_id] if csc.edge_id else [])]:
        bad = _core.verify_blocks(str(block), 0, 1 << 40)
        assert bad == []
    return Result(
        indptr.tolist(), indices.to(torch.int64).tolist(), ids.tolist(), columns, csc.stats
    )


def expected(
    src: np.ndarray,
    dst: np.ndarray,
    columns: dict[str, torch.Tensor],
    num_dst: int,
    options: CscOptions,
) -> Result:
    """The graph by the definition of the options, edge by edge."""
    rows = [(int(s), int(d), {k: v[i] for k, v in columns.items()}) for i, (s, d) in _zip(src, dst)]
    is_loop = [not options.bipartite and s == d for s, d, _ in rows]
    stats: dict[str, Any] = {"num_input": len(rows), "input_self_loops": sum(is_loop)}
    if options.self_loops == "remove":
        rows = [row for row, loop in zip(rows, is_loop, strict=True) if not loop]
        is_loop = [False] * len(rows)
    if options.undirected:
        rows += [(d, s, v) for (s, d, v), loop in zip(rows, is_loop, strict=True) if not loop]
    if options.coalesce is not None:
        groups: dict[tuple[int, int], list[dict[str, torch.Tensor]]] = {}
        for s, d, values in rows:
            groups.setdefault((s, d), []).append(values)
        stats["merged"] = len(rows) - len(groups)
        rows = [(s, d, _join(values, options.coalesce)) for (s, d), values in groups.items()]
    if options.self_loops == "add":
        missing = sorted(set(range(num_dst)) - {d for s, d, _ in rows if s == d})
        ones = {k: torch.ones(v.shape[1:]).to(v.dtype) for k, v in columns.items()}
        rows += [(v, v, ones) for v in missing]
        stats["self_loops_added"] = len(missing)
    pairs = [(s, d) for s, d, _ in rows]
    stats["duplicates"] = len(pairs) - len(set(pairs))
    stats["self_loops"] = 0 if options.bipartite else sum(s == d for s, d in pairs)

    def key(i: int) -> tuple[Any, ...]:
        s, d, values = rows[i]
        if options.time_attr in values:
            return d, values[str(options.time_attr)].item(), i
        if options.source_times is not None:
            return d, int(options.source_times[s]), i
        return d, i

    order = sorted(range(len(rows)), key=key)
    degrees = np.bincount([rows[i][1] for i in order], minlength=num_dst) if order else []
    result = Result(
        [0, *np.cumsum(degrees).tolist()] if len(degrees) else [0] * (num_dst + 1),
        [rows[i][0] for i in order],
        order,
        stats=stats,
    )
    for name, value in columns.items():
        parts = [rows[i][2][name] for i in order]
        result.columns[name] = torch.stack(parts) if parts else value[:0]
    return result


def _zip(src: np.ndarray, dst: np.ndarray) -> Any:
    return enumerate(zip(src.tolist(), dst.tolist(), strict=True))


def _join(values: list[dict[str, torch.Tensor]], how: str) -> dict[str, torch.Tensor]:
    if how == "first" or len(values) == 1:
        return values[0]
    joined = {}
    for name, first in values[0].items():
        stacked = torch.stack([v[name] for v in values])
        wide = stacked.double() if stacked.is_floating_point() else stacked.to(torch.int64)
        total = {
            "sum": lambda w: w.sum(0),
            "mean": lambda w: (
                w.mean(0) if w.is_floating_point() else w.sum(0).div(len(w), rounding_mode="floor")
            ),
            "min": lambda w: w.amin(0),
            "max": lambda w: w.amax(0),
        }[how](wide)
        joined[name] = total.to(first.dtype)
    return joined


def compare(found: Result, wanted: Result) -> None:
    """Asserts equal graphs, bit for bit, and the counts that ``wanted`` has."""
    assert found.indptr == wanted.indptr
    assert found.indices == wanted.indices
    assert found.edge_id == wanted.edge_id
    for name, value in wanted.columns.items():
        assert found.columns[name].dtype == value.dtype
        if value.dtype.is_floating_point and value.dtype.itemsize > 1:
            # Exact but for the order of additions, which happen in double precision.
            assert torch.allclose(found.columns[name], value, rtol=1e-6, equal_nan=True)
        else:
            assert torch.equal(found.columns[name], value)
    assert {k: found.stats[k] for k in wanted.stats} == wanted.stats


def chunked(
    src: np.ndarray, dst: np.ndarray, columns: dict[str, torch.Tensor], cuts: list[int]
) -> list[EdgeChunk]:
    """The edges in chunks that end at ``cuts``."""
    bounds = [0, *sorted(cuts), len(src)]
    return [
        EdgeChunk(src[a:b], dst[a:b], {k: v[a:b] for k, v in columns.items()})
        for a, b in pairwise(bounds)
    ]
