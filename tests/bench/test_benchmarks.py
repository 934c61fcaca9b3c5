"""The scripts in ``benchmarks/``: each runs, and its record has what pages cite of it."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import shutil
import sys
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import out_of_core
import papers100m
import papers100m_phases
import pytest
import summary
import torch
import walks_out_of_core
from hypothesis import given
from hypothesis import strategies as st
from papers100m_graph import NUM_EDGES, PapersGraph
from torch_geometric.data import Data

import pyg_graphzero as gz
from harness import grid, peers, real_graphs
from harness.cap import CapError, MemoryCap
from harness.child import Task
from harness.communities import CommunityGraph
from harness.report import figures, table
from harness.sieve import SieveCache
from pyg_graphzero.loader.stats import LoaderStats
from pyg_graphzero.util.machine import storage

ROOT = Path(__file__).resolve().parents[2]
SCALE = 0.0003
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")


# Those that train, or begin processes.
SLOW = ("accuracy", "options", "from_graphzero", "shards")


def found_in(value: Any, path: str) -> Any:
    """A field below others, of the first item of lists."""
    for name in path.split("/"):
        value = value[0] if isinstance(value, list) else value
        value = value[name]
    return value


# Small scripts ------------------------------------------------------------------------------------

GRAPH = "--nodes 3000 --edges 30000 --batch-size 64 --fanout 4 3"
TRAINING = "--graphs wordnet --seeds 0 --epochs 1 --hidden 4 --fanout 2 --batch-size 8192"
# What runs in seconds, and fields of its record that a page has figures of.
SCRIPTS: dict[str, tuple[str, list[str]]] = {
    "first_aggregation": (
        f"{GRAPH} --dim 8 --hidden 4 --rounds 1 --batches 1",
        ["results/int8, mean/load_cpu_s", "results/float32, none/step_cpu_s"],
    ),
    "accuracy": (TRAINING, ["rows/graph", "rows/relative_rmse", "rows/scores", "rows/mean"]),
    "from_graphzero": (
        "--dir here --nodes 300 --edges 2000 --dim 4 --batch-size 64 --rounds 1",
        ["medians/ours/convert", "medians/ours/biased walk", "medians/ours/peak of use"],
    ),
    "modes": (
        f"{GRAPH} --batches 1 --rounds 6",
        ["edges_per_second/uniform, directional/median", "edges_per_second/induced/median"],
    ),
    "options": (
        TRAINING,
        ["rows/option", "rows/nodes_per_batch", "rows/nodes_per_window", "rows/mean"],
    ),
    "gpu": (
        f"{GRAPH} --dim 8 --batches 2 --rounds 1 --threads 1 --models sage --device cpu",
        ["rows/load: graphzero, 1/batches_per_second"],
    ),
    "loop": (
        f"{GRAPH} --hidden 8 --batches 2 --rounds 1",
        ["results/accelerated/nodes", "results/accelerated, 2 workers/seconds",
         "results/stock model/cpu_seconds"],
    ),
    "step": (
        f"{GRAPH} --models GraphSAGE --hidden 8 --rounds 1",
        [
            "results/GraphSAGE/accelerated/cpu_seconds",
            "results/GraphSAGE/accelerated/peak_bytes",
            "results/GraphSAGE/trimmed/seconds",
            "batch/nodes",
        ],
    ),
    "shards": (
        "--dir here --scale 0.0003 --by store ranges --batch-size 16 --batches 5 --hidden 4",
        ["runs/found/epochs/nodes", "runs/found/epochs/elapsed", "runs/found/disk"],
    ),
    "walks": (
        "--nodes 3000 --edges 30000 --batch-size 100 --walk-length 5 --rounds 6",
        ["steps_per_second/uniform: ours, store/median", "settings/threads"],
    ),
}  # fmt: skip


def test_every_script_is_run():
    """But for those of the next part, and pictures."""
    scripts = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    scripts -= {name for name in scripts if name.startswith("papers100m")}
    others = {"out_of_core", "walks_out_of_core", "pictures", "summary"}
    assert scripts == {*SCRIPTS, *others}


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=pytest.mark.long) if each in SLOW else each
     for each in SCRIPTS],
)  # fmt: skip
def test_a_script(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    arguments, cited = SCRIPTS[name]
    torch.set_num_threads(1)  # scripts that train beside other tests take longer with more
    importlib.import_module(name).main(arguments.split())
    torch.set_num_threads(threads)
    record = json.loads((tmp_path / "benchmarks" / "out" / f"{name}.json").read_text())
    assert record["command"].startswith(f"python benchmarks/{name}.py --")
    assert record["machine"]["packages"]["torch"]
    assert str(tmp_path) not in json.dumps(record["settings"])
    summed = summary.summed_up(record)
    for path in cited:
        assert found_in(summed, path) is not None


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "seeds"),
    [("--link --models GraphSAGE", 96), ("--typed --models HeteroConv", 32)],
)
def test_steps_of_other_batches(options, seeds, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    step = importlib.import_module("step")
    kept = tmp_path / "batch.pt"
    step.main(
        f"{options} --nodes 3000 --edges 30000 --dim 8 --hidden 8 --fanout 3 2 --batch-size 32 "
        f"--rounds 1 --only stock accelerated --batch {kept}".split()
    )
    batch = torch.load(kept, weights_only=False)
    if "--typed" in options:
        assert all(sum(counts) > 0 for counts in batch.num_sampled_nodes_dict.values())
        assert batch.num_sampled_nodes_dict["paper"][0] == seeds
    else:
        assert 32 < batch.num_sampled_nodes[0] <= seeds


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu():
    with pytest.raises(SystemExit, match="found no GPU"):
        importlib.import_module("gpu").main([])


def test_a_summary_takes_the_place_of_the_last_one(tmp_path, capsys):
    record = tmp_path / "walks.json"
    for command, page in (("out_of_core", "out-of-core"), ("walks", "performance")):
        for value in (1.23456789, 2.5):
            many = {"many": [value, 1, 2, 3, 4, 5], "environment": {}, "few": [1.5, value]}
            record.write_text(json.dumps({"command": f"python benchmarks/{command}.py"} | many))
            summary.main([str(record), "--results", str(tmp_path), "--name", "here"])
            found = json.loads((tmp_path / f"{page}.json").read_text())["here"]
            assert found.keys() == {"command", "many", "few"}
        assert found["many"] == {"median": 2.75, "min": 1, "max": 5}
        assert found["few"] == [1.5, 2.5]


# The harness --------------------------------------------------------------------------------------


def limited(folder: Path, limit: int) -> None:
    try:
        with MemoryCap(limit):
            pass
    except CapError as error:
        pytest.skip(str(error))
    if storage(folder)["filesystem"] in ("tmpfs", "ramfs"):
        pytest.skip("the temporary folder is in memory")


@needs_compiler
@pytest.mark.long
def test_out_of_core(tmp_path):
    """From the graph to the summary, with a contestant of each kind but stock PyG."""
    limited(tmp_path, 1 << 20)
    options = "--nodes 20000 --batch-size 64 --batches 2 --epochs 2"
    options += f" --dir {tmp_path} --out {tmp_path} --memory 2GB"
    options += " --row-cache 1MB --no-drop-caches --only graphbolt later train stock"
    out_of_core.main(options.split())
    found = json.loads((tmp_path / "out_of_core.json").read_text())
    assert found["limit"] == 2 * 10**9
    assert found["graph"]["seeds"] == 220
    assert 64 < found["graph"]["touched"]["nodes"] < 20000
    results = {each["name"]: each for each in found["results"]}
    for name, each in results.items():
        if name.startswith("stock") and each["error"]:
            assert "torch_sparse" in each["error"]
            continue
        assert each["error"] is None, each
        assert [epoch["batches"] for epoch in each["epochs"]] == [2, 2]
        assert each["peak"]["anon"] > 50e6
        assert each["cache_before"]["share"] < 0.02 or "RAM" in name
        counts = each["epochs"][1]["counts"]
        if "graphbolt" in name:
            # Every row that is not in the cache is read, but for neighbours that share a read.
            assert 0 < counts["reads"] <= counts["rows"] - counts["hits"]
            assert counts["read_bytes"] <= 4096 * counts["reads"]
    single, half = (results[f"graphbolt scheme, f{bits}"] for bits in (32, 16))
    assert single["facts"]["cache_rows"] * 2 == half["facts"]["cache_rows"] == 3906
    cited = ["batches_per_second", "first_epoch", "last_epoch", "hit_rate", "reads_per_batch"]
    cited += ["read_bytes_per_batch", "reading_over_ideal", "peak", "disk"]
    summed = {each["name"]: each for each in summary.summed_up(found)["results"]}
    assert summed["graphbolt scheme, f32"].keys() >= set(cited)
    assert not (tmp_path / "out-of-core").exists()
    assert (tmp_path / "out_of_core_memory.png").stat().st_size < 100_000


@needs_compiler
@pytest.mark.long
def test_a_grid(tmp_path, capsys):
    """A budget that no process fits in, and one that all fits in."""
    limited(tmp_path, 1 << 20)
    options = f"--grid --sizes 20000x128 --fanouts 3,2 --batch-size 64 --batches 2 --dir {tmp_path}"
    options += f" --out {tmp_path} --budgets 10 200 --encodings f16 i8 --no-drop-caches"
    out_of_core.main(options.split())
    points = json.loads((tmp_path / "out_of_core.json").read_text())["points"]
    assert [point["limit"] for point in points] == [102_400_000, 2_048_000_000] * 2
    for few, much in (points[:2], points[2:]):
        assert few["ours"] == few["off"] == few["scheme"] == inf
        assert few["limit"] < few["least"] < much["limit"]
        assert all(much[name] > 0 for name in ("first", "ours", "off", "scheme"))
        assert few["limit"] < much["peak"] < much["limit"]
    assert points[1]["scheme"] == points[3]["scheme"]  # for want of one in int8
    assert (tmp_path / "out_of_core.md").read_text() in capsys.readouterr().out
    assert not (tmp_path / "20000x128" / "out-of-core" / "f16").exists()


def test_what_a_grid_says():
    """A line of budgets: refused, fast, slower with more memory, at the disk's limit."""
    seconds = [(inf, inf, 9.0, 0.0), (10.0, 12.0, 40.0, 2.0), (12.0, 10.5, 11.0, 5.0)]
    seconds.append((5.0, 5.0, 6.0, 4.0))
    points = [
        {
            "graph": "6x2", "encoding": "f32", "fanout": "3,2", "limit": 10**9 * at, "share": 0.1,
            "ours": ours, "off": off, "scheme": scheme, "disk": disk, "peak": 10**9,
            "first": None if at == 1 else 20.0, "least": 2 * 10**9 if at == 1 else None,
            "row_cache": "made in epoch 1",
        }
        for at, (ours, off, scheme, disk) in enumerate(seconds, 1)
    ]  # fmt: skip
    lines = grid.verdict(points).splitlines()
    assert lines[0] == "- points: 4, of which 3 ran, 3 against the scheme"
    assert lines[1].endswith("2 of 3")
    assert lines[2] == "- slower than GraphBolt's scheme: 1"
    assert lines[4] == "- refused: 1; ended otherwise: 0; of both, the scheme fits: 1"
    assert [line.partition(": 6x2, f32, 3,2, 3,000,000,000: ")[2] for line in lines[5:]] == [
        "12 s, with 2,000,000,000 bytes 10 s",
        "12 s, with order=off 10.5 s",
    ]
    table_lines = re.sub(" +", " ", grid.grid_table("grid", points)).splitlines()
    assert table_lines[4].endswith("| | | | at least 2,000 MB |")
    assert "| 20 | 10 | 12 | 40 | 4.0 | 2 | 50% | made in epoch 1 |" in table_lines[5]


@pytest.mark.long
def test_walks_out_of_core(tmp_path, monkeypatch, capsys):
    limited(tmp_path, 1 << 20)
    monkeypatch.chdir(tmp_path)
    options = "--nodes 20000 --memory 2GB --walks 500 --map-walks 500 --map-threads 1 2"
    options += f" --seconds 0.2 --no-drop-caches --dir {tmp_path}/graph"
    walks_out_of_core.main(options.split())
    found = json.loads((tmp_path / "benchmarks" / "out" / "walks_out_of_core.json").read_text())
    assert found["limit"] == 2 * 10**9
    assert found["neighbours_bytes"] > 4 * 20000
    summed = {each["name"]: each for each in summary.summed_up(found)["results"]}
    assert list(summed) == ["ours", "map, 1 threads", "map, 2 threads"]
    for each in summed.values():
        assert each["found"]["steps_per_second"] > 0
        assert each["peak"]["anon"] > 50e6
    assert not (tmp_path / "graph" / "walks-20000-40").exists()
    assert "ours is" in capsys.readouterr().out


@pytest.mark.long
def test_papers100m(tmp_path, capsys):
    """From files in OGB's layout to the summary, each phase in a process under a limit."""
    limited(tmp_path, 1 << 20)
    options = f"--dir {tmp_path}/here --out {tmp_path} --scale {SCALE} --limit 3GB --layout ogb"
    options += " --phases convert,shape,graphbolt,load,optimize,train,infer,graphzero,accuracy"
    options += " --batch-size 32 --fanout 5 5 5"
    options += " --batches 12 --hidden 16 --eval-nodes 16 --training-memory 1GB --no-drop-caches"
    options += " --accuracy-scale 0.0005 --accuracy-epochs 1 --seeds 0 --accuracy-hidden 8"
    papers100m.main(options.split())
    text = (tmp_path / "papers100m.json").read_text()
    assert str(tmp_path) not in text
    found = json.loads(text)
    converted, shape, bolt, load, optimized, trained, inferred, peer, accuracy = found["results"]
    assert "No module named 'graphzero'" in peer["error"]
    graph = PapersGraph.of(SCALE)
    assert graph.num_edges < converted["found"]["num_edges"] < 2 * graph.num_edges
    assert len(shape["found"]["epochs"]) == 2
    for each in (bolt, load):
        assert [epoch["batches"] for epoch in each["epochs"]] == [12, 12]
    assert bolt["facts"]["cache_rows"] == int(0.18 * graph.num_nodes)
    assert load["budget"] == bolt["peak"]["anon_and_file"] < bolt["budget"]
    assert sum(converted["found"]["split"].values()) == sum(map(len, graph.split.values()))
    assert optimized["found"]["num_batches"] > 0
    # 362 training nodes are 11 batches: an epoch and the first batch of another.
    assert trained["facts"]["epoch_batches"] == 11
    assert len(trained["batch_seconds"]) == 12
    assert inferred["found"]["trained"]
    assert [each["num_rows"] for each in inferred["found"]["layers"]] == [graph.num_nodes] * 3
    for each in (converted, shape, bolt, load, optimized, trained, inferred, accuracy):
        assert each["error"] is None
        assert each["peak"]["anon"] > 50e6
        assert set(each["io"]) == {"read_bytes", "write_bytes"}
    summed = {each["name"]: each for each in summary.summed_up(found)["results"]}
    cited = ["seconds_per_batch", "epoch_seconds", "stall_share", "steady_batches", "peak"]
    assert summed["train, 3 GB"].keys() >= {*cited, "first_batch_seconds"}
    assert summed["train, 3 GB"]["found"]["curve"][-1]["val_accuracy"] >= 0
    rows = summed["accuracy, no limit"]["found"]["rows"]
    assert [each["features"] for each in rows][1:3] == ["float32, own features", "float16"]
    assert not (tmp_path / "here" / "papers100m").exists()
    assert "float32, own features" in capsys.readouterr().out
    assert (tmp_path / "papers100m_memory.png").stat().st_size < 200_000


def test_disk_and_limits_are_refused_before_anything_is_made(tmp_path):
    phases = ["convert", "optimize", "train"]
    int8 = papers100m.needs(phases, 1.0, "int8", 256, "stream", 0.01, directed=True)
    half = papers100m.needs(phases, 1.0, "float16", 256, "stream", 0.01, directed=True)
    before = papers100m.needs(["shape", "train"], 1.0, "int8", 256, "stream", 0.01, True)
    assert 20e9 < before["shape"] < 25e9
    both = papers100m.needs(["convert", "train"], 1.0, "int8", 256, "stream", 0.01)
    assert before["train"] + 4 * NUM_EDGES == pytest.approx(both["train"])
    assert both["train"] < both["convert"] <= 45e9
    assert before["shape"] < before["train"] == int8["train"] < int8["optimize"] < half["optimize"]
    after = papers100m.needs(["train", "shape"], 1.0, "int8", 256, "stream", 0.01, True)
    assert after["shape"] == after["train"]  # the copy stays
    command = ["--dir", str(tmp_path / "new"), "--out", str(tmp_path / "out")]
    with pytest.raises(papers100m.DiskError, match=r"for 'optimize'.*--features int8 takes least"):
        papers100m.main([*command, "--limit", "none", "--max-disk", "1GB"])
    with pytest.raises(ValueError, match="expected more than 2,500,000,000, which are --training"):
        papers100m.main([*command, "--limit", "2GB", "--scale", "0.1"])
    with pytest.raises(SystemExit):
        papers100m.main([*command, "--phases", "convert,tain"])
    with pytest.raises(SystemExit):
        papers100m.main([*command, "--phases", "graphbolt,load", "--cache-share", "0"])
    limits = ["--phases", "load", "--cache-share", "0", "--limit", "8GB", "4GB", "--order", "off"]
    alone = papers100m.runs_of(papers100m.parse([*command, *limits]))
    assert [run.name for run in alone] == ["load, 8 GB, order off", "load, 4 GB, order off"]
    assert [run.task.budget for run in alone] == [run.task.limit for run in alone]
    assert not (tmp_path / "new" / "papers100m").exists()


def test_stores_of_another_graph(tmp_path):
    graph = CommunityGraph(2000, num_features=8, num_communities=100)
    made = out_of_core.Stores(tmp_path, graph).make("f32")
    assert made == out_of_core.Stores(tmp_path, graph).make("f32")
    with pytest.raises(ValueError, match="found the stores of"):
        out_of_core.Stores(tmp_path, dataclasses.replace(graph, seed=1))


def test_what_a_record_says():
    """Bounds of those that delivered nothing; epochs that were cut short are not counted."""
    epochs = [{"epoch": i, "batches": 10, "seconds": 1.2 if i == 0 else 1} for i in range(3)]
    counts = {"reads": 50, "read_bytes": 800, "read": 0.9, "rows": 100, "hits": 50}
    ours: dict[str, Any] = {
        "name": "ours, f32", "group": "ours", "store": "f32", "limit": 1000, "budget": 1000,
        "error": None, "at_most": None, "facts": {}, "found": {}, "batch_seconds": [0.1] * 30,
        "epochs": [*(e | {"counts": {}} for e in epochs[:2]), epochs[2] | {"counts": counts}],
        "peak": {"anon": 700, "anon_and_file": 900, "charged": 1000}, "timeline": [{}],
        "disk": {"random_iops": 100.0, "bytes_per_second": 1000.0},
    }  # fmt: skip
    none = {"epochs": [], "batch_seconds": [], "error": "nothing came", "at_most": 0.02}
    stock = ours | none | {"name": "stock, 0 workers", "group": "stock"}
    # Each read has its price besides its bytes: here none, and these take 0.8 s.
    assert figures(ours)["reading_over_ideal"] == pytest.approx(0.9 / 0.8)
    text = table("title", [stock, ours], ["batches/s", "hits"])
    assert "<0.02" in text
    assert "stock, 0 workers: nothing came" in text
    cut = ours | {"epochs": [epochs[0] | {"counts": {}}, epochs[1] | {"batches": 3, "counts": {}}]}
    assert figures(cut)["last_epoch"] == figures(cut)["first_epoch"]


# Peers --------------------------------------------------------------------------------------------


class ReferenceSieve:
    """SIEVE as its paper tells it, in a list: newest first."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.queue, self.visited, self.hand = capacity, [], {}, None

    def query(self, rows: list[int]) -> list[int]:
        for row in rows:
            if row in self.visited:
                self.visited[row] = True
        return [i for i, row in enumerate(rows) if row not in self.visited]

    def insert(self, row: int) -> None:
        if row in self.visited or self.capacity == 0:
            return
        if len(self.queue) == self.capacity:
            at = len(self.queue) - 1 if self.hand is None else self.queue.index(self.hand)
            while self.visited[self.queue[at]]:
                self.visited[self.queue[at]] = False
                at = at - 1 if at else len(self.queue) - 1
            self.hand = self.queue[at - 1] if at else None
            del self.visited[self.queue.pop(at)]
        self.queue.insert(0, row)
        self.visited[row] = False


@needs_compiler
@given(
    capacity=st.integers(0, 12),
    batches=st.lists(st.lists(st.integers(0, 19), max_size=15), max_size=30),
)
def test_sieve(capacity, batches):
    """The same misses as the reference, and hits bring the bytes that were read."""
    table = torch.arange(60, dtype=torch.uint8).view(20, 3)
    cache, reference = SieveCache(20, capacity, 3), ReferenceSieve(capacity)
    for batch in batches:
        rows = torch.tensor(batch, dtype=torch.int64)
        out = torch.full((len(batch), 3), 255, dtype=torch.uint8)
        missed = cache.query(rows, out)
        assert missed.tolist() == reference.query(batch)
        out[missed] = table[rows[missed]]
        assert torch.equal(out, table[rows])
        cache.insert(rows, missed, out)
        for at in missed.tolist():
            reference.insert(batch[at])


@needs_compiler
def test_sieve_refuses_rows_that_are_not_there():
    cache, out = SieveCache(10, 3, 0), torch.empty(1, 0, dtype=torch.uint8)
    for row in (-1, 10):
        with pytest.raises(IndexError, match="expected 0 <= row < 10"):
            cache.query(torch.tensor([row]), out)


def test_raw_files_of_a_store(tmp_path):
    graph = CommunityGraph(2000, num_features=8, num_communities=100)
    for encoding in ("float16", "int8"):
        graph.write(tmp_path / encoding, encoding=encoding)
        files = peers.StoreFiles(tmp_path / encoding)
        assert files.dtype == getattr(torch, encoding)
        rows = files.decoded(torch.from_numpy(np.array(files.memmap()[5:9])))
        assert torch.allclose(rows, gz.open(tmp_path / encoding).data().x[5:9], atol=1e-5)
    CommunityGraph(300, num_features=125, num_communities=10).write(tmp_path / "padded")
    with pytest.raises(ValueError, match="rows of 500 bytes 512 apart"):
        peers.StoreFiles(tmp_path / "padded")


def test_neighbors_in_64_bits_over_a_map(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "_COPIED", 3)
    narrow = torch.tensor([5, 2**32 - 1, 0, 7], dtype=torch.uint32)
    wide = peers.as_map(narrow, tmp_path / "wide")
    assert wide.dtype == torch.int64
    assert wide.tolist() == narrow.tolist()


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyG wants pyg-lib, torch a writable map
def test_stock_over_maps(tmp_path):
    pytest.importorskip("torch_sparse")
    graph = PapersGraph.of(SCALE)
    graph.write(tmp_path / "store", "int8")
    told: list[dict[str, Any]] = []
    options = {"neighbors": str(tmp_path / "neighbors.bin")}
    given = {"fanout": [4, 3], "batch_size": 32, "batches": 2, "hidden": 16, "options": options}
    papers100m_phases.stock(Task("stock", str(tmp_path / "store"), **given), told.append)
    assert [each["event"] for each in told] == ["ready", "batch", "batch", "epoch"]


class FakePeer:
    """What the package ``graphzero`` offers, in memory; it fails where it is told to."""

    class DataType:
        FLOAT32 = 2

    def __init__(self, fails: bool) -> None:
        self._fails = fails

    def convert_csv_to_gl(self, text: str, out: str, directed: bool) -> None:
        lines = Path(text).read_text().splitlines()
        self.edges = np.array([line.split(",") for line in lines[1:]], dtype=np.int64)
        self.num_nodes, self.num_edges = 0, len(self.edges)

    def convert_csv_to_gd(self, text: str, out: str, kind: int) -> None:
        if self._fails:
            raise RuntimeError("bad allocation")
        self.rows = np.loadtxt(text, delimiter=",", dtype=np.float32)

    def Graph(self, path: str) -> FakePeer:
        return self

    FeatureStore = Graph

    def get_tensor(self) -> np.ndarray:
        return self.rows[:, 1:]

    def batch_random_fanout(self, seeds: np.ndarray, fanout: int) -> np.ndarray:
        drawn = np.zeros((len(seeds), fanout), np.int64)
        for at, seed in enumerate(seeds.tolist()):
            near = self.edges[self.edges[:, 0] == seed, 1][:fanout]
            drawn[at, : len(near)] = near
        return drawn


@pytest.mark.parametrize("fails", [False, True])
def test_graphzero_gets_text_and_its_failures_are_put_down(tmp_path, monkeypatch, fails):
    monkeypatch.setitem(sys.modules, "graphzero", FakePeer(fails))
    options = {"graphzero_scale": SCALE / 10, "work": str(tmp_path)}
    task = Task("graphzero", "", batches=1, batch_size=4, fanout=[4, 3], options=options)
    told: list[dict[str, Any]] = []
    if fails:
        with pytest.raises(RuntimeError, match="bad allocation"):
            papers100m_phases.graphzero(task, told.append)
        assert told[-1]["found"]["failed_in"] == "convert_csv_to_gd"
        assert "convert_csv_to_gl" in told[-1]["found"]["steps"]
        return
    found = papers100m_phases.graphzero(task, told.append)
    assert found["batches"] == 1
    assert found["opened"]["num_edges"] == PapersGraph.of(SCALE / 10).num_edges
    right = found["is_right"]
    assert right["rows"]
    # It pads with zeros, and node 0 is no neighbour.
    assert right["drawn_are_neighbors"] == (0 in right["neighbors"])


# Accuracy -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_accuracy_means_something(tmp_path, monkeypatch):
    """Neighbours tell more than a node alone, both more than guessing, and nothing tells all."""
    monkeypatch.setattr(papers100m_phases, "ENCODINGS", ("float32",))
    options = {"accuracy_scale": 0.002, "accuracy_seeds": [0], "work": str(tmp_path)}
    task = Task("accuracy", "", fanout=[10], batch_size=128, epochs=15, hidden=64, options=options)
    rows = papers100m_phases.accuracy(task, lambda event: None)["rows"]
    sage, alone, often = (each["mean"] for each in rows)
    assert often < 0.05
    assert 3 * often < alone < sage - 0.05
    assert sage < 0.9


def test_scores(monkeypatch):
    """Accuracy; of two classes the area under the ROC curve."""
    monkeypatch.setattr(real_graphs, "forward", lambda model, batch: model.logits[batch.n_id])

    def scored(logits: torch.Tensor, y: torch.Tensor) -> float:
        model = torch.nn.Module()
        model.logits = logits
        parts = torch.arange(len(y)).split(7)
        loader = [Data(n_id=part, y=y[part], batch_size=len(part)) for part in parts]
        return real_graphs.score(model, loader)

    logits, y = torch.randn(40, 2), torch.randint(0, 2, (40,))
    margin = logits[:, 1] - logits[:, 0]
    pairs = margin[y == 1][:, None] > margin[y == 0][None]
    assert scored(logits, y) == pytest.approx(float(pairs.double().mean()))
    logits, y = torch.randn(40, 3), torch.randint(0, 3, (40,))
    expected = np.mean(logits.argmax(1).numpy() == y.numpy())
    assert scored(logits, y) == pytest.approx(float(expected))


def test_the_steady_state_leaves_out_the_beginning_and_what_is_no_training():
    first = LoaderStats(2, batches=10, elapsed=50.0, reads=900, read=9.0, rows=10)
    last = LoaderStats(2, batches=30, elapsed=100.0, reads=1900, read=29.0, rows=60)
    found = papers100m_phases.steady_state([(first, 0.0), (last, 10.0)])
    assert found is not None
    assert (found["batches"], found["elapsed"], found["reads"], found["rows"]) == (20, 40, 1000, 50)
    assert papers100m_phases.steady_state([(first, 0.0), (first, 0.0)]) is None
