"""Seeds of link prediction in a graph: what ``RandomLinkSplit`` and link loaders add to it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from convert_support import converted, stored
from differential import difference
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import RandomLinkSplit

from graphs import homogeneous

RATES = ("user", "rates", "movie")


def split(is_hetero: bool, **options: Any) -> Data | HeteroData:
    """A training graph with labelled pairs of nodes."""
    if is_hetero:
        data = HeteroData()
        data["user"].x, data["movie"].x = torch.randn(30, 4), torch.randn(20, 3)
        ends = torch.stack([torch.randint(30, (200,)), torch.randint(20, (200,))])
        data[RATES].edge_index, data[RATES].stars = ends, torch.rand(200)
        data["movie", "rev_rates", "user"].edge_index = ends.flip(0)
        options |= {"edge_types": RATES, "rev_edge_types": ("movie", "rev_rates", "user")}
    else:
        data = homogeneous()
    train, _, _ = RandomLinkSplit(**options)(data)
    return train


@pytest.mark.parametrize("is_hetero", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"add_negative_train_samples": False},
        {"split_labels": True},
        {"disjoint_train_ratio": 0.4, "neg_sampling_ratio": 2.0},
    ],
    ids=["negatives", "positives", "split", "disjoint"],
)
def test_random_link_split(tmp_path, options, is_hetero):
    data = split(is_hetero, **options)
    assert not difference(converted(data, tmp_path / "store"), data)


def test_triplets(tmp_path):
    """Seeds as a link loader leaves them, ids of two types, negatives side by side."""
    data = split(True)
    del data[RATES].edge_label, data[RATES].edge_label_index
    data["user"].src_index = torch.randint(30, (50,))
    data["movie"].dst_pos_index = torch.randint(20, (50,))
    data["movie"].dst_neg_index = torch.randint(20, (50, 3))
    data["movie"].batch_size = 50
    store = stored(data, tmp_path / "store")
    assert not difference(store.data(), data)
    assert not difference(converted(store.data(), tmp_path / "again"), data)
    movie = next(t for t in store.info()["node_types"] if t["name"] == "movie")
    assert movie["others"]["batch_size"] == 50
    assert movie["others"]["dst_neg_index"]["shape"] == [50, 3]
    assert store.verify().ok


@pytest.mark.parametrize("is_hetero", [False, True])
def test_labels_stay_with_their_pairs(tmp_path, is_hetero):
    """One label per edge as long as no option adds or removes edges."""
    data = split(is_hetero, num_val=0, num_test=0, add_negative_train_samples=False)
    part = data[RATES] if is_hetero else data
    part.edge_index = part.edge_index[:, :100].repeat(1, 2)
    part.edge_label_index = part.edge_index
    part.edge_label = torch.arange(part.edge_index.shape[1])
    for key in ("edge_attr", "edge_weight", "stars", "edge_time", "e"):
        if key in part:
            del part[key]
    found = converted(data, tmp_path / "store", coalesce="sum")
    found = found[RATES] if is_hetero else found
    assert found.num_edges < part.num_edges
    assert torch.equal(found.edge_label_index, part.edge_label_index)
    assert torch.equal(found.edge_label, part.edge_label)
