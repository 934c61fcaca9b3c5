"""Bounds of memory where there are several columns, types or blocks: what is really held, and that
no part of the room is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pyg_graphzero.memory.files import bytes_of_batches, files_of
from pyg_graphzero.memory.planner import choose_plan
from pyg_graphzero.memory.profile import profile
from pyg_graphzero.memory.simulate import Case, simulate
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GraphSAGE

import pyg_graphzero as gz
from graphs import random_edges
from pyg_graphzero import _core
from pyg_graphzero.inference.hop import Inputs
from pyg_graphzero.inference.passes import Task
from pyg_graphzero.inference.stack import stack_of
from pyg_graphzero.inference.sums import SummedPass
from pyg_graphzero.memory import costs
from pyg_graphzero.util import system
from pyg_graphzero.util.disk import DiskSpeed

DISK = DiskSpeed("a disk", 75_000, 1.2e9, 128, True, 1 << 30)
MB = 10**6


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Two types with two wide columns each."""
    data = HeteroData()
    for name in ("a", "b"):
        data[name].x = torch.zeros(30_000, 100)
        data[name].z = torch.zeros(30_000, 60)
    for src in ("a", "b"):
        for dst in ("a", "b"):
            data[src, "to", dst].edge_index = random_edges(30_000, 30_000, 150_000, 7)
    path = tmp_path_factory.mktemp("several") / "store"
    gz.convert(data, path, progress=False)
    return path


@pytest.fixture(scope="module")
def case(several):
    data = gz.open(several).data()
    loader = gz.loader.NeighborLoader(
        data, [6, 4], input_nodes=("a", torch.arange(20_000)), batch_size=32, edge_ids=False
    )
    contents = loader.graph_sampler.graph.contents
    found = profile(loader, seconds=60, keep=costs.MAX_WINDOW, keep_seconds=60, keep_bytes=1 << 30)
    batch = found.accesses.batch_size(*bytes_of_batches(loader))
    files = files_of(loader)
    made = Case(contents, loader.graph_sampler.graph, found, batch, 0, DISK)
    return made, files, loader


def distinct_bytes(case, batches, files):
    """Of the rows of so many batches, by NumPy's lights."""
    total = 0
    for number, name in enumerate(case.graph.node_types):
        rows = torch.cat([lists[number] for lists in batches]).unique().numel()
        attrs = case.contents.schema.node_type(name).attrs.values()
        total += rows * sum(f.row_bytes for f in files if f.name in attrs)
    return total


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_rehearsed_windows_have_all_of_their_room_and_no_more(case, share):
    made, files, _ = case
    rows = [f for f in files if f.kind == "node"]
    assert len(rows) == 4
    plan = made.divide(45 * MB, files)
    plan = replace(
        plan,
        hot={f.name: 0 for f in rows},
        cached=0,
        windows=int(distinct_bytes(made, made.profile.batches[:12], files) * share),
        window=costs.MAX_WINDOW,
    )
    batches, found = made.profile.batches, simulate(made, plan, files)
    assert sum(w.count for w in found.windows) >= len(batches) - found.windows[0].count
    at = 0
    for window in found.windows[:-1]:
        one = distinct_bytes(made, batches[at : at + 1], files)
        assert window.num_bytes <= plan.windows + one  # one batch, whatever it takes
        assert window.num_bytes > 0.6 * plan.windows
        held = distinct_bytes(made, batches[at : at + window.count], files)
        assert held <= plan.windows + one
        at += window.count


def test_the_chosen_windows_use_their_room(case, monkeypatch):
    """How many batches share a window's rows is learned from all columns together."""
    monkeypatch.setattr("pyg_graphzero.memory.planner.SECONDS", 1000.0)
    made, files, _ = case
    for total in (43 * MB, 44 * MB):
        chosen = choose_plan(made, total, files)
        assert not chosen.is_whole
        window = simulate(made, chosen, files).windows[0]
        assert window.num_bytes <= chosen.windows
        meant = chosen.window_of(made.profile.epoch)
        assert window.count >= min(0.8 * meant, meant - 1), (window.count, meant)
        assert window.num_bytes > 0.78 * chosen.windows


@pytest.mark.parametrize("keeps_edges", [False, True])
def test_a_profile_is_bounded(case, keeps_edges):
    _, _, loader = case
    most = 2 * MB
    before = _core.pool_state().used
    found = profile(
        loader, most=1, keep=10_000, keep_seconds=60, keep_bytes=most, keeps_edges=keeps_edges,
        num_threads=2,
    )  # fmt: skip
    sizes = [sum(rows.nbytes for rows in lists) for lists in found.batches]
    assert sum(sizes) <= most + max(sizes)
    assert sum(sizes) > most
    # They are the engine's own arrays: what is held is no more, but for the pool's steps.
    assert _core.pool_state().used - before <= 1.2 * sum(sizes) + 4 * max(sizes)
    assert all(len(lists) == (6 if keeps_edges else 2) for lists in found.batches)


GROUPS = {"v2": system.CGROUP_V2, "v1": system.CGROUP_V1}


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_page_cache_of_a_container_is_free(version, tmp_path, monkeypatch):
    names = GROUPS[version]

    def group(name: str, limit: str, used: int, cached: int) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / names[0]).write_text(f"{limit}\n")
        (folder / names[1]).write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {cached}\nslab 7\n")
        return folder

    groups = [group("inner", str(20 * MB), 15 * MB, 9 * MB), group("outer", "max", 90 * MB, 0)]
    monkeypatch.setattr(system, "_cgroups", lambda: ((folder, names) for folder in groups))
    assert system.free_memory() == 14 * MB
    groups.append(group("tight", str(12 * MB), 11 * MB, 2 * MB))
    assert system.free_memory() == 3 * MB
    groups.append(group("full", str(4 * MB), 6 * MB, 1 * MB))
    assert system.free_memory() == 0


def test_blocks_of_sums_have_room_for_their_edges_too(tmp_path):
    """Rows of one number, and many edges: they, and not the sums, are what takes memory."""
    n = 3000
    edges = random_edges(n, n, 300_000, 3)
    path = tmp_path / "store"
    gz.convert(Data(x=torch.ones(n, 1), edge_index=edges, num_nodes=n), path, progress=False)
    model = GraphSAGE(1, 2, 1, 2)
    with gz.open(path) as store:
        step = SummedPass(
            Task(stack_of(model, None, False, Inputs("x")).layers[0], Inputs("x")),
            store.contents,
            8,
        )
        step._room = room = 200_000
        indptr = store.contents.csc(None)[0]
        blocks, first = [], 0
        while first < n:
            stop = first + len(step.bounds_of_block(first)) - 1
            held = 4 * int(indptr[stop] - indptr[first]) + (stop - first) * 4
            assert held <= room or stop == first + 1
            if stop < n and stop > first + 1:  # no room is lost
                more = 4 * int(indptr[stop + 1] - indptr[first]) + (stop + 1 - first) * 28
                assert more > room
            blocks.append(first)
            first = stop
        assert len(blocks) >= 300_000 * 4 / room - 1
