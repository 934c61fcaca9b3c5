"""The order of rows and of groups of neighbours, against definitions in plain Python."""

from __future__ import annotations

from itertools import pairwise

import chunks
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pyg_graphzero.memory.ranking import RankedRows, rank_lists, uses_of
from pyg_graphzero.store.copies import GROUP_BITS


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


class Largest(TorchDispatchMode):
    """Notes the bytes of the largest tensor that torch makes."""

    num_bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for each in tree_leaves(out):
            if isinstance(each, torch.Tensor):
                self.num_bytes = max(self.num_bytes, each.untyped_storage().nbytes())
        return out


def test_ranking_groups_takes_few_bytes_for_each():
    num_nodes, degree = 1 << 20, 32
    with Largest() as largest:
        order, _ = rank_lists(
            lambda begin, end: torch.arange(begin, end + 1) * degree,
            torch.ones(num_nodes, dtype=torch.int16),
            num_nodes * degree,
        )
    assert order.numel() == num_nodes * degree >> GROUP_BITS
    assert largest.num_bytes <= order.nbytes
