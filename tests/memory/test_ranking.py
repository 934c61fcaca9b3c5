"""The order of rows and of groups of neighbours, against definitions in plain Python."""

from __future__ import annotations

from itertools import pairwise

import chunks
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pyg_graphzero import _core
from pyg_graphzero.memory.ranking import GROUP_BITS, RankedRows, rank_lists, uses_of


def ranked(counts, hot, touched=()):
    """Rows in order, and their counts."""
    found, numbers = RankedRows(len(counts)), torch.tensor(counts, dtype=torch.int16)
    found.add(torch.tensor([*touched], dtype=torch.int64))
    found.rank(numbers, hot)
    assert found.used == len(found.order)
    return found.order, numbers


@chunks.both
@settings(max_examples=50)
@given(
    counts=st.lists(st.integers(0, 5), max_size=30), hot=st.integers(0, 4), seed=st.integers(0, 99)
)
def test_rows_by_use_and_touch(counts, hot, seed):
    """Rows of many batches by how many, others by first touch, the rest as they lay."""
    touched = np.random.default_rng(seed).permutation(np.flatnonzero(counts))
    touched = touched[: len(touched) - seed % 3]  # some were not met when touches were noted
    rows = [*touched, *(row for row in np.flatnonzero(counts) if row not in touched)]
    expected = sorted((r for r in rows if counts[r] > hot), key=lambda r: -counts[r])
    expected += [r for r in rows if counts[r] <= hot]
    assert ranked(counts, hot, touched)[0].tolist() == expected


@chunks.both
@settings(max_examples=50)
@given(counts=st.lists(st.integers(0, 32767), max_size=30), hot=st.integers(1, 9))
def test_uses_of_ranked_rows(counts, hot):
    order, numbers = ranked(counts, hot)
    found = uses_of(numbers, order, hot)
    assert all(rows > 0 for _, rows in found)
    assert sum(rows for _, rows in found) == len(order)
    steps = numbers[order].double().split([rows for _, rows in found])
    for (uses, _), step in zip(found, steps if found else (), strict=True):
        assert uses == pytest.approx(float(step.mean()))
        assert step.max() <= hot or step.min() > hot
    assert all(a >= b for (a, _), (b, _) in pairwise(found))


def uses_of_groups(degrees, expanded):
    """How many batches draw from each whole group of 16 neighbours, one list after the other."""
    size, end = 1 << GROUP_BITS, 0
    found = [0.0] * (sum(degrees) // size + 1)
    for degree, uses in zip(degrees, expanded, strict=True):
        begin, end = end, end + degree
        for group in {at // size for at in range(begin, end)}:
            found[group] += uses * min(1.0, size / degree)
    return found[: sum(degrees) // size]


@chunks.both
@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(0, 3) | st.integers(0, 150), st.integers(0, 3) | st.just(32767)),
        max_size=60,
    )
)
def test_groups_of_neighbours_by_their_uses(lists):
    degrees, expanded = [degree for degree, _ in lists], [uses for _, uses in lists]
    indptr = torch.tensor([0, *degrees]).cumsum(0)
    order, steps = rank_lists(
        lambda begin, end: indptr[begin : end + 1],
        torch.tensor(expanded, dtype=torch.int16),
        sum(degrees),
    )
    uses = uses_of_groups(degrees, expanded)
    assert order.dtype == torch.int32
    assert sorted(order.tolist()) == [group for group, each in enumerate(uses) if each > 0]
    said = [each for each, count in steps for _ in range(count)]
    assert sorted(said, reverse=True) == said
    assert len(said) == len(order)
    for group, each in zip(order.tolist(), said, strict=True):  # in halves of a power of two
        assert 0.84 < min(uses[group], 2**15.5) / each < 1.19


@settings(max_examples=50)
@given(lists=st.lists(st.lists(st.integers(0, 19), max_size=12), max_size=8))
def test_kernels_against_their_definition(lists):
    counts, order = np.zeros(20, np.int16), np.full(20, -1, np.int32)
    bits, used = np.zeros(3, np.uint8), 0
    for rows in lists:
        array = np.array(rows, np.int64)
        _core.count_rows(array, counts)
        used = _core.add_rows(array, bits, order, used)
    assert counts.tolist() == [sum(row in rows for rows in lists) for row in range(20)]
    expected = list(dict.fromkeys(row for rows in lists for row in rows))
    assert order.tolist() == expected + [-1] * (20 - len(expected))
    assert used == len(expected)


def test_counts_end_at_the_most_that_there_can_be():
    counts = np.array([32766, 32767], np.int16)
    for _ in range(2):
        _core.count_rows(np.array([0, 1]), counts)
    assert counts.tolist() == [32767, 32767]


def test_kernels_refuse_rows_that_are_not_there():
    for row in (-1, 20):
        rows = np.array([0, row])
        order, bits = np.zeros(20, np.int32), np.zeros(3, np.uint8)
        for call in (
            lambda rows=rows: _core.count_rows(rows, np.zeros(20, np.int16)),
            lambda rows=rows, order=order, bits=bits: _core.add_rows(rows, bits, order, 0),
            lambda rows=rows: _core.RowOrder(np.arange(3, dtype=np.int32), 20).ranks(rows),
            lambda rows=rows: _core.hottest_first(np.zeros(20, np.int16), rows.astype(np.int32), 0),
        ):
            with pytest.raises(IndexError, match=f"found row {row}, expected 0 <= row < 20"):
                call()


def test_orders_that_the_file_cannot_have_are_refused():
    for again, found in (([1, 2], "2"), ([1, 1], "1 once more"), ([1, -1], "-1")):
        for num_rows, bits, what in ((2, 0, "rows"), (47, 4, "whole groups")):
            message = rf"again\[1\]: found {found}, expected {what} below 2, each once"
            with pytest.raises(ValueError, match=message):
                _core.RowOrder(np.array(again, np.int32), num_rows, bits)
    for bits in (-1, 21):
        with pytest.raises(ValueError, match="group_bits: expected 0 to 20"):
            _core.RowOrder(np.array([], np.int32), 47, bits)
    assert _core.RowOrder.num_bytes(3200, 7, 4) == _core.RowOrder.num_bytes(200, 7)
    assert _core.RowOrder.num_bytes(10_000_000, 5_200_000) < 18_000_000
