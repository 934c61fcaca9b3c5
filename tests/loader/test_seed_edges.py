"""Seed edges that are no messages of their own batch."""

from __future__ import annotations

import pytest
import torch
from paging import paged
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import NegativeSampling

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous, write_store
from pyg_graphzero.loader import LinkNeighborLoader
from pyg_graphzero.sampling.neighbor import NeighborSampler

WRITES, WRITTEN = ("author", "writes", "paper"), ("paper", "rev_writes", "author")

STRICTLY = gz.SamplingOptions(strictly_earlier=True)
DRAWS = {
    "uniform": {"num_neighbors": [4, 3]},
    "all": {"num_neighbors": [-1, -1]},
    "many": {"num_neighbors": [20, 2]},
    "replace": {"num_neighbors": [4, 3], "replace": True},
    "weighted": {"num_neighbors": [4, 3], "weight_attr": "weight"},
    "weighted, replace": {"num_neighbors": [4, 3], "weight_attr": "weight", "replace": True},
    "disjoint": {"num_neighbors": [4, 3], "disjoint": True},
    "induced": {"num_neighbors": [4, 3], "subgraph_type": "induced"},
    "times": {"num_neighbors": [4, 3], "time_attr": "time"},
    "window": {
        "num_neighbors": [4, 3],
        "time_attr": "time",
        "time_window": 30,
        "options": STRICTLY,
    },
    "last": {"num_neighbors": [4, 3], "time_attr": "time", "temporal_strategy": "last"},
}


def graph() -> Data:
    """Every edge has its reverse, with the weight and the time of it; many are parallel."""
    data = homogeneous()
    data.edge_index = torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1)
    generator = torch.Generator().manual_seed(3)
    weight = torch.randint(0, 4, (3000,), generator=generator).float()
    time = torch.randint(0, 100, (3000,), generator=generator)
    data.weight, data.time = weight.repeat(2), time.repeat(2)
    data.edge_attr = None
    return data


def codes(edges: Tensor) -> Tensor:
    return edges[0] * 1000 + edges[1]


def without(data: Data, seeds: Tensor, seed_time: Tensor | None, reverse: bool) -> Data:
    """The graph that batches of these seeds are drawn from."""
    pairs = torch.cat([seeds, seeds.flip(0)], dim=1) if reverse else seeds
    marks, own = codes(pairs), codes(data.edge_index)
    if seed_time is not None:
        marks = marks * 1000 + seed_time.repeat(1 + reverse)
        own = own * 1000 + data.time
    kept = ~torch.isin(own, marks)
    assert 0 < int(kept.sum()) < kept.numel()
    return Data(
        edge_index=data.edge_index[:, kept], weight=data.weight[kept], time=data.time[kept],
        num_nodes=data.num_nodes,
    )  # fmt: skip


def batch_of(data, seeds, **options) -> Data:
    torch.manual_seed(5)
    loader = LinkNeighborLoader(
        data, edge_label_index=seeds, neg_sampling="binary", batch_size=seeds.size(1), **options
    )
    (batch,) = loader
    return batch


@pytest.mark.parametrize(
    ("where", "exclude"), [("memory", True), ("store", "reverse"), ("paged", "reverse")]
)
@pytest.mark.parametrize("draws", DRAWS)
def test_batches_are_of_the_graph_without_seed_edges(tmp_path, draws, exclude, where):
    """Bit for bit, in whatever way neighbours are drawn."""
    data, options = graph(), dict(DRAWS[draws])
    at = torch.arange(0, 3000, 50)
    seeds = data.edge_index[:, at]
    if "time_attr" in options:
        options["edge_label_time"] = data.time[at]
    other = without(data, seeds, options.get("edge_label_time"), exclude == "reverse")
    expected = batch_of(other, seeds, **options)
    given = data if where == "memory" else gz.open(write_store(data, tmp_path / "s")).data()
    with paged(where == "paged"):
        batch = batch_of(given, seeds, exclude_seed_edges=exclude, **options)
    for name in ("n_id", "edge_index", "edge_label_index", "batch"):
        assert (name in batch) == (name in expected)
        if name in batch:
            assert torch.equal(batch[name], expected[name])
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    plain = batch_of(given, seeds, **options)
    if "options" not in options:
        assert not torch.equal(plain.edge_index, batch.edge_index)


@pytest.mark.parametrize("where", ["memory", "store", "paged"])
@pytest.mark.parametrize("exclude", [True, "reverse", {WRITES: WRITTEN}])
@pytest.mark.parametrize("disjoint", [False, True])
def test_types_and_their_reverses(tmp_path, where, exclude, disjoint):
    data = heterogeneous()
    given = data if where == "memory" else gz.open(write_store(data, tmp_path / "s")).data()
    with paged(where == "paged"):
        loader = LinkNeighborLoader(
            given, [5, 5], edge_label_index=WRITES, batch_size=40, exclude_seed_edges=exclude,
            disjoint=disjoint,
        )  # fmt: skip
        batches = list(loader)
    left = {WRITES: 0, WRITTEN: 0}
    for batch in batches:
        seeds = codes(data[WRITES].edge_index[:, batch[WRITES].input_id])
        for name in left:
            src, dst = batch[name].edge_index
            src, dst = batch[name[0]].n_id[src], batch[name[2]].n_id[dst]
            messages = codes(torch.stack([src, dst] if name == WRITES else [dst, src]))
            left[name] += int(torch.isin(messages, seeds).sum())
    assert left[WRITES] == 0
    assert (left[WRITTEN] == 0) is (exclude is not True)
    assert sum(batch[WRITTEN].edge_index.size(1) for batch in batches) > 0


def test_bidirectional_batches_need_the_reverse():
    data = graph()
    options = {"num_neighbors": [4], "subgraph_type": "bidirectional"}
    seeds = data.edge_index[:, :50]
    with pytest.raises(ValueError, match="found subgraph_type='bidirectional'"):
        batch_of(data, seeds, exclude_seed_edges=True, **options)
    batch = batch_of(data, seeds, exclude_seed_edges="reverse", **options)
    messages = codes(batch.n_id[batch.edge_index])
    assert messages.numel()
    assert not torch.isin(messages, codes(torch.cat([seeds, seeds.flip(0)], dim=1))).any()


def test_backward_sampling_leaves_them_out():
    data = graph()
    sampler = NeighborSampler(data, [4, 4], sample_direction="backward")
    seeds = data.edge_index[:, :50]
    batch = batch_of(
        data, seeds, num_neighbors=None, neighbor_sampler=sampler, exclude_seed_edges=True
    )
    messages = codes(batch.n_id[batch.edge_index])
    assert messages.numel()
    assert not torch.isin(messages, codes(seeds)).any()


WRONG = (("paper", "x", "author"), ("paper", "in", "venue"), WRITES)


@pytest.mark.parametrize("exclude", ["self", 1, None, {}, *({WRITES: each} for each in WRONG)])
def test_other_values_are_refused(exclude):
    with pytest.raises(ValueError, match="exclude_seed_edges: found"):
        LinkNeighborLoader(
            heterogeneous(), [2], edge_label_index=WRITES, exclude_seed_edges=exclude
        )


def test_without_types_there_is_no_reverse_type():
    with pytest.raises(ValueError, match=r"exclude_seed_edges: found .* of a graph with types"):
        LinkNeighborLoader(graph(), [2], exclude_seed_edges={WRITES: WRITTEN})


def test_a_type_without_reverse():
    data = heterogeneous()
    del data[WRITTEN]
    with pytest.raises(ValueError, match=r"found no \('paper', 'rev_writes', 'author'\) among"):
        LinkNeighborLoader(data, [2], edge_label_index=WRITES, exclude_seed_edges="reverse")


@pytest.mark.parametrize("exclude_edges", [False, True])
@pytest.mark.parametrize("mode", ["binary", "triplet"])
@pytest.mark.parametrize("weighted", [False, True])
def test_negatives_are_there_by_the_time_of_their_seed(mode, exclude_edges, weighted):
    """Also where hardly any node is: PyG takes the oldest node of all for each then."""
    data = homogeneous()
    data.time = torch.cat([torch.arange(5), torch.full((295,), 100)])
    seeds, times = data.edge_index[:, :200], torch.arange(200) % 5
    weight = torch.ones(300) if weighted else None
    loader = LinkNeighborLoader(
        data, [2], seeds, neg_sampling=NegativeSampling(mode, 2, weight, weight), batch_size=200,
        time_attr="time", edge_label_time=times,
        options=gz.SamplingOptions(exclude_edges=exclude_edges),
    )  # fmt: skip
    if exclude_edges:  # the oldest nodes are each other's neighbours
        with pytest.raises(ValueError, match="negatives: found none for source node"):
            next(iter(loader))
        return
    (batch,) = loader
    if mode == "binary":
        drawn = batch.n_id[batch.edge_label_index[:, 200:]]
        latest = times.repeat(2)
    else:
        drawn = batch.n_id[batch.dst_neg_index].t().reshape(1, -1)
        latest = times.repeat(2)
    assert (data.time[drawn] <= latest).all()
    assert drawn[:, latest == 4].unique().tolist() == [0, 1, 2, 3, 4]


def test_no_node_is_there_by_the_time_of_a_seed():
    data = homogeneous()
    data.time = torch.full((300,), 100)
    loader = LinkNeighborLoader(
        data, [2], data.edge_index[:, :9], neg_sampling="binary", batch_size=9, time_attr="time",
        edge_label_time=torch.zeros(9, dtype=torch.long),
    )  # fmt: skip
    with pytest.raises(ValueError, match="none for seed edge 0 of the batch in 100 draws of 0 "):
        next(iter(loader))
