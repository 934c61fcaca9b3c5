"""Sweeps within a budget: blocks of rows that are read ahead, against columns that are mapped."""

from __future__ import annotations

import gc
import shutil
import threading

import numpy as np
import pytest
import torch
from same import assert_same
from torch_geometric.data import Data

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous, write_store
from pyg_graphzero import _core
from pyg_graphzero.inference import sweep as sweep_module
from pyg_graphzero.inference.blocks import SweepPlan, plan_sweep
from pyg_graphzero.inference.sweep import Batches, sweep_bounds
from pyg_graphzero.loader.stats import LoaderStats
from pyg_graphzero.memory.needs import Kind, Need
from pyg_graphzero.store.columns import row_table, write_column

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


def sweep(path, node_type, workers=0, stats=None):
    store = gz.open(path)
    data, contents = store.data(), store.contents
    names = [name for name in data.edge_types if name[2] == node_type] if node_type else [None]
    nodes = range(contents.node_type(node_type).num_nodes)
    bounds = sweep_bounds(contents, names, nodes, 60)
    return Batches(data, node_type, nodes, bounds, workers, stats or LoaderStats(workers))


def counted(path):
    """Nodes that batches have, and counts of reads."""
    stats = LoaderStats(0)
    return {n for batch in sweep(path, None, 0, stats) for n in batch.n_id.tolist()}, stats


@pytest.mark.parametrize(
    ("block", "workers"), [(1, 0), (600, 3), (1500, 2), (5_000, 1), (10**9, 2)]
)
@pytest.mark.parametrize("name", ["plain", "typed", "authors", "coded"])
def test_batches_are_those_of_mapped_columns(stores, room, name, block, workers):
    path, node_type = stores[name]
    expected = list(sweep(path, node_type))
    assert len(expected) > 3
    room(block)
    assert_same(list(sweep(path, node_type, workers)), expected)


def test_columns_that_are_held_are_mapped(stores, room):
    path, node_type = stores["typed"]
    columns = gz.open(path).contents.schema.node_type("author").attrs
    expected = list(sweep(path, node_type))
    room(2000, held=(columns["x"],))
    held = LoaderStats(0)
    assert_same(list(sweep(path, node_type, 0, held)), expected)
    room(2000)
    every = LoaderStats(0)
    list(sweep(path, node_type, 0, every))
    assert 0 < held.rows < every.rows


def test_each_row_is_read_once_a_block(stores, room):
    path, _ = stores["plain"]
    assert counted(path)[1].rows == 0  # mapped
    room(10**9)
    reached, stats = counted(path)
    slots = -(-3000 // 4096) * 4096  # edge attributes come in runs of 4096 slots
    assert stats.rows == 2 * len(reached) + min(slots, 3000)  # x and y; edge_attr
    assert stats.useful_bytes == len(reached) * (32 + 8) + 3000 * 12
    assert stats.topology_bytes == 3000 * 4 + 300 * 8
    assert stats.reads >= 3
    # Smaller blocks have rows in common, which are read for each of them.
    room(3000)
    _, smaller = counted(path)
    assert smaller.rows > stats.rows
    assert smaller.topology_bytes == stats.topology_bytes


def test_no_rows(tmp_path, room):
    data = Data(x=torch.zeros(0, 4), edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=0)
    path = write_store(data, tmp_path / "empty")
    room(100)
    assert list(sweep(path, None)) == []


# Errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_is_cut_short(stores, room, tmp_path, workers):
    path = shutil.copytree(stores["plain"][0], tmp_path / "store")
    room(1)  # a batch each
    batches = iter(sweep(path, None, workers))
    file = path / gz.open(path).contents.schema.node_type(None).attrs["x"]
    column = gz.open(path).contents.column(str(file.relative_to(path)))
    with file.open("r+b") as opened:
        opened.truncate(column.data_offset + 290 * column.row_stride)
    with pytest.raises(OSError, match=file.name):
        list(batches)


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
    iterator = iter(sweep(stores["plain"][0], None, 2))
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


def test_a_budget_holds_columns_and_the_rest_goes_to_two_blocks():
    def plan(budget):
        return plan_sweep(budget, 50 * MB, FILES, 20 * MB, MB)

    everything = sum(file.num_bytes for file in FILES)
    assert plan(everything + 70 * MB) is None
    assert plan(everything + 69 * MB) is not None
    assert plan(670 * MB).held == ("small", "x")  # beside its topology
    room, more = plan(300 * MB), plan(400 * MB)
    assert room.held == ("small",)
    assert 150 * MB < 2 * room.block < 230 * MB - 10**4 * 128 - room.mapped
    assert 90 * MB < 2 * (more.block - room.block) <= 100 * MB  # more is mapped, too


def test_too_little_names_what_is_enough():
    with pytest.raises(gz.MemoryBudgetError, match=r"expected ([0-9,]+) MB") as error:
        plan_sweep(100 * MB, 50 * MB, FILES, 20 * MB, 10 * MB)
    least = int(str(error.value).split("expected ")[1].split(" MB")[0].replace(",", ""))
    # A larger budget maps and plans more, which takes memory on top.
    room = plan_sweep(int(1.1 * least * MB), 50 * MB, FILES, 20 * MB, 10 * MB)
    assert room.block >= 10 * MB


# Refusals of the engine --------------------------------------------------------------------------


def test_rows_and_bounds_that_do_not_fit(tmp_path):
    builder = _core.SamplerBuilder([300, 1])
    edges = np.array([0, 2]), np.array([3, 9], dtype=np.uint32)
    builder.add_arrays(0, 1, *edges, 300, "edges")
    for bounds, first, sizes in (
        *(([0, 5], 1, [1, 1]), ([0, 2], 0, [1, 1]), ([1, 0], 0, [1, 1])),
        *(([0, 1], 0, []), ([0, 1], -1, [1, 1])),
    ):
        with pytest.raises(ValueError, match="reach: expected bounds"):
            _core.reach(builder, 1, np.array(bounds), first, sizes, [0], 100, 100)
    (rows, _) = _core.reach(builder, 1, np.array([0, 1]), 0, [1, 1], [0], 0, 1 << 20).rows
    table = torch.arange(900.0).view(300, 3)
    write_column(tmp_path / "x.gd", table)
    column = _core.ColumnFile.of(_core.Column.open(str(tmp_path / "x.gd")))
    reader = _core.DiskGather(depth=4, buffer_bytes=1 << 20)
    loaded = _core.PagedRows.of_reached(rows, column, reader, 64)
    plan = _core.GatherPlan(1)
    plan.add_column(0, row_table(table), plan.add_paged(0, loaded, True))
    for row, words in ((0, "found row 0, expected one that was loaded"), (300, "found row 300")):
        with pytest.raises(IndexError, match=words):
            plan.gather([np.array([row])])
    reading = _core.GatherPlan(1)
    reading.add_paged(0, loaded)
    for made, others in ((plan, []), (reading, [loaded])):
        with pytest.raises(ValueError, match="for each of a plan's"):
            made.with_loaded(others)
    with pytest.raises(ValueError, match="all paged rows of a plan alike"):
        reading.add_paged(0, loaded, True)
