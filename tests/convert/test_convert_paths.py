"""The meaning of an input's path: a file, several, a pattern, a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyg_graphzero import InputError
from pyg_graphzero.conversion.paths import expand


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.csv", "a.csv.gz", "deep/c.csv", "_SUCCESS", ".hidden.csv", "_tmp/x.csv"):
        path = tmp_path / "parts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


def test_a_directory_is_its_visible_files_sorted(folder: Path) -> None:
    found = expand("parts", folder)
    assert [str(file.relative_to(folder / "parts")) for file in found] == [
        "a.csv.gz",
        "b.csv",
        "deep/c.csv",
    ]


def test_patterns_and_lists(folder: Path) -> None:
    assert expand("parts/*.csv", folder) == [folder / "parts/b.csv"]
    assert expand(folder / "parts" / "**" / "c.*") == [folder / "parts/deep/c.csv"]
    given = ["parts/deep/c.csv", "parts/[ab].csv"]
    assert expand(given, folder) == [folder / "parts/deep/c.csv", folder / "parts/b.csv"]
    (folder / "odd[1].csv").touch()
    assert expand("odd[1].csv", folder) == [folder / "odd[1].csv"], "a file before a pattern"


def test_nothing_there_is_an_error(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"No file matches.*nine\*\.csv"):
        expand("nine*.csv", folder)
    with pytest.raises(FileNotFoundError, match=r"No such file.*nine\.csv"):
        expand("nine.csv", folder)
    (folder / "bare").mkdir()
    with pytest.raises(InputError, match="directory: found no files, expected at least one"):
        expand("bare", folder)
