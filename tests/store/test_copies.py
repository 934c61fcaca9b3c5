"""Copies of a store's rows: what ``verify`` says of their bytes, and what ``clean`` removes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from store_files import flip

import pyg_graphzero as gz
from graphs import write_store
from pyg_graphzero.bench.synthetic import power_law
from pyg_graphzero.memory.used_copy import UsedCopy
from pyg_graphzero.store import verify as verifying
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.copies import copy_folders
from pyg_graphzero.store.copy_writer import CopyOf, Rows, write_copy
from pyg_graphzero_cli import main

KEY = "0123456789abcdef" * 2
LISTS = "edge/topology.gl"
FILES = ["0/rows.gd", "0/0.gd", "1/rows.gd", "1/0.gd"]


@pytest.fixture
def copied(tmp_path, built_once):
    """A store that has a copy of 1,000 of its 5,000 rows, of more than one block, and of lists."""

    def build(path):
        write_store(power_law(5_000, 10_000, 300), path)
        contents, folder = StoreContents(path), copy_folders(path)[0]
        order = torch.randperm(5_000)[:1_000].to(torch.int32)
        rows = {"node/x.gd": Rows.of_column(contents.column("node/x.gd"))}
        lists = {LISTS: Rows.of_neighbours(contents.topology(None))}
        groups = torch.arange(0, lists[LISTS].count, 3, dtype=torch.int32)
        parts = [
            CopyOf(None, order, ((2.0, 1_000),), rows),
            CopyOf(None, groups, ((1.0, len(groups)),), lists, LISTS),
        ]
        write_copy(folder.make() / KEY, parts, 1 << 20)

    return Path(shutil.copytree(built_once("with_a_copy", build), tmp_path / "store"))


def verified(store: Path) -> tuple[int, str]:
    found = CliRunner().invoke(main, ["verify", "--no-progress", str(store)])
    return found.exit_code, found.output


def test_verify_reads_copies_too(copied):
    seen: list[tuple[int, int]] = []
    report = gz.open(copied).verify(lambda done, total: seen.append((done, total)))
    size = sum((copied / "orders" / KEY / name).stat().st_size for name in FILES)
    shutil.rmtree(copied / "orders")
    plain = gz.verify(copied)
    assert report.ok
    assert (report.files, report.bytes) == (plain.files + len(FILES), plain.bytes + size)
    assert seen[-1] == (report.bytes, report.bytes)
    assert seen == sorted(seen)


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_anywhere_in_a_copy_is_found(copied, name):
    file = copied / "orders" / KEY / name
    size, whole = file.stat().st_size, file.read_bytes()
    ends = [0, 63, 64, 4095, 4096, size - 4096, size - 1]
    for offset in sorted({*ends, *range(0, size, size // 40)}):
        flip(file, offset)
        code, output = verified(copied)
        assert code == 1, offset
        assert f"{file}: " in output
        assert "a copy of rows: `graphzero clean` removes it, and training makes it anew" in output
        file.write_bytes(whole)
    assert verified(copied)[0] == 0


@pytest.mark.parametrize("name", ["order.json", *FILES])
@pytest.mark.parametrize("damage", ["gone", "cut", "link"])
def test_files_of_a_copy_that_are_not_there(copied, name, damage):
    file = copied / "orders" / KEY / name
    if damage == "cut":
        os.truncate(file, file.stat().st_size // 2)
    elif damage == "link":
        file.symlink_to(file.rename(copied.parent / "outside"))
    else:
        file.unlink()
    code, output = verified(copied)
    is_a_copy = (copied / "orders" / KEY / "order.json").exists()
    assert (code == 1) == is_a_copy  # without its document a directory is none
    assert (str(file) in output) == is_a_copy
    assert CliRunner().invoke(main, ["clean", str(copied)]).output.startswith(f"{copied}: 1 remov")
    assert verified(copied)[0] == 0


def test_a_copy_that_is_removed_meanwhile_is_not_damaged(copied, monkeypatch):
    read_parts = verifying.read_parts

    def removed(copy, trust):
        found = read_parts(copy, trust)
        shutil.rmtree(copy)
        return found

    monkeypatch.setattr(verifying, "read_parts", removed)
    assert gz.verify(copied).ok


def test_a_copy_of_an_attribute_that_is_no_more_is_not_damaged(copied):
    with gz.open(copied, "r+") as opened:
        opened.feature_store.remove_tensor(None, "x", None)
    assert gz.verify(copied).ok
    with pytest.raises(gz.FormatError, match=r"order.json: files: found .* expected the store's"):
        UsedCopy.open(copied / "orders" / KEY, StoreContents(copied))


def test_a_writer_that_dies_while_it_removes_a_copy_leaves_none(copied, monkeypatch):
    folder = copy_folders(copied)[0]
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *args, **options: None)
        folder.remove(KEY)
    assert folder.copies() == []
    assert [path.name[:41] for path in folder.path.iterdir()] == [f".{KEY}.partial"]
    assert folder.sweep() == set()
    assert list(folder.path.iterdir()) == []
