"""In- and out-neighbours at once: against the definition, and against PyG's sampler."""

from __future__ import annotations

import pickle

import pytest
import torch
from convert_support import converted, stored
from paging import paged
from scipy import stats
from torch_geometric.data import Data
from torch_geometric.sampler import BidirectionalNeighborSampler as Stock
from torch_geometric.sampler import EdgeSamplerInput, NodeSamplerInput

import graphs
import pyg_graphzero as gz
from pyg_graphzero.loader import LinkNeighborLoader, NeighborLoader
from pyg_graphzero.sampler import BidirectionalNeighborSampler, NeighborSampler


def weighted():
    data = graphs.homogeneous(60, 260)
    data.w = torch.randint(4, (260,), generator=torch.Generator().manual_seed(1)).float()
    return data


@pytest.fixture
def data():
    return weighted()


@pytest.fixture
def store(data, tmp_path):
    return stored(data, tmp_path / "store", both_directions=True)


def reference(edge_index, seeds, hops):
    """The rings of nodes around seeds, and all edges at those that are not in the last one."""
    src, dst = edge_index
    rings, seen, edges = [set(seeds)], set(seeds), set()
    for _ in range(hops):
        inner = torch.tensor(sorted(rings[-1]), dtype=torch.int64)
        taken = (torch.isin(src, inner) | torch.isin(dst, inner)).nonzero().view(-1)
        edges |= set(taken.tolist())
        rings.append(set(edge_index[:, taken].flatten().tolist()) - seen)
        seen |= rings[-1]
    return rings, sorted(edges)


def check(batch, data):
    """Its edges are edges, each there once, with the attributes of both ends."""
    graphs.check_rows(batch, data)
    pairs = torch.cat([batch.edge_index, batch.e_id[None]])
    assert pairs.unique(dim=1).size(1) == batch.e_id.numel()
    assert "num_sampled_edges" not in batch


def test_few_of_many_edges_are_drawn_from_both_ends():
    """The graph has more edges than low bits can tell apart."""
    data = Data(edge_index=graphs.random_edges(2000, 2000, 200_000), num_nodes=2000)
    sampler = BidirectionalNeighborSampler(data, [-1])
    out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.arange(200)))
    _, edges = reference(data.edge_index, range(200), 1)
    assert (data.edge_index[:, edges] < 200).all(0).sum() > 1000
    assert sampler.original_edge_ids(None, out.edge).sort()[0].tolist() == edges


@pytest.mark.parametrize("hops", [0, 1, 2, 3])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("source", ["memory", "store", "read"])
def test_all_neighbours_both_ways(data, store, source, workers, hops):
    given = data if source == "memory" else store.data()
    sampler = BidirectionalNeighborSampler(given, [-1] * hops)
    loader = NeighborLoader(
        given, [-1] * hops, neighbor_sampler=sampler, input_nodes=data.train_mask, batch_size=3,
        shuffle=True, num_workers=workers,
    )  # fmt: skip
    with paged(source == "read"):
        batches = list(loader)
    for batch in batches:
        check(batch, data)
        seeds = batch.n_id[: batch.batch_size].tolist()
        rings, edges = reference(data.edge_index, seeds, hops)
        assert sorted(batch.e_id.tolist()) == edges
        assert batch.num_sampled_nodes == [len(ring) for ring in rings]
        first = 0
        for ring in rings:
            assert set(batch.n_id[first : first + len(ring)].tolist()) == ring
            first += len(ring)


class OneWay:
    """The engine's sampler of one direction, with the interface that PyG's sampler calls."""

    is_hetero = disjoint = False

    def __init__(self, data, direction):
        self.sampler = NeighborSampler(data, [-1], sample_direction=direction)
        self.num_neighbors = None

    def _sample(self, seed, seed_time=None):
        self.sampler.num_neighbors = self.num_neighbors
        out = self.sampler.sample_from_nodes(NodeSamplerInput(None, seed.to(torch.int64)))
        out.edge = self.sampler.original_edge_ids(None, out.edge)
        return out


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("source", ["memory", "store"])
def test_samples_are_pygs(data, store, source, hops):
    theirs = object.__new__(Stock)
    theirs.forward_sampler = OneWay(data, "forward")
    theirs.backward_sampler = OneWay(data, "backward")
    theirs.num_neighbors, theirs.subgraph_type = [-1] * hops, "directional"
    mine = BidirectionalNeighborSampler(data if source == "memory" else store, [-1] * hops)
    for seeds in ([3, 9, 0], [59], [20, 7, 31, 8]):
        inputs = NodeSamplerInput(None, torch.tensor(seeds))
        a, b = mine.sample_from_nodes(inputs), theirs.sample_from_nodes(inputs)
        assert sorted(a.node.tolist()) == sorted(b.node.tolist())
        assert torch.equal(a.node[: len(seeds)], b.node[: len(seeds)])
        a.edge = mine.original_edge_ids(None, a.edge)
        edges = [
            sorted(torch.stack([out.node[out.row], out.node[out.col], out.edge]).t().tolist())
            for out in (a, b)
        ]
        assert edges[0] == edges[1]


@pytest.mark.parametrize("weight_attr", [None, "w"])
@pytest.mark.parametrize("source", ["memory", "store"])
def test_draws_are_alike_or_by_weight(data, store, source, weight_attr):
    src, dst = data.edge_index
    loops = set(src[src == dst].tolist())
    both_ways = dst.bincount(minlength=60) * src.bincount(minlength=60)
    seed = next(v for v in both_ways.argsort(descending=True).tolist() if v not in loops)
    sampler = BidirectionalNeighborSampler(
        data if source == "memory" else store, [1], disjoint=True, weight_attr=weight_attr
    )
    out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.full((20_000,), seed)))
    ids = sampler.original_edge_ids(None, out.edge)
    counts = torch.bincount(ids, minlength=260).double()
    for ends in (src, dst):
        there = ends == seed
        weights = (data.w if weight_attr else torch.ones(260))[there].double()
        assert there.sum() > 3
        assert counts[there].sum() == 20_000
        assert (counts[there][weights == 0] == 0).all()
        expected = weights[weights > 0] / weights.sum() * 20_000
        assert stats.chisquare(counts[there][weights > 0], expected).pvalue > 1e-4


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("disjoint", [False, True])
def test_each_direction_draws_the_number_asked_for(data, store, disjoint, replace):
    sampler = BidirectionalNeighborSampler(store, [3, 2], disjoint=disjoint, replace=replace)
    loader = NeighborLoader(store, [3, 2], neighbor_sampler=sampler, batch_size=20)
    degrees = [data.edge_index[end].bincount(minlength=60) for end in (0, 1)]
    for batch in loader:
        check(batch, data)
        if disjoint:
            assert torch.equal(*batch.batch[batch.edge_index])
            assert batch.batch[:20].tolist() == list(range(batch.batch_size))
        first, inner = 0, batch.num_sampled_nodes
        for count, k in zip(inner[:2], (3, 2), strict=True):
            places = torch.arange(first, first + count)
            first += count
            for end in (0, 1):
                drawn = batch.edge_index[end].bincount(minlength=batch.num_nodes)[places]
                least = degrees[end][batch.n_id[places]].clamp(max=1 if replace else k)
                assert (drawn >= least).all()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("is_paged", [False, True])
@pytest.mark.parametrize("way", ["sampler", "subgraph_type"])
def test_rows_of_nodes_are_gathered_by_the_engine(tmp_path, way, is_paged, workers):
    """Edges are joined in Python; where they have no rows, those of nodes are there before."""
    data = weighted()
    del data.edge_attr, data.w
    store = stored(data, tmp_path / "plain", both_directions=True)
    how = {"subgraph_type": "bidirectional"}
    if way == "sampler":
        how = {"neighbor_sampler": BidirectionalNeighborSampler(store, [3, 2])}
    runs = []
    for edge_ids in (True, False):  # ids are looked up after edges are joined
        torch.manual_seed(2)
        with paged(is_paged):
            loader = NeighborLoader(
                store, [3, 2], batch_size=20, num_workers=workers, edge_ids=edge_ids, **how
            )
            batches = list(loader)
        assert (loader.stats().gather > 0) != edge_ids
        runs.append([(b.n_id, b.edge_index, b.x) for b in batches])
        assert all(torch.equal(b.x, data.x[b.n_id]) for b in batches)
    for one, other in zip(*runs, strict=True):
        assert all(map(torch.equal, one, other))


def test_batches_do_not_depend_on_where_edges_are_or_on_threads(data, store):
    runs = []
    for given, threads in ((data, 1), (store.data(), 1), (store.data(), 3), (store.data(), None)):
        sampler = BidirectionalNeighborSampler(given, [3, 2], num_threads=threads or 1)
        if threads is None:
            sampler = pickle.loads(pickle.dumps(sampler))
        torch.manual_seed(1)
        loader = NeighborLoader(
            given, [3, 2], neighbor_sampler=sampler, batch_size=16, shuffle=True,
            num_workers=0 if threads == 1 else 2,
        )  # fmt: skip
        runs.append([(b.n_id, b.edge_index, b.e_id, b.x) for b in loader])
    for other in runs[1:]:
        for one, two in zip(runs[0], other, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("kind", ["induced", "not directed", "bidirectional"])
def test_kinds_of_subgraphs(data, store, kind):
    arguments = {"directed": False} if kind == "not directed" else {"subgraph_type": kind}
    sampler = BidirectionalNeighborSampler(store, [2], **arguments)
    loader = NeighborLoader(store, [2], neighbor_sampler=sampler, batch_size=5)
    for batch in loader:
        row, col = batch.n_id[batch.edge_index]
        edges = set(zip(row.tolist(), col.tolist(), strict=True))
        if kind == "bidirectional":
            assert edges == {(b, a) for a, b in edges}
            continue
        check(batch, data)
        inside = torch.isin(data.edge_index, batch.n_id).all(0)
        assert sorted(batch.e_id.tolist()) == inside.nonzero().view(-1).tolist()


def test_a_seed_that_occurs_twice_has_edges_twice(data):
    sampler = BidirectionalNeighborSampler(data, [-1])
    out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([3, 3])))
    _, edges = reference(data.edge_index, [3], 1)
    ids = sampler.original_edge_ids(None, out.edge).tolist()
    assert sorted(set(ids)) == edges
    loops = int((data.edge_index[:, edges] == 3).all(0).sum())
    assert len(ids) == 2 * len(edges) + loops
    assert out.node[:2].tolist() == [3, 3]


@pytest.mark.parametrize("source", ["memory", "store"])
def test_types(tmp_path, source):
    """Which PyG does not sample both ways."""
    data = graphs.heterogeneous()
    given = data
    if source == "store":
        given = converted(data, tmp_path / "store", both_directions=True)
    sampler = BidirectionalNeighborSampler(given, [-1])
    loader = NeighborLoader(
        given, [-1], input_nodes=("author", torch.arange(0, 90, 9)), batch_size=10,
        neighbor_sampler=sampler,
    )  # fmt: skip
    (batch,) = loader
    graphs.check_rows(batch, data)
    seeds = torch.arange(0, 90, 9)
    for name in data.edge_types:
        src, dst = data[name].edge_index
        taken = torch.zeros(src.numel(), dtype=torch.bool)
        if name[0] == "author":
            taken |= torch.isin(src, seeds)
        if name[2] == "author":
            taken |= torch.isin(dst, seeds)
        assert sorted(batch[name].e_id.tolist()) == taken.nonzero().view(-1).tolist()


def test_links(data, store):
    """With negatives, too, which PyG's does not take."""
    sampler = BidirectionalNeighborSampler(store, [-1])
    loader = LinkNeighborLoader(
        store, [-1], neighbor_sampler=sampler, neg_sampling="binary", batch_size=4
    )
    batch = next(iter(loader))
    check(batch, data)
    ends = batch.n_id[batch.edge_label_index]
    assert torch.equal(ends[:, :4], data.edge_index[:, batch.input_id])
    seeds = ends.unique().tolist()
    assert sorted(batch.e_id.tolist()) == reference(data.edge_index, seeds, 1)[1]
    edges = EdgeSamplerInput(None, *data.edge_index[:, :2])
    assert sampler.sample_from_edges(edges).num_sampled_edges is None


def test_bad_input(data, homo):
    with pytest.raises(gz.UnsupportedError, match=r"out-neighbours: found the edges by desti.*csr"):
        BidirectionalNeighborSampler(homo[1], [2])
    with pytest.raises(gz.UnsupportedError, match=r"time_attr: found 'time', expected None"):
        BidirectionalNeighborSampler(data, [2], time_attr="time")
    with pytest.raises(ValueError, match="found 'backward', expected 'forward'"):
        BidirectionalNeighborSampler(data, [2], sample_direction="backward")
    with pytest.raises(ValueError, match="weight_attr='v': found in no edge type"):
        BidirectionalNeighborSampler(data, [2], weight_attr="v")
    sampler = BidirectionalNeighborSampler(data, [2])
    with pytest.raises(gz.UnsupportedError, match="found batches of BidirectionalNeighborSampler"):
        NeighborLoader(data, [2], neighbor_sampler=sampler, first_aggregation="mean")
    with pytest.raises(IndexError, match="found node 60"):
        sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([60])))
    nothing = BidirectionalNeighborSampler(Data(num_nodes=3), [2])
    out = nothing.sample_from_nodes(NodeSamplerInput(None, torch.tensor([1])))
    assert out.node.tolist() == [1]
    assert out.row.numel() == 0
