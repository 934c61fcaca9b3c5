"""The external-memory CSC builder: equal to the definition, whatever the memory and the options."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from build_support import build, chunked, compare, expected
from full_disk import largest_file
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyg_graphzero.store.csc import CscOptions, EdgeChunk

# From nearly nothing, where everything spills and every bucket is split, to plenty.
ROOMS = [1 << 11, 1 << 13, 1 << 16, 1 << 24]
COALESCE = [None, "first", "sum", "mean", "min", "max"]
relaxed = settings(
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def options_of(draw: st.DrawFn, bipartite: bool) -> CscOptions:
    """Any combination of options."""
    if bipartite:
        loops = draw(st.sampled_from(["keep", "remove"]))
    else:
        loops = draw(st.sampled_from(["keep", "remove", "add"]))
    return CscOptions(
        bipartite=bipartite,
        undirected=not bipartite and draw(st.booleans()),
        coalesce=draw(st.sampled_from(COALESCE)),
        self_loops=loops,
        time_attr=draw(st.sampled_from([None, "time", "when"])),
    )


@relaxed
@given(data=st.data())
def test_equal_to_the_definition(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory):
    draw = data.draw
    bipartite = draw(st.booleans())
    num_src = draw(st.integers(1, 40))
    num_dst = draw(st.integers(1, 40)) if bipartite else num_src
    num_edges = draw(st.integers(0, 400))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    src, dst = rng.integers(0, num_src, num_edges), rng.integers(0, num_dst, num_edges)
    if draw(st.booleans()):  # a hub
        dst[rng.random(num_edges) < 0.8] = draw(st.integers(0, num_dst - 1))
    columns = {
        "time": torch.from_numpy(rng.integers(-3, 3, num_edges).astype(np.int32)),
        "w": torch.from_numpy(rng.integers(-8, 8, (num_edges, 2)) / 4).float(),
        "n": torch.from_numpy(rng.integers(-1, 1, num_edges).astype(np.int8)),
    }
    options = draw(options_of(bipartite))
    cuts = draw(st.lists(st.integers(0, num_edges), max_size=4))
    if "n" in columns and options.coalesce == "sum":
        del columns["n"]  # may overflow, which is refused
    path = tmp_path_factory.mktemp("build")
    found = build(
        path,
        chunked(src, dst, columns, cuts),
        num_src,
        num_dst,
        draw(st.sampled_from(ROOMS)),
        options,
        draw(st.sampled_from([None, num_edges, num_edges + 100, 1 << 33])),
        num_threads=draw(st.sampled_from([1, 2, 3])),
    )
    compare(found, expected(src, dst, columns, num_dst, options))


NUMBERS = [
    *("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32"),
    *("float16", "bfloat16", "float32", "float64"),
]


def test_merging_in_every_dtype(tmp_path: Path) -> None:
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
def test_values_that_cannot_be_merged_are_refused(
    tmp_path: Path, dtype: str, values: list[int], how: str, message: str
) -> None:
    columns = {"a": torch.tensor(values).to(getattr(torch, dtype))}
    chunk = EdgeChunk(np.zeros(2, int), np.zeros(2, int), columns)
    with pytest.raises(ValueError, match=message):
        build(tmp_path, [chunk], 1, 1, options=CscOptions(coalesce=how))


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint32", "uint64", "int16", ">i8"])
def test_ids_of_any_dtype_and_stride(tmp_path: Path, dtype: str) -> None:
    pairs = np.random.default_rng(0).integers(0, 9, (100, 2)).astype(dtype)
    found = build(tmp_path / "array", [EdgeChunk(pairs[:, 0], pairs[:, 1])], 9, 9)
    wanted = expected(pairs[:, 0], pairs[:, 1], {}, 9, CscOptions())
    compare(found, wanted)
    if dtype in ("int64", "int32"):
        tensor = torch.from_numpy(pairs)
        compare(build(tmp_path / "t", [EdgeChunk(tensor[:, 0], tensor[:, 1])], 9, 9), wanted)


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_the_first_bad_edge_is_named(tmp_path: Path, dtype: str) -> None:
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


def test_edges_that_do_not_fit_the_stream(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(("num_src", "num_dst"), [(0, 0), (5, 5), (0, 5), (5, 0)])
@pytest.mark.parametrize("coalesce", [None, "sum"])
def test_without_edges(tmp_path: Path, num_src: int, num_dst: int, coalesce: str | None) -> None:
    empty = EdgeChunk(np.empty(0, int), np.empty(0, int), {"w": torch.empty(0, 3)})
    found = build(tmp_path, [empty], num_src, num_dst, options=CscOptions(coalesce=coalesce))
    assert found.indptr == [0] * (num_dst + 1)
    assert found.indices == []
    assert found.columns["w"].shape == (0, 3)


def test_more_sources_than_32_bits_count(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    num_src, num_dst = 1 << 40, 50
    src, dst = rng.integers(0, num_src, 2000), rng.integers(0, num_dst, 2000)
    src[::3] = num_src - 1
    options = CscOptions(bipartite=True, coalesce="first")
    for memory in (1 << 12, 1 << 24):
        found = build(
            tmp_path / str(memory), [EdgeChunk(src, dst)], num_src, num_dst, memory, options
        )
        compare(found, expected(src, dst, {}, num_dst, options))


@pytest.mark.parametrize("num_edges", [(1 << 31) - 1, 1 << 31, 1 << 32, 1 << 62])
@pytest.mark.parametrize("coalesce", [None, "first"])
def test_more_edges_than_32_bits_count(
    tmp_path: Path, num_edges: int, coalesce: str | None
) -> None:
    """The declared number of edges sets the width of edge ids and the first id of reverses."""
    src, dst = np.random.default_rng(0).integers(0, 60, (2, 2000))
    options = CscOptions(undirected=True, self_loops="add", coalesce=coalesce)
    for memory in (1 << 12, 1 << 24):
        found = build(
            tmp_path / str(memory), [EdgeChunk(src, dst)], 60, 60, memory, options, num_edges
        )
        compare(found, expected(src, dst, {}, 60, options))


TIMES = [name for name in NUMBERS if name not in ("uint16", "uint32")]


@pytest.mark.parametrize("dtype", TIMES)
def test_times_of_any_dtype(tmp_path: Path, dtype: str) -> None:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 20, (2, 600))
    low = 0 if dtype == "uint8" else -5
    columns = {"time": torch.from_numpy(rng.integers(low, 5, 600)).to(getattr(torch, dtype))}
    if "float" in dtype:
        columns["time"][:100] = -0.0
        columns["time"][100] = float("inf")
    options = CscOptions(time_attr="time")
    for memory in (1 << 12, 1 << 24):
        found = build(
            tmp_path / str(memory), [EdgeChunk(src, dst, columns)], 20, 20, memory, options
        )
        compare(found, expected(src, dst, columns, 20, options))


def test_times_of_sources(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 20, (2, 600))
    options = CscOptions(
        undirected=True, time_attr="time", source_times=torch.from_numpy(rng.integers(-3, 3, 20))
    )
    for memory in (1 << 12, 1 << 24):
        found = build(tmp_path / str(memory), [EdgeChunk(src, dst)], 20, 20, memory, options)
        compare(found, expected(src, dst, {}, 20, options))


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (torch.tensor([0.0, float("nan")]), "edge 1: time: found NaN, expected a time"),
        (torch.tensor([True, False]), "found 1 bool an edge, expected one integer or float"),
        (torch.zeros(2, 2), "found 2 float32 an edge, expected one integer or float"),
    ],
)
def test_bad_times(tmp_path: Path, times: torch.Tensor, message: str) -> None:
    chunk = EdgeChunk(np.zeros(2, int), np.zeros(2, int), {"time": times})
    with pytest.raises(ValueError, match=message):
        build(tmp_path, [chunk], 1, 1, options=CscOptions(time_attr="time"))


def test_cancelled_while_sorting(tmp_path: Path) -> None:
    src, dst = np.random.default_rng(0).integers(0, 1000, (2, 50_000))
    calls: Iterator[int] = itertools.count()

    def cancel(done: int, total: int) -> None:
        assert 0 <= done <= total
        if next(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, [EdgeChunk(src, dst)], 1000, 1000, 1 << 16, sorting=cancel)


def test_scratch_that_is_full_is_named(tmp_path: Path) -> None:
    src, dst = np.random.default_rng(0).integers(0, 1000, (2, 50_000))
    with largest_file(100_000), pytest.raises(OSError, match="cannot write") as caught:
        build(tmp_path, [EdgeChunk(src, dst)], 1000, 1000, 1 << 16)
    assert caught.value.filename == str(tmp_path / "1-edges")
    assert list(tmp_path.iterdir()) == []


def deleted_bytes() -> int:
    """Bytes on the disk of nameless files that this process has open."""
    total = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if "(deleted)" in os.readlink(each):
                total += each.stat().st_size
    return total


def test_scratch_is_bounded_and_given_back(tmp_path: Path) -> None:
    """At most 8 bytes an edge wait, and what is read goes while the topology grows."""
    src, dst = np.random.default_rng(0).integers(0, 100_000, (2, 1_000_000))
    before, seen = deleted_bytes(), []

    def sorting(done: int, total: int) -> None:
        seen.append((done, total, deleted_bytes() - before))

    found = build(
        tmp_path,
        chunked(src, dst, {}, [400_000]),
        100_000,
        100_000,
        4 << 20,
        CscOptions(undirected=True, edge_ids=False),
        len(src),
        sorting=sorting,
    )
    num_edges = 2 * len(src) - int((src == dst).sum())
    assert len(found.indices) == num_edges
    written = found.stats["scratch_bytes"]
    assert 0 < written <= 8 * num_edges
    assert found.stats["scratch_peak"] == written  # no range was split into files again
    assert len(seen) > 30
    for done, total, held in seen:
        left = written * (total - done) / total
        assert held <= left + written / 4  # a part of those there are in so little memory
