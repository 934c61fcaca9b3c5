"""How epochs that are under way share windows and samples."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from pyg_graphzero.memory import costs
from pyg_graphzero.memory.lease import Leases
from pyg_graphzero.memory.plan import MemoryPlan


class Consumer:
    """An epoch that asks for as many batches as it may, and takes some."""

    def __init__(self, leases):
        self.lease = leases.begin(1)
        self.gave_up = 0
        self.lease.engine = SimpleNamespace(give_up_windows=self.give_up)

    def give_up(self):
        self.gave_up += 1

    def step(self, taken):
        self.lease.pending = max(self.lease.pending - taken, 0)
        while self.lease.pending < self.lease.ahead:
            self.lease.pending += 1


@settings(max_examples=200)
@given(
    window=st.integers(4, costs.MAX_WINDOW),
    ready=st.integers(2, 4),
    steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=60),
)
def test_epochs_never_have_more_samples_than_there_is_room_for(window, ready, steps):
    plan = MemoryPlan(10**9, 0, {}, {"x": 1}, 10**6, window, ready=ready, batches=ready * 1000)
    leases, under_way = Leases(plan), []
    for step, number in steps:
        if step == 0 and len(under_way) < 2:
            begun = Consumer(leases)
            assert all(each.gave_up for each in under_way)
            under_way.append(begun)
            begun.step(0)
        elif step == 1 and under_way:
            under_way.pop(number % len(under_way)).lease.give_back()
        elif under_way:
            under_way[number % len(under_way)].step(number)
        assert len(leases) == len(under_way)
        assert sum(each.lease.sampled for each in under_way) <= costs.WINDOWS_AHEAD * window
        assert all(each.lease.ahead > each.lease.ready for each in under_way)
        assert leases.windows.max_batches == window // max(1, len(under_way))
    for each in under_way:
        each.lease.give_back()
        each.lease.give_back()
    assert len(leases) == 0
