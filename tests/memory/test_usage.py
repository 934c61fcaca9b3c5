"""How batches use nodes, held against a loader's own batches."""

from __future__ import annotations

import torch

from graphs import heterogeneous, homogeneous
from pyg_graphzero.loader import NeighborLoader
from pyg_graphzero.memory import usage
from pyg_graphzero.memory.usage import (
    Usage,
    count_accesses,
    number_by_first_touch,
    sampled,
    trial_batch,
)


def loader_of(data, num_neighbors, seeds, batch_size, **options):
    return NeighborLoader(data, num_neighbors, input_nodes=seeds, batch_size=batch_size, **options)


def test_epochs_of_shuffled_seeds():
    seeds = torch.arange(50, 100)
    loader = loader_of(homogeneous(), [0], seeds, 8)
    state = torch.random.get_rng_state()
    found, again = (count_accesses(loader, epochs=2) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (found.num_batches, found.epochs) == (7 + 7, 2)
    counts = found.counts[None]
    assert torch.equal(counts, again.counts[None])
    assert int(counts.sum()) == 100
    assert (counts[seeds] == 2).all()


def test_a_node_of_several_trees_is_counted_once_a_batch():
    loader = loader_of(homogeneous(), [-1], torch.arange(100), 100, disjoint=True)
    counts = count_accesses(loader).counts[None]
    assert int(counts.max()) == 1
    assert next(iter(loader)).num_nodes > int(counts.sum())


def test_times_of_seeds():
    data = homogeneous()
    data.time = torch.arange(data.num_edges)
    seeds, none = torch.arange(20), torch.full((20,), -1)
    loader = loader_of(data, [5], seeds, 20, time_attr="time", input_time=none)
    assert int(count_accesses(loader).counts[None].sum()) == 20


def test_the_least_that_is_counted():
    data = homogeneous()
    found = count_accesses(loader_of(data, [3], torch.arange(300), 1), seconds=0.0)
    assert found.num_batches == 1
    empty = loader_of(data, [3], torch.arange(0), 4)
    assert count_accesses(empty).num_batches == 0
    assert trial_batch(empty) is None


def test_rows_in_the_order_of_first_touch(monkeypatch):
    monkeypatch.setattr(usage, "TOUCH_BATCH", 10)
    data = heterogeneous()
    seeds = torch.arange(40)
    loader = loader_of(data, [-1, -1], ("paper", seeds.flip(0)), 10)
    found = number_by_first_touch(loader)
    expected = {name: [] for name in data.node_types}
    for batch in loader_of(data, [-1, -1], ("paper", seeds), 10):
        for name in data.node_types:
            expected[name] += batch[name].n_id.tolist()
    for name, rows in found.items():
        assert rows.order.tolist() == list(dict.fromkeys(expected[name]))
    few = number_by_first_touch(loader, share=0.5)  # of seeds all over
    assert few["paper"].order[0] == 0
    assert {20, 25}.issubset(few["paper"].order.tolist())


def test_a_trial_is_of_a_sampling_and_not_of_the_order_or_size_of_a_loader():
    data = homogeneous()
    seeds = torch.arange(0, 300, 3)
    loaders = [
        loader_of(data, [3, 2], seeds, 20),
        loader_of(data, [3, 2], seeds[torch.randperm(100)], 20, shuffle=True),
        loader_of(data, [3, 1], seeds, 20),
    ]
    a, b, c = (trial_batch(each).nodes[0] for each in loaders)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert torch.equal(a[:20], seeds[::5])  # seeds from all over


def test_a_trial_of_seeds_that_are_fewer_than_a_batch_has_each_once():
    loader = loader_of(homogeneous(), [0], torch.tensor([7, 3, 9]), 20)
    assert trial_batch(loader).nodes[0].tolist() == [3, 7, 9]


def test_the_batches_of_an_epoch_are_counted():
    loader = loader_of(homogeneous(), [3, 2], torch.arange(100), 10)
    batches = list(sampled(loader, iter(torch.arange(60).split(10)), 0))
    found = Usage(loader.graph_sampler.graph, 3, lists=True)
    for number, batch in enumerate(batches):
        assert (found.is_done, found.epochs) == (number >= 3, number / 3)
        found.add(batch)
    seen = torch.cat([batch.nodes[0] for batch in batches])
    assert torch.equal(found.counts[None].long(), seen.bincount(minlength=300))
    inner = torch.cat([b.nodes[0][: sum(b.num_sampled_nodes[0][:-1])] for b in batches])
    assert torch.equal(found.expanded[None].long(), inner.bincount(minlength=300))
