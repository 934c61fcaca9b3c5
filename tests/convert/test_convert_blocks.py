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
from pyg_graphzero.conversion.blocks import Block, Places, clean, read_blocks, rows_of
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


def test_quotes_inside_of_cells_mean_nothing(tmp_path: Path, small: int) -> None:
    path = tmp_path / "e.csv"
    path.write_text('5" disk,a\n3" disk,b\n"x\ny",c\n7" disk,d\n' * 3)
    layout = dialect(path)
    found = [cells for block in read_blocks(layout, QUIET) for _, cells in rows_of(block, layout)]
    assert found == [['5" disk', "a"], ['3" disk', "b"], ["x\ny", "c"], ['7" disk', "d"]] * 3


def test_a_quote_that_never_ends_is_named(
    tmp_path: Path, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "MAX_ROW_BYTES", 100)
    path = tmp_path / "e.csv"
    path.write_text('a,b\n1,2\n"open,2\n' + "3,4\n" * 100)
    with pytest.raises(InputError, match=r"line 3: found a row of more than 0 MiB, expected"):
        list(read_blocks(dialect(path), QUIET))


def test_lines_are_found_again(tmp_path: Path, small: int) -> None:
    path = tmp_path / "e.csv"
    path.write_text(
        '\ufeffhead,er\n# note\n0,1\n\n1,2\n"2\n",3\n  # note\n3,4\n4,5', encoding="utf-8"
    )
    layout = dialect(path, skip=1)
    places = Places(layout)
    for block in read_blocks(layout, QUIET):
        count = len(list(rows_of(block, layout)))
        if count:
            places.add(block, count)
    assert [places.line(row) for row in range(5)] == [f"line {n}" for n in (3, 5, 6, 9, 10)]


@pytest.mark.parametrize("size", [1, 7, 20, 1000])
def test_a_block_in_pieces(tmp_path: Path, size: int) -> None:
    data = b'0,1\n"a\nb",2\n\n3,4\n5,6'
    layout = dialect(tmp_path / "e.csv")
    pieces = list(Block(0, 100, data).split(layout, size))
    assert b"".join(piece.data for piece in pieces) == data
    at = 100
    for piece in pieces:
        assert piece.offset == at
        at += len(piece.data)
    rows = [cells for piece in pieces for _, cells in rows_of(piece, layout)]
    assert rows == [["0", "1"], ["a\nb", "2"], ["3", "4"], ["5", "6"]]


@pytest.mark.parametrize(
    ("delimiter", "raw", "want"),
    [
        (",", b"#x\n0,1\n \n 2,3\n\t# y\n", b"0,1\n 2,3\n"),
        (",", b'# 5" x\n"a","b"\n# 3" y\n \n"c\n \n","d"\n', b'"a","b"\n"c\n \n","d"\n'),
        (" ", b"0  1 \r\n\t2\t 3\n", b"0 1\r\n2 3\n"),
    ],
)
def test_what_is_no_data_goes(tmp_path: Path, delimiter: str, raw: bytes, want: bytes) -> None:
    layout = dialect(tmp_path / "e.csv", delimiter=delimiter)
    assert clean(Block(0, 0, raw), layout) == want
