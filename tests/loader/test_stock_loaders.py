"""Loaders and Lightning's data modules by a sampler that is given, ours and PyG's, on disk."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.loader as stock
from same import assert_same
from torch_geometric.data.lightning import LightningNodeData as StockNodeData
from torch_geometric.sampler import BaseSampler
from torch_geometric.sampler import NeighborSampler as StockSampler

import pyg_graphzero as gz
from graphs import check_rows, heterogeneous, homogeneous
from pyg_graphzero.loader import LinkLoader, LinkNeighborLoader, NeighborLoader, NodeLoader

pytestmark = pytest.mark.usefixtures("nothing_is_built")
WRITES = ("author", "writes", "paper")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Encoded stores, whose edges lie in another order than the input's."""
    root = tmp_path_factory.mktemp("stores")
    for name, data in (("homogeneous", homogeneous()), ("heterogeneous", heterogeneous())):
        gz.convert(data, root / name, features="float16", progress=False)
    return {name: root / name for name in ("homogeneous", "heterogeneous")}


def rounded(data: Any) -> Any:
    """The graph as the stores have it."""
    for store in data.node_stores:
        if "x" in store:
            store.x = store.x.half().to(store.x.dtype)
    return data


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["homogeneous", "heterogeneous"])
def test_a_sampler_that_is_given(paths, name, workers):
    """Batches are those of the loader that makes the same sampler itself."""
    store = gz.open(paths[name])
    pair = store.feature_store, store.graph_store
    sampler = gz.sampler.NeighborSampler(store, [4, 3])
    nodes, edges = ("paper", WRITES) if store.is_hetero else (store.data().train_idx, None)
    options = {"shuffle": True, "batch_size": 60, "num_workers": workers}
    drawn = gz.SamplingOptions(exclude_edges=True, seed_order="store")
    links = {"neg_sampling": "binary", "options": drawn}
    for given, made in (
        (NodeLoader(store.data(), sampler, nodes, **options),
         NeighborLoader(store, [4, 3], nodes, **options)),
        (NodeLoader(store, sampler, nodes, edge_ids=False, **options),
         NeighborLoader(store, [4, 3], nodes, edge_ids=False, **options)),
        (LinkLoader(pair, sampler, edges, **links, **options),
         LinkNeighborLoader(store, [4, 3], edges, **links, **options)),
    ):  # fmt: skip
        epochs = []
        for loader in (given, made):
            assert isinstance(loader, stock.NodeLoader | stock.LinkLoader)
            torch.manual_seed(4)
            epochs.append(list(islice(loader, 5)))
        assert_same(*epochs)
    if store.is_hetero:
        ends = torch.zeros(2, 1, dtype=torch.int64)
        without = LinkLoader(store, gz.sampler.HGTSampler(store, {"paper": [3]}), (edges, ends))
        with pytest.raises(gz.UnsupportedError, match="starts from nodes"):
            next(iter(without))


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
    """Ours over a store, too, which PyG's loaders and another's sampler read whole."""
    monkeypatch.undo()  # nothing_is_built
    memory, store = homo
    of_memory, of_disk = (gz.sampler.NeighborSampler(each, [3]) for each in homo)
    for loader in (
        stock.NodeLoader(memory, of_memory, batch_size=50),
        stock.NodeLoader(memory, of_disk, batch_size=50),
        stock.NeighborLoader(memory, [3], neighbor_sampler=of_disk, batch_size=50),
        stock.NodeLoader(store.data(), of_disk, batch_size=50),
        stock.LinkLoader(store.data(), of_disk, memory.edge_index[:, :50], batch_size=50),
        NodeLoader(memory, Theirs(of_memory), batch_size=50),
        NodeLoader(store, Theirs(of_disk), batch_size=50),
        LinkLoader(memory, Theirs(of_memory), memory.edge_index[:, :50], batch_size=50),
    ):
        check_rows(next(iter(loader)), memory)


def test_pygs_loaders_are_served_from_feature_and_graph_stores(paths):
    store, memory = gz.open(paths["homogeneous"]), rounded(homogeneous())
    pair = store.feature_store, store.graph_store
    sampler = gz.sampler.NeighborSampler(pair, [4, 3])
    loader = stock.NodeLoader(pair, sampler, memory.train_idx, batch_size=20)
    check_rows(next(iter(loader)), memory, "edge_attr")


@pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without a 'pyg-lib'")
def test_pygs_sampler_reads_all_edges(paths, monkeypatch):
    monkeypatch.undo()  # nothing_is_built
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
    store, memory = gz.open(paths["homogeneous"]), rounded(homogeneous())
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
        check_rows(batch, memory)
        assert torch.equal(batch.train_idx, memory.train_idx)
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
    store, memory = gz.open(paths["heterogeneous"]), rounded(heterogeneous())
    module = gz.loader.LightningLinkData(
        store, input_train_edges=(WRITES, memory[WRITES].edge_index), loader="link_neighbor",
        neg_sampling="binary", num_neighbors=[3, 2], batch_size=100, pin_memory=False,
        directed=False, options=gz.SamplingOptions(exclude_edges=True),
    )  # fmt: skip
    assert module.graph_sampler.subgraph_type.value == "induced"
    loader = module.train_dataloader()
    assert loader.options.exclude_edges
    for batch in loader:
        check_rows(batch, memory)
