"""The external-memory CSC builder: equal to the definition, whatever the memory and the options."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from build_support import Result, build, chunked, compare, expected
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyg_graphzero import _core
from pyg_graphzero.convert.csc import CscOptions, EdgeChunk

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
