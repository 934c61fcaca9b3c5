"""Text in blocks: cut between rows wherever they end, and every row keeps its line."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyg_graphzero import InputError
from pyg_graphzero.conversion import blocks
from pyg_graphzero.conversion.blocks import read_blocks, rows_of
from pyg_graphzero.conversion.dialect import Dialect, Part
from pyg_graphzero.util.progress import Progress

QUIET = Progress(False)


def dialect(path: Path, num_columns: int = 2, delimiter: str = ",", skip: int = 0) -> Dialect:
    return Dialect((Part(path, skip),), delimiter, (), num_columns, "#", ())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 16)
    return 16


CELL = st.text(st.sampled_from('ab",\n# é'), max_size=12)
MANNER = st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL])


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(CELL, CELL), min_size=1), quoting=MANNER)
def test_blocks_are_whole_rows(
    tmp_path: Path, small: int, rows: list[tuple[str, str]], quoting: int
) -> None:
    buffer = io.StringIO()
    csv.writer(buffer, quoting=quoting, lineterminator="\n").writerows(rows)
    path = tmp_path / "e.csv"
    path.write_text(buffer.getvalue(), newline="")
    layout = Dialect((Part(path, 0),), ",", (), 2, None, ())
    found = list(read_blocks(layout, QUIET))
    assert b"".join(block.data for block in found) == path.read_bytes()
    assert [block.offset for block in found] == [
        sum(len(before.data) for before in found[:number]) for number in range(len(found))
    ]
    cells = [cells for block in found for _, cells in rows_of(block, layout)]
    blank = [row for row in rows if "".join(row).strip(" \t\n")]
    want = [[cell.strip(" \t") for cell in row] for row in rows]
    assert len(blank) <= len(cells) <= len(want)
    assert [each for each in cells if any(each)] == [each for each in want if any(each)]


def test_a_quote_that_never_ends_is_named(
    tmp_path: Path, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "MAX_ROW_BYTES", 100)
    path = tmp_path / "e.csv"
    path.write_text('a,b\n1,2\n"open,2\n' + "3,4\n" * 100)
    with pytest.raises(InputError, match=r"line 3: found a row of more than 0 MiB, expected"):
        list(read_blocks(dialect(path), QUIET))
