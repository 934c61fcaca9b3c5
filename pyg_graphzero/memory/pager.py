"""Keeps a store's loaders within a budget of memory: what stays there, and what is read when.

A store has one, which its loaders share. It settles when the first of them begins: only then is it
known how large batches are, and which rows are sampled often. It settles anew when one begins whose
epoch is clearly longer or whose batches are larger, unless an epoch is under way.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Collection, Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.memory.hot_rows import choose_hot_rows, group_bits_of
from pyg_graphzero.memory.plan import (
    MAX_WINDOW,
    BatchSize,
    FileSize,
    MemoryPlan,
    divide,
    is_ample,
)
from pyg_graphzero.memory.planner import choose_plan
from pyg_graphzero.memory.prefetch import prefetch_all
from pyg_graphzero.memory.profile import MOST_BATCHES, larger, profile
from pyg_graphzero.memory.quota import EpochQuotas
from pyg_graphzero.memory.simulate import Case
from pyg_graphzero.memory.source import BatchSource
from pyg_graphzero.pyg.data import node_storages
from pyg_graphzero.pyg.lazy import OnDemand, raw_items
from pyg_graphzero.sampling.base import GraphSampler
from pyg_graphzero.store.columns import EncodedRows, engine_array
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.disk import probe
from pyg_graphzero.util.system import private_rss

log = logging.getLogger("pyg_graphzero")

# So few batches tell how large they are.
_FEW_BATCHES = 4
# How long batches are kept that tell which plan reads fastest, and what they may take of the budget
# meanwhile.
_KEEP_SECONDS = 1.0
_KEEP_SHARE = 0.1
# An epoch has a say in what stays in memory if it has so many times the batches of the one that
# decided; so loaders that alternate do not take turns, and few decisions are ever made.
_LONGER = 2
# Batches that are larger by less have to do with fewer at a time: a few samples say no more.
_LARGER = 1.25


class Pager:
    """Divides one budget among a store's files and loaders.

    Args:
        contents: The store's files.
        memory: The budget in bytes, for all that this process holds in memory but what others
            than the store take after it was opened.
        is_given: A user has named it; else it is what the machine leaves, and is said aloud.
    """

    is_loaded = False  # rows are read for windows of batches

    def __init__(self, contents: StoreContents, memory: int, is_given: bool) -> None:
        self.contents = contents
        self.memory = memory
        self.is_given = is_given
        self.memory_plan: MemoryPlan | None = None
        self._reader: _core.DiskGather | None = None
        self._rows: dict[str, _core.PagedRows] = {}
        self._chosen: dict[str, Tensor | int] = {}
        self._process = os.getpid()
        self._quotas: EpochQuotas | None = None
        self.topologies: dict[EdgeType | None, _core.PagedRows] = {}
        # What was decided from: how the longest epoch samples, and the largest batches.
        self._baseline = 0
        self._decider: weakref.ref[BatchSource] | None = None
        self._epoch = 0
        self._batch = BatchSize(0, 0)
        self._sizes: weakref.WeakKeyDictionary[BatchSource, BatchSize]
        self._sizes = weakref.WeakKeyDictionary()
        # Who has paged rows of this: in plans, and in graphs.
        self._loaders: weakref.WeakSet[BatchSource] = weakref.WeakSet()
        self._samplers: weakref.WeakSet[GraphSampler] = weakref.WeakSet()

    @property
    def is_foreign(self) -> bool:
        """Whether this is a forked child's copy: its reader and rows are the parent's."""
        return os.getpid() != self._process

    def plan_for(self, loader: BatchSource) -> MemoryPlan:
        """Decides what stays in memory when a loader begins, if it has to be decided.

        Raises:
            MemoryBudgetError: The budget is too small for a batch of the loader.
        """
        if self.memory_plan is None:
            self._baseline = self._baseline or private_rss()
            return self.decide(loader, BatchSize(0, 0))
        if not self._is_outgrown(loader):
            return self.memory_plan
        size = larger(self._batch, self._size_of(loader))
        decider = None if self._decider is None else self._decider()
        if decider is None or loader.epoch_length() > self._epoch:
            decider = loader
        self._release()
        return self.decide(decider, size)

    def _is_outgrown(self, loader: BatchSource) -> bool:
        """Whether the plan is not for a loader that begins, and may be changed now."""
        assert self.memory_plan is not None
        files = self.files(loader)
        if is_ample(self.memory, files, self._baseline):
            return False
        is_whole = self.memory_plan.is_whole
        is_outgrown = not is_whole and loader.epoch_length() >= _LONGER * max(1, self._epoch)
        if self._ratio(loader) > _LARGER:
            size = larger(self._batch, self._size_of(loader))
            # An error if they are too large for any plan, whoever's epoch is under way.
            still_whole = divide(self.memory, files, self._baseline, size).is_whole
            is_outgrown = is_outgrown or not (is_whole and still_whole)
        return is_outgrown and (self._quotas is None or len(self._quotas) == 0)

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
            self._put(loader.graph_sampler)
            found = profile(loader, most=_FEW_BATCHES, counts=False)
            self._sizes[loader] = found.accesses.batch_size(bytes_of_rows(loader.data))
        return self._sizes[loader]

    def _release(self) -> None:
        """Lets go of all that stays in memory; so do the plans and the graphs that have it.

        REQUIRES that no epoch is under way. Plans that have all in memory do no harm, and may be
        those of an epoch.
        """
        assert self.memory_plan is not None
        if not self.memory_plan.is_whole:
            for loader in list(self._loaders):
                loader.forget_plan()
        self.memory_plan = self._quotas = None
        self._rows.clear()
        self._chosen.clear()
        self.topologies.clear()
        for sampler in list(self._samplers):
            self._put(sampler)

    def decide(self, loader: BatchSource, least: BatchSize) -> MemoryPlan:
        """Decides from how this loader samples; there is to be room for ``least``, too."""
        files = self.files(loader)
        baseline = self._baseline
        if is_ample(self.memory, files, baseline):
            self.memory_plan = divide(self.memory, files, baseline, BatchSize(0, 0))
            self.prefetch(self.memory_plan.held)
            return self.memory_plan
        tables = [file for file in files if file.kind in ("indptr", "indices")]
        if 2 * sum(file.held_bytes for file in tables) <= self.memory:
            # Or each batch would wait for its pages.
            self.prefetch([file.name for file in tables]).join()
        else:
            self._page_topologies({file.name: 0 for file in tables})
            self.apply(loader)
        is_ranked = any(t.order is not None for t in self.contents.schema.node_types)
        # Where it is known which rows are used, only how large batches are is not.
        found = profile(
            loader,
            most=0 if is_ranked else MOST_BATCHES,
            keep=MAX_WINDOW,
            keep_seconds=_KEEP_SECONDS,
            keep_bytes=int(_KEEP_SHARE * max(0, self.memory - baseline)),
            keeps_edges=any(file.kind == "edge" for file in files),
            num_threads=_core.num_threads(0),
        )
        accesses = found.accesses
        size = accesses.batch_size(bytes_of_rows(loader.data))
        batch = larger(least, size)
        self.prefetch(divide(self.memory, files, baseline, batch).held)
        graph = loader.graph_sampler.graph
        disk = probe(self.contents.path)
        case = Case(self.contents, graph, found, batch, baseline, disk)
        self.memory_plan = choose_plan(case, self.memory, files)
        del found, case
        self._decider, self._epoch, self._batch = weakref.ref(loader), loader.epoch_length(), batch
        self._sizes[loader] = size
        self.topologies.clear()
        if not self.memory_plan.is_whole:
            self._chosen |= choose_hot_rows(self.contents, files, self.memory_plan, accesses)
            self._page_topologies(self._chosen)
        self.apply(loader)
        for topology in self.topologies.values():
            topology.preload()
        if not self.memory_plan.is_whole:
            self._say()
        return self.memory_plan

    def apply(self, loader: BatchSource) -> None:
        """Has a loader sample from what this says is in memory, and from disk what is not."""
        self._loaders.add(loader)
        if not self.topologies:
            return
        self._put(loader.graph_sampler)
        if self.memory_plan is not None:
            batches = max(1, int(self.memory_plan.topology_window / self.relative_size(loader)))
            loader.graph_sampler.graph.window = (batches, self.memory_plan.topology_windows)

    def _put(self, sampler: GraphSampler) -> None:
        self._samplers.add(sampler)
        if sampler.graph.paged != self.topologies:
            sampler.graph.paged = dict(self.topologies)
            sampler.restart()

    def _page_topologies(self, chosen: Mapping[str, Tensor | int]) -> None:
        """Makes rows of those topologies of which not all is to be in memory."""
        for t in self.contents.schema.edge_types:
            is_held = self.memory_plan is not None and t.topology in self.memory_plan.held
            if t.topology in chosen and not is_held:
                self.contents.topology(t.name).forget_pages()  # what sampling from the map touched
                neighbours = _core.ColumnFile.of_indices(self.contents.topology(t.name))
                index_bytes = self.contents.topology(t.name).index_bytes
                self.topologies[t.name] = self._paged_rows(
                    neighbours, t.num_edges, index_bytes, chosen[t.topology]
                )

    def rows(self, file: str) -> _core.PagedRows | None:
        """How to gather from a column that is not held; None where it is."""
        plan = self.memory_plan
        if plan is None or plan.is_whole or file in plan.held:
            return None
        if file not in self._rows:
            self._rows[file] = self._page(file, self._chosen.get(file, 0))
        return self._rows[file]

    @property
    def quotas(self) -> EpochQuotas:
        """Those of the epochs under way. REQUIRES a plan that reads."""
        if self._quotas is None:
            assert self.memory_plan is not None
            self._quotas = EpochQuotas(self.memory_plan)
        return self._quotas

    def files(self, loader: BatchSource) -> list[FileSize]:
        """What the loader reads from."""
        contents = self.contents
        graph = loader.graph_sampler.graph
        files: list[FileSize] = []
        for i, name in enumerate(graph.edge_types):
            if not graph.on_disk(name):
                continue
            topology = contents.topology(name)
            record = contents.edge_type(name)
            num_bounds, sharers = topology.num_dst + 1, contents.processes
            files.append(FileSize(f"indptr {i}", num_bounds, 8, "indptr", sharers))
            files.append(
                FileSize(
                    record.topology,
                    topology.num_edges,
                    topology.index_bytes,
                    "indices",
                    sharers,
                )
            )
            if record.edge_id is not None and loader.edge_ids:
                files.append(self._column(record.edge_id, "edge"))
        for node_type in graph.node_types:
            record_of_nodes = contents.schema.node_type(node_type)  # None: added in memory
            if record_of_nodes is None:
                continue
            # Every batch looks its seeds up in one, and its nodes in the other.
            for file in (record_of_nodes.rank, record_of_nodes.order):
                if file is not None and loader.node_ids:
                    files.append(self._column(file, "node"))
        edge_files = {f for t in contents.schema.edge_types for f in t.attrs.values()}
        for file in self._used(loader.data):
            if file in edge_files:
                files.append(self._column(file, "edge"))
            else:
                files.append(self._column(file, "node"))
        return files

    def _column(self, file: str, kind: str) -> FileSize:
        column = self.contents.column(file)
        size = column.shape[0], column.row_bytes
        return FileSize(file, *size, kind, self.contents.processes)

    def _used(self, data: Any) -> Iterable[str]:
        """Files of node and edge attributes that are in ``data`` still."""
        for store in data.stores:
            for _, value in raw_items(store):
                file = self.file_of(value)
                if file is not None:
                    yield file

    def file_of(self, value: Any) -> str | None:
        """The file that an attribute's rows are in; None where they are not, or were changed."""
        if isinstance(value, OnDemand):
            value = None if value.is_built else value.rows
        stored = value.stored if isinstance(value, EncodedRows) else value
        if not isinstance(stored, Tensor) or stored.dim() == 0:
            return None
        return self.contents.file_of(stored)

    def prefetch(self, files: Collection[str]) -> threading.Thread:
        """Has files that are to be held read into memory, in the background."""
        contents = self.contents
        paths = [contents.column(f).path for f in contents.columns if f in files]
        for t in contents.schema.edge_types:
            if t.topology in files:
                paths.append(contents.topology(t.name).path)
        return prefetch_all([Path(path) for path in paths])

    def _page(self, file: str, chosen: Tensor | int) -> _core.PagedRows:
        column = self.contents.column(file)
        rows = _core.ColumnFile.of(column)
        return self._paged_rows(rows, column.shape[0], column.row_bytes, chosen)

    def _paged_rows(
        self, file: _core.ColumnFile, num_rows: int, row_bytes: int, chosen: Tensor | int
    ) -> _core.PagedRows:
        if self._reader is None:
            self._reader = _core.DiskGather(num_threads=1, buffer_bytes=16 << 20)
        return _core.PagedRows(
            num_rows,
            [file],
            self._reader,
            chosen if isinstance(chosen, int) else 0,
            None if isinstance(chosen, int) else engine_array(chosen),
            group_bits_of(row_bytes),
            merge_gap=probe(self.contents.path).merge_gap,
        )

    def _say(self) -> None:
        """Tells what was decided."""
        plan = self.memory_plan
        assert plan is not None
        parts = [f"{plan.baseline / 1e6:,.0f} MB are taken already"]
        if plan.held:
            parts.append(f"{sum(plan.held.values()) / 1e6:,.0f} MB of small columns are held")
        for file, room in plan.hot.items():
            total = self._column_bytes(file)
            parts.append(f"{room / 1e6:,.0f} of {total / 1e6:,.0f} MB of {file} stay in memory")
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

    def _column_bytes(self, file: str) -> int:
        for t in self.contents.schema.edge_types:
            if t.topology == file:
                return t.num_edges * self.contents.topology(t.name).index_bytes
        return int(self.contents.column(file).data_bytes)


def bytes_of_rows(data: Any) -> dict[str | None, int]:
    """What the attributes of one node take in a batch, with its id, by node type."""
    found: dict[str | None, int] = {}
    for name, store in node_storages(data).items():
        found[name] = 8
        for key, value in raw_items(store):
            if isinstance(value, Tensor | EncodedRows | OnDemand) and store.is_node_attr(key):
                found[name] += prod(value.shape[1:]) * value.dtype.itemsize
    return found


def pager_of(contents: StoreContents | None) -> Pager | None:
    """The pager of a store; None for graphs in memory."""
    if contents is None:
        return None
    if contents.pager is None or contents.pager.is_foreign:
        contents.pager = Pager(contents, contents.memory, contents.is_memory_given)
    pager: Pager = contents.pager
    return pager
