"""An epoch's reads are rehearsed within the bounds that the plan and the doctor set."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import HeteroData

import pyg_graphzero as gz
from graphs import random_edges
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.needs import Kind, files_of
from pyg_graphzero.memory.plan import MemoryPlan
from pyg_graphzero.tune.rehearsal import Sampled, rehearse
from pyg_graphzero.util.disk import DiskSpeed

DISK = DiskSpeed("a disk", 75_000, 1.2e9, 128, True, 1 << 30)


@pytest.fixture(scope="module")
def loader(tmp_path_factory):
    """Two types with two wide columns each."""
    data = HeteroData()
    for name in ("a", "b"):
        data[name].x, data[name].z = torch.zeros(30_000, 100), torch.zeros(30_000, 60)
    for src in ("a", "b"):
        for dst in ("a", "b"):
            data[src, "to", dst].edge_index = random_edges(30_000, 30_000, 150_000, 7)
    path = tmp_path_factory.mktemp("several") / "store"
    gz.convert(data, path, progress=False)
    return gz.loader.NeighborLoader(
        gz.open(path).data(), [6, 4], input_nodes=("a", torch.arange(20_000)), batch_size=32,
        edge_ids=False,
    )  # fmt: skip


def distinct_bytes(batches):
    """All rows of these batches, each once."""
    rows = (torch.cat(lists).unique().numel() for lists in zip(*batches, strict=True))
    return sum(rows) * 4 * (100 + 60)


@pytest.mark.parametrize("most", [12, costs.MAX_WINDOW])
def test_windows_have_all_of_their_room_and_no_more(loader, most):
    sampled = Sampled.of(loader, costs.MAX_WINDOW, 60.0, 1 << 30, keeps_edges=False)
    batches, files = sampled.batches, files_of(loader)
    room = int(1.1 * distinct_bytes(batches[:12]))
    hot = {file.name: 0 for file in files if file.kind is Kind.ROWS}
    plan = MemoryPlan(1 << 30, 0, {}, hot, windows=room, window=most)
    at, counts = 0, []
    for window in rehearse(sampled, plan, files, DISK):
        of_this = batches[at : at + window.count]
        assert distinct_bytes(of_this) <= room + distinct_bytes(of_this[:1])
        at += window.count
        counts.append(window.count)
    assert most > 12 or counts == [12] * (len(batches) // 12)


@pytest.mark.parametrize("keeps_edges", [False, True])
def test_sampled_batches_are_bounded(loader, keeps_edges):
    most = 2 * 10**6
    found = Sampled.of(loader, 10_000, 60.0, most, keeps_edges).batches
    sizes = [sum(rows.nbytes for rows in lists) for lists in found]
    assert most < sum(sizes) <= most + sizes[-1]
    assert all(len(lists) == (6 if keeps_edges else 2) for lists in found)
