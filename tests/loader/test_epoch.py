"""Batches by number: the same ones, in order, whoever makes them and whatever happens meanwhile."""

from __future__ import annotations

import multiprocessing
import os
import signal

import pytest
import torch
from loader_kinds import LOADERS, graphs_of_loaders
from same import assert_same

import pyg_graphzero as gz
from pyg_graphzero.loader import NeighborLoader


def fail(worker_id: int) -> None:
    raise AssertionError("there is no worker process to prepare")


def epoch(kind, **arguments):
    torch.manual_seed(5)
    return list(LOADERS[kind](*graphs_of_loaders(), batch_size=30, **arguments))


@pytest.mark.parametrize("kind", LOADERS)
def test_batches_do_not_depend_on_threads_ahead(kind):
    inline = epoch(kind)
    assert len(inline) > 1
    for arguments in (
        {"num_workers": 1, "multiprocessing_context": "spawn", "worker_init_fn": fail},
        {"num_workers": 2, "prefetch_factor": 1},
        {"num_workers": 4, "persistent_workers": True},
    ):
        assert_same(epoch(kind, **arguments), inline)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_live_batches_share_no_memory(data, store, workers):
    """Kept batches stay what they were while the memory of dropped ones goes round."""
    x = torch.randn(data.num_nodes, 600)  # large enough to be recycled
    d = store.data()
    d.x = x
    loader = NeighborLoader(d, [5, 5], batch_size=20, shuffle=True, num_workers=workers)
    kept = []
    for _ in range(4):
        for i, batch in enumerate(loader):
            if i % 3 == 0:
                then = batch.n_id.clone(), batch.edge_index.clone()
                kept.append((batch.x, batch.n_id, *then, batch))
    for rows, n_id, n_id_then, edges_then, batch in kept:
        assert torch.equal(n_id, n_id_then)
        assert torch.equal(rows, x[n_id])
        assert torch.equal(batch.edge_index, edges_then)
    addresses = [rows.data_ptr() for rows, *_ in kept]
    assert len(set(addresses)) == len(addresses)
    kept[0][0].zero_()  # and writing to one changes no other
    assert all(torch.equal(rows, x[n_id]) for rows, n_id, *_ in kept[1:])


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_comes_at_its_batch(store, workers):
    d = store.data()
    loader = NeighborLoader(
        d, [5], batch_size=10, num_workers=workers,
        sampler=[*range(35), 10**6, *range(14)],
    )  # fmt: skip
    iterator = iter(loader)
    for _ in range(3):
        assert next(iterator).batch_size == 10
    for _ in range(2):  # the batch that comes next is this one still
        with pytest.raises(IndexError, match="1000000"):
            next(iterator)
    loader.load_state_dict({**loader.state_dict(), "num_batches": 4})
    assert [batch.batch_size for batch in loader] == [10]

    loader = NeighborLoader(d, [5], batch_size=10, num_workers=workers)
    loader.input_data.node = torch.cat([torch.arange(25), torch.tensor([300]), torch.arange(10)])
    iterator = iter(loader)
    assert next(iterator).batch_size == next(iterator).batch_size == 10
    with pytest.raises(IndexError, match="found node 300, expected 0 <= node < 300"):
        next(iterator)
    loader.input_data.node[25] = 25
    assert next(iterator).n_id[:10].tolist() == [*range(20, 26), *range(4)]

    def choosing():
        yield [1, 2]
        raise RuntimeError("of the caller's sampler")

    loader = NeighborLoader(d, [5], batch_sampler=choosing(), num_workers=workers)
    iterator = iter(loader)
    assert next(iterator).batch_size == 2
    for _ in range(2):
        with pytest.raises(RuntimeError, match="of the caller's sampler"):
            next(iterator)


@pytest.mark.parametrize("workers", [0, 2])
def test_nested_and_interleaved_iterations(store, workers):
    loader = NeighborLoader(store, [5], batch_size=100, num_workers=workers)
    other = NeighborLoader(store, [2], batch_size=100, num_workers=workers)
    seen = [(a.input_id[0].item(), b.input_id[0].item()) for a in loader for b in loader]
    assert seen == [(i, j) for i in (0, 100, 200) for j in (0, 100, 200)]
    assert [a.input_id[0] == b.input_id[0] for a, b in zip(loader, other, strict=True)] == [1] * 3


class Late:
    """An engine whose first batch is not there when it is asked for."""

    def __init__(self, engine):
        self.engine = engine
        self.is_late = True

    def get(self, number, timeout):
        is_late, self.is_late = self.is_late, False
        return None if is_late else self.engine.get(number, timeout)

    def __getattr__(self, name):
        return getattr(self.engine, name)


def test_timeout(store):
    loader = NeighborLoader(store, [5], batch_size=100, num_workers=1, timeout=0.01)
    iterator = iter(loader)
    iterator.epoch._engine = Late(iterator.epoch._engine)
    with pytest.raises(RuntimeError, match=r"timed out after 0.01 seconds"):
        next(iterator)
    assert len(list(iterator)) == 3  # it comes later


def _epoch_in_child(loader, queue) -> None:
    torch.manual_seed(9)
    queue.put([batch.n_id.tolist() for batch in loader])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterator_goes_on_in_a_forked_child(store, workers):
    loader = NeighborLoader(store, [5, 3], batch_size=20, shuffle=True, num_workers=workers)
    iterator = iter(loader)
    next(iterator)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        rest = [batch.n_id.tolist() for batch in iterator]
        os.write(writing, repr([sum(ids) for ids in rest]).encode())
        os._exit(0)
    os.close(writing)
    rest = [batch.n_id.tolist() for batch in iterator]
    assert os.read(reading, 1 << 16).decode() == repr([sum(ids) for ids in rest])
    os.close(reading)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_a_used_loader_goes_to_another_process(store, context):
    loader = NeighborLoader(
        store, [5, 3], batch_size=50, shuffle=True, num_workers=2, persistent_workers=True
    )
    list(loader)
    iterator = iter(loader)
    next(iterator)
    process = multiprocessing.get_context(context)
    queue = process.Queue()
    child = process.Process(target=_epoch_in_child, args=(loader, queue))
    child.start()
    found = queue.get(timeout=120)
    child.join(60)
    assert child.exitcode == 0
    torch.manual_seed(9)
    assert found == [batch.n_id.tolist() for batch in loader]


class Nested(torch.utils.data.Dataset):
    """A dataset whose items are made by a loader, as some scripts have it."""

    def __init__(self, loader):
        self.loader = loader

    def __len__(self):
        return 2

    def __getitem__(self, i):
        torch.manual_seed(i)
        return [int(batch.n_id.sum()) for batch in self.loader]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_inside_the_worker_of_another_loader(store, context):
    nested = Nested(NeighborLoader(store, [5], batch_size=100, shuffle=True, num_workers=2))
    want = [nested[0], nested[1]]
    outer = torch.utils.data.DataLoader(
        nested, batch_size=None, num_workers=1, multiprocessing_context=context
    )
    assert list(outer) == want


def test_without_workers_all_is_asked_for_with_its_batch(store):
    """A sampler may look at what the model has learned, a transform too."""
    log = []

    def chosen():
        for i in range(3):
            log.append(f"choose {i}")
            yield [i]

    def transform(batch):
        log.append(f"transform {int(batch.input_id)}")
        return batch

    loader = NeighborLoader(store, [2], transform=transform, batch_sampler=chosen())
    for i, _ in enumerate(loader):
        assert log == [f"choose {i}", f"transform {i}"]
        log.clear()


def test_a_subclass_that_joins_itself_is_asked(store):

    class Mine(NeighborLoader):
        def filter_fn(self, out):
            batch = super().filter_fn(out)
            batch.mine = True
            return batch

    assert all(batch.mine for batch in Mine(store, [5], batch_size=100, num_workers=2))

    class Whole(NeighborLoader):
        def collate_fn(self, index):
            return 42

    assert list(Whole(store, [5], batch_size=100)) == [42] * 3


def test_stats(store, monkeypatch):
    """By a clock that goes on by a second whenever it is looked at."""
    now = 0.0

    def clock():
        nonlocal now
        now += 1.0
        return now

    monkeypatch.setattr("pyg_graphzero.loader.epoch.perf_counter", clock)
    monkeypatch.setattr("pyg_graphzero.loader.stats.perf_counter", clock)
    loader = NeighborLoader(store, [5, 3], batch_size=30, num_workers=2)
    assert loader.stats().verdict == "no batches yet"
    batches = list(loader)
    stats = loader.stats()
    assert stats.batches == len(batches) == 10
    assert stats.nodes == sum(b.num_nodes for b in batches)
    assert stats.edges == sum(b.num_edges for b in batches)
    assert stats.bytes >= sum(b.x.nbytes + b.edge_index.nbytes for b in batches)
    assert stats.verdict == "loader-bound"
    assert min(stats.sample, stats.gather, stats.finish, stats.prepare) > 0
    assert stats.elapsed >= stats.prepare + stats.wait + stats.finish
    assert stats.to_dict()["batches_per_second"] == stats.batches_per_second
    assert "10 batches" in repr(stats)
    for _ in loader:
        now += 1000.0
    assert loader.stats().verdict == "compute-bound"
    assert loader.stats().train > 9000.0
    foreign = NeighborLoader(
        store, [5], neighbor_sampler=Foreign(), input_nodes=torch.arange(3), batch_size=1
    )
    with pytest.raises(gz.errors.UnsupportedError, match="batches made by Foreign"):
        foreign.stats()


class Foreign:
    """Stands for another library's sampler."""


def test_the_profiler_sees_the_stages(store):
    with torch.profiler.profile() as profile:
        list(NeighborLoader(store, [5], batch_size=100, num_workers=1))
    names = {event.key for event in profile.key_averages()}
    assert names >= {"graphzero::prepare", "graphzero::wait", "graphzero::finish"}
    assert any("DataLoader" in name and "next" in name for name in names)  # torch's own
