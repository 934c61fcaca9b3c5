"""PyG's own loaders and Lightning's data modules over a graph on disk, with our sampler."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.data.lightning import LightningLinkData, LightningNodeData
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.loader import LinkNeighborLoader as StockLinkLoader
from torch_geometric.loader import NeighborLoader as StockLoader
from torch_geometric.sampler import NeighborSampler as StockSampler
from torch_geometric.sampler.base import SubgraphType

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous
from pyg_graphzero.store.contents import StoreContents

WRITES = ("author", "writes", "paper")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Stores whose edges, and one whose nodes, lie in another order than the input's; encoded."""
    root = tmp_path_factory.mktemp("stores")
    for name, data in (("homogeneous", homogeneous()), ("heterogeneous", heterogeneous())):
        gz.convert(data, root / name, features="float16", progress=False)
    gz.optimize(root / "homogeneous", root / "ordered", seeds="train_idx", num_neighbors=[3])
    return {name: root / name for name in ("homogeneous", "ordered", "heterogeneous")}


@pytest.fixture(autouse=True)
def _nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has an entry for every edge, or a row for every node."""

    def never(*args: Any) -> None:
        raise AssertionError("something of the size of edge_index was built")

    for name in ("edge_index", "edge_position", "edge_column", "node_column"):
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


@pytest.mark.parametrize("kind", ["homogeneous", "ordered"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("per_worker", [True, False])
def test_node_loader(paths, kind, workers, per_worker):
    data = gz.open(paths[kind]).data()
    sampler = gz.sampler.NeighborSampler(data, [4, 3])
    loader = NodeLoader(
        data, sampler, input_nodes=data.train_idx, batch_size=20, num_workers=workers,
        filter_per_worker=per_worker,
    )  # fmt: skip
    memory = homogeneous()
    batches = list(loader)
    assert torch.equal(torch.cat([b.n_id[: b.batch_size] for b in batches]), memory.train_idx)
    for batch in batches:
        check(batch, memory)


@pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without a 'pyg-lib'")
@pytest.mark.parametrize("workers", [0, 2])
def test_neighbor_loaders_need_no_sampler(paths, workers):
    """They make PyG's, which is ours where the graph is on disk; in memory it stays PyG's."""
    data, memory = gz.open(paths["ordered"]).data(), homogeneous()
    edges = memory.edge_index[:, :90]
    options = {"batch_size": 40, "num_workers": workers}
    loader = StockLoader(data, [4, 3], input_nodes=data.train_idx, **options)
    assert isinstance(loader.node_sampler, gz.sampler.NeighborSampler)
    links = StockLinkLoader(data, [4, 3], edge_label_index=edges, directed=False, **options)
    assert links.link_sampler.subgraph_type == SubgraphType.induced
    for batch in (*loader, *links):
        check(batch, memory)
    hetero = gz.open(paths["heterogeneous"]).data()
    for batch in StockLoader(hetero, [4, 3], input_nodes="paper", disjoint=True, **options):
        check_hetero(batch, heterogeneous())
    store = gz.open(paths["homogeneous"])
    for source in (memory, (store.feature_store, store.graph_store)):
        sampler = StockSampler(source, [4])
        assert type(sampler) is type(pickle.loads(pickle.dumps(sampler))) is StockSampler


def test_link_loader(paths):
    data, memory = gz.open(paths["ordered"]).data(), homogeneous()
    sampler = gz.sampler.NeighborSampler(data, [4, 3])
    edges = memory.edge_index[:, :90]
    for workers in (0, 2):
        loader = LinkLoader(
            data, sampler, edge_label_index=edges, neg_sampling="binary", batch_size=40,
            num_workers=workers,
        )  # fmt: skip
        found = []
        for batch in loader:
            check(batch, memory)
            found.append(batch.n_id[batch.edge_label_index[:, batch.edge_label == 1]])
        assert torch.equal(torch.cat(found, 1), edges)


@pytest.mark.parametrize("workers", [0, 2])
def test_heterogeneous(paths, workers):
    data, memory = gz.open(paths["heterogeneous"]).data(), heterogeneous()
    sampler = gz.sampler.NeighborSampler(data, [4, 3])
    nodes = NodeLoader(data, sampler, input_nodes="paper", batch_size=64, num_workers=workers)
    links = LinkLoader(
        data, sampler, edge_label_index=(WRITES, memory[WRITES].edge_index), batch_size=64,
        num_workers=workers,
    )  # fmt: skip
    for loader in (nodes, links):
        for batch in loader:
            check_hetero(batch, memory)


def test_changes_are_loaded(paths):
    """Between batches too, and what is no rows of a store."""
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


def test_graphs_in_memory_are_served_as_ever(homo):
    memory, _ = homo
    sampler = gz.sampler.NeighborSampler(memory, [3])
    batch = next(iter(NodeLoader(memory, sampler, batch_size=50)))
    assert torch.equal(batch.x, memory.x[batch.n_id])
    assert torch.equal(batch.edge_attr, memory.edge_attr[batch.e_id])


# Lightning's data modules without its trainer, which test_ecosystem.py has


def epoch(loader: Any) -> Iterator[Any]:
    """Its batches. Then its workers, which are persistent, end, as Lightning's trainer ends them.

    PyG's loaders refer to themselves. The garbage collector would close the workers' queues first,
    and then torch waits five seconds for each of them, in whichever test is running.
    """
    yield from loader
    loader._iterator = None


@pytest.mark.parametrize("kind", ["homogeneous", "ordered"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("own", [True, False])
def test_lightning_node_data(paths, kind, workers, own):
    pytest.importorskip("lightning")
    data, memory = gz.open(paths[kind]).data(), homogeneous()
    given = {"node_sampler": gz.sampler.NeighborSampler(data, [4, 3])}
    module = LightningNodeData(
        data, input_train_nodes=data.train_idx, input_val_nodes=memory.train_mask, batch_size=16,
        num_workers=workers, pin_memory=False,
        eval_loader_kwargs={"num_neighbors": [1], "batch_size": 32},
        **(given if own else {"num_neighbors": [4, 3], "disjoint": False}),
    )  # fmt: skip
    assert isinstance(module.graph_sampler, gz.sampler.NeighborSampler)
    seen = []
    for batch in epoch(module.train_dataloader()):
        check(batch, memory)
        assert len(batch.num_sampled_edges) == 2
        seen.append(batch.n_id[: batch.batch_size])
    assert torch.equal(torch.cat(seen).sort().values, memory.train_idx.sort().values)
    for batch in epoch(module.val_dataloader()):
        check(batch, memory)
        assert len(batch.num_sampled_edges) == 1


def test_lightning_link_data(paths):
    pytest.importorskip("lightning")
    data, memory = gz.open(paths["heterogeneous"]).data(), heterogeneous()
    module = LightningLinkData(
        data, input_train_edges=(WRITES, memory[WRITES].edge_index), neg_sampling="binary",
        num_neighbors=[3, 2], batch_size=100, pin_memory=False, directed=False,
    )  # fmt: skip
    assert module.graph_sampler.subgraph_type.value == "induced"
    for batch in epoch(module.train_dataloader()):
        check_hetero(batch, memory)
