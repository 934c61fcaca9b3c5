"""Columns of which memory holds a part, against the same columns in memory."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

import graphs
import pyg_graphzero as gz
from pyg_graphzero import _core
from pyg_graphzero.sampling.walks import Walker
from pyg_graphzero.store.columns import engine_array, row_table, write_column


def paged(path, table, resident, group_bits=0, merge_gap=256):
    write_column(path, table)
    column = _core.ColumnFile.of(_core.Column.open(str(path)))
    reader = _core.DiskGather(num_threads=1, depth=8, buffer_bytes=1 << 20)
    count, chosen = (resident, None) if isinstance(resident, int) else (0, engine_array(resident))
    return _core.PagedRows(
        len(table), [column], reader, count, chosen, group_bits, merge_gap=merge_gap
    )


def plan_of(rows, table):
    plan = _core.GatherPlan(1)
    plan.add_column(0, row_table(table), plan.add_paged(0, rows))
    return plan


@settings(max_examples=60)
@given(
    num_rows=st.integers(1, 400),
    width=st.integers(1, 9),
    group_bits=st.integers(0, 4),
    is_prefix=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_gathers_as_from_memory(tmp_path_factory, num_rows, width, group_bits, is_prefix, seed):
    rng = np.random.default_rng(seed)
    table = torch.from_numpy(rng.integers(0, 2**31, (num_rows, width)))
    num_groups = -(-num_rows // (1 << group_bits))
    kept = torch.from_numpy(rng.permutation(num_groups)[: rng.integers(0, num_groups + 1)])
    path = tmp_path_factory.mktemp("paged") / "x.gd"
    rows = paged(path, table, len(kept) if is_prefix else kept, group_bits)
    assert rows.num_kept == len(kept)
    plan = plan_of(rows, table)
    for size in rng.integers(0, 3 * num_rows, 4):
        index = torch.from_numpy(rng.integers(0, num_rows, size))
        (found,) = plan.gather([engine_array(index)]).columns
        assert torch.equal(found.view(torch.int64), table[index])


def test_rows_outside_are_refused(tmp_path):
    table = torch.arange(40.0).view(10, 4)
    rows = paged(tmp_path / "x.gd", table, 2)
    with pytest.raises(IndexError, match="found row 10, expected 0 <= row < 10"):
        plan_of(rows, table).gather([np.array([0, 10])])
    with pytest.raises(IndexError, match="found group 3, expected 0 <= group < 3"):
        paged(tmp_path / "y.gd", table, torch.tensor([3]), group_bits=2)


def groups_of(items, groups, bits):
    """Groups of 2^bits items, one behind the other."""
    return torch.cat([items[:0], *(items[g << bits : (g + 1) << bits] for g in groups.tolist())])


@settings(max_examples=60)
@given(
    num_rows=st.integers(1, 400),
    width=st.integers(1, 9),
    group_bits=st.sampled_from([0, 2, 4]),
    seed=st.integers(0, 2**32 - 1),
)
def test_rows_in_an_order_are_those_of_the_file(
    tmp_path_factory, num_rows, width, group_bits, seed
):
    rng = np.random.default_rng(seed)
    table = torch.from_numpy(rng.integers(0, 2**31, (num_rows, width)))
    whole = num_rows >> group_bits
    groups = rng.permutation(whole)[: rng.integers(0, whole + 1)].astype(np.int32)
    directory = tmp_path_factory.mktemp("ordered")
    write_column(directory / "x.gd", table)
    again = groups_of(table, groups, group_bits)
    again.numpy().tofile(directory / "again")
    rows = _core.PagedRows.ordered(
        _core.RowOrder(groups, num_rows, group_bits),
        [_core.ColumnFile.of(_core.Column.open(str(directory / "x.gd")))],
        [_core.ColumnFile.open(str(directory / "again"), 0, len(again), 8 * width, 8 * width)],
        _core.DiskGather(num_threads=1, depth=8, buffer_bytes=1 << 20),
        num_resident=int(rng.integers(0, whole + 2)),
        merge_gap=256,
        num_frames=int(rng.integers(0, whole + 2)),
    )
    plan = plan_of(rows, table)
    for size in rng.integers(0, 3 * num_rows, 4):
        index = torch.from_numpy(rng.integers(0, num_rows, size))
        (found,) = plan.gather([engine_array(index)]).columns
        assert torch.equal(found.view(torch.int64), table[index])


class OrderedWalker(Walker):
    """Half of the neighbours lie once more, in a file beside the store."""

    def page(self, contents, topologies):
        rows = {}
        for number, topology in enumerate(topologies):
            num_edges, size = topology.num_edges, topology.index_bytes
            groups = np.random.default_rng(number).permutation(num_edges >> 4).astype(np.int32)
            groups = groups[: len(groups) // 2]
            again = contents.path.parent / f"again {number}"
            groups_of(topology.view()[1].view(-1, size), groups, 4).numpy().tofile(again)
            rows[topology.path] = _core.PagedRows.ordered(
                _core.RowOrder(groups, num_edges, 4),
                [_core.ColumnFile.of_indices(topology)],
                [_core.ColumnFile.open(str(again), 0, len(groups) << 4, size, size)],
                _core.DiskGather(num_threads=1, buffer_bytes=1 << 16),
                num_resident=2,
                merge_gap=64,
                num_frames=3,
            )
        return rows, 20_000


def test_neighbours_in_an_order_are_those_of_the_topology(tmp_path):
    data = Data(edge_index=graphs.random_edges(50, 50, 1000, 3), num_nodes=50)
    gz.convert(data, tmp_path / "store", progress=False)
    store = gz.open(tmp_path / "store")
    start = torch.arange(50).repeat(20)
    mapped, ordered = (
        walker(store, reverse=True).walk(start, 9, generator=torch.Generator().manual_seed(7))
        for walker in (Walker, OrderedWalker)
    )
    assert (tmp_path / "again 0").stat().st_size == 4 * 16 * (1000 // 16 // 2)
    assert torch.equal(mapped, ordered)


def test_orders_that_the_file_cannot_have_are_refused():
    for again, found in (([1, 2], "2"), ([1, 1], "1 once more"), ([1, -1], "-1")):
        message = rf"again\[1\]: found {found}, expected whole groups below 2, each once"
        with pytest.raises(ValueError, match=message):
            _core.RowOrder(np.array(again, np.int32), 47, 4)
    for bits in (-1, 21):
        with pytest.raises(ValueError, match="group_bits: expected 0 to 20"):
            _core.RowOrder(np.array([], np.int32), 47, bits)
    assert _core.RowOrder.num_bytes(3200, 7, 4) == _core.RowOrder.num_bytes(200, 7)


def test_costs_are_those_of_the_engine():
    assert _core.costs() == {"frame": 24, "window_key": 16}
