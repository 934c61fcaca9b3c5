"""How budgets are divided: arithmetic alone."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pyg_graphzero as gz
from pyg_graphzero.memory.needs import BatchSize, Kind, Need, Needs
from pyg_graphzero.memory.plan import all_used_stay, divide, least_memory, neighbours_are_held
from pyg_graphzero.util.disk import READER_BYTES

MB = 10**6


@st.composite
def uses_of(draw, num_rows):
    """Uses of some of the rows, the most used ones first; or None."""
    if draw(st.booleans()):
        return None
    counts = draw(st.lists(st.integers(0, num_rows // 4), max_size=4))
    each = sorted(draw(st.lists(st.floats(0.1, 1e4), min_size=4, max_size=4)), reverse=True)
    return tuple((uses, count) for uses, count in zip(each, counts, strict=False) if count) or None


@st.composite
def a_need(draw, name="x", kinds=tuple(Kind)):
    kind, num_rows = draw(st.sampled_from(kinds)), draw(st.integers(0, 10**8))
    row_bytes = 4 if kind is Kind.NEIGHBOURS else draw(st.integers(1, 4096))
    uses = draw(uses_of(num_rows)) if kind in (Kind.ROWS, Kind.NEIGHBOURS) else None
    return Need(name, num_rows, row_bytes, kind, uses=uses)


@st.composite
def some_needs(draw, kinds=tuple(Kind)):
    files = tuple(draw(a_need(f"f{i}", kinds)) for i in range(draw(st.integers(1, 6))))
    sampled = draw(st.integers(1, 10**8))
    whole, reading = (sampled * draw(st.integers(2, 9)) for _ in range(2))
    nodes, sources = draw(st.integers(1, sampled)), draw(st.integers(0, reading))
    edges = draw(st.integers(0, whole // 24))
    batch = BatchSize(sampled, whole, nodes, reading, sources, edges)
    needs = Needs(files, batch, is_summed=draw(st.booleans()))
    return needs, draw(st.integers(0, 10**9))


def read_at_once(needs, plan):
    """Bytes that are read together for a batch at any price, with its own sample."""
    read = [f for f in needs.files if f.kind in (Kind.ROWS, Kind.NEIGHBOURS) or f.name in plan.hot]
    others = READER_BYTES + 2 * needs.batch.whole + needs.batch.reading
    return least_memory(replace(needs, files=tuple(read)), 0) - others


def test_a_plan_is_printed_as_a_table():
    need = Need("x", 1000, 4096, Kind.ROWS)
    plan = divide(50 * MB, 10 * MB, Needs((need,), BatchSize(MB, 2 * MB, 100, MB)))
    title, *lines = str(plan).splitlines()
    assert title == "memory: 47.7 MiB"
    assert "  files in memory whole  " in str(plan)
    assert len({len(line) for line in lines}) == 1
    assert len(lines) == len(plan.parts) + 1 == plan._repr_html_().count("<tr>") - 1


EDGES = Need("edges", 1, 65, Kind.EDGES), Need("x", 24_577, 4096, Kind.ROWS, uses=((9.0, 1),))
EDGES_OF_NO_BYTES = Need("edges", 0, 1, Kind.EDGES), Need("x", 20_357, 4096, Kind.ROWS)


@settings(max_examples=300)
@example((Needs(EDGES, BatchSize(30, 270, 10, 270)), 7), 451, 3)
@example((Needs(EDGES_OF_NO_BYTES, BatchSize(8 * MB, 16 * MB, 4058)), 0), 6736, 1)
@given(some_needs(), st.integers(0, 10**12) | st.integers(0, 10**9), st.integers(1, 8))
def test_a_plan_is_within_its_budget(need, extra, processes):
    needs, baseline = need
    needs = replace(needs, files=tuple(replace(f, processes=processes) for f in needs.files))
    batch, least = needs.batch, least_memory(needs, baseline)
    plan = divide(least + extra, baseline, needs)
    assert plan.total <= plan.memory
    assert plan.window >= needs.is_summed
    assert plan.ready >= 2  # one that is made while a loop has its last one
    assert plan.batches >= 2 * batch.whole
    assert sorted([*plan.held, *plan.hot]) == sorted(file.name for file in needs.files)
    assert plan.windows >= 0
    if not plan.is_whole:
        unranked = [f for f in needs.files if f.uses is None and f.kind is not Kind.NEIGHBOURS]
        frames = sum(plan.hot.get(file.name, 0) for file in unranked)
        assert plan.windows + plan.plans + plan.sampled + frames >= read_at_once(needs, plan)
        assert plan.topology_windows >= batch.reading * (not neighbours_are_held(plan, needs))
    # Pages of held files are in memory once for all processes.
    own = plan.total - sum(plan.held.values())
    held = sum(file.num_bytes for file in needs.files if file.name in plan.held)
    assert processes * own + held <= processes * plan.memory
    for file in needs.files:
        if file.kind in (Kind.BOUNDS, Kind.TABLE):
            assert file.name in plan.held
        most = file.num_bytes if file.uses is None else file.used_bytes
        assert plan.hot.get(file.name, 0) <= most


def test_batches_whose_neighbours_are_in_memory_wait_in_less():
    """More of them are read together: keys are for those that are not in memory."""
    lists = Need("lists", 10**8, 4, Kind.NEIGHBOURS, uses=((9.0, 10**7), (1.0, 9 * 10**7)))
    rows = Need("x", 10**6, 512, Kind.ROWS, uses=((1.0, 10**6),))
    together = [
        divide(400 * MB, 0, Needs((lists, rows), BatchSize(MB, MB, 1000, 2 * MB, sources)))
        for sources in (0, MB)
    ]
    assert together[1].topology_window > together[0].topology_window > 1
    assert together[1].topology_windows <= together[0].topology_windows


@given(some_needs())
def test_less_than_the_least_is_an_error_that_names_it(need):
    needs, baseline = need
    batch, least = needs.batch, least_memory(needs, baseline)
    everything = sum(file.num_bytes for file in needs.files)
    if baseline + everything + 2 * batch.whole + batch.sampled < least:
        return  # all of it fits into less than what reading takes
    with pytest.raises(gz.MemoryBudgetError, match=f"expected {ceil(least / 1e6):,} MB or more"):
        divide(least - 1, baseline, needs)


@given(some_needs())
def test_everything_is_held_where_it_fits(need):
    needs, baseline = need
    everything = sum(file.num_bytes for file in needs.files)
    plan = divide(baseline + everything + 4 * needs.batch.whole, baseline, needs)
    assert plan.is_whole
    assert set(plan.held) == {file.name for file in needs.files}


def uses_a_byte(plan, needs):
    """Uses a byte of each file's last rows that are resident, and of the first that are not."""
    inside, outside = [], []
    for file in needs.files:
        left = plan.hot.get(file.name)
        for uses, count in (file.uses or ()) if left is not None else ():
            part = min(left, count * file.row_bytes)
            left -= part
            inside += [uses / file.row_bytes] * (part > 0)
            outside += [uses / file.row_bytes] * (part < count * file.row_bytes)
    return inside, outside


@settings(max_examples=300)
@given(some_needs((Kind.ROWS, Kind.NEIGHBOURS)), st.integers(0, 10**10))
def test_rows_and_neighbours_are_resident_by_their_uses_a_byte(need, extra):
    needs, baseline = need
    plan = divide(least_memory(needs, baseline) + extra, baseline, needs)
    inside, outside = uses_a_byte(plan, needs)
    stay = [plan.hot.get(file.name) for file in needs.of(Kind.ROWS) if file.uses]
    if any(stay) or not stay:  # else windows are worth more
        assert not inside or not outside or min(inside) >= max(outside)


@settings(max_examples=300)
@given(some_needs(), st.integers(0, 10**10), st.integers(0, 10**9))
def test_more_memory_leaves_no_fewer_ranked_rows_resident(need, extra, more):
    needs, baseline = need
    least = least_memory(needs, baseline)
    less, plan = (divide(least + each, baseline, needs) for each in (extra, extra + more))
    kinds = [(p.held.keys(), p.ready, p.topology_window, p.window > 0) for p in (less, plan)]
    if kinds[0] == kinds[1]:  # else a batch more may be ready
        for file in needs.files:
            if file.uses is not None and file.name in plan.hot:
                is_for_windows = plan.hot[file.name] == 0 and plan.windows > less.windows
                assert plan.hot[file.name] >= less.hot[file.name] or is_for_windows


@given(
    st.lists(st.tuples(st.floats(0.1, 99), st.integers(1, 1000)), min_size=1, max_size=4),
    st.lists(st.tuples(st.floats(0.1, 99), st.integers(1, 10**5)), max_size=4),
    st.integers(2, 50),
)
@example([(9.0, 1000)] * 4, [(5.0, 10**5)], 24)
def test_all_that_is_used_stays_where_it_fits(rows, groups, times):
    """Also where neighbours must be read for that, which all would fit."""
    files = [Need("x", 10**7, 1024, Kind.ROWS, uses=tuple(rows))]
    size = max(1, times * sum(count for _, count in groups))
    files.append(Need("topology", size, 4, Kind.NEIGHBOURS, uses=tuple(groups) or None))
    needs = Needs(tuple(files), BatchSize(MB // 10, MB, 1000, MB // 5))
    used = sum(file.used_bytes for file in files)
    held = 0 if groups else 2 * 4 * size
    plan = divide(least_memory(needs, 0) + int(1.5 * used) + held + 5 * MB, 0, needs)
    assert all_used_stay(plan, needs)


@given(st.integers(1, 10**9), st.integers(1, 8))
def test_a_table_of_ones_own_stands_for_a_file_that_takes_more(packed, processes):
    bounds = Need("bounds", 10**7, 8, Kind.BOUNDS, processes, packed_bytes=packed)
    needs = Needs((bounds, Need("x", 10**7, 512, Kind.ROWS)), BatchSize(10**6, 10**7))
    mapped = -(-8 * 10**7 // processes)
    assert divide(10**9, 0, needs).held["bounds"] == min(packed, mapped)
    assert divide(10**11, 0, needs).held["bounds"] == mapped  # all is held: no table


def test_a_topology_is_held_by_processes_that_could_not_each_have_their_own():
    files = (
        Need("indptr", 1000, 8, Kind.BOUNDS, 4),
        Need("topology", 25 * MB, 4, Kind.NEIGHBOURS, 4),
        Need("x", MB, 512, Kind.ROWS, 4),
    )
    needs, memory = Needs(files, BatchSize(MB // 10, MB)), READER_BYTES + 70 * MB
    assert neighbours_are_held(divide(memory, MB, needs), needs)
    alone = replace(needs, files=tuple(replace(file, processes=1) for file in files))
    assert not neighbours_are_held(divide(memory, MB, alone), alone)


def test_a_short_epoch_has_two_windows():
    needs = Needs((Need("x", 10**7, 512, Kind.ROWS),), BatchSize(10**4, 10**5, 100))
    plan = divide(10**9, 0, needs)
    assert plan.window > 20
    assert [plan.window_of(epoch) for epoch in (1, 10, 5000)] == [1, 5, plan.window]


FEW, ALIKE, MANY = ((20, 10**5), (1, 10**6)), ((3, 10**6),), ((5.5, 250_000), (1.9, 1_430_000))


@pytest.mark.parametrize("are_read", [0, 1])
@pytest.mark.parametrize(
    ("uses", "epoch", "memory", "stays"),
    [
        (FEW, 1000, 300, True),
        (ALIKE, 8, 300, False),
        (MANY, 157, 250, False),
        (MANY, 157, 600, True),
    ],
)
def test_rows_stay_where_they_spare_more_than_longer_windows(uses, epoch, memory, stays, are_read):
    """Few rows that are used much, or a good part of the file, which windows then do not read."""
    x = Need("x", 2 * 10**6, 512, Kind.ROWS, uses=uses)
    lists = Need("lists", 10**9, 4, Kind.NEIGHBOURS, uses=((1.0, 10**7),))
    needs = Needs((x, lists)[: 1 + are_read], BatchSize(MB // 10, 10 * MB, 15_000), epoch)
    assert (divide(memory * MB, 0, needs).hot["x"] > 0) == stays


def test_windows_have_room_for_rows_that_no_counted_batch_had():
    """All that are known stay; as many uses as were counted once are of others."""
    x = Need("x", 10**7, 512, Kind.ROWS)
    known = [replace(x, uses=((each, 5 * 10**5),)) for each in (1.5, 50.0)]
    batch = BatchSize(MB // 10, MB, 15_000)
    plans = [divide(500 * MB, 0, Needs((file,), batch)) for file in known]
    assert plans[0].hot == plans[1].hot == {"x": 256 * MB}
    assert plans[0].window < plans[1].window
    assert plans[0].windows > 2 * plans[1].windows


def test_edges_are_read_by_windows_unless_they_take_little_or_all_else_stays():
    x = Need("x", 2 * 10**6, 512, Kind.ROWS, uses=((20.0, 10**5), (1.0, 10**6)))
    ids = Need("edge_id", 10**8, 4, Kind.EDGES)
    batch = BatchSize(MB // 10, MB, 2000, edges=2000)
    plan, without = (divide(300 * MB, 0, Needs(files, batch, 1000)) for files in ((x, ids), (x,)))
    assert plan.hot == {"edge_id": 0, "x": without.hot["x"]}
    assert plan.windows > 0.8 * without.windows
    most = divide(1200 * MB, 0, Needs((x, ids), batch, 1000))
    assert (most.held["edge_id"], most.hot["x"]) == (ids.num_bytes, x.used_bytes)
    packed = replace(ids, packed_bytes=ids.num_bytes // 16)  # by a dictionary
    assert divide(300 * MB, 0, Needs((x, packed), batch, 1000)).held == {"edge_id": 25 * MB}
