"""``gz.doctor``: batches that a loader makes for some seconds, what binds them, what would help."""

from __future__ import annotations

import html
import json
import re
import shutil
import sys
from dataclasses import replace
from itertools import count

import budgets
import pytest
import torch
from budgets import budget_beside
from commands import graphzero
from torch_geometric.data import Data, HeteroData

import pyg_graphzero as gz
from graphs import write_store
from pyg_graphzero.bench.synthetic import power_law, power_law_hetero
from pyg_graphzero.loader.stats import LoaderStats
from pyg_graphzero.tune.diagnosis import BANDWIDTH, CPU, RANDOM_READS
from pyg_graphzero.tune.doctor import _load
from pyg_graphzero.util.disk import READER_BYTES, DiskSpeed

SAMPLED = {"num_neighbors": [8, 4], "batch_size": 128}
# More than a loader needs, less than the files are.
ROOM = 90_000_000
# So slow that a copy is worth its making.
SLOW_DISK = DiskSpeed("slow", 500.0, 8e6, depth=128, direct=True, file_bytes=1 << 30)


@pytest.fixture(scope="module")
def skewed(tmp_path_factory):
    """A graph with hubs whose features are 100 MB."""
    path = tmp_path_factory.mktemp("doctor") / "skewed"
    gz.convert(power_law(100_000, 1_000_000, 256), path)
    return path


@pytest.fixture(autouse=True)
def steady(monkeypatch):
    """Fixes the process's measured memory while a budget is divided, whatever is freed."""
    held = budget_beside(0)
    for module in ("store.contents", "memory.keeper"):
        monkeypatch.setattr(sys.modules[f"pyg_graphzero.{module}"], "private_rss", lambda: held)
    monkeypatch.setattr(budgets, "private_rss", lambda: held)


@pytest.fixture
def disk_bound(monkeypatch):
    """All loaders wait for the disk, however fast it is."""
    monkeypatch.setattr(LoaderStats, "verdict", "disk-bound")


@pytest.mark.parametrize("edge_ids", [False, pytest.param(True, marks=pytest.mark.long)])
def test_it_counts_as_a_loader_does(skewed, edge_ids, monkeypatch):
    store = gz.open(skewed, memory=budget_beside(ROOM), row_cache=False)
    epoch = -(-int(store.data().train_mask.sum()) // SAMPLED["batch_size"])
    # A clock that each batch moves on, however fast the machine is.
    monkeypatch.setattr("pyg_graphzero.tune.doctor.perf_counter", count().__next__)
    found = gz.doctor(store, edge_ids=edge_ids, seconds=4 * epoch, num_workers=1, **SAMPLED)
    assert not found.fits
    spare = found.memory_plan.memory - found.memory_plan.baseline
    data = gz.open(skewed, memory=budget_beside(spare), row_cache=False).data()
    loader = gz.loader.NeighborLoader(
        data, input_nodes=data.train_mask, shuffle=True, num_workers=1, edge_ids=edge_ids,
        **SAMPLED,
    )  # fmt: skip
    for _ in range(2):  # the second epoch finds in memory what the first one has left there
        for _ in loader:
            pass
    fact, loaded = loader.stats(), found.loaded
    assert found.num_batches == fact.batches
    for name in ("nodes", "edges", "bytes", "rows", "hits"):
        want, got = getattr(fact, name) / fact.batches, getattr(loaded, name) / loaded.batches
        assert got == pytest.approx(want, rel=0.15), name
    assert loaded.reads_per_batch > 0


def epochs_of(batches, seconds):
    """A loader whose batches take ``seconds`` each, and a clock that they move on."""
    now = [0.0]

    class Loader:
        num_workers = 1

        def __iter__(self):
            self.made = LoaderStats(1)
            for _ in range(batches):
                now[0] += seconds
                self.made.batches += 1
                self.made.elapsed += seconds
                yield self.made

        def stats(self):
            return self.made

    return Loader(), lambda: now[0]


@pytest.mark.parametrize(
    ("batches", "each", "counted"),
    [
        (0, 1.0, 0),  # as with drop_last
        (1000, 1.0, 6),  # those that come after 5 s until 10 s have passed
        (8, 1.0, 4),  # of the epoch's batches, the later ones
        (4, 1.0, 4),  # a whole epoch
        (1, 60.0, 1),
        (1000, 60.0, 1),
    ],
)
def test_batches_of_the_first_half_are_not_counted(monkeypatch, batches, each, counted):
    loader, clock = epochs_of(batches, each)
    monkeypatch.setattr("pyg_graphzero.tune.doctor.perf_counter", clock)
    found = _load(loader, 10.0)
    assert (found.batches, found.elapsed) == (counted, counted * each)


def test_resource_that_binds(skewed, disk_bound):
    found = gz.doctor(skewed, memory=budget_beside(ROOM), edge_ids=False, seconds=0.2, **SAMPLED)
    few, many = {"reads": 10, "read_bytes": 10**9}, {"topology_reads": 10**6, "topology_bytes": 1}
    for counts, binds in ((few, BANDWIDTH), (many, RANDOM_READS)):
        loaded = LoaderStats(1, **counts)
        assert replace(found, loaded=loaded, disk=SLOW_DISK).verdict == binds


def test_it_writes_no_copy_and_reads_one(skewed, tmp_path, monkeypatch):
    monkeypatch.setattr("pyg_graphzero.memory.keeper.probe", lambda *args: SLOW_DISK)
    path = shutil.copytree(skewed, tmp_path / "copied")

    def examined(row_cache="auto"):
        store = gz.open(path, memory=budget_beside(60_000_000), row_cache=row_cache)
        return gz.doctor(store, edge_ids=False, seconds=0.3, **SAMPLED)

    before = sorted(tmp_path.rglob("*"))
    assert "graphzero optimize makes it now" in str(examined())
    assert "graphzero optimize" not in str(examined(row_cache=False))
    assert sorted(tmp_path.rglob("*")) == before
    gz.optimize(path, seeds="train_mask", **SAMPLED)
    after = examined()
    assert after.loaded.reordered
    assert "graphzero optimize" not in str(after)


def test_advice_is_what_the_plan_would_be(skewed, tmp_path, disk_bound):
    found = gz.doctor(
        skewed, memory=budget_beside(60_000_000), edge_ids=False, seconds=0.2, **SAMPLED
    )
    kept = [each.kept for each in found.advice]
    assert kept == sorted(kept, reverse=True)
    shown = found._repr_html_()
    assert shown.count("<tr>") == len(str(found).splitlines())
    assert f"{kept[0]:4.0%} of" in html.unescape(shown)
    by_change = {each.change.split(" ")[0]: each for each in found.advice}
    # Advice that was followed is not given again, and brings what it said.
    spare = found.memory_plan.memory - found.memory_plan.baseline
    gz.convert(power_law(100_000, 1_000_000, 256), tmp_path / "half", features="float16")
    half = gz.doctor(
        tmp_path / "half", memory=budget_beside(spare), edge_ids=False, seconds=0.2, **SAMPLED
    )
    assert not any("float16" in each.change for each in half.advice)
    total = sum(file.num_bytes for file in half.files)
    plan = half.memory_plan
    held = sum(file.num_bytes for file in half.files if file.name in plan.held)
    assert by_change["float16"].num_bytes == total
    assert by_change["float16"].kept == pytest.approx(
        (held + sum(plan.hot.values())) / total, abs=0.05
    )


def test_neighbours_and_attributes_of_edges_may_not_fit(tmp_path):
    """Neighbours, ids and attributes of edges."""
    generator = torch.Generator().manual_seed(0)
    num_nodes, num_edges = 600_000, 1_000_000
    data = Data(
        x=torch.randn(num_nodes, 20, generator=generator),
        edge_index=torch.randint(0, num_nodes, (2, num_edges), generator=generator),
        edge_attr=torch.randn(num_edges, 10, generator=generator),
        train_idx=torch.arange(0, num_nodes, 100),
    )
    path = write_store(data, tmp_path / "s")
    sampled = {"num_neighbors": [4, 4], "batch_size": 64}
    names = ["edge/topology.gl", "edge/edge_attr.gd", "node/x.gd"]
    memory = budget_beside(READER_BYTES + 3_000_000)
    found = gz.doctor(path, memory=memory, seconds=0.5, **sampled)
    assert set(names) < set(found.memory_plan.hot)
    assert found.loaded.topology_reads > 0
    assert f"edge/topology.gl: {num_edges:,} rows" in str(found)
    assert "neighbours: read" in str(found)


def test_a_budget_that_processes_share(tmp_path):
    data = Data(x=torch.zeros(100, 4), edge_index=torch.arange(200).view(2, 100) % 100)
    gz.convert(data, tmp_path / "store", progress=False)
    store = gz.open(tmp_path / "store", memory="4GB", processes=2)
    found = gz.doctor(store, num_neighbors=[2], seconds=0.1)
    assert found.memory_plan.memory == 2 * 10**9
    assert found.memory_plan.held["node/x.gd"] == 100 * 16 // 2


def test_a_store_that_fits(store):
    found = gz.doctor(store, num_neighbors=[3], seconds=0.1)
    assert found.fits
    assert found.verdict.startswith("memory is enough")
    assert (found.loaded.reads, found.loaded.rows, found.loaded.hit_rate) == (0, 0, 1.0)
    assert (found.binds, found.advice, found.notes) == (CPU, [], [])
    text = str(found)
    assert "everything fits" in text
    shown = html.unescape(found._repr_html_())
    assert all(
        re.split(": | {2,}", line.strip(), maxsplit=1)[-1] in shown for line in text.splitlines()
    )


def test_types(tmp_path):
    gz.convert(power_law_hetero(4000, 40_000, 16, 3), tmp_path / "typed")
    found = gz.doctor(
        tmp_path / "typed", num_neighbors=[4, 2], input_type="n1", seconds=0.2, batch_size=64
    )
    assert found.seeds == "train_mask"
    assert found.num_batches == -(-found.num_seeds // 64)
    given_nodes = gz.doctor(
        tmp_path / "typed", num_neighbors=[4], seeds=torch.arange(10), input_type="n0", seconds=0.1
    )
    assert (given_nodes.seeds, given_nodes.num_seeds) == ("10 nodes", 10)


def test_typed_nodes_without_a_training_set(tmp_path):
    data = HeteroData()
    data["a"].x = torch.randn(20, 4)
    data["b"].x = torch.randn(30, 4)
    data["a", "to", "b"].edge_index = torch.stack(
        [torch.randint(0, 20, (100,)), torch.randint(0, 30, (100,))]
    )
    path = write_store(data, tmp_path / "s")
    with pytest.raises(
        ValueError, match=r"neither train_idx nor train_mask, expected .* input_type of"
    ):
        gz.doctor(path, num_neighbors=[2])
    found = gz.doctor(path, num_neighbors=[2], input_type="b", seconds=0.1)
    assert (found.seeds, found.num_seeds) == ("30 nodes", 30)


def test_a_budget_that_is_too_small(skewed):
    with pytest.raises(gz.MemoryBudgetError, match=r"expected [\d,]+ MB"):
        gz.doctor(skewed, memory=budget_beside(READER_BYTES + 1_500_000), **SAMPLED)


@pytest.mark.parametrize("seconds", [-1, 0, float("nan")])
def test_seconds_that_are_none(skewed, seconds):
    with pytest.raises(ValueError, match=f"seconds: found {seconds}, expected a positive number"):
        gz.doctor(skewed, seconds=seconds)


def test_command(skewed):
    arguments = ["doctor", skewed, "--num-neighbors", "8,4", "--batch-size", "128"]
    arguments += ["--no-edge-ids", "--seconds", "0.2"]
    shown = graphzero(*arguments, "--memory", budget_beside(ROOM))
    for part in (
        "machine: ",
        "disk: ",
        "node/x.gd: 100,000 rows of 1,024",
        "batches/s",
        "binds: ",
        "what would help:",
    ):
        assert part in shown.output
    raw = graphzero(*arguments, "--json", "--seeds", "train_mask")
    report = json.loads(raw.output)
    assert report["fits"] is True
    assert report["loaded"]["hit_rate"] == 1.0
    assert report["disk"]["merge_gap"] > 0
    assert {"bounds", "neighbours", "rows"} == {file["kind"] for file in report["files"]}
    wrong = graphzero(*arguments, "--seeds", "valid", code=2)
    assert "seeds='valid': found no" in wrong.output
    assert graphzero("doctor", f"{skewed}-none", code=2).output.startswith("error: ")


def test_verdict_names_the_disk():
    busy = {"num_workers": 2, "batches": 10, "elapsed": 10.0, "wait": 8.0}
    assert LoaderStats(**busy, rows=10, reads=5, read=9.0, sample=1.0).verdict == "disk-bound"
    assert LoaderStats(**busy, rows=10, reads=5, read=9.0, sample=1.0).stall == 8.0
    # Neighbours are read by the threads that sample, which do not compute meanwhile.
    neighbours = LoaderStats(**busy, sample=19.0, topology_read=7.0, topology_rows=5)
    assert neighbours.stall == 7.0
    assert neighbours.verdict == "disk-bound"
    assert "neighbours: read 7 s" in repr(neighbours)
    # The engine's threads were busier than the reader.
    assert LoaderStats(**busy, rows=10, reads=5, read=7.0, sample=19.0).verdict == "loader-bound"
    assert LoaderStats(**busy, rows=10, reads=5, read=7.0, sample=19.0).stall == 0.0
    assert LoaderStats(**busy, sample=19.0).verdict == "loader-bound"
    idle = LoaderStats(2, batches=10, elapsed=10.0, wait=0.1, read=5.0, rows=4, hits=3, reads=2)
    assert idle.verdict == "compute-bound"
    assert idle.to_dict()["hit_rate"] == 0.75
    assert "75.0% of 4 rows in memory" in repr(idle)
    assert "disk" not in repr(LoaderStats(2, batches=10, elapsed=10.0))


def test_small_columns_of_nodes_are_kept_by_the_page(tmp_path):
    """Columns of 512 rows a page: groups of them are counted, chosen and read."""
    num_nodes = 1_500_000
    names = [f"y{i}" for i in range(7)]
    data = Data(edge_index=torch.randint(0, num_nodes, (2, 1000)), num_nodes=num_nodes)
    for i, name in enumerate(names):
        data[name] = torch.arange(num_nodes) * (i + 1)
    path = write_store(data, tmp_path / "s")
    del data
    store = gz.open(path, memory=budget_beside(READER_BYTES + 5_500_000))
    loader = gz.loader.NeighborLoader(
        store.data(), [20], input_nodes=torch.arange(0, num_nodes, 999), batch_size=100
    )
    for _ in range(2):
        for batch in loader:
            for i, name in enumerate(names):
                assert torch.equal(batch[name], batch.n_id * (i + 1))
    assert 0 < loader.stats().hits < loader.stats().rows
