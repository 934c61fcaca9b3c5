"""Samplers that choose seeds by class, and graphs by size, over stores and in memory."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest
import torch
import torch_geometric.loader
from read_neighbours import in_pages
from scipy import stats
from torch_geometric.data import Data

import pyg_graphzero as gz
from graphs import homogeneous, write_store
from pyg_graphzero.loader import (
    ClusterData,
    ClusterLoader,
    DynamicBatchSampler,
    ImbalancedSampler,
    LinkNeighborLoader,
    NeighborLoader,
)

# Seeds by class ---------------------------------------------------------------------------------


def check_draws(drawn, labels):
    """Asserts PyG's weights: classes are drawn alike, and the seeds of one class alike."""
    expected = torch.empty(labels.numel(), dtype=torch.float64)
    present = labels.unique()
    for label in present:
        expected[labels == label] = 1 / (len(present) * int((labels == label).sum()))
    counts = torch.bincount(torch.tensor(drawn), minlength=labels.numel())
    assert stats.chisquare(counts.numpy(), (expected * len(drawn)).numpy()).pvalue > 1e-4


def test_a_seed_is_drawn_as_its_class_says():
    labels = torch.tensor([4] * 30 + [0] * 3 + [7] + [4] * 10)  # classes with gaps
    for given in (labels, labels.to(torch.int32), labels.view(-1, 1)):
        sampler = ImbalancedSampler(given, num_samples=40_000)
        assert len(sampler) == 40_000
        check_draws(list(sampler), labels)
    theirs = torch_geometric.loader.ImbalancedSampler(labels)
    assert isinstance(sampler, torch_geometric.loader.ImbalancedSampler)
    assert torch.allclose(sampler.weights / sampler.weights.sum(),
                          theirs.weights.double() / theirs.weights.double().sum())  # fmt: skip


def test_epochs_differ_and_a_generator_repeats_them():
    labels = torch.tensor([0, 1, 1, 1, 2, 2] * 20)
    sampler = ImbalancedSampler(labels, generator=torch.Generator().manual_seed(3))
    again = ImbalancedSampler(labels, generator=torch.Generator().manual_seed(3))
    first, second = list(sampler), list(sampler)
    assert first == list(again)
    assert first != second
    assert list(pickle.loads(pickle.dumps(again))) == second


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("source", ["memory", "store", "data", "labels"])
def test_classes_come_alike(tmp_path, source, workers):
    y = (torch.arange(2000) % 20 == 0).long()  # one in twenty
    memory = Data(y=y, edge_index=torch.randint(0, 2000, (2, 6000)), num_nodes=2000)
    memory.train_mask = torch.arange(2000) >= 500
    store = gz.open(write_store(memory, tmp_path / "store"))
    data = memory if source == "memory" else store.data()
    given = {"labels": data.y, "store": store}.get(source, data)
    for seeds in (data.train_mask, torch.arange(1999, 500, -1), None):
        loader = NeighborLoader(
            data, [2], input_nodes=seeds, batch_size=500, num_workers=workers,
            sampler=ImbalancedSampler(given, input_nodes=seeds, num_samples=2000),
        )  # fmt: skip
        batches = list(loader)
        drawn = torch.cat([b.n_id[: b.batch_size] for b in batches])
        assert drawn.numel() == 2000
        assert torch.equal(torch.cat([b.y[: b.batch_size] for b in batches]), y[drawn])
        assert 0.44 < y[drawn].float().mean() < 0.56  # five standard deviations
        assert seeds is None or int(drawn.min()) >= 500


def test_seeds_of_types(hetero):
    memory, store = hetero
    y = memory["paper"].y
    for given in (memory, store):
        for nodes in ("paper", ("paper", memory["paper"].train_mask)):
            sampler = ImbalancedSampler(given, nodes, num_samples=20_000)
            labels = y if nodes == "paper" else y[nodes[1]]
            check_draws(list(sampler), labels)
    loader = NeighborLoader(
        store, [2], input_nodes=nodes, batch_size=64, sampler=ImbalancedSampler(store, nodes)
    )
    seeds = torch.cat([batch["paper"].n_id[: batch["paper"].batch_size] for batch in loader])
    assert memory["paper"].train_mask[seeds].all()


def test_links_by_label(homo):
    _, store = homo
    labels = (torch.arange(3000) < 100).long()
    loader = LinkNeighborLoader(
        store, [2], edge_label=labels, batch_size=600, sampler=ImbalancedSampler(labels)
    )
    drawn = torch.cat([batch.edge_label for batch in loader])
    assert 0.44 < drawn.float().mean() < 0.56


@pytest.mark.long  # over a gigabyte in memory
def test_more_seeds_than_torch_draws_among():
    labels = torch.zeros(2**24 + 8, dtype=torch.uint8)
    labels[-1] = 1
    drawn = torch.tensor(list(ImbalancedSampler(labels, num_samples=400)))
    assert 120 < int((drawn == labels.numel() - 1).sum()) < 280  # eight standard deviations
    assert drawn.unique().numel() > 100


def test_graphs_by_label():
    graphs = [Data(num_nodes=2, y=torch.tensor([i % 10 == 0]).long()) for i in range(50)]
    check_draws(list(ImbalancedSampler(graphs, num_samples=20_000)),
                torch.tensor([int(g.y) for g in graphs]))  # fmt: skip


def test_bad_labels(homo, hetero):
    data, store = homo
    with pytest.raises(ValueError, match=r"y: found torch.float32 of shape \[2\]"):
        ImbalancedSampler(torch.tensor([0.0, 1.0]))
    with pytest.raises(ValueError, match="y: found label -1 of seed 1, expected 0 or more"):
        ImbalancedSampler(torch.tensor([0, -1]))
    with pytest.raises(ValueError, match="y: found no labels"):
        ImbalancedSampler(store, torch.empty(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="num_samples: found 0, expected 1 or more"):
        ImbalancedSampler(store, num_samples=0)
    with pytest.raises(ValueError, match="y: found none, expected labels among"):
        ImbalancedSampler(hetero[1], "author")
    with pytest.raises(ValueError, match="expected a node type"):
        ImbalancedSampler(hetero[1])
    with pytest.raises(IndexError, match="found node 300"):
        ImbalancedSampler(data, torch.tensor([300]))
    with pytest.raises(ValueError, match="y of graph 1: found 2 labels, expected one"):
        ImbalancedSampler([Data(y=torch.tensor([1])), Data(y=torch.tensor([1, 2]))])


# Graphs by size ---------------------------------------------------------------------------------


def graphs_of(sizes):
    return [Data(num_nodes=n, edge_index=torch.zeros(2, 2 * n, dtype=torch.int64)) for n in sizes]


@pytest.mark.parametrize("mode", ["node", "edge"])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("num_steps", [None, 3, 50])
def test_batches_of_graphs_are_pygs(mode, shuffle, num_steps):
    graphs = graphs_of([5, 1, 9, 30, 2, 2, 2, 8, 1, 25, 3] * 4)
    arguments = {"max_num": 12, "mode": mode, "shuffle": shuffle, "num_steps": num_steps}
    torch.manual_seed(3)
    mine = [list(sampler) for sampler in [DynamicBatchSampler(graphs, **arguments)] * 2]
    torch.manual_seed(3)
    stock = torch_geometric.loader.DynamicBatchSampler
    theirs = [list(iter(sampler)) for sampler in [stock(graphs, **arguments)] * 2]
    assert mine == theirs
    assert isinstance(DynamicBatchSampler(graphs, 1), stock)


def test_graphs_too_big_are_left_out_and_no_graph_comes_twice():
    graphs = graphs_of([5, 40, 1, 9, 30, 2, 2, 50])
    batches = list(DynamicBatchSampler(graphs, 10, skip_too_big=True))
    assert batches == [[0, 2], [3], [5, 6]]
    assert list(DynamicBatchSampler(graphs[1:2], 10, skip_too_big=True)) == []
    # PyG's, from which this differs.
    stock = torch_geometric.loader.DynamicBatchSampler(graphs, 10, skip_too_big=True)
    theirs = list(iter(stock))
    assert max(Counter(number for batch in theirs for number in batch).values()) > 1


@pytest.fixture
def parts(homo):
    """Partitions whose parts have very different sizes."""
    cluster = torch.rand(300, generator=torch.Generator().manual_seed(1)).pow(3).mul(12).long()
    return homo[0], {
        "memory": ClusterData(homo[0], 12, partition=cluster),
        "store": ClusterData(homo[1], 12, partition=cluster),
    }


@pytest.mark.parametrize("mode", ["node", "edge"])
@pytest.mark.parametrize("source", ["memory", "store"])
def test_batches_of_parts_are_pygs(parts, source, mode):
    """PyG's sampler asks every part; ours knows."""
    data, clusters = parts[0], parts[1][source]
    limit = 60 if mode == "node" else 300
    theirs = torch_geometric.loader.DynamicBatchSampler(clusters, limit, mode)
    mine = DynamicBatchSampler(clusters, limit, mode)
    assert list(mine) == list(iter(theirs))
    sizes = clusters.part_sizes(mode)
    assert sizes.tolist() == [getattr(clusters[i], f"num_{mode}s") for i in range(12)]
    batches = list(ClusterLoader(clusters, batch_sampler=mine, num_workers=2))
    assert sorted(torch.cat([b.n_id for b in batches]).tolist()) == list(range(300))
    for batch, own in zip(batches, mine, strict=True):
        assert torch.equal(batch.n_id, clusters.nodes_of(torch.tensor(own)))
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert mode == "edge" or len(own) == 1 or batch.num_nodes <= limit


@pytest.mark.parametrize("mine", [False, True])
def test_pygs_sampler_takes_parts(parts, mine):
    """It does not know how many batches there are, which out of core is asked for."""
    kind = DynamicBatchSampler if mine else torch_geometric.loader.DynamicBatchSampler
    clusters = parts[1]["store"]
    loader = in_pages(ClusterLoader(clusters, batch_sampler=kind(clusters, 60)))
    nodes = [batch.n_id for batch in iter(loader)]
    assert sorted(torch.cat(nodes).tolist()) == list(range(300))


def test_a_number_of_batches(parts):
    clusters = parts[1]["store"]
    sampler = DynamicBatchSampler(clusters, 60, num_steps=2)
    assert len(sampler) == len(ClusterLoader(clusters, batch_sampler=sampler)) == 2
    assert len(list(sampler)) == 2
    with pytest.raises(TypeError, match=r"len\(DynamicBatchSampler\): found num_steps=None"):
        len(DynamicBatchSampler(clusters, 60))


def test_bad_graphs(homo):
    data, store = homo
    for graph in (data, store, store.data()):
        with pytest.raises(TypeError, match=r"found one graph.*expected several.*ClusterData"):
            DynamicBatchSampler(graph, 10)
    with pytest.raises(ValueError, match="max_num: found 0, expected 1 or more"):
        DynamicBatchSampler([data], 0)
    with pytest.raises(ValueError, match="num_steps: found 0, expected 1 or more"):
        DynamicBatchSampler([data], 1, num_steps=0)
    with pytest.raises(ValueError, match="mode: found 'nodes', expected one of"):
        DynamicBatchSampler([data], 1, mode="nodes")
    with pytest.raises(ValueError, match="mode: found 'nodes', expected one of"):
        ClusterData(homogeneous(), 2, partition="ranges").part_sizes("nodes")
