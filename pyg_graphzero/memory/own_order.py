"""Rows that a store has once more, in the order of their use, because training was slow without.

Where rows do not fit into memory, where they lie decides how often the disk is asked: ``optimize``
puts those first that training uses most, and together those it uses together. Who trains on a store
as it was converted gets the same from a copy of the rows that training uses. While the first epoch
runs, a thread ranks them, from the topology alone, and copies them; the epoch goes on by the copy,
and later ones and later runs read there what is there. The batches are the same.

A copy is a directory named by all that it depends on: the files that it is of, and what a batch of
fixed seeds is. So it is found again by later runs that sample likewise, and by nobody else. It
appears complete or not at all.
"""

from __future__ import annotations

import logging
import shutil
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import xxhash
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.errors import FormatError
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.hot_rows import group_bits_of
from pyg_graphzero.memory.plan import FileSize, MemoryPlan, least_memory
from pyg_graphzero.memory.planner import first_batches, seconds_per_batch
from pyg_graphzero.memory.ranking import rank_bytes, rank_rows
from pyg_graphzero.memory.row_copy import (
    DOCUMENT,
    CopyOf,
    OwnOrder,
    Stopped,
    copy_folders,
    is_writable,
    places_of,
    ranks_of,
    remove_oldest,
    room_on_disk,
    sweep,
    write_copy,
)
from pyg_graphzero.memory.simulate import Case, Simulation, simulate
from pyg_graphzero.memory.source import BatchSource
from pyg_graphzero.sampling.base import Reading
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.util.system import return_freed_memory

log = logging.getLogger("pyg_graphzero")

# A copy is worth its making where an epoch reads for longer than this, in seconds, and would for
# less than this share of the time.
LEAST_SECONDS = 10.0
WORTH = 0.8
# Both times are of so many windows: a small difference decides nothing, and the first batch waits.
_WINDOWS = 2
# Before rows are copied, loaders have the disk for as long as so many batches take it.
_FIRST_BATCHES = 2
# Counting may take so much of what the disk takes for an epoch, in seconds at most; numbering rows
# by first touch takes about as long again. One thread does it: the others are the epoch's.
_RANK_SHARE, _RANK_SECONDS, _RANK_THREADS = 0.1, 15.0, 1
# Memory for each node while rows are copied: which they are, and where they go.
_COPY_BYTES = 8
# Of the memory that loaders leave, rows that wait for their order take this share; what is read at
# once, a part of them.
_SLAB_SHARE, _LEAST_SLAB, _MOST_SLAB = 1 / 16, 1 << 20, 64 << 20
# Places are numbers of 32 bits, of rows that were copied and of all.
_MOST_ROWS = 1 << 30
# Copies that a store may have.
_MOST_COPIES = 4


class OrderKeeper:
    """Finds a store's copy for a loader, or has one made.

    Args:
        contents: The store.

    Attributes:
        num_bytes: Memory that making one takes.
    """

    def __init__(self, contents: StoreContents) -> None:
        self._contents = contents
        self.num_bytes = 0
        self._making: _Making | None = None
        self._tried: set[str] = set()  # copies that were made, or not, once and for all
        self._awaited: Path | None = None  # another process writes it

    @property
    def thread(self) -> threading.Thread | None:
        """Ranks and copies rows, if some are or were."""
        return None if self._making is None else self._making.thread

    @property
    def is_making(self) -> bool:
        """Whether that is under way."""
        return self.thread is not None and self.thread.is_alive()

    @property
    def is_made(self) -> bool:
        """Whether that has come to an end, here or in another process, and changes something."""
        if self._awaited is not None:
            return (self._awaited / DOCUMENT).exists()
        making = self._making
        return making is not None and not making.thread.is_alive() and not making.is_needless

    def settle(self) -> None:
        """What was made is known from now on."""
        if self.is_made:
            self._making = self._awaited = None

    def find(self, case: Case, plan: MemoryPlan, files: Sequence[FileSize]) -> OwnOrder | None:
        """The copy that is there for batches like these, or None.

        Args:
            case: The batches.
            plan: For rows as they lie in the store.
            files: What loaders read from.
        """
        key = self._key_of(case, plan, files)
        if key is None:
            return None
        for folder in copy_folders(self._contents.path):
            if not (folder / key / DOCUMENT).exists():
                continue
            try:
                return OwnOrder.open(folder / key, self._contents)
            except (FormatError, OSError) as error:
                log.warning("%s: not used, and made anew: %s", folder / key, error)
                with suppress(OSError):
                    shutil.rmtree(folder / key)
        return None

    def make(
        self,
        case: Case,
        plan: MemoryPlan,
        files: Sequence[FileSize],
        loader: BatchSource,
        reading: Reading | None,
    ) -> None:
        """Has a copy made for batches like these, if it is worth it and was not tried before.

        Args:
            case: The batches.
            plan: For rows as they lie in the store.
            files: What loaders read from.
            loader: Whose batches they are.
            reading: Where it finds neighbours.
        """
        key = self._key_of(case, plan, files)
        if key is None or key in self._tried or self.is_making:
            return
        self._tried.add(key)
        try:
            folders = copy_folders(self._contents.path)
            self._make(case, plan, files, loader, reading, folders, key)
        except OSError as error:  # of a folder that cannot be written to after all
            log.warning("%s: rows are not put in order: %s", self._contents.path, error)

    def _key_of(self, case: Case, plan: MemoryPlan, files: Sequence[FileSize]) -> str | None:
        """Names the copy of what these batches read; None where there is to be none."""
        mine = candidates(files)
        is_read = any(file.name in plan.hot for file in mine)
        if self._contents.order_limit == 0 or not is_read or not case.profile.batches:
            return None
        return _key_of(self._contents, mine, case)

    def _make(
        self,
        case: Case,
        plan: MemoryPlan,
        files: Sequence[FileSize],
        loader: BatchSource,
        reading: Reading | None,
        folders: Sequence[Path],
        key: str,
    ) -> None:
        path, profile = self._contents.path, case.profile
        few = first_batches(case, plan, _WINDOWS)
        now = seconds_per_batch(case, simulate(few, plan, files))
        if now * profile.epoch < LEAST_SECONDS:
            return
        num_nodes = case.graph.node_types.values()
        room = plan.memory - plan.baseline - sum(plan.held.values())
        slab = min(max(int(_SLAB_SHARE * room), _LEAST_SLAB), _MOST_SLAB)
        tensors = [*profile.accesses.counts.values(), *(t for b in few.profile.batches for t in b)]
        # Each thread that samples has a batch under way and one that waits.
        ranking = sum(map(rank_bytes, num_nodes)) + sum(each.nbytes for each in tensors)
        ranking += 2 * _RANK_THREADS * profile.accesses.sampling_bytes
        # Beside the slab there are pieces of it on their way.
        self.num_bytes = max(ranking, _COPY_BYTES * sum(num_nodes) + slab + slab // 2)
        least = least_memory(files, plan.baseline + self.num_bytes, case.batch)
        if self.num_bytes > room or least > plan.memory:
            log.info("%s: rows are not put in order, no memory to do it in", path)
            return
        folder = next((f for f in folders if is_writable(f)), None)
        if folder is None:
            log.info("%s: rows are not put in order, nowhere to write them to", path)
            return
        sweep(folder)
        if any(folder.glob(f".{key}.partial-*")):
            self._awaited = folder / key
            return
        beside = replace(case, baseline=case.baseline + self.num_bytes)
        plans = (beside.divide(plan.memory, files), plan)
        asked = _Asked(few, plans, files, loader, reading, now, slab)
        self._making = _Making(asked, folder / key, self._contents.order_limit)
        weakref.finalize(self, self._making.end)  # at exit, too


@dataclass
class _Asked:
    """What is to be ranked.

    Attributes:
        case: Some batches.
        plans: For rows as they lie: beside the ranking, and without.
        files: What loaders read from.
        loader: Whose batches they are.
        reading: Where it finds neighbours.
        seconds: What the disk takes for one of them as rows lie.
        slab: Bytes of rows that wait for their order in memory.
    """

    case: Case
    plans: tuple[MemoryPlan, MemoryPlan]
    files: Sequence[FileSize]
    loader: BatchSource
    reading: Reading | None
    seconds: float
    slab: int


class _Making:
    """A thread that ranks rows, and copies them if that is worth it.

    Args:
        asked: Which rows. They are forgotten when they are ranked: the loader and its store, too.
        target: The directory of the copy.
        limit: Of its bytes, or None.

    Attributes:
        thread: The thread.
        is_needless: All rows that are used stay in memory where they lie, also beside this.
    """

    def __init__(self, asked: _Asked, target: Path, limit: int | None) -> None:
        self.is_needless = False
        self._target = target
        self._limit = limit
        self._stop = threading.Event()
        self._begun = perf_counter()
        self.thread = threading.Thread(
            target=self._run, args=([asked],), daemon=True, name="graphzero-order"
        )
        self.thread.start()

    def end(self) -> None:
        """Stops it, and waits for that."""
        self._stop.set()
        if self.thread is not threading.current_thread():  # which may be the last to know the store
            self.thread.join()

    def _run(self, asked: list[_Asked]) -> None:
        try:
            slab = asked[0].slab
            parts, wait, rest = self._rank(asked.pop())
            return_freed_memory()
            if not parts or self._stop.wait(wait - (perf_counter() - self._begun)):
                return
            remove_oldest(self._target.parent, _MOST_COPIES - 1)
            self._target.parent.mkdir(parents=True, exist_ok=True)
            write_copy(self._target, parts, slab, self._stop, rest)
        except Stopped:
            pass
        except OSError as error:
            log.warning("%s: rows are not put in order: %s", self._target, error)
        except Exception:  # of a thread that nobody waits for
            log.exception("%s: rows are not put in order", self._target)
        else:
            log.info(
                "%s: %s rows in the order of their use, made in %.0f s",
                self._target,
                f"{sum(part.order.numel() for part in parts):,}",
                perf_counter() - self._begun,
            )

    def _rank(self, asked: _Asked) -> tuple[list[CopyOf], float, float]:
        """What to copy, if anything; when to begin; and how long to rest, see ``write_copy``."""
        case, files, now = asked.case, asked.files, asked.seconds
        contents, mine = case.contents, candidates(files)

        def check() -> None:
            if self._stop.is_set():
                raise Stopped

        seconds = min(_RANK_SHARE * now * case.profile.epoch, _RANK_SECONDS)
        _, ranked = rank_rows(
            asked.loader, seconds=seconds, num_threads=_RANK_THREADS, reading=asked.reading,
            each=check,
        )  # fmt: skip
        orders = {name: rows.order[: rows.used].clone() for name, rows in ranked}
        for is_needless, plan in zip((True, False), asked.plans, strict=True):
            if _all_stay(contents, orders, plan, mine):
                self.is_needless = is_needless
                log.info("%s: rows are not put in order, all that are used stay", contents.path)
                return [], 0.0, 0.0
        memory = asked.plans[0].memory
        then = seconds_per_batch(case, _simulate_ordered(case, memory, files, orders))
        if then > WORTH * now:
            log.info(
                "%s: rows are not put in order, %.3g s a batch not %.3g", contents.path, then, now
            )
            return [], 0.0, 0.0
        parts = []
        left = room_on_disk(self._target.parent, self._limit)
        for name, order in orders.items():
            columns = {f.name: contents.column(f.name) for f in _files_of(contents, name, mine)}
            width = sum(column.row_bytes for column in columns.values())
            if width > 0 and order.numel() > 0:
                rows = order[: left // (2 * width)].clone()
                left -= 2 * width * rows.numel()
                is_whole = rows.numel() == order.numel()
                parts.append(CopyOf(name, case.graph.node_types[name], rows, columns, is_whole))
        parts = [part for part in parts if part.order.numel() > 0]
        if not parts:
            log.info("%s: rows are not put in order, the disk is full", contents.path)
        # The first batch has the disk for itself. Then copying leaves it the less to loaders, the
        # more they gain by what is copied: each second of theirs is worth so many of later ones.
        return parts, _FIRST_BATCHES * now, min(1.0, then / max(now, then))


def _files_of(
    contents: StoreContents, node_type: str | None, files: Sequence[FileSize]
) -> list[FileSize]:
    """Those of a node type's attributes."""
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


def _key_of(contents: StoreContents, mine: Sequence[FileSize], case: Case) -> str:
    """Names what a copy depends on: files, and how is sampled."""
    found = xxhash.xxh3_128()
    names = [file.name for file in mine] + [t.topology for t in contents.schema.edge_types]
    for name in names:
        record = contents.schema.files.get(name) or contents.schema.adopted.get(name)
        found.update(f"{name} {record!r}\n".encode())
    for rows in case.profile.batches[0]:
        found.update(rows.numpy().data)
    found.update(str(case.profile.epoch).encode())
    return found.hexdigest()


def _simulate_ordered(
    case: Case, memory: int, files: Sequence[FileSize], orders: Mapping[str | None, Tensor]
) -> Simulation:
    """What would be read with rows in these orders, by the plan that there would be for that."""
    graph, names = case.graph, {file.name for file in candidates(files)}
    ordered = [replace(file, is_ranked=file.is_ranked or file.name in names) for file in files]
    for name, order in orders.items():
        table = _core.RowOrder.num_bytes(graph.node_types[name], order.numel())
        ordered.append(FileSize(f"places {name}", table, 1, "indptr"))
    plan = case.divide(memory, ordered)
    places = {name: places_of(each, graph.node_types[name]) for name, each in orders.items()}
    few = first_batches(case, plan, _WINDOWS)
    return simulate(few, plan, ordered, ranks_of(places, graph))
