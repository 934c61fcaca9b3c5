"""Needs of loaders, held against their own batches and files."""

from __future__ import annotations

import pytest
import torch

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous, write_store
from pyg_graphzero.loader import HGTLoader, LinkNeighborLoader, NeighborLoader
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.needs import Kind, Need, bytes_of_batches, needs_of


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("needs")
    homo, hetero = homogeneous(2000, 20_000), heterogeneous()
    return write_store(homo, folder / "homo"), write_store(hetero, folder / "hetero")


LOADERS = {
    "plain": lambda d, h: NeighborLoader(d, [5, 3], batch_size=200, shuffle=True),
    "no edge ids": lambda d, h: NeighborLoader(d, [5, 3], batch_size=200, edge_ids=False),
    "links": lambda d, h: LinkNeighborLoader(d, [4, 2], batch_size=300, neg_sampling="binary"),
    "heterogeneous": lambda d, h: NeighborLoader(h, [3, 2], input_nodes="paper", batch_size=90),
    "hgt": lambda d, h: HGTLoader(h, [60, 40], "paper", batch_size=90),
}


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS.keys())
def test_batches_take_about_as_much_as_a_loader_needs(paths, make):
    loader = make(*(gz.open(path).data() for path in paths))
    state = torch.get_rng_state()
    needs = needs_of(loader)
    assert torch.equal(torch.get_rng_state(), state)
    assert needs.epoch == len(loader)
    assert needs.seeds == len(loader.dataset)
    whole, nodes = 0, 0
    for batch in loader:
        tensors = [value for store in batch.stores for value in store.values()]
        whole = max(whole, sum(v.nbytes for v in tensors if isinstance(v, torch.Tensor)))
        nodes = max(nodes, batch.num_nodes)
    assert nodes <= costs.SLACK * needs.batch.nodes
    assert whole <= costs.SLACK * needs.batch.whole <= 2 * whole
    assert needs.batch.sampled <= needs.batch.sampling <= needs.batch.whole


def test_files_are_those_that_are_read(paths):
    data = gz.open(paths[0]).data()
    names = {file.name for file in needs_of(NeighborLoader(data, [2])).files}
    del data.y
    data.x = data.x + 1  # in memory by now
    fewer = needs_of(NeighborLoader(data, [2], edge_ids=False))
    assert names - {file.name for file in fewer.files} == {
        "node/x.gd", "node/y.gd", "edge/edge_id.gd",
    }  # fmt: skip
    rows, _, has_slots = bytes_of_batches(NeighborLoader(data, [2], edge_ids=False))
    assert rows[None] == 8 + 8 * 4 + 1  # id, x and train_mask
    assert has_slots  # of edge_attr


def test_the_share_of_uses_that_the_first_rows_serve():
    file = Need("x", 100, 4, Kind.ROWS, uses=((3.0, 10), (1.0, 20)))
    shares = [file.served(4 * rows) for rows in (0, 5, 10, 20, 30, 99)]
    assert shares == pytest.approx([0, 0.3, 0.6, 0.8, 1, 1])
    assert Need("y", 100, 4, Kind.ROWS).served(400) == 0
