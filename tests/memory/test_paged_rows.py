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
from pyg_graphzero.sampler import RandomWalker
from pyg_graphzero.store.columns import engine_array, row_table, write_column


def reader():
    return _core.DiskGather(num_threads=1, depth=8, buffer_bytes=1 << 20)


def paged(path, table, resident, group_bits=0):
    write_column(path, table)
    column = _core.ColumnFile.of(_core.Column.open(str(path)))
    count, chosen = (resident, None) if isinstance(resident, int) else (0, engine_array(resident))
    return _core.PagedRows(len(table), [column], reader(), count, chosen, group_bits, merge_gap=256)


def ordered(path, column, rows, group_bits, random):
    """Some groups of these rows, of which `column` has all, lie once more in a file."""
    whole = len(rows) >> group_bits
    groups = random.permutation(whole)[: random.integers(whole + 1)].astype(np.int32)
    bounds = [(group << group_bits, (group + 1) << group_bits) for group in groups.tolist()]
    again = torch.cat([rows[:0], *(rows[first:last] for first, last in bounds)])
    again.numpy().tofile(path)
    return _core.PagedRows.ordered(
        _core.RowOrder(groups, len(rows), group_bits),
        [column],
        [_core.ColumnFile.open(str(path), 0, len(again), rows[0].nbytes, rows[0].nbytes)],
        reader(),
        num_resident=int(random.integers(whole + 2)),
        merge_gap=256,
        num_frames=int(random.integers(whole + 2)),
    )


def plan_of(rows, table):
    plan = _core.GatherPlan(1)
    plan.add_column(0, row_table(table), plan.add_paged(0, rows))
    return plan


@settings(max_examples=90)
@given(
    num_rows=st.integers(1, 400),
    width=st.integers(1, 9),
    group_bits=st.integers(0, 4),
    kind=st.sampled_from(["first", "chosen", "copied"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_gathers_as_from_memory(tmp_path_factory, num_rows, width, group_bits, kind, seed):
    rng = np.random.default_rng(seed)
    table = torch.from_numpy(rng.integers(0, 2**31, (num_rows, width)))
    num_groups = -(-num_rows // (1 << group_bits))
    kept = torch.from_numpy(rng.permutation(num_groups)[: rng.integers(0, num_groups + 1)])
    path = tmp_path_factory.mktemp("paged") / "x.gd"
    rows = paged(path, table, len(kept) if kind == "first" else kept, group_bits)
    assert rows.num_kept == len(kept)
    if kind == "copied":
        column = _core.ColumnFile.of(_core.Column.open(str(path)))
        rows = ordered(path.with_suffix(".again"), column, table, group_bits, rng)
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


class OrderedWalker(RandomWalker):
    """Some of the neighbours lie once more, in a file beside the store."""

    def page(self, contents, topologies):
        rows = {}
        for t in topologies:
            column, again = _core.ColumnFile.of_indices(t), contents.path.parent / "again"
            neighbours = t.view()[1].view(-1, t.index_bytes)
            rows[t.path] = ordered(again, column, neighbours, 4, np.random.default_rng(1))
        return rows, 20_000


def test_neighbours_in_an_order_are_those_of_the_topology(tmp_path):
    data = Data(edge_index=graphs.random_edges(50, 50, 1000, 3), num_nodes=50)
    gz.convert(data, tmp_path / "store", progress=False)
    store = gz.open(tmp_path / "store")
    start = torch.arange(50).repeat(20)
    mapped, ordered = (
        walker(store, reverse=True).walk(start, 9, generator=torch.Generator().manual_seed(7))
        for walker in (RandomWalker, OrderedWalker)
    )
    assert 0 < (tmp_path / "again").stat().st_size < 4 * 1000
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
