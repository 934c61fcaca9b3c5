"""NeighborLoader as PyG scripts use it."""

from __future__ import annotations

import pickle

import pytest
import torch
import torch_geometric.loader
from same import assert_same
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE
from torch_geometric.utils import trim_to_layer

import pyg_graphzero as gz
from graphs import check_neighborhood, check_rows
from pyg_graphzero.loader import NeighborLoader


def test_batches_are_pyg_data_with_every_field(data, store):
    loader = NeighborLoader(store.data(), [4, 3], input_nodes=data.train_idx, batch_size=16)
    assert isinstance(loader, torch_geometric.loader.NeighborLoader)
    assert isinstance(loader, torch.utils.data.DataLoader)
    batches = list(loader)
    assert len(batches) == len(loader) == 4
    for i, batch in enumerate(batches):
        assert type(batch) is Data
        seeds = data.train_idx[16 * i : 16 * i + 16]
        assert torch.equal(batch.n_id[: batch.batch_size], seeds)
        assert batch.input_id.tolist() == list(range(16 * i, 16 * i + len(seeds)))
        check_rows(batch, data)
        assert batch.num_nodes == batch.n_id.numel()
        check_neighborhood(
            *batch.edge_index, batch.e_id, batch.n_id, batch.n_id, data.edge_index, [4, 3],
            batch.num_sampled_nodes[:-1], batch.num_sampled_edges,
        )  # fmt: skip
        batch.validate()
    dropping = NeighborLoader(store, [4], data.train_idx, batch_size=16, drop_last=True)
    assert [batch.batch_size for batch in dropping] == [16] * 3


def test_shuffle_order_is_stock_pyg_order(store):
    torch.manual_seed(0)
    ours = [b.n_id[: b.batch_size] for b in NeighborLoader(store, [1], batch_size=50, shuffle=True)]
    torch.manual_seed(0)
    stock = list(torch.utils.data.DataLoader(range(300), batch_size=50, shuffle=True))
    assert all(torch.equal(a, b) for a, b in zip(ours, stock, strict=True))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("own_generator", [False, True])
@pytest.mark.parametrize("done", [4, 10])
def test_an_epoch_goes_on_where_it_stopped(store, workers, own_generator, done):

    def make():
        generator = torch.Generator().manual_seed(8) if own_generator else None
        return NeighborLoader(
            store.data(), [5, 3], batch_size=32, shuffle=True, num_workers=workers,
            generator=generator,
        )  # fmt: skip

    loader = make()
    list(loader)  # an epoch before
    iterator = iter(loader)
    for _ in range(done):
        next(iterator)
    state = loader.state_dict()
    assert state["num_batches"] == done
    rest = list(iterator)
    following = list(loader)

    torch.manual_seed(999)
    resumed = make()
    resumed.load_state_dict(state)
    again = list(resumed)
    assert len(again) == len(rest) == 10 - done
    assert_same(again, rest)
    assert_same(list(resumed), following)
    assert resumed.state_dict()["num_batches"] == 10
    fresh = make()
    fresh.load_state_dict(make().state_dict())  # of a loader that has not begun
    with pytest.raises(KeyError, match=r"state: found \['epoch'\], expected \['generator', 'num_b"):
        fresh.load_state_dict({"epoch": 1})
    assert len(list(fresh)) == 10
    with pytest.raises(KeyError, match=r"state: found \['num'\], expected \['generator', 'num_ba"):
        fresh.load_state_dict({"num": 1})


def test_calling_the_loader(data, store):
    loader = NeighborLoader(store.data(), [3], input_nodes=data.train_idx)
    batch = loader([0, 5])
    assert torch.equal(batch.n_id[:2], data.train_idx[[0, 5]])
    assert torch.equal(loader(torch.tensor([7])).input_id, torch.tensor([7]))
    assert len(loader.dataset) == 50


@pytest.mark.parametrize("seeds", ["paper", ("paper", torch.tensor([1])), ["paper", None]])
def test_a_type_in_a_homogeneous_graph(homo, seeds):
    words = "found the type 'paper', and this graph is homogeneous, .* expected None for all nodes"
    with pytest.raises(ValueError, match=words):
        NeighborLoader(homo[1], [2], input_nodes=seeds)
    with pytest.raises(ValueError, match=words):
        gz.loader.ShaDowKHopSampler(homo[0], 1, 2, node_idx=seeds)


def test_stores_of_another_package(homo):
    """PyG's own loaders take them."""
    store = homo[1]

    class Others(type(store.feature_store).__base__):
        _get_tensor = _get_tensor_size = _put_tensor = _remove_tensor = get_all_tensor_attrs = None

    for data in ((Others(), store.graph_store), "graph", 5):
        with pytest.raises(TypeError, match=r"expected a Store, .*; stores of another package"):
            NeighborLoader(data, [2])


def test_bad_input_nodes(data, store, hetero):
    d = store.data()
    for error, graph, seeds, words in (
        (IndexError, d, [0, 300], r"input_nodes\[1\]: found node 300, expected 0 <= node"),
        (IndexError, d, [-1], r"input_nodes\[0\]: found node -1"),
        (ValueError, d, data.train_mask[1:], r"mask of \[299\], expected one of \[300\] nodes"),
        (ValueError, d, torch.tensor([1.5]), r"input_nodes: found torch.float32 of shape \[1\]"),
        (ValueError, d, torch.tensor([[1, 2]]), r"torch.int64 of shape \[1, 2\], expected int"),
        (ValueError, hetero[1], "x", r"found node type 'x', expected one of \['paper'"),
        (ValueError, hetero[1], torch.arange(3), "expected a node type or"),
        (ValueError, hetero[1], ("paper", "x"), "input_nodes: found 'x', expected a node type"),
    ):
        with pytest.raises(error, match=words):
            NeighborLoader(graph, [2], input_nodes=seeds)
    with pytest.raises(ValueError, match="input_id: found 3, expected one for each of 300 seeds"):
        NeighborLoader(d, [2], input_id=torch.arange(3))
    with pytest.raises(TypeError, match="data: found str, expected a Store"):
        NeighborLoader("path", [2])
    assert list(NeighborLoader(d, [2], input_nodes=[])) == []
    assert NeighborLoader(d, [2])([]).num_nodes == 0


def test_transforms_and_custom_attributes(store):
    d = store.data()
    d.extra = torch.arange(300) * 2
    d.names = [f"n{i}" for i in range(300)]
    d.config = "kept"
    del d.y

    def transform(batch):
        batch.seen = True
        return batch

    def keep(out):
        out.metadata = (*out.metadata, "touched")
        return out

    loader = NeighborLoader(
        d, [2], batch_size=8, transform=transform, transform_sampler_output=keep
    )
    batch = next(iter(loader))
    assert batch.seen
    assert torch.equal(batch.extra, batch.n_id * 2)
    assert batch.names == [f"n{i}" for i in batch.n_id.tolist()]
    assert batch.config == "kept"
    assert "y" not in batch


def test_existing_n_id_and_e_id_are_not_overwritten(store):
    d = store.data()
    d.n_id = torch.arange(300) + 1000
    loader = NeighborLoader(d, [2], batch_size=8, input_nodes=torch.arange(8))
    assert torch.equal(next(iter(loader)).n_id[:8], torch.arange(8) + 1000)


def test_changed_features_are_what_is_loaded(data, store):
    d = store.data()
    d.x = d.x * 3
    loader = NeighborLoader(d, [2], batch_size=100)
    batches = iter(loader)
    batch = next(batches)
    assert torch.equal(batch.x, data.x[batch.n_id] * 3)
    d.x, d.w = torch.arange(300.0), torch.arange(3000)  # between batches, too
    batch = next(batches)
    assert torch.equal(batch.x, batch.n_id.float())
    assert torch.equal(batch.w, batch.e_id)
    del d.x
    assert "x" not in next(iter(pickle.loads(pickle.dumps(loader))))
    d.y[:] = 9  # in place, on the mapped file's copy-on-write pages
    assert (next(iter(loader)).y == 9).all()
    assert torch.equal(gz.open(store.path).data().y, data.y)
    assert d.edge_attr.shape == (3000, 3)  # builds it in the order of edge ids
    d.edge_attr[:] = 5
    assert (next(iter(loader)).edge_attr == 5).all()


def test_changed_edges_are_what_is_sampled(data, store):
    d = store.data()
    d.edge_index[1] = (d.edge_index[1] + 1) % 300  # in place, other destinations
    want = torch.stack([data.edge_index[0], (data.edge_index[1] + 1) % 300])
    for batch in NeighborLoader(d, [5], batch_size=100):
        assert torch.equal(batch.n_id[batch.edge_index], want[:, batch.e_id])
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])


def test_inference_and_trim_to_layer(data, store):
    model = GraphSAGE(8, 16, num_layers=2, out_channels=5).eval()
    with torch.no_grad():
        want = model(data.x, data.edge_index)
        loader = NeighborLoader(store.data(), [-1], batch_size=64, input_nodes=None)
        assert torch.allclose(model.inference(loader), want, atol=1e-5)
        batch = next(iter(NeighborLoader(store.data(), [-1, -1], batch_size=32)))
        trimmed = model(
            batch.x,
            batch.edge_index,
            num_sampled_nodes_per_hop=batch.num_sampled_nodes,
            num_sampled_edges_per_hop=batch.num_sampled_edges,
        )
    assert torch.allclose(trimmed[:32], want[:32], atol=1e-5)
    x, edge_index, _ = trim_to_layer(
        1, batch.num_sampled_nodes, batch.num_sampled_edges, batch.x, batch.edge_index
    )
    assert int(edge_index.max()) < x.size(0)
