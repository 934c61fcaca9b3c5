"""Against stock PyG where it can do the same: all neighbours, and induced subgraphs."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.loader
import torch_geometric.typing

import pyg_graphzero as gz

WITH_PYG_LIB = torch_geometric.typing.WITH_PYG_LIB
WITH_TORCH_SPARSE = torch_geometric.typing.WITH_TORCH_SPARSE
if WITH_PYG_LIB or WITH_TORCH_SPARSE:
    pytestmark = pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without a 'pyg-lib'")
else:
    pytestmark = pytest.mark.skip("stock PyG needs pyg-lib or torch-sparse to sample")


def edges_of(batch, name=None):
    store = batch if name is None else batch[name]
    src = batch.n_id if name is None else batch[name[0]].n_id
    dst = batch.n_id if name is None else batch[name[2]].n_id
    row, col = store.edge_index
    return sorted(zip(src[row].tolist(), dst[col].tolist(), store.e_id.tolist(), strict=True))


@pytest.mark.parametrize("kind", ["directional", "induced"])
def test_all_neighbors(homo, kind):
    if kind == "induced" and not WITH_TORCH_SPARSE:
        pytest.skip("stock PyG needs torch-sparse for induced subgraphs")
    data, store = homo
    arguments = {"num_neighbors": [-1, -1], "batch_size": 20, "subgraph_type": kind}
    ours = gz.loader.NeighborLoader(store, **arguments)
    stock = torch_geometric.loader.NeighborLoader(data, **arguments)
    for a, b in zip(ours, stock, strict=True):
        assert sorted(a.n_id.tolist()) == sorted(b.n_id.tolist())
        assert torch.equal(a.n_id[:20], b.n_id[:20])
        assert edges_of(a) == edges_of(b)
        # Which torch-sparse does not count.
        counts = {"num_sampled_nodes", "num_sampled_edges"}
        uncounted = set() if WITH_PYG_LIB and kind == "directional" else counts
        assert set(a.keys()) - uncounted == set(b.keys())


def test_all_neighbors_heterogeneous(hetero):
    data, store = hetero
    arguments = {"num_neighbors": [-1, -1], "batch_size": 20, "input_nodes": "paper"}
    ours = gz.loader.NeighborLoader(store, **arguments)
    stock = torch_geometric.loader.NeighborLoader(data, **arguments)
    for a, b in zip(ours, stock, strict=True):
        for name in data.node_types:
            assert sorted(a[name].n_id.tolist()) == sorted(b[name].n_id.tolist())
        for name in data.edge_types:
            assert edges_of(a, name) == edges_of(b, name)


def test_links(homo):
    data, store = homo
    arguments = {
        "num_neighbors": [-1],
        "batch_size": 30,
        "edge_label_index": data.edge_index[:, :90],
        "edge_label": torch.arange(90),
    }
    ours = gz.loader.LinkNeighborLoader(store, **arguments)
    stock = torch_geometric.loader.LinkNeighborLoader(data, **arguments)
    for a, b in zip(ours, stock, strict=True):
        assert edges_of(a) == edges_of(b)
        assert torch.equal(a.n_id[a.edge_label_index], b.n_id[b.edge_label_index])
        assert torch.equal(a.edge_label, b.edge_label)
