"""Signals and exceptions that strike a consumer lose no batch, double none and mix none up."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time

import pytest
import torch
from interrupting import Alarm, At, Struck, on_alarm, struck_everywhere, taken_by_threads
from same import assert_same
from torch_geometric.data import Data

from graphs import heterogeneous, homogeneous
from pyg_graphzero.loader import HGTLoader, LinkNeighborLoader, NeighborLoader, device

# A signal may strike in a finalizer, whose exceptions no caller can catch.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SMALL = homogeneous()
TYPED = heterogeneous()


def in_place(batch):
    batch.x.add_(1)
    batch.input_id = batch.input_id.clone()
    return batch


def labelled(batch):
    batch.edge_label.mul_(3)
    return batch


LOADERS = {
    "nodes": lambda **k: NeighborLoader(
        SMALL, [3], shuffle=True, **({"transform": in_place} | k)
    ),
    "links": lambda **k: LinkNeighborLoader(
        SMALL, [2], neg_sampling="binary", edge_label_index=SMALL.edge_index[:, :300],
        edge_label=torch.arange(300), transform=labelled, shuffle=True, **k
    ),
    "hetero": lambda **k: NeighborLoader(TYPED, [2], input_nodes="paper", shuffle=True, **k),
    "hgt": lambda **k: HGTLoader(TYPED, [2], "paper", **k),
}  # fmt: skip


def maker(kind, **arguments):
    def make(**more):
        torch.manual_seed(7)
        return LOADERS[kind](**({"batch_size": 4} | arguments | more))

    return make


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["nodes", "links"])
def test_wherever_a_call_is_struck(kind, workers):
    make = maker(kind, num_workers=workers)
    expected = list(make())
    found, strikes = struck_everywhere(make)
    assert strikes > 60
    assert_same(found, expected)
    # Further moments of a call, until calls have no more of them.
    for first in (strikes, 3 * strikes):
        found, again = struck_everywhere(make, first, 3)
        assert_same(found, expected)
    assert again < strikes


@pytest.mark.parametrize("kind", ["nodes", "links", "hetero", "hgt"])
def test_torch_state_of_a_thread_is_left_alone(kind):
    """A strike in torch's own code would leave a mode of its set for all that comes after."""
    make = maker(kind)
    batches = iter(make())
    for moment in range(0, 1000, 7):
        with contextlib.suppress(Struck), At(moment, folder=""):
            if next(batches, None) is None:
                batches = iter(make())
        assert torch._C._len_torch_function_stack() == 0
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
        torch.manual_seed(1)
        assert torch.equal(torch.rand(3), torch.rand(3, generator=torch.Generator().manual_seed(1)))


def test_wherever_an_epoch_begins():
    """The order and the epoch's key are drawn by the first call, in-line."""
    make = maker("nodes", batch_size=100)
    expected = list(make())
    state = torch.get_rng_state()
    for moment in range(0, 10_000, 3):
        iterator = iter(make())
        try:
            with At(moment):
                first = next(iterator)
        except Struck:
            assert_same(list(iterator), expected)
            assert torch.equal(torch.get_rng_state(), state)
        else:
            assert_same([first], expected[:1])
            break
    assert moment > 100


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at", [0, 3])
def test_a_batch_between_the_iterator_and_its_user_is_counted_and_comes_again(workers, at):
    """Where ``next()`` has returned and nothing is assigned yet, the user has no batch."""
    make = maker("nodes", batch_size=50, num_workers=workers)
    expected = list(make())

    def strike(frame, event, arg):
        if event == "c_return" and arg is next and frame.f_code is struck.__code__:
            sys.setprofile(None)
            raise Struck

    def struck(batches):
        sys.setprofile(strike)
        batch = next(batches)
        found.append(batch)

    loader = make()
    batches = iter(loader)
    found = [next(batches) for _ in range(at)]
    with pytest.raises(Struck):
        struck(batches)
    state = loader.state_dict()
    assert (state["num_batches"], len(found)) == (at + 1, at)  # so one is missing
    assert_same([*found, *batches], expected[:at] + expected[at + 1 :])
    loader.load_state_dict({**state, "num_batches": len(found)})
    assert_same([*found, *loader], expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_copies_to_a_device(workers, monkeypatch):
    """By PyG's ``PrefetchLoader``, which is a generator and one batch ahead."""
    make = maker("nodes", num_workers=workers)
    expected = list(make())
    monkeypatch.setattr(device, "_STREAMED", ("cpu",))

    def on_a_device():
        batches = iter(make())
        batches.epoch = device.EpochOnDevice(batches.epoch, torch.device("cpu"))
        return batches

    assert_same(list(on_a_device()), expected)
    for first, stride in ((0, 1), (80, 3)):
        found, strikes = struck_everywhere(on_a_device, first, stride)
        assert strikes > 15
        assert_same(found, expected)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["nodes", "links"])
def test_threads_that_share_an_iterator(kind, workers):
    make = maker(kind, num_workers=workers)
    expected = list(make())
    loader = make()
    found = taken_by_threads(iter(loader))
    place = {int(batch.input_id[0]): i for i, batch in enumerate(expected)}
    found.sort(key=lambda batch: place[int(batch.input_id[0])])
    assert_same(found, expected)
    assert loader.state_dict()["num_batches"] == len(expected)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["nodes", "hetero"])
@pytest.mark.parametrize("error", [ValueError("of the third"), KeyboardInterrupt(), Alarm()])
def test_a_batch_whose_transform_raises_comes_next(kind, workers, error):
    """Made again: no array that was changed in place is changed twice."""
    expected = list(maker(kind, batch_size=50)())
    inner = in_place if kind == "nodes" else (lambda batch: batch)
    seen = 0

    def transform(batch):
        nonlocal seen
        seen += 1
        batch = inner(batch)
        if seen == 3:
            raise error
        return batch

    loader = maker(kind, batch_size=50, num_workers=workers)(transform=transform)
    iterator = iter(loader)
    found = [next(iterator), next(iterator)]
    with pytest.raises(type(error)):
        next(iterator)
    assert loader.state_dict()["num_batches"] == 2
    assert_same([*found, *iterator], expected)


def test_a_sampler_that_is_cut_short_is_no_end_of_the_epoch():
    def chosen():
        yield [1, 2]
        signal.raise_signal(signal.SIGINT)
        yield [3, 4]

    iterator = iter(NeighborLoader(SMALL, [2], batch_sampler=chosen()))
    assert next(iterator).input_id.tolist() == [1, 2]
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    with pytest.raises(RuntimeError, match="this epoch cannot go on: KeyboardInterrupt"):
        next(iterator)


def test_nothing_is_lost_where_an_epoch_is_given_up(monkeypatch):
    """Python prints an exception that strikes in a finalizer, and goes on as if there were none."""
    lost = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    data = Data(x=torch.zeros(8_000, 32), edge_index=torch.randint(0, 8_000, (2, 80_000)))
    loader = NeighborLoader(data, [15, 10], batch_size=1000, num_workers=2)

    def give_up():
        iterator = iter(loader)
        next(iterator)
        signal.setitimer(signal.ITIMER_REAL, 0.003)
        del iterator  # its threads are in the middle of a batch, and end after it
        time.sleep(2)

    def handler(number, frame):
        raise Struck

    with on_alarm(handler):
        for _ in range(5):
            with pytest.raises(Struck):
                give_up()
    assert not lost


def test_a_batch_is_not_asked_for_within_another():
    holder = []
    loader = NeighborLoader(SMALL, [2], batch_size=100, transform=lambda batch: next(holder[0]))
    holder.append(iter(loader))
    with pytest.raises(RuntimeError, match="is making a batch already"):
        next(holder[0])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_does_not_wait_for_a_thread_of_its_parent():
    """Which was inside the iterator, and is not there."""
    within, goes_on = threading.Event(), threading.Event()

    def slow(batch: Data) -> Data:
        within.set()
        goes_on.wait(60)
        return batch

    loader = NeighborLoader(SMALL, [2], batch_size=100, num_workers=2, transform=slow)
    expected = [batch.n_id.tolist() for batch in NeighborLoader(SMALL, [2], batch_size=100)]
    iterator, found = iter(loader), []
    thread = threading.Thread(target=lambda: found.extend(iterator))
    thread.start()
    within.wait(60)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        goes_on.set()
        ids = [batch.input_id.tolist() for batch in iterator]
        os.write(writing, repr([len(i) for i in ids]).encode())
        os._exit(0)
    goes_on.set()
    os.close(writing)
    assert os.read(reading, 1 << 16).decode() == "[100, 100, 100]"
    assert os.waitpid(child, 0)[1] == 0
    os.close(reading)
    thread.join()
    assert len(found) == len(expected) == 3
