"""The scripts in ``benchmarks/``: each runs, and its record has what pages cite of it."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import out_of_core
import papers100m
import pytest
import summary
import torch
import walks_out_of_core
from hypothesis import given
from hypothesis import strategies as st
from papers100m_graph import PapersGraph

from harness.cap import CapError, MemoryCap
from harness.sieve import SieveCache
from pyg_graphzero.util.machine import storage

ROOT = Path(__file__).resolve().parents[2]
SCALE = 0.0003
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")


def found_in(value: Any, path: str) -> Any:
    """A field below others, of the first item of lists."""
    for name in path.split("/"):
        value = value[0] if isinstance(value, list) else value
        value = value[name]
    return value


# Small scripts ------------------------------------------------------------------------------------

GRAPH = "--nodes 3000 --edges 30000 --batch-size 64 --fanout 4 3"
TRAINING = "--graphs wordnet --seeds 0 --epochs 1 --hidden 4 --fanout 2 --batch-size 8192"
# Arguments with which a script runs in seconds, and fields of its record that a page cites.
SCRIPTS: dict[str, tuple[str, list[str]]] = {
    "accuracy": (
        f"{TRAINING} --features float32 int8 --options labor",
        ["rows/graph", "rows/relative_rmse", "rows/scores", "rows/mean", "rows/option",
         "rows/nodes_per_batch", "rows/nodes_per_window"],
    ),
    "from_graphzero": (
        "--dir here --nodes 300 --edges 2000 --dim 4 --batch-size 64 --rounds 1",
        ["medians/ours/convert", "medians/ours/biased walk", "medians/ours/peak of use"],
    ),
    "beside_pyg": (
        f"{GRAPH} --dim 8 --batches 2 --rounds 1 --workers 0",
        ["results/case", "results/batches_per_second/ours"],
    ),
    "loop": (
        f"{GRAPH} --dim 8 --hidden 8 --batches 2 --rounds 1 --models sage gat --features int8"
        " --ways load stock trimmed accelerated --loaders ours stock --sums none mean",
        ["results/accelerated, sage, ours, 0 workers/nodes",
         "results/accelerated, sage, ours, 2 workers/seconds",
         "results/accelerated, sage, ours, 0 workers, mean/load_cpu",
         "results/load, ours, 2 workers/bytes",
         "results/stock, gat, ours, 2 workers/step_cpu"],
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


@pytest.mark.long
@pytest.mark.parametrize("name", SCRIPTS)
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


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(capsys):
    with pytest.raises(SystemExit):
        importlib.import_module("loop").main(["--device", "cuda"])
    assert "found no GPU" in capsys.readouterr().err


# The harness --------------------------------------------------------------------------------------


def limited(folder: Path, limit: int) -> None:
    try:
        with MemoryCap(limit):
            pass
    except CapError as error:
        pytest.skip(str(error))
    if storage(folder)["filesystem"] in ("tmpfs", "ramfs"):
        pytest.skip("the temporary folder is in memory")


def test_a_limit_of_nothing():
    with pytest.raises(ValueError, match="limit: found 0, expected a positive number of bytes"):
        MemoryCap(0)


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
    assert not list(tmp_path.glob("out-of-core*"))
    assert (tmp_path / "out_of_core_memory.png").stat().st_size < 100_000


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
    assert not (tmp_path / "graph" / "walks-20000").exists()
    assert "steps_per_second" in capsys.readouterr().out


@pytest.mark.long
def test_papers100m(tmp_path):
    """From the graph to the summary, each phase in a process under a limit."""
    limited(tmp_path, 1 << 20)
    options = f"--dir {tmp_path}/here --out {tmp_path} --scale {SCALE} --limit 3GB"
    options += " --phases convert,shape,graphbolt,load,optimize,train,infer"
    options += " --batch-size 32 --fanout 5 5 5"
    options += " --batches 12 --hidden 16 --eval-nodes 16 --training-memory 1GB --no-drop-caches"
    papers100m.main(options.split())
    text = (tmp_path / "papers100m.json").read_text()
    assert str(tmp_path) not in text
    found = json.loads(text)
    converted, shape, bolt, load, optimized, trained, inferred = found["results"]
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
    for each in (converted, shape, bolt, load, optimized, trained, inferred):
        assert each["error"] is None
        assert each["peak"]["anon"] > 50e6
    summed = {each["name"]: each for each in summary.summed_up(found)["results"]}
    cited = ["seconds_per_batch", "epoch_seconds", "stall_share", "steady_batches", "peak"]
    assert summed["train, 3 GB"].keys() >= {*cited, "first_batch_seconds"}
    assert summed["train, 3 GB"]["found"]["curve"][-1]["val_accuracy"] >= 0
    assert not (tmp_path / "here" / "papers100m").exists()


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
    """Misses equal the reference's, and hits bring the bytes that were read."""
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
