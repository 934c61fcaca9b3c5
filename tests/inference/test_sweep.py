"""Sweeps within a budget: blocks of rows that are read ahead, against columns that are mapped."""

from __future__ import annotations

import gc
import shutil
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from same import assert_same
from torch_geometric.data import Data

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous, random_edges, write_store
from pyg_graphzero import _core
from pyg_graphzero.inference import sweep as sweep_module
from pyg_graphzero.inference.blocks import SweepPlan, plan_sweep
from pyg_graphzero.inference.sweep import SweepLoader, sweep_bounds
from pyg_graphzero.memory.needs import Kind, Need
from pyg_graphzero.store.columns import engine_array, row_table, write_column

# Blocks ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """By name: the store's path, and the node type to sweep over."""
    folder = tmp_path_factory.mktemp("sweep")
    plain = homogeneous()
    del plain.train_mask, plain.train_idx
    typed = heterogeneous()
    paths = {
        "plain": (write_store(plain, folder / "plain"), None),
        "typed": (write_store(typed, folder / "typed"), "paper"),
        "authors": (folder / "typed", "author"),
    }
    gz.convert(plain, folder / "coded", features={"x": "int8"}, progress=False)
    paths["coded"] = folder / "coded", None
    return paths


@pytest.fixture
def room(monkeypatch):
    """Sets the bytes of a sweep's blocks, whatever would fit."""

    def set_room(block, held=()):
        def divide(memory, baseline, files, flight, largest):
            return SweepPlan(tuple(held), block, 4096, 16)

        monkeypatch.setattr(sweep_module, "plan_sweep", divide)

    return set_room


def sweep(path, node_type, max_edges=60, workers=0, skipped=0):
    data = gz.open(path).data()
    bounds = sweep_bounds(data, node_type, max_edges)[skipped:]
    return SweepLoader(data, node_type, bounds, workers)


@pytest.mark.parametrize(("block", "workers"), [(1, 0), (600, 3), (5_000, 1), (10**9, 2)])
@pytest.mark.parametrize("name", ["plain", "typed", "authors", "coded"])
def test_batches_are_those_of_mapped_columns(stores, room, name, block, workers):
    path, node_type = stores[name]
    mapped = sweep(path, node_type)
    expected = list(mapped)
    assert len(expected) > 3
    assert mapped.stats().rows == 0
    room(block)
    loader = sweep(path, node_type, workers=workers)
    for _ in range(2):
        found = list(loader)
        assert_same(found, expected)
    assert loader.stats().batches == len(expected)


def test_columns_that_are_held_are_mapped(stores, room):
    path, node_type = stores["typed"]
    expected = list(sweep(path, node_type))
    columns = gz.open(path).contents.schema.node_type("author").attrs
    room(2000, held=(columns["x"],))
    loader = sweep(path, node_type)
    found = list(loader)
    assert_same(found, expected)
    every = loader.stats()
    room(2000)
    list(loader)
    assert 0 < every.rows < loader.stats().rows


def test_each_row_is_read_once_a_block(stores, room):
    path, _ = stores["plain"]
    room(10**9)
    loader = sweep(path, None)
    reached = set()
    for batch in loader:
        reached |= set(batch.n_id.tolist())
    stats = loader.stats()
    slots = -(-3000 // 4096) * 4096  # edge attributes come in runs of 4096 slots
    assert stats.rows == 2 * len(reached) + min(slots, 3000)  # x and y; edge_attr
    assert stats.useful_bytes == len(reached) * (32 + 8) + 3000 * 12
    assert stats.topology_bytes == 3000 * 4 + 300 * 8
    assert stats.reads >= 3
    # Smaller blocks have rows in common, which are read for each of them.
    room(3000)
    list(loader)
    assert loader.stats().rows > stats.rows
    assert loader.stats().topology_bytes == stats.topology_bytes


def test_a_sweep_that_begins_later(stores, room):
    path, node_type = stores["plain"]
    expected = list(sweep(path, node_type, skipped=20))
    room(1500)
    found = list(sweep(path, node_type, skipped=20, workers=2))
    assert found[0].first_row > 0
    assert_same(found, expected)


def test_no_rows(tmp_path, room):
    data = Data(x=torch.zeros(0, 4), edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=0)
    path = write_store(data, tmp_path / "empty")
    room(100)
    assert list(sweep(path, None)) == []


# Errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_is_cut_short(stores, room, tmp_path, workers):
    path = shutil.copytree(stores["plain"][0], tmp_path / "store")
    expected = list(sweep(path, None))
    room(1)  # a batch each
    loader = sweep(path, None, workers=workers)
    file = path / gz.open(path).contents.schema.node_type(None).attrs["x"]
    # Batches that need none of the last rows are made all the same.
    lost = 290
    column = gz.open(path).contents.column(str(file.relative_to(path)))
    with file.open("r+b") as opened:
        opened.truncate(column.data_offset + lost * column.row_stride)
    iterator = iter(loader)
    failed = 0
    for number, want in enumerate(expected):
        if int(want.n_id.max()) >= lost:
            failed += 1
            with pytest.raises(OSError, match=f"x.gd.*|{file.name}") as caught:
                next(iterator)
            assert file.name in str(caught.value)
            loader.load_state_dict({**loader.state_dict(), "num_batches": number + 1})
            iterator = iter(loader)
        else:
            assert_same([next(iterator)], [want])
    assert 0 < failed < len(expected)
    with pytest.raises(StopIteration):
        next(iterator)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sweep_goes_on_where_it_stopped(stores, room, workers):
    path = stores["plain"][0]
    expected = list(sweep(path, None))
    room(1)  # a batch each
    loader = sweep(path, None, workers=workers)
    list(zip(loader, range(3), strict=False))
    loader.load_state_dict({**loader.state_dict(), "num_batches": 3})
    assert_same(list(loader), expected[3:])


def test_a_damaged_topology(stores, room, tmp_path):
    path = shutil.copytree(stores["plain"][0], tmp_path / "store")
    topology = gz.open(path).contents.topology(None)
    at = topology.indices_offset + topology.index_bytes * 1700
    with open(topology.path, "r+b") as file:
        file.seek(at)
        file.write(b"\xff" * topology.index_bytes)
    room(1000)
    with pytest.raises(gz.FormatError, match=r"topology\.gl.*indices"):
        list(sweep(path, None))


def threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("graphzero-sweep")}


def test_a_sweep_that_is_given_up_leaves_no_thread(stores, room):
    room(500)
    before = threads()
    iterator = iter(sweep(stores["plain"][0], None, workers=2))
    next(iterator)
    under_way = threads() - before
    del iterator
    gc.collect()
    for thread in under_way:
        thread.join(30)
        assert not thread.is_alive()


# The room for them ------------------------------------------------------------------------------

MB = 10**6
FILES = [
    Need("indptr", 10**6, 8, Kind.BOUNDS),
    Need("topology", 10**7, 4, Kind.NEIGHBOURS),
    Need("weights", 10**7, 4, Kind.EDGES),
    Need("small", 10**4, 128, Kind.ROWS),
    Need("x", 10**6, 512, Kind.ROWS),
]


def test_everything_fits():
    everything = sum(file.num_bytes for file in FILES)
    assert plan_sweep(everything + 70 * MB, 50 * MB, FILES, 20 * MB, MB) is None
    assert plan_sweep(everything + 69 * MB, 50 * MB, FILES, 20 * MB, MB) is not None


def test_remaining_memory_goes_to_two_blocks():
    room = plan_sweep(300 * MB, 50 * MB, FILES, 20 * MB, MB)
    assert room.held == ("small",)
    assert 2 * room.block + room.mapped < 230 * MB - 10**4 * 128
    assert 2 * room.block > 150 * MB
    more = plan_sweep(400 * MB, 50 * MB, FILES, 20 * MB, MB)
    assert 90 * MB < 2 * (more.block - room.block) <= 100 * MB  # more is mapped, too


def test_a_column_that_fits_beside_its_topology_is_held():
    room = plan_sweep(670 * MB, 50 * MB, FILES, 20 * MB, MB)
    assert room.held == ("small", "x")


def test_too_little_names_what_is_enough():
    with pytest.raises(gz.MemoryBudgetError, match=r"expected ([0-9,]+) MB") as error:
        plan_sweep(100 * MB, 50 * MB, FILES, 20 * MB, 10 * MB)
    least = int(str(error.value).split("expected ")[1].split(" MB")[0].replace(",", ""))
    # A larger budget maps and plans more, which takes memory on top.
    room = plan_sweep(int(1.1 * least * MB), 50 * MB, FILES, 20 * MB, 10 * MB)
    assert room.block >= 10 * MB


# Plans and bounds of a sweep --------------------------------------------------------------------


@settings(max_examples=80)
@given(
    num_nodes=st.integers(1, 90),
    num_edges=st.integers(0, 400),
    num_batches=st.integers(1, 20),
    max_bytes=st.integers(0, 900),
    seed=st.integers(0, 10**6),
)
def test_reach(num_nodes, num_edges, num_batches, max_bytes, seed):
    edges = random_edges(num_nodes, num_nodes, num_edges, seed).numpy()
    order = np.argsort(edges[1], kind="stable")
    src, dst = edges[:, order]
    indptr = np.concatenate([[0], np.bincount(dst, minlength=num_nodes).cumsum()])
    rng = np.random.default_rng(seed)
    bounds = np.sort(np.concatenate([[0, num_nodes], rng.integers(0, num_nodes, num_batches - 1)]))
    builder = _core.SamplerBuilder([num_nodes])
    builder.add_arrays(0, 0, indptr, src.astype(np.uint32), num_nodes, "edges")
    row_bytes, edge_bytes = 7, 2

    def needs(first, stop):
        begin, end = indptr[bounds[first]], indptr[bounds[stop]]
        rows = set(src[begin:end]) | set(range(bounds[first], bounds[stop]))
        return rows, len(rows) * row_bytes + (end - begin) * edge_bytes

    first = 0
    while first < num_batches:
        found = _core.reach(
            builder, 0, bounds, first, [row_bytes], [edge_bytes], max_bytes, 1 << 20
        )
        stop, (rows,) = found.stop, found.rows
        assert first < stop <= num_batches
        wanted, size = needs(first, stop)
        assert rows.count == len(wanted)
        assert stop == first + 1 or size <= max_bytes
        if stop < num_batches:  # one more might not have fitted, were all of its rows new
            at, end = bounds[stop], bounds[stop + 1]
            most = (end - at + indptr[end] - indptr[at]) * row_bytes
            most += (indptr[end] - indptr[at]) * edge_bytes
            assert size + most > max_bytes
        first = stop


@pytest.mark.parametrize(
    ("bounds", "first", "sizes"),
    [([0, 5], 1, [1]), ([0, 11], 0, [1]), ([5, 0], 0, [1]), ([0, 5], 0, []), ([0, 5], -1, [1])],
)
def test_reach_refuses_wrong_bounds(bounds, first, sizes):
    builder = _core.SamplerBuilder([10])
    with pytest.raises(ValueError, match="reach: expected bounds"):
        _core.reach(builder, 0, np.array(bounds), first, sizes, [], 100, 100)


def reached(num_rows, rows):
    """``ReachedRows`` of these, through a node that has them for neighbours."""
    builder = _core.SamplerBuilder([num_rows, 1])
    indptr = np.array([0, len(rows)])
    builder.add_arrays(0, 1, indptr, np.array(rows, dtype=np.uint32), num_rows, "edges")
    return _core.reach(builder, 1, np.array([0, 1]), 0, [1, 1], [0], 0, 1 << 20).rows[0]


@settings(max_examples=60)
@given(
    rows=st.sets(st.integers(0, 299), max_size=200),
    at_once=st.integers(1, 50),
    seed=st.integers(0, 1000),
)
def test_load(tmp_path_factory, rows, at_once, seed):
    table = torch.arange(900.0).view(300, 3)
    path = tmp_path_factory.mktemp("load") / "x.gd"
    write_column(path, table)
    column = _core.ColumnFile.of(_core.Column.open(str(path)))
    reader = _core.DiskGather(num_threads=1, depth=4, buffer_bytes=1 << 20)
    loaded = _core.PagedRows.of_reached(reached(300, sorted(rows)), column, reader, 64)
    group, total, useful = 0, 0, 0
    while group >= 0:
        group, read = loaded.load(group, at_once)
        assert read.rows <= at_once
        total += read.rows
        useful += read.useful_bytes
    assert total == loaded.num_kept == len(rows)
    assert useful == 12 * len(rows)
    plan = _core.GatherPlan(1)
    plan.add_column(0, row_table(table), plan.add_paged(0, loaded, True))
    index = np.random.default_rng(seed).permutation(np.array(sorted(rows), dtype=np.int64))
    (found,) = plan.gather([index]).columns
    assert torch.equal(found.view(torch.float32), table[index])
    for other in {0, 150, 299} - rows:
        with pytest.raises(IndexError, match=f"found row {other}, expected one that was loaded"):
            plan.gather([np.array([other])])
    with pytest.raises(IndexError, match="found row 300"):
        plan.gather([np.array([300])])


def test_plans_with_other_rows(tmp_path):
    tables = [torch.arange(40.0).view(10, 4), -torch.arange(40.0).view(10, 4)]
    reader = _core.DiskGather(num_threads=1, depth=4, buffer_bytes=1 << 20)
    rows = []
    for number, table in enumerate(tables):
        write_column(tmp_path / f"{number}.gd", table)
        column = _core.ColumnFile.of(_core.Column.open(str(tmp_path / f"{number}.gd")))
        rows.append(_core.PagedRows(10, [column], reader, 10))
        assert rows[-1].load(0, 100)[0] == -1
    plan = _core.GatherPlan(1)
    plan.add_column(0, row_table(tables[0]), plan.add_paged(0, rows[0], True))
    other = plan.with_loaded([rows[1]])
    index = engine_array(torch.tensor([3, 9]))
    for made, table in ((plan, tables[0]), (other, tables[1])):
        assert torch.equal(made.gather([index]).columns[0].view(torch.float32), table[[3, 9]])
    with pytest.raises(ValueError, match="for each of a plan's"):
        plan.with_loaded([])
    reading = _core.GatherPlan(1)
    reading.add_paged(0, rows[0])
    with pytest.raises(ValueError, match="for each of a plan's"):
        reading.with_loaded([rows[1]])
    with pytest.raises(ValueError, match="all paged rows of a plan alike"):
        reading.add_paged(0, rows[0], True)
