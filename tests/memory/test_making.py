"""Copies of what training uses: when they are made, and the same batches with fewer reads."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from itertools import islice

import budgets
import pytest
import torch
from budgets import budget_beside
from commands import graphzero
from full_disk import largest_file
from interrupting import At, Struck
from same import assert_same
from systems import needs_linux
from torch_geometric.data import HeteroData
from tuned import ROOM, SAMPLED, epoch, goes_on, partials, residence_of, training

import pyg_graphzero as gz
from graphs import random_edges
from pyg_graphzero import _core
from pyg_graphzero.memory import costs, keeper, making
from pyg_graphzero.memory.needs import Kind
from pyg_graphzero.store.copies import remove_copies
from pyg_graphzero.util.disk import READER_BYTES
from pyg_graphzero.util.locks import make_scratch
from pyg_graphzero.util.system import private_rss

X, TOPOLOGY = "node/x.gd", "edge/topology.gl"
MB = 10**6
pytestmark = pytest.mark.usefixtures("eager")


def copies(store):
    return list((store / "orders").glob("[0-9a-f]*"))


@pytest.fixture
def same_room(monkeypatch):
    """Budgets leave the same room, whatever other tests have left in this process."""
    taken = private_rss() + 1000 * MB
    for module in (budgets, keeper):
        monkeypatch.setattr(module, "private_rss", lambda: taken)


def test_batches_are_equal_with_a_copy_and_without(store, same_room):
    expected = goes_on(training(store, row_cache=False), is_copied=False)
    assert not (store / "orders").exists()
    loader = training(store, row_cache=False)
    epoch(loader)
    _, plain = epoch(loader)
    del loader  # which would leave the next one more memory than it was given
    loader = training(store)
    first, made = epoch(loader)
    assert made.reordered
    assert "in the order of their use" in repr(made)
    (copy,) = copies(store)
    begun = os.stat(copy).st_ino
    del loader
    again = training(store)
    later, found = epoch(again)
    assert found.reordered  # of a later run
    assert [os.stat(each).st_ino for each in copies(store)] == [begun]
    for batches in (first, later):
        assert_same(batches, expected)
    assert found.rows == plain.rows
    ours, other = (each.useful_bytes / each.read_bytes for each in (epoch(again)[1], plain))
    assert ours > 1.3 * other
    assert gz.verify(store).ok


def test_loaders_made_anew_in_each_epoch_have_one_copy(store):
    data = gz.open(store, memory=budget_beside(ROOM)).data()
    seeds, made = data.train_mask.nonzero().view(-1), set()
    for number in range(3):
        torch.manual_seed(number)
        loader = gz.loader.NeighborLoader(
            data, input_nodes=seeds[torch.randperm(len(seeds))], shuffle=True, **SAMPLED
        )
        made.add(residence_of(loader))
        assert epoch(loader)[1].reordered
        assert len(copies(store)) == 1
    assert len(made - {None}) == 1


def test_a_loop_keeps_its_last_batch_while_rows_are_copied(store, neighbours_are_read, monkeypatch):
    """Its first epoch is counted."""
    rooms, idle, copy_used = [], [], keeper.copy_used

    def seen(*arguments):
        rooms.append(arguments[-2])
        idle.append(_core.free_idle_blocks())
        return copy_used(*arguments)

    monkeypatch.setattr(keeper, "copy_used", seen)
    loader = training(store)
    (*_, last) = loader
    assert epoch(loader)[1].reordered
    used = keeper.keeper_of(loader.graph_sampler.graph.contents)
    tensors = [each for each in last.to_dict().values() if isinstance(each, torch.Tensor)]
    held = 2 * 2 * loader.data.num_nodes + sum(each.nbytes for each in tensors)
    held += sum(file.least_bytes for file in used.current.needs.of(Kind.BOUNDS))
    assert rooms[0] <= used.memory - used._baseline - READER_BYTES - held
    assert idle == [0]


def test_rows_that_all_stay_are_read_once(store):
    data = gz.open(store, memory=budget_beside(ROOM)).data()
    loader = gz.loader.NeighborLoader(data, [-1], torch.arange(0, 60_000, 120), batch_size=128)
    expected, first = epoch(loader)
    assert first.reads > 0
    found, stats = epoch(loader)
    assert stats.reads == 0
    assert_same(found, expected)


@pytest.fixture
def several(tmp_path):
    """Two types of which rows are wide, and one that has none; no file fits."""
    generator, data = torch.Generator().manual_seed(0), HeteroData()
    data["a"].x = torch.randn(40_000, 200, generator=generator)
    data["b"].x = torch.randn(30_000, 100, generator=generator)
    data["b"].z = torch.randn(30_000, 90, generator=generator)
    data["c"].num_nodes = 10
    data["a", "to", "b"].edge_index = random_edges(40_000, 30_000, 300_000, 1)
    data["b", "to", "a"].edge_index = random_edges(30_000, 40_000, 300_000, 2)
    data["b", "in", "c"].edge_index = random_edges(30_000, 10, 300, 3)
    gz.convert(data, tmp_path / "several", progress=False)
    return tmp_path / "several"


@pytest.mark.parametrize("read", [False, True])
def test_rows_and_neighbours_of_several_types(several, read, monkeypatch):
    if read:
        monkeypatch.setattr(costs, "HELD_SHARE", 0.0)
        monkeypatch.setattr(costs, "HELD_RANKED", 0.0)
        monkeypatch.setattr(keeper, "making_bytes", lambda graph, lists: 1 << 40)

    def loader_of(**options):
        data = gz.open(several, memory=budget_beside(55 * MB), **options).data()
        return gz.loader.NeighborLoader(
            data, [5, 5], ("b", torch.arange(0, 9000, 3)), batch_size=100, edge_ids=False
        )

    expected, loader = epoch(loader_of(row_cache=False))[0], loader_of()
    for epochs in range(2):
        assert_same(epoch(loader)[0], expected)
        assert loader.stats().reordered == (epochs > 0 or not read)
    copied = {"node-a/x.gd", "node-b/x.gd", "node-b/z.gd"}
    topologies = {t.topology for t in loader.graph_sampler.graph.contents.schema.edge_types[:2]}
    files = residence_of(loader).copy.files
    assert files.keys() == copied | topologies
    assert gz.verify(several).ok


def test_off_and_found(store):
    with pytest.raises(ValueError, match="row_cache"):
        gz.open(store, row_cache="sometimes")
    goes_on(training(store, row_cache="found"), is_copied=False)
    assert not (store / "orders").exists()
    goes_on(training(store))
    assert epoch(training(store, row_cache="found"))[1].reordered
    loader = training(store, row_cache=False)
    assert not epoch(loader)[1].reordered  # though there is a copy


@pytest.mark.parametrize("limit", ["auto", 2_000_000])
def test_a_limit_takes_the_hottest_rows(store, limit):
    loader = training(store, row_cache=limit)
    goes_on(loader)
    copy = residence_of(loader).copy
    rows = copy.files[X].column.shape[0]
    assert sum(count for _, count in copy.files[X].uses) == rows
    assert limit == "auto" or rows == limit // 1024


@pytest.mark.parametrize("name", ["LEAST_SECONDS", "WORTH"])
def test_nothing_where_it_is_not_worth_it(store, monkeypatch, info, name):
    with monkeypatch.context() as patch:
        patch.setattr(making, name, 1e6)
        loader = training(store)
        goes_on(loader, is_copied=False)
    assert not (store / "orders").exists()
    assert info.text.count("not copied in the order of their use: an epoch reads for") == 1
    assert not epoch(loader)[1].reordered  # it was tried


def test_a_short_epoch_does_not_speak_for_a_long_one(store, monkeypatch):
    data = gz.open(store, memory=budget_beside(ROOM)).data()
    seeds = data.train_mask.nonzero().view(-1)
    short, long = (
        gz.loader.NeighborLoader(data, input_nodes=nodes, shuffle=True, num_workers=1, **SAMPLED)
        for nodes in (seeds[:500], seeds)
    )
    with monkeypatch.context() as patch:
        patch.setattr(making, "LEAST_SECONDS", 1e6)
        epoch(short)
    assert not (store / "orders").exists()
    goes_on(long)


# Neighbours are read ##############################################################################


def test_the_first_epoch_is_counted_where_neighbours_are_read(
    store, neighbours_are_read, same_room
):
    loader = training(store)
    expected = [epoch(loader, seed)[0] for seed in range(2)]
    assert residence_of(loader).copy.files.keys() == {X, TOPOLOGY}
    assert loader.stats().topology_rows > 0
    del loader
    loader = training(store)  # of another run, which finds it
    for seed in range(2):
        found, stats = epoch(loader, seed)
        assert_same(found, expected[seed])
        assert stats.reordered
        assert stats.topology_rows > 0
    assert len(copies(store)) == 1
    del loader
    plain = training(store, row_cache=False)
    for seed in range(2):
        found, without = epoch(plain, seed)
        assert_same(found, expected[seed])
    assert stats.read_bytes < 0.9 * without.read_bytes


def test_epochs_that_are_broken_off_are_counted_until_they_are_one(store, neighbours_are_read):
    loader = training(store)
    other = gz.loader.NeighborLoader(loader.data, input_nodes=torch.arange(600), **SAMPLED)
    few, batches = len(loader) // 3, []
    for number in (few, few, few, len(loader) - 3 * few):
        assert not copies(store)
        for batch in islice(loader, number):
            batches.append(batch.n_id)
        assert not loader.stats().reordered
        list(other)  # says nothing of the loader
    assert epoch(loader)[1].reordered
    used = torch.cat(batches).unique()
    rows = residence_of(loader).copy.files[X].order.ranks(used.numpy())
    assert sorted(rows.tolist()) == list(range(len(used)))  # these and no others were copied


def test_the_longer_loader_is_the_one_that_is_counted(store, neighbours_are_read):
    loader = training(store)
    short = gz.loader.NeighborLoader(loader.data, input_nodes=torch.arange(600), **SAMPLED)
    next(iter(short))
    goes_on(loader)


def test_neighbours_that_take_much_of_the_memory_are_copied_too(wide):
    """All are held while they are counted; then they make room for rows."""

    def loader_of(**options):
        data = gz.open(wide, memory=budget_beside(97 * MB), **options).data()
        return gz.loader.NeighborLoader(data, [8], torch.arange(0, 30_000, 10), batch_size=64)

    plain = loader_of(row_cache=False)
    (expected, _), held = epoch(plain), residence_of(plain).plan
    assert TOPOLOGY in held.held
    del plain
    loader = loader_of()
    assert_same(epoch(loader)[0], expected)
    files = residence_of(loader)
    assert files.copy.files.keys() == {X, TOPOLOGY}
    assert files.plan.hot[X] > 1.5 * held.hot[X]
    assert files.plan.hot[TOPOLOGY] < 15 * MB
    remove_copies(wide)


# No room ##########################################################################################


@pytest.mark.parametrize("num_bytes", [10_000, 1_000_000, 10_000_000])
def test_a_disk_that_is_full_meanwhile(store, info, num_bytes):
    loader = training(store)
    with largest_file(num_bytes):
        goes_on(loader, is_copied=False)
    assert info.text.count("not copied in the order of their use: ") == 1
    assert "File too large" in info.text
    assert list(store.glob("orders/*")) == []


@pytest.mark.parametrize(("name", "value", "why"), [
    ("room_on_disk", lambda folder, limit: 0, "the disk is full"),
    ("is_writable", lambda folder: False, "found nowhere to write"),
])  # fmt: skip
def test_no_room_on_disk(store, monkeypatch, info, name, value, why):
    monkeypatch.setattr(making, name, value)
    goes_on(training(store), is_copied=False)
    assert info.text.count(f"rows are not copied in the order of their use: {why}") == 1
    assert list(store.glob("orders/*")) == []


def test_a_file_in_place_of_the_folder(store):
    (store / "orders").write_text("a file of another program")
    goes_on(training(store))  # to the user's cache
    assert graphzero("clean", store).output.startswith(f"{store}: 1 removed")
    assert (store / "orders").read_text() == "a file of another program"


@pytest.mark.parametrize("read", [False, True])
def test_no_memory_to_make_it_in(store, same_room, caplog, read, request):
    if read:
        request.getfixturevalue("neighbours_are_read")

    def loader_in(memory):
        data = gz.open(store, memory=memory).data()
        return gz.loader.NeighborLoader(data, [3], torch.arange(512), batch_size=4)

    goes_on(loader_in(budget_beside(READER_BYTES + MB)), is_copied=False)
    (least,) = re.findall(r"order of their use: that takes memory=(\d+)MB or more", caplog.text)
    goes_on(loader_in((int(least) - 1) * MB), is_copied=False)
    goes_on(loader_in((int(least) + 3) * MB))  # what it takes depends a little on the budget


def test_a_copy_whose_tables_leave_no_room_for_a_batch(store, monkeypatch, caplog):
    goes_on(training(store))
    monkeypatch.setattr(
        keeper, "least_memory", lambda needs, _: bool(needs.of(Kind.TABLE)) * 10**12
    )
    goes_on(training(store), is_copied=False)
    assert len(re.findall(r"order of their use: that takes memory=\d+MB", caplog.text)) == 1
    assert len(copies(store)) == 1


# Other processes, and interrupts ##################################################################


@pytest.mark.parametrize("is_killed", [False, True])
def test_another_process_makes_it(store, is_killed):
    expected, _ = epoch(training(store))
    (copy,) = copies(store)
    aside = copy.rename(store / "aside")
    held, waiting = make_scratch(copy, "partial"), training(store)
    for _ in range(2):
        found, stats = epoch(waiting)
        assert_same(found, expected)
        assert not stats.reordered
    assert partials(store)
    if is_killed:
        del held  # the lock ends with the process that has it
    else:
        aside.rename(copy)
    found, stats = epoch(waiting)
    assert_same(found, expected)
    assert stats.reordered
    assert bool(partials(store)) != is_killed


# One may strike in a finalizer, from which it cannot be caught.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("moment", [0, 300, 1500, 3000, 4500, 6000, 6500, 6800, 7000, 7200])
@needs_linux("its steps are counted there")
def test_an_interrupt_while_an_epoch_begins(store, moment):
    """Among 7,300 moments, at most of which batches are counted, or rows are copied."""
    seeds = torch.arange(0, 60_000, 60)
    expected, _ = epoch(training(store, seeds, row_cache=False))
    loader, at = training(store, seeds), At(moment, "residence_for")
    with suppress(Struck), at:
        iter(loader)
    assert at.left < 0
    found, stats = epoch(loader)
    assert_same(found, expected)
    assert stats.reordered
    assert not partials(store)
    assert len(copies(store)) == 1
