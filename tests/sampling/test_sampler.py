"""Sampling held against its definition, its distribution, and itself on other thread counts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.sampler import NumNeighbors

from graphs import check_neighborhood, heterogeneous, homogeneous, random_edges, sample, star
from pyg_graphzero.sampling.neighbor import NeighborSampler


@settings(max_examples=60)
@given(
    num_nodes=st.integers(1, 60),
    num_edges=st.integers(0, 400),
    fanouts=st.lists(st.sampled_from([-1, 0, 1, 2, 5, 60]), min_size=1, max_size=3),
    replace=st.booleans(),
    seed=st.integers(0, 2**31),
    data=st.data(),
)
def test_sample_is_what_the_definition_says(num_nodes, num_edges, fanouts, replace, seed, data):
    edge_index = random_edges(num_nodes, num_nodes, num_edges, seed)
    graph = Data(edge_index=edge_index, num_nodes=num_nodes)
    seeds = data.draw(st.lists(st.integers(0, num_nodes - 1), max_size=8))
    sampler = NeighborSampler(graph, fanouts, replace=replace)
    out = sample(sampler, torch.tensor(seeds, dtype=torch.long), key=seed)

    assert out.node[: len(seeds)].tolist() == seeds
    assert len(out.num_sampled_nodes) == len(fanouts) + 1
    assert out.num_sampled_nodes[0] == len(seeds)
    assert sum(out.num_sampled_nodes) == out.node.numel()
    rest = out.node[len(seeds) :].tolist()
    assert len(set(rest) | set(seeds)) == len(rest) + len(set(seeds))  # deduplicated
    check_neighborhood(
        out.row, out.col, sampler.original_edge_ids(None, out.edge), out.node, out.node,
        edge_index, fanouts, out.num_sampled_nodes[:-1], out.num_sampled_edges, replace,
    )  # fmt: skip
    # New nodes of a hop are the sources its edges reach first.
    assert set(out.row.tolist()) | set(range(len(seeds))) >= set(range(out.node.numel()))


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), replace=st.booleans(), k=st.sampled_from([-1, 1, 3]))
def test_heterogeneous_sample_is_what_the_definition_says(seed, replace, k):
    graph = heterogeneous(seed)
    fanouts = {name: [k, 2] for name in graph.edge_types}
    fanouts["paper", "cites", "paper"] = [2, k]
    sampler = NeighborSampler(graph, fanouts, replace=replace)
    seeds = torch.randperm(200)[:20]
    out = sample(sampler, seeds, key=seed, node_type="paper")
    assert torch.equal(out.node["paper"][:20], seeds)
    for name in graph.edge_types:
        src, _, dst = name
        check_neighborhood(
            out.row[name], out.col[name], sampler.original_edge_ids(name, out.edge[name]),
            out.node[src], out.node[dst], graph[name].edge_index, fanouts[name],
            out.num_sampled_nodes[dst][:-1], out.num_sampled_edges[name], replace,
        )  # fmt: skip
    for name in graph.node_types:
        assert len(out.num_sampled_nodes[name]) == 3
        assert out.node[name].unique().numel() == out.node[name].numel()


def test_num_neighbors_forms():
    data = heterogeneous()
    names = data.edge_types
    by_list = NeighborSampler(data, [2, 1])
    by_dict = NeighborSampler(data, {name: [2, 1] for name in names})
    by_object = NeighborSampler(data, NumNeighbors({names[0]: [2, 1]}, default=[2, 1]))
    outs = [sample(s, torch.arange(30), node_type="paper") for s in (by_list, by_dict, by_object)]
    for out in outs[1:]:
        assert all(torch.equal(out.edge[n], outs[0].edge[n]) for n in names)
    for values in ([np.int64(2), np.int32(1)], np.array([2, 1]), torch.tensor([2, 1]), (2, 1)):
        out = sample(NeighborSampler(data, values), torch.arange(30), node_type="paper")
        assert all(torch.equal(out.edge[n], outs[0].edge[n]) for n in names)
    with pytest.raises(ValueError, match=r"num_neighbors\[0\] of .*: found (np.)?True"):
        NeighborSampler(data, [np.True_])
    with pytest.raises(ValueError, match="Missing number of neighbors for edge type"):
        NeighborSampler(data, {names[0]: [1]})
    with pytest.raises(ValueError, match="expected a list for a homogeneous graph"):
        NeighborSampler(homogeneous(), {names[0]: [1]})
    with pytest.raises(ValueError, match="Number of hops must be the same"):
        NeighborSampler(data, NumNeighbors({names[0]: [1]}, default=[1, 1]))


def test_fanout_zero_and_bad_fanouts():
    data = homogeneous()
    out = sample(NeighborSampler(data, [0, 3]), [1, 2])
    assert out.node.tolist() == [1, 2]
    assert out.row.numel() == 0
    assert out.num_sampled_edges == [0, 0]
    for counts, words in (
        (5, "num_neighbors: found 5, expected a list of counts"),
        ([3, -2], r"num_neighbors\[1\]: found -2, expected a count, 0, or"),
        ([2.5], r"num_neighbors\[0\]: found 2.5"),
    ):
        with pytest.raises(ValueError, match=words):
            NeighborSampler(data, counts)


def test_bad_seeds_name_what_is_wrong():
    sampler = NeighborSampler(homogeneous(), [3])
    for error, seeds, words in (
        (IndexError, [1, 300], "seed 1: found node 300, expected 0 <= node < 300"),
        (IndexError, [-1], "seed 0: found node -1, expected 0 <= node < 300"),
        (IndexError, [4_000_000_000], "found node 4000000000"),
        (TypeError, torch.tensor([1.0]), "seeds: found torch.float32, expected integers"),
    ):
        with pytest.raises(error, match=words):
            sample(sampler, seeds)
    with pytest.raises(KeyError, match="input node type"):
        sample(sampler, [1], node_type="paper")
    # The sampler survives an error.
    assert sample(sampler, [1]).node[0] == 1
    assert sample(sampler, torch.tensor([], dtype=torch.long)).node.numel() == 0
    assert sample(sampler, torch.tensor([3], dtype=torch.int32)).node[0] == 3


def test_edges_outside_the_graph_are_refused():
    for error, edges, words in (
        (IndexError, [[0, 5], [1, 1]], "edge 1: source id: found 5, expected 0 <= id < 3"),
        (ValueError, [[0.5], [1.0]], r"edge_index: found torch.float32 .* expected integers"),
        (ValueError, [[0, 1], [1, 2], [2, 0]], r"of shape \[3, 2\], expected integers \[2, n\]"),
    ):
        with pytest.raises(error, match=words):
            NeighborSampler(Data(edge_index=torch.tensor(edges), num_nodes=3), [1])


def test_a_huge_fanout_is_linear_in_what_it_draws():
    # 40,000 of 50,000 neighbours: a quadratic duplicate check would not finish.
    degree = 50_000
    out = sample(NeighborSampler(star(degree), [40_000]), [0])
    assert out.edge.unique().numel() == 40_000
