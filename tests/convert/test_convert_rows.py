"""Rows of an input, slab by slab, whatever they are read from; and what a conversion may use."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch

from pyg_graphzero.errors import InputError
from pyg_graphzero.store.rows import (
    ArrayRows,
    FileRows,
    MappedRows,
    Rows,
    StreamRows,
)
from pyg_graphzero.util.workspace import Workspace

VALUES = torch.arange(30, dtype=torch.int32).view(10, 3)


def rows_of(kind: str, folder: Path) -> Rows:
    raw = VALUES.numpy().tobytes()
    path = folder / "rows.bin"
    path.write_bytes(b"head" + raw)
    if kind == "array":
        return ArrayRows(VALUES)
    if kind == "file":
        return FileRows(path, 4, VALUES.shape, torch.int32)
    if kind == "swapped":
        path.write_bytes(VALUES.numpy().astype(">i4").tobytes())
        return FileRows(path, 0, VALUES.shape, torch.int32, swapped=True)
    stream = StreamRows(path, "member", lambda: io.BytesIO(raw), VALUES.shape, torch.int32)
    if kind == "stream":
        return stream
    return MappedRows(stream, VALUES.shape, torch.int32, lambda slab, begin: slab.clone())


@pytest.mark.parametrize("kind", ["array", "file", "swapped", "stream", "mapped"])
def test_reads_any_range_any_number_of_times(kind: str, tmp_path: Path) -> None:
    rows = rows_of(kind, tmp_path)
    assert (len(rows), rows.row_bytes) == (10, 12)
    for begin, end in ((4, 7), (0, 10), (9, 10), (3, 3), (2, 4)):
        assert torch.equal(rows.read(begin, end), VALUES[begin:end])
    for step in (1, 4, 100, None):
        assert torch.equal(torch.cat(list(rows.slabs(step))), VALUES)


def test_a_short_file_is_refused_when_opened_and_when_read(tmp_path: Path) -> None:
    path = tmp_path / "short.bin"
    path.write_bytes(bytes(39))
    with pytest.raises(InputError, match="found 39 bytes, expected 40 or more, for 10 rows"):
        FileRows(path, 0, (10,), torch.int32)
    path.write_bytes(bytes(40))
    rows = FileRows(path, 0, (10,), torch.int32)
    path.write_bytes(bytes(12))
    with pytest.raises(InputError, match=r"short\.bin: file: found 12 bytes"):
        rows.read(0, 10)


def test_a_short_stream_names_the_row_it_ends_at(tmp_path: Path) -> None:
    raw = VALUES.numpy().tobytes()[:-5]
    rows = StreamRows(
        tmp_path / "a.npz", "member 'x'", lambda: io.BytesIO(raw), (10, 3), torch.int32
    )
    with pytest.raises(InputError, match="member 'x': found an end after 9 rows, expected 10"):
        list(rows.slabs(4))


def test_temporary_files_are_made_where_asked_and_removed(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    left = tmp_path / "tmp" / ".store.scratch-0a"
    left.mkdir()
    (left / "lock").touch()
    with Workspace(tmp_path / "store", tmp=tmp_path / "tmp") as space:
        first, second = space.file("a"), space.file("a")
        assert first != second
        assert first.parent == second.parent
        assert first.parent.parent == tmp_path / "tmp"
        assert not left.exists(), "nobody held its lock"
        first.write_bytes(np.zeros(4).tobytes())
    assert list((tmp_path / "tmp").iterdir()) == []
    with pytest.raises(FileNotFoundError):
        Workspace(tmp_path / "store", tmp=tmp_path / "nowhere")
