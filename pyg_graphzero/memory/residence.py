"""``Residence``: a store's files as one memory plan has them, in memory whole or read in part."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from time import sleep
from typing import Any
from weakref import WeakKeyDictionary

from pyg_graphzero import _core
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.lease import Leases
from pyg_graphzero.memory.needs import Kind, Need, Needs, file_of
from pyg_graphzero.memory.plan import MemoryPlan
from pyg_graphzero.memory.usage import Usage
from pyg_graphzero.memory.used_copy import UsedCopy
from pyg_graphzero.sampling.base import GraphSampler, Reading
from pyg_graphzero.sampling.graph import Unmapped
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.disk import READER_BYTES, probe
from pyg_graphzero.util.system import private_rss

# Items of a few bytes are kept by groups of this many bytes: the neighbours of a few nodes, one of
# which may be in many batches. A page of 4 KiB has those of 35 nodes, so that all pages are alike.
_GROUP_BYTES = 256
_ITEM_BYTES = 8
# A frame of csrc/gather/row_cache.h has the number of its group in this many bits.
_GROUP_BITS = 31
# Bounds of the bytes of neighbours that walks read at once.
_LEAST_WALKED = 4 << 20
_MOST_WALKED = 256 << 20
# Rows that are read into memory by one call, before they are asked for.
_LOADED_ROWS = 1 << 22
# The preloading thread lets go of a file for this many seconds, again and again, so that threads
# that use the file have their turn.
_PAUSE = 0.001


class Residence:
    """A store's files by one memory plan: rows in memory, and readers of the others.

    Never changes: another plan has its own. An epoch leases it from the store's keeper when it
    begins, and ends with it.

    Args:
        contents: The store's files.
        plan: The memory plan.
        needs: The needs that it was made for. Neighbours of edge types whose topology is not among
            their files are packed or mapped.
        merge_gap: Bytes between two rows that cost the disk less to read than to skip.
        copy: Rows that lie once more in the order of their use, if there are such.
        packed: Packed topologies, or bounds of them, that replace files which the plan holds.
        dictionaries: Dictionaries that replace files which the plan holds.
        watch: Counts the batches of an epoch.
        key: Name of the copy that it reads from; or of one that is to come, once ``watch`` has
            counted an epoch, or another process has made it.

    Attributes:
        made: Batch plans that loaders have made by these files, by loader. No other place keeps
            them, so that rows in memory go when this object goes.
        topologies: Neighbours that are read.
        leases: Leases of the epochs under way; None if all is in memory.
    """

    def __init__(
        self,
        contents: StoreContents,
        plan: MemoryPlan,
        needs: Needs,
        merge_gap: int = 0,
        copy: UsedCopy | None = None,
        packed: Mapping[EdgeType | None, Unmapped] | None = None,
        dictionaries: Mapping[str, _core.Dictionary] | None = None,
        watch: Usage | None = None,
        key: str | None = None,
    ) -> None:
        self._contents = weakref.ref(contents)
        self.plan = plan
        self.needs = needs
        self.made: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self.topologies: dict[EdgeType | None, _core.PagedRows] = {}
        self.leases = None if plan.is_whole else Leases(plan)
        self.watch = watch
        self.key = key
        self.merge_gap = merge_gap
        self.copy = copy
        self.packed = packed or {}
        self._dictionaries = dictionaries or {}
        self._files = {file.name: file for file in needs.files}
        self._rows: dict[str, _core.PagedRows] = {}
        for t in contents.schema.edge_types:
            if t.topology in plan.hot:
                topology = contents.topology(t.name)
                topology.forget_pages()  # pages that sampling from the map has touched
                indices = _core.ColumnFile.of_indices(topology)
                self.topologies[t.name] = self._page(t.topology, indices, self._neighbour_reader)

    @property
    def contents(self) -> StoreContents:
        """The store's files, which keep the keeper and are not kept by it."""
        contents = self._contents()
        assert contents is not None
        return contents

    def file_of(self, value: Any) -> str | None:
        """The file that an attribute's rows are in; None where they are not, or were changed."""
        return file_of(self.contents, value)

    def held_rows(self, file: str) -> _core.RowTable | None:
        """A column that is held in memory of its own; None where it is not, or is mapped."""
        made = self._dictionaries.get(file)
        return None if made is None else made.rows()

    def rows(self, file: str) -> _core.PagedRows | None:
        """How to gather from a column that is not held; None where it is."""
        if self.plan.is_whole or file in self.plan.held:
            return None
        if file not in self._rows:
            column = _core.ColumnFile.of(self.contents.column(file))
            self._rows[file] = self._page(file, column, self._row_reader)
        return self._rows[file]

    def reading(self, sampler: GraphSampler, size: float = 1.0) -> Reading | None:
        """Where a sampler reads neighbours; None where all topologies are mapped.

        Args:
            sampler: A sampler over this store.
            size: Size of its batches, in batches that the plan is made for.
        """
        unmapped = {
            name: replace(self.packed.get(name, Unmapped()), indices=self.topologies.get(name))
            for name in (*self.topologies, *self.packed)
        }
        if not unmapped:
            return None
        batches = max(1, int(self.plan.topology_window / size))
        return sampler.reading(unmapped, (batches, self.plan.topology_windows))

    def preload(self) -> None:
        """Starts a thread that reads neighbours that stay in memory; does not wait for it."""
        threading.Thread(
            target=_preload, args=(weakref.ref(self),), name="graphzero-preload"
        ).start()

    # Reads of neighbours and reads of rows do not wait for each other.
    @cached_property
    def _neighbour_reader(self) -> _core.DiskGather:
        return _reader()

    @cached_property
    def _row_reader(self) -> _core.DiskGather:
        return _reader()

    def _page(self, name: str, file: _core.ColumnFile, reader: _core.DiskGather) -> _core.PagedRows:
        """Rows of which some stay: the first ones, where they lie in order, else recent ones."""
        need, copied = self._files[name], None if self.copy is None else self.copy.files.get(name)
        bits, room = _group_bits(need), self.plan.hot.get(name, 0)
        if copied is None:
            return _core.PagedRows(
                need.num_rows,
                file,
                reader,
                group_bits=bits,
                merge_gap=self.merge_gap,
                num_frames=room // ((need.row_bytes << bits) + costs.FRAME),
            )
        kept = room // (need.row_bytes << copied.group_bits)
        return _core.PagedRows.ordered(
            copied.order, file, copied.items, reader, kept, self.merge_gap
        )


def _group_bits(file: Need) -> int:
    # Edges do not stay, so that a window has those alone that it wants.
    return group_bits_of(_GROUP_BYTES if file.kind is Kind.EDGES else file.row_bytes, file.num_rows)


def group_bits_of(row_bytes: int, num_rows: int) -> int:
    """How many rows are kept or not together: several where they are items of a few bytes."""
    few = (_GROUP_BYTES // max(1, row_bytes)).bit_length() - 1 if row_bytes <= _ITEM_BYTES else 0
    return max(few, num_rows.bit_length() - _GROUP_BITS, 0)


def _reader() -> _core.DiskGather:
    """A reader with half of ``READER_BYTES``."""
    return _core.DiskGather(buffer_bytes=READER_BYTES // 2)


def _load(rows: _core.PagedRows, group: int) -> int:
    """Reads rows that stay in memory, from a group on; the group to go on with, -1 at the end.

    An error is left to the batch that needs the row.
    """
    try:
        return rows.load(group, _LOADED_ROWS)[0]
    except OSError:
        return -1


def _preload(files: weakref.ref[Residence]) -> None:
    """Reads neighbours that stay in memory, as long as another reference to the files lives.

    The thread ends with the main one: Python waits for it then. A daemon that is in the engine
    when the interpreter ends would abort the process.
    """
    now, main = files(), threading.main_thread()
    names = [] if now is None else list(now.topologies)
    for name in names:
        group = 0
        while group >= 0 and main.is_alive():
            now = files()
            if now is None:
                return
            group = _load(now.topologies[name], group)
            del now
            sleep(_PAUSE)


def page_topologies(
    contents: StoreContents, topologies: Sequence[_core.Topology]
) -> tuple[dict[str, _core.PagedRows], int]:
    """Neighbours of a store that walks read, where not all fit into its budget.

    Every edge is about as likely on a walk's way as any other, so it does not matter which ones are
    in memory.

    Returns:
        The rows by path of the topology; and how many bytes may be read at once.
    """
    sizes = {t.path: t.num_edges * t.index_bytes for t in topologies}
    tables = sum(8 * t.num_dst for t in topologies)
    left = contents.memory - private_rss() - tables - READER_BYTES
    if sum(sizes.values()) <= left:
        return {}, 0
    disk = probe(contents.path)
    window = min(max(left // 4, _LEAST_WALKED), _MOST_WALKED)
    reader = _reader()
    # Three windows: the neighbours that are read at once, and the walks that want them.
    share = max(0, left - 3 * window) / max(1, sum(sizes.values()))
    paged: dict[str, _core.PagedRows] = {}
    for topology in topologies:
        bits = group_bits_of(topology.index_bytes, topology.num_edges)
        paged[topology.path] = _core.PagedRows(
            topology.num_edges,
            _core.ColumnFile.of_indices(topology),
            reader,
            int(share * (topology.num_edges >> bits)),
            group_bits=bits,
            merge_gap=disk.merge_gap,
        )
        group = 0
        while group >= 0:
            group = _load(paged[topology.path], group)
    return paged, window
