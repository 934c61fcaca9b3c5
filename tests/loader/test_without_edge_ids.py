"""Stores converted with ``edge_ids=False``: what works as ever, and what is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import graphzero
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NodeLoader as StockLoader

import graphs
import pyg_graphzero as gz

EDGE_ATTRS = ("edge_attr",)


def both(path: Path, data: Data | HeteroData, **options: Any) -> tuple[gz.Store, gz.Store]:
    """The store of a graph with edge ids, and that without."""
    kept, left_out = path / "kept", path / "left-out"
    given = {"skip": EDGE_ATTRS, "progress": False, **options}
    gz.convert(data, kept, **given)
    gz.convert(data, left_out, edge_ids=False, **given)
    return gz.open(kept), gz.open(left_out)


def batches(loader: type, store: gz.Store, *args: Any, **options: Any) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    return list(loader(store.data(), *args, generator=generator, shuffle=True, **options))


def same_but_ids(kept: Any, left_out: Any) -> None:
    """All that a batch has is that of the other, which has ``e_id`` besides."""
    for one, other in zip(kept.stores, left_out.stores, strict=True):
        assert set(one.keys()) - {"e_id"} == set(other.keys())
        for key, value in other.items():
            is_same = torch.equal(value, one[key]) if torch.is_tensor(value) else value == one[key]
            assert is_same, key


def refusal(do: Callable[[], object]) -> str:
    with pytest.raises(gz.MissingEdgeIdsError) as caught:
        do()
    assert "converted with edge_ids=False (--no-edge-ids)" in str(caught.value)
    return str(caught.value).partition(": ")[2].partition(": found")[0]


@pytest.fixture
def store(tmp_path: Path) -> gz.Store:
    return both(tmp_path, graphs.homogeneous())[1]


@pytest.mark.parametrize(
    "options",
    [{}, {"undirected": True, "coalesce": "first"}, {"self_loops": "add", "undirected": True}],
)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_are_the_same(tmp_path: Path, options: dict[str, Any], num_workers: int) -> None:
    stores = both(tmp_path, graphs.homogeneous(), **options)
    topologies = [(store.path / "edge" / "topology.gl").read_bytes() for store in stores]
    assert topologies[0] == topologies[1]
    assert not (stores[1].path / "edge" / "edge_id.gd").exists()
    for loader, given in (
        (gz.loader.NeighborLoader, {"num_neighbors": [4, 3]}),
        (gz.loader.ShaDowKHopSampler, {"depth": 2, "num_neighbors": 3}),
    ):
        found = [
            batches(loader, store, batch_size=64, num_workers=num_workers, **given)
            for store in stores
        ]
        for kept, left_out in zip(*found, strict=True):
            same_but_ids(kept, left_out)


def test_batches_of_types_are_the_same(tmp_path: Path) -> None:
    stores = both(tmp_path, graphs.heterogeneous())
    for loader in (gz.loader.NeighborLoader, gz.loader.HGTLoader):
        found = [
            batches(loader, store, [8, 4], input_nodes="paper", batch_size=64) for store in stores
        ]
        for kept, left_out in zip(*found, strict=True):
            same_but_ids(kept, left_out)


def test_edges_are_those_of_the_input(tmp_path: Path) -> None:
    kept, left_out = (store.data().edge_index for store in both(tmp_path, graphs.homogeneous()))
    assert sorted(kept.T.tolist()) == sorted(left_out.T.tolist())
    assert bool((left_out[1].diff() >= 0).all())  # by destination


def test_batches_have_no_e_id(store: gz.Store) -> None:
    batch = next(iter(gz.loader.NeighborLoader(store.data(), [3], batch_size=5)))
    with pytest.raises(AttributeError, match="no attribute 'e_id'"):
        _ = batch.e_id
    batch.e_id = torch.arange(3)
    assert batch.e_id.tolist() == [0, 1, 2]
    assert repr(store).endswith("num_edges=3000, edge_ids=False)")


def test_uses_of_edge_ids_are_refused_by_name(store: gz.Store) -> None:
    data = store.data()
    data.weight = torch.ones(3000)
    loader = gz.loader.NeighborLoader
    assert refusal(lambda: next(iter(loader(data, [3])))) == "data.weight"
    assert refusal(lambda: loader(data, [3], weight_attr="weight")) == "weight"
    links = gz.loader.LinkNeighborLoader
    labels = {"edge_label": torch.ones(3000)}
    assert refusal(lambda: links(store.data(), [3], **labels)) == "edge_label of all edges"
    sampler = gz.sampler.NeighborSampler(store.data(), [3])
    permutation = sampler.edge_permutation
    assert refusal(lambda: permutation[torch.arange(3)]) == "edge_permutation"

    def write() -> None:
        with gz.open(store.path, mode="r+") as writable:
            name = {"group_name": (None, None), "attr_name": "weight"}
            writable.feature_store.put_tensor(torch.ones(3000), **name, index=None)

    assert refusal(write) == "edge attribute 'weight'"


def test_links_are_numbered_by_destination(store: gz.Store) -> None:
    loader = gz.loader.LinkNeighborLoader(store.data(), [2], batch_size=100)
    edges = store.data().edge_index
    for batch in loader:
        ends = batch.n_id[batch.edge_label_index]
        assert torch.equal(ends, edges[:, batch.input_id])
        assert "e_id" not in batch


def test_stock_loaders(store: gz.Store) -> None:
    data, pair = store.data(), (store.feature_store, store.graph_store)
    loader = StockLoader(pair, gz.sampler.NeighborSampler(pair, [3]), torch.arange(8), batch_size=8)
    batch = next(iter(loader))
    assert batch.edge_index.numel() > 0
    assert "e_id" not in batch
    row, colptr, perm = store.graph_store.csc()
    assert perm is None
    edges = store.graph_store.get_edge_index(edge_type=None, layout="coo")
    assert torch.equal(torch.stack(list(edges)), data.edge_index)
    assert torch.equal(row, data.edge_index[0])
    assert colptr[-1] == 3000


def test_conversion_says_so(tmp_path: Path) -> None:
    np.save(tmp_path / "e.npy", graphs.random_edges(50, 50, 400).numpy())
    done = graphzero("convert", tmp_path / "e.npy", "-o", tmp_path / "s", "--no-edge-ids")
    assert "self-loops, no edge ids" in done.output
    assert "edges: 400 edges, no edge ids, topology" in graphzero("info", tmp_path / "s").output
    found = json.loads(graphzero("info", tmp_path / "s", "--json").output)
    assert found["edge_types"][0]["edge_ids"] is False


def test_edge_attributes_need_ids(tmp_path: Path) -> None:
    attrs = {"weight": np.ones(400), "time": np.arange(400)}
    with pytest.raises(
        ValueError, match="edge_ids=False: found edges with the attributes weight, "
    ):
        gz.convert(
            graphs.random_edges(50, 50, 400), tmp_path / "s", edge_attrs=attrs, edge_ids=False
        )
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="edge_ids=1: expected one of True, False"):
        gz.convert(graphs.random_edges(50, 50, 400), tmp_path / "s", edge_ids=1)  # type: ignore[arg-type]
