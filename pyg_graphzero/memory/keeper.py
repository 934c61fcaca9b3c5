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

from pyg_graphzero import _core
from pyg_graphzero.errors import FormatError
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.making import (
    NoCopy,
    check_room,
    copy_key,
    copy_used,
    find_copy,
    folder_for,
    is_being_made,
    is_worth_copying,
    making_bytes,
    rank_seconds,
    sampling_bytes,
    seconds_of_epoch,
)
from pyg_graphzero.memory.needs import TOPOLOGY, Kind, Needs, files_of, needs_of
from pyg_graphzero.memory.plan import (
    MemoryPlan,
    divide,
    is_ample,
    least_memory,
    neighbours_are_held,
)
from pyg_graphzero.memory.prefetch import prefetch_files
from pyg_graphzero.memory.residence import Residence
from pyg_graphzero.memory.source import BatchSource
from pyg_graphzero.memory.tables import Tables
from pyg_graphzero.memory.usage import Usage, sampled_uses
from pyg_graphzero.memory.used_copy import UsedCopy
from pyg_graphzero.sampling.base import GraphSampler, Reading
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.opened import ONLY_FOUND
from pyg_graphzero.util.disk import DiskSpeed, probe
from pyg_graphzero.util.system import private_rss, return_freed_memory

log = logging.getLogger("pyg_graphzero")

# Until there is a plan: bytes of neighbours that are read for a few batches at once.
_TRIAL_BYTES = 64 << 20
# A residence is made anew for an epoch with this many times the batches of the one that it was made
# for, and for batches that are larger by this factor; batches that are larger by less are fewer at
# a time. So loaders that alternate do not change it in turn.
_LONGER, _LARGER = 2, 1.25


class Keeper:
    """Divides one budget among a store's files and loaders.

    Args:
        contents: The store's files. Their budget is for all memory of this process but what code
            other than the store's takes after the store was opened.

    Attributes:
        current: The store's files by the latest memory plan; None before the first.
        tables: Tables in memory that stand for files.
    """

    def __init__(self, contents: StoreContents) -> None:
        self._contents = weakref.ref(contents)
        self.memory = contents.memory
        self.current: Residence | None = None
        self.tables = Tables()
        self._tried: set[str] = set()  # names of copies that were given up
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
        now = self.current
        if self._baseline == 0:
            _core.free_idle_blocks()  # of loaders over graphs in memory
            self._baseline = private_rss()
        files = files_of(loader)
        if is_ample(self.memory, files, self._baseline):
            return now or self._hold_all(Needs(tuple(files)))
        needs = self.needs_of(loader)
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

    def watch_for(self, loader: BatchSource) -> Usage | None:
        """Where a loader's batches are to be counted as they are delivered; None: they are not."""
        now = self.current
        if now is None or now.watch is None:
            return None
        return now.watch if now.key == copy_key(self.contents, self.needs_of(loader)) else None

    def relative_size(self, loader: BatchSource) -> float:
        """How large its batches are, in batches that there is room for; 1 at least.

        Much more than 1 only where another loader's epoch keeps the residence as it is.
        """
        assert self.current is not None
        return max(1.0, self.needs_of(loader).batch.over(self.current.needs.batch))

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
        """Whether an epoch was counted, or another process has made a copy by now, or has died."""
        contents, key = self.contents, copy_key(self.contents, needs)
        if now.copy is not None or key is None or key in self._tried:
            return False
        is_over = now.key == key and (
            now.watch.is_done if now.watch else not is_being_made(contents.path, key)
        )
        return is_over or find_copy(contents, key) is not None

    def needs_of(self, loader: BatchSource) -> Needs:
        """The needs of a loader, see :func:`~.needs.needs_of`; found once."""
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
        self.tables = Tables()
        self.current = Residence(self.contents, plan, needs)
        return self.current

    def _decide(self, loader: BatchSource, needs: Needs, watch: Usage | None) -> Residence:
        """Makes a residence for a loader; ``watch`` has counted an epoch."""
        contents, sampler = self.contents, loader.graph_sampler
        _core.free_idle_blocks()  # of the last epoch's batches
        if divide(self.memory, self._baseline, needs).is_whole:
            return self._hold_all(needs)
        needs, disk = self.tables.sizes(contents, needs), probe(contents.path)
        plan = divide(self.memory, self._baseline, needs)
        packed = {file.name for file in needs.files if file.is_packed}
        prefetch_files(contents, [name for name in plan.held if name not in packed])
        key, found = copy_key(contents, needs), None
        try:
            if key is not None:
                found = self._copy(loader, needs, key, plan, disk, watch)
        except (NoCopy, FormatError, OSError) as error:
            self._give_up(key, error)
        copy = found if isinstance(found, UsedCopy) else None
        watch = found if isinstance(found, Usage) else None
        if copy is not None:
            needs = copy.applied_to(needs)
        beside = 0 if watch is None else Usage.num_bytes(sampler.graph)
        plan = divide(self.memory, self._baseline + beside, needs)
        tables = self.tables.pack(sampler.graph, needs, plan.held), self.tables.held(plan.held)
        return_freed_memory()
        made = Residence(contents, plan, needs, disk.merge_gap, copy, *tables, watch, key)
        made.preload()
        self._say(plan)
        self.current = made
        return made

    def _copy(
        self,
        loader: BatchSource,
        needs: Needs,
        key: str,
        plan: MemoryPlan,
        disk: DiskSpeed,
        watch: Usage | None,
    ) -> UsedCopy | Usage | None:
        """The copy of what a loader uses, found or made now; or what is to count its use first.

        None where the copy was given up, or another process makes it.

        Raises:
            NoCopy: None is to be made.
            FormatError: Its folder is reached by a link, or is another user's.
            OSError: The disk is full, or cannot be read.
        """
        contents, sampler, graph = self.contents, loader.graph_sampler, loader.graph_sampler.graph
        copy = find_copy(contents, key)
        if copy is not None:
            return self._checked(needs, copy)
        if key in self._tried:
            return None
        if contents.how.row_cache == ONLY_FOUND:
            raise NoCopy("none is there, and row_cache='found' makes none", logging.INFO)
        epoch = seconds_of_epoch(needs, graph, plan, disk)
        if not is_worth_copying(needs, epoch, disk):
            raise NoCopy("an epoch reads for a short time", logging.INFO)
        folder = folder_for(contents.path, key)
        if folder is None:
            raise NoCopy("found nowhere to write, in the store or in a cache")
        if is_being_made(contents.path, key):
            log.info("%s: another process makes it", folder.path / key)
            return None  # a later epoch finds it
        room = self.memory - self._baseline - costs.READER - self.tables.dictionary_bytes
        if watch is None:  # no batch is there yet, so neighbours may have the memory of batches
            room -= sampling_bytes(needs)
        else:  # a loop has the last one of the epoch before
            room -= needs.batch.whole + Usage.num_bytes(graph)
            room -= sum(file.least_bytes for file in needs.of(Kind.BOUNDS))
        lists = watch is not None or room >= making_bytes(graph, lists=True)
        if not lists and not neighbours_are_held(plan, needs):
            check_room(contents, least_memory(needs, self._baseline + Usage.num_bytes(graph)))
            return Usage(graph, needs.epoch, lists=True)

        def usage() -> Usage:
            if watch is not None:
                return watch
            reading = hold_neighbours(sampler, needs, self.tables)
            return sampled_uses(loader, reading, lists=lists, seconds=rank_seconds(epoch))

        copy = copy_used(contents, graph, needs, folder, key, usage, room, lists)
        return self._checked(needs, copy)

    def _give_up(self, key: str | None, error: Exception) -> None:
        """Says why no copy is made, once."""
        if key is None or key in self._tried:
            return
        level = error.level if isinstance(error, NoCopy) else logging.WARNING
        why = str(error)  # the error itself keeps frames, and what they have
        log.log(
            level, "%s: rows are not copied in the order of their use: %s", self.contents.path, why
        )
        self._tried.add(key)

    def _checked(self, needs: Needs, copy: UsedCopy) -> UsedCopy:
        """The copy.

        Raises:
            NoCopy: Its tables leave no room for a batch.
        """
        check_room(self.contents, least_memory(copy.applied_to(needs), self._baseline))
        return copy

    def _trial_reading(self, loader: BatchSource) -> Reading | None:
        """How a loader samples neighbours before it is decided which stay in memory."""
        needs = Needs(tuple(files_of(loader)))
        window = costs.MAX_TOGETHER, _TRIAL_BYTES
        return read_neighbours(self.contents, loader.graph_sampler, needs, self.tables, window)

    def _say(self, plan: MemoryPlan) -> None:
        """Logs the plan, as a warning where the budget is free memory that no user has named."""
        parts = [f"{name} {num_bytes / 1e6:,.0f} MB" for name, num_bytes in plan.parts.items()]
        level, source = logging.INFO, "memory"
        if not self.contents.is_memory_given:
            level, source = logging.WARNING, "memory that is free here (gz.open(memory=) sets it)"
        log.log(
            level, "%s: does not fit in %s, %.1f GB: %s",
            self.contents.path, source, self.memory / 1e9, "; ".join(parts),
        )  # fmt: skip


def hold_neighbours(sampler: GraphSampler, needs: Needs, tables: Tables) -> Reading | None:
    """How a sampler samples while all neighbours are in memory; None: they are mapped."""
    held = [file.name for kind in TOPOLOGY for file in needs.of(kind)]
    packed = tables.pack(sampler.graph, needs, held)
    return sampler.reading(packed, (1, 0)) if packed else None


def read_neighbours(
    contents: StoreContents,
    sampler: GraphSampler,
    needs: Needs,
    tables: Tables,
    window: tuple[int, int],
    room: int = 0,
) -> Reading | None:
    """How a sampler samples while neighbours are read; None where there are none, or may not be.

    Args:
        contents: The store.
        sampler: The sampler.
        needs: The needs of its loader.
        tables: Tables of the store.
        window: For how many batches neighbours are read at once, and how many bytes.
        room: Bytes for neighbours that were read lately.
    """
    lists = needs.of(Kind.NEIGHBOURS)
    if not lists:
        return None
    packed = tables.pack(sampler.graph, needs, [file.name for file in needs.of(Kind.BOUNDS)])
    share = room / max(1, sum(file.num_bytes for file in lists))
    hot = {file.name: int(share * file.num_bytes) for file in lists}
    plan = MemoryPlan(0, 0, {}, hot, topology_window=window[0], topology_windows=window[1])
    gap = probe(contents.path).merge_gap
    return Residence(contents, plan, needs, gap, packed=packed).reading(sampler)


def keeper_of(contents: StoreContents | None) -> Keeper | None:
    """The keeper of a store; None for graphs in memory, and where shards have the topology."""
    if contents is None or (contents.shards is not None and contents.shards.has_topology):
        return None
    if contents.keeper is None or contents.keeper.is_foreign:
        contents.keeper = Keeper(contents)
    keeper: Keeper = contents.keeper
    return keeper
