"""Copies of rows that others have made, changed, linked or left: nothing outside them changes."""

from __future__ import annotations

import logging
import math
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from tuned import assert_same, epoch, training, tuned

import pyg_graphzero as gz
from pyg_graphzero.memory import own_order
from pyg_graphzero.memory.pager import pager_of
from pyg_graphzero.util.documents import read_document, write_document
from pyg_graphzero.util.locks import make_scratch
from pyg_graphzero_cli import main

pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture
def copied(skewed, built_once, tmp_path):
    """A store of one's own that has a copy of rows."""

    def build(path):
        shutil.copytree(skewed, path)
        loader = training(path)
        next(iter(loader))
        tuned(loader)

    made = built_once("copied", build)
    return Path(shutil.copytree(made, tmp_path / "store"))


@pytest.fixture
def warnings(caplog):
    """The log, of what the user is told."""
    caplog.set_level(logging.WARNING, "pyg_graphzero")
    return caplog


@pytest.fixture
def in_cache(monkeypatch, tmp_path):
    """Copies go to the cache, as those of a store that cannot be written to."""
    store = tmp_path / "store"
    monkeypatch.setattr(own_order, "is_writable", lambda folder: store not in folder.parents)
    return tmp_path / "cache"


def copy_of(store):
    """The only copy of a store."""
    (copy,) = (store / "orders").glob("[0-9a-f]*")
    return copy


def tree(folder):
    """All that is in a folder: names, and what files hold."""
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def flip(file, offset):
    """Flips the lowest bit of a byte."""
    with open(file, "r+b") as opened:
        opened.seek(offset)
        byte = opened.read(1)[0]
        opened.seek(offset)
        opened.write(bytes([byte ^ 1]))


def first_batch(loader):
    """The first batch; no thread goes on behind it, whose memory later loaders would be given."""
    torch.manual_seed(0)
    batch = next(iter(loader))
    pager_of(loader.graph_sampler.graph.contents).tuning.end()
    return [(batch.n_id, batch.edge_index, batch.x, batch.y)]


# Links ############################################################################################


@pytest.fixture
def victim(tmp_path):
    """A folder of another program, in which things look like copies and what is left of some."""
    folder = tmp_path / "victim"
    for name in ("p0", "p1", "p2", "p3", "0" * 32, ".x.partial-1234"):
        (folder / name).mkdir(parents=True)
        for file in ("order.json", "precious"):
            (folder / name / file).write_text(f"{name} {file}")
    return folder


def test_orders_that_is_a_link_is_not_followed(store, victim, warnings):
    (store / "orders").symlink_to("../victim")
    before = tree(victim)
    expected, _ = epoch(training(store, order="off"))
    loader = training(store)
    found, _ = epoch(loader)
    assert_same(found, expected)
    tuned(loader)
    assert tree(victim) == before
    found, stats = epoch(loader)
    assert_same(found, expected)
    assert stats.reordered  # by a copy in the user's cache
    assert f"{store / 'orders'}: file: found a symbolic link to '../victim'" in warnings.text

    cleaned = CliRunner().invoke(main, ["clean", str(store)])
    assert cleaned.output.startswith(f"{store}: 1 removed")
    assert tree(victim) == before
    report = gz.verify(store)
    assert [line.split(":")[0] for line in report.bad] == [str(store / "orders")]
    assert tree(victim) == before
    assert os.readlink(store / "orders") == "../victim"


@pytest.mark.parametrize("link", ["copy", "folder", "document", "rows"])
def test_a_copy_that_a_link_leads_to_is_not_used(copied, tmp_path, warnings, link):
    expected, _ = epoch(training(copied, order="off"))
    copy, outside = copy_of(copied), tmp_path / "outside"
    inside = {"copy": "", "folder": "0", "document": "order.json", "rows": "0/0.gd"}[link]
    (copy / inside).rename(outside)
    (copy / inside).symlink_to(outside)
    before = tree(outside)
    size = outside.stat().st_size
    loader = training(copied)
    assert_same(epoch(loader)[0], expected)
    assert "found a symbolic link" in warnings.text
    tuned(loader)
    found, stats = epoch(loader)
    assert stats.reordered
    assert_same(found, expected)
    # A link in the place of a copy is not this program's, and stays; in a copy it is damage.
    assert os.path.islink(copy) == (link == "copy")
    CliRunner().invoke(main, ["clean", str(copied)])
    assert (tree(outside), outside.stat().st_size) == (before, size)


def test_what_is_left_of_a_copy_is_not_removed_through_a_link(copied, victim):
    (copied / "orders" / ".x.partial-1234").symlink_to(victim)
    before = tree(victim)
    next(iter(training(copied)))
    CliRunner().invoke(main, ["clean", str(copied)])
    assert tree(victim) == before


def test_other_files_beside_copies_stay(copied):
    kept = copied / "orders" / "p0"
    kept.mkdir()
    (kept / "order.json").write_text("not a copy: its name is none")
    output = CliRunner().invoke(main, ["clean", str(copied)]).output
    assert output.startswith(f"{copied}: 1 removed")
    assert [path.name for path in (copied / "orders").rglob("*")] == ["p0", "order.json"]


# Damage ###########################################################################################


def of_type(**members: Any):
    """Puts members into what a document says of its type; ``...`` takes one away."""

    def change(body):
        record = {**body["node_types"][0], **members}
        kept = {key: value for key, value in record.items() if value is not ...}
        return {**body, "node_types": [kept]}

    return change


def of_all(**members: Any):
    """Puts members into the document; ``...`` takes one away."""

    def change(body):
        changed = {**body, **members}
        return {key: value for key, value in changed.items() if value is not ...}

    return change


ODD = {
    "format_missing": of_all(format=...),
    "format_text": of_all(format="2"),
    "format_true": of_all(format=True),
    "format_float": of_all(format=1.0),
    "format_newer": of_all(format=3),
    "types_missing": of_all(node_types=...),
    "types_null": of_all(node_types=None),
    "types_number": of_all(node_types=7),
    "types_object": of_all(node_types={"0": {}}),
    "types_none": of_all(node_types=[]),
    "types_text": of_all(node_types=["x"]),
    "types_nested": lambda body: {**body, "node_types": [body["node_types"]]},
    "types_twice": lambda body: {**body, "node_types": 2 * body["node_types"]},
    "name_missing": of_type(name=...),
    "name_number": of_type(name=7),
    "name_list": of_type(name=["paper"]),
    "name_unknown": of_type(name="paper"),
    "rows_missing": of_type(rows=...),
    "rows_null": of_type(rows=None),
    "rows_text": of_type(rows="36444"),
    "rows_nan": of_type(rows=math.nan),
    "rows_infinite": of_type(rows=math.inf),
    "rows_negative": of_type(rows=-1),
    "rows_huge": of_type(rows=10**30),
    "rows_true": of_type(rows=True),
    "rows_others": of_type(rows=12),
    "rows_nested": of_type(rows=[[36444]]),
    "whole_missing": of_type(is_whole=...),
    "whole_null": of_type(is_whole=None),
    "whole_number": of_type(is_whole=1),
    "files_missing": of_type(files=...),
    "files_null": of_type(files=None),
    "files_text": of_type(files="node/x.gd"),
    "files_object": of_type(files={"node/x.gd": 0}),
    "files_none": of_type(files=[]),
    "files_number": of_type(files=[7]),
    "files_nested": of_type(files=[["node/x.gd"]]),
    "files_unknown": of_type(files=["node/z.gd"]),
    "files_outside": of_type(files=["../x.gd"]),
    "files_of_edges": of_type(files=["edge/topology.gl"]),
    "files_twice": of_type(files=["node/x.gd", "node/x.gd"]),
}


# Only together with the store: a copy of columns that the store had before is none of its damage.
IN_USE = {"name_unknown", "rows_others", "files_unknown", "files_of_edges"}


@pytest.mark.parametrize("kind", list(ODD))
def test_a_sealed_document_with_odd_members_is_damaged(copied, warnings, kind):
    copy, expected = copy_of(copied), first_batch(training(copied, order="off"))
    changed = ODD[kind](read_document(copy / "order.json"))
    write_document({k: v for k, v in changed.items() if k != "checksum"}, copy / "order.json")
    (fault,) = gz.verify(copied).bad if kind not in IN_USE else [f"{copy}/order.json: "]
    assert fault.startswith(f"{copy}/order.json: ")
    loader = training(copied)
    assert_same(first_batch(loader), expected)
    assert f"{copy}: not used, and made anew: {copy}/" in warnings.text
    assert not (copy / "order.json").exists()


def test_a_flipped_bit_in_rows_is_as_in_a_column(copied):
    """Batches have it, as they would a column's; ``verify`` finds both."""
    expected, _ = epoch(training(copied))
    for file, options in ((copied / "node" / "x.gd", {"order": "off"}), (None, {})):
        file = file or copy_of(copied) / "0" / "0.gd"
        for offset in range(4096, 4096 + 300 * 1024, 1024):  # an item of 300 rows
            flip(file, offset)
        found, stats = epoch(training(copied, **options))
        assert stats.reordered == (not options)
        assert [batch[0].tolist() for batch in found] == [batch[0].tolist() for batch in expected]
        assert any(not torch.equal(a[2], b[2]) for a, b in zip(found, expected, strict=True))
        bad = gz.verify(copied).bad
        assert [line.split(":")[0] for line in bad] == [str(file)]
        shutil.copy(built_from(copied) / file.relative_to(copied), file)


def built_from(store):
    """Where the undamaged files of ``copied`` are."""
    folder = store.parents[2 if "PYTEST_XDIST_WORKER" in os.environ else 1]
    return folder / "copied"


def test_a_flipped_bit_in_which_rows_there_are_is_found(copied, warnings):
    """All of these are read when a copy is opened."""
    expected = first_batch(training(copied, order="off"))
    file = copy_of(copied) / "0" / "rows.gd"
    flip(file, 4096 + 40)
    loader = training(copied)
    assert_same(first_batch(loader), expected)
    assert f"{file}: block 0" in warnings.text
    assert not file.exists()


# Other users ######################################################################################


def give_away(folder, monkeypatch):
    """Makes a folder, or a file, another user's; or this process that of another one."""
    if os.geteuid() != 0:
        user = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: user)
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 12345, 12345)


def modes(folder):
    return {stat.S_IMODE(os.lstat(path).st_mode) for path in folder.rglob("*") if path.is_file()}


def test_a_copy_is_read_by_no_more_users_than_its_rows(store, in_cache):
    (store / "node" / "x.gd").chmod(0o600)
    before = os.umask(0o002)
    try:
        loader = training(store)
        next(iter(loader))
        tuned(loader)
    finally:
        os.umask(before)
    assert epoch(loader)[1].reordered
    folders = [in_cache / "pyg_graphzero", *(in_cache / "pyg_graphzero").rglob("*")]
    assert modes(in_cache) == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders if path.is_dir()} == {0o700}


@pytest.mark.parametrize(("of_store", "of_rows", "of_copy"), [
    (0o755, 0o644, (0o755, 0o644)), (0o775, 0o664, (0o755, 0o644)), (0o750, 0o640, (0o750, 0o640)),
    (0o755, 0o600, (0o755, 0o600)), (0o755, 0o444, (0o755, 0o444)),
])  # fmt: skip
def test_a_copy_in_a_store_is_read_by_those_who_read_the_store(store, of_store, of_rows, of_copy):
    store.chmod(of_store)
    (store / "node" / "x.gd").chmod(of_rows)
    loader = training(store)
    next(iter(loader))
    tuned(loader)
    copy = copy_of(store)
    assert modes(copy) == {of_copy[1]}
    assert {stat.S_IMODE(p.stat().st_mode) for p in (copy.parent, copy, copy / "0")} == {of_copy[0]}
    assert epoch(loader)[1].reordered


def cached_copy(store, in_cache):
    """A copy in the cache, and what is read by it."""
    loader = training(store)
    next(iter(loader))
    tuned(loader)
    found, stats = epoch(loader)
    assert stats.reordered
    (document,) = in_cache.rglob("order.json")
    return document.parent, found


@pytest.mark.parametrize("what", ["copy", "folder", "everything"])
def test_a_copy_of_another_user_is_not_used(store, in_cache, monkeypatch, warnings, what):
    copy, expected = cached_copy(store, in_cache)
    rows = copy / "0" / "0.gd"
    rows.write_bytes(rows.read_bytes()[:4096] + bytes(rows.stat().st_size - 4096))
    owned = {"copy": copy, "folder": copy.parent, "everything": in_cache / "pyg_graphzero"}[what]
    give_away(owned, monkeypatch)
    before = tree(in_cache)
    loader = training(store)
    found, stats = epoch(loader)
    assert_same(found, expected)
    assert not stats.reordered
    assert "owner: found user" in warnings.text
    tuned(loader)
    assert tree(in_cache) == before  # nor is anything written there, or removed
    CliRunner().invoke(main, ["clean", str(store)])
    assert tree(in_cache) == before


@pytest.mark.parametrize(("where", "mode", "is_used"), [
    ("", 0o777, False), ("", 0o1777, True), ("", 0o770, False), ("pyg_graphzero", 0o777, False),
    ("pyg_graphzero/orders", 0o722, False), ("pyg_graphzero", 0o755, True),
])  # fmt: skip
def test_a_cache_that_others_can_write_to(store, in_cache, warnings, where, mode, is_used):
    _, expected = cached_copy(store, in_cache)
    (in_cache / where).chmod(mode)
    loader = training(store)
    found, stats = epoch(loader)
    assert_same(found, expected)
    assert stats.reordered == is_used
    told = f"{in_cache / where}: permissions: found {stat.filemode(mode | stat.S_IFDIR)}"
    assert (told in warnings.text) != is_used


def test_a_file_of_another_user_in_a_copy(store, in_cache, monkeypatch, warnings):
    copy, expected = cached_copy(store, in_cache)
    (copy / "0" / "0.gd").chmod(0o666)
    loader = training(store)
    found, stats = epoch(loader)
    assert_same(found, expected)
    assert not stats.reordered
    assert f"{copy}: not used, and made anew: {copy / '0' / '0.gd'}: permissions" in warnings.text
    tuned(loader)
    assert epoch(loader)[1].reordered
    assert modes(copy) <= {0o600, 0o644}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_of_a_store_may_have_made_its_copies(copied):
    give_away(copied, None)
    _, stats = epoch(training(copied))
    assert stats.reordered
    os.chown(copied, 0, 0)
    _, stats = epoch(training(copied))
    assert not stats.reordered


# Killed copiers ###################################################################################


def partials(store):
    return list((store / "orders").glob(".*"))


def test_a_killed_copiers_rows_go_where_there_is_a_copy(copied):
    make_scratch(copy_of(copied), "partial")  # whose lock ends with the process that has it
    assert partials(copied)
    next(iter(training(copied)))
    assert not partials(copied)


def test_a_copier_is_killed_while_another_process_waits_for_it(copied):
    key = copy_of(copied).name
    shutil.rmtree(copied / "orders" / key)
    held = make_scratch(copied / "orders" / key, "partial")
    waiting = training(copied)
    expected, _ = epoch(waiting)
    tuned(waiting)
    assert partials(copied)
    del held
    found, _ = epoch(waiting)
    assert_same(found, expected)
    assert not [path for path in partials(copied) if not (path / "0").exists()]
    tuned(waiting)
    assert not partials(copied)
    found, stats = epoch(waiting)
    assert_same(found, expected)
    assert stats.reordered


def test_a_copier_is_killed_while_another_one_copies(store, monkeypatch):
    write = own_order.write_copy

    def beside(target, *args):
        write(target, *args)
        make_scratch(target.with_name("0" * 32), "partial")
        assert partials(store)

    monkeypatch.setattr(own_order, "write_copy", beside)
    loader = training(store)
    next(iter(loader))
    tuned(loader)
    assert copy_of(store).exists()
    assert not partials(store)
