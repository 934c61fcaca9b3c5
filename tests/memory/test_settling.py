"""When it is decided anew what stays in memory: for longer epochs and larger batches, and nobody
else's."""

from __future__ import annotations

import gc
import weakref
from itertools import islice

import pytest
import torch
from budgets import budget_beside
from torch_geometric.data import Data
from tuned import tuned

import pyg_graphzero as gz
from pyg_graphzero.memory.pager import Pager, pager_of
from pyg_graphzero.memory.tuning import Tuning
from pyg_graphzero.util.disk import DiskSpeed
from pyg_graphzero.util.system import private_rss
from spawned import EXACT_MALLOC, spawn

MB = 10**6
NODES = 100_000
TRAIN = torch.arange(0, 30_000, 10)  # in one half of the graph, validation in the other
VAL = torch.arange(50_000, 80_000, 150)
FANOUT = [6, 5]


@pytest.fixture(scope="module")
def path(built_once):
    """A store of 110 MB; edges stay in one half of its nodes, and prefer some of them."""

    def build(path):
        generator = torch.Generator().manual_seed(0)
        half = NODES // 2
        src = (torch.rand(1_000_000, generator=generator) ** 4 * half).long()
        dst = torch.randint(half, (1_000_000,), generator=generator)
        side = torch.randint(2, (1_000_000,), generator=generator) * half
        x = torch.randn(NODES, 256, generator=generator)
        gz.convert(Data(x=x, edge_index=torch.stack([src, dst]) + side), path)

    return built_once("settling", build)


@pytest.fixture(autouse=True)
def counts_are_exact(monkeypatch):
    count_exactly(monkeypatch)


def count_exactly(monkeypatch):
    """No clock and no disk has a say in what is decided."""
    disk = DiskSpeed("a disk", 75_000, 1.2e9, 128, True, 1 << 30)
    monkeypatch.setattr("pyg_graphzero.memory.pager.probe", lambda path: disk)
    monkeypatch.setattr("pyg_graphzero.memory.tuning._KEEP_SECONDS", 1000.0)
    monkeypatch.setattr("pyg_graphzero.memory.planner.SECONDS", 1000.0)


def decide_once(monkeypatch):
    """Nothing is found out behind an epoch's back."""
    monkeypatch.setattr(Tuning, "begin", lambda task, orders: None)


def decided(monkeypatch):
    """The loaders that decide from now on for stores with a budget, in turn."""
    decide_once(monkeypatch)
    made = []
    decide = Pager.decide

    def counted(pager, loader, least):
        if pager.is_given:
            made.append(loader)
        return decide(pager, loader, least)

    monkeypatch.setattr(Pager, "decide", counted)
    return made


@pytest.fixture
def decisions(monkeypatch):
    return decided(monkeypatch)


def opened(path, extra=54 * MB):
    """A store with a budget of so much beside what this process has already."""
    return gz.open(path, memory=budget_beside(extra))


def loader_of(store, seeds, batch_size=60, **options):
    options = {"num_neighbors": FANOUT, "edge_ids": False, "shuffle": True} | options
    return gz.loader.NeighborLoader(
        store.data(), input_nodes=seeds, batch_size=batch_size, **options
    )


def train_of(store):
    return loader_of(store, TRAIN)


def val_of(store):
    return loader_of(store, VAL, 100)


def epoch(loader, seed=5):
    torch.manual_seed(seed)
    return [(batch.n_id, batch.x, batch.edge_index) for batch in loader]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def peak_of(loader):
    """The most that this process takes at a batch of two epochs."""
    return max(private_rss() for _ in range(2) for _ in loader)


def second_epoch(loader):
    """What is read once what stays in memory is there."""
    epoch(loader)
    epoch(loader)
    return loader.stats()


def train_after_validation(rank, path):
    """Of a process of its own: what malloc has free is not the same for both stores."""
    monkeypatch = pytest.MonkeyPatch()
    count_exactly(monkeypatch)
    decisions = decided(monkeypatch)
    first = second_epoch(train_of(opened(path)))
    store = opened(path)
    short = loader_of(store, VAL[:120])
    assert len(short) == 2
    epoch(short)
    later = second_epoch(train_of(store))
    assert len(decisions) == 3
    assert later.rows == first.rows
    assert later.hits >= 0.97 * first.hits


@pytest.mark.long
def test_training_that_begins_after_validation_finds_as_much_in_memory(path, monkeypatch):
    monkeypatch.setenv(*EXACT_MALLOC)
    spawn(train_after_validation, (path,), 1)


def test_loaders_that_alternate_settle_twice_at_most(path, decisions):
    store = opened(path)
    val, train = val_of(store), train_of(store)
    for _ in range(3):
        epoch(val)
        epoch(train)
    assert decisions == [val, train]
    # Nor do loaders that are made for each epoch.
    for _ in range(2):
        epoch(val_of(store))
        epoch(train_of(store))
    assert len(decisions) == 2


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_are_the_same_in_whatever_order_loaders_begin(path, num_workers):
    workers = {"num_workers": num_workers, "persistent_workers": num_workers > 0}
    kinds = {
        "train": lambda store: loader_of(store, TRAIN, **workers),
        "val": lambda store: loader_of(store, VAL, 100, **workers),
        "large": lambda store: loader_of(store, VAL, 300, num_neighbors=[9, 9]),
    }
    whole = gz.open(path)
    expected = {name: epoch(make(whole)) for name, make in kinds.items()}
    for order in (("val", "train", "large"), ("train", "large", "val"), ("large", "val", "train")):
        store = opened(path, 66 * MB)
        loaders = {name: kinds[name](store) for name in kinds}
        for name in order * 2:
            assert_same(epoch(loaders[name]), expected[name])
        assert not store.division.is_whole
        del store, loaders  # what they have is not to count as taken below


def release_what_was_resident(rank, path):
    """Of a process of its own: what malloc has free here it gives to whoever asks next."""
    monkeypatch = pytest.MonkeyPatch()
    count_exactly(monkeypatch)
    decide_once(monkeypatch)
    store = opened(path, 95 * MB)
    val = loader_of(store, torch.arange(50_000, 80_000, 10))
    assert peak_of(val) <= store.contents.memory
    before, plan = private_rss(), store.division
    released = []
    decide = Pager.decide

    def seen(pager, loader, least):
        released.append(before - private_rss())
        return decide(pager, loader, least)

    monkeypatch.setattr(Pager, "decide", seen)
    train = loader_of(store, torch.arange(0, 30_000, 4))
    peak = peak_of(train)
    resident = sum(plan.hot.values())
    assert resident > 15 * MB
    assert len(released) == 1
    assert val.graph_sampler is not None  # it is alive, and so is its sampler
    assert released[0] > 0.8 * resident
    assert peak <= store.contents.memory


def test_what_was_resident_is_released(path, monkeypatch):
    monkeypatch.setenv(*EXACT_MALLOC)
    spawn(release_what_was_resident, (path,), 1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("most", [3, 1000])
@pytest.mark.parametrize("budget", [54 * MB, 10_000 * MB])
def test_all_is_released_with_the_last_user(path, workers, most, budget):
    """Who opens a store again and again, as in a notebook, has one of them in memory."""
    store = opened(path, budget)
    loader = loader_of(store, TRAIN, num_workers=workers)
    for _ in range(2):
        for _ in islice(loader, most):
            pass
        tuned(loader)
    gc.disable()
    try:
        left = [weakref.ref(each) for each in (store.contents, pager_of(store.contents).files)]
        assert None not in [each() for each in left]
        del store, loader
        assert [each() for each in left] == [None, None]
    finally:
        gc.enable()


def test_a_topology_is_released_and_paged_anew(wide, decisions):
    seeds, few = torch.arange(0, 30_000, 5), torch.arange(1, 30_000, 100)
    options = {"num_neighbors": [9, 7], "batch_size": 100}
    whole = gz.open(wide)
    expected = [epoch(loader_of(whole, s, **options)) for s in (few, seeds)]
    store = opened(wide, 60 * MB)
    pager = pager_of(store.contents)
    val, train = (loader_of(store, s, **options) for s in (few, seeds))
    assert_same(epoch(val), expected[0])
    old = weakref.ref(pager.files)
    assert list(old().made) == [val]
    assert_same(epoch(train), expected[1])
    assert decisions == [val, train]
    assert old() is None  # with all that was in memory by it
    assert pager.files.topologies.keys() == {None}
    assert list(pager.files.made) == [train]
    assert_same(epoch(val), expected[0])
    assert val.stats().topology_hits > 0
    assert set(pager.files.made) == {val, train}
    assert len(decisions) == 2


def test_nothing_is_decided_while_an_epoch_is_under_way(path, decisions):
    expected = epoch(train_of(gz.open(path)))
    store = opened(path)
    val, train = val_of(store), train_of(store)
    under_way = iter(val)
    next(under_way)
    assert_same(epoch(train), expected)
    assert decisions == [val]
    del under_way
    assert_same(epoch(train), expected)
    assert decisions == [val, train]


def test_an_epoch_is_over_with_its_last_batch(path):
    store = opened(path)
    train = train_of(store)
    quotas = None
    iterator = iter(train)
    for _ in range(len(train)):
        quotas = pager_of(store.contents).files.quotas
        assert len(quotas) == 1
        next(iterator)
    assert len(quotas) == 0
    with pytest.raises(StopIteration):
        next(iterator)


def test_larger_batches_have_room_made_for_them(path, decisions):
    store = opened(path)
    train = train_of(store)
    epoch(train)
    first = store.division
    large = loader_of(store, VAL, 240)
    epoch(large)
    # How to sample, the longest decides still.
    assert decisions == [train, train]
    batch = next(iter(large))
    size = batch.x.nbytes + batch.edge_index.nbytes + batch.n_id.nbytes
    plan = store.division
    before = first.batches / first.ready
    assert size > 1.5 * before
    assert plan.batches > 0.9 * plan.ready * size
    assert plan.total <= store.contents.memory
    epoch(train)
    assert len(decisions) == 2


def test_larger_batches_beside_others_are_fewer(path, decisions):
    store = opened(path, 62 * MB)
    train = train_of(store)
    under_way = iter(train)
    next(under_way)
    plan = store.division
    large = iter(loader_of(store, VAL, 240, num_neighbors=[12, 10]))
    quota = large.epoch._quota
    assert quota.size > 4
    assert quota.ready == 1
    assert quota.sampled * quota.size <= plan.window
    assert store.division is plan
    assert decisions == [train]


def keep_a_budget_by_larger_batches(rank, path):
    count_exactly(pytest.MonkeyPatch())
    store = opened(path, 62 * MB)
    peak_of(loader_of(store, TRAIN, 10, num_neighbors=[4, 3]))
    large = loader_of(store, torch.arange(0, NODES, 20), 100, num_neighbors=[12, 10])
    assert peak_of(large) <= store.contents.memory


@pytest.mark.long
def test_a_budget_is_kept_by_batches_ten_times_as_large(path, monkeypatch):
    monkeypatch.setenv(*EXACT_MALLOC)
    spawn(keep_a_budget_by_larger_batches, (path,), 1)


def test_batches_that_are_too_large_are_refused_and_change_nothing(path, decisions):
    expected = epoch(train_of(gz.open(path)))
    store = opened(path)
    train = train_of(store)
    epoch(train)
    plan = store.division
    large = loader_of(store, VAL.repeat(40), 8000, num_neighbors=[30, 30])
    with pytest.raises(gz.MemoryBudgetError, match="smaller batches or fan-outs need less"):
        iter(large)
    torch.manual_seed(5)
    under_way = iter(train)
    with pytest.raises(gz.MemoryBudgetError, match="smaller batches or fan-outs need less"):
        iter(large)
    assert_same([(b.n_id, b.x, b.edge_index) for b in under_way], expected)
    assert store.division is plan
    assert decisions == [train]


def test_larger_batches_beside_which_all_fits_change_nothing(path, decisions):
    store = opened(path, 150 * MB)
    epoch(loader_of(store, TRAIN[:600], 5))
    plan = store.division
    assert plan.is_whole
    large = loader_of(store, TRAIN, 100)
    assert_same(epoch(large), epoch(loader_of(gz.open(path), TRAIN, 100)))
    assert store.division is plan
    assert len(decisions) == 1


def test_all_in_memory_gives_way_to_larger_batches(path, decisions):
    """What fits beside small batches does not fit beside larger ones."""
    store = opened(path, 125 * MB)
    small = loader_of(store, TRAIN[:600], 5)
    expected = epoch(small)
    assert store.division.is_whole
    under_way = iter(small)
    next(under_way)
    large = loader_of(store, TRAIN, 500)
    found = epoch(large)
    assert not store.division.is_whole
    assert large.stats().rows > 0
    assert_same(found, epoch(loader_of(gz.open(path), TRAIN, 500)))
    # An epoch ends with what it began with; the next one reads.
    assert sum(1 for _ in under_way) == len(small) - 1
    assert_same(epoch(small), expected)
    assert small.stats().rows > 0
    assert len(decisions) == 2


def test_an_epoch_ends_with_the_plan_that_it_began_with(path):
    """Also if its loader begins another epoch by then, with another plan."""
    store = opened(path, 125 * MB)
    small = loader_of(store, TRAIN[:600], 5)
    under_way = iter(small)
    next(under_way)
    plan = store.division
    epoch(loader_of(store, TRAIN, 500))
    assert plan.is_whole
    assert not store.division.is_whole
    other = iter(small)
    next(other)
    assert sum(1 for _ in under_way) == len(small) - 1
    assert under_way.epoch.stats.rows == 0
    assert sum(1 for _ in other) == len(small) - 1
    assert other.epoch.stats.rows > 0
