"""The disk's speed: measured, remembered for the device, doubted where it cannot be known."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from pyg_graphzero import _core
from pyg_graphzero.util import disk
from pyg_graphzero.util.disk import DiskSpeed, probe

SPEED = DiskSpeed(
    device="8:0 disk",
    random_iops=100_000.0,
    bytes_per_second=2e9,
    depth=128,
    direct=True,
    file_bytes=1 << 30,
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pyg_graphzero"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "f"
    path.parent.mkdir()
    path.write_bytes(bytes(1 << 20))
    return path


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements are believed, though the test's file is small and maybe in memory."""
    monkeypatch.setattr(disk.DiskSpeed, "doubt", "")


def test_a_small_file_is_doubted(file: Path, cache: Path) -> None:
    speed = probe(file, seconds=0.02)
    assert speed.random_iops > 0
    assert speed.bytes_per_second > 0
    assert speed.file_bytes == 1 << 20
    assert speed.merge_gap == 16_384
    assert "may have answered" in speed.doubt
    assert speed.doubt in str(speed)
    assert not cache.exists()
    assert [path.name for path in file.parent.iterdir()] == ["f"]


def test_a_file_with_holes_is_doubted(file: Path, cache: Path) -> None:
    """They were read a million times a second, and that remembered of the disk."""
    with file.open("r+b") as opened:
        opened.truncate(100 << 20)
    speed = probe(file, seconds=0.02)
    assert "the file has holes" in speed.doubt or not speed.direct
    assert speed.merge_gap == 16_384
    assert not cache.exists()
    file.write_bytes(bytes(65 << 20))
    os.sync()  # so that its blocks are counted
    assert probe(file, seconds=0.02).doubt == "" or not speed.direct


def test_merge_gap() -> None:
    assert SPEED.doubt == ""
    assert SPEED.merge_gap == 20_000
    assert dataclasses.replace(SPEED, random_iops=100.0).merge_gap == 1 << 20
    assert dataclasses.replace(SPEED, random_iops=1e9).merge_gap == 4096
    assert dataclasses.replace(SPEED, direct=False).merge_gap == 16_384
    assert dataclasses.replace(SPEED, file_bytes=1 << 20).merge_gap == 16_384
    assert str(SPEED) == (
        "100,000 random reads/s at depth 128, 2,000 MB/s, gaps up to 20,000 bytes are read"
    )


@pytest.mark.usefixtures("trusting")
def test_figures_are_remembered(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = probe(file, seconds=0.02)
    assert not first.remembered
    (memory,) = cache.iterdir()
    monkeypatch.setattr(_core, "probe_disk", lambda *_: pytest.fail("measured again"))
    assert probe(file) == dataclasses.replace(first, remembered=True)
    with pytest.raises(pytest.fail.Exception):
        probe(file, refresh=True)
    monkeypatch.setattr(disk, "_device_of", lambda _: "another")
    with pytest.raises(pytest.fail.Exception):
        probe(file)
    assert list(cache.iterdir()) == [memory]


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize(
    ("reads", "measured", "gap"),
    [
        ([150_000.0], 1, 13_333),
        ([4_300.0, 150_000.0], 2, 13_333),  # another process used the disk
        ([4_300.0, 4_000.0, 5_000.0, 200.0], 4, 400_000),  # it is a slow one
    ],
)
def test_a_disk_that_others_use_is_measured_again(
    file: Path, monkeypatch: pytest.MonkeyPatch, reads: list[float], measured: int, gap: int
) -> None:
    left = iter(reads)

    def found(*_: object) -> DiskSpeed:
        return dataclasses.replace(SPEED, random_iops=next(left))

    monkeypatch.setattr(disk._core, "probe_disk", found)
    assert probe(file, seconds=0.0).merge_gap == gap
    assert len(reads) - len(list(left)) == measured


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 1}', '{"format": 2}', "null"])
def test_a_damaged_memory_is_forgotten(file: Path, cache: Path, damage: str) -> None:
    probe(file, seconds=0.02)
    (memory,) = cache.iterdir()
    memory.write_text(damage)
    assert not probe(file, seconds=0.02).remembered
    assert json.loads(memory.read_text())["format"] == 2


@pytest.mark.usefixtures("trusting")
def test_a_cache_that_cannot_be_written(file: Path, cache: Path) -> None:
    cache.parent.write_text("not a directory")
    assert not probe(file, seconds=0.02).remembered
    assert not probe(file, seconds=0.02).remembered


def test_a_directory_is_measured_by_its_largest_file(file: Path) -> None:
    (file.parent / "deeper").mkdir()
    (file.parent / "deeper" / "g").write_bytes(bytes(2 << 20))
    assert probe(file.parent, seconds=0.02).file_bytes == 2 << 20


def test_files_that_cannot_be_measured_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="found no file to measure the disk with"):
        probe(tmp_path / "empty")
    with pytest.raises(FileNotFoundError):
        probe(tmp_path / "none")
    (tmp_path / "f").write_bytes(b"1234")
    with pytest.raises(ValueError, match="found 4 bytes, expected at least 4096"):
        probe(tmp_path / "f")


def test_a_user_without_a_home(file: Path, trusting: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run under a user id without a name: the disk is measured each time."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert not probe(file, seconds=0.02).remembered
    assert not probe(file, seconds=0.02).remembered
