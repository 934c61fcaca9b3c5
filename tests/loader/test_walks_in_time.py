"""Walks over edges of a window of time, held against the definition: t - window <= time <= t."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from convert_support import stored
from torch_geometric.data import Data, HeteroData
from walking import PagedWalker, check_counts, probabilities

import graphs
import pyg_graphzero as gz
from pyg_graphzero.sampler import RandomWalker

NODES, EDGES = 20, 400
EARLIER = gz.SamplingOptions(strictly_earlier=True)


def timed(dtype=torch.int64, seed=0):
    random = torch.Generator().manual_seed(seed)
    data = Data(edge_index=graphs.random_edges(NODES, NODES, EDGES, seed), num_nodes=NODES)
    data.time = torch.randint(-20, 20, (EDGES,), generator=random).to(dtype)
    data.time = data.time / 4 if dtype.is_floating_point else data.time
    data.w = torch.randint(4, (EDGES,), generator=random).to(torch.float32)
    return data


def valid_edges(times, time, window=None, strict=False):
    early = times >= time - (math.inf if window is None else window)
    return early & ((times < time) if strict else (times <= time))


@pytest.mark.parametrize(("window", "strict"), [(8, False), (8, True), (None, True), (3, False)])
@pytest.mark.parametrize("weight_attr", [None, "w"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("where", ["memory", "store", "paged", "by time"])
def test_a_step_is_drawn_from_the_window(tmp_path, where, reverse, weight_attr, window, strict):
    data = timed()
    source = data
    if where != "memory":
        options = {"time_attr": "time"} if where == "by time" else {}
        source = stored(data, tmp_path / "store", both_directions=True, **options)
    kind = PagedWalker if where == "paged" else RandomWalker
    walker = kind(
        source, weight_attr=weight_attr, reverse=reverse, time_attr="time",
        options=gz.SamplingOptions(strictly_earlier=strict),
    )  # fmt: skip
    valid = valid_edges(data.time, 5, window, strict)
    at = int(data.edge_index[1 if reverse else 0, valid].mode().values)
    walks = walker.walk(
        torch.full((20_000,), at), 1, input_time=torch.full((20_000,), 5), time_window=window
    )
    weights = data.w if weight_attr else None
    check_counts(
        walks[:, 1].numpy(), probabilities(data, at, weights=weights, reverse=reverse, valid=valid)
    )


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("where", ["memory", "store"])
def test_walks_have_times_and_windows_of_their_own(tmp_path, where, strict, dtype):
    """Every edge is within, and a walk ends only where none that leads on is."""
    data = timed(dtype)
    source = data if where == "memory" else stored(data, tmp_path / "s", both_directions=True)
    random = torch.Generator().manual_seed(2)
    start = torch.arange(NODES).repeat(20)
    times = torch.randint(-20, 25, start.shape, generator=random).to(dtype)
    windows = torch.randint(0, 15, start.shape, generator=random).to(dtype)
    if dtype.is_floating_point:
        times, windows = times / 4, windows / 4
        windows[3] = math.inf
    for window in (windows, windows.numpy()):
        walks, edges = gz.sampler.random_walk(
            source, start, 6, return_edge_ids=True, time_attr="time", input_time=times,
            time_window=window, options=gz.SamplingOptions(strictly_earlier=strict),
        )  # fmt: skip
        ended = 0
        for walk, ids, time, own in zip(
            walks.tolist(), edges.tolist(), times, windows, strict=True
        ):
            valid = valid_edges(data.time, time, own, strict)
            for (v, x), e in zip(pairwise(walk), ids, strict=True):
                if e >= 0:
                    assert bool(valid[e])
                    assert data.edge_index[:, e].tolist() == [v, x]
                elif v >= 0:
                    ended += 1
                    assert x == -1
                    assert not valid[data.edge_index[0] == v].any()
        assert 0 < ended < start.numel()


def test_neighbours_that_are_read(tmp_path):
    store = stored(timed(), tmp_path / "s", both_directions=True)
    with pytest.raises(gz.UnsupportedError, match=r"p=0.5.*time_attr='time'.*raise gz.open"):
        PagedWalker(store, 0.5, time_attr="time")


@pytest.mark.parametrize("on_disk", [False, True])
def test_metapaths(tmp_path, on_disk):
    """Types without times are not restricted."""
    writes, written = ("a", "writes", "p"), ("p", "written", "a")
    data = HeteroData()
    data["a"].num_nodes, data["p"].num_nodes = 20, 30
    data[writes].edge_index = graphs.random_edges(20, 30, 200)
    data[writes].time = torch.arange(200)
    data[written].edge_index = data[writes].edge_index.flip(0)
    source = stored(data, tmp_path / "s", both_directions=True) if on_disk else data
    walks, ids = gz.sampler.random_walk(
        source, torch.arange(20).repeat(20), 4, metapath=[writes, written],
        return_edge_ids=True, time_attr="time", input_time=torch.full((400,), 120),
        time_window=50,
    )  # fmt: skip
    of_writes, of_written = ids[:, ::2], ids[:, 1::2]
    times = data[writes].time[of_writes[of_writes >= 0]]
    assert int(times.min()) >= 70
    assert int(times.max()) <= 120
    assert ((of_written[of_written >= 0] < 70) | (of_written[of_written >= 0] > 120)).any()
    assert (walks[:, 1:][ids >= 0] >= 0).all()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"time_attr": "t", "input_time": [0]}, "time_attr='t': found in no edge type, expected"),
        ({"time_attr": "time"}, "input_time: found none, expected a time for each start"),
        ({"input_time": [0]}, "input_time: found one without a time_attr"),
        ({"time_window": 3}, "time_window: found one without a time_attr"),
        ({"options": EARLIER}, "strictly_earlier: found True without a time_attr"),
        (
            {"time_attr": "time", "input_time": [0, 1]},
            "input_time: found 2, expected one for each of 1",
        ),
        ({"time_attr": "time", "input_time": [0.5]}, "expected integers as 'time' has them"),
        (
            {"time_attr": "time", "input_time": [0], "time_window": [1, 2]},
            r"time_window: found \[1, 2\], expected a length of time",
        ),
        (
            {"time_attr": "time", "input_time": [0], "time_window": -1},
            "time_window: found -1, expected a length of time",
        ),
        (
            {"time_attr": "time", "input_time": [0], "time_window": torch.tensor([1, 2])},
            "time_window: found 2, expected one for each of 1 starts",
        ),
    ],
)
def test_wrong_arguments_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        gz.sampler.random_walk(timed(), [3], 2, **options)
