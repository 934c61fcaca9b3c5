"""``benchmarks/papers100m.py`` at the smallest scale: the graph, every phase, and the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import papers100m
import papers100m_graph
import papers100m_peers
import pytest
import torch
from papers100m_accuracy import compare
from papers100m_disk import DiskError, check, needs
from papers100m_graph import MASKS, NUM_EDGES, PapersGraph, write_ogb
from papers100m_phases import check_rows, convert, infer, optimize, steady_state, train
from papers100m_report import charts, epoch_seconds, table, throughput
from papers100m_run import make_task
from papers100m_task import Task, io_bytes

import pyg_graphzero as gz
from pyg_graphzero.bench.cap import CapError, MemoryCap
from pyg_graphzero.loader.stats import LoaderStats
from pyg_graphzero.store.columns import EncodedRows
from pyg_graphzero.util.disk import DiskSpeed
from pyg_graphzero.util.system import rss

SCALE = 0.0003
GRAPH = PapersGraph.of(SCALE)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("papers") / "store"
    GRAPH.write(path)
    return path


def test_counts_are_those_of_the_real_graph():
    whole = PapersGraph.of(1.0)
    assert (whole.num_nodes, whole.num_edges) == (111_059_956, 1_615_685_872)
    assert (whole.num_features, papers100m_graph.NUM_CLASSES) == (128, 172)
    # Every chunk has its share of the edges, whatever is drawn: they add up.
    rng = np.random.default_rng(0)
    begins = list(range(0, whole.num_nodes, 10_000_000))
    shares = [each * whole.num_edges // whole.num_nodes for each in [*begins, whole.num_nodes]]
    assert shares[0] == 0
    assert shares[-1] == whole.num_edges
    degree = whole._degrees(rng, whole.num_nodes - 50_000, whole.num_nodes)
    first = (whole.num_nodes - 50_000) * whole.num_edges // whole.num_nodes
    assert degree.sum() == whole.num_edges - first
    assert degree.min() >= 0


def test_a_store_has_exactly_the_scale(store):
    data = gz.open(store).data()
    assert data.num_nodes == round(SCALE * 111_059_956) == GRAPH.num_nodes
    assert data.num_edges == round(SCALE * 1_615_685_872) == GRAPH.num_edges
    for name, count in {"train": 1_207_179, "valid": 125_265, "test": 214_338}.items():
        nodes = data[MASKS[name]].nonzero().view(-1)
        assert len(nodes) == round(SCALE * count)
        assert nodes.tolist() == GRAPH.split[name].tolist()
    known = data.train_mask.int() + data.val_mask.int() + data.test_mask.int()
    assert known.max() == 1
    assert torch.equal(data.y >= 0, known.bool())
    assert data.y.max() < 172
    assert data.y[data.y >= 0].unique().numel() > 120


def test_degrees_are_skewed_and_edges_keep_to_communities(store):
    data = gz.open(store).data()
    src, dst = data.edge_index
    for ends in (src, dst):
        degree = ends.bincount(minlength=GRAPH.num_nodes).sort(descending=True).values
        assert degree[: GRAPH.num_nodes // 100].sum() > 0.05 * data.num_edges
        assert degree[-1] == 0
    community = torch.from_numpy(GRAPH.place_of // GRAPH.community_size)
    far = (community[src] - community[dst]).abs()
    assert (far == 0).float().mean() == pytest.approx(0.55, abs=0.03)
    near = ((far == 1) | (far == GRAPH.num_communities - 1)).float().mean()
    assert 0.05 < near < 0.15
    # Training nodes lie in few communities, and ids do not tell which.
    places = GRAPH.place_of[GRAPH.split["train"]]
    assert places.max() < round(GRAPH.seed_communities * GRAPH.num_communities) * (
        GRAPH.community_size
    )
    assert abs(np.corrcoef(GRAPH.place_of, np.arange(GRAPH.num_nodes))[0, 1]) < 0.03


def test_the_same_again_and_another_seed(store, tmp_path):
    GRAPH.write(tmp_path / "again")
    one, two = gz.open(store).data(), gz.open(tmp_path / "again").data()
    assert torch.equal(one.edge_index, two.edge_index)
    assert torch.equal(one.x, two.x)
    assert torch.equal(one.y, two.y)
    other = PapersGraph.of(SCALE, seed=1)
    assert not np.array_equal(other.split["train"], GRAPH.split["train"])
    rows = other.features().read(0, 5)
    assert not torch.allclose(rows, one.x[:5])
    # Rows depend on their node alone, not on the pieces they are made in.
    assert torch.equal(GRAPH.features().read(100, 200), one.x[100:200])
    assert torch.equal(torch.cat(list(GRAPH.features().slabs(7000))), one.x)


@pytest.mark.parametrize("scale", [0, 1.5, -1])
def test_scales_that_are_none(scale):
    with pytest.raises(ValueError, match=f"scale: found {scale}"):
        PapersGraph.of(scale)


def test_ogb_files_are_the_same_graph(store, tmp_path):
    """As after download: read by the reader of the real one."""
    root = tmp_path / "ogbn_papers100M"
    write_ogb(GRAPH, root)
    with pytest.raises(FileExistsError):
        write_ogb(GRAPH, root)
    summary = gz.convert(root, tmp_path / "read", progress=False)
    assert "OGB directory" in summary.what
    ours, read = gz.open(store).data(), gz.open(tmp_path / "read").data()
    assert torch.equal(ours.edge_index, read.edge_index)
    for name in ("x", "y", *MASKS.values()):
        assert ours[name].dtype == read[name].dtype
        assert torch.equal(ours[name], read[name]), name
    assert read.node_year.shape[0] == GRAPH.num_nodes
    labels = np.load(root / "raw" / "node-label.npz")["node_label"]
    assert labels.dtype == np.float32
    assert np.isnan(labels).mean() > 0.9


def test_accuracy_means_something(tmp_path, monkeypatch):
    """Neighbours tell more than a node alone, both more than guessing, and nothing tells all."""
    monkeypatch.setattr("papers100m_accuracy.ENCODINGS", ("float32",))
    sage, alone, often = compare(tmp_path, 0.002, [0], 15, 64, [10], 128)
    assert alone["features"] == "float32, own features"
    assert often["mean"] < 0.05
    assert 3 * often["mean"] < alone["mean"] < sage["mean"] - 0.05
    assert sage["mean"] < 0.9


def task(store: Path, phase: str, **changes) -> Task:
    (store.parent / "work").mkdir(exist_ok=True)
    budget = rss() + 10**9  # other tests may have left much
    plain = {"work": str(store.parent / "work"), "scale": SCALE, "budget": budget, "hidden": 16}
    plain |= {"batch_size": 32, "fanout": [4, 3], "batches": 12, "options": {"eval_nodes": 20}}
    return Task(phase, str(store), **plain | changes)


def test_convert_optimize_train(tmp_path, monkeypatch):
    told = []

    def decoded(rows: EncodedRows) -> torch.Tensor:
        raise AssertionError("all rows in memory are 57 GB at scale 1")

    monkeypatch.setattr(EncodedRows, "decoded", decoded)
    path = tmp_path / "store"
    found = convert(task(path, "convert", features="int8"), told.append)
    assert found["num_edges"] == GRAPH.num_edges
    assert found["split"] == {MASKS[name]: len(ids) for name, ids in GRAPH.split.items()}
    before = gz.open(path).data().edge_index
    with gz.open(path) as opened, pytest.raises(ValueError, match=r"x\[\d+\]: found a value that"):
        check_rows(PapersGraph.of(SCALE, seed=1), "int8", opened)
    found = optimize(task(path, "optimize"), told.append)
    assert found["seeds"].startswith("train_mask")
    assert "path" not in found
    assert gz.open(path).data().edge_index.shape == before.shape
    found = train(task(path, "train"), told.append)
    json.dumps([found, told])
    assert found["batches"] == 12
    assert [each["event"] for each in told] == ["ready", *["batch"] * 12]
    assert [each["batch"] for each in found["curve"]] == list(range(1, 13))
    assert all(0 <= each["val_accuracy"] <= 1 for each in found["curve"])
    # 362 training nodes are 11 batches: an epoch and the first batch of another.
    assert found["epoch_batches"] == 11
    assert (tmp_path / "work" / "model.pt").exists()
    found = infer(task(path, "infer"), told.append)
    json.dumps(found)
    assert found["trained"]
    assert found["num_nodes"] == GRAPH.num_nodes
    assert [each["num_rows"] for each in found["layers"]] == [GRAPH.num_nodes] * 2
    data = gz.open(path).data()
    nodes = data.test_mask.nonzero().view(-1)
    right = (data.class_0[nodes].long() == data.y[nodes]).float().mean()
    assert found["test_accuracy"] == pytest.approx(float(right))
    assert infer(task(path, "infer"), told.append)["out"] == "class_1"  # under another limit
    with pytest.raises(ValueError, match="another one, --hidden differs"):
        infer(task(path, "infer", hidden=8), told.append)


def test_training_ends_when_time_is_up(store):
    told = []
    found = train(task(store, "train", seconds=0.0), told.append)
    assert found["batches"] == 1
    assert found["steady"] is None


def test_steady_state_leaves_out_the_beginning_and_what_is_no_training():
    first = LoaderStats(2, batches=10, elapsed=50.0, reads=900, read=9.0, rows=10)
    last = LoaderStats(
        2, batches=30, elapsed=100.0, reads=1900, read_bytes=4000, read=29.0, rows=60
    )
    last.hits = 25
    disk = DiskSpeed("disk", 100.0, 1000.0, 128, True, 1 << 30)
    found = steady_state([(first, 0.0), (last, 10.0)], 100, disk)
    assert found["seconds_per_batch"] == 2.0
    assert found["epoch_seconds"] == 200.0
    assert found["counts"]["hit_rate"] == 0.5
    assert found["ideal_seconds"] == 10.0  # 1000 reads take longer than 4000 bytes
    assert found["device_use"] == 0.5
    assert found["device_busy"] == 0.25
    assert steady_state([(first, 0.0), (first, 0.0)], 100, disk) is None


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyG wants pyg-lib, torch a writable map
@pytest.mark.parametrize("features", ["float32", "int8"])
def test_stock_has_the_same_rows(tmp_path, features):
    pytest.importorskip("torch_sparse")
    path = tmp_path / "store"
    convert(task(path, "convert", features=features), lambda event: None)
    told = []
    found = papers100m_peers.stock(task(path, "stock", batches=2), told.append)
    assert found["batches"] == 2
    assert [each["event"] for each in told] == ["ready", "batch", "batch"]
    files = papers100m_peers.StoreFiles(path)
    rows = papers100m_peers.decoded(files, torch.from_numpy(np.array(files.memmap()[5:9])))
    wanted = gz.open(path).feature_store.get_tensor(
        group_name=None, attr_name="x", index=torch.arange(5, 9)
    )
    assert torch.allclose(rows, wanted, atol=1e-5)


def test_neighbors_in_64_bits_over_a_map(tmp_path, monkeypatch):
    monkeypatch.setattr(papers100m_peers, "_COPIED", 3)
    narrow = torch.tensor([5, 2**32 - 1, 0, 7], dtype=torch.uint32)
    wide = papers100m_peers.as_map(narrow, tmp_path / "wide")
    assert wide.dtype == torch.int64
    assert wide.tolist() == narrow.tolist()
    assert papers100m_peers.as_map(wide, tmp_path / "none") is wide
    assert not (tmp_path / "none").exists()


class FakePeer:
    """What the package ``graphzero`` offers, in memory; it fails where it is told to."""

    class DataType:
        FLOAT32 = 2

    def __init__(self, fails: bool) -> None:
        self._fails = fails

    def convert_csv_to_gl(self, text: str, out: str, directed: bool) -> None:
        assert directed
        lines = Path(text).read_text().splitlines()
        self.edges = np.array([line.split(",") for line in lines[1:]], dtype=np.int64)

    def convert_csv_to_gd(self, text: str, out: str, kind: int) -> None:
        if self._fails:
            raise RuntimeError("bad allocation")
        self.rows = np.loadtxt(text, delimiter=",", dtype=np.float32)

    def Graph(self, path: str) -> FakePeer:
        self.num_nodes, self.num_edges = GRAPH.num_nodes, len(self.edges)
        return self

    def FeatureStore(self, path: str) -> FakePeer:
        return self

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
    options = {"scale": SCALE / 10}
    told = []
    small = task(tmp_path / "store", "graphzero", batches=1, batch_size=4, options=options)
    if fails:
        with pytest.raises(RuntimeError, match="bad allocation"):
            papers100m_peers.graphzero(small, told.append)
        assert told[-1]["found"]["failed_in"] == "convert_csv_to_gd"
        assert "convert_csv_to_gl" in told[-1]["found"]["steps"]
        return
    found = papers100m_peers.graphzero(small, told.append)
    assert found["batches"] == 1
    assert found["opened"]["num_edges"] == PapersGraph.of(SCALE / 10).num_edges
    right = found["is_right"]
    assert right["rows"]
    # It pads with zeros, and node 0 is no neighbour.
    assert right["drawn_are_neighbors"] == (0 in right["neighbors"])


def test_disk_is_refused_before_anything_is_made(tmp_path):
    phases = ["convert", "optimize", "train"]
    int8 = needs(phases, 1.0, "int8", 256, "stream", 0.01)
    half = needs(phases, 1.0, "float16", 256, "stream", 0.01)
    before = needs(["train", "optimize"], 1.0, "int8", 256, "stream", 0.01)
    assert 20e9 < before["train"] < 25e9
    # The numbers of edges that are no longer in their first order, and the rows' order.
    assert int8["train"] - before["train"] > 4 * NUM_EDGES
    assert 45e9 < int8["optimize"] < half["optimize"]
    assert needs(phases, 0.5, "int8", 256, "stream", 0.01)["optimize"] < 45e9
    made, there = (needs(["convert"], 1.0, "int8", 1, each, 0.01) for each in ("ogb", "data"))
    assert made["convert"] - there["convert"] > 80e9  # the files themselves
    with pytest.raises(DiskError, match=r"for 'optimize'.*--features int8 takes least"):
        check(half, tmp_path, 45 * 10**9)
    check({"train": 1}, tmp_path, 45 * 10**9)
    command = ["--dir", str(tmp_path / "new"), "--features", "float32", "--max-disk", "1GB"]
    with pytest.raises(DiskError, match=r"expected .* for 'optimize'"):
        papers100m.main([*command, "--out", str(tmp_path / "out"), "--limit", "none"])
    assert not (tmp_path / "new" / "papers100m").exists()


def test_budgets_leave_room(tmp_path):
    args = papers100m.parse(["--dir", str(tmp_path), "--limit", "12GB", "none"])
    assert args.limit == [12 * 10**9, None]
    assert make_task(args, "train", args.limit[0]).budget == 9_500_000_000
    assert make_task(args, "optimize", args.limit[0]).budget == 9 * 10**9
    assert make_task(args, "train", None).budget is None
    with pytest.raises(ValueError, match="expected more than 2,500,000,000"):
        make_task(args, "train", 2 * 10**9)
    named = papers100m.parse(["--dir", str(tmp_path), "--memory", "1GB"])
    assert make_task(named, "train", 2 * 10**9).budget == 10**9
    with pytest.raises(ValueError, match="which are --training-memory"):
        papers100m.main(
            ["--dir", str(tmp_path), "--out", str(tmp_path), "--limit", "2GB", "--scale", "0.1"]
        )
    with pytest.raises(SystemExit):
        papers100m.parse(["--dir", str(tmp_path), "--phases", "convert,tain"])


def test_bytes_read_and_written_are_counted(tmp_path):
    before = io_bytes()
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(1 << 20))
        os.fsync(file.fileno())
    assert set(before) == {"read_bytes", "write_bytes"}
    assert io_bytes()["write_bytes"] >= before["write_bytes"]


@pytest.mark.long
def test_the_whole_of_it(tmp_path):
    """From files in OGB's layout to the JSON, each phase in a process under a limit."""
    limit = "3GB"
    try:
        with MemoryCap(3 * 10**9):
            pass
    except CapError:
        limit = "none"
    command = [sys.executable, str(Path(papers100m.__file__))]
    options = {"--dir": tmp_path / "here", "--out": tmp_path, "--scale": SCALE, "--limit": limit}
    options |= {"--phases": "convert,optimize,train", "--layout": "ogb", "--batch-size": 32}
    options |= {"--batches": 3, "--hidden": 16, "--eval-nodes": 16, "--training-memory": "1GB"}
    command += [str(part) for pair in options.items() for part in pair] + ["--no-drop-caches"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "papers100m.json").read_text()
    assert str(tmp_path) not in text
    found = json.loads(text)
    assert [each["error"] for each in found["results"]] == [None] * 3
    converted, optimized, trained = found["results"]
    assert converted["found"]["num_edges"] == GRAPH.num_edges
    assert optimized["found"]["num_batches"] > 0
    assert len(trained["batch_seconds"]) == 3
    for each in found["results"]:
        assert each["peak"]["anon"] > 50e6
        assert each["limit"] in (None, 3 * 10**9)
        assert set(each["found"]["io"]) == {"read_bytes", "write_bytes"}
    assert not (tmp_path / "here" / "papers100m").exists()
    assert "3 batches" in done.stdout
    if "charts left out" not in done.stdout:
        for chart in ("memory", "speed", "compare"):
            assert (tmp_path / f"papers100m_{chart}.png").stat().st_size < 200_000
        assert charts(found, tmp_path, "again") is None
    found["accuracy"] = [{"features": "int8", "test_accuracy": [0.5, 0.25], "mean": 0.375}]
    found["results"][1]["error"] = "after ready: nothing came"
    text = table(found)
    assert "37.50%" in text
    assert "50.00% 25.00%" in text
    assert f"{'optimize, 3 GB' if limit == '3GB' else 'optimize, no limit'}: after ready" in text


def test_throughput_and_epochs():
    moments, rates = throughput([0.5] * 15)
    assert moments == [5.0, 7.5]
    assert rates == [2.0, 2.0]
    result = {"found": {"epoch_batches": 100}, "batch_seconds": [1.0, 3.0]}
    assert epoch_seconds(result) == 200.0
    assert epoch_seconds({"found": {}, "batch_seconds": []}) is None
