"""The parts of ``benchmarks/out_of_core.py``, at the smallest scale."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from out_of_core_report import charts, reading, table, targets
from out_of_core_runs import Stores, thinned
from out_of_core_task import StoreFiles
from sieve import SieveCache
from torch_geometric.data import HeteroData

import pyg_graphzero as gz
from pyg_graphzero.bench.cap import CapError, MemoryCap
from pyg_graphzero.bench.communities import CommunityGraph, check_rows, row_digits
from pyg_graphzero.bench.timeline import Timeline
from pyg_graphzero.bench.training import Trainer
from pyg_graphzero.util.machine import storage

MIB = 1 << 20
SMALL = CommunityGraph(20_000, num_features=8, num_communities=100)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, Path]:
    folder = tmp_path_factory.mktemp("communities")
    for encoding in (None, "float16"):
        SMALL.write(folder / str(encoding), encoding=encoding)
    return {encoding: folder / str(encoding) for encoding in (None, "float16")}


def test_communities_have_hubs_and_keep_to_themselves(stores):
    data = gz.open(stores[None]).data()
    src, dst = data.edge_index
    assert data.num_edges / SMALL.num_nodes == pytest.approx(SMALL.edges_per_node, rel=0.05)
    in_degree = dst.bincount(minlength=SMALL.num_nodes).sort(descending=True).values
    out_degree = src.bincount(minlength=SMALL.num_nodes).sort(descending=True).values
    # A power law: a hundredth of the nodes has several times its share, nobody has nearly all.
    assert in_degree[:200].sum() > 0.03 * data.num_edges
    assert in_degree[0] <= 0.001 * SMALL.num_nodes + 1
    assert out_degree[:2000].sum() > 0.25 * data.num_edges
    place = torch.from_numpy(SMALL.place_of).long()
    community = place // SMALL.community_size
    inside = (community[src] == community[dst]).float().mean()
    assert inside == pytest.approx(0.4, abs=0.02)
    assert torch.equal(data.y.long(), community % 172)


def test_ids_say_nothing_about_communities():
    places = SMALL.place_of.astype(np.float64)
    assert sorted(SMALL.id_of.tolist()) == list(range(SMALL.num_nodes))
    assert abs(np.corrcoef(places, np.arange(SMALL.num_nodes))[0, 1]) < 0.03
    assert abs(np.corrcoef(places[:-1], places[1:])[0, 1]) < 0.03


def test_training_seeds_lie_in_few_communities(stores):
    train = gz.open(stores[None]).data().train_idx
    assert torch.equal(train, SMALL.train_nodes())
    assert train.numel() == train.unique().numel() == 220
    places = SMALL.place_of[train.numpy()]
    assert np.unique(places // SMALL.community_size).tolist() == [0, 1, 2]


def test_a_graph_is_the_same_again_and_its_rows_say_whose_they_are(stores):
    one, half = (gz.open(path).data() for path in stores.values())
    assert torch.equal(one.edge_index, half.edge_index)
    assert torch.equal(one.x.half().float(), half.x)
    nodes = torch.tensor([0, 4095, 4096, 19_999])
    check_rows(nodes, one.x[nodes])
    check_rows(nodes, half.x[nodes].half())
    assert torch.equal(SMALL.features().read(4000, 5000), one.x[4000:5000])
    with pytest.raises(ValueError, match=r"x\[1\]: found .* those of node 7"):
        check_rows(torch.tensor([0, 7]), one.x[:2])
    other = CommunityGraph(20_000, num_features=8, num_communities=100, seed=1)
    assert not np.array_equal(other.id_of, SMALL.id_of)
    large = torch.tensor([2**31 - 1, 2**31 - 2, 2**22, 2048])
    assert torch.unique(row_digits(large).half(), dim=0).size(0) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_nodes": 150}, "num_nodes: found 150, expected at least two for each"),
        ({"num_nodes": 2**31}, "expected less than"),
        ({"num_features": 3}, "num_features: found 3"),
        ({"seed_share": 0.1}, "seed_share: found 0.1"),
    ],
)
def test_graphs_that_cannot_be(change, message):
    with pytest.raises(ValueError, match=message):
        CommunityGraph(**{"num_nodes": 1000, "num_communities": 100, **change})


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


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
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


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_sieve_refuses_rows_that_are_not_there():
    cache, out = SieveCache(10, 3, 0), torch.empty(1, 0, dtype=torch.uint8)
    for row in (-1, 10):
        with pytest.raises(IndexError, match="expected 0 <= row < 10"):
            cache.query(torch.tensor([row]), out)


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


def test_a_folder_of_another_graph(tmp_path):
    stores = Stores(tmp_path, SMALL, [3, 2], 16)
    store = stores.path("f32")
    assert store == Stores(tmp_path, SMALL, [3, 2], 16).path("f32")
    assert gz.open(store).data().num_nodes == SMALL.num_nodes
    with pytest.raises(ValueError, match="found the stores of"):
        Stores(tmp_path, SMALL, [3, 2], 17)
    stores.remove()
    assert not store.exists()


def test_trimmed_training_is_the_same_training(stores):
    data = gz.open(stores[None]).data()
    loader = gz.loader.NeighborLoader(data, [4, 3], input_nodes=data.train_idx, batch_size=64)
    outputs = []
    for trim in (False, True):
        torch.manual_seed(0)
        trainer = Trainer(data, None, 2, 172, trim)
        for batch in loader:
            trainer.step(batch)
        outputs.append(trainer._forward(batch)[: batch.batch_size])
    assert torch.allclose(outputs[0], outputs[1], atol=1e-4)
    with pytest.raises(ValueError, match="found HeteroData"):
        Trainer(HeteroData(), None, 2, 172, trim=True)


def test_raw_files_of_a_store(stores, tmp_path):
    files = StoreFiles(stores["float16"])
    assert files.dtype == torch.float16
    data = gz.open(stores["float16"]).data()
    assert torch.equal(torch.from_numpy(np.array(files.memmap()[5:9])).float(), data.x[5:9])
    CommunityGraph(300, num_features=125, num_communities=10).write(tmp_path / "padded")
    with pytest.raises(ValueError, match="rows of 500 bytes 512 apart"):
        StoreFiles(tmp_path / "padded")


def test_thinned_keeps_peaks():
    points = [{"seconds": i, "anon": i == 777, "file": 0} for i in range(1000)]
    few = thinned(points)
    assert len(few) <= 300
    assert sum(point["anon"] for point in few) == 1
    assert thinned([]) == []


def result(name: str, group: str, seconds: float, **changes) -> dict:
    epochs = [
        {"epoch": i, "batches": 10, "seconds": seconds * (1.2 if i == 0 else 1), "counts": {}}
        for i in range(3)
    ]
    plain = {
        "name": name,
        "group": group,
        "store": "f32",
        "limit": 1000,
        "error": None,
        "at_most": None,
        "epochs": epochs,
        "batch_seconds": [seconds / 10] * 30,
        "peak": {"anon": 700, "anon_and_file": 900, "anon_and_shmem": 700, "charged": 1000},
        "timeline": [{"seconds": 0.0, "anon": 700, "file": 200}],
        "disk": {"random_iops": 100.0, "bytes_per_second": 1000.0},
    }
    return plain | changes


@pytest.fixture
def report() -> dict:
    ours = result("ours, f32", "ours", 1)
    ours["epochs"][-1]["counts"] = {
        "reads": 50, "read_bytes": 800, "read": 0.9, "rows": 100, "hits": 50
    }  # fmt: skip
    none = {"epochs": [], "batch_seconds": [], "error": "after ready: nothing came for 50 s"}
    return {
        "limit": 1000,
        "feature_bytes": 4000,
        "means": "control group version 1",
        "results": [
            result("stock, 0 workers", "stock", 1, **none, at_most=0.02),
            result("memmap random, 4 threads", "memmap", 5),
            ours,
        ],
    }


def test_targets(report):
    found = targets(report)
    assert found["against stock PyG over np.memmap"].startswith("more than 500× (ours, f32 /")
    assert found["against the tuned memmap"].startswith("5× ")
    assert found["ours, f32: first epoch against the third"] == "1.20×"
    assert found["ours, f32: RssAnon + resident pages of the budget"] == "90%"
    # 800 bytes take longer than 50 reads do.
    assert found["ours, f32: time in reads against the ideal"] == "1.12×"
    assert not any("GraphBolt" in name for name in found)


def test_what_an_epoch_cut_short_does_not_say(report):
    ours = report["results"][-1]
    ours["epochs"] = [{"epoch": 0, "batches": 3, "seconds": 1.0, "counts": {}}]
    assert reading(ours) is None
    assert "first epoch against the third" not in " ".join(targets(report))


def test_table_and_charts(report, tmp_path):
    text = table(report)
    assert "<0.02" in text
    assert "stock, 0 workers: after ready: nothing came for 50 s" in text
    assert "50%" in text
    assert charts(report, tmp_path) is None
    for name in ("speed", "memory", "reads"):
        assert (tmp_path / f"out_of_core_{name}.png").read_bytes()[1:4] == b"PNG"
        assert (tmp_path / f"out_of_core_{name}.png").stat().st_size < 100_000
    json.dumps(report)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_the_whole_of_it(tmp_path):
    """The script from the graph to the JSON, with two of its contestants."""
    with limited(MIB):
        if storage(tmp_path)["filesystem"] in ("tmpfs", "ramfs"):
            pytest.skip("the temporary folder is in memory")
    script = Path(__file__).parent.parent / "benchmarks" / "out_of_core.py"
    options = {"--nodes": 20_000, "--batch-size": 64, "--batches": 2, "--epochs": 2}
    options |= {"--memory": "2GB", "--only": "graphbolt", "--dir": tmp_path, "--out": tmp_path}
    command = [sys.executable, str(script), "--no-drop-caches", "--row-cache", "1MB"]
    command += [str(part) for pair in options.items() for part in pair]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "graphbolt scheme, f16" in text
    found = json.loads((tmp_path / "out_of_core.json").read_text())
    assert found["limit"] == 2 * 10**9
    assert found["graph"]["seeds"] == 220
    assert [each["error"] for each in found["results"]] == [None, None]
    single, half = found["results"]
    assert single["facts"]["cache_rows"] * 2 == half["facts"]["cache_rows"] == 3906
    for each in found["results"]:
        assert [epoch["batches"] for epoch in each["epochs"]] == [2, 2]
        counts = each["epochs"][1]["counts"]
        # Every row that is not in the cache is read, but for neighbours that share a read.
        assert 0 < counts["reads"] <= counts["rows"] - counts["hits"]
        assert counts["read_bytes"] <= 4096 * counts["reads"]
        assert each["peak"]["anon"] > 50 * MIB
        assert each["cache_before"]["share"] < 0.02
    assert not (tmp_path / "out-of-core").exists()
