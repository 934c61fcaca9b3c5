"""``gz.doctor``: what it predicts of a loader's reads, against what the loader then does."""

from __future__ import annotations

import html
import json
import re
import shutil
import sys
from dataclasses import replace
from functools import partial

import budgets
import numpy as np
import pytest
import torch
from budgets import budget_beside
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData

import pyg_graphzero as gz
from graphs import write_store
from pyg_graphzero import _core
from pyg_graphzero.bench.synthetic import power_law, power_law_hetero
from pyg_graphzero.loader.stats import LoaderStats
from pyg_graphzero.memory.plan import divide
from pyg_graphzero.store.columns import write_column
from pyg_graphzero.tune.forecast import BANDWIDTH, RANDOM_READS
from pyg_graphzero.tune.rehearsal import top_rows
from pyg_graphzero.util.disk import READER_BYTES, DiskSpeed
from pyg_graphzero_cli import main

COUNTS = ("nodes", "edges", "rows", "hits", "reads", "read_bytes", "useful_bytes")
SAMPLED = {"num_neighbors": [8, 4], "batch_size": 128}
# More than a loader needs, less than the files are.
ROOM = 90_000_000
# So slow that any processor waits for it.
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
    as_it_is = LoaderStats.add_read

    def counting(self, read):
        as_it_is(self, read)
        self.windows = getattr(self, "windows", 0) + 1

    monkeypatch.setattr(LoaderStats, "add_read", counting)
    held = budget_beside(0)
    for module in ("store.contents", "tune.doctor", "memory.keeper"):
        monkeypatch.setattr(sys.modules[f"pyg_graphzero.{module}"], "private_rss", lambda: held)
    monkeypatch.setattr(budgets, "private_rss", lambda: held)


def second_epoch(path, memory, **options):
    """Stats of an epoch that finds in memory what the first one has left there."""
    data = gz.open(path, memory=memory, row_cache=False).data()
    loader = gz.loader.NeighborLoader(
        data, input_nodes=data.train_mask, shuffle=True, num_workers=1, **SAMPLED, **options
    )
    for _ in range(2):
        for _ in loader:
            pass
    return loader.stats()


def number_of_windows(batches, most):
    """Number of windows of an epoch: they have 1, 4, 16 … batches, and at most ``most``."""
    count, longest = 0, 1
    while batches > 0:
        batches -= min(most, longest)
        count, longest = count + 1, 4 * longest
    return count


def divided(window, *args):
    return replace(divide(*args), window=window)


@pytest.mark.parametrize("edge_ids", [False, pytest.param(True, marks=pytest.mark.long)])
def test_prediction_and_fact(skewed, edge_ids, monkeypatch):
    for module in ("tune.doctor", "memory.keeper"):
        monkeypatch.setattr(f"pyg_graphzero.{module}.probe", lambda *args, **options: SLOW_DISK)

    def examined():
        store = gz.open(skewed, memory=budget_beside(ROOM), row_cache=False)
        return gz.doctor(store, edge_ids=edge_ids, seconds=60, **SAMPLED)

    found = examined()
    assert not found.fits
    assert found.epoch.binds in (RANDOM_READS, BANDWIDTH)
    # A process that has grown meanwhile leaves as much for a loader as this one did.
    spare = found.memory_plan.memory - found.memory_plan.baseline
    fact = second_epoch(skewed, budget_beside(spare), edge_ids=edge_ids)
    predicted, window = found.epoch, found.memory_plan.window_of(fact.batches)
    if fact.windows > number_of_windows(fact.batches, window):
        # A consumer that is kept from the processor is one that takes its time: the loader
        # makes windows smaller for it. Its reads are predicted for these.
        while fact.windows > number_of_windows(fact.batches, window):
            window -= 1
        with monkeypatch.context() as patch:
            patch.setattr("pyg_graphzero.tune.doctor.divide", partial(divided, window))
            predicted = examined().epoch
    assert predicted.batches == fact.batches
    for name in COUNTS:
        want, got = getattr(fact, name), getattr(predicted, name)
        assert want > 0
        assert got == pytest.approx(want, rel=0.3), name
    assert predicted.hit_rate == pytest.approx(fact.hit_rate, abs=0.1)
    assert fact.reads_per_batch == fact.reads / fact.batches
    assert fact.read_bytes_per_batch == fact.read_bytes / fact.batches


def test_an_epoch_of_which_a_part_was_sampled(skewed):
    """With no time to sample, what one batch shows is all there is; nothing is made up."""
    found = gz.doctor(
        skewed, memory=budget_beside(ROOM), edge_ids=False, seconds=1e-6,
        **SAMPLED,
    )  # fmt: skip
    assert found.sampled_batches < found.epoch.batches
    whole = gz.doctor(
        skewed, memory=budget_beside(ROOM), edge_ids=False, seconds=60,
        **SAMPLED,
    )  # fmt: skip
    assert whole.sampled_batches == whole.epoch.batches
    for name in ("nodes", "edges", "rows"):
        assert getattr(found.epoch, name) == pytest.approx(getattr(whole.epoch, name), rel=0.3)


def test_advice_is_what_it_would_be(skewed, tmp_path):
    found = gz.doctor(
        skewed, memory=budget_beside(60_000_000), edge_ids=False, seconds=60,
        **SAMPLED,
    )  # fmt: skip
    times = [each.disk_time for each in found.advice]
    shown = found._repr_html_()
    assert shown.count("<tr>") == len(str(found).splitlines())
    assert f">{found.advice[0].change}</td>" in shown
    assert f">{times[0]:.0%} of the disk's time: " in html.unescape(shown)
    assert times == sorted(times)
    assert max(times) < 1
    by_change = {each.change.split(" ")[0]: each.epoch for each in found.advice}
    # Smaller rows: more of them stay, fewer bytes come for the others.
    for encoding in ("float16", "int8"):
        assert by_change[encoding].read_bytes < found.epoch.read_bytes
        assert by_change[encoding].hits >= found.epoch.hits or by_change[encoding].rows == 0
    # Advice that was followed is not given again.
    spare = found.memory_plan.memory - found.memory_plan.baseline
    gz.convert(power_law(100_000, 1_000_000, 256), tmp_path / "half", features="float16")
    half = gz.doctor(
        tmp_path / "half", memory=budget_beside(spare), edge_ids=False, seconds=60,
        **SAMPLED,
    )  # fmt: skip
    assert not any("float16" in each.change for each in half.advice)
    assert half.epoch.reads == pytest.approx(by_change["float16"].reads, rel=0.3, abs=50)
    assert half.epoch.rows == pytest.approx(by_change["float16"].rows, rel=0.3)


def test_the_copy_that_training_makes_is_in_the_prediction(skewed, tmp_path, monkeypatch):
    monkeypatch.setattr("pyg_graphzero.tune.doctor.probe", lambda *args, **options: SLOW_DISK)
    copied = shutil.copytree(skewed, tmp_path / "copied")

    def examined(row_cache="auto"):
        store = gz.open(copied, memory=budget_beside(60_000_000), row_cache=row_cache)
        return gz.doctor(store, edge_ids=False, seconds=60, **SAMPLED)

    without, found = examined(row_cache=False), examined()
    assert "reads by a copy" in str(found)
    assert "reads by a copy" not in str(without)
    # Rows that are read lie closer together.
    assert found.epoch.rows == without.epoch.rows
    assert found.epoch.disk_seconds < without.epoch.disk_seconds
    gz.optimize(copied, seeds="train_mask", **SAMPLED)
    after = examined()
    assert "reads by a copy" not in str(after)
    assert after.epoch.reads == pytest.approx(found.epoch.reads, rel=0.3)
    assert after.epoch.read_bytes == pytest.approx(found.epoch.read_bytes, rel=0.3)


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
    found = gz.doctor(path, memory=memory, seconds=60, **sampled)
    assert set(names) < set(found.memory_plan.hot)
    assert "does not fit" in str(found)
    store = gz.open(path, memory=budget_beside(memory - found.memory_plan.baseline))
    data = store.data()
    loader = gz.loader.NeighborLoader(
        data, input_nodes=data.train_idx, shuffle=True, num_workers=1, **sampled
    )
    for _ in range(2):
        for _ in loader:
            pass
    assert set(store.memory_plan.hot) == set(found.memory_plan.hot)
    assert found.epoch.rows == pytest.approx(loader.stats().rows, rel=0.1)
    assert found.epoch.hit_rate == pytest.approx(loader.stats().hit_rate, abs=0.1)


def test_a_budget_that_processes_share(tmp_path):
    data = Data(x=torch.zeros(100, 4), edge_index=torch.arange(200).view(2, 100) % 100)
    gz.convert(data, tmp_path / "store", progress=False)
    store = gz.open(tmp_path / "store", memory="4GB", processes=2)
    found = gz.doctor(store, num_neighbors=[2], seconds=0.1)
    assert found.memory_plan.memory == 2 * 10**9
    assert found.memory_plan.held["node/x.gd"] == 100 * 16 // 2


def test_a_store_that_fits(homo):
    _, store = homo
    found = gz.doctor(store, num_neighbors=[3], seconds=0.1)
    assert found.fits
    assert found.verdict.startswith("memory is enough")
    assert (found.epoch.reads, found.epoch.rows, found.epoch.hit_rate) == (0, 0, 1.0)
    text = str(found)
    assert "everything fits" in text
    assert "nothing after the first touch" in text
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
    assert found.epoch.batches == -(-found.num_seeds // 64)
    with pytest.raises(
        ValueError, match=r"seeds='train_mask': found in \['n0', 'n1'\], expected an"
    ):
        gz.doctor(tmp_path / "typed", num_neighbors=[4])
    with pytest.raises(ValueError, match=r"found node type 'x', expected one of \['n0', 'n1'\]"):
        gz.doctor(tmp_path / "typed", num_neighbors=[4], input_type="x")
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


def test_command(skewed):
    arguments = ["doctor", str(skewed), "--num-neighbors", "8,4", "--batch-size", "128"]
    arguments += ["--no-edge-ids", "--seconds", "1"]
    shown = CliRunner().invoke(main, [*arguments, "--memory", str(budget_beside(ROOM))])
    assert shown.exit_code == 0, shown.output
    for part in (
        "machine: ",
        "disk: ",
        "node/x.gd: 100,000 rows of 1,024",
        "binds: disk",
        "float16",
    ):
        assert part in shown.output
    raw = CliRunner().invoke(main, [*arguments, "--json", "--seeds", "train_mask"])
    report = json.loads(raw.output)
    assert report["fits"] is True
    assert report["epoch"]["hit_rate"] == 1.0
    assert report["disk"]["merge_gap"] > 0
    assert {"bounds", "neighbours", "rows"} == {file["kind"] for file in report["files"]}
    wrong = CliRunner().invoke(main, [*arguments, "--seeds", "valid"])
    assert (wrong.exit_code, "seeds='valid': found no" in wrong.output) == (2, True)
    nowhere = CliRunner().invoke(main, ["doctor", str(skewed) + "-none"])
    assert nowhere.exit_code == 2
    assert nowhere.output.startswith("error: ")


@settings(max_examples=40)
@given(
    num_rows=st.integers(1, 400),
    width=st.integers(1, 40),
    group_bits=st.integers(0, 3),
    merge_gap=st.integers(0, 3000),
    max_bytes=st.sampled_from([0, 4000, 1 << 40]),
    seed=st.integers(0, 2**32 - 1),
)
def test_read_forecast_is_what_paged_rows_do(
    tmp_path_factory, num_rows, width, group_bits, merge_gap, max_bytes, seed
):
    """The simulation of a window, against reading it."""
    rng = np.random.default_rng(seed)
    path = tmp_path_factory.mktemp("rows") / "x.gd"
    write_column(path, torch.from_numpy(rng.integers(0, 99, (num_rows, width))))
    column = _core.Column.open(str(path))
    num_groups = -(-num_rows // (1 << group_bits))
    first = int(rng.integers(0, num_groups + 1))  # stay; of the others, some are in slots
    others = first + rng.permutation(num_groups - first)[: rng.integers(0, num_groups - first + 1)]
    sizes = {"num_resident": first, "num_frames": len(others)}
    forecast = _core.ReadForecast(column, group_bits=group_bits, merge_gap=merge_gap, **sizes)
    assert forecast.num_kept == first + len(others)
    for is_filled in (False, True):
        if is_filled:
            forecast = _core.ReadForecast(
                column, group_bits=group_bits, merge_gap=merge_gap, **sizes
            )
            forecast.fill(others)
        lists = [rng.integers(0, num_rows, size) for size in rng.integers(0, 2 * num_rows, 3)]
        window = forecast.read(lists, max_bytes)
        count, read = window.num_lists, window.stats
        lists = lists[:count]
        kept = [*range(first), *others]
        is_kept = np.isin(np.arange(num_rows) >> group_bits, kept)
        missing = [row for rows in lists for row in rows if not is_kept[row]]
        unique = len(set(missing))
        assert read.rows == sum(map(len, lists))
        assert count == 1 or window.num_bytes <= max_bytes
        assert read.useful_bytes <= read.bytes
        assert (read.reads == 0) == (read.useful_bytes == 0)
        if is_filled:
            assert read.hits == read.rows - len(missing)
            assert (window.kept_bytes == 0) or len(others) > 0
            if group_bits == 0 or len(others) == 0:
                assert window.num_bytes + window.kept_bytes == unique * width * 8
                assert read.useful_bytes == unique * width * 8


def test_read_forecast_of_smaller_rows(tmp_path):
    write_column(tmp_path / "x.gd", torch.zeros(4096, 128))
    column = _core.Column.open(str(tmp_path / "x.gd"))
    index = np.arange(0, 4096, 64)
    read = _core.ReadForecast(column, merge_gap=0).read([index], 0).stats
    aligned = _core.ColumnFile.of(column).alignment
    assert (read.reads, read.bytes) == (64, 64 * max(512, aligned))
    assert read.useful_bytes == 64 * 512
    read = _core.ReadForecast(column, 128, merge_gap=0).read([index], 0).stats
    assert read.useful_bytes == 64 * 128
    assert read.bytes == 64 * max(128, aligned)
    with pytest.raises(ValueError, match="group_bits: expected 0 to 20"):
        _core.ReadForecast(column, group_bits=21)


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


@settings(max_examples=50)
@given(counts=st.lists(st.integers(0, 5), min_size=1, max_size=40), size=st.integers(0, 50))
def test_top_rows(counts, size):
    chosen = top_rows(torch.tensor(counts, dtype=torch.int16), size).tolist()
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(size, sum(count > 0 for count in counts))
    left = [count for row, count in enumerate(counts) if row not in chosen]
    assert all(counts[row] > 0 and counts[row] >= max(left, default=0) for row in chosen)
