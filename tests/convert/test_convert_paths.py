"""The meaning of an input's path: a file, several, a pattern, a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyg_graphzero import InputError
from pyg_graphzero.conversion.paths import expand, is_paths, kind_suffix


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


def test_files_of_several_kinds_are_named(folder: Path) -> None:
    (folder / "parts" / "edges.parquet").touch()
    (folder / "parts" / "README").touch()
    with pytest.raises(InputError, match=r"files: found \.csv, \.parquet, no suffix, expected"):
        expand("parts", folder)


def test_the_suffix_that_counts() -> None:
    assert kind_suffix("a.csv.gz") == kind_suffix(Path("a.csv.zst")) == kind_suffix("a.csv")
    assert kind_suffix("a.npy.gz") == ".gz"


def test_lists_of_paths() -> None:
    assert is_paths("a")
    assert is_paths([Path("a"), "b"])
    assert not is_paths([])
    assert not is_paths([[0, 1], [1, 2]])
    assert not is_paths(None)
