"""Columns of which memory holds a part, against the same columns in memory."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pyg_graphzero import _core
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
