"""HGT sampling in windows of time, held against the definition: t - window <= time <= t."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from read_neighbours import in_pages
from scipy import stats
from torch_geometric.data import HeteroData
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import NodeSamplerInput

import pyg_graphzero as gz
from graphs import heterogeneous, random_edges
from pyg_graphzero import _core
from pyg_graphzero.loader import HGTLoader
from pyg_graphzero.sampling.hgt import HGTSampler

TO_B, TO_A = ("a", "to", "b"), ("b", "to", "a")
MAX_NEIGHBORS = 50  # of a hub get budget


def timed(level: str, dtype: torch.dtype = torch.int64, seed: int = 0) -> HeteroData:
    """A graph without hubs; nodes of type c, or edges from it, have no times."""
    random = torch.Generator().manual_seed(seed)
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes, data["c"].num_nodes = 15, 12, 5
    for at, (name, count) in enumerate(
        [(TO_B, 40), (TO_A, 40), (("a", "to", "a"), 40), (("c", "to", "b"), 12)]
    ):
        sizes = data[name[0]].num_nodes, data[name[2]].num_nodes
        data[name].edge_index = random_edges(*sizes, count, seed + at)
    for name in ("a", "b") if level == "node" else data.edge_types[:3]:
        count = data[name].num_nodes if level == "node" else data[name].num_edges
        data[name].time = torch.randint(20, (count,), generator=random).to(dtype)
        data[name].time = data[name].time / (4 if dtype.is_floating_point else 1)
    return data


class Definition:
    """What the trees of some seeds may see, and the budgets that follow."""

    def __init__(self, data, times, window, strict, num_hops):
        self.data, self.times, self.window, self.strict = data, times, window, strict
        self.num_windows = max(1, num_hops)

    def length(self, name, tree, hop):
        own = self.window.get(name) if isinstance(self.window, dict) else self.window
        if isinstance(own, torch.Tensor):
            return own[tree]
        if isinstance(own, list):
            own = own[min(hop, self.num_windows - 1)]
        return math.inf if own is None else own

    def edges(self, name, tree, hop, node) -> Iterator[tuple[int, int]]:
        """Number and source of the edges into a node of a tree that a hop has added."""
        src = name[0]
        row, col = self.data[name].edge_index
        times = None
        if "time" in self.data[name]:
            times = self.data[name].time
        elif "time" in self.data[src]:
            times = self.data[src].time[row]
        for e in (col == node).nonzero().view(-1).tolist():
            if times is not None:
                time, seed = times[e], self.times[tree]
                if time < seed - self.length(name, tree, hop):
                    continue
                if time >= seed if self.strict else time > seed:
                    continue
            yield e, int(row[e])

    def budgets(self, sampled):
        """Of nodes of trees, by type; ``sampled``: {(tree, node): hop} by type."""
        found = {name: {} for name in self.data.node_types}
        for name in self.data.edge_types:
            src, _, dst = name
            for (tree, node), hop in sampled[dst].items():
                edges = list(self.edges(name, tree, hop, node))
                for _, source in edges:
                    at = tree, source
                    if at not in sampled[src]:
                        found[src][at] = found[src].get(at, 0.0) + 1 / len(edges)
        return found


def sample(sampler, seeds, times, windows=None, key=7, node_type="a"):
    seeds = torch.as_tensor(seeds, dtype=torch.long)
    inputs = NodeSamplerInput(torch.arange(len(seeds)), seeds, times, node_type)
    prepared = sampler.prepare_nodes(inputs, windows)
    return sampler.sample(prepared, key)


WINDOWS = st.one_of(
    st.none(),
    st.integers(0, 12),
    st.just(math.inf),
    st.lists(st.one_of(st.none(), st.integers(0, 12)), min_size=3, max_size=3),
    st.dictionaries(st.sampled_from([TO_A, TO_B, ("a", "to", "a")]), st.integers(0, 12)),
    st.lists(st.integers(0, 12), min_size=6, max_size=6).map(torch.tensor),
)


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**31),
    level=st.sampled_from(["node", "edge"]),
    dtype=st.sampled_from([torch.int64, torch.float32]),
    counts=st.lists(st.sampled_from([0, 1, 4, 1000]), max_size=3),
    seeds=st.lists(st.integers(0, 14), max_size=6),
    window=WINDOWS,
    strict=st.booleans(),
    own_times=st.booleans(),
)
def test_a_sample_is_what_the_definition_says(
    seed, level, dtype, counts, seeds, window, strict, own_times
):
    data = timed(level, dtype, seed)
    if isinstance(window, list):
        window = window[: max(1, len(counts))]
    per_seed = window[: len(seeds)] if isinstance(window, torch.Tensor) else None
    num_samples = {"a": counts, "b": counts[::-1], "c": [2] * len(counts)}
    sampler = HGTSampler(
        data, num_samples, time_attr="time", strict=strict,
        time_window="per seed" if per_seed is not None else window,
    )  # fmt: skip
    if own_times and level == "node":
        times, given_times = data["a"].time[torch.tensor(seeds, dtype=torch.long)], None
    else:
        random = torch.Generator().manual_seed(seed)
        times = given_times = torch.randint(22, (len(seeds),), generator=random).to(dtype)
    out = sample(sampler, seeds, given_times, per_seed, key=seed)

    assert out.node["a"][: len(seeds)].tolist() == seeds
    assert out.batch["a"][: len(seeds)].tolist() == list(range(len(seeds)))
    assert out.num_sampled_edges is None
    definition = Definition(data, times, window, strict, len(counts))
    nodes = {
        name: list(zip(out.batch[name].tolist(), out.node[name].tolist(), strict=True))
        for name in data.node_types
    }
    sampled = {name: {} for name in data.node_types}
    for hop in range(len(counts) + 1):
        budget = definition.budgets(sampled)
        for name in data.node_types:
            drawn, done = out.num_sampled_nodes[name][hop], len(sampled[name])
            fresh = nodes[name][done : done + drawn]
            if hop == 0:
                assert drawn == (len(seeds) if name == "a" else 0)
            else:
                assert drawn == min(num_samples[name][hop - 1], len(budget[name]))
                assert set(fresh) <= set(budget[name])
            sampled[name].update(dict.fromkeys(fresh, hop))
            assert len(sampled[name]) == done + drawn  # none of them twice
    assert all(len(sampled[name]) == len(nodes[name]) for name in nodes)
    for name in data.edge_types:
        src, _, dst = name
        place = {node: at for at, node in enumerate(nodes[src])}
        expected = sorted(
            (col, place[tree, source], e)
            for col, (tree, node) in enumerate(nodes[dst])
            for e, source in definition.edges(name, tree, sampled[dst][tree, node], node)
            if (tree, source) in place
        )
        ids = sampler.original_edge_ids(name, out.edge[name])
        found = zip(out.col[name].tolist(), out.row[name].tolist(), ids.tolist(), strict=True)
        assert sorted(found) == expected
        assert (out.col[name].diff() >= 0).all()


def rarely_together(found, expected):
    """χ² of counts, those that are rare in one."""
    kept = [i for i, e in enumerate(expected) if e >= 10]
    tail = [sum(v for i, v in enumerate(each) if i not in kept) for each in (found, expected)]
    seen, want = [found[i] for i in kept], [expected[i] for i in kept]
    if tail[1] > 0:
        seen, want = [*seen, tail[0]], [*want, tail[1]]
    else:
        assert tail[0] == 0
    return stats.chisquare(seen, want).pvalue


@pytest.mark.parametrize("window", [None, 9, [9, 4]], ids=str)
@pytest.mark.parametrize("level", ["node", "edge"])
def test_nodes_of_trees_are_drawn_in_proportion_to_their_budgets_squared(level, window):
    """Trees compete: all outcomes of two hops, and how often each comes by the definition."""
    data = timed(level, seed=24)
    seeds, times = [1, 1, 4], torch.tensor([8, 17, 14])
    num_samples = {"a": [1, 1], "b": [2, 0]}
    sampler = HGTSampler(data, num_samples, time_attr="time", time_window=window)
    definition = Definition(data, times, window, False, 2)

    def following(sampled, name, hop, count):
        """The next nodes of a type with their probabilities, as sequences."""
        budget = definition.budgets(sampled)[name]
        return successive({node: b * b for node, b in budget.items()}, count)

    expected: dict[tuple, float] = {}
    start = {"a": dict.fromkeys(enumerate(seeds), 0), "b": {}, "c": {}}
    for first, p in following(start, "a", 1, 1).items():
        for others, q in following(start, "b", 1, 2).items():
            then = {**start, "a": {**start["a"], first[0]: 1}, "b": dict.fromkeys(others, 1)}
            for last, r in following(then, "a", 2, 1).items():
                at = (*first, *others, *last)
                expected[at] = expected.get(at, 0) + p * q * r
    assert sum(expected.values()) == pytest.approx(1)
    assert len({at[0] for at in expected}) > 3

    draws = 6000
    found = dict.fromkeys(expected, 0)
    for key in range(draws):
        out = sample(sampler, seeds, times, key=key)
        pairs = {t: list(zip(out.batch[t].tolist(), out.node[t].tolist(), strict=True))
                 for t in "ab"}  # fmt: skip
        found[(pairs["a"][3], *pairs["b"], pairs["a"][4])] += 1
    assert rarely_together(list(found.values()), [draws * p for p in expected.values()]) > 1e-5


def successive(weights, count):
    """The probability of each sequence of draws in proportion to weight, without replacement."""
    if count == 0 or not weights:
        return {(): 1.0}
    total, found = sum(weights.values()), {}
    for node, weight in weights.items():
        rest = {other: w for other, w in weights.items() if other != node}
        for tail, p in successive(rest, count - 1).items():
            found[(node, *tail)] = weight / total * p
    return found


def test_a_hub_lets_neighbours_of_the_window_into_the_budget():
    """50 of the 120 that are within, each as often as any other: χ²."""
    degree, inside = 400, 120
    data = HeteroData()
    data["hub"].num_nodes, data["leaf"].num_nodes = 1, degree
    order = torch.randperm(degree, generator=torch.Generator().manual_seed(2))
    data["leaf", "to", "hub"].edge_index = torch.stack([order, torch.zeros_like(order)])
    data["leaf", "to", "hub"].time = torch.arange(degree)  # of its leaf order[time]
    sampler = HGTSampler(data, {"leaf": [1000]}, time_attr="time", time_window=inside, strict=True)
    counts, rounds = torch.zeros(degree), 1500
    for key in range(rounds):
        out = sample(sampler, [0], torch.tensor([300]), key=key, node_type="hub")
        assert out.num_sampled_nodes["leaf"] == [0, MAX_NEIGHBORS]
        assert out.edge["leaf", "to", "hub"].numel() == MAX_NEIGHBORS
        counts[out.node["leaf"]] += 1
    valid = order[300 - inside : 300]
    assert int(counts.sum() - counts[valid].sum()) == 0
    expected = rounds * MAX_NEIGHBORS / inside
    # Without replacement counts vary less than a multinomial's: correct the statistic for it.
    shrink = 1 - (MAX_NEIGHBORS - 1) / (inside - 1)
    statistic = float(((counts[valid] - expected) ** 2 / expected).sum() / shrink)
    assert 1e-6 < stats.chi2.sf(statistic, inside - 1) < 1 - 1e-6


# The same in other ways ##########################################################################


def same(some, others):
    assert len(some) == len(others) > 0
    for a, b in zip(some, others, strict=True):
        for x, y in zip(a.stores, b.stores, strict=True):
            keys = [set(each.keys()) - {"num_nodes"} for each in (x, y)]  # a store says it
            assert keys[0] == keys[1]
            for key in keys[0]:
                assert torch.equal(torch.as_tensor(x[key]), torch.as_tensor(y[key])), key


def academic(level: str) -> HeteroData:
    data, random = heterogeneous(), torch.Generator().manual_seed(4)
    if level == "node":
        data["paper"].time = torch.randint(50, (200,), generator=random)
    else:
        for name in data.edge_types[:3]:
            count = data[name].num_edges
            data[name].time = torch.randint(50, (count,), generator=random)
    return data


TIMES = 10 + torch.arange(100) % 40
OPTIONS = {"input_time": TIMES, "time_attr": "time", "time_window": [9, 30], "strict": True}


def loader_of(data, **arguments):
    torch.manual_seed(5)
    return HGTLoader(
        data, [18, 16], ("paper", torch.arange(100)), batch_size=32, shuffle=True,
        **{**OPTIONS, **arguments},
    )  # fmt: skip


def batches(data, **arguments):
    loader = loader_of(data, **arguments)
    torch.manual_seed(5)
    return list(loader)


def check_batches(found, data, level):
    """Nothing in them is outside its window."""
    edges = 0
    for batch in found:
        size = batch["paper"].batch_size
        times = TIMES[batch["paper"].input_id]
        assert torch.equal(batch["paper"].seed_time, times)
        assert torch.equal(batch["paper"].batch[:size], torch.arange(size))
        assert torch.equal(batch["paper"].x, data["paper"].x[batch["paper"].n_id])
        for name in batch.edge_types:
            src, _, dst = name
            row, col = batch[name].edge_index
            tree = batch[dst].batch[col]
            assert torch.equal(batch[src].batch[row], tree)
            ends = torch.stack([batch[src].n_id[row], batch[dst].n_id[col]])
            assert torch.equal(ends, data[name].edge_index[:, batch[name].e_id])
            own = data[name].time[batch[name].e_id] if "time" in data[name] else None
            if level == "node":
                own = data["paper"].time[ends[0]] if src == "paper" else None
            if own is not None:
                window = torch.where(col < batch[dst].num_sampled_nodes[0], 9, 30)
                assert (own < times[tree]).all()
                assert (own >= times[tree] - window).all()
                edges += own.numel()
        if level == "node":
            drawn = batch["paper"].n_id[size:]
            late = data["paper"].time[drawn] >= times[batch["paper"].batch[size:]]
            assert not late.any()
    assert edges > 50


@pytest.fixture(scope="module", params=["node", "edge"])
def of_level(request, tmp_path_factory):
    level = request.param
    data, path = academic(level), tmp_path_factory.mktemp("hgt") / "store"
    gz.convert(data, path, progress=False)
    return level, data, path


def test_batches_in_memory_on_disk_and_out_of_core(of_level):
    level, data, path = of_level
    expected = batches(data)
    check_batches(expected, data, level)
    with gz.open(path) as store:
        for given in (store, store.data(), (store.feature_store, store.graph_store)):
            same(batches(given), expected)
        for workers in (1, 2):
            same(batches(store, num_workers=workers), expected)
        for workers, share in ((0, 0.5), (2, 0.0)):
            loader = loader_of(store, num_workers=workers)
            torch.manual_seed(5)
            same(list(in_pages(loader, share)), expected)
            assert loader.stats().topology_reads > 0


def test_a_store_that_is_sorted_by_time(of_level, tmp_path):
    level, data, _ = of_level
    gz.convert(data, tmp_path / "by_time", time_attr="time", progress=False)
    with gz.open(tmp_path / "by_time") as store:
        check_batches(batches(store, num_workers=2), data, level)


def test_batches_do_not_depend_on_threads(of_level):
    _, data, _ = of_level
    seeds, times = torch.arange(200).repeat(30), torch.arange(6000) % 50
    one, two = (
        HGTSampler(data, [400, 300], threads, time_attr="time", time_window=20)
        for threads in (1, 2)
    )
    a = sample(one, seeds, times, node_type="paper")
    b = sample(two, seeds, times, node_type="paper")
    for part in ("node", "batch", "row", "col", "edge"):
        x, y = getattr(a, part), getattr(b, part)
        assert all(torch.equal(x[k], y[k]) for k in x), part
    assert a.num_sampled_nodes == b.num_sampled_nodes


def test_no_window_is_a_window_without_end(of_level):
    _, data, _ = of_level
    expected = batches(data, time_window=None)
    endless = torch.full((100,), math.inf)
    for window in (math.inf, 10**6, 10**30, [None, math.inf], {}, endless):
        same(batches(data, time_window=window), expected)


def test_one_tree_with_everything_in_time_is_what_it_is_without_times():
    data = academic("node")
    data["paper"].time = torch.zeros(200)  # neighbours keep their order
    now = torch.zeros(1)
    for key in range(20):
        a = sample(HGTSampler(data, [6, 5], time_attr="time"), [3], now, None, key, "paper")
        b = sample(HGTSampler(data, [6, 5]), [3], None, None, key, "paper")
        assert b.batch is None
        assert not any(a.batch[name].any() for name in data.node_types)
        assert a.num_sampled_nodes == b.num_sampled_nodes
        for part in ("node", "row", "col", "edge"):
            x, y = getattr(a, part), getattr(b, part)
            assert all(torch.equal(x[k], y[k]) for k in x), part


def test_pygs_own_loader_over_the_sampler():
    data = academic("edge")
    sampler = HGTSampler(data, [8, 6], time_attr="time", time_window=[9, 30], strict=True)
    loader = NodeLoader(
        data, sampler, ("paper", torch.arange(100)), input_time=TIMES, batch_size=32
    )
    check_batches(list(loader), data, "edge")


# Bad input #######################################################################################


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"temporal_strategy": "last"},
            gz.UnsupportedError,
            "temporal_strategy: found 'last', expected 'uniform'",
        ),
        ({"temporal_strategy": "first"}, ValueError, "temporal_strategy: found 'first'"),
        ({"time_attr": "year"}, ValueError, "time_attr='year': found it in no node or edge type"),
        ({"time_attr": None, "time_window": 3}, ValueError, "time_window=3: found no time_attr"),
        ({"time_attr": None, "strict": True}, ValueError, "strict=True: found no time_attr"),
        ({"time_window": [1, 2, 3]}, ValueError, "time_window.*: found 3 lengths, expected 2"),
        ({"time_window": {("a", "b"): 1}}, ValueError, r"time_window: found \('a', 'b'\)"),
        ({"time_window": -1}, ValueError, "time_window: found -1, expected a length of time"),
        ({"time_window": torch.ones(3)}, ValueError, "found 3, expected one for each of 100"),
        (
            {"input_time": TIMES[:3]},
            ValueError,
            "seed times: found 3, expected one for each",
        ),
    ],
)
def test_bad_arguments(options, error, message):
    base = {"input_time": TIMES, "time_attr": "time"}
    with pytest.raises(error, match=message):
        HGTLoader(academic("edge"), [4, 4], ("paper", torch.arange(100)), **{**base, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_attr": "time"}, "seed times: found none, and the 'paper' seeds have no 'time'"),
        ({"input_time": TIMES}, "seed times: found some, expected none without a time_attr"),
        (
            {"time_attr": "time", "input_time": TIMES + 0.5},
            r"seed times: found torch.float32, expected integers",
        ),
    ],
)
def test_times_that_seeds_lack_or_should_not_have(options, message):
    loader = HGTLoader(academic("edge"), [4], ("paper", torch.arange(100)), **options)
    with pytest.raises(ValueError, match=message):
        next(iter(loader))


def test_options_can_be_changed_to_what_there_is():
    data, times = timed("edge"), torch.tensor([19])
    sampler = HGTSampler(data, [9], time_attr="time")
    sampler.time_window = 2
    out = sample(sampler, [4], times)
    other = HGTSampler(data, [9], time_attr="time", time_window=2)
    assert out.num_sampled_nodes == sample(other, [4], times).num_sampled_nodes
    with pytest.raises(gz.UnsupportedError, match="found 'last', expected 'uniform'"):
        sampler.temporal_strategy = "last"


def test_the_engine_checks_its_times():
    engine = HGTSampler(timed("edge"), [1], time_attr="time").engine
    counts, seeds = [[1]] * 3, torch.tensor([0])

    def make(times, **options):
        _core.Recipe.hgt(engine, counts, **options).make([(0, seeds, times)], 0)

    need = "edges with times need disjoint sampling and a time per seed"
    with pytest.raises(ValueError, match=need):
        make(None, disjoint=True)
    with pytest.raises(ValueError, match=need):
        make(torch.tensor([3]))
    with pytest.raises(ValueError, match="seed times: found 1, expected 2"):
        make(torch.tensor([3]), disjoint=True, earliest=[[1]] * 4)
    with pytest.raises(ValueError, match="earliest: expected a window for each hop"):
        make(torch.tensor([3, 1]), disjoint=True, earliest=[[1, 1]] * 4)
    with pytest.raises(ValueError, match="earliest: expected a list for each edge type"):
        make(torch.tensor([3, 1]), disjoint=True, earliest=[[1]])
