"""What a benchmark stands on: graphs, the page cache, memory and time of processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from systems import needs_linux

import pyg_graphzero as gz
from graphs import write_store
from harness.academic import academic
from harness.cap import CapError, MemoryCap
from harness.page_cache import drop, resident_bytes, warm
from harness.timeline import Timeline
from pyg_graphzero.bench.contestants import GraphZero
from pyg_graphzero.bench.data import draw_seeds, prepare
from pyg_graphzero.bench.entrant import BenchError, Entrant
from pyg_graphzero.bench.process import Clock, Watch, memory, tree
from pyg_graphzero.bench.settings import Case, Settings
from pyg_graphzero.bench.synthetic import power_law, power_law_hetero
from pyg_graphzero.bench.workloads import WORKLOADS, Task, Workload
from pyg_graphzero.util.machine import machine, storage
from pyg_graphzero_cli.bench import PRESETS, STANDARD

MIB = 1 << 20


def needs_a_disk(path: Path) -> None:
    if storage(path)["filesystem"] in ("tmpfs", "ramfs"):
        pytest.skip("the temporary folder is in memory")


def child(script: str) -> subprocess.Popen[str]:
    """A process that does what ``script`` says, and a line of it after every line it is sent."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", script], **pipes)


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == line


def test_power_law_has_hubs_on_both_sides():
    data = power_law(2000, 30_000, 4)
    assert data.x.shape == (2000, 4)
    assert data.edge_index.shape == (2, 30_000)
    assert int(data.edge_index.max()) < 2000
    for ends in data.edge_index:
        degree = ends.bincount(minlength=2000).sort(descending=True).values
        assert degree[:200].sum() > 15_000  # one node in ten has more than half of the edges
    again = power_law(2000, 30_000, 4)
    assert torch.equal(again.edge_index, data.edge_index)
    assert torch.equal(again.x, data.x)
    other = power_law(2000, 30_000, 4, seed=1)
    assert not torch.equal(other.edge_index, data.edge_index)


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


def test_papers_authors_and_institutions():
    data = academic(5000, 3)
    assert {name: data[name].num_nodes for name in data.node_types} == {
        "paper": 5000, "author": 5025, "institution": 1,
    }  # fmt: skip
    assert len(data.edge_types) == 5
    assert {dst for _, _, dst in data.edge_types} == set(data.node_types)
    for src, name, dst in data.edge_types:
        edges = data[src, name, dst].edge_index
        assert int(edges[0].max()) < data[src].num_nodes
        assert int(edges[1].max()) < data[dst].num_nodes
    assert data["paper", "cites", "paper"].num_edges == 2 * 53_300
    assert torch.equal(
        data["author", "writes", "paper"].edge_index,
        data["paper", "rev_writes", "author"].edge_index.flip(0),
    )


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
    return Settings(**(STANDARD | PRESETS["quick"] | {"data": "", **changes}))


def test_seeds_are_of_the_graph(homo):
    data, store = homo
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


def test_presets():
    for name, preset in PRESETS.items():
        chosen = Settings(**STANDARD | preset)
        assert chosen.cases(), name
        assert {case.workload for case in chosen.cases()} == set(WORKLOADS)
    cases = settings(workloads=("sample", "load"), threads=(1, 2), workers=(0, 1)).cases()
    assert list(map(str, cases)) == [
        "sample, 1 thread",
        "sample, 2 threads",
        "load, 0 workers",
        "load, 1 worker",
    ]
    cases = settings(workloads=("train",), workers=(0, 2), models=("stock", "accelerated")).cases()
    assert list(map(str, cases)) == [
        "train, stock model, 0 workers",
        "train, accelerated model, 0 workers",
        "train, stock model, 2 workers",
        "train, accelerated model, 2 workers",
    ]


@needs_linux("pages leave the page cache when asked to")
def test_page_cache(tmp_path):
    needs_a_disk(tmp_path)
    file, empty = tmp_path / "file", tmp_path / "empty"
    file.write_bytes(os.urandom(5 * MIB + 3))
    empty.touch()
    drop([file, empty])
    assert resident_bytes([file, empty]) == 0
    warm([file, empty])
    assert resident_bytes([file, empty]) == 5 * MIB + 3


def test_memory_of_a_tree():
    """64 MiB of its own and 32 MiB shared, in a process whose child has 16 MiB more."""
    script = """
import mmap, os, sys
def ready(text):
    print(text, flush=True); sys.stdin.readline()
own = b"x" * (64 << 20)
shared = mmap.mmap(-1, 32 << 20); shared.write(b"x" * (32 << 20))
ready("alone")
pipe = os.pipe()
if os.fork() == 0:
    more = b"x" * (16 << 20)
    ready("two")
    os._exit(0)
os.wait()
"""
    with child(script) as process:
        wait_for(process, "alone")
        alone = memory(process.pid)
        assert 64 * MIB <= alone["own"] < 110 * MIB
        assert alone["pss"] - alone["own"] >= 32 * MIB
        process.stdin.write("\n")
        process.stdin.flush()
        wait_for(process, "two")
        both = memory(process.pid)
        assert len(tree(process.pid)) == 2
        # A page of two processes counts twice in their own memory, and once in PSS.
        assert both["own"] - alone["own"] > (64 + 16 - 8) * MIB
        assert 16 * MIB - MIB < both["pss"] - alone["pss"] < 32 * MIB
        process.stdin.write("\n")


def test_watch_sees_what_is_gone_again():
    script = """
import sys
print("ready", flush=True); sys.stdin.readline()
big = b"x" * (96 << 20)
print("has it", flush=True); sys.stdin.readline()
del big
print("done", flush=True); sys.stdin.readline()
"""
    with child(script) as process:
        wait_for(process, "ready")
        with Watch(process.pid) as watch:
            for line in ("has it", "done"):
                process.stdin.write("\n")
                process.stdin.flush()
                wait_for(process, line)
                end = time.monotonic() + 30
                while watch.peak["own"] < 94 * MIB and time.monotonic() < end:
                    time.sleep(0.01)
        now = memory(process.pid)
        process.stdin.write("\n")
    assert watch.peak["own"] - now["own"] > 90 * MIB
    assert watch.peak["pss"] >= watch.peak["own"]


def test_clock_counts_other_processes():
    burn = "import time\nwhile time.process_time() < 0.3: pass\n"
    with Clock() as clock:
        subprocess.run([sys.executable, "-c", burn], check=True)
    assert clock.cpu_seconds > 0.25
    with Clock() as clock:
        time.sleep(0.2)
    assert clock.seconds >= 0.2
    assert clock.cpu_seconds < clock.seconds


@needs_linux("/proc and /sys tell of the machine")
def test_machine(tmp_path):
    found = machine()
    json.dumps(found)
    assert found["cpu"]
    assert 1 <= found["usable_cores"] <= found["cores"]
    assert found["ram_bytes"] > 2**28
    assert found["memory_limit_bytes"] is None or found["memory_limit_bytes"] > 0
    assert found["packages"]["pyg_graphzero"] == gz.__version__
    assert storage(tmp_path)["filesystem"]
    assert storage(Path("/proc"))["filesystem"] == "proc"
    assert storage(Path("/proc"))["disk"] is None


def task(store) -> Task:
    chosen = settings(fanout=(2,), batch_size=2)
    plain = {"contestant": "graphzero", "case": Case("load", 0), "settings": chosen}
    return Task(**plain, store=store.path, seeds=draw_seeds(store, chosen))


def test_what_a_loader_reports_is_kept(homo):
    _, store = homo
    contestant = GraphZero()
    contestant.open(store.path)
    load, count = Workload(contestant, task(store)), settings().batches
    assert load.round(0)["edges"] > 0
    found = load.round(1)
    assert found["stats"]["batches"] == found["batches"] == count
    assert found["stats"]["verdict"] in ("loader-bound", "compute-bound")
    json.dumps(found)


def test_a_contestant_that_fails_says_so(tmp_path, homo):
    nowhere = replace(task(homo[1]), store=tmp_path / "nowhere")
    with (
        pytest.raises(BenchError, match=r"load by graphzero: FileNotFoundError: .*nowhere"),
        Entrant(nowhere) as entrant,
    ):
        entrant.open()


# Limits on memory #################################################################################


def test_a_limit_that_cannot_be_set_says_what_was_tried(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CapError, match=r"no control groups of version 1.*version 2.*systemd-run"):
        MemoryCap(MIB, tmp_path)
    (tmp_path / "cgroup.subtree_control").mkdir()  # it is there and cannot be read or written
    with pytest.raises(CapError, match="Is a directory"):
        MemoryCap(MIB, tmp_path)
    with pytest.raises(ValueError, match="limit: found 0"):
        MemoryCap(0, tmp_path)


def test_a_limit_by_systemd(tmp_path, monkeypatch):
    """Without control groups of one's own ``systemd-run`` makes one; here it only says how."""
    tool = tmp_path / "systemd-run"
    tool.write_text("#!/bin/sh\nexit 0\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with MemoryCap(5 * MIB, tmp_path / "nothing") as cap:
        assert cap.means == "systemd-run --user --scope"
        command = cap.command(["true"])
        assert command[0] == "systemd-run"
        assert {f"MemoryMax={5 * MIB}", "MemorySwapMax=0"} < set(command)
        assert command[-2:] == ["--", "true"]
        assert cap.usage(os.getpid()) == {}
    tool.write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n")
    with pytest.raises(CapError, match="Failed to connect to bus"):
        MemoryCap(MIB, tmp_path / "nothing")


def limited(limit: int) -> MemoryCap:
    try:
        return MemoryCap(limit)
    except CapError as error:
        pytest.skip(str(error))


HOLD = """
import sys
held = b"x" * int(sys.argv[1])
print("holding", flush=True)
sys.stdin.readline()
"""


def test_a_process_under_a_limit(tmp_path):
    with limited(256 * MIB) as cap:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        command = cap.command([sys.executable, "-c", HOLD, str(64 * MIB)])
        with subprocess.Popen(command, **pipes) as process, Timeline(process.pid, cap) as timeline:
            assert process.stdout.readline().strip() == "holding"
            timeline.look()
            process.stdin.write("\n")
        assert process.returncode == 0
        assert 64 * MIB <= timeline.peak("anon") < 128 * MIB
        assert timeline.peak("anon", "file") > timeline.peak("anon")
        assert timeline.points[0]["seconds"] <= timeline.points[-1]["seconds"]
        if "control group" in cap.means:
            assert 64 * MIB <= timeline.peak("charged") <= 256 * MIB
            assert cap.killed() == 0
            over = cap.command([sys.executable, "-c", HOLD, str(512 * MIB)])
            assert subprocess.run(over, stdin=subprocess.DEVNULL).returncode == -9
            assert cap.killed() == 1
