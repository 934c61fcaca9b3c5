"""The older NeighborSampler: bipartite graphs by hop, against their definition."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace

import pytest
import torch
import torch_geometric.loader
import torch_geometric.transforms as T
from convert_support import converted, stored
from paging import paged
from scipy.stats import chisquare
from torch_geometric.data import Data, HeteroData

import pyg_graphzero as gz
from pyg_graphzero.loader import NeighborSampler

SOURCES = {
    "store": lambda data, store: store,
    "data on disk": lambda data, store: store.data(),
    "memory": lambda data, store: data,
    "edge_index": lambda data, store: data.edge_index,
}


def check(batch, edge_index, seeds, sizes):
    """Every node known in a hop has as many distinct in-edges as there are, or as were asked."""
    batch_size, n_id, adjs = batch
    assert batch_size == len(seeds)
    assert torch.equal(n_id[:batch_size], seeds)
    assert n_id.unique().numel() == n_id.numel()
    degree = torch.bincount(edge_index[1], minlength=300)
    adjs = adjs if isinstance(adjs, list) else [adjs]
    known = batch_size
    for (edges, e_id, size), k in zip(adjs[::-1], sizes, strict=True):
        num_src, num_dst = size
        assert num_dst == known
        assert torch.equal(n_id[edges], edge_index[:, e_id])
        assert e_id.unique().numel() == e_id.numel()
        counts = torch.bincount(edges[1], minlength=num_dst)
        available = degree[n_id[:num_dst]]
        assert torch.equal(counts, available if k < 0 else available.clamp(max=k))
        assert set(range(num_dst, num_src)) <= set(edges[0].tolist())  # all others were drawn
        known = num_src
    assert known == n_id.numel()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("source", SOURCES)
def test_batches_are_what_the_definition_says(data, store, source, workers):
    sizes = [4, -1, 2]
    loader = NeighborSampler(
        SOURCES[source](data, store), sizes=sizes, node_idx=data.train_mask, num_nodes=300,
        batch_size=16, num_workers=workers,
    )  # fmt: skip
    assert isinstance(loader, torch_geometric.loader.NeighborSampler)
    assert repr(loader) == "NeighborSampler(sizes=[4, -1, 2])"
    seeds = data.train_mask.nonzero().view(-1).split(16)
    batches = list(loader)
    assert len(batches) == len(loader) == len(seeds)
    for batch, nodes in zip(batches, seeds, strict=True):
        check(batch, data.edge_index, nodes, sizes)


def test_memory_disk_and_read_neighbours_are_the_same(data, store):
    epochs = []
    for source, is_read in ((data, False), (store, False), (gz.open(store.path), True)):
        loader = NeighborSampler(source, [3, 2], batch_size=30, shuffle=True)
        torch.manual_seed(4)
        with paged(is_read):
            epochs.append(list(pickle.loads(pickle.dumps(loader)) if source is data else loader))
    for memory, disk, read in zip(*epochs, strict=True):
        for other in (disk, read):
            assert torch.equal(memory[1], other[1])
            for one, two in zip(memory[2], other[2], strict=True):
                assert torch.equal(one.edge_index, two.edge_index)
                assert one.size == two.size
                assert torch.equal(one.e_id, two.e_id)


def test_targets_draw_anew_in_each_hop_and_every_neighbour_alike():
    star = torch.stack([torch.arange(1, 7), torch.zeros(6, dtype=torch.int64)])
    loader = NeighborSampler(star, [1, 1], node_idx=torch.zeros(3000, dtype=torch.int64))
    pairs = torch.zeros(6, 6)
    for _, n_id, (second, first) in loader:
        drawn = [int(n_id[adj.edge_index[0, 0]]) - 1 for adj in (first, second)]
        pairs[drawn[0], drawn[1]] += 1
    assert chisquare(pairs.flatten().tolist()).pvalue > 1e-4


class SparseTensor(SimpleNamespace):
    """The members of torch_sparse's class that are used here."""

    def __init__(self, row, col, value, sparse_sizes):
        super().__init__(row=row, col=col, sizes=sparse_sizes)
        self.storage = SimpleNamespace(value=lambda: value)

    def coo(self):
        return self.row, self.col, self.storage.value()

    def size(self, dim):
        return self.sizes[dim]


def test_adj_t(data):
    row, col = data.edge_index
    weight = torch.rand(row.numel())
    adj_t = SparseTensor(col, row, weight, (300, 300))
    _, n_id, adjs = next(iter(NeighborSampler(adj_t, [3, 2], batch_size=20)))
    for adj, e_id, size in adjs:
        assert type(adj) is SparseTensor
        assert adj.sizes == size[::-1]
        assert torch.equal(n_id[torch.stack([adj.col, adj.row])], data.edge_index[:, e_id])
        assert torch.equal(adj.storage.value(), weight[e_id])
    with torch.sparse.check_sparse_tensor_invariants():
        sparse = torch.sparse_coo_tensor(torch.stack([col, row]), weight, (300, 300)).coalesce()
        edges = sparse.indices().flip(0)
        check(next(iter(NeighborSampler(sparse, [2], batch_size=9))), edges, torch.arange(9), [2])


def test_one_size_transform_and_no_e_id(data, store):
    loader = NeighborSampler(store, [2], return_e_id=False, batch_size=10)
    _, _, adj = next(iter(loader))
    assert adj.e_id is None
    assert adj.to("cpu").size == adj.size
    check(NeighborSampler(store, [2]).sample([7, 3]), data.edge_index, torch.tensor([7, 3]), [2])
    loader = NeighborSampler(store, [2], transform=lambda *batch: batch[0], batch_size=100)
    assert list(loader) == [100, 100, 100]


def test_bad_input(store, hetero):
    with pytest.raises(TypeError, match="found a heterogeneous graph, expected a homogeneous one"):
        NeighborSampler(hetero[1], [2])
    with pytest.raises(TypeError, match="edge_index: found str, expected a store"):
        NeighborSampler("store", [2])
    with pytest.raises(ValueError, match=r"edge_index: found torch.int64 of shape \[3\]"):
        NeighborSampler(torch.arange(3), [2])
    with pytest.raises(ValueError, match="num_nodes: found 7, expected 300"):
        NeighborSampler(store, [2], num_nodes=7)
    with pytest.raises(IndexError, match=r"input_nodes\[0\]: found node 300"):
        NeighborSampler(store, [2], node_idx=torch.tensor([300]))


def test_edges_without_numbers(data, tmp_path):
    bare = Data(x=data.x, edge_index=data.edge_index)
    gz.convert(bare, tmp_path / "bare", edge_ids=False, progress=False)
    with pytest.raises(gz.errors.MissingEdgeIdsError, match="return_e_id=False"):
        NeighborSampler(gz.open(tmp_path / "bare"), [2])
    loader = NeighborSampler(gz.open(tmp_path / "bare"), [2], return_e_id=False, batch_size=50)
    pairs = {tuple(pair) for pair in data.edge_index.t().tolist()}
    for _, n_id, adj in loader:
        assert {tuple(pair) for pair in n_id[adj.edge_index].t().tolist()} <= pairs


def weighted(tmp_path):
    """Edges of which no two are the same, with weights, in memory and as a store."""
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(100, (2, 800), generator=generator).unique(dim=1)
    edge_index = edge_index[:, torch.randperm(edge_index.size(1), generator=generator)]
    data = Data(x=torch.rand(100, 3), edge_index=edge_index)
    data.edge_weight = torch.rand(edge_index.size(1))
    return data, stored(data, tmp_path / "store")


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("on_disk", [False, True])
def test_to_sparse_tensor_without_torch_sparse(tmp_path, on_disk):
    """PyG makes torch's own then, which its loaders do not take."""
    data, store = weighted(tmp_path)
    weights = dict(zip(map(tuple, data.edge_index.t().tolist()), data.edge_weight, strict=True))
    transform = T.ToSparseTensor(layout=torch.sparse_csr)
    made = transform(store.data() if on_disk else copy.copy(data))
    assert "edge_index" not in made
    for options in ({}, {"edge_ids": False}):
        for batch in gz.loader.NeighborLoader(made, [3, 2], batch_size=30, **options):
            assert torch.equal(batch.x, data.x[batch.n_id])
            assert "edge_index" not in batch
            assert batch.adj_t.layout == torch.sparse_csr
            assert batch.adj_t.size() == (batch.num_nodes, batch.num_nodes)
            assert batch.num_edges == sum(batch.num_sampled_edges)
            coo = batch.adj_t.to_sparse_coo().coalesce()
            ends = batch.n_id[coo.indices().flip(0)].t().tolist()
            assert coo.values().tolist() == [weights[tuple(each)] for each in ends]


@pytest.mark.filterwarnings("ignore:Sparse")
def test_to_sparse_tensor_of_types(tmp_path):
    data = HeteroData()
    data["a"].x, data["b"].x = torch.rand(20, 2), torch.rand(30, 2)
    there, back = ("a", "to", "b"), ("b", "back", "a")
    data[there].edge_index = torch.stack([torch.arange(90) % 20, torch.arange(90) % 30])[:, :60]
    data[back].edge_index = data[there].edge_index.flip(0)
    data[there].edge_weight = torch.rand(60)
    made = T.ToSparseTensor(layout=torch.sparse_csr)(converted(data, tmp_path / "store"))
    whole = T.ToSparseTensor(layout=torch.sparse_csr)(data)
    (batch,) = gz.loader.NeighborLoader(made, [-1, -1], input_nodes="a", batch_size=20)
    for name in (there, back):
        rows, columns = batch[name[2]].n_id, batch[name[0]].n_id
        want = whole[name].adj_t.to_dense()[rows][:, columns]
        assert batch[name].adj_t.size() == (rows.numel(), columns.numel())
        assert torch.equal(batch[name].adj_t.to_dense(), want)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_to_sparse_tensor_of_batches_builds_nothing(tmp_path):
    data, store = weighted(tmp_path)
    source = store.data()
    loader = gz.loader.NeighborLoader(
        source, [-1], batch_size=100, transform=T.ToSparseTensor(layout=torch.sparse_csr)
    )
    (batch,) = loader
    want = T.ToSparseTensor(layout=torch.sparse_csr)(data).adj_t
    assert torch.equal(batch.adj_t.to_dense(), want.to_dense())
    assert not source._store._mapping.raw("edge_index").is_built


def test_batches_with_torch_sparse_are_pygs(tmp_path):
    pytest.importorskip("torch_sparse")
    data, store = weighted(tmp_path)
    options = {"num_neighbors": [-1, -1], "batch_size": 7}
    stock = torch_geometric.loader.NeighborLoader(T.ToSparseTensor()(copy.copy(data)), **options)
    ours = gz.loader.NeighborLoader(T.ToSparseTensor()(store.data()), **options)
    for one, other in zip(stock, ours, strict=True):
        assert type(one.adj_t) is type(other.adj_t)
        found = [batch.adj_t.to_dense()[:, batch.n_id.argsort()] for batch in (one, other)]
        found = [
            rows[batch.n_id.argsort()] for rows, batch in zip(found, (one, other), strict=True)
        ]
        assert torch.equal(one.n_id.sort()[0], other.n_id.sort()[0])
        assert torch.equal(*found)
