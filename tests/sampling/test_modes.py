"""Disjoint, temporal, weighted and induced sampling, held against what the words mean."""

from __future__ import annotations

from inspect import Parameter, signature

import numpy as np
import pytest
import torch
import torch_geometric
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch_geometric import EdgeIndex, Index
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import subgraph

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous, random_edges, sample, star, write_store
from pyg_graphzero.loader import LinkNeighborLoader, NeighborLoader
from pyg_graphzero.sampling.neighbor import NeighborSampler

# Disjoint ########################################################################################


@settings(max_examples=40)
@given(seed=st.integers(0, 2**31), fanout=st.sampled_from([[3, 2], [-1, -1], [2, 2, 2]]))
def test_trees_share_no_node(seed, fanout):
    data = Data(edge_index=random_edges(40, 40, 150, seed), num_nodes=40)
    sampler = NeighborSampler(data, fanout, disjoint=True)
    seeds = [3, 7, 3, 0]
    out = sample(sampler, seeds, key=seed)
    assert out.batch[:4].tolist() == [0, 1, 2, 3]
    assert torch.equal(out.batch[out.row], out.batch[out.col])  # edges stay in their tree
    pairs = torch.stack([out.batch, out.node])
    assert pairs.unique(dim=1).size(1) == out.node.numel()  # a node once in a tree
    ids = sampler.original_edge_ids(None, out.edge)
    assert torch.equal(out.node[out.row], data.edge_index[0, ids])
    assert torch.equal(out.node[out.col], data.edge_index[1, ids])
    assert sum(out.num_sampled_nodes) == out.node.numel()


# Temporal ########################################################################################


@pytest.mark.parametrize("level", ["node", "edge"])
@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float64])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("window", [None, 30])
def test_nothing_is_outside_of_its_window(tmp_path, level, strategy, dtype, replace, window):
    generator = torch.Generator().manual_seed(3)
    data = Data(edge_index=random_edges(80, 80, 900), num_nodes=80)
    size = 80 if level == "node" else 900
    data.time = torch.randint(-50, 50, (size,), generator=generator).to(dtype)
    if dtype == torch.float64:
        data.time += 0.25
    seeds = torch.arange(80)
    times = torch.randint(-40, 60, (80,), generator=generator).to(dtype)
    disk = gz.open(write_store(data, tmp_path / "store")).data()
    edge_time = data.time if level == "edge" else data.time[data.edge_index[0]]
    outs = []
    for graph in (data, disk):
        sampler = NeighborSampler(
            graph, [4, 3], time_attr="time", temporal_strategy=strategy, replace=replace,
            time_window=window,
        )  # fmt: skip
        outs.append((sampler, sample(sampler, seeds, times)))
    for sampler, out in outs:
        ids = sampler.original_edge_ids(None, out.edge)
        assert torch.equal(out.node[out.row], data.edge_index[0, ids])
        early = times[out.batch[out.col]] - edge_time[ids]
        assert (early >= 0).all()
        assert window is None or (early <= window).all()
        assert out.row.numel() > 100
        check_temporal_counts(data, edge_time, strategy, replace, window, out, ids, times)
    assert torch.equal(outs[0][1].node, outs[1][1].node)


def check_temporal_counts(data, edge_time, strategy, replace, window, out, ids, times):
    """Every node of the first hops draws min(valid, k), and `last` the newest."""
    for col in range(80):
        drawn = ids[(out.col == col)]
        early = times[col] - edge_time
        valid = (data.edge_index[1] == out.node[col]) & (early >= 0)
        valid &= early <= (np.inf if window is None else window)
        count = int(valid.sum())
        assert drawn.numel() == (4 if replace and count else min(4, count))
        assert valid[drawn].all()
        if strategy == "last" and count:
            newest = edge_time[valid].sort(descending=True).values[:4]
            if replace:
                assert (edge_time[drawn] >= newest.min()).all()
            else:
                assert torch.equal(edge_time[drawn].sort(descending=True).values, newest)


def test_times_of_some_types_only():
    data = heterogeneous()
    data["paper"].time = torch.arange(200)
    sampler = NeighborSampler(data, [5, 5], time_attr="time")
    out = sample(sampler, [50, 199], [40, 199], node_type="paper")
    limit = torch.tensor([40, 199])
    for name in data.edge_types:
        if name[0] == "paper":
            drawn = out.node["paper"][out.row[name]]
            assert (drawn <= limit[out.batch[name[2]][out.col[name]]]).all()
    assert out.row["author", "writes", "paper"].numel() > 0  # authors have no time
    with pytest.raises(ValueError, match="the 'author' seeds have no 'time' of their own"):
        sample(sampler, [1], node_type="author")


def test_bad_times():
    data = homogeneous()
    data.time, data.float_time = torch.arange(300), torch.rand(300)
    data.nan = torch.full((3000,), float("nan"))
    some, both = heterogeneous(), heterogeneous()
    some["paper"].time, some["author"].time = torch.arange(200), torch.arange(7)
    both["paper"].time = torch.arange(200)
    both["paper", "cites", "paper"].time = torch.arange(900)
    for graph, attr, words in (
        (data, "no", "time_attr='no': found in no node or edge type, expected one of"),
        (data, "nan", r"'nan': row 0: found NaN, expected a time"),
        (some, "time", "'time' of 'author': found 7 times, expected 120"),
        (both, "time", "both node and edge types"),
    ):
        with pytest.raises(ValueError, match=words):
            NeighborSampler(graph, [1], time_attr=attr)
    sampler = NeighborSampler(data, [1], time_attr="time")
    for use, times, words in (
        (sampler, [1, 2], "seed times: found 2, expected one for each of 1 seeds"),
        (sampler, [1.5], r"seed times: found torch.float32, expected integers"),
        (NeighborSampler(data, [1]), [1], "found some, expected none without a time_attr"),
    ):
        with pytest.raises(ValueError, match=words):
            sample(use, [1], times)
    for options, words in (
        ({"input_time": torch.arange(300)}, "input_time"),
        ({"input_time": torch.arange(3), "time_attr": "time"}, "input_time: found 3, expected one"),
        ({"temporal_strategy": "first"}, "temporal_strategy: found 'first'"),
    ):
        with pytest.raises(ValueError, match=words):
            NeighborLoader(data, [1], **options)
    with pytest.raises(IndexError, match="found node 300, expected 0 <= node < 300"):
        sample(sampler, [300])


# Weighted ########################################################################################


@pytest.mark.parametrize("weights", [[1.0, 2, 3, 4, 0, 10], [0.001, 1, 1000, 5, 0, 30]])
def test_weights_are_the_probabilities(weights):
    data = star(6, w=torch.tensor(weights))
    sampler = NeighborSampler(data, [4], weight_attr="w", replace=True)
    out = sample(sampler, [0] * 20_000)
    counts = np.bincount(sampler.original_edge_ids(None, out.edge).numpy(), minlength=6)
    assert counts[4] == 0  # a weight of 0 is never drawn
    kept = np.array(weights) > 0
    expected = np.array(weights)[kept] / sum(weights) * counts.sum()
    if expected.min() >= 1:
        assert stats.chisquare(counts[kept], expected).pvalue > 1e-6


@pytest.mark.parametrize("replace", [False, True])
def test_only_edges_with_weight_are_drawn(replace):
    weights = torch.tensor([0.0, 5, 0, 1e-9, 0, 0, 1e9])
    data = star(7, w=weights)
    sampler = NeighborSampler(data, [5], weight_attr="w", replace=replace)
    for key in range(50):
        drawn = sampler.original_edge_ids(None, sample(sampler, [0, 1], key=key).edge)
        assert (weights[drawn] > 0).all()
        assert drawn.numel() == (5 if replace else 3)
    nothing = NeighborSampler(star(3, w=torch.zeros(3)), [2, 2], weight_attr="w", replace=replace)
    out = sample(nothing, [0, 0])
    assert out.row.numel() == 0
    assert out.num_sampled_edges == [0, 0]
    everything = NeighborSampler(data, [-1], weight_attr="w")
    assert sample(everything, [0]).row.numel() == 7  # asked for all


def test_weights_on_disk_and_by_type(tmp_path):
    data = heterogeneous()
    name = ("author", "writes", "paper")
    data[name].w = torch.rand(600) * (torch.rand(600) < 0.7)
    d = gz.open(write_store(data, tmp_path / "store")).data()
    outs = []
    for graph in (data, d):
        loader = NeighborLoader(
            graph, [4, 3], input_nodes="paper", weight_attr="w", batch_size=64,
            generator=torch.Generator().manual_seed(1),
        )  # fmt: skip
        batch = next(iter(loader))
        assert (batch[name].w > 0).all()
        assert torch.equal(batch[name].w, data[name].w[batch[name].e_id])
        assert batch["paper", "cites", "paper"].edge_index.size(1) > 0  # uniform where none
        outs.append(batch[name].e_id)
    assert torch.equal(*outs)
    batch = next(iter(LinkNeighborLoader(d, [3], name, weight_attr="w", batch_size=50)))
    assert (batch[name].w > 0).all()


@pytest.mark.parametrize(
    "options", [{"weight_attr": "w"}, {"time_attr": "w", "input_time": torch.full((300,), 0.5)}]
)
def test_weights_and_times_in_a_column(options):
    """``[num_edges, 1]`` are one an edge."""
    data = homogeneous()
    data.w = (torch.rand(data.num_edges) < 0.5).float()
    batches = []
    for weights in (data.w, data.w.view(-1, 1)):
        data.w = weights
        loader = NeighborLoader(data, [2], batch_size=300, **options)
        torch.manual_seed(1)
        batches.append(next(iter(loader)))
    assert torch.equal(batches[0].e_id, batches[1].e_id)
    assert bool((data.w[batches[1].e_id] == ("weight_attr" in options)).all())
    data.w = torch.rand(data.num_edges, 2)
    with pytest.raises(ValueError, match=r"expected one (real number|time)"):
        NeighborLoader(data, [2], **options)


@pytest.mark.parametrize(
    ("bad", "shown"), [(-1.0, "-1.0"), (float("nan"), "nan"), (float("inf"), "inf")]
)
def test_bad_weights(bad, shown):
    data = star(3, w=torch.tensor([1.0, bad, 1.0]))
    message = f"weights: edge at slot 1: found {shown}, expected a finite number"
    with pytest.raises(ValueError, match=message):
        NeighborSampler(data, [1], weight_attr="w")
    with pytest.raises(ValueError, match=r"weight_attr='v': found in no edge type, .* one of w$"):
        NeighborSampler(data, [1], weight_attr="v")


# Subgraph types ##################################################################################


@settings(max_examples=30)
@given(seed=st.integers(0, 2**31), disjoint=st.booleans())
def test_induced_is_the_subgraph_of_the_sampled_nodes(seed, disjoint):
    data = Data(edge_index=random_edges(50, 50, 300, seed), num_nodes=50)
    sampler = NeighborSampler(data, [3, 2], subgraph_type="induced", disjoint=disjoint)
    out = sample(sampler, [1, 8, 20], key=seed)
    ids = sampler.original_edge_ids(None, out.edge)
    assert torch.equal(out.node[out.row], data.edge_index[0, ids])
    assert torch.equal(out.node[out.col], data.edge_index[1, ids])
    assert out.num_sampled_edges is None
    trees = range(3) if disjoint else [None]
    for tree in trees:
        inside = out.batch == tree if disjoint else torch.ones_like(out.node, dtype=torch.bool)
        _, _, mask = subgraph(
            out.node[inside].unique(), data.edge_index, num_nodes=50, return_edge_mask=True
        )
        here = ids[inside[out.col]]
        assert sorted(here.tolist()) == mask.nonzero().view(-1).tolist()


@pytest.mark.parametrize("disjoint", [False, True])
def test_induced_heterogeneous(disjoint):
    data = heterogeneous()
    sampler = NeighborSampler(data, [3, 2], subgraph_type="induced", disjoint=disjoint)
    out = sample(sampler, [1, 8], node_type="paper")
    for name in data.edge_types:
        src, _, dst = name
        ids = sampler.original_edge_ids(name, out.edge[name])
        edge_index = data[name].edge_index
        assert torch.equal(out.node[src][out.row[name]], edge_index[0, ids])
        for tree in range(2) if disjoint else [None]:
            parts = [
                out.node[t] if tree is None else out.node[t][out.batch[t] == tree]
                for t in (src, dst)
            ]
            mask = torch.isin(edge_index[0], parts[0]) & torch.isin(edge_index[1], parts[1])
            here = ids if tree is None else ids[out.batch[dst][out.col[name]] == tree]
            assert sorted(here.tolist()) == mask.nonzero().view(-1).tolist()


def test_bidirectional_has_every_reverse(data, store):
    loader = NeighborLoader(store, [4, 3], subgraph_type="bidirectional", batch_size=20)
    batch = next(iter(loader))
    edges = set(map(tuple, batch.edge_index.t().tolist()))
    assert edges == {(b, a) for a, b in edges}
    forward = torch.stack([batch.n_id[batch.edge_index[0]], batch.n_id[batch.edge_index[1]]])
    of_edge = data.edge_index[:, batch.e_id]
    same = (forward == of_edge).all(0) | (forward == of_edge.flip(0)).all(0)
    assert same.all()
    assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])


def test_bidirectional_heterogeneous(hetero):
    _, store = hetero
    loader = NeighborLoader(
        store, [4, 3], input_nodes="paper", subgraph_type="bidirectional", batch_size=20
    )
    with pytest.warns(UserWarning, match="does not seem to have a reverse edge type"):
        batch = next(iter(loader))
    there = batch["author", "writes", "paper"].edge_index
    back = batch["paper", "rev_writes", "author"].edge_index
    assert torch.equal(there, back.flip(0))


def test_not_directed_means_induced(homo):
    batch = next(iter(NeighborLoader(homo[1], [2], directed=False, batch_size=50)))
    _, _, mask = subgraph(batch.n_id, homo[0].edge_index, num_nodes=300, return_edge_mask=True)
    assert sorted(batch.e_id.tolist()) == mask.nonzero().view(-1).tolist()


def test_positions_of_arguments_are_pygs(homo):
    theirs = list(signature(torch_geometric.sampler.NeighborSampler.__init__).parameters)
    ours = signature(NeighborSampler.__init__).parameters
    assert list(ours)[: len(theirs)] == theirs
    assert {ours[name].kind for name in [*ours][len(theirs) :]} == {Parameter.KEYWORD_ONLY}
    given = [2], "directional", False, False, "uniform", None, None, False, True, False
    induced = sample(NeighborSampler(homo[0], *given), [3, 9])
    _, _, mask = subgraph(induced.node, homo[0].edge_index, num_nodes=300, return_edge_mask=True)
    assert len(induced.row) == int(mask.sum())


def test_backward_walks_along_the_edges(data, store):
    for graph in (data, store.data()):
        sampler = NeighborSampler(graph, [-1, 2], sample_direction="backward")
        out = sample(sampler, [3, 9])
        ids = sampler.original_edge_ids(None, out.edge)
        assert torch.equal(out.node[out.row], data.edge_index[0, ids])
        assert torch.equal(out.node[out.col], data.edge_index[1, ids])
        first = ids[: out.num_sampled_edges[0]]
        want = torch.isin(data.edge_index[0], torch.tensor([3, 9])).nonzero().view(-1)
        assert sorted(first.tolist()) == want.tolist()
        loader = NeighborLoader(graph, [2], neighbor_sampler=sampler, batch_size=10)
        batch = next(iter(loader))
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
    hetero = heterogeneous()
    sampler = NeighborSampler(hetero, [-1], sample_direction="backward")
    out = sample(sampler, [3], node_type="author")
    name = ("author", "writes", "paper")
    want = hetero[name].edge_index[1, hetero[name].edge_index[0] == 3]
    assert sorted(out.node["paper"].tolist()) == sorted(set(want.tolist()))


def test_adj_t_is_sampled():
    data = homogeneous()
    row, col = data.edge_index
    pairs = torch.stack([col, row]).unique(dim=1)
    with torch.sparse.check_sparse_tensor_invariants():
        adj_t = torch.sparse_coo_tensor(pairs, torch.ones(pairs.size(1)), (300, 300)).coalesce()
        graph = Data(x=data.x, adj_t=adj_t, num_nodes=300)
        sampler = NeighborSampler(graph, [-1])
    out = sample(sampler, [5])
    assert sorted(out.node.tolist()) == sorted({5, *row[col == 5].tolist()})


def test_edge_index_objects_are_sampled():
    data = homogeneous()
    want = data.edge_index
    data.edge_index = EdgeIndex(want, sparse_size=(300, 300))
    for loader in (
        NeighborLoader(data, [3, 2], batch_size=30, input_nodes=Index(torch.arange(60))),
        LinkNeighborLoader(data, [3], batch_size=30),
        LinkNeighborLoader(data, [3], batch_size=30, edge_label_index=data.edge_index),
        gz.loader.ShaDowKHopSampler(data, 2, 3, batch_size=30),
    ):
        batch = next(iter(loader))
        assert type(batch.edge_index) is torch.Tensor
        assert torch.equal(batch.n_id[batch.edge_index], want[:, batch.e_id])
        assert str(loader) == f"{type(loader).__name__}()"


def test_no_edges_no_harm():
    data = HeteroData()
    data["a"].x = torch.randn(3, 2)
    data["a", "r", "a"].edge_index = torch.empty(2, 0, dtype=torch.long)
    data["a", "r", "a"].w = torch.empty(0)
    data["a"].t = torch.arange(3)
    for arguments in ({"weight_attr": "w"}, {"time_attr": "t"}, {"subgraph_type": "induced"}):
        out = sample(NeighborSampler(data, [2], **arguments), [0, 1], node_type="a")
        assert out.row["a", "r", "a"].numel() == 0
