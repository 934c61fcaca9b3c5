"""Sweeps: every node once with all of its neighbours, from memory and from disk."""

from __future__ import annotations

import shutil
from unittest.mock import Mock

import pytest
import torch
from paging import paged
from same import assert_same
from torch_geometric.data import Data

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous, write_store
from pyg_graphzero.inference.sweep import SweepLoader, runs_of


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """By name: the store's path, and the node type to sweep over."""
    folder = tmp_path_factory.mktemp("sweep")
    plain = homogeneous()
    del plain.train_mask, plain.train_idx
    typed = heterogeneous()
    paths = {
        "plain": (write_store(plain, folder / "plain"), None),
        "typed": (write_store(typed, folder / "typed"), "paper"),
        "authors": (folder / "typed", "author"),
    }
    gz.convert(plain, folder / "coded", features={"x": "int8"}, progress=False)
    paths["coded"] = folder / "coded", None
    return paths


def sweep(path, node_type, workers=0, max_edges=60, memory=None):
    store = gz.open(path, memory=memory)
    data, contents = store.data(), store.contents
    names = [name for name in data.edge_types if name[2] == node_type] if node_type else [None]
    data = data.edge_type_subgraph(names) if node_type else data
    nodes = range(contents.node_type(node_type).num_nodes)
    return SweepLoader(data, node_type, nodes, runs_of(contents, names, nodes, max_edges), workers)


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("name", ["plain", "typed", "authors", "coded"])
def test_batches_from_disk_are_those_from_memory(stores, name, workers):
    path, node_type = stores[name]
    expected = list(sweep(path, node_type))
    assert len(expected) > 3
    with paged():
        loader = sweep(path, node_type, workers)
        assert_same(list(loader), expected)
    assert loader.stats().rows > 0
    assert loader.stats().topology_rows == 0  # mapped, whatever stays in memory


def test_each_node_comes_once_with_all_of_its_neighbours(stores):
    data = gz.open(stores["plain"][0]).data()
    degrees = data.edge_index[1].bincount(minlength=data.num_nodes)
    at = 0
    for batch in sweep(stores["plain"][0], None):
        own = torch.arange(at, at + batch.batch_size)
        assert batch.first_row == at
        assert batch.n_id[: batch.batch_size].equal(own)
        found = batch.edge_index[1].bincount(minlength=batch.batch_size)
        assert found.equal(degrees[own])
        assert batch.batch_size == 1 or batch.batch_size + batch.num_edges <= 60
        at += batch.batch_size
    assert at == data.num_nodes


def test_the_trial_is_the_largest_batch(stores):
    path, _ = stores["plain"]
    sizes = [batch.batch_size + batch.num_edges for batch in sweep(path, None, max_edges=20)]
    loader = sweep(path, None, max_edges=20)
    made = loader.graph_sampler.sample(loader.trial(torch.tensor([0]), 0), 0)
    assert made.metadata[0].tolist() == [sizes.index(max(sizes))]


def test_torchs_generator_is_left_alone(stores):
    before = torch.get_rng_state()
    for workers in (0, 2):
        list(sweep(stores["plain"][0], None, workers))
    assert torch.get_rng_state().equal(before)


def test_no_rows(tmp_path):
    data = Data(x=torch.zeros(0, 4), edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=0)
    path = write_store(data, tmp_path / "empty")
    with paged():
        assert list(sweep(path, None)) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_is_cut_short(stores, tmp_path, workers):
    path = shutil.copytree(stores["plain"][0], tmp_path / "store")
    with paged():
        loader = sweep(path, None, workers)
        file = path / gz.open(path).contents.schema.node_type(None).attrs["x"]
        column = gz.open(path).contents.column(str(file.relative_to(path)))
        with file.open("r+b") as opened:
            opened.truncate(column.data_offset + 290 * column.row_stride)
        with pytest.raises(OSError, match=file.name):
            list(loader)


def test_a_damaged_topology(stores, tmp_path):
    path = shutil.copytree(stores["plain"][0], tmp_path / "store")
    topology = gz.open(path).contents.topology(None)
    at = topology.indices_offset + topology.index_bytes * 1700
    with open(topology.path, "r+b") as file:
        file.seek(at)
        file.write(b"\xff" * topology.index_bytes)
    with paged(), pytest.raises(gz.FormatError, match=r"topology\.gl.*indices"):
        list(sweep(path, None))


def test_pages_of_topologies_are_given_up(stores, monkeypatch):
    monkeypatch.setattr("pyg_graphzero.inference.sweep._MAPPED_EDGES", 500)
    loader, noted = sweep(stores["plain"][0], None), Mock()
    loader._topologies = [noted]
    edges = sum(batch.num_edges for batch in loader)
    assert edges // 600 <= noted.forget_pages.call_count <= edges // 500


def test_a_budget_without_room_for_a_batch(stores):
    with pytest.raises(gz.MemoryBudgetError, match=r"expected .* MB or more: .*max_edges"):
        next(iter(sweep(stores["plain"][0], None, memory="1MB")))
