"""How the rows of a budget are shared: between what stays and windows, and between epochs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from budgets import budget_beside
from hypothesis import given, settings
from hypothesis import strategies as st

import pyg_graphzero as gz
from pyg_graphzero.bench.synthetic import power_law
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.files import bytes_of_batches, files_of
from pyg_graphzero.memory.pager import pager_of
from pyg_graphzero.memory.plan import (
    DEFAULT_SPLIT,
    MemoryPlan,
)
from pyg_graphzero.memory.planner import (
    DOWN,
    UP,
    choose_plan,
    seconds_per_batch,
)
from pyg_graphzero.memory.profile import profile
from pyg_graphzero.memory.quota import EpochQuotas
from pyg_graphzero.memory.simulate import Case, simulate
from pyg_graphzero.util.disk import DiskSpeed

DISK = DiskSpeed("a disk", 75_000, 1.2e9, 128, True, 1 << 30)
X = "node/x.gd"


@pytest.fixture(scope="module")
def loader(tmp_path_factory):
    path = tmp_path_factory.mktemp("shares") / "store"
    gz.convert(power_law(60_000, 600_000, 320), path)
    data = gz.open(path).data()
    return gz.loader.NeighborLoader(
        data, [8, 4], input_nodes=data.train_mask, batch_size=64, edge_ids=False
    )


def case_of(loader, most):
    contents = loader.graph_sampler.graph.contents
    found = profile(loader, seconds=60, keep=most, keep_seconds=60, keep_bytes=1 << 30)
    batch = found.accesses.batch_size(*bytes_of_batches(loader))
    files = files_of(loader)
    return Case(contents, loader.graph_sampler.graph, found, batch, 0, DISK), files


@pytest.mark.parametrize("room", [44, 50, 60])
def test_no_other_share_next_to_the_chosen_one_is_faster(loader, room, monkeypatch):
    monkeypatch.setattr("pyg_graphzero.memory.planner.SECONDS", 1000.0)
    case, files = case_of(loader, costs.MAX_WINDOW)
    memory = room * 1_000_000
    chosen = choose_plan(case, memory, files)
    assert not chosen.is_whole
    assert chosen.total <= memory
    default = case.divide(memory, files)
    seconds = seconds_per_batch(case, simulate(case, chosen, files))
    assert seconds <= seconds_per_batch(case, simulate(case, default, files)) * 1.001
    # The same batches, the same choice.
    assert choose_plan(case, memory, files) == chosen
    assert chosen.window <= case.profile.epoch


def for_rows(plan):
    """What rows have beside that part of windows which they share."""
    return plan.hot[X] - plan.cached


def test_rows_that_are_used_all_stay_where_they_can(loader, monkeypatch):
    case, files = case_of(loader, costs.MAX_WINDOW)
    memory, simulated = 60_000_000, []
    monkeypatch.setattr(
        "pyg_graphzero.memory.planner.simulate",
        lambda *args: simulated.append(args) or simulate(*args),
    )
    ranked = [replace(f, is_ranked=f.name == X) for f in files]
    default = case.divide(memory, ranked)
    row_bytes = next(f.row_bytes for f in files if f.name == X)
    for share, stays in ((0.1, True), (0.8, True), (0.95, False)):
        used = int(share / DEFAULT_SPLIT.hot * default.hot[X] / row_bytes)
        known = [replace(f, used_rows=used) if f.name == X else f for f in ranked]
        chosen = choose_plan(case, memory, known)
        assert bool(simulated) is not stays
        assert not stays or chosen.hot[X] >= max(default.hot[X], 0.999 * used * row_bytes)
        assert chosen.total <= memory


@pytest.mark.parametrize(("sign", "share"), [(-1, UP[-1]), (1, DOWN[-1])])
def test_the_share_goes_where_it_gets_better(loader, monkeypatch, sign, share):
    monkeypatch.setattr("pyg_graphzero.memory.planner.SECONDS", 1000.0)
    tried = []

    def seconds(case, found):
        tried.append(for_rows(found.plan))
        return 1e9 + sign * tried[-1] * 100

    monkeypatch.setattr("pyg_graphzero.memory.planner.seconds_per_batch", seconds)
    case, files = case_of(loader, costs.MAX_WINDOW)
    chosen = choose_plan(case, 60_000_000, files)
    assert for_rows(chosen) == (max(tried) if sign < 0 else min(tried))
    by = for_rows(chosen) / for_rows(case.divide(60_000_000, files))
    assert by == pytest.approx(share / DEFAULT_SPLIT.hot, rel=0.01)


def test_too_few_batches_to_judge_by(loader):
    case, files = case_of(loader, 2)
    memory = 60_000_000
    assert len(case.profile.batches) == 2
    assert choose_plan(case, memory, files) == case.divide(memory, files)
    assert DEFAULT_SPLIT.hot not in (*UP, *DOWN)


def test_a_short_epoch_has_no_long_windows(loader):
    few = gz.loader.NeighborLoader(
        loader.data, [8, 4], input_nodes=torch.arange(640), batch_size=64, edge_ids=False
    )
    case, files = case_of(few, costs.MAX_WINDOW)
    assert case.profile.is_whole
    plan = choose_plan(case, 60_000_000, files)
    assert plan.window_of(case.profile.epoch) == 5
    assert plan.window > 20  # other epochs of the store may be longer


def test_a_disk_takes_time_for_each_read_and_for_each_byte():
    assert DISK.seconds(75_000, 75_000 * 4096) == pytest.approx(1.0)
    assert DISK.seconds(0, 1.2e9) == pytest.approx(1.0)
    assert DISK.seconds(1000, 10**8) > max(1000 / 75_000, 10**8 / 1.2e9)


class Consumer:
    """An epoch that asks for as many batches as it may, and takes some."""

    def __init__(self, quotas):
        self.quota = quotas.begin(1)
        self.gave_up = 0
        self.quota.engine = SimpleNamespace(give_up_windows=self.give_up)

    def give_up(self):
        self.gave_up += 1

    def step(self, taken):
        self.quota.pending = max(self.quota.pending - taken, 0)
        while self.quota.pending < self.quota.ahead:
            self.quota.pending += 1


@settings(max_examples=200)
@given(
    window=st.integers(4, costs.MAX_WINDOW),
    ready=st.integers(2, 4),
    steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=60),
)
def test_epochs_never_have_more_samples_than_there_is_room_for(window, ready, steps):
    batch = 1000
    plan = MemoryPlan(
        10**9, 0, {}, {"x": 1}, 10**6, window, ready=ready, batches=ready * batch
    )  # fmt: skip
    quotas = EpochQuotas(plan)
    under_way = []
    for what, number in steps:
        if what == 0 and len(under_way) < 2:
            begun = Consumer(quotas)
            assert all(each.gave_up for each in under_way)
            under_way.append(begun)
            begun.step(0)
        elif what == 1 and under_way:
            under_way.pop(number % len(under_way)).quota.give_back()
        elif under_way:
            under_way[number % len(under_way)].step(number)
        assert len(quotas) == len(under_way)
        assert sum(each.quota.sampled for each in under_way) <= costs.WINDOWS_AHEAD * window
        assert all(each.quota.ahead > each.quota.ready for each in under_way)
        assert quotas.windows.max_batches == window // max(1, len(under_way))
    for each in under_way:
        each.quota.give_back()
        each.quota.give_back()
    assert len(quotas) == 0


def test_windows_of_several_epochs_are_shorter(loader):
    path = loader.graph_sampler.graph.contents.path
    store = gz.open(path, memory=budget_beside(56_000_000))
    options = {"num_neighbors": [8, 4], "batch_size": 64, "edge_ids": False}
    data = store.data()
    one = gz.loader.NeighborLoader(data, input_nodes=data.train_mask, **options)
    first = iter(one)
    next(first)
    quotas = pager_of(store.contents).files.quotas
    alone = quotas.windows.max_batches
    second = iter(gz.loader.NeighborLoader(data, input_nodes=data.train_mask, **options))
    assert quotas.windows.max_batches == max(1, alone // 2)
    count = sum(1 for _ in second)
    assert count == len(one)
    assert quotas.windows.max_batches == alone
    assert sum(1 for _ in first) == len(one) - 1
    assert one.stats().rows >= one.stats().nodes
