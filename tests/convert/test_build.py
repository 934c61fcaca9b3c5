"""The external-memory CSC builder: equal to the definition, whatever the memory and the options."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from full_disk import largest_file
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyg_graphzero import _core
from pyg_graphzero.store.columns import view_column, view_topology
from pyg_graphzero.store.csc import BuildRoom, CscOptions, EdgeChunk, build_csc


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
    made = itertools.count()

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
        for a, b in itertools.pairwise(bounds)
    ]


# From nearly nothing, where everything spills and every bucket is split, to plenty.
ROOMS = [1 << 11, 1 << 13, 1 << 16, 1 << 24]
COALESCE = [None, "first", "sum", "mean", "min", "max"]
relaxed = settings(
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


NUMBERS = [
    *("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32"),
    *("float16", "bfloat16", "float32", "float64"),
]
TIMES = [getattr(torch, name) for name in NUMBERS if name not in ("uint16", "uint32")]


@relaxed
@given(data=st.data())
def test_equal_to_the_definition(data, tmp_path_factory):
    draw, flips = data.draw, st.booleans()
    bipartite, most = draw(flips), draw(st.sampled_from([40, 40, 1 << 40]))  # more than 32 bits
    num_dst = draw(st.integers(0, 40))
    num_src = draw(st.integers(0, most)) if bipartite else num_dst
    num_edges = draw(st.integers(0, 400)) if num_src and num_dst else 0
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    src, dst = (rng.integers(0, max(1, count), num_edges) for count in (num_src, num_dst))
    if num_edges and draw(flips):  # a hub
        dst[rng.random(num_edges) < 0.8] = draw(st.integers(0, num_dst - 1))
    dtype = draw(st.sampled_from(TIMES))
    times = torch.from_numpy(rng.integers(0 if dtype == torch.uint8 else -5, 5, num_edges))
    columns = {
        "time": times.to(dtype),
        "w": torch.from_numpy(rng.integers(-8, 8, (num_edges, 2)) / 4).float(),
        "n": torch.from_numpy(rng.integers(-1, 1, num_edges).astype(np.int8)),
    }
    options = CscOptions(
        bipartite=bipartite,
        undirected=not bipartite and draw(flips),
        coalesce=draw(st.sampled_from(COALESCE)),
        self_loops=draw(st.sampled_from(["keep", "remove", *["add"] * (not bipartite)])),
        time_attr=draw(st.sampled_from([None, "time", "when"])),
    )
    columns["w"][::9, 0] = float("nan")  # which makes a merged value none, whichever comes first
    if options.coalesce == "sum":
        del columns["n"]  # may overflow, which is refused
    if options.coalesce in ("sum", "mean"):
        columns["time"] = times.to(torch.int32)
    elif dtype.is_floating_point:
        columns["time"][::7], columns["time"][::11] = -0.0, float("inf")
    if options.time_attr == "when" and num_src == num_dst:
        options = replace(options, source_times=torch.from_numpy(rng.integers(-3, 3, num_src)))
    cuts = draw(st.lists(st.integers(0, num_edges), max_size=4))
    found = build(
        tmp_path_factory.mktemp("build"),
        chunked(src, dst, columns, cuts),
        num_src,
        num_dst,
        draw(st.sampled_from(ROOMS)),
        options,
        # The declared number of edges sets the width of edge ids and the first id of reverses.
        draw(st.sampled_from([None, num_edges, (1 << 31) - 1, 1 << 31, 1 << 33, 1 << 62])),
        num_threads=draw(st.sampled_from([1, 2, 3])),
    )
    compare(found, expected(src, dst, columns, num_dst, options))


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint32", "uint64", "int16", ">i8"])
def test_ids_of_any_dtype_and_stride(tmp_path, dtype):
    pairs = np.random.default_rng(0).integers(0, 9, (100, 2)).astype(dtype)
    wanted = expected(pairs[:, 0], pairs[:, 1], {}, 9, CscOptions())
    tensors = [torch.from_numpy(pairs)] if dtype in ("int64", "int32") else []
    for number, ids in enumerate([pairs, *tensors]):
        chunk = EdgeChunk(ids[:, 0], ids[:, 1])
        compare(build(tmp_path / str(number), [chunk], 9, 9), wanted)


def test_merging_in_every_dtype(tmp_path):
    src, dst = np.array([1, 1, 2, 1]), np.array([0, 0, 0, 0])
    columns = {n: torch.tensor([5, 2, 9, 4]).to(getattr(torch, n)) for n in NUMBERS}
    merged = {"sum": [11, 9], "mean": [3, 9], "min": [2, 9], "max": [5, 9], "first": [5, 9]}
    for how, values in merged.items():
        found = build(
            tmp_path / how, [EdgeChunk(src, dst, columns)], 3, 3, options=CscOptions(coalesce=how)
        )
        assert found.indices == [1, 2]
        for name, column in found.columns.items():
            exact = [11 / 3, 9] if how == "mean" and "float" in name else values
            assert torch.allclose(column.double(), torch.tensor(exact).double(), rtol=1e-2), name


@pytest.mark.parametrize(
    ("dtype", "values", "how", "message"),
    [
        ("int8", [100, 100], "sum", "found 200, which int8 cannot hold; convert it to a wider"),
        ("int64", [2**62, 2**62], "sum", "which int64 cannot hold"),
        ("float16", [60000, 60000], "sum", "which float16 cannot hold"),
        ("bool", [1, 1], "mean", "column 'a' is bool; use coalesce='first'"),
        ("complex64", [1, 1], "max", "column 'a' is complex64; use coalesce='first'"),
    ],
)
def test_values_that_cannot_be_merged_are_refused(tmp_path, dtype, values, how, message):
    columns = {"a": torch.tensor(values).to(getattr(torch, dtype))}
    chunk = EdgeChunk(np.zeros(2, int), np.zeros(2, int), columns)
    with pytest.raises(ValueError, match=message):
        build(tmp_path, [chunk], 1, 1, options=CscOptions(coalesce=how))


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_the_first_bad_edge_is_named(tmp_path, dtype):
    src, dst = np.zeros((2, 50_000), dtype)
    src[40_001] = dst[49_000] = -3
    chunks = [EdgeChunk(src[:30_000], dst[:30_000]), EdgeChunk(src[30_000:], dst[30_000:])]
    message = "edge 40001: source id: found -3, expected 0 <= id < 5"
    with pytest.raises(IndexError, match=message):
        build(tmp_path, chunks, 5, 5)
    dst[40_000] = 5
    with pytest.raises(IndexError, match="edge 40000: destination id: found 5, expected 0 <= id <"):
        build(tmp_path, chunks, 5, 5)
    with pytest.raises(IndexError, match="edge 0: source id: found 0, expected 0 <= id < 0"):
        build(tmp_path, chunks, 0, 0)


def test_edges_that_do_not_fit_the_stream(tmp_path):
    pair = np.zeros(3, int)
    chunk = EdgeChunk(pair, pair, {"w": np.zeros(3)})
    with pytest.raises(ValueError, match="edges: found more than the 5 that were declared"):
        build(tmp_path, [chunk, chunk], 1, 1, num_edges=5)
    with pytest.raises(ValueError, match=r"edge attributes: found .*float32"):
        build(tmp_path, [chunk, EdgeChunk(pair, pair, {"w": np.zeros(3, "f4")})], 1, 1)
    with pytest.raises(ValueError, match="'w': found another number of rows than edges"):
        build(tmp_path, [EdgeChunk(pair, pair, {"w": np.zeros(2)})], 1, 1)
    with pytest.raises(ValueError, match="undirected and self_loops='add' need one node type"):
        build(tmp_path, [chunk], 1, 2, options=CscOptions(undirected=True))


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (torch.tensor([0.0, float("nan")]), "edge 1: time: found NaN, expected a time"),
        (torch.tensor([True, False]), "found 1 bool an edge, expected one integer or float"),
        (torch.zeros(2, 2), "found 2 float32 an edge, expected one integer or float"),
    ],
)
def test_bad_times(tmp_path, times, message):
    chunk = EdgeChunk(np.zeros(2, int), np.zeros(2, int), {"time": times})
    with pytest.raises(ValueError, match=message):
        build(tmp_path, [chunk], 1, 1, options=CscOptions(time_attr="time"))


def test_cancelled_while_sorting(tmp_path):
    src, dst = np.random.default_rng(0).integers(0, 1000, (2, 50_000))
    calls: Iterator[int] = itertools.count()

    def cancel(done, total):
        assert 0 <= done <= total
        if next(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, [EdgeChunk(src, dst)], 1000, 1000, 1 << 16, sorting=cancel)


def test_scratch_that_is_full_is_named(tmp_path):
    src, dst = np.random.default_rng(0).integers(0, 1000, (2, 50_000))
    with largest_file(100_000), pytest.raises(OSError, match="cannot write") as caught:
        build(tmp_path, [EdgeChunk(src, dst)], 1000, 1000, 1 << 16)
    assert caught.value.filename == str(tmp_path / "1-edges")
    assert list(tmp_path.iterdir()) == []
