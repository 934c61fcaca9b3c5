"""Keeps a store's loaders within a budget of memory: decides what stays there.

A store has one pager, which its loaders share. It decides when the first of them begins an epoch:
only then is it known how large batches are, and which rows are sampled often. It decides anew when
one begins whose epoch is clearly longer or whose batches are larger, unless an epoch is under way.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyg_graphzero import _core
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
    neighbours_fit,
)
from pyg_graphzero.memory.planner import choose_plan
from pyg_graphzero.memory.prefetch import prefetch_bounds, prefetch_files
from pyg_graphzero.memory.profile import MOST_BATCHES, larger, profile
from pyg_graphzero.memory.simulate import Case
from pyg_graphzero.memory.source import BatchSource
from pyg_graphzero.sampling.base import Reading
from pyg_graphzero.sampling.graph import Unmapped
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.disk import DiskSpeed, probe
from pyg_graphzero.util.system import private_rss, return_freed_memory

log = logging.getLogger("pyg_graphzero")

# So many batches are enough to tell how large they are.
_FEW_BATCHES = 4
# Plans are compared by what they would read for some batches: how long these are sampled, and what
# share of the budget they may take meanwhile.
_KEEP_SECONDS = 1.0
_KEEP_SHARE = 0.1
# Until there is a plan: what neighbours may take that are read for a few batches at once.
_TRIAL_BYTES = 64 << 20
# The plan is made anew for an epoch of so many times the batches of the one that it was made for.
# So loaders that alternate do not change it in turn, and few plans are ever made.
_LONGER = 2
# And for batches that are larger by this; of others that are larger there are fewer at a time. A
# few samples are no more exact than that.
_LARGER = 1.25


class Pager:
    """Divides one budget among a store's files and loaders.

    Args:
        contents: The store's files.
        memory: The budget in bytes, for all that this process holds in memory but what others
            than the store take after it was opened.
        is_given: A user has named it; else it is what the machine leaves, and is said aloud.

    Attributes:
        files: What is in memory, as it was decided last; None before that.
    """

    def __init__(self, contents: StoreContents, memory: int, is_given: bool) -> None:
        self.contents = contents
        self.memory = memory
        self.is_given = is_given
        self.files: PagedFiles | None = None
        self.orders = OrderKeeper(contents)
        self.dictionaries = Dictionaries(contents)
        self._process = os.getpid()
        # What was decided from: how the longest epoch samples, and the largest batches.
        self._baseline = 0
        self._decider: weakref.ref[BatchSource] | None = None
        self._epoch = 0
        self._batch = BatchSize(0, 0)
        self._sizes: weakref.WeakKeyDictionary[BatchSource, BatchSize]
        self._sizes = weakref.WeakKeyDictionary()
        self.packed = PackedTopologies(contents)

    @property
    def is_foreign(self) -> bool:
        """Whether this is a forked child's copy: its readers and rows are the parent's."""
        return os.getpid() != self._process

    @property
    def memory_plan(self) -> MemoryPlan | None:
        """What memory is used for; None before that is decided."""
        return None if self.files is None else self.files.plan

    def use(self, files: PagedFiles) -> None:
        """Has epochs go by another plan from now on, to compare it with the one that was chosen."""
        self.files = files

    def files_for(self, loader: BatchSource) -> PagedFiles:
        """What is in memory for an epoch that begins; decides it, if it has to be decided.

        Raises:
            MemoryBudgetError: The budget is too small for a batch of the loader.
        """
        if self.files is None:
            self._baseline = self._baseline or private_rss()
            return self.decide(loader, BatchSize(0, 0))
        is_better = self.orders.is_made and not self.files.quotas
        if not is_better and not self._is_outgrown(loader, self.files):
            return self.files
        size = larger(self._batch, self._size_of(loader))
        decider = None if self._decider is None else self._decider()
        if decider is None or loader.epoch_length() > self._epoch:
            decider = loader
        self.files = None  # what was in memory by it is gone, before anything else is chosen
        return self.decide(decider, size)

    def _is_outgrown(self, loader: BatchSource, now: PagedFiles) -> bool:
        """Whether the plan is not for a loader that begins, and may be changed now."""
        files = files_of(loader)
        if is_ample(self.memory, files, self._baseline):
            return False
        is_whole = now.plan.is_whole
        is_outgrown = not is_whole and loader.epoch_length() >= _LONGER * max(1, self._epoch)
        if self._ratio(loader) > _LARGER:
            size = larger(self._batch, self._size_of(loader))
            # An error if they are too large for any plan, whoever's epoch is under way.
            still_whole = divide(self.memory, files, self._baseline, size).is_whole
            is_outgrown = is_outgrown or not (is_whole and still_whole)
        return is_outgrown and not now.quotas

    def relative_size(self, loader: BatchSource) -> float:
        """How large its batches are, in batches that there is room for; 1 at least.

        Much more only where the epoch of another keeps this from deciding anew.
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
        """Decides from how this loader samples; there is to be room for ``least``, too."""
        contents, baseline, files = self.contents, self._baseline, files_of(loader)
        self.orders.settle()
        merge_gap, order = 0, None
        if is_ample(self.memory, files, baseline):
            plan = divide(self.memory, files, baseline, BatchSize(0, 0))
            prefetch_files(contents, plan.held)
        else:
            disk = probe(contents.path)
            merge_gap = disk.merge_gap
            graph = loader.graph_sampler.graph
            is_read = not neighbours_fit(self.memory, files)
            reading = self._trial_reading(loader, files, merge_gap)
            case = self._look_at(loader, reading, files, disk, is_read, least)
            if not case.divide(self.memory, files).is_whole:
                files = self.dictionaries.sizes(files)
            plan = case.divide(self.memory, files)
            if is_read and neighbours_are_held(plan, files):
                # As one batch shows, they stay in memory after all.
                reading = _reading_of(loader, self.packed.hold(graph, files, plan.held))
                taken = sum(plan.held.values())
                case = self._look_at(loader, reading, files, disk, False, case.batch, taken)
                plan = case.divide(self.memory, files)
                is_read = not neighbours_are_held(plan, files)
            self._prefetch(plan, files)
            if not is_read:
                if not plan.is_whole:
                    reading = _reading_of(loader, self.packed.hold(graph, files, plan.held))
                order = self.orders.find(case, plan, files)
            if order is not None:
                files = order.files(files)
                plan = choose_plan(case, self.memory, files, order.ranks(case.graph))
            else:
                if not is_read:
                    self.orders.make(case, plan, files, loader, reading)
                if self.orders.is_making:
                    # For as long as rows are copied any way will do: the first batch waits for it.
                    case = replace(case, baseline=baseline + self.orders.num_bytes)
                    plan = case.divide(self.memory, files)
                else:
                    plan = choose_plan(case, self.memory, files)
            self._decider, self._epoch = weakref.ref(loader), loader.epoch_length()
            self._batch = case.batch
            del case, reading
            return_freed_memory()
        held: Mapping[str, int] = {} if plan.is_whole else plan.held
        packed = self.packed.hold(loader.graph_sampler.graph, files, held)
        dictionaries = self.dictionaries.held(held)
        kept = groups_kept(files, plan)
        self.files = PagedFiles(contents, plan, kept, merge_gap, order, packed, dictionaries)
        if not plan.is_whole:
            self.files.preload()
            self._say(plan, files)
        return self.files

    def _look_at(
        self,
        loader: BatchSource,
        reading: Reading | None,
        files: Sequence[FileSize],
        disk: DiskSpeed,
        is_read: bool,
        least: BatchSize,
        held: int = 0,
    ) -> Case:
        """Batches as a loader samples them, with so many bytes of files in memory by now.

        There is to be room for ``least``, too.
        """
        is_ranked = any(t.order is not None for t in self.contents.schema.node_types)
        # Where it is known which rows are used, or where to find that out takes long, only how
        # large batches are is looked at.
        found = profile(
            loader,
            reading,
            most=0 if is_ranked or is_read else MOST_BATCHES,
            keep=1 if is_read else costs.MAX_WINDOW,
            keep_seconds=_KEEP_SECONDS,
            keep_bytes=int(_KEEP_SHARE * max(0, self.memory - self._baseline - held)),
            keeps_edges=any(file.kind == "edge" for file in files),
            num_threads=_core.num_threads(0),
        )
        size = found.accesses.batch_size(*bytes_of_batches(loader))
        self._sizes[loader] = size
        graph = loader.graph_sampler.graph
        return Case(self.contents, graph, found, larger(least, size), self._baseline, disk)

    def _prefetch(self, plan: MemoryPlan, files: Sequence[FileSize]) -> None:
        """Has the files read that are to be mapped."""
        packed = {file.name for file in files if file.is_packed and not plan.is_whole}
        prefetch_files(self.contents, [name for name in plan.held if name not in packed])

    def _trial_reading(
        self, loader: BatchSource, files: Sequence[FileSize], merge_gap: int
    ) -> Reading | None:
        """How a loader samples neighbours before it is decided which stay in memory."""
        tables = [file.name for file in files if file.kind in ("indptr", "indices")]
        if neighbours_fit(self.memory, files):
            there = self.packed.there(loader.graph_sampler.graph)
            packed = {self.contents.edge_type(name).topology for name in there}
            # Of the others each batch would wait for its pages.
            prefetch_files(self.contents, set(tables) - packed).join()
            return _reading_of(loader, there)
        prefetch_bounds(self.contents).join()
        plan = MemoryPlan(
            self.memory, self._baseline, {}, dict.fromkeys(tables, 0),
            topology_window=costs.MAX_TOGETHER, topology_windows=_TRIAL_BYTES,
        )  # fmt: skip
        return PagedFiles(self.contents, plan, plan.hot, merge_gap).reading(loader.graph_sampler)

    def _say(self, plan: MemoryPlan, files: Sequence[FileSize]) -> None:
        """Tells what was decided."""
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


def pager_of(contents: StoreContents | None) -> Pager | None:
    """The pager of a store; None for graphs in memory."""
    if contents is None:
        return None
    if contents.pager is None or contents.pager.is_foreign:
        contents.pager = Pager(contents, contents.memory, contents.is_memory_given)
    pager: Pager = contents.pager
    return pager
