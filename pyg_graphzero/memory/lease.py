"""``Lease``: the share of a store's budget that each of the epochs under way may use.

One epoch has all that the budget leaves for windows and batches ahead. When a second one begins,
the first forgets rows that it has read and not gathered, and from then on each has half. An epoch
that is further ahead than its half asks for no more batches until enough of them are consumed.
Epochs do not wait for each other: one may have little for a while, but always enough for one batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakSet

from pyg_graphzero import _core
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.plan import MemoryPlan

# An epoch that is alone leaves 1 / _SPARE of a window to one that may begin.
_SPARE = 4


@dataclass(eq=False)
class Lease:
    """The share of one epoch. Give it back when the epoch is over.

    Attributes:
        leases: All of the store.
        threads: Least number of the engine's threads.
        ready: Batches that may be finished and wait.
        ready_bytes: Bytes of these batches and of the one that the consumer has.
        size: Size of the epoch's batches, in batches that the plan is made for; 1 at least.
        pending: Number of batches that the epoch has asked for and not delivered.
        engine: Makes them.
    """

    leases: Leases
    threads: int
    ready: int
    ready_bytes: int
    size: float
    pending: int = 0
    engine: _core.Epoch | None = None

    @property
    def ahead(self) -> int:
        """Batches that it may have asked for now, those that are ready included."""
        return self.leases.ahead(self)

    @property
    def sampled(self) -> int:
        """Batches that wait, sampled or about to be, for windows of theirs."""
        return max(0, self.pending - self.ready)

    def give_back(self) -> None:
        """Leaves its share to the others; a second time does nothing."""
        self.leases.under_way.discard(self)
        self.leases.divide()


class Leases:
    """The leases of one store's epochs.

    Args:
        plan: The memory plan of the store, by which not all is in memory.

    Attributes:
        under_way: The leases.
        windows: Room into which rows are read.
    """

    def __init__(self, plan: MemoryPlan) -> None:
        self._plan = plan
        # Weakly: an epoch that failed to begin, or was dropped, does not give its lease back.
        self.under_way: WeakSet[Lease] = WeakSet()
        self.windows = _core.WindowRoom(max(1, plan.window), plan.windows)

    def __len__(self) -> int:
        return len(self.under_way)

    def begin(self, num_workers: int, size: float = 1.0) -> Lease:
        """A lease for an epoch that begins now; ``size`` is that of its batches, as in a lease."""
        plan, others = self._plan, list(self.under_way)
        share = max(1, round(plan.ready / (len(others) + 1) / size))
        room = int(share * plan.batches // plan.ready * size)
        lease = Lease(self, max(1, num_workers), max(1, share - 1), room, size)
        self.under_way.add(lease)
        self.divide()
        for other in others:
            if other.engine is not None:
                other.engine.give_up_windows()
        return lease

    def ahead(self, lease: Lease) -> int:
        """How far one may be ahead now."""
        self.divide()
        window, number = self._plan.window, len(self)
        total = costs.WINDOWS_AHEAD * window
        most = total // number if number > 1 else total - window // _SPARE
        others = (other for other in self.under_way if other is not lease)
        left = total - sum(other.sampled * other.size for other in others)
        return max(1, int(min(most, left) / lease.size)) + lease.ready

    def divide(self) -> None:
        """Has each epoch under way read into its part of the windows."""
        self.windows.divide_among(len(self))
