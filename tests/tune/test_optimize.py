"""An optimized store gives what the store it was made of gives, bit by bit; only its rows moved."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous, write_store
from pyg_graphzero.loader import (
    HGTLoader,
    LinkNeighborLoader,
    NeighborLoader,
    ShaDowKHopSampler,
)
from pyg_graphzero.memory.ranking import count_accesses
from pyg_graphzero.pyg.data import contents_of
from pyg_graphzero.sampling.neighbor import NeighborSampler

WRITES = ("author", "writes", "paper")


def full_homogeneous() -> Data:
    data = homogeneous()
    generator = torch.Generator().manual_seed(9)
    data.time = torch.randint(0, 50, (300,), generator=generator)
    data.edge_time = torch.randint(0, 50, (3000,), generator=generator)
    data.weight = torch.rand(3000, generator=generator)
    data.wide = torch.randn(300, 125, generator=generator)  # rows are padded
    return data


def full_heterogeneous() -> HeteroData:
    data = heterogeneous()
    generator = torch.Generator().manual_seed(9)
    for name in data.node_types:
        count = data[name].num_nodes
        data[name].time = torch.randint(0, 50, (count,), generator=generator)
    for name in data.edge_types:
        data[name].weight = torch.rand(data[name].num_edges, generator=generator)
    data["paper"].train_idx = torch.arange(0, 200, 3)
    return data


@pytest.fixture(scope="module")
def homo_pair(tmp_path_factory) -> tuple[gz.Store, gz.Store]:
    folder = tmp_path_factory.mktemp("homo")
    path = write_store(full_homogeneous(), folder / "old")
    gz.optimize(path, folder / "new", seeds="train_idx", num_neighbors=[5, 3], batch_size=16)
    return gz.open(path), gz.open(folder / "new")


@pytest.fixture(scope="module")
def hetero_pair(tmp_path_factory) -> tuple[gz.Store, gz.Store]:
    folder = tmp_path_factory.mktemp("hetero")
    path = write_store(full_heterogeneous(), folder / "old")
    gz.optimize(path, folder / "new", seeds="train_idx", num_neighbors=[3, 2], batch_size=16)
    return gz.open(path), gz.open(folder / "new")


def check_same(a, b, where: str = "") -> None:
    """Equal through and through: types, dtypes, bits."""
    assert type(a) is type(b) or isinstance(a, torch.Tensor), where
    if isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), where
        assert torch.equal(a, b), where
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            check_same(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for i, (left, right) in enumerate(zip(a, b, strict=True)):
            check_same(left, right, f"{where}[{i}]")
    else:
        assert a == b, where


def check_epochs(pair, make, num_epochs: int = 1) -> None:
    """``make(data, num_workers=…)`` gives the same batches over both stores."""
    for workers in (0, 2):
        epochs = []
        for store in pair:
            torch.manual_seed(5)
            loader = make(store.data(), num_workers=workers)
            epochs.append([b.to_dict() for _ in range(num_epochs) for b in loader])
        assert len(epochs[0]) > 0
        check_same(*epochs)


def test_rows_moved_and_nodes_did_not(homo_pair):
    old, new = homo_pair
    order, rank = (new.contents.view(f"node/{name}.gd") for name in ("order", "rank"))
    assert order.dtype == rank.dtype == torch.int32
    assert not torch.equal(order, torch.arange(300, dtype=torch.int32))
    assert torch.equal(order[rank.long()], torch.arange(300, dtype=torch.int32))
    stored = new.contents.view("node/x.gd")
    assert torch.equal(stored, old.data().x[order.long()])
    assert torch.equal(new.data().x, old.data().x)
    # In every neighbourhood edges are as they were.
    (indptr, indices), (old_indptr, old_indices) = (s.contents.csc(None) for s in (new, old))
    for row in range(300):
        node = int(order[row])
        mine = order[indices[indptr[row] : indptr[row + 1]].long()]
        assert mine.tolist() == old_indices[old_indptr[node] : old_indptr[node + 1]].tolist()


def test_what_is_used_most_comes_first(homo_pair):
    old, new = homo_pair
    loader = gz.loader.NeighborLoader(
        new.data(), [5, 3], input_nodes=old.data().train_idx, batch_size=16
    )
    counts = count_accesses(loader, epochs=40, seed=1).counts[None]
    used = int((counts > 0).sum())
    assert counts[used + 20 :].sum() < 0.02 * counts.sum()  # other draws, so not none at all
    best = counts.sort(descending=True).values
    assert counts[:60].sum() > 0.9 * best[:60].sum()
    assert counts[:60].sum() > 1.5 * counts[120:180].sum()
    assert new.info()["node_types"][0]["is_ordered"]


HOMOGENEOUS = {
    "uniform": {},
    "replace": {"replace": True},
    "all": {"num_neighbors": [-1, 2]},
    "weighted": {"weight_attr": "weight"},
    "temporal": {"time_attr": "time"},
    "temporal last": {"time_attr": "time", "temporal_strategy": "last"},
    "edge times": {"time_attr": "edge_time", "input_time": torch.arange(300) % 60},
    "weighted times": {"time_attr": "time", "weight_attr": "weight"},
    "disjoint": {"disjoint": True},
    "induced": {"subgraph_type": "induced"},
    "bidirectional": {"subgraph_type": "bidirectional"},
}


@pytest.mark.parametrize("mode", HOMOGENEOUS)
def test_batches_of_seed_nodes(homo_pair, mode):
    options = {"num_neighbors": [5, 3], "batch_size": 40} | HOMOGENEOUS[mode]
    check_epochs(homo_pair, lambda data, **k: NeighborLoader(data, **options, **k, shuffle=True), 2)


@pytest.mark.parametrize("seeds", ["index", "mask", "list"])
def test_seeds_of_any_kind(homo_pair, seeds):
    def make(data, **kwargs):
        nodes = {"index": data.train_idx, "mask": data.train_mask, "list": [7, 0, 299, 7]}[seeds]
        return NeighborLoader(data, [5, 3], input_nodes=nodes, batch_size=7, **kwargs)

    check_epochs(homo_pair, make)


def test_backward(homo_pair):
    def make(data, **kwargs):
        sampler = NeighborSampler(data, [4, 3], sample_direction="backward")
        return NeighborLoader(data, [4, 3], neighbor_sampler=sampler, batch_size=64, **kwargs)

    check_epochs(homo_pair, make)


def test_shadow(homo_pair):
    check_epochs(
        homo_pair, lambda data, **k: ShaDowKHopSampler(data, 2, 3, batch_size=32, shuffle=True, **k)
    )


HETEROGENEOUS = {
    "uniform": {},
    "replace": {"replace": True},
    "weighted": {"weight_attr": "weight"},
    "temporal": {"time_attr": "time"},
    "disjoint": {"disjoint": True},
    "induced": {"subgraph_type": "induced"},
}


@pytest.mark.parametrize("mode", HETEROGENEOUS)
@pytest.mark.parametrize("node_type", ["paper", "author"])
def test_batches_of_types(hetero_pair, mode, node_type):
    def make(data, **kwargs):
        options = HETEROGENEOUS[mode] | kwargs
        return NeighborLoader(
            data, [3, 2], input_nodes=node_type, batch_size=16, shuffle=True, **options
        )

    check_epochs(hetero_pair, make)


def test_hgt(hetero_pair):
    check_epochs(
        hetero_pair,
        lambda data, **k: HGTLoader(data, [16, 8], "paper", batch_size=16, shuffle=True, **k),
    )


LINKS = {
    "all edges": {},
    "shuffled": {"shuffle": True},
    "binary": {"neg_sampling": NegativeSampling("binary", 1.5), "shuffle": True},
    "triplet": {"neg_sampling": NegativeSampling("triplet", 2), "shuffle": True},
    "no edges": {"neg_sampling": "binary", "exclude_edges": True, "shuffle": True},
    "disjoint": {"disjoint": True},
}


@pytest.mark.parametrize("mode", LINKS)
@pytest.mark.parametrize("given", [False, True])
def test_links(homo_pair, mode, given):
    def make(data, **kwargs):
        edges = homogeneous().edge_index[:, ::7] if given else None
        options = {"batch_size": 256} | LINKS[mode] | kwargs
        return LinkNeighborLoader(data, [3, 2], edge_label_index=edges, **options)

    check_epochs(homo_pair, make)


@pytest.mark.parametrize("level", ["time", "edge_time"])
def test_links_with_times(homo_pair, level):
    def make(data, **kwargs):
        times = torch.arange(3000) % 70
        options = {"time_attr": level, "edge_label_time": times, "batch_size": 256} | kwargs
        negatives = "binary" if level == "time" else None
        return LinkNeighborLoader(data, [3, 2], neg_sampling=negatives, **options)

    check_epochs(homo_pair, make)


@pytest.mark.parametrize("mode", LINKS)
def test_links_of_a_type(hetero_pair, mode):
    def make(data, **kwargs):
        options = {"batch_size": 64} | LINKS[mode] | kwargs
        return LinkNeighborLoader(data, [3, 2], edge_label_index=WRITES, **options)

    check_epochs(hetero_pair, make)


def test_attributes_in_memory_are_in_the_users_order(homo_pair, hetero_pair):
    def fresh(data, **kwargs):
        data.x = torch.arange(300).view(-1, 1)
        data.names = [f"node {i}" for i in range(300)]
        data.n_id = torch.arange(300)
        _ = data.y  # built by reading it
        return NeighborLoader(data, [5, 3], batch_size=50, **kwargs)

    check_epochs(homo_pair, fresh)

    def changed(data, **kwargs):
        data["paper"].x = torch.arange(200).view(-1, 1)
        data["paper", "cites", "paper"].edge_index = torch.arange(200).expand(2, -1).contiguous()
        return NeighborLoader(data, [3, 2], input_nodes="paper", batch_size=16, **kwargs)

    check_epochs(hetero_pair, changed)


def test_edges_in_memory_beside_rows_on_disk(homo_pair):
    def make(data, **kwargs):
        data.edge_index = data.edge_index.flip(0)
        return NeighborLoader(data, [5, 3], batch_size=50, **kwargs)

    check_epochs(homo_pair, make)


def test_a_sampler_over_another_graph(homo_pair):
    graph = homogeneous()

    def make(data, **kwargs):
        return NeighborLoader(
            data, [5, 3], neighbor_sampler=NeighborSampler(graph, [5, 3]), batch_size=50, **kwargs
        )

    check_epochs(homo_pair, make)

    def crossed(data, **kwargs):  # features of one store, topology of the other
        other = homo_pair[contents_of(data) is homo_pair[0].contents].data()
        return NeighborLoader(
            data, [5, 3], neighbor_sampler=NeighborSampler(other, [5, 3]), batch_size=50, **kwargs
        )

    check_epochs(homo_pair, crossed)


def test_pickled_loaders(homo_pair):
    def make(data, **kwargs):
        return pickle.loads(pickle.dumps(NeighborLoader(data, [5, 3], batch_size=50, **kwargs)))

    check_epochs(homo_pair, make)
    links = lambda data, **k: pickle.loads(  # noqa: E731
        pickle.dumps(LinkNeighborLoader(data, [3], batch_size=500, **k))
    )
    check_epochs(homo_pair, links)


def test_sampler_outputs_and_what_is_made_of_them(homo_pair):
    outs, seen = [], []
    for store in homo_pair:
        sampler = NeighborSampler(store.data(), [5, 3])
        inputs = NodeSamplerInput(None, torch.tensor([3, 250, 3]))
        out = sampler.sample_from_nodes(inputs, key=7)
        assert out.node[:3].tolist() == [3, 250, 3]
        ends = EdgeSamplerInput(None, torch.tensor([3, 9]), torch.tensor([250, 4]))
        linked = sampler.sample_from_edges(ends, "binary" and NegativeSampling("binary"), key=8)
        edge = sampler.original_edge_ids(None, out.edge)
        outs.append([out.node, out.row, out.col, edge, linked.node, linked.metadata[1]])

        mine: list[torch.Tensor] = []
        loader = NeighborLoader(
            store,
            [5, 3],
            batch_size=100,
            transform_sampler_output=lambda o, mine=mine: mine.append(o.node) or o,
        )
        torch.manual_seed(3)
        batches = [batch.to_dict() for batch in loader]
        joined = loader.collate_fn(torch.arange(4))
        assert torch.equal(joined.x, homogeneous().x[joined.n_id])
        seen.append([mine[:3], batches])
    check_same(*outs)
    check_same(*seen)


def test_seeds_that_are_not_there(homo_pair, hetero_pair):
    for store in homo_pair:
        sampler = NeighborSampler(store.data(), [2])
        for bad in (-1, 300):
            inputs = NodeSamplerInput(None, torch.tensor([0, bad]))
            with pytest.raises(IndexError, match=f"seed 1: found node {bad}, expected 0 <= node"):
                sampler.sample_from_nodes(inputs)


def edges_in(store: gz.Store, layout: str) -> list:
    """Both rows and the edge ids of every edge type."""
    row, col, perm = getattr(store.graph_store, layout)()
    if not store.is_hetero:
        row, col, perm = {None: row}, {None: col}, {None: perm}
    count = {name: store.num_edges(name) for name in row}
    return [(row[n], col[n], torch.arange(count[n]) if perm[n] is None else perm[n]) for n in row]


def test_data_and_stores(homo_pair, hetero_pair):
    for pair in (homo_pair, hetero_pair):
        old, new = (store.data() for store in pair)
        check_same(old.to_dict(), new.to_dict())
        for a, b in zip(pair[0].feature_store.get_all_tensor_attrs(),
                        pair[1].feature_store.get_all_tensor_attrs(), strict=True):  # fmt: skip
            assert (a.group_name, a.attr_name) == (b.group_name, b.attr_name)
        for layout in ("coo", "csc", "csr"):
            check_same(*(edges_in(store, layout) for store in pair))
    old, new = (store.data() for store in homo_pair)
    assert repr(old) == repr(new)
    assert (new.num_features, new.num_nodes, new.num_edges) == (8, 300, 3000)
    assert pickle.loads(pickle.dumps(new)).x.tolist() == old.x.tolist()


INDICES = [
    None,
    slice(10, 60, 7),
    slice(None, None, 50),
    5,
    -1,
    torch.tensor([7, 0, 299, 7]),
    np.array([1, 2]),
    torch.arange(300) % 3 == 0,
]


@pytest.mark.parametrize("index", range(len(INDICES)))
@pytest.mark.parametrize("name", ["x", "y", "train_mask", "train_idx"])
def test_rows_by_node(homo_pair, index, name):
    index = INDICES[index]
    if name == "train_idx" and isinstance(index, torch.Tensor):
        index = torch.tensor([4, 49])
    values = [
        store.feature_store.get_tensor(group_name=None, attr_name=name, index=index)
        for store in homo_pair
    ]
    check_same(*values)


def test_edge_attributes_by_edge_id(homo_pair):
    for index in (None, 17, slice(3, 40), torch.tensor([2999, 0])):
        values = [
            store.feature_store.get_tensor(
                group_name=(None, None), attr_name="edge_attr", index=index
            )
            for store in homo_pair
        ]
        check_same(*values)
