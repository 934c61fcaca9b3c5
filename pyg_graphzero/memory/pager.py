"""Keeps a store's loaders within a budget of memory: decides what stays there.

A store has one pager, which its loaders share. It decides when the first of them begins an epoch:
only then is it known how large batches are; and again when a thread has found out what is better
for them (:mod:`.tuning`). It decides anew when one begins whose epoch is clearly longer or whose
batches are larger, unless an epoch is under way.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Mapping, Sequence
from math import ceil

from pyg_graphzero.errors import MemoryBudgetError
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.dictionaries import Dictionaries
from pyg_graphzero.memory.files import bytes_of_batches, files_of
from pyg_graphzero.memory.hot_rows import groups_kept
from pyg_graphzero.memory.own_order import OrderKeeper
from pyg_graphzero.memory.packed import PackedTopologies
from pyg_graphzero.memory.paged import PagedFiles
from pyg_graphzero.memory.plan import (
    BatchSize,
    FileSize,
    MemoryPlan,
    divide,
    is_ample,
    neighbours_are_held,
)
from pyg_graphzero.memory.planner import choose_plan
from pyg_graphzero.memory.prefetch import prefetch_bounds, prefetch_files
from pyg_graphzero.memory.profile import larger, profile
from pyg_graphzero.memory.simulate import Case
from pyg_graphzero.memory.source import BatchSource
from pyg_graphzero.memory.tuning import Task, Tuned, Tuning
from pyg_graphzero.sampling.base import Reading
from pyg_graphzero.sampling.graph import Unmapped
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.disk import DiskSpeed, probe
from pyg_graphzero.util.system import private_rss, return_freed_memory

log = logging.getLogger("pyg_graphzero")

# Number of batches that is enough to tell how large they are.
_FEW_BATCHES = 4
# Until there is a plan: bytes of neighbours that are read for a few batches at once.
_TRIAL_BYTES = 64 << 20
# The plan is made anew for an epoch with this many times the batches of the one that it was made
# for. So loaders that alternate do not change it in turn, and few plans are ever made.
_LONGER = 2
# The plan is made anew for batches that are larger by this factor, too; batches that are larger by
# less are fewer at a time. A few samples are no more exact than that.
_LARGER = 1.25
# A budget that would be enough is searched in steps of 1 / _STEPS of the one that there is.
_STEPS = 32


class Pager:
    """Divides one budget among a store's files and loaders.

    Args:
        contents: The store's files.
        memory: The budget in bytes, for all memory of this process but what code other than the
            store's takes after the store was opened.
        is_given: A user has named the budget; else it is free memory, and a warning says so.

    Attributes:
        files: The store's files by the latest memory plan; None before the first.
        tuning: The thread that looks for a better plan, until its result is used; else None.
    """

    def __init__(self, contents: StoreContents, memory: int, is_given: bool) -> None:
        self._contents = weakref.ref(contents)
        self.memory = memory
        self.is_given = is_given
        self.files: PagedFiles | None = None
        self.orders = OrderKeeper()
        self.tuning: Tuning | None = None
        self._tuned: Tuned | None = None
        self.dictionaries = Dictionaries()
        self._process = os.getpid()
        # The latest plan was made from these: how the longest epoch samples, the largest batches.
        self._baseline = 0
        self._decider: weakref.ref[BatchSource] | None = None
        self._epoch = 0
        self._batch = BatchSize(0, 0)
        self._sizes: weakref.WeakKeyDictionary[BatchSource, BatchSize]
        self._sizes = weakref.WeakKeyDictionary()
        self.packed = PackedTopologies()

    @property
    def contents(self) -> StoreContents:
        """The store's files.

        The files keep the pager, which does not keep them: when a store's last user is gone, its
        rows leave memory at once, and do not wait for Python's collector.
        """
        contents = self._contents()
        assert contents is not None
        return contents

    @property
    def is_foreign(self) -> bool:
        """Whether this is a forked child's copy: its readers and rows are the parent's."""
        return os.getpid() != self._process

    @property
    def memory_plan(self) -> MemoryPlan | None:
        """The latest memory plan; None before the first."""
        return None if self.files is None else self.files.plan

    @property
    def is_better_known(self) -> bool:
        """Whether a better memory plan is ready, or another process has ended making a copy."""
        tuning = self.tuning
        is_tuned = tuning is not None and tuning.is_over and not tuning.is_needless
        return is_tuned or self.orders.is_settled

    def use(self, files: PagedFiles) -> None:
        """Has epochs go by another plan from now on, to compare it with the one that was chosen."""
        self.files = files

    def files_for(self, loader: BatchSource) -> PagedFiles:
        """The store's files for an epoch that begins; makes a new plan if there is to be one.

        Raises:
            MemoryBudgetError: The budget is too small for a batch of the loader.
        """
        if self.files is None:
            self._baseline = self._baseline or private_rss()
            return self.decide(loader, BatchSize(0, 0))
        is_better = self.is_better_known and not self.files.quotas
        if not is_better and not self._is_outgrown(loader, self.files):
            return self.files
        size = larger(self._batch, self._size_of(loader))
        decider = None if self._decider is None else self._decider()
        if decider is None or loader.epoch_length() > self._epoch:
            decider = loader
        self.files = None  # frees the rows of the last plan before the next one is made
        return self.decide(decider, size)

    def _is_outgrown(self, loader: BatchSource, now: PagedFiles) -> bool:
        """Whether the plan does not suit a loader that begins, and may be changed now."""
        files = files_of(loader)
        if is_ample(self.memory, files, self._baseline):
            return False
        is_whole = now.plan.is_whole
        is_outgrown = not is_whole and loader.epoch_length() >= _LONGER * max(1, self._epoch)
        if self._ratio(loader) > _LARGER:
            size = larger(self._batch, self._size_of(loader))
            # An error if they are too large for any plan, even while an epoch is under way.
            still_whole = divide(self.memory, files, self._baseline, size).is_whole
            is_outgrown = is_outgrown or not (is_whole and still_whole)
        return is_outgrown and not now.quotas

    def relative_size(self, loader: BatchSource) -> float:
        """How large its batches are, in batches that there is room for; 1 at least.

        Much more than 1 only where another loader's epoch keeps the pager from making a new plan.
        """
        return max(1.0, self._ratio(loader))

    def _ratio(self, loader: BatchSource) -> float:
        size = self._size_of(loader)
        pairs = ((size.sampled, self._batch.sampled), (size.whole, self._batch.whole))
        return max(found / max(1, expected) for found, expected in pairs)

    def _size_of(self, loader: BatchSource) -> BatchSize:
        if loader not in self._sizes:
            reading = None if self.files is None else self.files.reading(loader.graph_sampler)
            found = profile(loader, reading, most=_FEW_BATCHES, counts=False)
            self._sizes[loader] = found.accesses.batch_size(*bytes_of_batches(loader))
        return self._sizes[loader]

    def decide(self, loader: BatchSource, least: BatchSize) -> PagedFiles:
        """Makes a plan from how this loader samples, with room for ``least``, too."""
        contents, baseline, files = self.contents, self._baseline, files_of(loader)
        watch = None if self.tuning is None else self.tuning.watch
        if self.tuning is not None and watch is not None and not watch.is_of(loader):
            self.tuning.end()  # it was for another loader's batches
            self.tuning = None
        if self.tuning is not None and self.tuning.is_over:
            self._tuned, self.tuning = self.tuning.result, None
        if self.orders.settle():
            self._tuned = None  # there is a copy to be made after all
        merge_gap, order = 0, None
        held: Mapping[str, int]
        if is_ample(self.memory, files, baseline):
            plan = divide(self.memory, files, baseline, BatchSize(0, 0))
            prefetch_files(contents, plan.held)
        else:
            disk = probe(contents.path)
            merge_gap = disk.merge_gap
            graph = loader.graph_sampler.graph
            case = self._look_at(loader, files, disk, least)
            if not case.divide(self.memory, files).is_whole:
                files = self.dictionaries.sizes(contents, files)
            plan = case.divide(self.memory, files)
            if not loader.graph_sampler.may_read:
                _check_held(case, plan, files)
            self._prefetch(plan, files)
            held = {} if plan.is_whole else plan.held
            reading = _reading_of(loader, self.packed.hold(graph, files, held))
            order = self.orders.find(case, plan, files)
            files = files if order is None else order.files(files)
            self._batch = case.batch
            plan = self._tune(Task(loader, reading, case, self.memory, files, order))
            self._decider, self._epoch = weakref.ref(loader), loader.epoch_length()
            del case, reading
            return_freed_memory()
        held = {} if plan.is_whole else plan.held
        packed = self.packed.hold(loader.graph_sampler.graph, files, held)
        dictionaries = self.dictionaries.held(held)
        kept = groups_kept(files, plan)
        self.files = PagedFiles(contents, plan, kept, merge_gap, order, packed, dictionaries)
        if self.tuning is not None:
            self.files.watch = self.tuning.watch
        if not plan.is_whole:
            self.files.preload()
            self._say(plan, files)
        return self.files

    def _tune(self, task: Task) -> MemoryPlan:
        """The plan that tuning has found, or one for the time until it has."""
        found = self._tuned
        if found is not None and found.is_for(task.loader, task.case, task.files, task.order):
            self._batch = found.batch
            return found.plan
        if self.tuning is None:
            self.tuning = Tuning.begin(task, self.orders)
            if self.tuning is not None:
                weakref.finalize(self, self.tuning.end)  # at exit, too
        if self.tuning is not None:
            if task.leaves(self.tuning.num_bytes):
                return task.plan(self.tuning.num_bytes)
            self.tuning.end()
            self.tuning = None
        return choose_plan(task.case, task.memory, task.files)

    def _look_at(
        self, loader: BatchSource, files: Sequence[FileSize], disk: DiskSpeed, least: BatchSize
    ) -> Case:
        """A batch as a loader samples it; there is to be room for ``least``, too."""
        found = profile(
            loader,
            self._trial_reading(loader, files, disk.merge_gap),
            most=0,
            counts=False,
            keep=1,
            keeps_edges=any(file.kind == "edge" for file in files),
        )
        size = found.accesses.batch_size(*bytes_of_batches(loader))
        self._sizes[loader] = size
        graph = loader.graph_sampler.graph
        return Case(self.contents, graph, found, larger(least, size), self._baseline, disk)

    def _prefetch(self, plan: MemoryPlan, files: Sequence[FileSize]) -> None:
        """Reads files that are to be mapped into the page cache, without waiting for that."""
        packed = {file.name for file in files if file.is_packed and not plan.is_whole}
        prefetch_files(self.contents, [name for name in plan.held if name not in packed])

    def _trial_reading(
        self, loader: BatchSource, files: Sequence[FileSize], merge_gap: int
    ) -> Reading | None:
        """How a loader samples neighbours before it is decided which stay in memory."""
        graph = loader.graph_sampler.graph
        there = self.packed.there(graph)
        is_there = all(graph.on_disk(name) <= (name in there) for name in graph.edge_types)
        if is_there or not loader.graph_sampler.may_read:
            return _reading_of(loader, there)
        tables = [file.name for file in files if file.kind in ("indptr", "indices")]
        prefetch_bounds(self.contents).join()
        plan = MemoryPlan(
            self.memory, self._baseline, {}, dict.fromkeys(tables, 0),
            topology_window=costs.MAX_TOGETHER, topology_windows=_TRIAL_BYTES,
        )  # fmt: skip
        return PagedFiles(self.contents, plan, plan.hot, merge_gap).reading(loader.graph_sampler)

    def _say(self, plan: MemoryPlan, files: Sequence[FileSize]) -> None:
        """Logs the plan."""
        parts = [f"{plan.baseline / 1e6:,.0f} MB are taken already"]
        if plan.held:
            parts.append(f"{sum(plan.held.values()) / 1e6:,.0f} MB of small columns are held")
        for file in files:
            if file.name in plan.hot:
                parts.append(
                    f"{plan.hot[file.name] / 1e6:,.0f} of {file.num_bytes / 1e6:,.0f} MB of "
                    f"{file.name} stay in memory"
                )
        parts.append(
            f"windows of {plan.window} batches take {plan.windows / 1e6:,.0f} MB, "
            f"batches {(plan.batches + plan.sampled) / 1e6:,.0f} MB"
        )
        source = (
            "memory" if self.is_given else "memory that is free here (gz.open(memory=) sets it)"
        )
        log.log(
            logging.INFO if self.is_given else logging.WARNING,
            "%s: does not fit in %s, %.1f GB: %s",
            self.contents.path, source, self.memory / 1e9, "; ".join(parts),
        )  # fmt: skip


def _reading_of(loader: BatchSource, packed: Mapping[EdgeType | None, Unmapped]) -> Reading | None:
    """How a loader samples by topologies in memory; None where all are mapped."""
    return loader.graph_sampler.reading(packed, (1, 0)) if packed else None


def _check_held(case: Case, plan: MemoryPlan, files: Sequence[FileSize]) -> None:
    """Refuses a plan by which neighbours are read, for a sampler that needs them in memory.

    Raises:
        MemoryBudgetError: It is such a plan; names a budget that has all neighbours in memory.
    """
    memory = plan.memory
    while not neighbours_are_held(case.divide(memory, files), files):
        memory += max(1, memory // _STEPS)
    if memory > plan.memory:
        sharers = max(file.processes for file in files)
        each = "" if sharers == 1 else f" for each of {sharers} processes"
        raise MemoryBudgetError(
            f"memory: found {plan.memory // 10**6:,} MB{each}, expected {ceil(memory / 1e6):,} MB "
            "or more for method='labor', which looks at every neighbour of every frontier node and "
            "so has the whole topology in memory; or sample uniformly"
        )


def pager_of(contents: StoreContents | None) -> Pager | None:
    """The pager of a store; None for graphs in memory."""
    if contents is None:
        return None
    if contents.pager is None or contents.pager.is_foreign:
        contents.pager = Pager(contents, contents.memory, contents.is_memory_given)
    pager: Pager = contents.pager
    return pager
