"""Loaders that keep to a budget: the same batches, from disk."""

import logging
import mmap
import pickle
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from budgets import budget_beside
from hypothesis import given, settings
from hypothesis import strategies as st
from interrupting import struck_often, taken_by_threads
from same import assert_same
from systems import needs_linux
from torch_geometric.data import Data, HeteroData

import pyg_graphzero as gz
from graphs import random_edges
from pyg_graphzero.memory import making
from pyg_graphzero.memory.keeper import keeper_of
from pyg_graphzero.memory.residence import Residence
from pyg_graphzero.util.disk import READER_BYTES
from pyg_graphzero.util.system import free_memory, private_rss
from spawned import EXACT_MALLOC, spawn

MB = 10**6
ROOM = 55 * MB


@pytest.fixture(scope="module")
def homogeneous(built_once):
    """A store of 95 MB: more than the budgets below leave for it."""

    def build(path):
        n = 90_000
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(n, 256, generator=generator)
        y = torch.randint(9, (n,), generator=generator)
        gz.convert(Data(x=x, y=y, edge_index=random_edges(n, n, 300_000)), path)

    return built_once("homogeneous", build)


@pytest.fixture(scope="module")
def hetero(tmp_path_factory):
    data = HeteroData()
    generator = torch.Generator().manual_seed(2)
    data["a"].x = torch.randn(20_000, 200, generator=generator)
    data["b"].x = torch.randn(9_000, 300, generator=generator)
    data["b"].z = torch.randn(9_000, 70, generator=generator)
    src, dst = random_edges(9_000, 9_000, 80_000, 3)
    data["a", "to", "b"].edge_index = torch.stack([src * 2, dst])
    data["b", "back", "a"].edge_index = torch.stack([src, dst * 2])
    data["a", "to", "b"].edge_attr = torch.randn(80_000, 40, generator=generator)
    path = tmp_path_factory.mktemp("budget") / "hetero"
    gz.convert(data, path)
    return path


def batches(path, memory, num_workers=0, seeds=None, batch_size=200, **options):
    torch.manual_seed(5)
    store = gz.open(path, memory=memory)
    options = {"num_neighbors": [5, 4], "shuffle": True, "edge_ids": True} | options
    loader = gz.loader.NeighborLoader(
        store.data(), batch_size=batch_size, input_nodes=seeds, num_workers=num_workers, **options
    )
    return list(loader), loader, store


SEEDS = torch.arange(0, 3000)


def least_of(error, words=""):
    """Bytes that an error with these words says are enough."""
    least = re.search(rf"expected ([0-9,]+) MB or more{words}", str(error))
    return int(least[1].replace(",", "")) * MB


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    ("store", "room", "files"),
    [("homogeneous", 55, {"node/x.gd"}), ("hetero", 50, {"node-a/x.gd", "node-b/x.gd"})],
)
def test_batches_are_the_same_within_a_budget(request, store, room, files, num_workers):
    path = request.getfixturevalue(store)
    seeds = ("b", SEEDS[:2000]) if store == "hetero" else SEEDS
    expected, loader, _ = batches(path, None, seeds=seeds)
    assert loader.stats().rows == 0
    found, loader, opened = batches(path, budget_beside(room * MB), num_workers, seeds)
    stats = loader.stats()
    assert not opened.memory_plan.is_whole
    assert files <= opened.memory_plan.hot.keys()
    assert 0 < stats.hits < stats.rows
    assert 0 < stats.useful_bytes <= stats.read_bytes
    assert_same(found, expected)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_interrupted_epochs_and_shared_iterators_within_a_budget(homogeneous, num_workers):
    expected, _, _ = batches(homogeneous, None, seeds=SEEDS, batch_size=40)
    store = gz.open(homogeneous, memory=budget_beside(ROOM))
    loader = gz.loader.NeighborLoader(
        store.data(), [5, 4], input_nodes=SEEDS, batch_size=40, shuffle=True,
        num_workers=num_workers,
    )  # fmt: skip
    list(loader)  # what the first epoch measures and reads is not what is to be struck

    def make():
        torch.manual_seed(5)
        return loader

    struck_often(make, lambda found: assert_same(found, expected), num_workers, longest=0.05)
    found = taken_by_threads(iter(make()))
    assert not store.memory_plan.is_whole
    place = {int(batch.input_id[0]): i for i, batch in enumerate(expected)}
    assert_same(sorted(found, key=lambda batch: place[int(batch.input_id[0])]), expected)


def test_node_types_that_are_in_memory_only(hetero):
    data = gz.open(hetero, memory=budget_beside(50 * MB)).data()
    data["c"].x = torch.arange(20.0).view(10, 2)
    data["c", "to", "b"].edge_index = torch.stack([torch.arange(10), torch.arange(10)])
    loader = gz.loader.NeighborLoader(
        data, [-1], input_nodes=("b", torch.arange(10)), batch_size=10
    )
    (batch,) = loader
    assert batch["c"].n_id.tolist() == list(range(10))
    assert torch.equal(batch["c"].x, data["c"].x)
    assert torch.equal(batch["b"].x, gz.open(hetero).data()["b"].x[batch["b"].n_id])


def test_edge_ids_can_be_left_out(homogeneous):
    expected, _, _ = batches(homogeneous, None, seeds=SEEDS)
    found, _, _ = batches(homogeneous, budget_beside(ROOM), 0, SEEDS, edge_ids=False)
    for a, b in zip(found, expected, strict=True):
        assert "e_id" not in a
        del b.e_id
    assert_same(found, expected)


def test_too_little_is_an_error_with_the_least_that_works(homogeneous):
    with pytest.raises(gz.MemoryBudgetError, match=r"found 1 MB, expected [0-9,]+ MB or more"):
        batches(homogeneous, "1MB", seeds=SEEDS)
    with pytest.raises(ValueError, match="expected a size such as 4GB"):
        gz.open(homogeneous, memory="much")
    memory = budget_beside(READER_BYTES + 2 * MB)
    with pytest.raises(
        gz.MemoryBudgetError, match=r"one batch [0-9]+ MB, 2 at a time; smaller"
    ) as info:
        batches(homogeneous, memory, seeds=SEEDS, batch_size=3000)
    memory = max(least_of(info.value) + 20 * MB, budget_beside(0))
    assert len(batches(homogeneous, memory, seeds=SEEDS, batch_size=3000)[0]) == 1


def read_some_rows_at_a_time(rank, path):
    """Runs in a process of its own, whose memory is the same from one try to the next."""
    how = {"seeds": torch.arange(40_000), "batch_size": 15_000, "edge_ids": False}
    memory = budget_beside(READER_BYTES + 2 * MB)
    for num_workers in (0, 2):
        for _ in range(3):
            try:
                found, loader, store = batches(path, memory, num_workers, **how)
                break
            except gz.MemoryBudgetError as error:
                memory = least_of(error, ": .*; smaller batches") + 5 * MB
        assert store.memory_plan.window == 0
        assert loader.stats().reads > 0
        assert_same(found, batches(path, None, **how)[0])


def test_batches_that_read_some_rows_at_a_time_are_the_same(homogeneous):
    """The least budget has no room for a window beside two batches."""
    spawn(read_some_rows_at_a_time, (homogeneous,), 1)


def keep_the_least_budget(rank, path, num_workers, is_copied):
    """Runs in a process of its own, which has none of the memory that other tests have freed."""
    making.LEAST_SECONDS = making.WORTH = 0.0

    def epochs(memory):
        data = gz.open(path, memory=memory, row_cache="auto" if is_copied else False).data()
        loader = gz.loader.NeighborLoader(
            data, [10, 5], input_nodes=SEEDS, batch_size=1000, num_workers=num_workers
        )
        for _ in range(2):
            for _ in loader:
                pass
            assert loader.stats().reordered == is_copied

    memory = budget_beside(READER_BYTES + 9 * MB)
    for _ in range(3):  # what is said to be enough is, but for what the process took meanwhile
        try:
            epochs(memory)
            break
        except gz.MemoryBudgetError as error:
            memory = least_of(error, ": .*; smaller batches") + 3 * MB
    else:
        pytest.fail(f"{memory / MB:.0f} MB were too little once more")
    peak = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10
    assert peak <= memory, f"{peak / MB:.0f} of {memory / MB:.0f} MB"


@pytest.mark.parametrize(("num_workers", "is_copied"), [(0, False), (2, False), (2, True)])
@pytest.mark.long
def test_the_least_budget_is_kept(homogeneous, num_workers, is_copied, tmp_path, monkeypatch):
    """Also while a copy is made."""
    monkeypatch.setenv(*EXACT_MALLOC)
    path = shutil.copytree(homogeneous, tmp_path / "store")
    spawn(keep_the_least_budget, (path, num_workers, is_copied), 1)


def test_a_budget_found_by_default_is_logged(homogeneous, monkeypatch, caplog):
    monkeypatch.setattr("pyg_graphzero.store.contents.free_memory", lambda: 60 * MB)
    with caplog.at_level(logging.WARNING, "pyg_graphzero"):
        _found, loader, _ = batches(homogeneous, None, seeds=SEEDS)
    assert loader.stats().reads > 0
    assert "does not fit in memory that is free here (gz.open(memory=) sets it)" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "pyg_graphzero"):
        batches(homogeneous, budget_beside(ROOM), seeds=SEEDS)
    assert not caplog.text  # it was asked for
    with caplog.at_level(logging.INFO, "pyg_graphzero"):
        batches(homogeneous, "100GB", seeds=SEEDS[:400])
    assert not caplog.text  # it fits


def test_loaders_of_a_store_share_its_budget(homogeneous):
    expected, _, _ = batches(homogeneous, None, seeds=SEEDS)
    store = gz.open(homogeneous, memory=budget_beside(ROOM))
    iterators = []
    for _ in range(3):
        torch.manual_seed(5)
        loader = gz.loader.NeighborLoader(
            store.data(), [5, 4], input_nodes=SEEDS, batch_size=200, shuffle=True
        )
        iterators.append(iter(loader))
    leases = keeper_of(store.contents).current.leases
    assert len(leases) == 3
    for *group, batch in zip(*iterators, expected, strict=True):
        assert_same(group, [batch] * 3)
    assert len(leases) == 0


def test_processes_share_a_budget_and_what_they_hold(homogeneous, monkeypatch):
    store = gz.open(homogeneous, memory="12GB", processes=3)
    assert store.contents.memory == 4 * 10**9
    again = pickle.loads(pickle.dumps(store))
    assert (again.how.memory, again.how.processes) == ("12GB", 3)
    data = pickle.loads(pickle.dumps(store.data()))
    contents = data.__dict__["_contents"]
    assert (contents.memory, contents.processes) == (4 * 10**9, 3)
    loader = gz.loader.NeighborLoader(store.data(), [5], input_nodes=SEEDS[:100], batch_size=50)
    next(iter(loader))
    x = store.contents.column("node/x.gd").data_bytes
    assert store.memory_plan.held["node/x.gd"] == x // 3
    monkeypatch.setattr("pyg_graphzero.store.contents.free_memory", lambda: 300 * MB)
    free = gz.open(homogeneous, processes=3).contents.memory - private_rss()
    assert free == pytest.approx(80 * MB, abs=5 * MB)
    with pytest.raises(ValueError, match="processes: found 0"):
        gz.open(homogeneous, processes=0)
    memory = 2 * budget_beside(READER_BYTES + 2 * MB)
    data = gz.open(homogeneous, memory=memory, processes=2).data()
    loader = gz.loader.NeighborLoader(data, [5, 4], batch_size=3000)
    with pytest.raises(gz.MemoryBudgetError, match=r"for each of 2 processes, expected .* one"):
        next(iter(loader))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_are_the_same_where_the_topology_does_not_fit(wide, num_workers):
    options = {"num_neighbors": [9, 7], "edge_ids": False, "batch_size": 50}
    seeds = torch.arange(0, 30_000, 16)
    expected, _, _ = batches(wide, None, 0, seeds, **options)
    found, loader, store = batches(wide, budget_beside(60 * MB), num_workers, seeds, **options)
    assert "edge/topology.gl" in store.memory_plan.hot
    stats = loader.stats()
    assert stats.topology_reads > 0
    assert 0 < stats.topology_hits < stats.topology_rows
    assert_same(found, expected)
    # The next loader of the store finds it settled.
    torch.manual_seed(5)
    again = gz.loader.NeighborLoader(
        store.data(), [9, 7], input_nodes=seeds, batch_size=50, shuffle=True, edge_ids=False
    )
    assert_same(list(again), expected)
    assert again.stats().topology_reads > 0


@pytest.mark.parametrize("num_workers", [0, 2])
def test_labor_takes_no_more_memory_than_uniform_sampling(homogeneous, num_workers):
    """One batch is sampled before it is known what stays in memory: by neighbours in the file."""
    labor = {"seeds": SEEDS, "options": gz.SamplingOptions(method="labor")}
    expected, _, _ = batches(homogeneous, None, **labor)
    found, _, store = batches(homogeneous, budget_beside(ROOM), num_workers, **labor)
    assert not store.memory_plan.is_whole
    assert "edge/topology.gl" in store.memory_plan.held
    assert_same(found, expected)


def test_labor_needs_the_topology_in_memory(wide):
    labor = {"seeds": SEEDS[:400], "options": gz.SamplingOptions(method="labor")}
    with pytest.raises(gz.errors.MemoryBudgetError, match="all neighbours for method='labor'") as e:
        batches(wide, budget_beside(60 * MB), **labor)
    memory = max(least_of(e.value), budget_beside(0)) + 10 * MB  # this process may take more by now
    found, _, store = batches(wide, memory, **labor)
    assert "edge/topology.gl" in store.memory_plan.held
    assert_same(found, batches(wide, None, **labor)[0])


def map_a_file(rank, path):
    """Runs in a process of its own: here, malloc gives what it has free to the next one."""
    before = private_rss()
    libraries = int(re.search(r"RssFile:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10
    mapped = torch.from_file(str(path), size=30 * MB, dtype=torch.uint8)
    pages = mapped[:: mmap.PAGESIZE]  # a sum of all would first copy all, as int64
    assert int(pages.sum(dtype=torch.int64)) == len(pages) * ord("x")
    assert private_rss() - before < 10 * MB
    with mmap.mmap(-1, 30 * MB, mmap.MAP_PRIVATE) as own:
        own.write(b"x" * 30 * MB)
        assert private_rss() - before > 20 * MB
    # torch alone is more than this.
    assert libraries > 30 * MB
    assert before > 60 * MB


@needs_linux("/proc tells what memory is a process's own")
def test_libraries_are_taken_and_files_mapped_later_are_not(tmp_path, monkeypatch):
    path = tmp_path / "rows"
    path.write_bytes(b"x" * 30 * MB)
    monkeypatch.setenv(*EXACT_MALLOC)
    spawn(map_a_file, (path,), 1)


def test_free_memory_is_that_of_the_machine_at_most():
    with open("/proc/meminfo") as file:
        total = int(next(line for line in file if line.startswith("MemTotal")).split()[1]) << 10
    assert 0 < free_memory() <= total


@settings(max_examples=12)
@given(
    extra=st.integers(38, 90),
    batch_size=st.integers(1, 700),
    num_workers=st.integers(0, 3),
    stop=st.integers(0, 20),
    window=st.integers(1, 64),
)
@pytest.mark.long
def test_no_setting_deadlocks(homogeneous, extra, batch_size, num_workers, stop, window):
    store = gz.open(homogeneous, memory=budget_beside(extra * MB))
    loader = gz.loader.NeighborLoader(
        store.data(), [4, 3], input_nodes=SEEDS, batch_size=batch_size, num_workers=num_workers,
        shuffle=True,
    )  # fmt: skip
    keeper = keeper_of(store.contents)
    try:
        files = keeper.residence_for(loader)
    except gz.MemoryBudgetError:
        return
    plan = replace(files.plan, window=window)  # more than there is room for, or less
    keeper.current = Residence(store.contents, plan, files.needs, files.merge_gap)
    seen = []
    for number, batch in enumerate(loader):
        seen.append(batch.n_id[: batch.batch_size])
        if batch_size < 30 and number == stop:
            return
    assert torch.equal(torch.cat(seen).sort().values, SEEDS)
