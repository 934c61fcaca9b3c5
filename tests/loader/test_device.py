"""Delivery to other devices, as far as a machine without one shows."""

from __future__ import annotations

import pytest
import torch
from loader_kinds import LOADERS, graphs_of_loaders

from pyg_graphzero.loader import NeighborLoader


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_on_another_device(store, workers):

    def make(**arguments):
        torch.manual_seed(2)
        return NeighborLoader(store.data(), [5, 3], batch_size=50, num_workers=workers, **arguments)

    want = list(make())
    loader = make(device="meta")
    assert loader.device == torch.device("meta")
    found = []
    for i, batch in enumerate(loader):
        found.append(batch)
        assert loader.state_dict()["num_batches"] == i + 1  # those delivered, not copied ahead
    assert len(found) == len(want) == 6
    for a, b in zip(found, want, strict=True):
        assert a.x.is_meta
        assert a.edge_index.is_meta
        assert a.x.shape == b.x.shape
        assert a.batch_size == b.batch_size
    assert not next(iter(make(device="cpu"))).x.is_meta
    with pytest.raises(RuntimeError, match="device"):
        make(device="nowhere")


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_a_device_that_is_not_there(homo):
    with pytest.raises((RuntimeError, AssertionError), match=r"CUDA|NVIDIA"):
        iter(NeighborLoader(homo[1], [2], device="cuda"))


@pytest.mark.parametrize("kind", LOADERS)
def test_every_loader_has_a_device(kind):
    batch = next(iter(LOADERS[kind](*graphs_of_loaders(), batch_size=100, device="meta")))
    assert all(store.edge_index.is_meta for store in batch.edge_stores)
