"""Copies of used rows that others have made, changed, linked or left: nothing outside changes."""

from __future__ import annotations

import logging
import math
import os
import shutil
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import graphzero
from same import assert_same
from store_files import flip
from systems import needs_linux
from tuned import epoch, partials, training

import pyg_graphzero as gz
import spawned
from graphs import write_store
from pyg_graphzero.bench.synthetic import power_law
from pyg_graphzero.memory import making
from pyg_graphzero.memory.used_copy import UsedCopy
from pyg_graphzero.store.columns import view_column, view_topology, write_column
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.copies import GROUP_BITS
from pyg_graphzero.store.copy_writer import WITH_SLAB, CopyOf, Rows, write_copy
from pyg_graphzero.util.documents import read_document, write_document
from pyg_graphzero.util.locks import make_scratch
from pyg_graphzero.util.system import private_rss

X, TOPOLOGY = "node/x.gd", "edge/topology.gl"
pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture
def copied(skewed, built_once, tmp_path):
    """A store of one's own that has a copy of rows."""

    def build(path):
        shutil.copytree(skewed, path)
        iter(training(path))

    made = built_once("copied", build)
    return Path(shutil.copytree(made, tmp_path / "store"))


@pytest.fixture
def warnings(caplog):
    """The log, of what the user is told."""
    caplog.set_level(logging.WARNING, "pyg_graphzero")
    return caplog


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


def is_same_by_a_copy(store, expected, is_copied=True):
    found, stats = epoch(training(store))
    assert_same(found, expected)
    assert stats.reordered == is_copied


# Written and opened ###############################################################################


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "store"
    return StoreContents(write_store(power_law(2_000, 10_000, 64), path))


def small_copy(contents, target):
    """The first 10 rows of a store, and 10 groups of neighbours."""
    order, uses = torch.arange(10, dtype=torch.int32), ((3.5, 4), (1.0, 6))
    topology = contents.topology(None)
    parts = [
        CopyOf(None, order, uses, {X: Rows.of_column(contents.column(X))}),
        CopyOf(None, order * 3, uses, {TOPOLOGY: Rows.of_neighbours(topology)}, TOPOLOGY),
    ]
    write_copy(target, parts, 1 << 20)
    return target


def test_a_copy_has_rows_and_neighbours_in_its_order(small, tmp_path):
    copy = UsedCopy.open(small_copy(small, tmp_path / "copy"), small)
    rows, groups = (view_column(copy.files[file].column) for file in (X, TOPOLOGY))
    assert torch.equal(rows.view(torch.float32), view_column(small.column(X))[:10])
    expected = view_topology(small.topology(None))[1].view(-1, 1 << GROUP_BITS)[: 3 * 10 : 3]
    assert torch.equal(groups.view(torch.int32), expected.view(torch.int32))
    assert copy.files[X].uses == ((3.5, 4), (1.0, 6))
    assert copy.files[TOPOLOGY].uses == ((3.5, 64), (1.0, 96))
    inode = (copy.path / "order.json").stat().st_ino
    small_copy(small, copy.path)  # a slower process leaves what is there
    assert (copy.path / "order.json").stat().st_ino == inode
    assert not list(tmp_path.glob(".copy*"))


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize(("file", "rows"), [
    ("rows.gd", lambda last: torch.arange(last - 9, last + 1, dtype=torch.int32)),
    ("rows.gd", lambda last: torch.zeros(10, dtype=torch.int32)),
    ("rows.gd", lambda last: torch.arange(10)),
    ("0.gd", lambda last: torch.zeros(9, 64, dtype=torch.uint8)),
    ("0.gd", lambda last: torch.zeros(10, 65, dtype=torch.uint8)),
])  # fmt: skip
def test_files_that_are_no_copy_of_these_rows(small, tmp_path, part, file, rows):
    damaged = small_copy(small, tmp_path / "copy") / str(part) / file
    damaged.unlink()
    write_column(damaged, rows((2_000, 10_000 >> GROUP_BITS)[part]))
    with pytest.raises(gz.FormatError, match="expected"):
        UsedCopy.open(tmp_path / "copy", small)


def copy_and_watch(rank, path, target):
    """Copying takes no more, beside its table, than what is set aside for it."""
    contents, slab = StoreContents(path), 4 << 20
    order = torch.randperm(60_000).to(torch.int32)
    part = CopyOf(None, order, (), {X: Rows.of_column(contents.column(X))})
    write_copy(target / "before", [part], slab)  # what libraries take once
    shutil.rmtree(target / "before")
    before, most, is_over = private_rss(), 0, threading.Event()

    def watch():
        nonlocal most
        while not is_over.wait(0.001):
            most = max(most, private_rss())

    watching = threading.Thread(target=watch)
    watching.start()
    write_copy(target / "copy", [part], slab)
    is_over.set()
    watching.join()
    assert most > before
    assert most - before < WITH_SLAB * slab + 2_000_000


@needs_linux("/proc tells what memory is a process's own")
def test_memory_for_copying_is_set_aside(store, tmp_path, monkeypatch):
    monkeypatch.setenv(*spawned.EXACT_MALLOC)
    spawned.spawn(copy_and_watch, (store, tmp_path), 1)


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
    expected, _ = epoch(training(store, row_cache=False))
    is_same_by_a_copy(store, expected)  # in the user's cache
    assert tree(victim) == before
    assert f"{store / 'orders'}: file: found a symbolic link to '../victim'" in warnings.text
    cleaned = graphzero("clean", store)
    assert cleaned.output.startswith(f"{store}: 1 removed")
    assert tree(victim) == before
    report = gz.verify(store)
    assert [line.split(":")[0] for line in report.bad] == [str(store / "orders")]
    assert tree(victim) == before
    assert os.readlink(store / "orders") == "../victim"


@pytest.mark.parametrize("link", ["copy", "folder", "document", "rows"])
def test_a_copy_that_a_link_leads_to_is_not_used(copied, tmp_path, warnings, link):
    expected, _ = epoch(training(copied, row_cache=False))
    copy, outside = copy_of(copied), tmp_path / "outside"
    inside = {"copy": "", "folder": "0", "document": "order.json", "rows": "0/0.gd"}[link]
    (copy / inside).rename(outside)
    (copy / inside).symlink_to(outside)
    before = tree(outside), outside.stat().st_size
    is_same_by_a_copy(copied, expected)
    assert "found a symbolic link" in warnings.text
    # A link in the place of a copy is not this program's, and stays; in a copy it is damage.
    assert os.path.islink(copy) == (link == "copy")
    graphzero("clean", copied)
    assert (tree(outside), outside.stat().st_size) == before


def test_leftovers_of_a_copy_are_not_removed_through_a_link(copied, victim):
    (copied / "orders" / ".x.partial-1234").symlink_to(victim)
    before = tree(victim)
    iter(training(copied))
    graphzero("clean", copied)
    assert tree(victim) == before


def test_other_files_beside_copies_stay(copied):
    kept = copied / "orders" / "p0"
    kept.mkdir()
    (kept / "order.json").write_text("not a copy: its name is none")
    output = graphzero("clean", copied).output
    assert output.startswith(f"{copied}: 1 removed")
    assert [path.name for path in (copied / "orders").rglob("*")] == ["p0", "order.json"]


# Damage ###########################################################################################


def of_part(**members: Any):
    """Puts members into what a document says of its first part; ``...`` takes one away."""
    return lambda body: {**body, "parts": [kept({**body["parts"][0], **members})]}


def with_uses(make):
    """Replaces the uses of the first part, whose number of rows is as it was."""
    return lambda body: of_part(uses=make(body["parts"][0]["rows"]))(body)


def of_all(**members: Any):
    """Puts members into the document; ``...`` takes one away."""
    return lambda body: kept({**body, **members})


def kept(members):
    return {key: value for key, value in members.items() if value is not ...}


WRONG = {"missing": ..., "null": None, "text": "36444", "number": 7, "object": {X: 0}, "none": []}
ODD = {
    **{
        f"{name}_{kind}": change(**{name: value})
        for kind, value in WRONG.items()
        for change, names in (
            (of_all, ["format", "parts"]), (of_part, ["name", "lists", "rows", "uses", "files"])
        )
        for name in names
        if kind != "null" or name not in ("name", "lists")
    },
    "format_true": of_all(format=True),
    "format_float": of_all(format=1.0),
    "parts_text": of_all(parts=["x"]),
    "parts_nested": lambda body: {**body, "parts": [body["parts"]]},
    "parts_twice": lambda body: {**body, "parts": 2 * body["parts"]},
    "lists_of_rows": of_part(lists=X),
    "lists_of_others": of_part(lists=TOPOLOGY),
    "lists_unknown": of_part(lists="edge/t.gl", files=["edge/t.gl"]),
    "rows_nan": of_part(rows=math.nan),
    "rows_infinite": of_part(rows=math.inf),
    "rows_negative": of_part(rows=-1, uses=[[1.0, -1]]),
    "rows_huge": of_part(rows=10**30, uses=[[1.0, 10**30]]),
    "rows_true": of_part(rows=True, uses=[[1.0, 1]]),
    "rows_others": of_part(rows=12, uses=[[1.0, 12]]),
    "uses_numbers": of_part(uses=[1.0, 36444]),
    "uses_of_others": of_part(uses=[[1.0, 12]]),
    "uses_nan": with_uses(lambda rows: [[math.nan, rows]]),
    "uses_infinite": with_uses(lambda rows: [[math.inf, rows]]),
    "uses_negative": with_uses(lambda rows: [[-1.0, rows]]),
    "uses_of_fewer_than_none": with_uses(lambda rows: [[1.0, -12], [1.0, rows + 12]]),
    "uses_triples": with_uses(lambda rows: [[1.0, rows, 0]]),
    "files_number": of_part(files=[7]),
    "files_nested": of_part(files=[[X]]),
    "files_unknown": of_part(files=["node/z.gd"]),
    "files_outside": of_part(files=["../x.gd"]),
    "files_of_edges": of_part(files=[TOPOLOGY]),
    "files_twice": of_part(files=[X, X]),
}  # fmt: skip


# Only together with the store: a copy of columns that the store had before is none of its damage.
IN_USE = {
    *{"name_text", "lists_of_rows", "lists_unknown", "rows_others", "files_unknown"},
    "files_of_edges",
}


@pytest.mark.parametrize("kind", list(ODD))
def test_a_sealed_document_with_odd_members_is_damaged(small, kind):
    (small.path / "orders").mkdir(exist_ok=True)
    copy = small_copy(small, small.path / "orders" / ("0" * 32))
    changed = ODD[kind](read_document(copy / "order.json"))
    write_document({k: v for k, v in changed.items() if k != "checksum"}, copy / "order.json")
    with pytest.raises(gz.FormatError) as error:
        UsedCopy.open(copy, small)
    assert str(error.value).startswith(f"{copy}/")
    (fault,) = gz.verify(small.path).bad if kind not in IN_USE else [f"{copy}/order.json: "]
    assert fault.startswith(f"{copy}/order.json: ")
    shutil.rmtree(copy)


@pytest.mark.parametrize("damage", ["document", "sealed", "order", "flipped", "rows", "gone"])
def test_damaged_ones_are_made_anew(copied, damage, warnings):
    copy, (expected, _) = copy_of(copied), epoch(training(copied))
    document, rows, column = (copy / name for name in ("order.json", "0/rows.gd", "0/0.gd"))
    if damage == "document":
        document.write_text(document.read_text().replace("rows", "rosw"))
    elif damage == "sealed":
        write_document(ODD["name_text"](read_document(document)), document)
    elif damage == "order":
        os.truncate(rows, rows.stat().st_size - 4096)
    elif damage == "flipped":  # all of these are read when a copy is opened
        flip(rows, 4096 + 40)
    elif damage == "rows":
        os.truncate(column, 4096)
    else:
        column.unlink()
    is_same_by_a_copy(copied, expected)
    assert f"{copy}: not used, and made anew: " in warnings.text
    assert gz.verify(copied).ok


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
    (store / X).chmod(0o600)
    before = os.umask(0o002)
    try:
        assert epoch(training(store))[1].reordered
    finally:
        os.umask(before)
    folders = [in_cache / "pyg_graphzero", *(in_cache / "pyg_graphzero").rglob("*")]
    assert modes(in_cache) == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders if path.is_dir()} == {0o700}


@pytest.mark.parametrize(("of_store", "of_rows", "of_copy"), [
    (0o755, 0o644, (0o755, 0o644)), (0o775, 0o664, (0o755, 0o644)), (0o750, 0o640, (0o750, 0o640)),
    (0o755, 0o600, (0o755, 0o600)), (0o755, 0o444, (0o755, 0o444)),
])  # fmt: skip
def test_a_copy_in_a_store_is_read_by_those_who_read_the_store(store, of_store, of_rows, of_copy):
    store.chmod(of_store)
    (store / X).chmod(of_rows)
    assert epoch(training(store))[1].reordered
    copy = copy_of(store)
    assert modes(copy) == {of_copy[1]}
    assert {stat.S_IMODE(p.stat().st_mode) for p in (copy.parent, copy, copy / "0")} == {of_copy[0]}


def cached_copy(store, in_cache):
    """A copy in the cache, and what is read by it."""
    found, stats = epoch(training(store))
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
    is_same_by_a_copy(store, expected, is_copied=False)
    assert "owner: found user" in warnings.text
    graphzero("clean", store)
    assert tree(in_cache) == before  # nothing is written there, or removed


@pytest.mark.parametrize(("where", "mode", "is_used"), [
    ("", 0o777, False), ("", 0o1777, True), ("", 0o770, False), ("pyg_graphzero", 0o777, False),
    ("pyg_graphzero/orders", 0o722, False), ("pyg_graphzero", 0o755, True),
])  # fmt: skip
def test_a_cache_that_others_can_write_to(store, in_cache, warnings, where, mode, is_used):
    _, expected = cached_copy(store, in_cache)
    (in_cache / where).chmod(mode)
    is_same_by_a_copy(store, expected, is_used)
    told = f"{in_cache / where}: permissions: found {stat.filemode(mode | stat.S_IFDIR)}"
    assert (told in warnings.text) != is_used


def test_a_file_of_another_user_in_a_copy(store, in_cache, monkeypatch, warnings):
    copy, expected = cached_copy(store, in_cache)
    (copy / "0" / "0.gd").chmod(0o666)
    is_same_by_a_copy(store, expected)
    assert f"{copy}: not used, and made anew: {copy / '0' / '0.gd'}: permissions" in warnings.text
    assert modes(copy) <= {0o600, 0o644}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_of_a_store_may_have_made_its_copies(copied, warnings):
    expected, _ = epoch(training(copied))
    give_away(copied, None)
    inode = copy_of(copied).stat().st_ino
    is_same_by_a_copy(copied, expected)
    assert copy_of(copied).stat().st_ino == inode
    assert not warnings.text
    os.chown(copied, 0, 0)
    is_same_by_a_copy(copied, expected)  # in the user's cache
    assert f"no copies of rows are used there: {copied}" in warnings.text


# Killed copiers ###################################################################################


def test_a_killed_copiers_rows_go_where_there_is_a_copy(copied):
    make_scratch(copy_of(copied), "partial")  # whose lock ends with the process that has it
    assert partials(copied)
    iter(training(copied))
    assert not partials(copied)


def test_a_copier_is_killed_while_another_one_copies(store, monkeypatch):
    def beside(target, *args):
        write_copy(target, *args)
        make_scratch(target.with_name("0" * 32), "partial")
        assert partials(store)

    monkeypatch.setattr(making, "write_copy", beside)
    iter(training(store))
    assert copy_of(store).exists()
    assert not partials(store)


def test_a_copy_that_goes_while_it_is_opened_is_no_damaged_one(copied, warnings, monkeypatch):
    def gone(path, contents):
        shutil.rmtree(path)
        raise FileNotFoundError(path)

    key = copy_of(copied).name
    monkeypatch.setattr(UsedCopy, "open", gone)
    assert making.find_copy(StoreContents(copied), key) is None
    assert warnings.text == ""


def test_a_copy_that_goes_as_soon_as_it_is_there_was_written(small, tmp_path, monkeypatch):
    def publish(scratch, target, replace):
        os.rename(scratch, target)
        shutil.rmtree(target)

    monkeypatch.setattr("pyg_graphzero._core.publish_directory", publish)
    small_copy(small, tmp_path / "copy")
    assert os.listdir(tmp_path) == []


def test_a_store_has_four_copies_at_most(copied):
    for number in range(5):
        epoch(training(copied, torch.arange(number, 60_000, 100)))
    assert len(list((copied / "orders").iterdir())) == 4
