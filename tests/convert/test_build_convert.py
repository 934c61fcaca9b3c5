"""Conversion in a budget: time order, memory, and what a kill or a full disk leaves."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from convert_support import converted, refused
from full_disk import largest_file
from store_files import edit_schema

import pyg_graphzero as gz
from pyg_graphzero.store import edge_order
from pyg_graphzero.util.system import rss
from pyg_graphzero.util.workspace import MIN_ROOM

RNG = np.random.default_rng(0)
EDGES = RNG.integers(0, 100, (2, 3000))
TIMES = RNG.integers(0, 40, 3000)


LAST = {"time_attr": "time", "temporal_strategy": "last"}


@pytest.mark.parametrize("owner", ["edge", "node"])
def test_stored_order_is_used(tmp_path, owner, monkeypatch):
    attrs = {"edge_attrs": {"time": TIMES}}
    if owner == "node":
        attrs = {"node_attrs": {"time": TIMES[:100]}}
    batches = []
    for name, order in (("plain", None), ("sorted", "time")):
        summary = gz.convert(EDGES, tmp_path / name, time_attr=order, **attrs)
        assert summary.edges[None].time_order == order
        if order is not None:
            # Sorting in memory would need this.
            monkeypatch.setattr(edge_order, "_rise", lambda indptr, times: pytest.fail("ranked"))
        times = {"input_time": torch.full((50,), 20), **LAST}
        data = gz.open(tmp_path / name).data()
        loader = gz.loader.NeighborLoader(data, [4, 4], torch.arange(50), batch_size=25, **times)
        batches.append([batch.e_id.sort().values.tolist() for batch in loader])
    assert batches[0] == batches[1]


def test_changed_times_are_sorted_again(tmp_path):
    data = converted(EDGES, tmp_path / "s", edge_attrs={"time": TIMES}, time_attr="time")
    data.time = -data.time
    times = {"input_time": torch.full((100,), -20), **LAST}
    loader = gz.loader.NeighborLoader(data, [3], torch.arange(100), batch_size=100, **times)
    batch = next(iter(loader))
    assert bool((data.time[batch.e_id] <= -20).all())


def test_order_by_an_attribute_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="time_attr='when': found in no edge type"):
        gz.convert(EDGES, tmp_path / "s", time_attr="when")
    assert os.listdir(tmp_path) == []
    gz.convert(EDGES, tmp_path / "s", edge_attrs={"time": TIMES}, time_attr="time")
    edit_schema(tmp_path / "s", lambda body: body["edge_types"][0].update(time_order="gone"))
    with pytest.raises(gz.FormatError, match="time_order 'gone', expected an attribute there is"):
        gz.open(tmp_path / "s")


def test_summary(tmp_path):
    edges = np.array([[0, 0, 1, 2, 2], [1, 1, 1, 0, 3]])
    summary = gz.convert(edges, tmp_path / "s", num_nodes=6)
    edge = summary.edges[None]
    assert (edge.num_input, edge.num_edges, edge.duplicates, edge.self_loops) == (5, 5, 1, 1)
    assert edge.degrees == {"min": 0, "25%": 0, "median": 0, "75%": 1, "99%": 3, "max": 3}
    assert summary.nodes[None].isolated == 2
    assert summary.peak_memory > 10_000_000
    assert "in-degrees: min 0, 25% 0, median 0, 75% 1, 99% 3, max 3" in str(summary)


def test_too_little_memory_says_how_much_is_enough(tmp_path):
    little = rss() + MIN_ROOM + (8 << 20)
    for words, error, options in (
        (r"memory='1MB': found 1000000 bytes, expected \d+MB", ValueError, {"memory": "1MB"}),
        (
            r"memory: found \d+ bytes, expected \d+MB or more: \d+",
            ValueError,
            {"memory": little, "num_nodes": 1 << 33},
        ),
        ("memory='much': expected a size such as 4GB", ValueError, {"memory": "much"}),
        ("nowhere'", FileNotFoundError, {"tmp": tmp_path / "nowhere"}),
    ):
        refused(EDGES, tmp_path / "s", words, error, **options)


@pytest.mark.parametrize("edge_ids", [True, False])
def test_what_was_there_stays(tmp_path, edge_ids):
    """Where the last row is faulty, and where the disk is full."""
    gz.convert(EDGES, tmp_path / "s")
    edges = RNG.integers(0, 1000, (2, 100_000))
    options = {"edge_ids": edge_ids, "force": True}
    with largest_file(100_000), pytest.raises(OSError) as caught:
        gz.convert(edges, tmp_path / "s", **options)
    assert "topology.gl" in str(caught.value.filename) or "edge_id" in str(caught.value.filename)
    assert os.listdir(tmp_path) == ["s"]
    edges[1, -1] = -1
    refused(edges, tmp_path / "s", r"dst\[99999\]: found id -1", **options)
    assert gz.open(tmp_path / "s").data().num_edges == 3000
