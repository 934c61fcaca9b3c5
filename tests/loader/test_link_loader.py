"""LinkNeighborLoader: seed edges, negatives, times, and all edges without a list of them."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest
import torch
from paging import paged
from torch_geometric.data import Data
from torch_geometric.sampler import NegativeSampling

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous, write_store
from pyg_graphzero.loader import LinkNeighborLoader
from pyg_graphzero.memory import costs

WRITES = ("author", "writes", "paper")
AS_STORED = gz.SamplingOptions(seed_order="store")
NON_EDGES = gz.SamplingOptions(exclude_edges=True)


def seeds_of(batch):
    return batch.n_id[batch.edge_label_index]


def test_the_order_of_the_input_within_a_budget(data, store, monkeypatch):
    with paged():
        loader = LinkNeighborLoader(gz.open(store.path), [2], batch_size=70)
        loader = pickle.loads(pickle.dumps(loader))
        for _ in range(2):
            ends = torch.cat([seeds_of(batch) for batch in loader], dim=1)
            assert torch.equal(ends, data.edge_index)
    picked = loader([2999, 0, 1200])
    assert torch.equal(seeds_of(picked), data.edge_index[:, [2999, 0, 1200]])
    monkeypatch.setattr(costs, "LEAST_SLOTS", 400)
    monkeypatch.setattr(costs, "SLOTS_SHARE", 0.0)
    with pytest.raises(gz.MemoryBudgetError, match=r"3,000 seed edges of .*seed_order='store'"):
        LinkNeighborLoader(store, [2])
    assert len(LinkNeighborLoader(store, [2], options=AS_STORED)) == 3000


def test_damaged_edge_ids_are_found(store):
    path = store.path / store.contents.edge_type(None).edge_id
    with path.open("r+b") as file:
        file.seek(store.contents.column("edge/edge_id.gd").data_offset)
        file.write((7).to_bytes(4, "little") * 2)
    with pytest.raises(gz.FormatError, match="edge ids that repeat or are out of range"):
        LinkNeighborLoader(gz.open(store.path), [2])


@pytest.mark.parametrize("shuffle", [False, True])
def test_seeds_in_the_order_of_the_store(data, store, shuffle):
    loader = LinkNeighborLoader(
        store, [2], batch_size=70, options=AS_STORED, shuffle=shuffle,
        edge_label=torch.arange(3000),
    )  # fmt: skip
    ids = []
    for batch in loader:
        assert torch.equal(seeds_of(batch), data.edge_index[:, batch.input_id])
        assert torch.equal(batch.edge_label, batch.input_id)
        ids.append(batch.input_id)
    ids = torch.cat(ids)
    assert ids.sort().values.tolist() == list(range(3000))
    if not shuffle:
        assert (data.edge_index[1, ids].diff() >= 0).all()
    for given in ((data, None), (store, data.edge_index[:, :9])):
        with pytest.raises(ValueError, match="seed_order='store': found seed edges of another"):
            LinkNeighborLoader(given[0], [2], edge_label_index=given[1], options=AS_STORED)


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("amount", [1, 2.5])
def test_binary_negatives(data, store, disjoint, amount):
    loader = LinkNeighborLoader(
        store, [2], neg_sampling=NegativeSampling("binary", amount), batch_size=64,
        disjoint=disjoint,
    )  # fmt: skip
    batch = next(iter(loader))
    negatives = -(-int(64 * amount * 2) // 2)
    assert batch.edge_label.tolist() == [1.0] * 64 + [0.0] * negatives
    assert torch.equal(seeds_of(batch)[:, :64], data.edge_index[:, batch.input_id])
    assert ((seeds_of(batch) >= 0) & (seeds_of(batch) < 300)).all()
    if disjoint:  # both ends share a tree, and negatives that of a positive
        trees = (torch.arange(64 + negatives) % 64).tolist()
        assert batch.batch[batch.edge_label_index].tolist() == [trees, trees]


@pytest.mark.parametrize("source", ["memory", "store"])
@pytest.mark.parametrize("labels", [
    torch.arange(3000) % 2, torch.arange(6000).view(3000, 2) % 4,
    torch.arange(1.0, 12001).view(3000, 4),
])  # fmt: skip
def test_labels_of_several_columns(homo, source, labels):
    """Labels of a negative are all 0, in PyG too, and those of edges make room for it."""
    loader = LinkNeighborLoader(
        homo[source == "store"], [2], edge_label=labels, neg_sampling_ratio=2.0, batch_size=64
    )
    batch = next(iter(loader))
    assert batch.edge_label.shape == (3 * 64, *labels.shape[1:])
    assert batch.edge_label.dtype == labels.dtype
    is_raised = bool(labels.min() == 0)
    assert torch.equal(batch.edge_label[:64], labels[batch.input_id] + is_raised)
    assert (batch.edge_label[64:] == 0).all()


def test_triplets_of_a_split_keep_none_of_its_pairs(homo):
    data = copy.copy(homo[0])
    data.edge_label_index, data.edge_label_time = data.edge_index[:, :9], torch.arange(9)
    for neg_sampling, is_there in (("triplet", False), ("binary", True)):
        batch = next(iter(LinkNeighborLoader(data, [2], neg_sampling=neg_sampling, batch_size=4)))
        assert ("edge_label_index" in batch) is is_there
        assert "edge_label_time" not in batch


def test_weighted_negatives(homo):
    weight = torch.zeros(300)
    weight[[4, 9]] = 1.0
    loader = LinkNeighborLoader(
        homo[1], [1], batch_size=64,
        neg_sampling=NegativeSampling("binary", 1.0, src_weight=weight, dst_weight=weight),
    )  # fmt: skip
    batch = next(iter(loader))
    assert set(seeds_of(batch)[:, 64:].flatten().tolist()) == {4, 9}


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_negatives_that_are_not_edges(disjoint, mode):
    # Half of all pairs are edges, so plain negatives hit many.
    mask = torch.rand(30, 30) < 0.5
    data = Data(edge_index=mask.nonzero().t().contiguous(), num_nodes=30)
    hits = {}
    for exclude in (False, True):
        loader = LinkNeighborLoader(
            data, [2], neg_sampling=NegativeSampling(mode, 3), batch_size=40, disjoint=disjoint,
            options=gz.SamplingOptions(exclude_edges=exclude),
        )  # fmt: skip
        hits[exclude] = 0
        for batch in loader:
            if mode == "binary":
                src, dst = seeds_of(batch)[:, batch.input_id.numel() :]
            else:
                src = batch.n_id[batch.src_index].view(-1, 1).expand(-1, 3)
                dst = batch.n_id[batch.dst_neg_index]
            hits[exclude] += int(mask[src, dst].sum())
    assert hits[True] == 0
    assert hits[False] > 100


def test_negatives_that_cannot_be(homo):
    full = Data(edge_index=torch.ones(4, 4).nonzero().t().contiguous(), num_nodes=4)
    loader = LinkNeighborLoader(full, [1], neg_sampling="binary", options=NON_EDGES)
    with pytest.raises(ValueError, match="negatives: found none for source node"):
        next(iter(loader))
    few = NegativeSampling("triplet", dst_weight=torch.ones(3))
    with pytest.raises(ValueError, match="dst_weight: found 3, expected one for each of 4 nodes"):
        next(iter(LinkNeighborLoader(full, [1], neg_sampling=few)))


def test_a_relation_that_carries_no_messages(hetero):
    edges = torch.stack([torch.arange(60) % 200, torch.arange(60) % 120])
    likes = ("paper", "likes", "author")
    given = {"edge_label_index": (likes, edges), "neg_sampling": "binary"}
    batch = next(iter(LinkNeighborLoader(hetero[1], [3, 2], **given)))
    assert not {"edge_index", "e_id"} & set(batch[likes].keys())
    with pytest.raises(ValueError, match=r"or seed edges \[2, n\] between two of"):
        LinkNeighborLoader(hetero[1], [2], edge_label_index=likes)
    with pytest.raises(ValueError, match=r"found edge type \('paper', 'likes', 'nobody'\)"):
        LinkNeighborLoader(hetero[1], [2], edge_label_index=(("paper", "likes", "nobody"), edges))
    loader = LinkNeighborLoader(hetero[1], [2], options=NON_EDGES, **given)
    with pytest.raises(ValueError, match=r"exclude_edges: found edge type \('paper', 'likes'"):
        next(iter(loader))


def test_bad_edges(store, hetero):
    with pytest.raises(IndexError, match=r"label_index\[0\]\[1\]: found node 300, expected 0 <="):
        LinkNeighborLoader(store, [2], edge_label_index=torch.tensor([[0, 300], [1, 1]]))
    with pytest.raises(ValueError, match=r"found torch.int64 of shape \[3\], expected integers"):
        LinkNeighborLoader(store, [2], edge_label_index=torch.arange(3))
    with pytest.raises(ValueError, match="expected none with triplet negatives"):
        LinkNeighborLoader(store, [2], neg_sampling="triplet", edge_label=torch.arange(3000))
    with pytest.raises(ValueError, match="edge_label: found 5, expected one for each of 3000"):
        LinkNeighborLoader(store, [2], edge_label=torch.zeros(5))
    with pytest.raises(ValueError, match="found one without the other"):
        LinkNeighborLoader(store, [2], edge_label_time=torch.zeros(3000))
    with pytest.raises(ValueError, match="expected an edge type or"):
        LinkNeighborLoader(hetero[1], [2])
    with pytest.raises(ValueError, match=r"found edge type .* expected one of"):
        LinkNeighborLoader(hetero[1], [2], edge_label_index=(("paper", "eats", "paper"), "mask"))
    for seeds in (WRITES, (WRITES, None), (WRITES, torch.zeros(2, 1, dtype=torch.int64))):
        with pytest.raises(ValueError, match=r"found the type \('author'.* graph is homogeneous"):
            LinkNeighborLoader(store, [2], edge_label_index=seeds)


@pytest.mark.parametrize("exclude_edges", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_another_thread_that_draws_meanwhile_changes_nothing(
    homo, mode, weighted, exclude_edges, monkeypatch
):
    """Neither the negatives nor what that thread draws: a training step, or a memory plan."""
    weight = torch.rand(300) if weighted else None
    negatives = NegativeSampling(mode, 2, weight, weight)
    loader = LinkNeighborLoader(homo[1], [2], batch_size=40)
    seeds = loader.input_data[torch.arange(40)]
    expected = loader.link_sampler.sample_from_edges(seeds, negatives, 9, exclude_edges)
    drawn = []

    def beside(draw):
        def drawing(*args, **kwargs):
            thread = threading.Thread(target=lambda: drawn.append(torch.rand(3)))
            thread.start()
            thread.join()
            return draw(*args, **kwargs)

        return drawing

    monkeypatch.setattr(torch, "randint", beside(torch.randint))
    monkeypatch.setattr(torch, "multinomial", beside(torch.multinomial))
    torch.manual_seed(5)
    found = loader.link_sampler.sample_from_edges(seeds, negatives, 9, exclude_edges)
    assert torch.equal(found.node, expected.node)
    assert torch.equal(found.row, expected.row)
    own = torch.Generator().manual_seed(5)
    assert drawn
    for each in [*drawn, torch.rand(3)]:
        assert torch.equal(each, torch.rand(3, generator=own))


@pytest.mark.parametrize("exclude_edges", [False, True])
def test_negatives_of_a_subclass_are_its_own(homo, exclude_edges):
    class ToFew(NegativeSampling):
        def sample(self, num_samples, endpoint, num_nodes=None):
            return super().sample(num_samples, endpoint, 200) + 100

    loader = LinkNeighborLoader(
        homo[1], [2], neg_sampling=ToFew("binary", 3), batch_size=40,
        options=gz.SamplingOptions(exclude_edges=exclude_edges),
    )  # fmt: skip
    batch = next(iter(loader))
    assert batch.n_id[batch.edge_label_index[:, batch.edge_label == 0]].min() >= 100


@pytest.mark.parametrize("given", ["name", "mask"])
@pytest.mark.parametrize("where", ["memory", "store"])
@pytest.mark.parametrize("typed", [False, True])
def test_a_mask_of_edges(tmp_path, typed, where, given):
    data = heterogeneous() if typed else homogeneous()
    edges = data[WRITES] if typed else data
    edges.train_mask = torch.rand(edges.num_edges) < 0.3
    label = torch.arange(edges.num_edges)
    graph = data if where == "memory" else gz.open(write_store(data, tmp_path / "s")).data()
    seeds = "train_mask" if given == "name" else edges.train_mask
    loader = LinkNeighborLoader(
        graph, [2], (WRITES, seeds) if typed else seeds, edge_label=label, batch_size=50,
        shuffle=True,
    )  # fmt: skip
    seen = []
    for batch in loader:
        found = batch[WRITES] if typed else batch
        src, dst = (batch["author"], batch["paper"]) if typed else (batch, batch)
        ends = torch.stack(
            [src.n_id[found.edge_label_index[0]], dst.n_id[found.edge_label_index[1]]]
        )
        assert torch.equal(ends, edges.edge_index[:, found.input_id])
        assert torch.equal(found.edge_label, found.input_id)
        seen.append(found.input_id)
    assert torch.equal(torch.cat(seen).sort().values, edges.train_mask.nonzero().view(-1))


def test_masks_that_do_not_fit(homo):
    data = homogeneous()
    for mask in (torch.ones(9, dtype=torch.bool), "edge_attr"):
        with pytest.raises(ValueError, match=r"edge_label_index: found .*expected torch.bool"):
            LinkNeighborLoader(data, [2], mask)
    with pytest.raises(ValueError, match=r"found 'x_mask', expected the name .*: there are none"):
        LinkNeighborLoader(homo[1], [2], "x_mask")
