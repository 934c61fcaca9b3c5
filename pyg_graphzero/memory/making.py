"""Which rows and neighbour lists of a store are copied in the order of their use, and when.

Where rows do not fit into memory, their places decide how often the disk is asked. A copy has the
rows that training uses: those that it uses most first, and rows together that it uses together.
Where rows and neighbours compete for memory it has the neighbours that batches draw from, too.
``optimize`` makes it; else a loader does, before the first batch that would be slow without.
Batches do not change.

A copy is a directory named by all that it depends on: the files that it is of, and a batch of fixed
seeds. So only later runs that sample in this way find it again. It appears complete or not at all.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import ceil
from pathlib import Path
from time import perf_counter

import xxhash

from pyg_graphzero import _core
from pyg_graphzero.errors import FormatError
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.needs import TOPOLOGY, Kind, Need, Needs, owners_of
from pyg_graphzero.memory.plan import MemoryPlan
from pyg_graphzero.memory.ranking import RankedRows, hot_above, rank_lists, uses_of
from pyg_graphzero.memory.usage import Usage
from pyg_graphzero.memory.used_copy import UsedCopy
from pyg_graphzero.sampling.graph import SampledGraph
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.copies import (
    GROUP_BITS,
    CopyFolder,
    is_writable,
    room_on_disk,
    usable_folders,
)
from pyg_graphzero.store.copy_writer import WITH_SLAB, CopyOf, Rows, write_copy
from pyg_graphzero.util.disk import DiskSpeed

log = logging.getLogger("pyg_graphzero")

# A copy is worth its making where an epoch reads for longer than LEAST_SECONDS, and WORTH times as
# long as its files take to read and write once.
LEAST_SECONDS = 1.5
WORTH = 1.0
# Counting may take this share of the disk's time for an epoch, or some seconds; numbering rows by
# first touch takes about as long again.
_RANK_SHARE, _LEAST_RANKING = 0.1, 5.0
# Rows that wait for their order.
_LEAST_SLAB, _MOST_SLAB = 1 << 20, 64 << 20
# The copy of larger files is told of at a level that users see.
_TOLD = 1 << 30
# Places are numbers of 32 bits, of rows that were copied and of all.
_MOST_ROWS = 1 << 30
# Copies that a store may have.
_MOST_COPIES = 4


class NoCopy(Exception):
    """No copy is made, and the message says why.

    Attributes:
        level: The level of the log at which that is told.
    """

    def __init__(self, why: str, level: int = logging.WARNING) -> None:
        super().__init__(why)
        self.level = level


def copy_key(contents: StoreContents, needs: Needs) -> str | None:
    """A copy's name, from the files that batches read and how they are sampled.

    None where there are no seeds, or no rows to copy, and where copies are forbidden.
    """
    names = [file.name for file in candidates(needs)]
    if not names or not needs.trial or contents.row_cache_limit == 0:
        return None
    key = xxhash.xxh3_128()
    for name in names + [t.topology for t in contents.schema.edge_types]:
        record = contents.schema.files.get(name) or contents.schema.adopted.get(name)
        key.update(f"{name} {record!r}\n".encode())
    for rows in needs.trial:
        key.update(rows.numpy().data)
    key.update(str(needs.seeds).encode())
    return key.hexdigest()


def candidates(needs: Needs) -> list[Need]:
    """Files whose rows may be copied."""
    return [
        file
        for file in needs.of(Kind.ROWS)
        if file.row_bytes > costs.SMALL_ROW and file.num_rows < _MOST_ROWS
    ]


def find_copy(contents: StoreContents, key: str) -> UsedCopy | None:
    """The copy of this name, opened; None where there is none."""
    for folder in usable_folders(contents.path):
        folder.sweep()
        path = folder.find(key)
        if path is None:
            continue
        try:
            return UsedCopy.open(path, contents)
        except (FormatError, OSError) as error:
            if not path.exists():  # another process removes or replaces it
                continue
            log.warning("%s: not used, and made anew: %s", path, error)
            with suppress(FormatError, OSError):
                folder.remove(key)
    return None


def folder_for(store: Path, key: str) -> CopyFolder | None:
    """The first folder in which a copy can be made; None where there is none."""
    for folder in usable_folders(store):
        # A file or folder of this name that find() did not open could not be removed.
        if is_writable(folder.path) and not os.path.lexists(folder.path / key):
            return folder
    return None


def is_being_made(store: Path, key: str) -> bool:
    """Whether another process writes this copy."""
    return any(key in folder.sweep() for folder in usable_folders(store))


def seconds_of_epoch(needs: Needs, graph: SampledGraph, plan: MemoryPlan, disk: DiskSpeed) -> float:
    """Seconds of the disk for the rows of an epoch: each alone, or a file whole a window."""
    assert graph.contents is not None
    owners = owners_of(graph.contents)
    types = dict(zip(graph.node_types, needs.trial, strict=True))
    windows = needs.epoch / plan.window_of(needs.epoch)
    seconds = 0.0
    for file in candidates(needs):
        if file.name in plan.hot:
            missing = 1 - min(1.0, plan.hot[file.name] / max(1, file.num_bytes))
            reads = missing * types[owners[file.name]].numel() * needs.epoch
            whole = windows * file.num_bytes / disk.bytes_per_second
            seconds += min(disk.seconds(reads, reads * file.row_bytes), whole)
    return seconds


def is_worth_copying(needs: Needs, seconds: float, disk: DiskSpeed) -> bool:
    """Whether an epoch that reads for some seconds gains more by a copy than its making takes."""
    making = 2 * sum(file.num_bytes for file in candidates(needs)) / disk.bytes_per_second
    return seconds >= max(LEAST_SECONDS, WORTH * making)


def rank_seconds(epoch: float) -> float:
    """Seconds that counting uses may take, by those that the disk takes for an epoch."""
    return max(_LEAST_RANKING, _RANK_SHARE * epoch)


def making_bytes(graph: SampledGraph, lists: bool) -> int:
    """Memory that a copy's making takes, whichever share of the nodes and neighbours is used.

    Rows are ranked by counts in two bytes, a list of numbers and a bit each. Groups of neighbours
    are all sorted, which takes as much as their list.

    Args:
        graph: The graph.
        lists: Neighbours are copied, too.
    """
    ranking, copying = 0, int(WITH_SLAB * _LEAST_SLAB)
    for count in graph.node_types.values():
        ranking += (8 if lists else 6) * count + count // 8
        copying += 4 * count + _core.RowOrder.num_bytes(count, count)
    for name in filter(graph.on_disk, graph.edge_types if lists else ()):
        assert graph.contents is not None
        groups = graph.contents.topology(name).num_edges >> GROUP_BITS
        ranking += 10 * groups + groups // 8
        copying += 4 * groups + _core.RowOrder.num_bytes(groups, groups)
    return max(ranking, copying)


def sampling_bytes(needs: Needs) -> int:
    """Memory that sampling takes while all neighbours are in memory, and no rows are read."""
    held = sum(file.least_bytes for kind in TOPOLOGY for file in needs.of(kind))
    return held + (_core.num_threads(0) + 1) * needs.batch.sampling


def check_room(contents: StoreContents, needed: int) -> None:
    """Refuses a copy for which a process needs more than its budget.

    Raises:
        NoCopy: Names the budget that would do.
    """
    if needed > contents.memory:
        memory = ceil(contents.processes * needed / 1e6)
        raise NoCopy(f"that takes memory={memory}MB or more")


def copies_of(
    contents: StoreContents, graph: SampledGraph, needs: Needs, usage: Usage
) -> list[CopyOf]:
    """Rows and groups of neighbours to copy, in the order of their use."""
    hot, parts = hot_above(usage.epochs), []
    owners, files = owners_of(contents), [file.name for file in candidates(needs)]
    for name, counts in usage.counts.items():
        rows = usage.ranked.get(name) or RankedRows(len(counts))
        columns = [file for file in files if owners[file] == name]
        rows.rank(counts, hot)
        if columns and rows.used > 0:
            sources = {file: Rows.of_column(contents.column(file)) for file in columns}
            parts.append(CopyOf(name, rows.order, uses_of(counts, rows.order, hot), sources))
    for edge_type in filter(graph.on_disk, graph.edge_types if usage.expanded else ()):
        topology = contents.topology(edge_type)
        if not 0 < topology.num_edges >> GROUP_BITS < _MOST_ROWS:
            continue
        expanded = usage.expanded[graph.ends(edge_type)[1]]
        order, uses = rank_lists(partial(contents.bounds, edge_type), expanded, topology.num_edges)
        file = contents.edge_type(edge_type).topology
        if order.numel() > 0:
            parts.append(CopyOf(None, order, uses, {file: Rows.of_neighbours(topology)}, file))
    return parts


def within(parts: list[CopyOf], room: int) -> list[CopyOf]:
    """The first rows of each part, in ``room`` bytes of disk with those that wait meanwhile."""
    found = []
    for part in parts:
        each = 2 * part.num_bytes // part.order.numel()
        part = part.first(room // each)
        if part.order.numel() > 0:
            room -= 2 * part.num_bytes
            found.append(part)
    return found


def make_copy(
    folder: CopyFolder,
    key: str,
    parts: list[CopyOf],
    room: int,
    each: Callable[[int], object] = lambda num_bytes: None,
    most_slab: int = _MOST_SLAB,
) -> None:
    """Writes a copy; ``each`` is told how many bytes were written, ``room`` is of memory.

    Raises:
        FormatError: The folder of copies is reached by a link by now, or is another user's.
        OSError: The disk is full, or cannot be read.
    """
    folder.make()
    folder.remove_oldest(_MOST_COPIES - 1)
    slab = min(max(int(room / WITH_SLAB), _LEAST_SLAB), most_slab)
    write_copy(folder.path / key, parts, slab, each)
    folder.sweep()


def copy_used(
    contents: StoreContents,
    graph: SampledGraph,
    needs: Needs,
    folder: CopyFolder,
    key: str,
    usage: Callable[[], Usage],
    room: int,
    lists: bool,
) -> UsedCopy:
    """Finds out what a loader uses, and copies it; the log says that batches wait for it.

    Args:
        contents: The store.
        graph: The graph that is sampled.
        needs: Needs of the loader.
        folder: Where the copy is to be.
        key: Name of the copy.
        usage: Finds out how batches use rows.
        room: Bytes of memory that this may take.
        lists: Copy neighbours, too.

    Raises:
        NoCopy: The disk is full, or there is too little memory.
        FormatError: See :func:`make_copy`.
        OSError: See :func:`make_copy`.
    """
    check_room(contents, contents.memory + making_bytes(graph, lists) - room)
    path, begun = folder.path / key, perf_counter()
    num_bytes = sum(file.num_bytes for file in candidates(needs))
    log.log(
        logging.WARNING if num_bytes >= _TOLD else logging.INFO,
        "%s: what training uses of %.1f GB is found and copied in the order of its use, once; "
        "batches wait meanwhile (gz.open(row_cache=False) stops this)",
        path, num_bytes / 1e9,
    )  # fmt: skip
    parts = copies_of(contents, graph, needs, usage())
    room -= sum(part.order.nbytes for part in parts)
    parts = within(parts, room_on_disk(folder.path, contents.row_cache_limit))
    if not parts:
        raise NoCopy("the disk is full")
    make_copy(folder, key, parts, room)
    num_bytes, seconds = sum(part.num_bytes for part in parts), perf_counter() - begun
    log.info("%s: %.1f GB, made in %.0f s", path, num_bytes / 1e9, seconds)
    return UsedCopy.open(path, contents)
