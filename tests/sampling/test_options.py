"""Options of how batches are drawn: LABOR and its dependencies."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
import torch
import torch_geometric.loader
from scipy import stats
from torch_geometric.data import Data
from torch_geometric.sampler import NodeSamplerInput

from graphs import check_neighborhood, homogeneous, sample
from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.loader import LinkNeighborLoader, NeighborLoader, NodeLoader
from pyg_graphzero.sampler import RandomWalker
from pyg_graphzero.sampling.neighbor import NeighborSampler
from pyg_graphzero.sampling.options import SamplingOptions
from pyg_graphzero.util.keys import BatchKey


def labor(**more):
    return {"options": SamplingOptions(method="labor", **more)}


LABOR, DEEP, SLOW = labor(), labor(layer_dependency=True), labor(batch_dependency=16)
BOTH = labor(layer_dependency=True, batch_dependency=4)


def hubs(num_hubs: int, degree: int, **edges) -> Data:
    """Nodes 0 … num_hubs-1, each with all of the next ``degree`` nodes as neighbours."""
    dst = torch.arange(num_hubs).repeat_interleave(degree)
    src = num_hubs + torch.arange(degree).repeat(num_hubs)
    return Data(edge_index=torch.stack([src, dst]), num_nodes=num_hubs + degree, **edges)


def dense(num_nodes: int = 2000, degree: int = 50) -> Data:
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(num_nodes, (2, num_nodes * degree), generator=generator)
    return Data(x=torch.randn(num_nodes, 4), edge_index=edge_index, num_nodes=num_nodes)


def drawn(sampler, seeds, key=0):
    """The ids of the neighbours of every seed of a one-hop sample, as sets."""
    out = sample(sampler, seeds, key=key)
    return [set(out.node[out.row[out.col == i]].tolist()) for i in range(len(seeds))]


def n_ids(loader) -> list[list[int]]:
    return [batch.n_id.tolist() for batch in loader]


# LABOR ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [LABOR, DEEP, SLOW])
def test_batches_are_neighborhoods(data, store, options):
    for d in (data, store.data()):
        loader = NeighborLoader(d, [4, 3], input_nodes=data.train_idx, batch_size=16, **options)
        for batch in loader:
            assert torch.equal(batch.x, data.x[batch.n_id])
            check_neighborhood(
                *batch.edge_index, batch.e_id, batch.n_id, batch.n_id, data.edge_index, [4, 3],
                batch.num_sampled_nodes[:-1], batch.num_sampled_edges,
            )  # fmt: skip


@pytest.mark.parametrize("fanout", [[4], [-1], [0], [10**9]])
def test_labor_draws_as_many_edges_of_every_type(hetero, fanout):
    data, _ = hetero
    seeds = ("paper", torch.arange(50))
    for batch, alike in zip(
        NeighborLoader(data, fanout, input_nodes=seeds, batch_size=25, **LABOR),
        NeighborLoader(data, fanout, input_nodes=seeds, batch_size=25),
        strict=True,
    ):
        assert batch.num_sampled_edges_dict == alike.num_sampled_edges_dict


@pytest.mark.parametrize("options", [{}, LABOR, SLOW])
def test_weights_are_those_of_successive_draws(options):
    weights = np.array([1.0, 2.0, 0.0, 3.0, 6.0])
    data = hubs(1, 5, w=torch.tensor(weights))
    sampler = NeighborSampler(data, [2], weight_attr="w", **options)
    counts = dict.fromkeys(itertools.combinations((0, 1, 3, 4), 2), 0)
    for key in range(4000):
        (chosen,) = drawn(sampler, [0], BatchKey(7919 * key, 21))
        counts[tuple(sorted(node - 1 for node in chosen))] += 1
    expected = [
        4000 * (weights[i] / 12 * weights[j] / (12 - weights[i])
                + weights[j] / 12 * weights[i] / (12 - weights[j]))
        for i, j in counts
    ]  # fmt: skip
    assert stats.chisquare(list(counts.values()), expected).pvalue > 1e-6


def test_a_seed_that_occurs_twice_draws_the_same():
    first, second = drawn(NeighborSampler(hubs(1, 60), [10], **LABOR), [0, 0])
    assert first == second


@pytest.mark.parametrize("options", [LABOR, DEEP, SLOW, BOTH])
def test_batches_have_fewer_nodes_and_about_as_many_edges(options):
    data = dense()
    common = {"input_nodes": torch.arange(512), "batch_size": 128, "num_neighbors": [5]}
    for alike, batch in zip(
        NeighborLoader(data, **common), NeighborLoader(data, **common, **options), strict=True
    ):
        assert batch.num_edges == alike.num_edges
        assert batch.num_nodes < 0.8 * alike.num_nodes


def test_trees_share_neighbors_and_keep_to_their_times():
    degree = 40
    data = hubs(30, degree, time=torch.arange(degree).repeat(30))
    sampler = NeighborSampler(data, [8], time_attr="time", **LABOR)
    times = torch.arange(30) + 5
    out = sample(sampler, list(range(30)), times=times)
    time_of = out.node[out.row] - 30
    assert (time_of <= times[out.batch[out.col]]).all()
    counts = torch.bincount(out.col, minlength=30)[:30]
    assert torch.equal(counts, (times + 1).clamp(max=8))
    free = sample(NeighborSampler(data, [8], disjoint=True, **LABOR), list(range(30)))
    assert free.node[30:].unique().numel() == 8  # the same rows, once per tree
    assert free.node.numel() == 30 + 30 * 8


def overlap(batches: list[set[int]], apart: int) -> float:
    """Mean share of a batch's nodes that the batch ``apart`` batches later chose, too."""
    pairs = zip(batches, batches[apart:], strict=False)
    return float(np.mean([len(a & b) / len(a) for a, b in pairs]))


def test_batches_depend_on_those_before():
    seeds = torch.zeros(96, dtype=torch.int64)
    common = {"num_neighbors": [20], "input_nodes": seeds, "batch_size": 1}
    torch.manual_seed(0)
    slow = [set(ids[1:]) for ids in n_ids(NeighborLoader(hubs(1, 200), **common, **SLOW))]
    assert overlap(slow, 1) > 0.85
    assert overlap(slow, 1) > overlap(slow, 4) > overlap(slow, 8) > overlap(slow, 32)
    assert overlap(slow, 32) < 0.2  # 0.1 by chance
    assert overlap(slow[::16], 1) < 0.3  # where one group begins and the next
    fast = [set(ids[1:]) for ids in n_ids(NeighborLoader(hubs(1, 200), **common, **LABOR))]
    assert overlap(fast, 1) < 0.2


@pytest.mark.parametrize("options", [LABOR, SLOW, BOTH])
def test_batches_do_not_depend_on_workers_and_resume(store, options):

    def make(num_workers=0, **more):
        generator = torch.Generator().manual_seed(5)
        return NeighborLoader(
            store, [4, 3], batch_size=20, shuffle=True, generator=generator,
            num_workers=num_workers, **options, **more,
        )  # fmt: skip

    expected = n_ids(make())
    assert len(expected) == 15
    assert n_ids(make(2)) == expected
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        assert n_ids(make()) == expected
    finally:
        torch.set_num_threads(threads)
    loader = make()
    batches = iter(loader)
    for _ in range(7):
        next(batches)
    resumed = make(2)
    resumed.load_state_dict(pickle.loads(pickle.dumps(loader.state_dict())))
    assert n_ids(resumed) == expected[7:]
    assert n_ids(resumed) != expected


def test_links(data, store):
    for options in (LABOR, BOTH):
        loader = LinkNeighborLoader(
            store, [3, 3], neg_sampling="binary", batch_size=500, shuffle=True, **options
        )
        for batch in loader:
            assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])


def test_pygs_loaders_take_the_sampler(data, store):
    sampler = NeighborSampler(store, [4], **DEEP)
    seeds = {"input_nodes": data.train_idx, "batch_size": 10}
    loader = torch_geometric.loader.NodeLoader(data, sampler, **seeds)
    for batch in loader:
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    slow = NeighborSampler(store, [4], **SLOW)
    loader = torch_geometric.loader.NodeLoader(data, slow, **seeds)
    with pytest.raises(UnsupportedError, match="batch_dependency=16: found a batch without its"):
        next(iter(loader))
    with pytest.raises(UnsupportedError, match="batches of gz"):
        slow.sample_from_nodes(NodeSamplerInput(None, torch.tensor([1])))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "fast"}, "method: found 'fast', expected one of"),
        ({"layer_dependency": True}, "found method='uniform', expected method='labor'"),
        ({"batch_dependency": 8}, "found method='uniform', expected method='labor'"),
        ({"method": "labor", "batch_dependency": 0}, "batch_dependency: found 0, expected a num"),
        ({"method": "labor", "batch_dependency": True}, "batch_dependency: found True"),
        ({"method": "labor", "batch_dependency": 2.0}, "batch_dependency: found 2.0"),
        ({"layer_dependency": 1}, "layer_dependency: found 1, expected True or False"),
        ({"strictly_earlier": 1}, "strictly_earlier: found 1, expected True or False"),
        ({"seed_order": "disk"}, "seed_order: found 'disk', expected one of"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        SamplingOptions(**options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({**LABOR, "replace": True}, "found replace=True, expected False"),
        ({**LABOR, "temporal_strategy": "last"}, "'last', which draws nothing; expected 'uniform'"),
        ({"options": SamplingOptions(strictly_earlier=True)}, "strictly_earlier=True: found no"),
    ],
)
def test_options_that_do_not_go_with_the_others(store, arguments, message):
    for make in (NeighborSampler, NeighborLoader, LinkNeighborLoader):
        with pytest.raises(ValueError, match=message):
            make(store.data(), [2], **arguments)


def test_beside_a_sampler_of_the_callers(store):
    d = store.data()
    plain, slow = NeighborSampler(d, [2]), NeighborSampler(d, [2], **SLOW)
    for kind in (NeighborLoader, LinkNeighborLoader):
        with pytest.raises(ValueError, match=r"options\.method: found 'labor' .* give it to"):
            kind(d, [2], neighbor_sampler=plain, **LABOR)
        with pytest.raises(ValueError, match=r"options\.batch_dependency: found 4 for"):
            kind(d, [2], neighbor_sampler=slow, **labor(batch_dependency=4))
        kind(d, [2], neighbor_sampler=slow, **SLOW)
        kind(d, [2], neighbor_sampler=slow)


def test_options_that_mean_nothing_to_a_loader(homo):
    data = homo[1].data()
    sampler = NeighborSampler(data, [2])
    edges = SamplingOptions(exclude_edges=True)
    order = SamplingOptions(seed_order="store")
    for make, options, name in (
        (lambda **k: NeighborLoader(data, [2], **k), edges, "exclude_edges: found True for Neigh"),
        (lambda **k: NeighborLoader(data, [2], **k), order, "seed_order: found 'store' for Neigh"),
        (lambda **k: NodeLoader(data, sampler, **k), LABOR["options"], "method: found 'labor' for"),
        (lambda **k: NeighborSampler(data, [2], **k), order, "seed_order: found 'store' for Neigh"),
        (lambda **k: RandomWalker(data, **k), order, "it takes strictly_earlier"),
        (lambda **k: NeighborLoader(data, [2], **k), {"method": "x"}, "found dict, expected gz.Sa"),
    ):
        with pytest.raises((TypeError, ValueError), match=name):
            make(options=options)


def test_options_are_attributes_of_the_sampler():
    sampler = NeighborSampler(homogeneous(), [400])
    assert (sampler.replace, sampler.time_attr) == (False, None)
    seeds = NodeSamplerInput(None, torch.tensor([3]))
    once = sampler.sample_from_nodes(seeds, key=1)
    sampler.replace = True  # what is sampled from now on follows
    again = pickle.loads(pickle.dumps(sampler))
    for each in (sampler, again):
        assert each.sample_from_nodes(seeds, key=1).row.numel() == 400 > once.row.numel()
    with pytest.raises(ValueError, match="temporal_strategy: found 'first'"):
        sampler.temporal_strategy = "first"
    with pytest.raises(AttributeError, match="'NeighborSampler' object has no attribute 'nothing'"):
        _ = sampler.nothing


class InProcesses(NeighborLoader):
    def collate_fn(self, index):
        return super().collate_fn(index)


def test_batches_of_worker_processes(store):
    common = {"num_neighbors": [4], "batch_size": 50, **SLOW}
    torch.manual_seed(3)
    expected = n_ids(NeighborLoader(store, **common))
    torch.manual_seed(3)
    assert n_ids(InProcesses(store, num_workers=2, **common)) == expected
