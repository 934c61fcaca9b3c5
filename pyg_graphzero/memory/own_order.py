"""Rows that a store has once more, in the order of their use, because training was slow without.

Where rows do not fit into memory, their places decide how often the disk is asked. A copy has the
rows that training uses: those that it uses most first, and rows together that it uses together.
``optimize`` makes it in the foreground. Else, while the first epoch runs, a thread ranks rows, from
the topology alone, and copies them; the epoch goes on by the copy, and later epochs and runs read
copied rows from there. Batches do not change. Where neighbours are read, too, the first epoch's own
batches say how rows are used, and rows are copied behind it.

A copy is a directory named by all that it depends on: the files that it is of, and a batch of fixed
seeds. So only later runs that sample in this way find it again. It appears complete or not at all.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import xxhash
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.errors import FormatError
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.hot_rows import group_bits_of
from pyg_graphzero.memory.plan import FileSize, MemoryPlan
from pyg_graphzero.memory.planner import first_batches, seconds_per_batch
from pyg_graphzero.memory.profile import AccessCounts, Profile
from pyg_graphzero.memory.ranking import (
    EPOCHS,
    RankedRows,
    count_accesses,
    hot_above,
    rank_bytes,
    rank_rows,
)
from pyg_graphzero.memory.row_copy import (
    WITH_SLAB,
    CopyOf,
    OwnOrder,
    is_writable,
    places_file,
    ranks_of,
    room_on_disk,
    write_copy,
)
from pyg_graphzero.memory.simulate import Case, Ranks, simulate
from pyg_graphzero.memory.source import BatchSource
from pyg_graphzero.sampling.base import Reading
from pyg_graphzero.sampling.graph import SampledGraph
from pyg_graphzero.store.columns import engine_array
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.copies import DOCUMENT, CopyFolder, usable_folders

log = logging.getLogger("pyg_graphzero")

# A copy is worth its making where an epoch reads for longer than this, in seconds, and would for
# less than this share of the time.
LEAST_SECONDS = 5.0
WORTH = 0.8
# Windows that both times are simulated for: a small difference decides nothing, and the first batch
# waits.
_WINDOWS = 2
# Before rows are copied, loaders have the disk for as long as this many batches take it.
_FIRST_BATCHES = 2
# Counting may take this share of the disk's time for an epoch, and at most these seconds; numbering
# rows by first touch takes about as long again. One thread does it: the others are the epoch's.
_RANK_SHARE, _RANK_SECONDS = 0.1, 15.0
# Rows that wait for their order take this share of the memory that loaders leave: more is hardly
# faster.
_SLAB_SHARE, _LEAST_SLAB, _MOST_SLAB = 1 / 64, 1 << 20, 16 << 20
# Memory is set aside to rank all rows in, or as much as there is, but for this share of them.
_LEAST_USED = 0.25
# Rows that are first met when they are listed, as a share of those that were counted before.
_MORE_USED = 0.2
# Places are numbers of 32 bits, of rows that were copied and of all.
_MOST_ROWS = 1 << 30
# Copies that a store may have.
_MOST_COPIES = 4


@dataclass(frozen=True)
class CopyTarget:
    """Where a copy is to be.

    Attributes:
        folder: The directory of all copies of the store.
        key: Its name in there.
    """

    folder: CopyFolder
    key: str

    @classmethod
    def new(cls, store: Path, key: str) -> CopyTarget | None:
        """A copy in the first folder that can be written to; None where there is none."""
        for folder in usable_folders(store):
            # A file or folder of this name that find() did not open could not be removed.
            if is_writable(folder.path) and not os.path.lexists(folder.path / key):
                return cls(folder, key)
        return None

    @property
    def path(self) -> Path:
        """Its directory."""
        return self.folder.path / self.key

    @property
    def is_there(self) -> bool:
        """Whether there is one now."""
        return (self.path / DOCUMENT).exists()

    @property
    def is_begun(self) -> bool:
        """Whether a living process writes one."""
        return self.key in self.folder.sweep()


class OrderKeeper:
    """Finds a store's copy for a loader, or says where one is to be made."""

    def __init__(self) -> None:
        self._tried: set[str] = set()  # copies that were made, or not, once and for all
        self._awaited: CopyTarget | None = None  # another process writes it

    @property
    def is_settled(self) -> bool:
        """Whether another process has made the copy that it was making, or has died."""
        awaited = self._awaited
        return awaited is not None and (awaited.is_there or not awaited.is_begun)

    def settle(self) -> bool:
        """Stops waiting for another process's copy, once :attr:`is_settled`.

        Returns:
            Whether that process has died, so that the copy is left to this one.
        """
        awaited = self._awaited
        if awaited is None or not self.is_settled:
            return False
        self._awaited = None
        if not awaited.is_there:
            self._tried.discard(awaited.key)
        return not awaited.is_there

    def find(self, case: Case, plan: MemoryPlan, files: Sequence[FileSize]) -> OwnOrder | None:
        """The copy that is there for batches like these, or None.

        Args:
            case: The batches.
            plan: Memory plan for rows as they lie in the store.
            files: Files that loaders read from.
        """
        if _key_of(case, plan, files) is None:
            return None
        return find_copy(case.contents, case.graph, case.profile, files)

    def is_wanted(self, case: Case, plan: MemoryPlan, files: Sequence[FileSize]) -> bool:
        """Whether batches like these need a copy, and this process has not tried to make it.

        Args:
            case: The batches.
            plan: Memory plan for rows as they lie in the store.
            files: Files that loaders read from.
        """
        key = _key_of(case, plan, files)
        return key is not None and key not in self._tried

    def target(self, case: Case, plan: MemoryPlan, files: Sequence[FileSize]) -> CopyTarget | None:
        """Where a copy for batches like these is to be made; None where none is, or was tried.

        Args:
            case: The batches.
            plan: Memory plan for rows as they lie in the store.
            files: Files that loaders read from.
        """
        key = _key_of(case, plan, files)
        if key is None or key in self._tried:
            return None
        self._tried.add(key)
        store = case.contents.path
        try:
            target = CopyTarget.new(store, key)
            if target is None:
                leave_out(case.contents, "nowhere to write them to")
            elif target.is_begun:
                self._awaited = target
                return None
        except OSError as error:  # of a folder that cannot be written to after all
            log.warning("%s: rows are not put in order: %s", store, error)
            return None
        return target


def leave_out(contents: StoreContents, why: str) -> Ranked:
    """Says why rows are not put in order."""
    log.info("%s: rows are not put in order: %s", contents.path, why)
    return Ranked()


def no_room(contents: StoreContents, expected: int, found: int) -> Ranked:
    """Says that there is no memory to do it in."""
    found = max(0, found)
    why = f"that takes {expected / 1e6:.0f} MB, and there are {found / 1e6:.0f} beside batches"
    return leave_out(contents, why)


def making_bytes(graph: SampledGraph, room: int, most_used: float = 1.0) -> tuple[int, int]:
    """Memory that ranking and copying rows takes, beside the batches of the case and their counts.

    Args:
        graph: The graph.
        room: Bytes that loaders leave for rows.
        most_used: Share of the rows that batches may use.

    Returns:
        (minimum, sufficient) bytes: the least that is worth a try, and enough for ``most_used``.
    """
    slab = min(max(int(_SLAB_SHARE * room), _LEAST_SLAB), _MOST_SLAB)
    few, most = (
        [(n, share * n, share * n) for n in graph.node_types.values()]
        for share in (_LEAST_USED, most_used)
    )
    return _making(few, _LEAST_SLAB), _making(most, slab)


def _making(types: Iterable[tuple[int, float, float]], slab: int) -> int:
    """Bytes for ``(num_nodes, used, hot)`` rows of each type, and a slab of this size."""
    total = int(WITH_SLAB * slab)
    for num_nodes, used, hot in types:
        places = _core.RowOrder.num_bytes(num_nodes, int(used))
        listed = rank_bytes(num_nodes, int(used), 0)
        total += max(rank_bytes(num_nodes, int(used), int(hot)), listed + places)
    return total


@dataclass
class Ranked:
    """Rows to copy.

    Attributes:
        parts: The rows; empty where copying is not worth it.
        wait: Seconds for which loaders have the disk before rows are copied.
        slab: See :func:`~pyg_graphzero.memory.row_copy.write_copy`.
        rest: See :func:`~pyg_graphzero.memory.row_copy.write_copy`.
        all_stay: All used rows stay in memory from where they lie, also beside the ranking.
    """

    parts: list[CopyOf] = field(default_factory=list)
    wait: float = 0.0
    slab: int = _LEAST_SLAB
    rest: float = 1.0
    all_stay: bool = False


class Ranking(Protocol):
    """Finds out how rows are used: by more batches, or by those of an epoch.

    :class:`Sampling` and :class:`~pyg_graphzero.memory.watch.Watch` do.
    """

    def count(self, case: Case, seconds: float) -> tuple[AccessCounts, int]:
        """How many batches have each row, and above how many it is hot.

        Args:
            case: Some batches.
            seconds: Time that counting may take.
        """

    def rank(self, counted: AccessCounts) -> Mapping[str | None, RankedRows]:
        """The order of the rows of each node type, by these counts."""


@dataclass
class Sampling:
    """Samples as a loader does, to find out how rows are used.

    Attributes:
        loader: The loader.
        reading: Where it finds neighbours, see ``GraphSampler.recipe``.
        check: Called now and then; raises what is to end this.
    """

    loader: BatchSource
    reading: Reading | None
    check: Callable[[], None]

    def count(self, case: Case, seconds: float) -> tuple[AccessCounts, int]:
        """See :class:`Ranking`."""
        counted = case.profile.accesses
        count_accesses(self.loader, epochs=EPOCHS, seconds=seconds, found=counted, **self._how)
        return counted, hot_above(self.loader, counted)

    def rank(self, counted: AccessCounts) -> Mapping[str | None, RankedRows]:
        """See :class:`Ranking`."""
        return rank_rows(self.loader, counted, **self._how)

    @property
    def _how(self) -> dict[str, Any]:
        return {"num_threads": 1, "reading": self.reading, "each": self.check}


def rank_to_copy(
    case: Case,
    files: Sequence[FileSize],
    plans: tuple[MemoryPlan, MemoryPlan],
    ranking: Ranking,
    target: CopyTarget,
    room: int,
    check: Callable[[], None],
) -> Ranked:
    """Ranks rows for a loader, if that may be worth it, and says which to copy.

    Args:
        case: Some of its batches.
        files: Files that it reads from.
        plans: Memory plans for rows as they lie: beside the ranking, and without it.
        ranking: Finds out how its batches use rows.
        target: Where the copy is to be.
        room: Bytes that ranking and copying may take.
        check: Called now and then; raises what is to end this.
    """
    contents, mine = case.contents, candidates(files)
    few = first_batches(case, plans[1], _WINDOWS)
    now = seconds_per_batch(case, simulate(few, plans[1], files))
    if now * case.profile.epoch < LEAST_SECONDS:
        return leave_out(contents, f"an epoch reads for {now * case.profile.epoch:.2g} s")
    check()
    seconds = min(_RANK_SHARE * now * case.profile.epoch, _RANK_SECONDS)
    counted, hot = ranking.count(case, seconds)
    types = [
        (len(counts), (1 + _MORE_USED) * int((counts > 0).sum()), int((counts > hot).sum()))
        for counts in counted.counts.values()
    ]
    needed = _making(types, _LEAST_SLAB)
    if needed > room:
        return no_room(contents, needed, room)
    ranked = ranking.rank(counted)
    orders = {n: rows.order for n, rows in ranked.items() if _files_of(contents, n, mine)}
    for is_beside, plan in zip((True, False), plans, strict=True):
        if _all_stay(contents, orders, plan, mine):
            return replace(leave_out(contents, "all that are used stay"), all_stay=is_beside)
    check()
    memory = plans[0].memory
    ordered, ranks = with_copy(case.graph, files, orders)
    plan = case.divide(memory, ordered)
    few = first_batches(case, plan, _WINDOWS)
    then = seconds_per_batch(case, simulate(few, plan, ordered, ranks))
    if then > WORTH * now:
        return leave_out(contents, f"a batch takes {now:.3g} s to read, and would take {then:.3g}")
    left = room_on_disk(target.folder.path, contents.order_limit)
    parts = copies_of(contents, case.graph, mine, orders, left)
    if not parts:
        return leave_out(contents, "the disk is full")
    taken = _making([(part.num_nodes, part.order.numel(), 0) for part in parts], 0)
    slab = min(max(int((room - taken) / WITH_SLAB), _LEAST_SLAB), _MOST_SLAB)
    # The first batches have the disk for themselves. Then copying leaves it the less to loaders,
    # the more they gain by it: a second of theirs now is worth then / now seconds with the copy.
    return Ranked(parts, _FIRST_BATCHES * now, slab, min(1.0, then / max(now, then)))


def make_copy(
    target: CopyTarget,
    ranked: Ranked,
    stop: threading.Event,
    each: Callable[[int], object] = lambda num_bytes: None,
) -> None:
    """Copies rows; ``each`` is told how many bytes were written.

    Raises:
        Stopped: ``stop`` was set.
        FormatError: The folder of copies is reached by a link by now, or is another user's.
        OSError: The disk is full, or cannot be read.
    """
    begun = perf_counter()
    target.folder.make()
    target.folder.remove_oldest(_MOST_COPIES - 1)
    write_copy(target.path, ranked.parts, ranked.slab, stop, ranked.rest, each)
    target.folder.sweep()
    rows = sum(part.order.numel() for part in ranked.parts)
    log.info(
        "%s: %s rows in the order of their use, copied in %.0f s",
        target.path, f"{rows:,}", perf_counter() - begun,
    )  # fmt: skip


def _files_of(
    contents: StoreContents, node_type: str | None, files: Sequence[FileSize]
) -> list[FileSize]:
    """Files of a node type's attributes."""
    record = contents.schema.node_type(node_type)
    attrs = set() if record is None else set(record.attrs.values())
    return [file for file in files if file.name in attrs]


def _all_stay(
    contents: StoreContents,
    orders: Mapping[str | None, Tensor],
    plan: MemoryPlan,
    files: Sequence[FileSize],
) -> bool:
    """Whether there is room for all rows that are used where they lie now."""
    return all(
        group_bits_of(file.row_bytes, file.num_rows) == 0
        and order.numel() * (file.row_bytes + costs.FRAME) <= plan.hot[file.name]
        for name, order in orders.items()
        for file in _files_of(contents, name, files)
        if file.name in plan.hot
    )


def candidates(files: Sequence[FileSize]) -> list[FileSize]:
    """Files whose rows may be copied."""
    return [
        f
        for f in files
        if f.kind == "node"
        and not f.is_ranked
        and f.row_bytes > costs.SMALL_ROW
        and f.num_rows < _MOST_ROWS
    ]


def _key_of(case: Case, plan: MemoryPlan, files: Sequence[FileSize]) -> str | None:
    """The copy's name; None: no copy."""
    is_read = any(file.name in plan.hot for file in candidates(files))
    if case.contents.order_limit == 0 or not is_read or not case.profile.batches:
        return None
    return copy_key(case.contents, case.graph, case.profile, files)


def copy_key(
    contents: StoreContents, graph: SampledGraph, found: Profile, files: Sequence[FileSize]
) -> str:
    """A copy's name, from the files that batches read and how they are sampled.

    Args:
        contents: The store.
        graph: The graph that is sampled.
        found: One batch of the loader, or more: the first one counts.
        files: Files that the loader reads from.
    """
    key = xxhash.xxh3_128()
    names = [file.name for file in candidates(files)]
    for name in names + [t.topology for t in contents.schema.edge_types]:
        record = contents.schema.files.get(name) or contents.schema.adopted.get(name)
        key.update(f"{name} {record!r}\n".encode())
    for rows in found.batches[0][: len(graph.node_types)]:
        key.update(rows.numpy().data)
    key.update(str(found.epoch).encode())
    return key.hexdigest()


def find_copy(
    contents: StoreContents, graph: SampledGraph, found: Profile, files: Sequence[FileSize]
) -> OwnOrder | None:
    """The copy of rows for a loader, opened; None where there is none. See :func:`copy_key`."""
    key = copy_key(contents, graph, found, files)
    for folder in usable_folders(contents.path):
        folder.sweep()
        path = folder.find(key)
        if path is None:
            continue
        try:
            return OwnOrder.open(path, contents)
        except (FormatError, OSError) as error:
            log.warning("%s: not used, and made anew: %s", path, error)
            with suppress(FormatError, OSError):
                folder.remove(key)
    return None


def with_copy(
    graph: SampledGraph, files: Sequence[FileSize], orders: Mapping[str | None, Tensor]
) -> tuple[list[FileSize], Ranks]:
    """Files that loaders would read from with rows copied in these orders, and where rows lie."""
    names = {file.name for file in candidates(files)}
    ordered = [replace(file, is_ranked=file.is_ranked or file.name in names) for file in files]
    places = {
        name: _core.RowOrder(engine_array(order), graph.node_types[name])
        for name, order in orders.items()
    }
    ordered += [places_file(name, order) for name, order in places.items()]
    return ordered, ranks_of(places, graph)


def copies_of(
    contents: StoreContents,
    graph: SampledGraph,
    files: Sequence[FileSize],
    orders: Mapping[str | None, Tensor],
    room: int,
) -> list[CopyOf]:
    """Rows to copy, in these orders, in ``room`` bytes of disk with those that wait meanwhile."""
    parts = []
    for name, order in orders.items():
        columns = {f.name: contents.column(f.name) for f in _files_of(contents, name, files)}
        width = max(1, sum(column.row_bytes for column in columns.values()))
        rows = order[: room // (2 * width)]
        if columns and rows.numel() > 0:
            room -= 2 * width * rows.numel()
            is_whole = rows.numel() == order.numel()
            parts.append(CopyOf(name, graph.node_types[name], rows, columns, is_whole))
    return parts
