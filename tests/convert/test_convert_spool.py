"""Spools return what they were given, from memory, from files, and from both."""

from __future__ import annotations

import chunks
import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyg_graphzero import _core
from pyg_graphzero.conversion.distinct import distinct_integers, distinct_text
from pyg_graphzero.conversion.spool import Batches
from pyg_graphzero.store.rows import ArrayRows
from pyg_graphzero.util.workspace import Workspace

FAST = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture(params=["memory", "files", "both"])
def space(request, tmp_path, monkeypatch):
    with Workspace(tmp_path / "store") as space:
        turns = {"memory": [True], "files": [False], "both": [True, False, False]}[request.param]
        calls = iter(range(1 << 30))
        monkeypatch.setattr(space, "hold", lambda size: turns[next(calls) % len(turns)])
        yield space


@chunks.both
@FAST
@given(
    columns=st.lists(st.lists(INT64, max_size=80), min_size=1, max_size=3), room=st.integers(0, 900)
)
def test_distinct_integers(space, columns, room):
    space.room = room
    rows = [ArrayRows(torch.tensor(column, dtype=torch.int64)) for column in columns]
    found = distinct_integers(rows, -5, space)
    want = np.unique(np.concatenate([np.array(column, np.int64) for column in columns]))
    assert found.read(0, len(found)).tolist() == want[want >= -5].tolist()


@chunks.both
@FAST
@given(
    columns=st.lists(st.lists(st.text(max_size=3), max_size=40), min_size=1, max_size=3),
    room=st.integers(0, 400),
)
def test_distinct_text(space, columns, room):
    space.room = room
    rows = []
    for column in columns:  # a batch for every five
        parts = [pa.array(column[at : at + 5], pa.string()) for at in range(0, len(column), 5)]
        batches = [pa.record_batch([part], ["text"]) for part in parts]
        rows.append(Batches(batches, [len(part) for part in parts]))
    found = distinct_text(rows, space)
    assert found.read(0, len(found)).to_pylist() == sorted(
        {word for each in columns for word in each}
    )


def test_offsets_that_leave_the_text_are_refused():
    text = torch.zeros(3, dtype=torch.uint8)
    for offsets in ([], [0, 4], [2, 1], [-1, 2]):
        with pytest.raises(ValueError, match="offsets: expected positions in text, ascending"):
            _core.TextIndex(torch.tensor(offsets, dtype=torch.int64), text)


def test_many_runs_are_merged_in_rounds(space):
    space.room = 1 << 14
    value = np.random.default_rng(0).integers(0, 1 << 40, 60_000)
    rows = [ArrayRows(torch.from_numpy(part)) for part in np.array_split(value, 200)]
    found = distinct_integers(rows, 0, space)
    assert np.array_equal(found.read(0, len(found)).numpy(), np.unique(value))
