"""Bounds of memory where there are several groups or blocks: no part of the room is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from systems import needs_linux
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import pyg_graphzero as gz
from graphs import random_edges
from pyg_graphzero.inference.sums import SummedPass
from pyg_graphzero.util import system

MB = 10**6


GROUPS = {"v2": system.CGROUP_V2, "v1": system.CGROUP_V1}


@pytest.mark.parametrize("version", ["v1", "v2"])
@needs_linux("has control groups")
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


def test_blocks_of_sums_have_room_for_their_edges_too(tmp_path, monkeypatch):
    """Rows of one number, and many edges: they, and not the sums, are what takes memory."""
    n, room, blocks = 3000, 200_000, []
    edges = random_edges(n, n, 300_000, 3)
    path = tmp_path / "store"
    gz.convert(Data(x=torch.ones(n, 1), edge_index=edges, num_nodes=n), path, progress=False)
    divide, bounds_of = SummedPass.divide, SummedPass.bounds_of_block

    def cramped(step, *sizes):
        divide(step, *sizes)
        step._room = room

    def seen(step, first):
        bounds = bounds_of(step, first)
        blocks.append((first, first + len(bounds) - 1))
        return bounds

    monkeypatch.setattr(SummedPass, "divide", cramped)
    monkeypatch.setattr(SummedPass, "bounds_of_block", seen)
    gz.inference.layerwise(GraphSAGE(1, 2, 1, 2), path)
    with gz.open(path) as store:
        indptr = store.contents.csc(None)[0]
        for first, stop in blocks:
            held = 4 * int(indptr[stop] - indptr[first]) + (stop - first) * 4
            assert held <= room or stop == first + 1
            if stop < n and stop > first + 1:  # no room is lost
                more = 4 * int(indptr[stop + 1] - indptr[first]) + (stop + 1 - first) * 28
                assert more > room
    assert blocks[-1][1] == n
    assert len(blocks) >= 300_000 * 4 / room - 1
