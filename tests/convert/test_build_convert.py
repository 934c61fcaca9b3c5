"""Conversion in a budget: time order, memory, and what a kill or a full disk leaves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from convert_support import converted
from full_disk import largest_file
from store_files import edit_schema
from torch_geometric.data import HeteroData

import pyg_graphzero as gz
from pyg_graphzero.conversion.options import Choices
from pyg_graphzero.conversion.plan import EdgePlan, GraphPlan, NodePlan
from pyg_graphzero.conversion.write import write_plan
from pyg_graphzero.store import edge_order
from pyg_graphzero.store.csc import CscOptions, EdgeChunk
from pyg_graphzero.util.progress import Progress
from pyg_graphzero.util.system import rss
from pyg_graphzero.util.workspace import MIN_ROOM, Workspace

RNG = np.random.default_rng(0)
EDGES = RNG.integers(0, 100, (2, 3000))
TIMES = RNG.integers(0, 40, 3000)


def by_time(path: Path) -> torch.Tensor:
    """``[2, num_edges]``: destination and time of every slot."""
    with gz.open(path) as store:
        contents = store.contents
        indptr, indices = contents.csc(None)
        dst = torch.repeat_interleave(torch.arange(indptr.numel() - 1), indptr.diff())
        attrs = contents.schema.edge_types[0].attrs
        if "time" in attrs:
            return torch.stack([dst, contents.view(attrs["time"])])
        times = contents.view(contents.schema.node_types[0].attrs["time"])
        return torch.stack([dst, times[indices.to(torch.int64)]])


@pytest.mark.parametrize("owner", ["edge", "node"])
def test_stored_order_is_used(tmp_path: Path, owner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attrs = {"edge_attrs": {"time": TIMES}}
    if owner == "node":
        attrs = {"node_attrs": {"time": TIMES[:100]}}
    seeds = torch.arange(50)
    options = {
        "num_neighbors": [4, 4],
        "input_nodes": seeds,
        "time_attr": "time",
        "input_time": torch.full((50,), 20),
        "batch_size": 25,
        "temporal_strategy": "last",
    }
    batches = []
    for name, order in (("plain", None), ("sorted", "time")):
        summary = gz.convert(EDGES, tmp_path / name, time_attr=order, **attrs)
        assert summary.edges[None].time_order == order
        if order is not None:
            # Sorting in memory would need this.
            monkeypatch.setattr(edge_order, "_rise", lambda indptr, times: pytest.fail("ranked"))
        loader = gz.loader.NeighborLoader(gz.open(tmp_path / name).data(), **options)
        batches.append([batch.e_id.sort().values.tolist() for batch in loader])
    assert batches[0] == batches[1]
    dst, times = by_time(tmp_path / "sorted")
    key = dst * 1000 + times
    assert bool((key[1:] >= key[:-1]).all())


def test_changed_times_are_sorted_again(tmp_path: Path) -> None:
    data = converted(EDGES, tmp_path / "s", edge_attrs={"time": TIMES}, time_attr="time")
    data.time = -data.time
    loader = gz.loader.NeighborLoader(
        data,
        [3],
        torch.arange(100),
        time_attr="time",
        input_time=torch.full((100,), -20),
        temporal_strategy="last",
        batch_size=100,
    )
    batch = next(iter(loader))
    assert bool((data.time[batch.e_id] <= -20).all())
    store = gz.open(tmp_path / "s", mode="r+")
    record = store.contents.schema.edge_types[0]
    assert record.time_order == "time"
    store.handle.edit(lambda editor: editor.remove_attr(editor.store.edge_types[0], "time"))
    store.close()
    assert gz.open(tmp_path / "s").contents.schema.edge_types[0].time_order is None


def test_order_by_an_attribute_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="time_attr='when': found in no edge type"):
        gz.convert(EDGES, tmp_path / "s", time_attr="when")
    assert os.listdir(tmp_path) == []
    gz.convert(EDGES, tmp_path / "s", edge_attrs={"time": TIMES}, time_attr="time")
    edit_schema(tmp_path / "s", lambda body: body["edge_types"][0].update(time_order="gone"))
    with pytest.raises(gz.FormatError, match="time_order 'gone', expected an attribute there is"):
        gz.open(tmp_path / "s")


def test_types_are_sorted_where_they_have_times(tmp_path: Path) -> None:
    data = HeteroData()
    data["a"].num_nodes = data["b"].num_nodes = 100
    data["a", "x", "b"].edge_index = torch.from_numpy(EDGES)
    data["a", "x", "b"].time = torch.from_numpy(TIMES)
    data["b", "y", "a"].edge_index = torch.from_numpy(EDGES)
    summary = gz.convert(data, tmp_path / "s", time_attr="time")
    orders = [edge.time_order for edge in summary.edges.values()]
    assert orders == ["time", None]


def test_summary(tmp_path: Path) -> None:
    edges = np.array([[0, 0, 1, 2, 2], [1, 1, 1, 0, 3]])
    summary = gz.convert(edges, tmp_path / "s", num_nodes=6)
    edge = summary.edges[None]
    assert (edge.num_input, edge.num_edges, edge.duplicates, edge.self_loops) == (5, 5, 1, 1)
    assert edge.degrees == {"min": 0, "25%": 0, "median": 0, "75%": 1, "99%": 3, "max": 3}
    assert summary.nodes[None].isolated == 2
    assert summary.peak_memory > 10_000_000
    assert "in-degrees: min 0, 25% 0, median 0, 75% 1, 99% 3, max 3" in str(summary)


def test_too_little_memory_says_how_much_is_enough(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"memory='1MB': found 1000000 bytes, expected \d+MB"):
        gz.convert(EDGES, tmp_path / "s", memory="1MB")
    with pytest.raises(ValueError, match=r"memory: found \d+ bytes, expected \d+MB or more: \d+"):
        gz.convert(EDGES, tmp_path / "s", memory=rss() + MIN_ROOM + (8 << 20), num_nodes=1 << 33)
    with pytest.raises(ValueError, match="memory='much': expected a size such as 4GB"):
        gz.convert(EDGES, tmp_path / "s", memory="much")
    with pytest.raises(FileNotFoundError):
        gz.convert(EDGES, tmp_path / "s", tmp=tmp_path / "nowhere")
    assert os.listdir(tmp_path) == []


def plan_of(chunks: int, fail_at: int | None = None, edge_ids: bool = True) -> GraphPlan:
    """A stream of ``chunks`` × 100,000 random edges among 50,000 nodes that may fail on the way."""

    def stream() -> Iterator[EdgeChunk]:
        rng = np.random.default_rng(1)
        for i in range(chunks):
            if i == fail_at:
                raise gz.InputError("input", f"row {i}", "garbage", "an edge")
            yield EdgeChunk(*rng.integers(0, 50_000, (2, 100_000)))

    plan = GraphPlan(False, {None: NodePlan(50_000)})
    plan.edges[None] = EdgePlan(stream, chunks * 100_000, CscOptions(edge_ids=edge_ids))
    return plan


@pytest.mark.parametrize("edge_ids", [True, False])
def test_an_error_at_the_last_row(tmp_path: Path, edge_ids: bool) -> None:
    gz.convert(EDGES, tmp_path / "s")
    with Workspace(tmp_path / "s", rss() + MIN_ROOM + (1 << 20)) as workspace:
        options = {
            "choices": Choices(),
            "force": True,
            "progress": Progress(False),
            "workspace": workspace,
        }
        with pytest.raises(gz.InputError, match="row 4"):
            write_plan(plan_of(5, fail_at=4, edge_ids=edge_ids), tmp_path / "s", **options)
    assert os.listdir(tmp_path) == ["s"]
    assert gz.open(tmp_path / "s").data().num_edges == 3000


@pytest.mark.parametrize("edge_ids", [True, False])
def test_a_full_disk(tmp_path: Path, edge_ids: bool) -> None:
    gz.convert(EDGES, tmp_path / "s")
    edges = RNG.integers(0, 1000, (2, 100_000))
    with largest_file(100_000), pytest.raises(OSError) as caught:
        gz.convert(edges, tmp_path / "s", edge_ids=edge_ids, force=True)
    assert "topology.gl" in str(caught.value.filename) or "edge_id" in str(caught.value.filename)
    assert os.listdir(tmp_path) == ["s"]
