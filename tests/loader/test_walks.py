"""Random walks: every step an edge, drawn as the definition says, however edges are read."""

from __future__ import annotations

import signal
from itertools import pairwise

import chunks
import pytest
import torch
from convert_support import stored
from interrupting import on_alarm
from scipy import stats
from torch_geometric.data import Data, HeteroData
from walking import PagedWalker, check_counts, probabilities

import graphs
import pyg_graphzero as gz
from pyg_graphzero.sampler import RandomWalker

NODES, EDGES = 30, 240


def directed(seed=0):
    generator = torch.Generator().manual_seed(seed)
    data = Data(edge_index=graphs.random_edges(NODES, NODES, EDGES, seed), num_nodes=NODES)
    data.w = torch.randint(4, (EDGES,), generator=generator).to(torch.float32)
    return data


def both_ways(seed=0):
    data = directed(seed)
    data.edge_index = torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1)
    data.w = torch.cat([data.w, data.w])
    return data


def typed(seed=0):
    data = HeteroData()
    for name, count in (("a", 20), ("p", 30), ("v", 5)):
        data[name].num_nodes = count
    data["a", "writes", "p"].edge_index = graphs.random_edges(20, 30, 60, seed)
    data["p", "written", "a"].edge_index = data["a", "writes", "p"].edge_index.flip(0)
    data["p", "in", "v"].edge_index = graphs.random_edges(30, 5, 40, seed + 1)
    return data


@pytest.fixture
def store(tmp_path):
    return stored(directed(), tmp_path / "store", both_directions=True)


def check_steps(walks, edge_index, reverse=False):
    """Every step is an edge, and a walk ends only where no edge leads on."""
    edges = set(map(tuple, edge_index.t().tolist()))
    starts = {edge[1 if reverse else 0] for edge in edges}
    for row in walks.tolist():
        for v, x in pairwise(row):
            if v < 0 or x < 0:
                assert x == -1
                assert v < 0 or v not in starts
            else:
                assert ((x, v) if reverse else (v, x)) in edges


@pytest.mark.parametrize("weight_attr", [None, "w"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("on_disk", [False, True])
def test_a_step_is_drawn_by_weight(store, on_disk, reverse, weight_attr):
    source, data = (store if on_disk else directed()), directed()
    weights = data.w if weight_attr else None
    walks = gz.sampler.random_walk(
        source, torch.full((20_000,), 3), 1, weight_attr=weight_attr, reverse=reverse
    )
    check_counts(walks[:, 1].numpy(), probabilities(data, 3, weights=weights, reverse=reverse))


@pytest.mark.parametrize(("p", "q"), [(0.25, 4.0), (4.0, 0.25)])
@pytest.mark.parametrize("where", ["memory", "by source", "undirected", "paged", "against"])
def test_steps_of_node2vec(tmp_path, where, p, q):
    data = both_ways()
    options = {"p": p, "q": q, "reverse": where == "against"}
    if where == "memory":
        walker = RandomWalker(data, **options)
    else:
        is_both = where in ("by source", "paged")
        with stored(data, tmp_path / "s", both_directions=is_both) as opened:
            walker = (PagedWalker if where == "paged" else RandomWalker)(opened, **options)
    walks = walker.walk(torch.full((20_000,), 3), 2)
    before, at = 3, int(walks[:, 1].mode().values)
    taken = walks[walks[:, 1] == at][:, 2].numpy()
    check_counts(taken, probabilities(data, at, before, p, q))


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (0.5, 2.0)])
def test_walks_do_not_depend_on_threads_or_on_where_edges_are(store, p, q):
    start = torch.arange(NODES).repeat(40)
    seeded = [torch.Generator().manual_seed(7) for _ in range(4)]
    mapped = RandomWalker(store, p, q)
    one = mapped.walk(start, 9, generator=seeded[0], num_threads=1)
    assert torch.equal(one, mapped.walk(start, 9, generator=seeded[1], num_threads=3))
    read = PagedWalker(store, p, q)
    assert torch.equal(one, read.walk(start, 9, generator=seeded[2]))
    # The n-th walk is the n-th, whatever comes behind it.
    assert torch.equal(one[:50], mapped.walk(start[:50], 9, generator=seeded[3]))
    assert not torch.equal(one, mapped.walk(start, 9))


@chunks.both
def test_a_budget_that_does_not_fit_reads(tmp_path, monkeypatch):
    data = graphs.homogeneous(2000, 20_000)
    store = stored(data, tmp_path / "s", both_directions=True)
    from pyg_graphzero.memory import residence as module

    start = torch.arange(2000)
    whole = gz.sampler.random_walk(store, start, 5, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(module, "private_rss", lambda: store.contents.memory - module.READER_BYTES)
    walker = gz.sampler.RandomWalker(store)
    again = walker.walk(start, 5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(whole, again)
    rows, window = module.page_topologies(store.contents, [store.contents.csr(None)])
    assert rows
    assert window > 0


def test_edge_ids(store):
    data = directed()
    for source in (store, data):
        for reverse in (False, True):
            walks, ids = gz.sampler.random_walk(
                source, None, 6, reverse=reverse, return_edge_ids=True
            )
            assert walks.dtype == torch.int64
            assert torch.equal(walks[:, 0], torch.arange(NODES))
            check_steps(walks, data.edge_index, reverse)
            assert ids.shape == (NODES, 6)
            assert torch.equal(ids < 0, walks[:, 1:] < 0)
            taken = data.edge_index[:, ids[ids >= 0]]
            ends = torch.stack([walks[:, :-1][ids >= 0], walks[:, 1:][ids >= 0]])
            assert torch.equal(taken.flip(0) if reverse else taken, ends)


@chunks.both
def test_directed_edges_are_needed_by_source(tmp_path):
    store = stored(directed(), tmp_path / "store")
    with pytest.raises(
        gz.UnsupportedError, match=r"one way.*create_csr\(\).*--both-dir.*reverse=T"
    ):
        gz.sampler.random_walk(store, None, 3)
    store.close()
    with gz.open(tmp_path / "store", mode="r+") as opened:
        opened.create_csr()
        check_steps(gz.sampler.random_walk(opened, None, 3), directed().edge_index)
        opened.create_csr(None)  # again replaces it
        assert opened.info()["edge_types"][0]["has_csr"]
    assert gz.verify(tmp_path / "store").ok
    assert len(list((tmp_path / "store" / "edge").glob("csr*"))) == 2


def test_undirected_edges_need_nothing(tmp_path):
    data = directed()
    store = stored(data, tmp_path / "store", undirected=True)
    walks = gz.sampler.random_walk(store, None, 8)
    check_steps(walks, store.data().edge_index)
    with pytest.raises(gz.UnsupportedError, match=r"edge ids of walks along edges.*create_csr"):
        gz.sampler.random_walk(store, None, 8, return_edge_ids=True)
    with pytest.raises(gz.UnsupportedError, match=r"walks along edges by 'w'.*create_csr"):
        gz.sampler.random_walk(store, None, 8, weight_attr="w")


@pytest.mark.parametrize("on_disk", [False, True])
def test_metapaths(tmp_path, on_disk):
    data = typed()
    source = stored(data, tmp_path / "s", both_directions=True) if on_disk else data
    path = [("a", "writes", "p"), ("p", "written", "a")]
    walks, ids = gz.sampler.random_walk(
        source, torch.arange(20), 4, metapath=path, return_edge_ids=True
    )
    for step in range(4):
        edges = data[path[step % 2]].edge_index
        check_steps(walks[:, step : step + 2], edges)
        there = ids[:, step] >= 0
        assert torch.equal(edges[1, ids[there, step]], walks[there, step + 1])
    once = [*path[:1], ("p", "in", "v")]
    walks = gz.sampler.random_walk(source, None, 2, metapath=once)
    assert walks.shape == (20, 3)
    assert (walks[:, 2] < 0).any()  # a paper of no venue
    check_steps(walks[:, 1:], data["p", "in", "v"].edge_index)
    with pytest.raises(ValueError, match="from 'a' to 'v' for 3 steps, expected at most 2"):
        gz.sampler.random_walk(source, None, 3, metapath=once)
    walks = gz.sampler.random_walk(source, None, 2, metapath=once[::-1], reverse=True)
    check_steps(walks[:, :2], data["p", "in", "v"].edge_index, reverse=True)


def test_the_reverse_type_serves_where_it_has_the_same_edges(tmp_path):
    store = stored(typed(), tmp_path / "s")
    path = [("a", "writes", "p"), ("p", "written", "a")]
    check_steps(
        gz.sampler.random_walk(store, None, 2, metapath=path)[:, :2],
        typed()["a", "writes", "p"].edge_index,
    )
    with pytest.raises(gz.UnsupportedError, match=r"create_csr\(\('p', 'in', 'v'\)\)"):
        gz.sampler.random_walk(store, None, 1, metapath=[("p", "in", "v")])


def test_restarts():
    data = both_ways()
    walks, ids = gz.sampler.random_walk(
        data, torch.full((4000,), 3), 10, restart=0.25, return_edge_ids=True
    )
    restarted = ids < 0
    assert (walks[:, 1:][restarted] == 3).all()
    assert stats.binomtest(int(restarted.sum()), restarted.numel(), 0.25).pvalue > 1e-4
    ends = torch.stack([walks[:, :-1][~restarted], walks[:, 1:][~restarted]])
    assert torch.equal(data.edge_index[:, ids[~restarted]], ends)


def test_ends():
    line = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=4)
    walks = gz.sampler.random_walk(line, None, 3)
    assert walks.tolist() == [[0, 1, 2, -1], [1, 2, -1, -1], [2, -1, -1, -1], [3, -1, -1, -1]]
    stays = gz.sampler.random_walk(line, [0, 3], 3, on_end="stay")
    assert stays.tolist() == [[0, 1, 2, 2], [3, 3, 3, 3]]
    weightless = Data(edge_index=line.edge_index, num_nodes=4, w=torch.zeros(2))
    assert (gz.sampler.random_walk(weightless, None, 2, weight_attr="w")[:, 1:] == -1).all()
    assert gz.sampler.random_walk(Data(num_nodes=2), None, 2).tolist() == [[0, -1, -1], [1, -1, -1]]
    assert gz.sampler.random_walk(line, [], 3).shape == (0, 4)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"p": 0}, ValueError, "p=0: expected a number above 0"),
        ({"q": float("nan")}, ValueError, "q=nan"),
        ({"walk_length": 0}, ValueError, "walk_length: found 0, expected 1 or more"),
        ({"restart": 1.0}, ValueError, "restart=1.0: expected a probability"),
        ({"on_end": "wrap"}, ValueError, "on_end='wrap': expected -1 or 'stay'"),
        ({"start": [0, NODES]}, IndexError, f"1: found node {NODES}, expected 0 <= node < {NODES}"),
        ({"start": [-1]}, IndexError, "found node -1"),
        ({"start": [0.5]}, TypeError, "expected integers"),
        ({"weight_attr": "v"}, ValueError, "weight_attr='v': found in no edge type, expected one"),
        ({"metapath": [("a", "b", "c")]}, ValueError, r"metapath: found \('a', 'b', 'c'\)"),
        ({"metapath": []}, ValueError, "metapath: found no edge type"),
        ({"source": 3}, TypeError, "found int, expected a Store"),
        ({"source": typed()}, ValueError, "metapath: found none"),
        (
            {"source": typed(), "metapath": [("a", "writes", "p"), ("a", "writes", "p")]},
            ValueError,
            "expected an edge type that begins at 'p'",
        ),
        (
            {
                "source": typed(),
                "metapath": [("a", "writes", "p"), ("p", "written", "a")],
                "restart": 0.5,
            },
            ValueError,
            "restart=0.5: found a metapath",
        ),
    ],
)
def test_wrong_arguments_are_refused(options, error, says):
    options = {"source": directed(), "start": None, "walk_length": 3, **options}
    with pytest.raises(error, match=says):
        gz.sampler.random_walk(**options)


def test_a_damaged_topology_is_an_error(store):
    from pyg_graphzero.errors import FormatError

    path = store.contents.csr(None).path
    with open(path, "r+b") as file:
        file.seek(4096 + 8)
        file.write(b"\xff" * 8)
    with pytest.raises(FormatError, match=r"csr.*indptr"):
        gz.sampler.random_walk(store, None, 3)
    (line,) = gz.verify(store.path).bad
    assert "csr.gl" in line


def test_a_signal_ends_a_walk():
    start = torch.zeros(2_000_000, dtype=torch.int64)
    walks = iter(lambda: len(gz.sampler.random_walk(directed(), start, 100, p=0.1, q=9)), 0)
    with on_alarm(signal.default_int_handler):
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            sum(walks)  # a machine of many cores has done one before
