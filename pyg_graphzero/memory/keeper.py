"""``Keeper``: decides what of a store stays in memory, within a budget that its loaders share.

A store has one keeper, which has one :class:`~.residence.Residence` at a time. An epoch leases it
when it begins, and it does not change until no epoch is under way. It is made from the needs of the
loader whose epochs are longest: ``needs`` → ``divide`` → plan → copy → residence, in this order.
"""

from __future__ import annotations

import logging
import os
import weakref
from dataclasses import replace
from math import ceil

from pyg_graphzero import _core
from pyg_graphzero.errors import MemoryBudgetError
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.making import (
    Maker,
    copy_key,
    find_copy,
    is_worth_copying,
    making_bytes,
    rank_seconds,
    seconds_of_epoch,
    takes,
)
from pyg_graphzero.memory.needs import Kind, Needs, files_of, needs_of
from pyg_graphzero.memory.plan import (
    MemoryPlan,
    divide,
    is_ample,
    least_memory,
    neighbours_are_held,
)
from pyg_graphzero.memory.prefetch import prefetch_bounds, prefetch_files
from pyg_graphzero.memory.residence import Residence
from pyg_graphzero.memory.source import BatchSource
from pyg_graphzero.memory.tables import Tables
from pyg_graphzero.memory.usage import Usage, Watch
from pyg_graphzero.memory.used_copy import UsedCopy
from pyg_graphzero.sampling.base import Reading
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.util.disk import DiskSpeed, probe
from pyg_graphzero.util.system import private_rss, return_freed_memory

log = logging.getLogger("pyg_graphzero")

# Until there is a plan: bytes of neighbours that are read for a few batches at once.
_TRIAL_BYTES = 64 << 20
# A residence is made anew for an epoch with this many times the batches of the one that it was made
# for, and for batches that are larger by this factor; batches that are larger by less are fewer at
# a time. So loaders that alternate do not change it in turn.
_LONGER, _LARGER = 2, 1.25
# A budget that would be enough is searched in steps of 1 / _STEPS of the one that there is.
_STEPS = 32


class Keeper:
    """Divides one budget among a store's files and loaders.

    Args:
        contents: The store's files.
        memory: The budget in bytes, for all memory of this process but what code other than the
            store's takes after the store was opened.
        is_given: A user has named the budget; else it is free memory, and a warning says so.

    Attributes:
        current: The store's files by the latest memory plan; None before the first.
        tables: Tables in memory that stand for files.
    """

    def __init__(self, contents: StoreContents, memory: int, is_given: bool) -> None:
        self._contents = weakref.ref(contents)
        self.memory = memory
        self.is_given = is_given
        self.current: Residence | None = None
        self.tables = Tables()
        self._maker = Maker(contents.path)
        self._process = os.getpid()
        self._baseline = 0
        # By loader and its first_aggregation.
        self._needs = weakref.WeakKeyDictionary[BatchSource, dict[str | None, Needs]]()

    @property
    def contents(self) -> StoreContents:
        """The store's files.

        The files keep the keeper, which does not keep them: when a store's last user is gone, its
        rows leave memory at once, and do not wait for Python's collector.
        """
        contents = self._contents()
        assert contents is not None
        return contents

    @property
    def is_foreign(self) -> bool:
        """Whether this is a forked child's copy: its readers and rows are the parent's."""
        return os.getpid() != self._process

    def residence_for(self, loader: BatchSource) -> Residence:
        """The store's files for an epoch that begins; by a new plan if there is to be one.

        Raises:
            MemoryBudgetError: The budget is too small for a batch of the loader.
        """
        now, self._baseline = self.current, self._baseline or private_rss()
        files = files_of(loader)
        if is_ample(self.memory, files, self._baseline):
            if now is None:
                now = self._hold_all(Needs(tuple(files)))
            return now
        needs = self._needs_of(loader)
        if now is not None and not self._is_outgrown(now, needs):
            return now
        watch = None
        if now is not None:
            batch = now.needs.batch.larger(needs.batch)
            needs = replace(needs, batch=batch, epoch=max(needs.epoch, now.needs.epoch))
            watch = self.watch_for(loader)
        self.current = None  # frees the rows of the last plan before the next one is made
        del now
        return self._decide(loader, needs, watch if watch is not None and watch.is_done else None)

    def watch_for(self, loader: BatchSource) -> Watch | None:
        """Where a loader's batches are to be counted as they are delivered; None: they are not."""
        watch = None if self.current is None else self.current.watch
        if watch is None or watch.key != copy_key(self.contents, self._needs_of(loader)):
            return None
        return watch

    def relative_size(self, loader: BatchSource) -> float:
        """How large its batches are, in batches that there is room for; 1 at least.

        Much more than 1 only where another loader's epoch keeps the residence as it is.
        """
        assert self.current is not None
        return max(1.0, self._needs_of(loader).batch.over(self.current.needs.batch))

    def _is_outgrown(self, now: Residence, needs: Needs) -> bool:
        """Whether the plan does not suit a loader that begins, and may be changed now."""
        is_larger = needs.batch.over(now.needs.batch) > _LARGER
        if is_larger:
            # An error if they are too large for any plan, even while an epoch is under way.
            batch = now.needs.batch.larger(needs.batch)
            plan = divide(self.memory, self._baseline, replace(needs, batch=batch))
            is_larger = not (now.plan.is_whole and plan.is_whole)
        if now.plan.is_whole or now.leases:
            return is_larger and not now.leases
        is_longer = needs.epoch >= _LONGER * max(1, now.needs.epoch)
        return is_larger or is_longer or self._is_copy_due(now, needs)

    def _is_copy_due(self, now: Residence, needs: Needs) -> bool:
        """Whether an epoch was counted, or another process has made a copy by now."""
        key = copy_key(self.contents, needs)
        if now.copy is not None or not self._maker.is_due(key):
            return False
        is_counted = now.watch is not None and now.watch.is_done and now.watch.key == key
        is_left = is_counted or self._maker.is_left
        return is_left or find_copy(self.contents, key) is not None

    def _needs_of(self, loader: BatchSource) -> Needs:
        own, how = self._needs.setdefault(loader, {}), loader.first_aggregation
        if how not in own:
            if self.current is None:
                reading = self._trial_reading(loader)
            else:
                reading = self.current.reading(loader.graph_sampler)
            own[how] = needs_of(loader, reading)
        return replace(own[how], epoch=loader.epoch_length())

    def _hold_all(self, needs: Needs) -> Residence:
        plan = divide(self.memory, self._baseline, needs)
        prefetch_files(self.contents, plan.held)
        self.current = Residence(self.contents, plan, needs)
        return self.current

    def _decide(self, loader: BatchSource, needs: Needs, watch: Watch | None) -> Residence:
        """Makes a residence for a loader; ``watch`` has counted an epoch."""
        contents, sampler = self.contents, loader.graph_sampler
        disk, plan = probe(contents.path), divide(self.memory, self._baseline, needs)
        if not plan.is_whole:
            needs = self.tables.sizes(contents, needs)
            plan = divide(self.memory, self._baseline, needs)
        if not sampler.may_read:
            _check_held(self.memory, self._baseline, needs)
        packed = {file.name for file in needs.files if file.is_packed and not plan.is_whole}
        prefetch_files(contents, [name for name in plan.held if name not in packed])
        copy = None
        if not plan.is_whole:
            copy, watch = self._copy(loader, needs, plan, disk, watch)
        if copy is not None:
            needs = copy.applied_to(needs)
        beside = 0 if watch is None else Watch.num_bytes(sampler.graph)
        plan = divide(self.memory, self._baseline + beside, needs)
        held = {} if plan.is_whole else plan.held
        tables = self.tables.pack(sampler.graph, needs, held), self.tables.held(held)
        return_freed_memory()
        self.current = Residence(contents, plan, needs, disk.merge_gap, copy, *tables, watch)
        if not plan.is_whole:
            self.current.preload()
            self._say(plan)
        return self.current

    def _copy(
        self,
        loader: BatchSource,
        needs: Needs,
        plan: MemoryPlan,
        disk: DiskSpeed,
        watch: Watch | None,
    ) -> tuple[UsedCopy | None, Watch | None]:
        """The copy of what a loader uses, found or made now; or what will have counted its use."""
        contents, graph = self.contents, loader.graph_sampler.graph
        key = copy_key(contents, needs)
        found = self._fitting(needs, key, find_copy(contents, key))
        if found is not None or key is None or not self._maker.is_due(key):
            return found, None
        seconds = seconds_of_epoch(needs, graph, plan, disk)
        if not is_worth_copying(needs, seconds, disk):
            self._maker.give_up(key, "an epoch reads for a short time", logging.INFO)
            return None, None
        # Before the first batch, neighbours may have the memory that batches will take.
        topologies = [*needs.of(Kind.BOUNDS), *needs.of(Kind.NEIGHBOURS)]
        room, reading = self.memory - self._baseline - costs.READER, None
        if watch is None:
            room -= sum(file.least_bytes for file in topologies)
            room -= (_core.num_threads(0) + 1) * needs.batch.sampling
        lists = watch is not None or room >= making_bytes(graph, lists=True)
        if watch is None and (lists or neighbours_are_held(plan, needs)):
            packed = self.tables.pack(graph, needs, [file.name for file in topologies])
            reading = loader.graph_sampler.reading(packed, (1, 0)) if packed else None
        elif watch is None:
            least = least_memory(needs, self._baseline + Watch.num_bytes(graph))
            if least <= self.memory:
                return None, Watch(graph, needs.epoch, key)
            self._maker.give_up(key, takes(contents, least))
            return None, None

        def usage() -> Usage:
            if watch is not None:
                return watch
            return Usage.sampled(loader, reading, lists=lists, seconds=rank_seconds(seconds))

        made = self._maker.make(contents, graph, needs, key, usage, room, lists)
        return self._fitting(needs, key, made), None

    def _fitting(self, needs: Needs, key: str | None, copy: UsedCopy | None) -> UsedCopy | None:
        """A copy whose tables leave room for a batch; None where they do not."""
        if copy is None or key is None:
            return None
        copy = copy.suited(self.memory, self._baseline, needs)
        least = least_memory(copy.applied_to(needs), self._baseline)
        if least <= self.memory:
            return copy
        self._maker.give_up(key, takes(self.contents, least))
        return None

    def _trial_reading(self, loader: BatchSource) -> Reading | None:
        """How a loader samples neighbours before it is decided which stay in memory."""
        sampler, graph = loader.graph_sampler, loader.graph_sampler.graph
        there = self.tables.there(graph)
        is_there = all(graph.on_disk(name) <= (name in there) for name in graph.edge_types)
        if is_there or not sampler.may_read:
            return sampler.reading(there, (1, 0)) if there else None
        needs = Needs(tuple(files_of(loader)))
        tables = [file.name for file in needs.of(Kind.NEIGHBOURS)]
        prefetch_bounds(self.contents).join()
        plan = MemoryPlan(
            self.memory, self._baseline, {}, dict.fromkeys(tables, 0),
            topology_window=costs.MAX_TOGETHER, topology_windows=_TRIAL_BYTES,
        )  # fmt: skip
        gap = probe(self.contents.path).merge_gap
        return Residence(self.contents, plan, needs, gap).reading(sampler)

    def _say(self, plan: MemoryPlan) -> None:
        """Logs the plan."""
        parts = [f"{name} {num_bytes / 1e6:,.0f} MB" for name, num_bytes in plan.parts.items()]
        source = (
            "memory" if self.is_given else "memory that is free here (gz.open(memory=) sets it)"
        )
        log.log(
            logging.INFO if self.is_given else logging.WARNING,
            "%s: does not fit in %s, %.1f GB: %s",
            self.contents.path, source, self.memory / 1e9, "; ".join(parts),
        )  # fmt: skip


def _check_held(memory: int, baseline: int, needs: Needs) -> None:
    """Refuses a plan by which neighbours are read, for a sampler that needs them in memory.

    Raises:
        MemoryBudgetError: It is such a plan; names a budget that has all neighbours in memory.
    """
    least = memory
    while not neighbours_are_held(divide(least, baseline, needs), needs):
        least += max(1, least // _STEPS)
    if least > memory:
        sharers = max(file.processes for file in needs.files)
        each = "" if sharers == 1 else f" for each of {sharers} processes"
        raise MemoryBudgetError(
            f"memory: found {memory // 10**6:,} MB{each}, expected {ceil(least / 1e6):,} MB "
            "or more for method='labor', which looks at every neighbour of every frontier node and "
            "so has the whole topology in memory; or sample uniformly"
        )


def keeper_of(contents: StoreContents | None) -> Keeper | None:
    """The keeper of a store; None for graphs in memory, and where shards have the topology."""
    if contents is None or (contents.shards is not None and contents.shards.has_topology):
        return None
    if contents.keeper is None or contents.keeper.is_foreign:
        contents.keeper = Keeper(contents, contents.memory, contents.is_memory_given)
    keeper: Keeper = contents.keeper
    return keeper
