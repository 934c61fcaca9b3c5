"""Rows for an index, against plain indexing, over every layout a tensor can have."""

from __future__ import annotations

import resource

import pytest
import torch

from pyg_graphzero import _core
from pyg_graphzero.store.columns import gather, in_memory, view_column, write_column
from pyg_graphzero.util.system import drop_pages

LAYOUTS = {
    "contiguous": torch.randn(6, 4),
    "column": torch.randn(6),
    "every second column": torch.randn(6, 8)[:, ::2],
    "every second row": torch.randn(12, 4)[::2],
    "inner slice": torch.randn(6, 9)[:, 2:5],
    "one of many columns": torch.randn(6, 4)[:, 2],
    "transposed": torch.randn(4, 6).t(),
    "one transposed column": torch.randn(4, 6).t()[:, :1],
    "broadcast": torch.randn(1, 4).expand(6, 4),
    "one number": torch.ones(1).expand(6, 3),
    "permuted": torch.randn(3, 6, 5).permute(1, 0, 2),
    "four dimensions": torch.randn(6, 2, 3, 2),
    "no items": torch.randn(6, 0, 3),
    "conjugate": torch.randn(6, 2, dtype=torch.complex64).conj(),
    "negative": torch.randn(6, 2, dtype=torch.complex64).conj().imag,
    "with gradient": torch.randn(6, 2, requires_grad=True),
}


@pytest.mark.parametrize("table", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("threads", [1, 4])
def test_layouts(table, threads):
    index = torch.tensor([5, 0, 0, 3])
    found = gather(table, index, threads)
    assert torch.equal(found, table.detach()[index])
    assert found.is_contiguous()
    assert not found.requires_grad
    assert gather(table, index[:0], threads).shape == (0, *table.shape[1:])
    assert torch.equal(gather(table, index.repeat(2)[::2], threads), table[index.repeat(2)[::2]])


@pytest.mark.parametrize("table", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("bad", [-1, 6, -(2**63), 2**63 - 1])
def test_rows_that_are_not_there(table, bad):
    with pytest.raises(IndexError) as caught:
        gather(table, torch.tensor([0, bad, 1]))
    if table is LAYOUTS["contiguous"]:
        assert str(caught.value) == f"index[1]: found row {bad}, expected 0 <= row < 6"


def test_an_empty_table():
    assert gather(torch.empty(0, 3), torch.empty(0, dtype=torch.int64)).shape == (0, 3)
    with pytest.raises(IndexError, match="outside 0 <= row < 0"):
        gather(torch.empty(0, 3), torch.tensor([0]))


def test_tensors_in_memory_are_not_copied():
    table = torch.tensor([1, 2], dtype=torch.int32)
    assert in_memory(table) is table
    assert in_memory(table, torch.int64).dtype == torch.int64


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_a_mapped_column_is_not_read_page_by_page(tmp_path, dtype):
    times = torch.arange(9 << 20)  # files of this size are mapped without read-ahead
    write_column(tmp_path / "times.gd", times)
    drop_pages(tmp_path / "times.gd")
    view = view_column(_core.Column.open(str(tmp_path / "times.gd")))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    assert torch.equal(in_memory(view, dtype), times.to(dtype))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before < 4000  # of 18,432 pages
