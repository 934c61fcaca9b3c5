"""Batches and models on a GPU; where there is none, on the CPU, so that the tests stay whole."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.data import HeteroData
from torch_geometric.loader import PrefetchLoader

import pyg_graphzero as gz
from graphs import heterogeneous, write_store
from pyg_graphzero.loader import HGTLoader, LinkNeighborLoader, NeighborLoader

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
needs_gpu = pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a GPU")

MODELS = {
    "sage": lambda: pyg.GraphSAGE(8, 16, 2, 5),
    "gcn": lambda: pyg.GCN(8, 16, 2, 5),
    "gat": lambda: pyg.GAT(8, 16, 2, 5, heads=2),
    "gatv2": lambda: pyg.GAT(8, 16, 2, 5, heads=2, v2=True),
    "gin": lambda: pyg.GIN(8, 16, 2, 5),
    "pna": lambda: pyg.PNA(
        8, 16, 2, 5, aggregators=["mean", "max"], scalers=["identity"], deg=torch.ones(20)
    ),
}


def assert_close(found, expected) -> None:
    torch.testing.assert_close(found.cpu(), expected.cpu(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_delivered_there(homo, workers):
    def batches(device):
        torch.manual_seed(2)
        return list(
            NeighborLoader(homo[1], [5, 3], batch_size=50, num_workers=workers, device=device)
        )

    for found, want in zip(batches(DEVICE), batches(None), strict=True):
        for name in ("x", "y", "edge_index", "n_id", "e_id"):
            assert found[name].device.type == DEVICE.type
            assert torch.equal(found[name].cpu(), want[name])


def test_every_loader_delivers(homo, hetero):
    for loader in (
        LinkNeighborLoader(homo[1], [2], batch_size=100, device=DEVICE),
        HGTLoader(hetero[1], [2], "paper", batch_size=100, device=DEVICE),
    ):
        for store in next(iter(loader)).edge_stores:
            assert store.edge_index.device.type == DEVICE.type


@needs_gpu
@pytest.mark.parametrize("workers", [0, 2])
def test_pinned_batches(homo, workers):
    data, store = homo
    loader = NeighborLoader(store.data(), [3], batch_size=100, pin_memory=True, num_workers=workers)
    for batch in loader:
        assert batch.x.is_pinned()
    for batch in PrefetchLoader(loader):
        assert batch.x.is_cuda
        assert torch.equal(batch.x.cpu(), data.x[batch.n_id.cpu()])


def results(model, *inputs):
    """The first 50 rows, which are the seeds', and the gradients of a loss of them."""
    out = model(*inputs)
    out = (out["paper"] if isinstance(out, dict) else out)[:50]
    out.square().sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return out.detach(), gradients


def assert_same_results(model, *inputs):
    model = model.to(DEVICE)
    with torch.no_grad():
        model(*inputs)  # sizes lazy layers
    expected, gradients = results(copy.deepcopy(model), *inputs)
    found, own = results(gz.nn.accelerate(model), *inputs)
    assert_close(found, expected)
    assert own.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert_close(own[name], gradient)


@pytest.mark.parametrize("name", MODELS)
def test_accelerated_models_compute_what_plain_ones_do(homo, name):
    batch = next(iter(NeighborLoader(homo[1], [5, 3], batch_size=50, device=DEVICE)))
    assert_same_results(MODELS[name](), batch.x, batch.edge_index)


def typed() -> HeteroData:
    data = heterogeneous()
    for store in data.node_stores:
        store.x = store.x.float() if "x" in store else torch.ones(store.num_nodes, 5)
    del data["venue", "hosts", "author"]
    return data


@pytest.mark.parametrize("kind", ["sage", "hgt"])
def test_accelerated_models_of_several_types(kind):
    data = typed()
    batch = next(iter(NeighborLoader(data, [4, 4], ("paper", None), batch_size=50, device=DEVICE)))
    if kind == "sage":
        model = pyg.to_hetero(pyg.GraphSAGE((-1, -1), 16, 2, 5), data.metadata())
    else:
        widths = {kind: x.size(1) for kind, x in data.x_dict.items()}
        model = pyg.HGTConv(widths, 16, data.metadata(), heads=2)
    assert_same_results(model, batch.x_dict, batch.edge_index_dict)


@pytest.mark.parametrize("name", MODELS)
def test_inference_layer_by_layer(homo, name):
    data, store = homo
    model = MODELS[name]().eval()
    with torch.no_grad():
        expected = model(data.x, data.edge_index)
    gz.inference.layerwise(model.to(DEVICE), store, progress=False)
    assert_close(gz.open(store.path).data().out, expected)


def test_inference_of_several_types(tmp_path):
    data = typed()
    path = write_store(data, tmp_path / "typed")
    model = pyg.to_hetero(pyg.GraphSAGE((-1, -1), 16, 2, 5), data.metadata()).eval()
    with torch.no_grad():
        expected = model(data.x_dict, data.edge_index_dict)
    gz.inference.layerwise(model.to(DEVICE), path, progress=False)
    found = gz.open(path).data()
    for kind, rows in expected.items():
        assert_close(found[kind].out, rows)
