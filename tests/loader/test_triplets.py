"""Triplets of a source, a positive and negative destinations: laid out and labelled as PyG's are.

PyG's own functions make what is expected: ``edge_sample`` draws the negatives and says where they
are, ``LinkLoader.filter_fn`` puts it into a batch. Only the neighbourhoods are the engine's.
"""

from __future__ import annotations

import pytest
import torch
import torch_geometric.loader
from differential import parts, same
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    NegativeSampling,
    NodeSamplerInput,
)
from torch_geometric.sampler.neighbor_sampler import edge_sample

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous, write_store
from pyg_graphzero.loader import LinkNeighborLoader
from pyg_graphzero.sampling.base import Prepared
from pyg_graphzero.sampling.neighbor import NeighborSampler

KEY = 77
TYPES = {
    "homogeneous": None,
    "two types": ("author", "writes", "paper"),
    "one type": ("paper", "cites", "paper"),
}


def labelled(kind):
    """A graph with labels of its edges, and what a split leaves beside them."""
    random = torch.Generator().manual_seed(8)
    data = homogeneous() if TYPES[kind] is None else heterogeneous()
    edges = data if TYPES[kind] is None else data[TYPES[kind]]
    edges.edge_label = torch.randint(0, 5, (edges.edge_index.size(1),), generator=random)
    for store in [data] if TYPES[kind] is None else [data["paper"], data["author"]]:
        store.time = torch.randint(0, 50, (store.num_nodes,), generator=random)
    return data


class PygsSeeds(BaseSampler):
    """PyG's layout of seed edges, around which the engine samples."""

    def __init__(self, sampler, data):
        self.sampler = sampler
        self.node_time = None
        if sampler.graph.node_times:
            self.node_time = data.time if sampler.graph.edge_types == [None] else data.time_dict

    def sample_from_nodes(self, inputs):
        return self.sampler.sample_from_nodes(inputs)

    def sample_from_edges(self, inputs, neg_sampling=None):
        sizes = dict(self.sampler.graph.node_types)
        return edge_sample(
            inputs, self.around, sizes.get(None, sizes), self.sampler.disjoint, self.node_time,
            neg_sampling,
        )  # fmt: skip

    def around(self, seeds, times):
        seeds = seeds if isinstance(seeds, dict) else {None: seeds}
        times = times if isinstance(times, dict) else dict.fromkeys(seeds, times)
        inputs = [NodeSamplerInput(None, nodes, times[name], name) for name, nodes in seeds.items()]
        asked = [self.sampler.prepare_nodes(each).seeds[0] for each in inputs]
        out = self.sampler.sample(Prepared(asked, lambda sampled: None), KEY)
        return out

    @property
    def edge_permutation(self):
        return self.sampler.edge_permutation


@pytest.mark.parametrize("source", ["memory", "store"])
@pytest.mark.parametrize("amount", [1, 3])
@pytest.mark.parametrize("mode", ["plain", "disjoint", "times"])
@pytest.mark.parametrize("kind", TYPES)
def test_batches_are_pygs(tmp_path, kind, mode, amount, source):
    data, name = labelled(kind), TYPES[kind]
    given = data if source == "memory" else gz.open(write_store(data, tmp_path / "store")).data()
    edge_index = (data if name is None else data[name]).edge_index
    random = torch.Generator().manual_seed(1)
    chosen = torch.randint(0, edge_index.size(1), (40,), generator=random)
    times = None
    options = {"disjoint": mode == "disjoint"}
    if mode == "times":
        # No draw is refused: how often PyG draws again is not its layout.
        times, options = torch.randint(50, 60, (40,), generator=random), {"time_attr": "time"}
    neg_sampling = NegativeSampling("triplet", amount)
    loader = LinkNeighborLoader(
        given, [-1, -1], edge_label_index=edge_index[:, chosen] if name is None else
        (name, edge_index[:, chosen]), edge_label_time=times, neg_sampling=neg_sampling, **options,
    )  # fmt: skip
    seeds = EdgeSamplerInput(torch.arange(40), *edge_index[:, chosen], None, times, name)
    mine = loader.filter_fn(loader.link_sampler.sample_from_edges(seeds, neg_sampling, key=KEY))

    pygs = PygsSeeds(NeighborSampler(data, [-1, -1], **options), data)
    stock = torch_geometric.loader.LinkLoader(
        data, pygs, edge_label_index=(name, edge_index[:, chosen]) if name else
        edge_index[:, chosen], edge_label_time=times, neg_sampling=neg_sampling,
    )  # fmt: skip
    torch.manual_seed(KEY)
    theirs = stock.filter_fn(pygs.sample_from_edges(seeds, neg_sampling))

    mine, theirs = parts(mine), parts(theirs)
    for name_of, values in theirs.items():
        expected = {key: value for key, value in values.items() if value is not None}
        assert same(mine[name_of], expected), name_of
    src, dst = (None, None) if name is None else (name[0], name[2])
    assert mine[src]["src_index"].shape == mine[dst]["dst_pos_index"].shape == (40,)
    assert mine[dst]["dst_neg_index"].shape == ((40,) if amount == 1 else (40, amount))
    assert ("seed_time" in mine[src]) == (mode == "times")


@pytest.mark.parametrize("source", ["memory", "store"])
@pytest.mark.parametrize("kind", TYPES)
def test_labels_of_the_graphs_edges_are_those_of_sampled_edges(tmp_path, kind, source):
    """Labels that the graph has are attributes of its edges; seeds have none."""
    data, name = labelled(kind), TYPES[kind]
    given = data if source == "memory" else gz.open(write_store(data, tmp_path / "store"))
    loader = LinkNeighborLoader(
        given, [4, 3], edge_label_index=name, neg_sampling="triplet", batch_size=50, shuffle=True
    )
    batch = next(iter(loader))
    of, whole = (batch, data) if name is None else (batch[name], data[name])
    assert torch.equal(of.edge_label, whole.edge_label[of.e_id])
    assert of.edge_label.numel() == of.edge_index.size(1)
    assert "edge_label_index" not in of
    binary = LinkNeighborLoader(
        given, [4, 3], edge_label_index=name, neg_sampling="binary", batch_size=50
    )
    of = next(iter(binary))
    of = of if name is None else of[name]
    assert of.edge_label.tolist() == [1.0] * 50 + [0.0] * 50
