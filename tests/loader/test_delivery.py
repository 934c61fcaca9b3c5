"""Delivery to other devices, as far as a machine without one shows."""

from __future__ import annotations

import contextlib

import pytest
import torch

from pyg_graphzero.loader import HGTLoader, LinkNeighborLoader, NeighborLoader, ShaDowKHopSampler
from pyg_graphzero.loader.delivery import DeviceIterator, PlainCopier, StreamCopier


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_on_another_device(homo, workers):
    _, store = homo

    def make(**arguments):
        torch.manual_seed(2)
        return NeighborLoader(store.data(), [5, 3], batch_size=50, num_workers=workers, **arguments)

    want = list(make())
    loader = make(device="meta")
    assert loader.device == torch.device("meta")
    found = []
    for i, batch in enumerate(loader):
        found.append(batch)
        assert loader.state_dict()["num_batches"] == i + 1  # what was delivered, not copied ahead
    assert len(found) == len(want) == 6
    for a, b in zip(found, want, strict=True):
        assert a.x.is_meta
        assert a.edge_index.is_meta
        assert a.x.shape == b.x.shape
        assert a.batch_size == b.batch_size
    assert not next(iter(make(device="cpu"))).x.is_meta
    with pytest.raises(RuntimeError, match="device"):
        make(device="nowhere")


def test_every_loader_has_a_device(homo, hetero):
    for loader in (
        LinkNeighborLoader(homo[1], [2], batch_size=100, device="meta"),
        HGTLoader(hetero[1], [2], "paper", batch_size=100, device="meta"),
        ShaDowKHopSampler(homo[1], 1, 2, batch_size=100, device="meta"),
    ):
        batch = next(iter(loader))
        stores = batch.edge_stores
        assert all(store.edge_index.is_meta for store in stores)


class Streams:
    """``torch.cuda`` as the copier sees it, with streams that only take notes."""

    def __init__(self):
        self.log = []
        self.current = self.Stream("cpu", "current")

    def Stream(self, device, name="side"):
        return FakeStream(name, self.log)

    def stream(self, stream):
        self.log.append(f"on {stream.name}")
        return contextlib.nullcontext()

    def current_stream(self, device):
        return self.current


class FakeStream:
    def __init__(self, name, log):
        self.name = name
        self.log = log

    def record_event(self):
        event = FakeEvent()
        self.log.append("copied")
        return event

    def wait_event(self, event):
        self.log.append(f"{self.name} waits")
        event.done = True


class FakeEvent:
    done = False

    def query(self):
        return self.done


class FakeBatch:
    def __init__(self, number, log):
        self.number = number
        self.log = log

    def to(self, device, non_blocking):
        assert non_blocking
        return FakeBatch(-self.number, self.log)

    def record_stream(self, stream):
        self.log.append(f"batch {-self.number} of {stream.name}")


def test_a_batch_is_copied_while_the_one_before_trains():
    streams = Streams()
    copier = StreamCopier(torch.device("cpu"), streams)
    batches = (FakeBatch(i, streams.log) for i in (1, 2, 3))
    iterator = DeviceIterator(batches, copier, lambda: True)
    assert next(iterator).number == -1
    copied = ["on side", "copied"]
    assert streams.log == [*copied, "current waits", "batch 1 of current", *copied]
    assert len(copier.sources) == 1  # the first is copied; the second may not be
    assert [batch.number for batch in iterator] == [-2, -3]
    assert streams.log.count("copied") == 3


def test_nobody_waits_for_the_batch_after_the_next():
    asked = []

    def batches():
        for i in range(3):
            asked.append(i)
            yield torch.tensor(i)

    iterator = DeviceIterator(batches(), PlainCopier(torch.device("meta")), lambda: False)
    next(iterator)
    assert asked == [0]


def test_an_error_ahead_comes_in_its_place():
    def batches():
        yield torch.tensor(0)
        raise OSError("of the second")

    iterator = DeviceIterator(batches(), PlainCopier(torch.device("meta")), lambda: True)
    next(iterator)
    with pytest.raises(OSError, match="of the second"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)
