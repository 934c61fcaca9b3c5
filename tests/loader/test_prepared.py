"""Without workers the next batch is prepared ahead, and nothing but the clock tells."""

from __future__ import annotations

import os
import pickle
import signal

import pytest
import torch
from interrupting import struck_everywhere, struck_often
from loader.test_interrupted import assert_same, maker
from loader.test_pipeline import LOADERS, ended, engine_threads, epoch, equal
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, WeightedRandomSampler
from torch_geometric.loader import ImbalancedSampler

import pyg_graphzero as gz
from graphs import homogeneous
from pyg_graphzero import _core
from pyg_graphzero.loader import NeighborLoader, pace, pipeline
from pyg_graphzero.loader.keyed import is_settled
from replay.batches import QUICK, make_stores, replayed
from replay.run import recorded

PIPELINE = _core.Pipeline


class Counted:
    """A pipeline that counts what it is asked for and what it gives."""

    submitted = given = 0

    def __init__(self, *arguments):
        self._own = PIPELINE(*arguments)

    def submit(self, *arguments):
        Counted.submitted += 1
        self._own.submit(*arguments)

    def next(self, timeout):
        batch = self._own.next(timeout)
        Counted.given += batch is not None
        return batch

    def __getattr__(self, name):
        return getattr(self._own, name)


@pytest.fixture
def counted(monkeypatch):
    """Every batch that may be prepared is; says how many were."""
    monkeypatch.setattr(pace.Pace, "pays", lambda *_: True)
    monkeypatch.setattr(pipeline._core, "Pipeline", Counted)
    monkeypatch.setattr(Counted, "submitted", 0)
    monkeypatch.setattr(Counted, "given", 0)
    return Counted


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return make_stores(tmp_path_factory.mktemp("stores"))


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS.keys())
def test_batches_are_those_made_in_line(make, counted):
    inline = epoch(make, prefetch_factor=0)
    assert counted.submitted == 0
    found = epoch(make)
    assert len(found) == len(inline) == 1 + counted.given
    assert all(equal(a, b) for a, b in zip(found, inline, strict=True))


@pytest.mark.parametrize("name", QUICK)
def test_batches_are_what_they_were(stores, name, counted):
    assert replayed(name, stores) == recorded()[f"batches/{name}"]
    assert counted.given > 0


def test_what_the_loader_says_of_itself(homo):
    _, store = homo
    loader = NeighborLoader(store, [5], batch_size=30)
    assert (loader.num_workers, loader.prefetch_factor, len(loader)) == (0, None, 10)
    off = NeighborLoader(store, [5], batch_size=30, prefetch_factor=0)
    assert (off.num_workers, off.prefetch_factor, len(off)) == (0, 0, 10)
    assert pickle.loads(pickle.dumps(off)).prefetch_factor == 0
    assert NeighborLoader(store, [5], prefetch_factor=0, num_workers=1).prefetch_factor == 0
    with pytest.raises(ValueError, match="prefetch_factor"):
        NeighborLoader(store, [5], prefetch_factor=2)  # torch's own


def test_no_thread_where_it_does_not_pay(homo, monkeypatch):
    _, store = homo
    loader = NeighborLoader(store, [5], batch_size=10)
    list(loader)
    monkeypatch.setattr(pace.Pace, "pays", lambda *_: False)
    before = engine_threads()
    assert len(list(loader)) == 30
    next(iter(loader))
    assert engine_threads() <= before


def test_one_thread_that_ends_with_the_epoch_or_the_iterator(homo, counted):
    _, store = homo
    loader = NeighborLoader(store, [5], batch_size=10)
    list(NeighborLoader(store, [5], batch_size=10, prefetch_factor=0))
    before = engine_threads()
    iterator = iter(loader)
    next(iterator)
    started = engine_threads() - before
    assert len(started) == 1
    list(iterator)
    assert ended(started)
    for _ in loader:
        started = engine_threads() - before
        break
    assert len(started) == 1
    assert ended(started)


def test_the_consumers_draws_and_the_epochs_do_not_meet(homo, counted):
    """A model's dropout sees the generator as it would, and so does the next epoch's shuffle."""
    _, store = homo

    def train(**arguments):
        torch.manual_seed(3)
        loader = NeighborLoader(store, [5], batch_size=50, shuffle=True, **arguments)
        return [(b.n_id.tolist(), torch.rand(2).tolist()) for _ in range(2) for b in loader]

    assert train() == train(prefetch_factor=0)
    assert counted.given == 10


def test_a_change_between_two_batches_is_seen_by_the_next(homo, counted):
    data, store = homo

    def batches(d):
        return iter(NeighborLoader(d, [5], batch_size=50))

    d = store.data()
    iterator = batches(d)
    next(iterator)
    d.x[:] = 3  # in place
    assert (next(iterator).x == 3).all()
    d.x[:] = 4
    assert (next(iterator).x == 4).all()

    d = store.data()
    iterator = batches(d)
    next(iterator)
    d.y = torch.full_like(data.y, 7)  # another tensor
    assert (next(iterator).y == 7).all()

    d = homogeneous()
    loader = NeighborLoader(d, [5], batch_size=50)
    iterator = iter(loader)
    next(iterator)
    d.x.zero_()
    assert (next(iterator).x == 0).all()
    loader = NeighborLoader(d, [5], batch_size=50)
    iterator = iter(loader)
    next(iterator)
    loader.node_sampler.num_neighbors = [0]
    assert next(iterator).num_edges == 0
    loader = NeighborLoader(d, [5], batch_size=50)
    iterator = iter(loader)
    next(iterator)
    loader.node_sampler.disjoint = True
    assert "batch" in next(iterator)
    loader = NeighborLoader(d, [5], input_nodes=torch.arange(100), batch_size=50)
    iterator = iter(loader)
    next(iterator)
    loader.input_data.node[50:] = torch.arange(200, 250)
    assert next(iterator).n_id[:50].tolist() == list(range(200, 250))


def test_trained_rows_are_those_of_the_last_step(counted):
    d = homogeneous()
    d.x = torch.zeros(d.num_nodes, 3, requires_grad=True)
    loader, step = NeighborLoader(d, [5], batch_size=50), 0
    for _ in range(2):
        for batch in loader:
            assert (batch.x == step).all()
            step += 1
            with torch.no_grad():
                d.x += 1
    assert counted.given == 5  # in the first epoch the very first write is a change like others


def test_what_is_the_users_is_asked_when_a_batch_is(homo, counted):
    """A sampler may look at what the model has learned, a transform too."""
    _, store = homo
    log = []

    def chosen():
        for i in range(4):
            log.append(f"choose {i}")
            yield [i]

    def transform(batch):
        log.append(f"transform {int(batch.input_id)}")
        return batch

    def output(out):
        log.append("output")
        return out

    for arguments, first in (
        ({"batch_sampler": chosen()}, "choose"),
        ({"batch_size": 1, "input_nodes": torch.arange(4)}, None),
    ):
        log.clear()
        for i, _ in enumerate(
            NeighborLoader(
                store, [2], transform=transform, transform_sampler_output=output, **arguments
            )
        ):
            own = ["output", f"transform {i}"]
            assert log == ([f"choose {i}", *own] if first else own)
            log.clear()
    assert counted.given == 3  # of the second


def test_what_torchs_samplers_choose_at_once(homo):
    nodes = range(20)

    def batched(sampler):
        return BatchSampler(sampler, 4, False)

    class Mine(RandomSampler):
        pass

    generator = torch.Generator()
    for sampler, expected in (
        (RandomSampler(nodes), True),
        (WeightedRandomSampler([1.0] * 20, 20), True),
        (ImbalancedSampler(torch.arange(20) % 2), True),
        (DistributedSampler(nodes, 2, 0), True),
        (Mine(nodes), False),
        (RandomSampler(nodes, replacement=True, generator=generator), False),
        (RandomSampler(nodes, num_samples=50, generator=generator), False),
        (list(nodes), False),
    ):
        assert is_settled(batched(sampler)) == expected
    assert not is_settled([[1, 2]])
    assert not is_settled(None)


@pytest.mark.parametrize("where", ["seed", "node"])
def test_an_error_comes_at_its_batch(homo, where, counted):
    _, store = homo
    loader = NeighborLoader(store, [5], input_nodes=torch.arange(50), batch_size=10)
    loader.input_data.node[25] = 300
    iterator = iter(loader)
    assert next(iterator).batch_size == next(iterator).batch_size == 10
    if where == "node":  # mended in time
        loader.input_data.node[25] = 25
        assert next(iterator).n_id[:10].tolist() == list(range(20, 30))
    else:
        with pytest.raises(IndexError, match="found node 300, expected 0 <= node < 300"):
            next(iterator)
    assert [batch.input_id[0].item() for batch in iterator] == [30, 40]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_an_iterator_goes_on_in_a_forked_child(homo, counted):
    _, store = homo
    iterator = iter(NeighborLoader(store, [5, 3], batch_size=20, shuffle=True))
    next(iterator), next(iterator)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os.write(writing, repr([int(batch.n_id.sum()) for batch in iterator]).encode())
        os._exit(0)
    os.close(writing)
    rest = [int(batch.n_id.sum()) for batch in iterator]
    assert os.read(reading, 1 << 16).decode() == repr(rest)
    os.close(reading)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["nodes", "links"])
def test_wherever_a_call_is_struck(kind, counted):
    make = maker(kind, num_workers=0)
    expected = list(make(prefetch_factor=0))
    for first, stride in ((0, 1), (90, 3), (250, 3)):
        found, strikes, _ = struck_everywhere(make, first, stride)
        assert strikes > 10
        assert_same(found, expected)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_signals_at_random_moments(counted):
    make = maker("hetero", batch_size=10, num_workers=0)
    expected = list(make(prefetch_factor=0))
    struck_often(make, lambda found: assert_same(found, expected), seed=0)


def test_the_epoch_goes_on_where_it_was_left(homo, counted):
    """What is prepared is not delivered: it does not count."""
    _, store = homo
    loader = NeighborLoader(store, [5], batch_size=20, shuffle=True)
    iterator = iter(loader)
    next(iterator), next(iterator)
    state, rest = loader.state_dict(), list(iterator)
    assert state["num_batches"] == 2
    again = NeighborLoader(store, [5], batch_size=20, shuffle=True)
    again.load_state_dict(state)
    found = list(again)
    assert all(equal(a, b) for a, b in zip(found, rest, strict=True))


def test_when_it_pays(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(pace, "perf_counter", lambda: now[0])
    one = pace.Pace()

    def after(own, seconds, threads):
        now[0] += own
        one.asked()
        pays = one.pays(seconds, threads)
        one.delivered()
        return pays

    assert not after(9, 0.1, 2)  # the first batch: nobody knows the consumer yet
    assert not after(0.15, 0.1, 2)  # one thread may take 0.2
    assert after(0.25, 0.1, 2)
    assert after(0.25, 0.15, 1)  # it took 0.15
    assert after(0.16, 0.15, 1)
    assert not after(0.14, 0.15, 1)
    assert after(0.25, 3.0, 1) is False  # once, it took very long
    assert after(0.25, 0.1, 2)  # two threads show that it was by chance
    assert after(0.25, 3.0, 1) is False
    tries = [after(0.25, 0.1, 16) for _ in range(200)]
    assert not tries[0]  # 16 threads show little
    assert tries[-1]


def test_an_epoch_whose_batches_are_large_prepares_none(homo, counted, monkeypatch):
    _, store = homo
    monkeypatch.setattr("pyg_graphzero.loader.engine.free_memory", lambda: 4000)
    assert len(list(NeighborLoader(store, [5], batch_size=10))) == 30
    assert counted.submitted == 0


def test_a_sampler_of_the_users_own_is_asked_when_a_batch_is(homo, counted):
    _, store = homo
    asked = []

    class Mine(gz.sampler.NeighborSampler):
        def prepare_nodes(self, inputs):
            asked.append(int(inputs.node[0]))
            return super().prepare_nodes(inputs)

    data = store.data()
    loader = NeighborLoader(data, [2], batch_size=100, neighbor_sampler=Mine(data, [2]))
    for batch in loader:
        assert asked.pop() == int(batch.input_id[0])
        assert not asked
