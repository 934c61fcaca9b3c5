"""Loaders and Lightning's data modules by a sampler that is given, ours and PyG's, on disk."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.loader as stock
from torch_geometric.data import Data
from torch_geometric.data.lightning import LightningNodeData as StockNodeData
from torch_geometric.sampler import BaseSampler
from torch_geometric.sampler import NeighborSampler as StockSampler

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous
from pyg_graphzero.loader import LinkLoader, NodeLoader
from pyg_graphzero.store.contents import StoreContents

WRITES = ("author", "writes", "paper")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Encoded stores, whose edges lie in another order than the input's."""
    root = tmp_path_factory.mktemp("stores")
    for name, data in (("homogeneous", homogeneous()), ("heterogeneous", heterogeneous())):
        gz.convert(data, root / name, features="float16", progress=False)
    return {name: root / name for name in ("homogeneous", "heterogeneous")}


@pytest.fixture(autouse=True)
def _nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has an entry for every edge, or a row for every node."""

    def never(*args: Any) -> None:
        raise AssertionError("something of the size of edge_index was built")

    for name in ("edge_index", "edge_position", "whole"):
        monkeypatch.setattr(StoreContents, name, never)


def check(batch: Any, memory: Data) -> None:
    assert torch.equal(batch.x, memory.x.half().float()[batch.n_id])
    assert torch.equal(batch.y, memory.y[batch.n_id])
    assert torch.equal(batch.n_id[batch.edge_index], memory.edge_index[:, batch.e_id])
    assert torch.equal(batch.edge_attr, memory.edge_attr[batch.e_id])
    assert torch.equal(batch.train_idx, memory.train_idx)
    assert batch.num_nodes == batch.n_id.numel()
    assert batch.e_id.dtype == torch.int64


def check_hetero(batch: Any, memory: Any) -> None:
    for name in memory.node_types:
        if "x" in memory[name]:
            want = memory[name].x.half().to(batch[name].x.dtype)
            assert torch.equal(batch[name].x, want[batch[name].n_id])
    for name in memory.edge_types:
        ends = batch[name[0]].n_id, batch[name[2]].n_id
        found = torch.stack([n[part] for n, part in zip(ends, batch[name].edge_index, strict=True)])
        assert torch.equal(found, memory[name].edge_index[:, batch[name].e_id])
    assert torch.equal(batch[WRITES].edge_attr, memory[WRITES].edge_attr[batch[WRITES].e_id])


@pytest.mark.parametrize("workers", [0, 2])
def test_node_loader(paths, workers):
    data, memory = gz.open(paths["homogeneous"]).data(), homogeneous()
    sampler = gz.sampler.NeighborSampler(data, [4, 3])
    options = {"batch_size": 20, "num_workers": workers}
    loader = NodeLoader(data, sampler, data.train_idx, **options)
    assert isinstance(loader, stock.NodeLoader)
    batches = list(loader)
    assert torch.equal(torch.cat([b.n_id[: b.batch_size] for b in batches]), memory.train_idx)
    for batch in batches:
        check(batch, memory)
    options |= {"edge_ids": False, "shuffle": True}
    for batch in NodeLoader(data, sampler, memory.train_mask, **options):
        assert "e_id" not in batch
        assert torch.equal(batch.n_id[: batch.batch_size], batch.input_id)


@pytest.mark.parametrize("workers", [0, 2])
def test_link_loader(paths, workers):
    data, memory = gz.open(paths["homogeneous"]).data(), homogeneous()
    sampler, edges = gz.sampler.NeighborSampler(data, [4, 3]), memory.edge_index[:, :90]
    options = {"batch_size": 40, "num_workers": workers}
    negatives = {"neg_sampling": "binary", "options": gz.SamplingOptions(exclude_edges=True)}
    loader = LinkLoader(data, sampler, edges, **negatives, **options)
    assert isinstance(loader, stock.LinkLoader)
    found, stored = [], set(zip(*memory.edge_index.tolist(), strict=True))
    for batch in loader:
        check(batch, memory)
        ends, is_edge = batch.n_id[batch.edge_label_index], batch.edge_label == 1
        found.append(ends[:, is_edge])
        assert not stored & set(zip(*ends[:, ~is_edge].tolist(), strict=True))
    assert torch.equal(torch.cat(found, 1), edges)
    for batch in LinkLoader(
        data, sampler, options=gz.SamplingOptions(seed_order="store"), **options
    ):
        ends = batch.n_id[batch.edge_label_index]
        assert torch.equal(ends, memory.edge_index[:, batch.input_id])


@pytest.mark.parametrize("workers", [0, 2])
def test_heterogeneous(paths, workers):
    store, memory = gz.open(paths["heterogeneous"]), heterogeneous()
    sampler = gz.sampler.NeighborSampler(store, [4, 3])
    edges = WRITES, memory[WRITES].edge_index
    options = {"batch_size": 64, "num_workers": workers}
    for loader in (
        NodeLoader(store, sampler, "paper", **options),
        LinkLoader((store.feature_store, store.graph_store), sampler, edges, **options),
    ):
        for batch in loader:
            check_hetero(batch, memory)
    with pytest.raises(gz.UnsupportedError, match="starts from nodes"):
        next(iter(LinkLoader(store, gz.sampler.HGTSampler(store, {"paper": [3]}), edges)))


def test_changes_are_loaded(paths):
    """Between batches too, and attributes that are no rows of a store."""
    data, memory = gz.open(paths["homogeneous"]).data(), homogeneous()
    loader = NodeLoader(data, gz.sampler.NeighborSampler(data, [3]), batch_size=100)
    batches = iter(loader)
    next(batches)
    data.x = torch.arange(300.0)
    data.w = torch.arange(3000)
    data.tags = [str(i) for i in range(300)]
    batch = next(batches)
    assert torch.equal(batch.x, batch.n_id.float())
    assert torch.equal(batch.w, batch.e_id)
    assert batch.tags == [str(i) for i in batch.n_id.tolist()]
    again = pickle.loads(pickle.dumps(loader))
    torch.manual_seed(1)
    want = next(iter(loader))
    torch.manual_seed(1)
    got = next(iter(again))
    assert torch.equal(got.e_id, want.e_id)
    assert torch.equal(got.w, want.w)
    del data.x
    assert "x" not in next(iter(loader))
    assert torch.equal(data.y, memory.y)


# PyG's own ---------------------------------------------------------------------------------------


class Theirs(BaseSampler):
    """A sampler of another package, which does what ours does when PyG's loaders call it."""

    def __init__(self, sampler: BaseSampler) -> None:
        self.sampler = sampler

    def sample_from_nodes(self, *args: Any) -> Any:
        return self.sampler.sample_from_nodes(*args)

    def sample_from_edges(self, *args: Any, **kwargs: Any) -> Any:
        return self.sampler.sample_from_edges(*args, **kwargs)

    edge_permutation = property(lambda self: self.sampler.edge_permutation)


def test_any_loader_takes_any_sampler(homo, monkeypatch):
    """PyG's over a graph in memory; ours over a store, too, which another's sampler reads whole."""
    monkeypatch.undo()  # _nothing_is_built
    memory, store = homo
    of_memory, of_disk = (gz.sampler.NeighborSampler(each, [3]) for each in homo)
    for loader in (
        stock.NodeLoader(memory, of_memory, batch_size=50),
        stock.NodeLoader(memory, of_disk, batch_size=50),
        stock.NeighborLoader(memory, [3], neighbor_sampler=of_disk, batch_size=50),
        NodeLoader(memory, Theirs(of_memory), batch_size=50),
        NodeLoader(store, Theirs(of_disk), batch_size=50),
        LinkLoader(memory, Theirs(of_memory), memory.edge_index[:, :50], batch_size=50),
    ):
        batch = next(iter(loader))
        assert torch.equal(batch.x, memory.x[batch.n_id])
        assert torch.equal(batch.n_id[batch.edge_index], memory.edge_index[:, batch.e_id])
        assert torch.equal(batch.edge_attr, memory.edge_attr[batch.e_id])


def test_pygs_loaders_are_served_from_feature_and_graph_stores(paths):
    store, memory = gz.open(paths["homogeneous"]), homogeneous()
    pair = store.feature_store, store.graph_store
    sampler = gz.sampler.NeighborSampler(pair, [4, 3])
    batch = next(iter(stock.NodeLoader(pair, sampler, memory.train_idx, batch_size=20)))
    assert torch.equal(batch.x, memory.x.half().float()[batch.n_id])
    assert torch.equal(batch.n_id[batch.edge_index], memory.edge_index[:, batch.e_id])


def test_pygs_loaders_read_a_graph_on_disk_whole(paths, monkeypatch):
    monkeypatch.undo()  # _nothing_is_built
    data, memory = gz.open(paths["homogeneous"]).data(), homogeneous()
    sampler = gz.sampler.NeighborSampler(data, [4])
    links = memory.edge_index[:, :90]
    for batch in (
        *stock.NodeLoader(data, sampler, input_nodes=memory.train_idx, batch_size=20),
        *stock.LinkLoader(data, sampler, links, batch_size=40),
    ):
        check(batch, memory)


@pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without a 'pyg-lib'")
def test_pygs_sampler_reads_all_edges(paths, monkeypatch):
    monkeypatch.undo()  # _nothing_is_built
    data = gz.open(paths["homogeneous"]).data()
    of_disk, of_memory = StockSampler(data, [4]), StockSampler(homogeneous(), [4])
    assert type(of_disk) is StockSampler
    for name in ("colptr", "row", "perm"):
        assert torch.equal(getattr(of_disk, name), getattr(of_memory, name))


# Lightning's data modules without its trainer, which test_ecosystem.py has


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("own", [True, False])
def test_lightning_node_data(paths, workers, own):
    pytest.importorskip("lightning")
    store, memory = gz.open(paths["homogeneous"]), homogeneous()
    given = {"node_sampler": gz.sampler.NeighborSampler(store, [4, 3])}
    module = gz.loader.LightningNodeData(
        store, memory.train_idx, None, memory.train_mask, batch_size=16, num_workers=workers,
        pin_memory=False,
        eval_loader_kwargs={"num_neighbors": [1], "edge_ids": False},
        **(given if own else {"num_neighbors": [4, 3], "disjoint": True}),
    )  # fmt: skip
    assert isinstance(module, StockNodeData)
    seen = []
    for batch in module.train_dataloader():
        check(batch, memory)
        assert len(batch.num_sampled_edges) == 2
        assert own == (batch.batch is None)
        seen.append(batch.n_id[: batch.batch_size])
    assert torch.equal(torch.cat(seen).sort().values, memory.train_idx.sort().values)
    for batch in module.val_dataloader():
        assert torch.equal(batch.y, memory.y[batch.n_id])
        assert len(batch.num_sampled_edges) == 1
        assert "e_id" not in batch
    module = gz.loader.LightningNodeData(store, memory.train_idx, loader="full")
    (whole,) = module.train_dataloader()
    assert whole.num_nodes == memory.num_nodes


def test_lightning_link_data(paths):
    pytest.importorskip("lightning")
    store, memory = gz.open(paths["heterogeneous"]), heterogeneous()
    module = gz.loader.LightningLinkData(
        store, input_train_edges=(WRITES, memory[WRITES].edge_index), loader="link_neighbor",
        neg_sampling="binary", num_neighbors=[3, 2], batch_size=100, pin_memory=False,
        directed=False, options=gz.SamplingOptions(exclude_edges=True),
    )  # fmt: skip
    assert module.graph_sampler.subgraph_type.value == "induced"
    loader = module.train_dataloader()
    assert loader.options.exclude_edges
    for batch in loader:
        check_hetero(batch, memory)
