"""When it is decided anew what stays in memory: for longer epochs and larger batches, and no
others."""

from __future__ import annotations

import gc
import multiprocessing
import weakref
from itertools import islice

import pytest
import torch
from budgets import budget_beside
from same import assert_same
from torch_geometric.data import Data

import pyg_graphzero as gz
from pyg_graphzero.memory.keeper import keeper_of
from pyg_graphzero.util.system import private_rss
from spawned import EXACT_MALLOC, spawn

MB = 10**6
NODES = 100_000
TRAIN = torch.arange(0, 30_000, 10)  # in one half of the graph, validation in the other
VAL = torch.arange(50_000, 80_000, 150)
pytestmark = pytest.mark.usefixtures("exact")


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


def opened(path, extra=54 * MB):
    """A store with a budget of so much beside what this process has already."""
    return gz.open(path, memory=budget_beside(extra))


def loader_of(store, seeds, batch_size=60, **options):
    options = {"num_neighbors": [6, 5], "edge_ids": False, "shuffle": True} | options
    return gz.loader.NeighborLoader(
        store.data(), input_nodes=seeds, batch_size=batch_size, **options
    )


def train_of(store):
    return loader_of(store, TRAIN)


def val_of(store):
    return loader_of(store, VAL, 100)


def epoch(loader, seed=5):
    torch.manual_seed(seed)
    return list(loader)


def residence(store):
    return keeper_of(store.contents).current


def peak_of(loader):
    """The most that this process takes at a batch of two epochs."""
    return max(private_rss() for _ in range(2) for _ in loader)


def test_loaders_that_alternate_have_one_residence_for_the_longest(path):
    store = opened(path)
    val, train = val_of(store), train_of(store)
    epoch(val)
    first = weakref.ref(residence(store))
    epoch(train)
    assert first() is None  # with all that was in memory by it
    later = residence(store)
    assert later.needs.epoch == len(train)
    for make in (val_of, train_of, lambda _: val, lambda _: train):
        epoch(make(store))
        assert residence(store) is later


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
        assert not store.memory_plan.is_whole
        del store, loaders  # what they have is not to count as taken below


def keep_a_budget(rank, path):
    """Runs in a process of its own: here, malloc gives what it has free to the next one."""
    store = opened(path, 95 * MB)
    val = loader_of(store, torch.arange(50_000, 80_000, 10))
    assert peak_of(val) <= store.contents.memory
    assert sum(store.memory_plan.hot.values()) > 15 * MB
    train = loader_of(store, torch.arange(0, 30_000, 4))
    assert peak_of(train) <= store.contents.memory
    large = loader_of(store, torch.arange(0, NODES, 20), 100, num_neighbors=[12, 10])
    assert peak_of(large) <= store.contents.memory
    assert large.graph_sampler is not val.graph_sampler  # they are alive


def test_a_budget_is_kept_by_one_residence_after_the_other(path, monkeypatch):
    monkeypatch.setenv(*EXACT_MALLOC)
    spawn(keep_a_budget, (path,), 1)


@pytest.mark.parametrize(("workers", "most"), [(0, 3), (2, 3), (2, 1000)])
@pytest.mark.parametrize("budget", [54 * MB, 10_000 * MB])
def test_all_is_released_with_the_last_user(path, workers, most, budget):
    """A notebook that opens a store again and again has one of them in memory."""
    store = opened(path, budget)
    loader = loader_of(store, TRAIN, num_workers=workers)
    for _ in range(2):
        for _ in islice(loader, most):
            pass
    gc.disable()
    try:
        left = [weakref.ref(each) for each in (store.contents, residence(store))]
        assert None not in [each() for each in left]
        del store, loader
        assert [each() for each in left] == [None, None]
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_a_residence_of_its_own(path):
    store = opened(path)
    loader = loader_of(store, TRAIN[:300])
    expected = epoch(loader)
    context = multiprocessing.get_context("fork")
    own = weakref.ref(residence(store))

    def child():
        torch.set_num_threads(1)  # a team of several does not survive a fork
        assert_same(epoch(loader), expected)
        assert own() is None

    process = context.Process(target=child)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert residence(store) is own()


def test_nothing_changes_while_an_epoch_is_under_way(path):
    expected = epoch(train_of(gz.open(path)))
    store = opened(path)
    val, train = val_of(store), train_of(store)
    under_way = iter(val)
    next(under_way)
    first = residence(store)
    assert_same(epoch(train), expected)
    assert residence(store) is first
    del under_way
    assert_same(epoch(train), expected)
    assert residence(store) is not first


def test_an_epoch_is_over_with_its_last_batch(path):
    store = opened(path)
    train = train_of(store)
    iterator = iter(train)
    for _ in range(len(train)):
        assert len(residence(store).leases) == 1
        next(iterator)
    assert len(residence(store).leases) == 0
    with pytest.raises(StopIteration):
        next(iterator)


def test_larger_batches_have_room_made_for_them(path):
    store = opened(path)
    train = train_of(store)
    epoch(train)
    first = store.memory_plan
    large = loader_of(store, VAL, 240)
    epoch(large)
    assert residence(store).needs.epoch == len(train)  # which is the longest still
    batch, later = next(iter(large)), residence(store)
    size = batch.x.nbytes + batch.edge_index.nbytes + batch.n_id.nbytes
    assert size > 1.5 * first.batches / first.ready
    assert later.plan.batches > 0.9 * later.plan.ready * size
    assert later.plan.total <= store.contents.memory
    epoch(train)
    assert residence(store) is later


def test_larger_batches_beside_others_are_fewer(path):
    store = opened(path, 72 * MB)
    under_way = iter(train_of(store))
    next(under_way)
    plan = store.memory_plan
    found, expected = (
        epoch(loader_of(each, VAL, 240, num_neighbors=[12, 10])) for each in (store, gz.open(path))
    )
    assert_same(found, expected)
    assert store.memory_plan is plan


def test_batches_that_are_too_large_are_refused_and_change_nothing(path):
    expected = epoch(train_of(gz.open(path)))
    store = opened(path)
    train = train_of(store)
    epoch(train)
    plan = store.memory_plan
    large = loader_of(store, VAL.repeat(40), 8000, num_neighbors=[30, 30])
    with pytest.raises(gz.MemoryBudgetError, match="smaller batches need less"):
        iter(large)
    torch.manual_seed(5)
    under_way = iter(train)
    with pytest.raises(gz.MemoryBudgetError, match="smaller batches need less"):
        iter(large)
    assert_same(list(under_way), expected)
    assert store.memory_plan is plan


def test_larger_batches_beside_which_all_fits_change_nothing(path):
    store = opened(path, 150 * MB)
    epoch(loader_of(store, TRAIN[:600], 5))
    plan = store.memory_plan
    assert plan.is_whole
    assert_same(epoch(loader_of(store, TRAIN, 100)), epoch(loader_of(gz.open(path), TRAIN, 100)))
    assert store.memory_plan is plan


def test_all_in_memory_gives_way_to_larger_batches(path):
    """Small batches beside which all fits go on by the plan that they began with."""
    store = opened(path, 125 * MB)
    small = loader_of(store, TRAIN[:600], 5)
    expected = epoch(small)
    assert store.memory_plan.is_whole
    torch.manual_seed(5)
    under_way = iter(small)
    found = [next(under_way)]
    large = loader_of(store, TRAIN, 500)
    assert_same(epoch(large), epoch(loader_of(gz.open(path), TRAIN, 500)))
    assert not store.memory_plan.is_whole
    assert large.stats().rows > 0
    assert_same([*found, *under_way], expected)
    assert under_way.epoch.stats.rows == 0
    assert_same(epoch(small), expected)
    assert small.stats().rows > 0
