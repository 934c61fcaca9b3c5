"""Rows that a store has once more, in the order of their use: the same batches, fewer reads."""

from __future__ import annotations

import errno
import gc
import logging
import os
import shutil
import threading
import weakref
from contextlib import suppress
from itertools import islice

import pytest
import torch
from budgets import budget_beside
from click.testing import CliRunner
from interrupting import At, Struck
from tuned import ROOM, SAMPLED, assert_same, epoch, goes_on, training, tuned

import pyg_graphzero as gz
import spawned
from graphs import write_store
from pyg_graphzero.bench.synthetic import power_law
from pyg_graphzero.memory import own_order, row_copy, tuning
from pyg_graphzero.memory.pager import pager_of
from pyg_graphzero.memory.ranking import EPOCHS, count_accesses, rank_rows
from pyg_graphzero.memory.row_copy import WITH_SLAB, CopyOf, OwnOrder, Stopped, write_copy
from pyg_graphzero.store.columns import write_column
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.util.documents import read_document, write_document
from pyg_graphzero.util.locks import make_scratch
from pyg_graphzero.util.system import private_rss
from pyg_graphzero_cli import main

_all_stay = own_order._all_stay
pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture
def info(caplog):
    """The log, with the reasons why rows are not put in order."""
    caplog.set_level("INFO", "pyg_graphzero")
    return caplog


def test_the_same_batches_before_during_and_after(store):
    loader = training(store, order="off")
    epoch(loader)
    tuned(loader)
    expected, plain = epoch(loader)
    del loader  # which would leave the next one more memory than it was given
    loader = training(store)
    first, during = epoch(loader)
    assert during.rows > 0
    tuned(loader)
    second, after = epoch(loader)
    assert after.reordered
    assert "in the order of their use" in repr(after)
    again = training(store)
    third, later = epoch(again)
    assert later.reordered  # of a later run, from its first epoch on
    assert len(list((store / "orders").iterdir())) == 1
    for batches in (first, second, third):
        assert_same(batches, expected)
    assert not plain.reordered
    assert after.rows == plain.rows
    # An epoch reads more where the loop is slow enough for two windows at a time.
    least = min(later.read_bytes, *(epoch(again)[1].read_bytes for _ in range(3)))
    assert least < 0.95 * plain.read_bytes
    assert gz.verify(store).ok


def test_an_epoch_goes_on_by_the_copy(store):
    expected, _ = epoch(training(store, order="off"))
    loader, batches = training(store), []
    torch.manual_seed(0)
    for batch in loader:
        batches.append((batch.n_id, batch.edge_index, batch.x, batch.y))
        if len(batches) == 2:
            tuned(loader)
    assert loader.stats().reordered
    assert_same(batches, expected)
    assert epoch(loader)[1].reordered


@pytest.mark.parametrize("beside", [True, False])
def test_rows_that_all_stay_in_memory_are_not_copied(store, beside, monkeypatch, info):
    """Beside what ranking them takes, or when that is over."""
    stays = iter([beside, True])
    monkeypatch.setattr(own_order, "_all_stay", lambda *args: _all_stay(*args) and next(stays))
    data = gz.open(store, memory=budget_beside(ROOM)).data()
    few = data.train_mask.nonzero().view(-1)[:512]
    loader = gz.loader.NeighborLoader(data, input_nodes=few, **SAMPLED | {"num_neighbors": [4]})
    batches = iter(loader)
    begun_with = pager_of(loader.graph_sampler.graph.contents).files
    tuned(loader)
    assert pager_of(loader.graph_sampler.graph.contents).is_better_known != beside
    assert sum(1 for _ in batches) == 4
    assert (pager_of(loader.graph_sampler.graph.contents).files is begun_with) == beside
    assert loader.stats().reads > 0
    epoch(loader)
    assert epoch(loader)[1].reads == 0
    assert not (store / "orders").exists()
    assert "rows are not put in order: all that are used stay" in info.text


# One may strike in a finalizer, from which nobody can catch it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("function", ["_begin", "decide", "_tune", "begin_engine"])
@pytest.mark.parametrize("moment", [0, 2, 9, 23])
def test_an_interrupt_while_an_epoch_goes_over_to_the_copy(store, function, moment):
    """Struck so many moments after a function has begun that the going over calls."""
    expected, _ = epoch(training(store, order="off"))
    loader = training(store)
    torch.manual_seed(0)
    batches = iter(loader)
    found = [next(batches)]
    tuned(loader)
    at = At(moment, function)
    with suppress(Struck), at:
        found.append(next(batches))
    assert at.left < 0
    found += batches
    assert_same([(b.n_id, b.edge_index, b.x, b.y) for b in found], expected)
    files = pager_of(loader.graph_sampler.graph.contents).files
    assert files.order is not None
    assert not files.quotas  # all that it had is given back
    # The batches behind it are read by the copy's plan: what is mapped is not counted.
    stats = loader.stats()
    assert stats.reordered
    assert stats.rows > 0.9 * stats.nodes


def test_the_disk_is_left_to_loaders_the_less_the_more_they_gain(store, tmp_path, monkeypatch):
    waits = []

    class Never(threading.Event):
        def wait(self, timeout=None):
            waits.append(timeout)
            return False

    clock = iter(range(1_000_000))
    monkeypatch.setattr(row_copy, "perf_counter", lambda: next(clock))
    column = StoreContents(store).column("node/x.gd")
    part = CopyOf(None, 60_000, torch.arange(60_000, dtype=torch.int32), {"node/x.gd": column})
    for rest in (1.0, 0.25):
        write_copy(tmp_path / f"{rest}", [part], 4 << 20, Never(), rest)
        assert set(waits) == {rest}  # each turn takes one second of this clock
        waits.clear()


def test_an_epoch_beside_another_goes_on_as_it_began(store):
    loader = training(store)
    one, two = iter(loader), iter(loader)
    begun_with = pager_of(loader.graph_sampler.graph.contents).files
    next(one)
    tuned(loader)
    next(one), next(two)
    assert pager_of(loader.graph_sampler.graph.contents).files is begun_with
    del two
    gc.collect()
    next(one)
    assert pager_of(loader.graph_sampler.graph.contents).files is not begun_with


def test_off(store):
    loader = training(store, order="off")
    for _ in range(2):
        epoch(loader)
    assert not (store / "orders").exists()
    with pytest.raises(ValueError, match="order"):
        gz.open(store, order="sometimes")


@pytest.mark.parametrize("limit", ["auto", 2_000_000])
def test_a_limit_takes_the_hottest_rows(store, limit):
    loader = training(store, order=limit)
    goes_on(loader)
    copy = pager_of(loader.graph_sampler.graph.contents).files.order
    rows = copy.columns["node/x.gd"].shape[0]
    assert copy.used_rows == ({"node/x.gd": rows} if limit == "auto" else {})
    assert limit == "auto" or rows == limit // 1024


def test_nothing_where_it_is_not_worth_it(store, monkeypatch, info):
    monkeypatch.setattr(own_order, "LEAST_SECONDS", 1e6)
    loader = training(store)
    epoch(loader)
    tuned(loader)
    assert not (store / "orders").exists()
    assert "rows are not put in order: an epoch reads for" in info.text
    monkeypatch.setattr(own_order, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(own_order, "WORTH", 0.0)
    del loader
    expected, _ = epoch(training(store, order="off"))
    loader = training(store)
    found, stats = epoch(loader)
    tuned(loader)
    assert_same(found, expected)
    assert not stats.reordered
    assert not (store / "orders").exists()
    assert "rows are not put in order: a batch takes" in info.text


@pytest.fixture
def neighbours_are_read(monkeypatch):
    monkeypatch.setattr("pyg_graphzero.memory.costs.HELD_SHARE", 0.0)


def test_the_first_epoch_ranks_rows_where_neighbours_are_read(store, neighbours_are_read):
    loader = training(store)
    expected = [epoch(loader, seed)[0] for seed in range(2)]
    first = loader.stats()
    assert first.topology_rows > 0
    assert not first.reordered
    tuned(loader)
    for seed in range(2):
        found, stats = epoch(loader, seed)
        assert_same(found, expected[seed])
        assert stats.reordered
        assert stats.topology_rows > 0
        assert stats.reads < 0.7 * first.reads
    # And another run finds it.
    del loader
    loader = training(store)
    found, stats = epoch(loader, 0)
    assert_same(found, expected[0])
    assert stats.reordered
    assert stats.topology_rows > 0
    assert len(list((store / "orders").iterdir())) == 1


def test_epochs_that_are_broken_off_are_watched_until_they_are_one(store, neighbours_are_read):
    loader = training(store)
    watch = pager_of(loader.graph_sampler.graph.contents).files_for(loader).watch
    other = gz.loader.NeighborLoader(loader.data, input_nodes=torch.arange(600), **SAMPLED)
    few = len(loader) // 3
    for _ in range(3):
        for _ in islice(loader, few):
            pass
        for _ in other:  # says nothing of the loader
            pass
        assert not watch.done.is_set()
    for _ in islice(loader, len(loader) - 3 * few):
        pass
    assert watch.done.is_set()
    tuned(loader)
    assert epoch(loader)[1].reordered


def test_the_loader_that_decides_is_the_one_that_is_watched(store, neighbours_are_read):
    loader = training(store)
    short = gz.loader.NeighborLoader(loader.data, input_nodes=torch.arange(600), **SAMPLED)
    next(iter(short))
    contents = loader.graph_sampler.graph.contents
    first = pager_of(contents).tuning
    expected, _ = epoch(loader)
    assert first.is_over
    assert pager_of(contents).tuning is not first
    tuned(loader)
    found, stats = epoch(loader)
    assert_same(found, expected)
    assert stats.reordered


def test_who_stops_training_is_not_waited_for(store, neighbours_are_read):
    loader = training(store)
    for _ in islice(loader, 5):
        pass
    contents = weakref.ref(loader.graph_sampler.graph.contents)
    thread = pager_of(contents()).tuning.thread
    assert thread.is_alive()
    gc.disable()
    try:
        del loader
        assert contents() is None
    finally:
        gc.enable()
    thread.join(10)
    assert not thread.is_alive()
    assert not (store / "orders").exists()


def test_no_copy_of_what_stays_where_neighbours_are_read(
    store, neighbours_are_read, monkeypatch, info
):
    monkeypatch.setattr(own_order, "_all_stay", lambda *args: True)
    loader = training(store)
    expected, _ = epoch(loader)
    files = pager_of(loader.graph_sampler.graph.contents).files
    tuned(loader)
    assert "rows are not put in order: all that are used stay" in info.text
    found, _ = epoch(loader)
    assert_same(found, expected)
    assert pager_of(loader.graph_sampler.graph.contents).files is files  # with all that it has


@pytest.mark.parametrize("damage", ["document", "order", "rows", "gone"])
def test_damaged_ones_are_made_anew(store, damage, caplog):
    expected = goes_on(training(store))
    (copy,) = (store / "orders").iterdir()
    if damage == "document":
        (copy / "order.json").write_text((copy / "order.json").read_text().replace("rows", "rosw"))
    elif damage == "order":
        (copy / "0" / "rows.gd").write_bytes((copy / "0" / "rows.gd").read_bytes()[:-4096])
    elif damage == "rows":
        os.truncate(copy / "0" / "0.gd", 4096)
    else:
        (copy / "0" / "0.gd").unlink()
    again = training(store)
    with caplog.at_level(logging.WARNING, "pyg_graphzero"):
        found, stats = epoch(again)
    assert_same(found, expected)
    assert "made anew" in caplog.text
    assert not stats.reordered
    tuned(again)
    found, stats = epoch(again)
    assert_same(found, expected)
    assert stats.reordered


def test_a_short_epoch_does_not_speak_for_a_long_one(store, monkeypatch):
    data = gz.open(store, memory=budget_beside(ROOM)).data()
    seeds = data.train_mask.nonzero().view(-1)
    short, long = (
        gz.loader.NeighborLoader(data, input_nodes=nodes, shuffle=True, num_workers=1, **SAMPLED)
        for nodes in (seeds[:500], seeds)
    )
    with monkeypatch.context() as patch:
        patch.setattr(own_order, "LEAST_SECONDS", 1e6)
        epoch(short)
        tuned(short)
    assert not (store / "orders").exists()
    goes_on(long)


def test_a_file_in_place_of_the_folder(store):
    (store / "orders").write_text("somebody's file")
    loader = training(store)
    goes_on(loader)  # to the user's cache
    assert CliRunner().invoke(main, ["clean", str(store)]).output.startswith(f"{store}: 1 removed")
    assert (store / "orders").read_text() == "somebody's file"


def full(*args):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(("name", "value", "why"), [
    ("row_copy.write_column", full, "No space left"),
    ("row_copy._FREE_SHARE", 1.0, "rows are not put in order: the disk is full"),
    ("own_order.is_writable", lambda folder: False, "not put in order: nowhere to write them to"),
])  # fmt: skip
def test_no_room_on_disk(store, monkeypatch, info, name, value, why):
    monkeypatch.setattr(f"pyg_graphzero.memory.{name}", value)
    loader = training(store)
    goes_on(loader, is_copied=False)
    assert why in info.text
    assert list(store.glob("orders/*")) == []


def test_a_store_that_cannot_be_written_to(store, monkeypatch):
    monkeypatch.setattr(own_order, "is_writable", lambda folder: store not in folder.parents)
    goes_on(training(store))
    assert not (store / "orders").exists()
    assert epoch(training(store))[1].reordered


def test_another_process_makes_it(store):
    loader = training(store)
    epoch(loader)
    tuned(loader)
    (copy,) = (store / "orders").iterdir()
    aside = copy.rename(store / "aside")
    held = make_scratch(copy, "partial")
    waiting = training(store)
    expected, _ = epoch(waiting)
    tuned(waiting)
    assert not waiting.stats().reordered
    aside.rename(copy)
    found, stats = epoch(waiting)
    assert_same(found, expected)
    assert stats.reordered
    del held


def small_copy(path, target):
    """Of a store of 2,000 nodes, the first 10 rows."""
    contents = StoreContents(path)
    order = torch.arange(10, dtype=torch.int32)
    part = CopyOf(None, 2_000, order, {"node/x.gd": contents.column("node/x.gd")})
    write_copy(target, [part], 1 << 20, threading.Event())
    return contents


@pytest.mark.parametrize("fault", ["format", "rows", "twice", "dtype", "width"])
def test_what_is_no_copy_of_these_rows(tmp_path, fault):
    path, copy = write_store(power_law(2_000, 10_000, 64), tmp_path / "store"), tmp_path / "copy"
    contents = small_copy(path, copy)
    assert OwnOrder.open(copy, contents).columns["node/x.gd"].shape[0] == 10
    body = read_document(copy / "order.json")
    damaged = copy / "0" / ("0.gd" if fault == "width" else "rows.gd")
    if fault != "format":
        damaged.unlink()
    if fault == "format":
        write_document(body | {"format": 2}, copy / "order.json")
    elif fault == "rows":
        write_column(damaged, torch.arange(1_991, 2_001, dtype=torch.int32))
    elif fault == "twice":
        write_column(damaged, torch.zeros(10, dtype=torch.int32))
    elif fault == "dtype":
        write_column(damaged, torch.arange(10))
    else:
        write_column(damaged, torch.zeros(9, 256, dtype=torch.uint8))
    with pytest.raises(gz.FormatError, match="expected"):
        OwnOrder.open(copy, contents)


def test_who_is_slower_leaves_what_is_there(tmp_path):
    path, copy = write_store(power_law(2_000, 10_000, 64), tmp_path / "store"), tmp_path / "copy"
    small_copy(path, copy)
    before = (copy / "order.json").stat().st_ino
    small_copy(path, copy)
    assert (copy / "order.json").stat().st_ino == before
    assert not list(tmp_path.glob(".copy*"))


@pytest.mark.parametrize("share", ["_LEAST_USED", "_MORE_USED"])
def test_no_memory_to_rank_rows_in(store, monkeypatch, info, share):
    """As is known before they are counted, or when they are."""
    monkeypatch.setattr(own_order, share, 1000)
    loader = training(store)
    epoch(loader)
    tuned(loader)
    assert "rows are not put in order: that takes" in info.text
    assert not (store / "orders").exists()


def copy_and_watch(rank, path, target):
    """What copying takes beside its table is what is set aside for it."""
    contents, slab = StoreContents(path), 4 << 20
    order = torch.randperm(60_000).to(torch.int32)
    part = CopyOf(None, 60_000, order, {"node/x.gd": contents.column("node/x.gd")})
    write_copy(target / "before", [part], slab, threading.Event())  # what libraries take once
    shutil.rmtree(target / "before")
    before, most, is_over = private_rss(), 0, threading.Event()

    def watch():
        nonlocal most
        while not is_over.wait(0.001):
            most = max(most, private_rss())

    watching = threading.Thread(target=watch)
    watching.start()
    write_copy(target / "copy", [part], slab, threading.Event())
    is_over.set()
    watching.join()
    assert most > before
    assert most - before < WITH_SLAB * slab + 2_000_000


def test_memory_for_copying_is_set_aside(store, tmp_path, monkeypatch):
    monkeypatch.setenv(*spawned.EXACT_MALLOC)
    spawned.spawn(copy_and_watch, (store, tmp_path), 1)


def test_ranking_that_has_no_time(store):
    loader = training(store, order="off")
    few, all_of_them = (
        rank_rows(loader, count_accesses(loader, epochs=EPOCHS, seconds=seconds))[None].order
        for seconds in (0.0, 60.0)
    )
    assert 0 < len(few) < len(all_of_them)
    for rows in (few, all_of_them):
        assert len(rows.unique()) == len(rows)
    found, _ = epoch(loader)
    used = torch.cat([batch[0] for batch in found]).unique()
    assert torch.isin(used, all_of_them).float().mean() > 0.8


def test_nobody_wants_it_any_more(store, tmp_path):
    contents, stop = StoreContents(store), threading.Event()
    stop.set()
    column = contents.column("node/x.gd")
    part = CopyOf(None, 60_000, torch.arange(60_000, dtype=torch.int32), {"node/x.gd": column})
    with pytest.raises(Stopped):
        write_copy(tmp_path / "copy", [part], 1 << 20, stop)
    assert not list(tmp_path.glob("*copy*"))


def test_who_copies_keeps_no_store_open(store, monkeypatch):
    copying = threading.Event()

    def copy(target, ranked, stop):
        copying.set()
        stop.wait(60)

    monkeypatch.setattr(own_order, "_FIRST_BATCHES", 0)
    monkeypatch.setattr(tuning, "make_copy", copy)
    loader = training(store)
    next(iter(loader))
    assert copying.wait(60)
    contents = loader.graph_sampler.graph.contents
    thread, opened = pager_of(contents).tuning.thread, weakref.ref(contents)
    del contents, loader
    gc.collect()
    assert opened() is None
    thread.join(30)
    assert not thread.is_alive()
