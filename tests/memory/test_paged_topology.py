"""Loaders whose sampler reads its neighbours from a file, against the same ones over a map."""

from __future__ import annotations

import os
import pickle

import pytest
import torch
from loaders import LOADERS, graphs_of_loaders
from read_neighbours import in_pages
from same import assert_same

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous, write_store
from pyg_graphzero.loader import NeighborLoader
from pyg_graphzero.memory.keeper import keeper_of
from pyg_graphzero.sampling.graph import Unmapped


def epoch(loader):
    torch.manual_seed(3)
    return list(loader)


@pytest.fixture(scope="module")
def homo_path(tmp_path_factory):
    return write_store(graphs_of_loaders()[0], tmp_path_factory.mktemp("paged") / "homo")


@pytest.fixture(scope="module")
def hetero_path(tmp_path_factory):
    return write_store(heterogeneous(), tmp_path_factory.mktemp("paged") / "hetero")


@pytest.mark.parametrize("kind", LOADERS)
def test_batches_are_those_over_a_map(homo_path, hetero_path, kind):
    def loader(**arguments):
        data = gz.open(homo_path).data(), gz.open(hetero_path).data()
        return LOADERS[kind](*data, batch_size=30, **arguments)

    mapped = loader()
    expected = epoch(mapped)
    assert len(expected) > 1
    assert mapped.stats().topology_rows == 0
    for num_workers, share in ((0, 0.5), (2, 0.0), (2, 1.0)):
        ahead = {"prefetch_factor": 4} if num_workers else {}
        paged = in_pages(loader(num_workers=num_workers, **ahead), share)
        assert_same(epoch(paged), expected)
        stats = paged.stats()
        assert stats.topology_rows >= stats.topology_hits >= 0
        assert stats.topology_reads > 0
        assert stats.topology_bytes >= stats.topology_useful_bytes > 0


def test_windows_read_less_than_batches_one_by_one(homo_path):
    def read(window):
        loader = NeighborLoader(
            gz.open(homo_path).data(), [5, 3], batch_size=30, num_workers=2, prefetch_factor=10
        )
        in_pages(loader, window=(window, 1 << 30))
        epoch(loader)
        return loader.stats()

    one, many = read(1), read(10)
    assert one.topology_rows == many.topology_rows
    assert many.topology_reads < one.topology_reads / 2
    assert many.topology_useful_bytes < one.topology_useful_bytes


def test_a_pickled_sampler_maps_its_topology_again(homo_path):
    def make():
        return NeighborLoader(gz.open(homo_path).data(), [5, 3], batch_size=30)

    copy = pickle.loads(pickle.dumps(in_pages(make())))
    assert_same(epoch(copy), epoch(make()))
    assert copy.stats().topology_rows == 0


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_lost_neighbour_is_an_error_of_its_batch(tmp_path, num_workers):
    data = homogeneous(20_000, 60_000)
    path = write_store(data, tmp_path / "store")
    far = int(data.edge_index[1].max())

    def make():
        return NeighborLoader(
            gz.open(path).data(),
            [-1],
            input_nodes=torch.tensor([5, far, 6, 17]),
            batch_size=1,
            num_workers=num_workers,
        )

    expected = epoch(make())
    assert all(batch.num_edges for batch in expected)
    loader = in_pages(make(), window=(4, 1 << 20))
    [topology] = path.rglob("*.gl")
    pages_of_indptr = -(-8 * 20_001 // 4096)
    os.truncate(topology, 4096 * (1 + pages_of_indptr) + 4 * 30_000)
    iterator = iter(loader)
    assert_same([next(iterator)], expected[:1])
    for _ in range(2):
        with pytest.raises(OSError, match="the file was truncated: cannot read row") as error:
            next(iterator)
        assert str(topology) in str(error.value)
    loader.load_state_dict({**loader.state_dict(), "num_batches": 2})
    assert_same(list(loader), expected[2:])


def test_windows_hold_a_batch_or_more(homo_path):
    sampler = NeighborLoader(gz.open(homo_path).data(), [5], batch_size=30).graph_sampler
    with pytest.raises(ValueError, match="window: found 0 batches, expected 1 or more"):
        sampler.recipe(None, sampler.reading({}, (0, 1 << 20)))


def test_pages_of_another_topology_are_refused(homo_path, hetero_path):
    graph = in_pages(NeighborLoader(gz.open(homo_path).data(), [5])).graph_sampler.graph
    other = NeighborLoader(gz.open(hetero_path).data(), [5], input_nodes="paper").graph_sampler
    neighbours = keeper_of(graph.contents).current.topologies[None]
    unmapped = dict.fromkeys(other.graph.edge_types, Unmapped(neighbours))
    with pytest.raises(ValueError, match=r"paged: found 1 columns of 3000 rows, 4 bytes each"):
        other.reading(unmapped, (3, 1 << 20))
