"""Draws in one place are independent of draws in another.

Neighbourhoods here all have the same size, so that a draw is a position in one; pairs of draws are
then uniform over pairs of positions, whatever the two have in common or between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NeighborLoader as StockLoader
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput

import pyg_graphzero as gz
from pyg_graphzero.sampling.hgt import HGTSampler
from pyg_graphzero.util.keys import BatchKey

DEGREE = 4
NUM_NODES = 1500
EPOCH = 2**40 + 17


def edges(seed: int) -> Tensor:
    """Every node has ``DEGREE`` in-edges, one after the other, none of them from itself."""
    generator = torch.Generator().manual_seed(seed)
    away = torch.randint(1, NUM_NODES, (NUM_NODES * DEGREE,), generator=generator)
    dst = torch.arange(NUM_NODES).repeat_interleave(DEGREE)
    return torch.stack([(dst + away) % NUM_NODES, dst])


def regular() -> Data:
    return Data(edge_index=edges(1), num_nodes=NUM_NODES, w=torch.ones(NUM_NODES * DEGREE))


def check_independent(draws: Sequence[Tensor], lags: Sequence[int] = (-1, 0, 1)) -> None:
    """Each of them by itself, and with each other, also if one is a place ahead: χ²."""
    pairs = [(a, b, lag) for a, b in combinations(range(len(draws)), 2) for lag in lags]
    pairs += [(a, a, 1) for a in range(len(draws))]
    for a, b, lag in pairs:
        first, second = draws[a], draws[b]
        size = min(len(first), len(second)) - abs(lag)
        first = first[max(0, -lag) :][:size]
        second = second[max(0, lag) :][:size]
        counts = torch.bincount(first * DEGREE + second, minlength=DEGREE**2).double()
        expected = size / DEGREE**2
        statistic = float(((counts - expected).square() / expected).sum())
        assert chi2.sf(statistic, DEGREE**2 - 1) > 1e-6, (a, b, lag)


def by_hop(edge: Tensor, counts: Sequence[int]) -> list[Tensor]:
    """The position of each drawn edge in its neighbourhood, hop by hop."""
    return list((edge % DEGREE).split(list(counts)))


@pytest.mark.parametrize(
    "how",
    [{}, {"replace": True}, {"weight_attr": "w"}, {"weight_attr": "w", "replace": True}],
    ids=["uniform", "replace", "weighted", "weighted-replace"],
)
def test_hops_and_batches_and_epochs(how):
    sampler = gz.sampler.NeighborSampler(regular(), [1, 1], disjoint=True, **how)
    inputs = NodeSamplerInput(None, torch.arange(NUM_NODES))
    draws = []
    for epoch in (EPOCH, EPOCH + 2**33):
        for number in range(2):
            out = sampler.sample_from_nodes(inputs, BatchKey(epoch, number))
            assert out.num_sampled_edges == [NUM_NODES, NUM_NODES]
            draws += by_hop(out.edge, out.num_sampled_edges)
    check_independent(draws)


def test_two_of_one_node():
    """Draws with replacement from one neighbourhood."""
    sampler = gz.sampler.NeighborSampler(regular(), [2], replace=True, disjoint=True)
    inputs = NodeSamplerInput(None, torch.arange(NUM_NODES))
    out = sampler.sample_from_nodes(inputs, EPOCH)
    check_independent(list((out.edge % DEGREE).view(-1, 2).t()))


@pytest.mark.parametrize("how", [{}, {"weight_attr": "w"}, {"replace": True}])
def test_edge_types(how):
    data = HeteroData()
    data["v"].num_nodes = NUM_NODES
    for number, name in enumerate(["a", "b"]):
        data["v", name, "v"].edge_index = edges(number)
        data["v", name, "v"].w = torch.ones(NUM_NODES * DEGREE)
    sampler = gz.sampler.NeighborSampler(data, [1, 1], disjoint=True, **how)
    inputs = NodeSamplerInput(None, torch.arange(NUM_NODES), input_type="v")
    out = sampler.sample_from_nodes(inputs, EPOCH)
    draws = []
    for name in data.edge_types:
        draws += by_hop(out.edge[name], out.num_sampled_edges[name])
    check_independent([draw[:NUM_NODES] for draw in draws])


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loaders_batches_epochs_and_seeds(workers):
    """Two batches of the same seeds, in two epochs, after two manual seeds in a row."""
    nodes = torch.arange(NUM_NODES).repeat(2)
    loader = gz.loader.NeighborLoader(
        regular(), [1], nodes, batch_size=NUM_NODES, disjoint=True, num_workers=workers
    )
    draws = []
    for seed in (7, 8):
        torch.manual_seed(seed)
        draws += [batch.e_id % DEGREE for _ in range(2) for batch in loader]
    assert len(draws) == 8
    check_independent(draws)


def test_worker_processes():
    """A loader of PyG's makes its keys where the batch is made."""
    sampler = gz.sampler.NeighborSampler(regular(), [1], disjoint=True)
    loader = StockLoader(
        regular(),
        [1],
        torch.arange(NUM_NODES).repeat(4),
        batch_size=NUM_NODES,
        neighbor_sampler=sampler,
        num_workers=2,
        multiprocessing_context="fork",
    )
    check_independent([batch.e_id % DEGREE for batch in loader])


def test_orders_of_two_epochs():
    """Where a seed comes in one epoch says nothing about where it comes in the next."""
    torch.manual_seed(1)
    loader = gz.loader.NeighborLoader(regular(), [0], batch_size=100, shuffle=True)
    orders = [torch.cat([batch.n_id for batch in loader]) for _ in range(3)]
    places = [order.argsort() * DEGREE // NUM_NODES for order in orders]
    check_independent(places)


@pytest.mark.parametrize("depends", [False, True])
def test_hops_of_labor(depends):
    """A node at the second hop draws among the neighbours of one at the first by other numbers.

    Nodes come in groups: 0 has the neighbours 3 to 6; 1 has 2, and 2 has the neighbours of 0.
    """
    size, count = DEGREE + 3, 1000
    base = torch.arange(count) * size
    pairs = [(3 + i, end) for end in (0, 2) for i in range(DEGREE)] + [(2, 1)]
    edge_index = torch.cat([base + torch.tensor(pair).view(2, 1) for pair in pairs], dim=1)
    data = Data(edge_index=edge_index, num_nodes=count * size)
    options = gz.SamplingOptions(method="labor", layer_dependency=depends)
    sampler = gz.sampler.NeighborSampler(data, [1, 1], options=options)
    draws = []
    for number in range(2):
        inputs = NodeSamplerInput(None, torch.cat([base, base + 1]))
        out = sampler.sample_from_nodes(inputs, BatchKey(EPOCH, number))
        src, dst = out.node[out.row], out.node[out.col]
        for end in (0, 2):
            at = dst % size == end
            assert int(at.sum()) == count
            draws.append((src[at] % size - 3)[dst[at].argsort()])
    if depends:  # they are the same, as they should be
        assert torch.equal(draws[0], draws[1])
        assert torch.equal(draws[2], draws[3])
        draws = draws[::2]
    check_independent(draws)


@pytest.mark.parametrize("hops", [1, 2])
def test_hubs_of_hgt_give_budget_independently(hops):
    """A hub gives budget to 50 of 100 neighbours, to others for another edge type or hop."""
    data, many = HeteroData(), torch.arange(100)
    data["a"].num_nodes, data["b"].num_nodes = 202, 100
    to_seed = torch.stack([many + 1, torch.zeros_like(many)])
    # At the second hop whichever node came first has the others as neighbours.
    to_first = torch.stack([many.repeat(100) + 101, (many + 1).repeat_interleave(100)])
    data["a", "to", "a"].edge_index = torch.cat([to_seed, to_first], 1)
    data["b", "to", "a"].edge_index = torch.stack([many, torch.zeros_like(many)])
    counts = {"a": [100], "b": [100]} if hops == 1 else {"a": [1, 200], "b": [0, 0]}
    sampler = HGTSampler(data, counts)
    inputs = NodeSamplerInput(None, torch.tensor([0]), input_type="a")
    nodes = sampler.sample_from_nodes(inputs, EPOCH).node
    first = {int(node) - 1 for node in nodes["a"] if 1 <= node <= 100}
    other = set(nodes["b"].tolist()) if hops == 1 else {int(n) - 101 for n in nodes["a"] if n > 100}
    assert len(first) == len(other) == 50
    assert 10 <= len(first & other) <= 40  # 25, with a deviation of 2.5


def test_a_hop_of_hgt_forgets_who_lost_in_the_one_before():
    """At the second hop four new nodes compete with three that have as much budget."""
    data, few = HeteroData(), torch.arange(1, 5)
    data["a"].num_nodes = 9
    to_seed = torch.stack([few, torch.zeros_like(few)])
    to_first = torch.stack([few.repeat(4) + 4, few.repeat_interleave(4)])
    data["a", "to", "a"].edge_index = torch.cat([to_seed, to_first], 1)
    sampler = HGTSampler(data, [1, 1])
    inputs = NodeSamplerInput(None, torch.tensor([0]), input_type="a")
    nodes = [
        sampler.sample_from_nodes(inputs, BatchKey(EPOCH, number)).node["a"]
        for number in range(1200)
    ]
    counts = torch.bincount(torch.stack(nodes)[:, 2], minlength=9)
    assert counts[1:].sum() == 1200
    # 4 / 7 of them; a deviation is 17.
    assert abs(int(counts[5:].sum()) - 1200 * 4 / 7) < 6 * 17


def test_types_of_hgt():
    """One node of each of two types, by numbers of its own."""
    data = HeteroData()
    data["a"].num_nodes = 1
    for name in ("b", "c"):
        data[name].num_nodes = DEGREE
        few = torch.arange(DEGREE)
        data[name, "to", "a"].edge_index = torch.stack([few, torch.zeros_like(few)])
    sampler = HGTSampler(data, [1])
    inputs = NodeSamplerInput(None, torch.tensor([0]), input_type="a")
    nodes = [
        sampler.sample_from_nodes(inputs, BatchKey(EPOCH, number)).node for number in range(800)
    ]
    check_independent([torch.cat([node[name] for node in nodes]) for name in ("b", "c")])


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_negatives_and_neighbors(mode):
    """Ends of negatives, of two batches of the same edges, and the neighbours of their seeds."""
    data = regular()
    sampler = gz.sampler.NeighborSampler(data, [1], disjoint=True)
    index = torch.randperm(data.num_edges)[:NUM_NODES]
    row, col = data.edge_index[:, index]
    draws = []
    for number in range(2):
        out = sampler.sample_from_edges(
            EdgeSamplerInput(None, row, col),
            key=BatchKey(EPOCH, number),
            neg_sampling=NegativeSampling(mode),
        )
        found = out.metadata
        ends = found[1][:, NUM_NODES:] if mode == "binary" else found[3].view(1, -1)
        draws += [out.node[end] * DEGREE // NUM_NODES for end in ends]
        # Edges lie by seeds; disjoint, each end has one.
        draws += list((out.edge % DEGREE)[: 2 * NUM_NODES].split(NUM_NODES))
    check_independent(draws)
