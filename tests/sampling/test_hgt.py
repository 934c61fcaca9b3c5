"""HGT sampling, held against its definition, its exact probabilities, and itself elsewhere."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch
import torch_geometric.loader
from hypothesis import given, settings
from hypothesis import strategies as st
from same import assert_same
from scipy import stats
from torch_geometric.data import HeteroData
from torch_geometric.sampler import EdgeSamplerInput, NodeSamplerInput

import pyg_graphzero as gz
from graphs import check_rows, heterogeneous, random_edges
from pyg_graphzero.loader import HGTLoader
from pyg_graphzero.loader.keyed import KeyedLoader
from pyg_graphzero.sampling.hgt import HGTSampler

MAX_NEIGHBORS = 50  # of a hub get budget


def sample(sampler, seeds, node_type="paper", key=7):
    seeds = torch.as_tensor(seeds, dtype=torch.long)
    inputs = NodeSamplerInput(torch.arange(len(seeds)), seeds, None, node_type)
    return sampler.sample_from_nodes(inputs, key=key)


def small(seed: int) -> HeteroData:
    """A graph without hubs, so that budgets follow from the edges alone."""
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes, data["c"].num_nodes = 30, 20, 9
    data["a", "to", "a"].edge_index = random_edges(30, 30, 60, seed)
    data["b", "to", "a"].edge_index = random_edges(20, 30, 40, seed + 1)
    data["a", "to", "b"].edge_index = random_edges(30, 20, 45, seed + 2)
    data["c", "to", "b"].edge_index = random_edges(9, 20, 25, seed + 3)
    data["c", "also", "b"].edge_index = random_edges(9, 20, 12, seed + 4)
    return data


def budgets(data, sampled):
    """Budget that the sampled nodes (by type, occurrences counted) give each other node."""
    found = {name: {} for name in data.node_types}
    for name in data.edge_types:
        src, _, dst = name
        row, col = data[name].edge_index.tolist()
        for node in sampled[dst]:
            neighbors = [r for r, c in zip(row, col, strict=True) if c == node]
            for r in neighbors:
                if r not in sampled[src]:
                    found[src][r] = found[src].get(r, 0.0) + 1 / len(neighbors)
    return found


def check_edges(data, sampler, out):
    """The edges are all that join sampled nodes, duplicates at every place of their destination."""
    for name in data.edge_types:
        src, _, dst = name
        edge_index = data[name].edge_index
        ids = sampler.original_edge_ids(name, out.edge[name])
        assert torch.equal(out.node[src][out.row[name]], edge_index[0, ids])
        assert torch.equal(out.node[dst][out.col[name]], edge_index[1, ids])
        assert (out.col[name].diff() >= 0).all()
        inside = torch.isin(edge_index[0], out.node[src])
        want = [
            (place, int(e))
            for place, node in enumerate(out.node[dst].tolist())
            for e in (inside & (edge_index[1] == node)).nonzero().view(-1)
        ]
        assert sorted(zip(out.col[name].tolist(), ids.tolist(), strict=True)) == sorted(want)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    counts=st.lists(st.sampled_from([0, 1, 3, 1000]), max_size=3),
    seeds=st.lists(st.integers(0, 29), max_size=6),
)
def test_a_sample_is_what_the_definition_says(seed, counts, seeds):
    data = small(seed)
    num_samples = {"a": counts, "b": counts[::-1], "c": [2] * len(counts)}
    sampler = HGTSampler(data, num_samples)
    out = sample(sampler, seeds, "a", key=seed)
    assert out.node["a"][: len(seeds)].tolist() == seeds
    assert out.num_sampled_edges is None
    done = dict.fromkeys(data.node_types, 0)
    for hop in range(len(counts) + 1):
        nodes = {name: out.node[name].tolist()[: done[name]] for name in data.node_types}
        budget = budgets(data, nodes)
        for name in data.node_types:
            drawn = out.num_sampled_nodes[name][hop]
            fresh = out.node[name].tolist()[done[name] : done[name] + drawn]
            if hop == 0:
                assert drawn == (len(seeds) if name == "a" else 0)
            else:
                assert drawn == min(num_samples[name][hop - 1], len(budget[name]))
                assert set(fresh) <= set(budget[name])  # reached from earlier nodes
                assert len(set(fresh)) == drawn
            done[name] += drawn
    assert done == {name: out.node[name].numel() for name in data.node_types}
    check_edges(data, sampler, out)


def test_nothing_to_sample():
    data = heterogeneous()
    sampler = HGTSampler(data, {})
    out = sample(sampler, [3, 9])
    assert {name: n.numel() for name, n in out.node.items()} == {
        "paper": 2, "author": 0, "venue": 0,
    }  # fmt: skip
    check_edges(data, sampler, out)
    out = sample(HGTSampler(data, {"author": [2, 0]}), torch.arange(200))
    assert out.num_sampled_nodes == {"paper": [200, 0, 0], "author": [0, 2, 0], "venue": [0, 0, 0]}
    assert sample(sampler, []).node["paper"].numel() == 0


# Distribution ####################################################################################


def shares() -> tuple[HeteroData, list[float]]:
    """Seeds 0 and 1 of type t, and the budgets of type s they make by two edge types."""
    data = HeteroData()
    data["t"].num_nodes, data["s"].num_nodes = 2, 6
    data["s", "one", "t"].edge_index = torch.tensor([[0, 1, 2, 1, 1, 3, 4], [0, 0, 0, 1, 1, 1, 1]])
    data["s", "two", "t"].edge_index = torch.tensor([[3, 4], [0, 1]])
    third = 1 / 3
    return data, [third, third + 0.5, third, 0.25 + 1.0, 0.25 + 1.0, 0.0]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.long
def test_the_first_hop_has_the_exact_probabilities(count):
    data, budget = shares()
    weight = [b * b for b in budget[:5]]
    sampler = HGTSampler(data, {"s": [count]})
    draws = 20_000
    found = Counter(
        tuple(sample(sampler, [0, 1], "t", key).node["s"].tolist()) for key in range(draws)
    )
    counts, expected = Counter(), Counter()
    for order in itertools.permutations(range(5), count):
        probability, left = draws, sum(weight)
        for node in order:
            probability *= weight[node] / left
            left -= weight[node]
        bin = order if probability >= 10 else "rare"  # χ² wants a handful of each
        counts[bin] += found.pop(order, 0)
        expected[bin] += probability
    assert not found
    assert stats.chisquare([*counts.values()], [*expected.values()]).pvalue > 1e-6


def test_a_hub_lets_some_neighbors_into_the_budget():
    degree = 400
    data = HeteroData()
    data["hub"].num_nodes, data["leaf"].num_nodes = 1, degree
    data["leaf", "to", "hub"].edge_index = torch.stack(
        [torch.arange(degree), torch.zeros(degree, dtype=torch.long)]
    )
    sampler = HGTSampler(data, {"leaf": [1000, 1000]})
    counts = torch.zeros(degree)
    for key in range(2000):
        out = sample(sampler, [0], "hub", key)
        assert out.num_sampled_nodes["leaf"] == [0, MAX_NEIGHBORS, 0]
        counts[out.node["leaf"]] += 1
        assert out.edge["leaf", "to", "hub"].numel() == MAX_NEIGHBORS
    # Without replacement counts vary less than a multinomial's: correct the statistic for it.
    expected = 2000 * MAX_NEIGHBORS / degree
    shrink = 1 - (MAX_NEIGHBORS - 1) / (degree - 1)
    statistic = float(((counts - expected) ** 2 / expected).sum() / shrink)
    assert 1e-6 < stats.chi2.sf(statistic, degree - 1) < 1 - 1e-6
    # All edges among sampled nodes are there, whatever got budget.
    data["hub", "back", "leaf"].edge_index = data["leaf", "to", "hub"].edge_index.flip(0)
    sampler = HGTSampler(data, [1])
    out = sample(sampler, torch.arange(degree), "leaf")
    assert out.row["leaf", "to", "hub"].numel() == degree


def batches(data):
    torch.manual_seed(5)
    return list(HGTLoader(data, [8, 6], ("paper", torch.arange(100)), batch_size=32, shuffle=True))


# The loader ######################################################################################


def test_a_batch(hetero):
    data, store = hetero
    pair = (store.feature_store, store.graph_store)
    inputs = [data, store, store.data(), pair]
    all_batches = [batches(given) for given in inputs]
    for others in all_batches[1:]:
        assert_same(all_batches[0], others)
    for batch in all_batches[1]:
        assert type(batch) is HeteroData
        size = batch["paper"].batch_size
        assert torch.equal(batch["paper"].n_id[:size], batch["paper"].input_id)
        for name in data.node_types:
            assert batch[name].num_nodes == batch[name].n_id.numel()
            assert sum(batch[name].num_sampled_nodes) == batch[name].num_nodes
            assert len(batch[name].num_sampled_nodes) == 3
        check_rows(batch, data)
        assert not any("num_sampled_edges" in batch[name] for name in data.edge_types)


def test_it_is_a_loader_of_both_families(hetero):
    data, store = hetero

    def seen(batch):
        batch.seen = True
        return batch

    loader = HGTLoader(
        store, {"paper": [3], "author": [2]}, ("paper", data["paper"].train_mask), batch_size=10,
        is_sorted=True, input_id=torch.arange(int(data["paper"].train_mask.sum())) + 1000,
        transform=seen,
        transform_sampler_output=lambda out: out,
    )  # fmt: skip
    assert isinstance(loader, torch_geometric.loader.HGTLoader)
    assert isinstance(loader, KeyedLoader)
    assert isinstance(loader.node_sampler, HGTSampler)
    assert loader.num_samples == {"paper": [3], "author": [2]}  # Lightning reads it
    batch = next(iter(loader))
    assert batch.seen
    assert batch["paper"].input_id.min() >= 1000
    assert batch["venue"].num_nodes == 0
    assert loader(torch.tensor([0, 1]))["paper"].batch_size == 2
    whole = HGTLoader(store, [2], "venue", batch_size=7)
    assert [b["venue"].batch_size for b in whole] == [7]


# Bad input #######################################################################################


@pytest.mark.parametrize(
    ("num_samples", "message"),
    [
        ([3, -1], r"num_samples\[1\] of 'paper': found -1, expected a count or 0"),
        ({"author": [True]}, r"num_samples\[0\] of 'author': found True"),
        ({"pape": [3]}, "found node type 'pape', expected some of"),
        ({"paper": [3], "author": [3, 3]}, "expected the same number for every node type"),
    ],
)
def test_bad_counts(hetero, num_samples, message):
    with pytest.raises(ValueError, match=message):
        HGTLoader(hetero[1], num_samples, "paper")


def test_bad_seeds_and_graphs(homo, hetero):
    sampler = HGTSampler(heterogeneous(), [3])
    with pytest.raises(IndexError, match="seed 1: found node 200, expected 0 <= node < 200"):
        sample(sampler, [1, 200])
    with pytest.raises(IndexError, match="seed 0: found node -1"):
        sample(sampler, [-1])
    with pytest.raises(KeyError, match="input node type: found 'papers'"):
        sample(sampler, [1], "papers")
    inputs = NodeSamplerInput(None, torch.tensor([0.5]), None, "paper")
    with pytest.raises(TypeError, match=r"seeds: found torch.float32, expected integers"):
        sampler.sample_from_nodes(inputs)
    edges = EdgeSamplerInput(None, torch.tensor([0]), torch.tensor([0]))
    with pytest.raises(gz.UnsupportedError, match=r"use gz.loader.LinkNeighborLoader"):
        sampler.sample_from_edges(edges)
    for data in (homo[0], homo[1]):
        with pytest.raises(TypeError, match=r"homogeneous one use gz.loader.NeighborLoader"):
            HGTLoader(data, [3], None)
    with pytest.raises(ValueError, match="input_nodes: found node type 'pap'"):
        HGTLoader(hetero[1], [3], "pap")
    with pytest.raises(IndexError, match=r"input_nodes\[0\]: found node 7"):
        HGTLoader(hetero[1], [3], ("venue", [7]))


# torch-sparse ####################################################################################


@pytest.mark.parametrize("seed", range(5))
def test_torch_sparse_takes_the_same_when_it_takes_all(seed):
    pytest.importorskip("torch_sparse", reason="torch-sparse is not installed")
    data = small(seed)  # no hub, no duplicate seeds: where torch-sparse is exact
    theirs = torch_geometric.loader.HGTLoader(
        data, [1000, 1000], ("a", torch.arange(4)), batch_size=4
    )
    ours = HGTLoader(data, [1000, 1000], ("a", torch.arange(4)), batch_size=4)
    a, b = next(iter(theirs)), next(iter(ours))
    for name in data.node_types:
        assert sorted(a[name].n_id.tolist()) == sorted(b[name].n_id.tolist())
    for name in data.edge_types:
        assert sorted(a[name].e_id.tolist()) == sorted(b[name].e_id.tolist())
        assert b[name].edge_index.size(1) == a[name].edge_index.size(1)
    assert a["a"].batch_size == b["a"].batch_size
    assert torch.equal(a["a"].input_id, b["a"].input_id)
