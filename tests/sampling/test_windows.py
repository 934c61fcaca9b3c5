"""Windows of time, held against the definition: t - window <= time <= t, of a tree's seed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch_geometric.data import Data, HeteroData

import pyg_graphzero as gz
from graphs import random_edges, star
from pyg_graphzero.loader import LinkNeighborLoader, NeighborLoader
from pyg_graphzero.sampling.neighbor import NeighborSampler

NODES, EDGES = 40, 400
EARLIER = gz.SamplingOptions(strictly_earlier=True)


def timed(level="edge", dtype=torch.int64, seed=0):
    random = torch.Generator().manual_seed(seed)
    data = Data(edge_index=random_edges(NODES, NODES, EDGES, seed), num_nodes=NODES)
    data.time = torch.randint(50, (EDGES if level == "edge" else NODES,), generator=random)
    if dtype.is_floating_point:
        data.time = data.time.to(dtype) / 4
        data.time[(data.time == 0).nonzero()[::2]] = -0.0  # which is no other time
    return data


def reference(data, seed, time, length, strict=False):
    """Edges of the tree of a seed that takes all neighbours of two hops, in any order."""
    (src, dst), frontier, seen, edges = data.edge_index, {seed}, {seed}, []
    times = data.time if data.time.numel() == EDGES else data.time[src]
    early = times >= time - (math.inf if length is None else length)
    valid = early & ((times < time) if strict else (times <= time))
    for _ in range(2):
        taken = [e for e in range(EDGES) if valid[e] and int(dst[e]) in frontier]
        edges += taken
        frontier = {int(src[e]) for e in taken} - seen
        seen |= frontier
    return sorted(edges)


def found(batch, tree):
    of = batch.batch[batch.edge_index[1]] == tree
    return sorted(batch.e_id[of].tolist())


def check(data, length, strict=False, source=None, per_seed=None, **options):
    seeds = torch.tensor([3, 17, 3, 0, 25])
    times = torch.tensor([10, 30, 49, 0, 22]).to(data.time.dtype)
    if data.time.is_floating_point():
        times = times / 4
    loader = NeighborLoader(
        data if source is None else source,
        [-1, -1],
        input_nodes=seeds,
        input_time=times,
        time_attr="time",
        batch_size=5,
        options=EARLIER if strict else None,
        time_window=length if per_seed is None else per_seed,
        **options,
    )
    (batch,) = loader
    for tree, (seed, time) in enumerate(zip(seeds.tolist(), times, strict=True)):
        own = length if per_seed is None else per_seed[tree]
        assert found(batch, tree) == reference(data, seed, time, own, strict)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
@pytest.mark.parametrize("level", ["edge", "node"])
@pytest.mark.parametrize("length", [0, 5, 12.5, 1e30, math.inf, None])
def test_everything_within_the_window_is_there_and_nothing_else(length, level, dtype, strict):
    check(timed(level, dtype), length, strict)


@pytest.mark.parametrize("kind", [torch.tensor, np.array])
def test_seeds_with_windows_of_their_own(kind):
    check(timed(), None, per_seed=kind([0, 7, 30, 2, 100]))
    check(timed(dtype=torch.float64), None, True, per_seed=kind([0.25, 7.5, 3, math.inf, 100]))


def test_windows_of_a_store_out_of_core(tmp_path):
    data = timed()
    data.x = torch.randn(NODES, 4)
    gz.convert(data, tmp_path / "store")
    with gz.open(tmp_path / "store") as store:
        check(data, 20, source=store.data())
        check(data, 8, True, source=store.data(), num_workers=2)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("window", [10, None])
def test_draws_are_in_proportion_within_the_window(replace, weighted, window):
    """One of 40 neighbours, 11 or 31 of which are within: chi-squared."""
    degree, draws = 40, 20_000
    order = torch.randperm(degree, generator=torch.Generator().manual_seed(2))
    weight = 1.0 + torch.arange(degree) % 3 if weighted else torch.ones(degree)
    data = star(degree, time=order, weight=weight)
    loader = NeighborLoader(
        data, [1], input_nodes=torch.zeros(draws, dtype=torch.long), batch_size=draws,
        input_time=torch.full((draws,), 30), time_attr="time", time_window=window, replace=replace,
        weight_attr="weight" if weighted else None, generator=torch.Generator().manual_seed(5),
    )  # fmt: skip
    (batch,) = loader
    counts = batch.e_id.bincount(minlength=degree).double()
    inside = (order >= 30 - (window or 30)) & (order <= 30)
    assert int(counts[~inside].sum()) == 0
    expected = weight.double() * inside
    expected = (expected / expected.sum() * draws)[inside]
    assert stats.chisquare(counts[inside].numpy(), expected.numpy()).pvalue > 1e-4


def test_edge_types_without_times_have_no_window():
    random = torch.Generator().manual_seed(1)
    data = HeteroData()
    data["user"].num_nodes, data["item"].num_nodes = 20, 30
    types = [("item", "of", "user"), ("user", "likes", "item"), ("user", "knows", "user")]
    for src, name, dst in types:
        sizes = [data[src].num_nodes, data[dst].num_nodes]
        ends = [torch.randint(size, (200,), generator=random) for size in sizes]
        data[src, name, dst].edge_index = torch.stack(ends)
        if name != "knows":
            data[src, name, dst].time = torch.randint(50, (200,), generator=random)
    loader = NeighborLoader(
        data, [-1, -1], input_nodes="user", input_time=torch.full((20,), 40), time_attr="time",
        time_window=20, batch_size=20,
    )  # fmt: skip
    (batch,) = loader
    for name in types[:2]:
        times = data[name].time[batch[name].e_id]
        assert times.numel()
        assert int(times.min()) >= 20
        assert int(times.max()) <= 40
    # of those without times all are taken
    degrees = data[types[2]].edge_index[1].bincount(minlength=20)
    assert batch[types[2]].num_sampled_edges[0] == int(degrees.sum())


@pytest.mark.parametrize("negatives", [None, "binary", "triplet"])
def test_links(negatives):
    data = timed()
    seeds, times = data.edge_index[:, :30], data.time[:30]
    windows = torch.arange(30) % 7
    loader = LinkNeighborLoader(
        data, [-1, -1], edge_label_index=seeds, edge_label_time=times, time_attr="time",
        time_window=windows, options=EARLIER, neg_sampling=negatives, batch_size=10,
    )  # fmt: skip
    seen = 0
    for number, batch in enumerate(loader):
        of_seed = torch.arange(10 * number, 10 * number + 10)
        edges = of_seed[batch.batch[batch.edge_index[1]]]
        drawn = data.time[batch.e_id]
        assert bool((drawn < times[edges]).all())
        assert bool((drawn >= times[edges] - windows[edges]).all())
        seen += edges.numel()
        for tree in range(10):
            own = [int(node) for node in seeds[:, of_seed[tree]]]
            expected = set()
            for node in own:
                time = times[of_seed[tree]]
                expected |= set(reference(data, node, time, windows[of_seed[tree]], True))
            assert expected <= set(found(batch, tree))
    assert seen


def test_induced_edges_are_within_the_window():
    data = timed()
    loader = NeighborLoader(
        data, [-1, -1], input_time=torch.full((NODES,), 30), time_attr="time", time_window=6,
        subgraph_type="induced", batch_size=NODES,
    )  # fmt: skip
    (batch,) = loader
    times = data.time[batch.e_id]
    assert int(times.min()) >= 24
    assert int(times.max()) <= 30


BAD = {
    "without times": ({"time_window": 3, "time_attr": None}, "no time_attr"),
    "strictly without": ({"options": EARLIER, "time_attr": None}, "no time_attr"),
    "negative": ({"time_window": -1}, "found -1, expected a length of time"),
    "nan": ({"time_window": math.nan}, "found nan"),
    "text": ({"time_window": "3d"}, "found '3d'"),
    "truth": ({"time_window": True}, "found True"),
    "list": ({"time_window": [1, 2]}, r"found \[1, 2\], expected a length of time"),
    "seeds without times": (
        {"time_window": torch.ones(NODES), "time_attr": None},
        "no time_attr",
    ),
    "seeds": ({"time_window": torch.ones(3)}, "found 3, expected one for each of 40"),
    "of a seed": ({"time_window": -torch.ones(NODES)}, r"time_window\[0\]: found -1.0"),
    "table": ({"time_window": torch.ones(2, 2)}, r"of shape \[2, 2\]"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_windows(name):
    options, said = BAD[name]
    options = {"time_attr": "time", **options}
    if options["time_attr"]:
        options["input_time"] = torch.full((NODES,), 30)
    with pytest.raises(ValueError, match=said):
        NeighborLoader(timed(), [2, 2], **options)


def test_a_sampler_has_windows_too_and_loaders_take_its_own():
    data, times = timed(), torch.full((NODES,), 30)
    sampler = NeighborSampler(data, [-1], time_attr="time", time_window=4)
    (batch,) = NeighborLoader(
        data, [-1], input_time=times, time_attr="time", neighbor_sampler=sampler, batch_size=NODES
    )
    assert int(data.time[batch.e_id].min()) >= 26
    with pytest.raises(ValueError, match="beside a neighbor_sampler"):
        NeighborLoader(data, [-1], neighbor_sampler=sampler, time_window=5)
    own = torch.arange(NODES) % 5
    loader = NeighborLoader(
        data, [-1], input_time=times, time_attr="time", time_window=own, neighbor_sampler=sampler,
        batch_size=NODES,
    )  # fmt: skip
    (batch,) = loader
    drawn = data.time[batch.e_id]
    assert bool((drawn >= 30 - own[batch.batch[batch.edge_index[1]]]).all())
    with pytest.raises(ValueError, match="found one for each seed, expected a number"):
        NeighborSampler(data, [-1], time_attr="time", time_window=own)
