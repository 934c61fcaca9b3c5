"""Data derived from an attribute follows its changes, and no other data does.

Every edit is made to a store, and to the same graph in memory; then all that shows it is compared:
values, neighbours restricted by time, draws by weight, layers that normalise by degrees, ids.
A process that had the store open goes on with what it opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import pyg_graphzero as gz
from graphs import random_edges
from pyg_graphzero.loader import LinkNeighborLoader, NeighborLoader

NUM_NODES, NUM_EDGES = 60, 400
EDGES = (None, None)  # PyG's name for the group of a homogeneous graph's edges


def random(seed: int, *size: int, high: int = 20) -> Tensor:
    return torch.randint(high, size, generator=torch.Generator().manual_seed(seed))


def graph() -> Data:
    return Data(
        x=random(1, NUM_NODES, 3).float(),
        time=random(2, NUM_NODES),
        edge_index=random_edges(NUM_NODES, NUM_NODES, NUM_EDGES, 3),
        edge_time=random(4, NUM_EDGES),
        w=(random(5, NUM_EDGES) % 2).float(),
        num_nodes=NUM_NODES,
    )


Edit = Callable[[gz.Store, Data], None]


def replaced(group: Any, attr: str, value: Callable[[Tensor], Tensor]) -> Edit:
    """All rows are other ones."""

    def edit(store: gz.Store, data: Data) -> None:
        data[attr] = value(data[attr])
        store.feature_store.put_tensor(data[attr], group_name=group, attr_name=attr, index=None)

    return edit


def removed_and_published(store: gz.Store, data: Data) -> None:
    """Removes the times and publishes new ones as a column that is written row by row."""
    store.feature_store.remove_tensor(group_name=None, attr_name="time", index=None)
    data.time = data.time.flip(0)
    column = store.create_column("time", (), dtype=torch.int64)
    column.put_tensor(data.time)
    column.publish()


EDITS: dict[str, Edit] = {
    "x": replaced(None, "x", lambda x: x.flip(0)),
    "x, wider": replaced(None, "x", lambda x: torch.cat([x, x], 1)),
    "times of nodes": replaced(None, "time", lambda time: time.flip(0)),
    "fractional times of nodes": replaced(None, "time", lambda time: time.flip(0) + 0.5),
    "times of nodes, published": removed_and_published,
    "times of edges": replaced(EDGES, "edge_time", lambda time: time.flip(0)),
    "weights": replaced(EDGES, "w", lambda w: 1 - w),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Stores of one graph: in its own order, by node times, and by edge times."""
    folder = tmp_path_factory.mktemp("edits")
    for name, options in {
        "plain": {},
        "by time": {"time_attr": "time"},
        "by time of edges": {"time_attr": "edge_time"},
    }.items():
        gz.convert(graph(), folder / name, progress=False, **options)
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture
def opened(request, stores, tmp_path):
    import shutil

    return gz.open(shutil.copytree(stores[request.param], tmp_path / "store"), "r+")


def neighbors(data: Any, time_attr: str, seed_time: Any) -> list[list[int]]:
    """The edges that each seed may have, by a loader: its destination, and its number."""
    loader = NeighborLoader(
        data, [-1], torch.arange(NUM_NODES), batch_size=NUM_NODES, time_attr=time_attr,
        input_time=torch.full((NUM_NODES,), seed_time),
    )  # fmt: skip
    (batch,) = loader
    return sorted(torch.stack([batch.edge_index[1], batch.e_id], 1).tolist())


def check(found: Any, data: Data) -> None:
    """All that is seen of a store is what is seen of the graph in memory."""
    for attr in ("x", "time", "edge_index", "edge_time", "w"):
        assert torch.equal(found[attr], data[attr]), attr
    row, col = data.edge_index
    for attr, times in (("time", data.time[row]), ("edge_time", data.edge_time)):
        limit = 9.5 if times.is_floating_point() else 9
        allowed = (times <= limit).nonzero().view(-1)
        expected = sorted(torch.stack([col[allowed], allowed], 1).tolist())
        assert neighbors(found, attr, limit) == expected, attr
    # Two draws of each, and none of weight 0.
    loader = NeighborLoader(found, [2], batch_size=NUM_NODES, weight_attr="w", shuffle=False)
    (batch,) = loader
    assert bool((data.w[batch.e_id] > 0).all())
    positive = torch.zeros(NUM_NODES).index_add_(0, col, (data.w > 0).float())
    drawn = torch.bincount(batch.n_id[batch.edge_index[1]], minlength=NUM_NODES)
    assert torch.equal(drawn, positive.clamp(max=2).long())
    assert torch.equal(batch.x, data.x[batch.n_id])
    (links,) = LinkNeighborLoader(found, [0], batch_size=NUM_EDGES)
    ends = links.n_id[links.edge_label_index]
    assert torch.equal(torch.sort(ends[0] * NUM_NODES + ends[1]).values,
                       torch.sort(row * NUM_NODES + col).values)  # fmt: skip


@pytest.mark.parametrize(
    ("opened", "edit"),
    [
        *(("plain", edit) for edit in EDITS),
        *(("by time", edit) for edit in EDITS if "times of nodes" in edit),
        *(("by time of edges", edit) for edit in EDITS if "times of edges" in edit),
    ],
    indirect=["opened"],
)
def test_an_edit_is_seen_everywhere(opened, edit):
    before, data = graph(), graph()
    path = opened.path
    reader = gz.open(path)
    old, loader = reader.data(), NeighborLoader(
        reader, [-1], torch.arange(NUM_NODES), batch_size=NUM_NODES, time_attr="time"
    )  # fmt: skip
    own = opened.data()
    (first,) = loader
    EDITS[edit](opened, data)
    check(opened.data(), data)
    assert opened.verify().ok
    assert torch.equal(opened.ids(), torch.arange(NUM_NODES))
    # A reader who opens it now.
    check(gz.open(path).data(), data)
    # And who had it open.
    for held in (old, own, reader.data()):
        assert torch.equal(held.time, before.time)
        assert torch.equal(held.edge_index, before.edge_index)
    (again,) = loader
    assert torch.equal(first.e_id, again.e_id)
    check(own, before)


@pytest.mark.parametrize("opened", ["plain", "by time"], indirect=True)
def test_degrees_are_those_of_now(opened):
    """Layers that normalise, over the graph as it was, and as it is."""
    data, path = graph(), opened.path
    model = GCN(3, 4, 2, 5).eval()
    for number in range(2):
        if number:
            with gz.open(path, "r+") as store:
                EDITS["weights"](store, data)
        else:
            opened.close()
        gz.inference.layerwise(model, path, out=f"out{number}", edge_weight="w")
        with torch.no_grad():
            expected = model(data.x, data.edge_index, edge_weight=data.w)
        found = gz.open(path).data()[f"out{number}"]
        assert torch.allclose(found[:], expected, atol=1e-4)


def test_times_of_one_type_are_not_those_of_another(tmp_path):
    """Replacing a type's times takes the order from the edges that begin there, and only these."""
    from torch_geometric.data import HeteroData

    data = HeteroData()
    for number, name in enumerate(["a", "b"]):
        data[name].num_nodes, data[name].time = 30, random(number, 30)
        data[name, "to", "a"].edge_index = random_edges(30, 30, 200, number)
    gz.convert(data, tmp_path / "s", time_attr="time", progress=False)
    with gz.open(tmp_path / "s", "r+") as store:
        data["b"].time = data["b"].time.flip(0)
        store.feature_store.put_tensor(data["b"].time, group_name="b", attr_name="time", index=None)
        orders = {edge.name[0]: edge.time_order for edge in store.contents.schema.edge_types}
        assert orders == {"a": "time", "b": None}
        loader = NeighborLoader(
            store, [-1], ("a", torch.arange(30)), batch_size=1, time_attr="time",
            input_time=torch.full((30,), 9),
        )  # fmt: skip
        for seed, batch in enumerate(loader):
            for name in ("a", "b"):
                row, col = data[name, "to", "a"].edge_index
                allowed = (col == seed) & (data[name].time[row] <= 9)
                found = batch[name, "to", "a"].e_id
                assert np.array_equal(np.sort(found), allowed.nonzero().view(-1)), (seed, name)
