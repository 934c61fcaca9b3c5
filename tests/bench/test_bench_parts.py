"""Parts of the benchmarks: graphs, the page cache, memory and time of processes."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import pytest
import torch
from systems import needs_linux

import pyg_graphzero as gz
from graphs import write_store
from harness.page_cache import drop, resident_bytes
from pyg_graphzero.bench.contestants import Contestant
from pyg_graphzero.bench.data import draw_seeds, prepare
from pyg_graphzero.bench.entrant import BenchError, Entrant
from pyg_graphzero.bench.process import Watch, memory, warm
from pyg_graphzero.bench.settings import Case, Settings
from pyg_graphzero.bench.synthetic import power_law_hetero
from pyg_graphzero.bench.workloads import Task, Workload
from pyg_graphzero.util.machine import storage
from pyg_graphzero_cli.bench import PRESETS

MIB = 1 << 20


@pytest.mark.parametrize("count", [1, 2, 4, 10])
def test_power_law_with_types(count):
    data = power_law_hetero(1001, 9999, 3, count)
    assert len(data.edge_types) == len({(src, dst) for src, _, dst in data.edge_types}) == count
    assert data.num_nodes == 1001
    assert data.num_edges == 9999
    assert {dst for _, _, dst in data.edge_types} == set(data.node_types)
    for src, _, dst in data.edge_types:
        edge_index = data[src, dst].edge_index
        assert int(edge_index[0].max()) < data[src].num_nodes
        assert int(edge_index[1].max()) < data[dst].num_nodes


def test_graphs_by_name(tmp_path, homo):
    made = tmp_path / "made"
    assert prepare(str(homo[1].path), made) == homo[1].path
    assert not made.exists()
    store = prepare("synthetic:50,200,0,2", made)
    assert gz.open(store).data().num_edges == 200
    before = os.stat(store / "store.json").st_mtime_ns
    assert prepare("synthetic:50,200,0,2", made) == store
    assert os.stat(store / "store.json").st_mtime_ns == before


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nonsense", "expected a store, or synthetic:"),
        ("synthetic:50,200", "synthetic:NODES,EDGES,DIM"),
        ("synthetic:50,-1,4", "synthetic:NODES,EDGES,DIM"),
        ("synthetic:50,200,4,0", "at least one node and one edge type"),
    ],
)
def test_graphs_that_are_none(tmp_path, spec, message):
    with pytest.raises(ValueError, match=message):
        prepare(spec, tmp_path / "made")


def settings(**changes) -> Settings:
    return Settings(**(PRESETS["quick"] | {"data": "", **changes}))


def test_seeds_are_of_the_graph(data, store):
    seeds = draw_seeds(store, settings(batch_size=100))
    assert seeds.nodes.unique().numel() == 200
    assert seeds.num_classes == int(data.y.max()) + 1
    known = set(map(tuple, data.edge_index.t().tolist()))
    assert {tuple(edge) for edge in seeds.edges.t().tolist()} <= known
    assert torch.equal(draw_seeds(store, settings(batch_size=100)).nodes, seeds.nodes)


@pytest.mark.parametrize("y", [torch.full((300,), -1), torch.rand(300), torch.ones(300, 2)])
def test_labels_that_are_no_classes(homo, tmp_path, y):
    homo[0].y = y
    store = gz.open(write_store(homo[0], tmp_path / "store"))
    assert draw_seeds(store, settings()).num_classes is None


def test_seeds_of_types(hetero):
    data, store = hetero
    seeds = draw_seeds(store, settings())
    assert seeds.node_type == "paper"  # it has labels
    assert seeds.edge_type[2] == "paper"
    assert seeds.num_classes is None  # venues have no features
    known = set(map(tuple, data[seeds.edge_type].edge_index.t().tolist()))
    assert {tuple(edge) for edge in seeds.edges.t().tolist()} <= known


def test_watch_sees_what_is_gone_again():
    sizes = chain([1, 9], repeat(2))
    with Watch(lambda: {"own": next(sizes)}, interval=0.001) as watch:
        while len(watch.points) < 4:
            time.sleep(0.001)
    assert watch.peak("own") == 9


def test_memory_of_a_process():
    before = memory(os.getpid())
    big = b"x" * (96 << 20)
    now = memory(os.getpid())
    assert now["own"] - before["own"] > 90 * MIB
    assert now["pss"] >= now["own"] > len(big)


def task(store) -> Task:
    chosen = settings(fanout=(2,), batch_size=2)
    plain = {"contestant": "graphzero", "case": Case("load", 0), "settings": chosen}
    return Task(**plain, store=store.path, seeds=draw_seeds(store, chosen))


def test_stats_of_a_loader_are_kept(store):
    contestant = Contestant()
    contestant.open(store.path)
    load, count = Workload(contestant, task(store)), settings().batches
    assert load.round(0)["edges"] > 0
    found = load.round(1)
    assert found["stats"]["batches"] == found["batches"] == count
    assert found["stats"]["verdict"] in ("loader-bound", "compute-bound")
    json.dumps(found)


@pytest.mark.long
def test_a_contestant_that_fails_says_so(tmp_path, homo):
    nowhere = replace(task(homo[1]), store=tmp_path / "nowhere")
    with (
        pytest.raises(BenchError, match=r"load by graphzero: FileNotFoundError: .*nowhere"),
        closing(Entrant(nowhere)) as entrant,
    ):
        entrant.open()


@needs_linux("pages leave the page cache when asked to")
def test_page_cache(tmp_path):
    if storage(tmp_path)["filesystem"] in ("tmpfs", "ramfs"):
        pytest.skip("the temporary folder is in memory")
    file, empty = tmp_path / "file", tmp_path / "empty"
    file.write_bytes(os.urandom(5 * MIB + 3))
    empty.touch()
    drop([file, empty])
    assert resident_bytes([file, empty]) == 0
    warm([file, empty])
    assert resident_bytes([file, empty]) == 5 * MIB + 3
    assert storage(Path("/proc"))["disk"] is None
