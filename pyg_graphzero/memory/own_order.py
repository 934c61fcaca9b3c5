"""Rows that a store has once more, in the order of their use, because training was slow without.

Where rows do not fit into memory, where they lie decides how often the disk is asked: ``optimize``
puts those first that training uses most, and together those it uses together. Who trains on a store
as it was converted gets the same from a copy of the rows that training uses. They are ranked before
the first epoch, from the topology alone; then a thread copies them while the first epoch runs, and
later epochs read there what is there. The batches are the same.

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
from dataclasses import replace
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
from pyg_graphzero.memory.ranking import rank_rows
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
# by first touch takes about as long again.
_RANK_SHARE, _RANK_SECONDS = 0.05, 15.0
# Memory for each node while its row is ranked: counts, numbers, and what sorts them. Then while
# rows are copied: which they are, and where they go.
_RANK_BYTES, _COPY_BYTES = 28, 8
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
        thread: Copies rows, if some are copied.
        num_bytes: Memory that this takes.
    """

    def __init__(self, contents: StoreContents) -> None:
        self._contents = contents
        self.thread: threading.Thread | None = None
        self.num_bytes = 0
        self._tried: set[str] = set()  # copies that were made, or not, once and for all
        self._awaited: Path | None = None  # another process writes it

    @property
    def is_making(self) -> bool:
        """Whether rows are copied now."""
        return self.thread is not None and self.thread.is_alive()

    @property
    def is_made(self) -> bool:
        """Whether that has come to an end, here or in another process."""
        if self._awaited is not None:
            return (self._awaited / DOCUMENT).exists()
        return self.thread is not None and not self.thread.is_alive()

    def settle(self) -> None:
        """What was made is known from now on."""
        if self.is_made:
            self.thread = self._awaited = None

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
        path, mine = self._contents.path, candidates(files)
        few = first_batches(case, plan, _WINDOWS)
        now = seconds_per_batch(case, simulate(few, plan, files))
        if now * case.profile.epoch < LEAST_SECONDS:
            return
        num_nodes = sum(case.graph.node_types.values())
        room = plan.memory - plan.baseline - sum(plan.held.values())
        slab = min(max(int(_SLAB_SHARE * room), _LEAST_SLAB), _MOST_SLAB)
        # Beside the slab there are pieces of it on their way.
        self.num_bytes = _COPY_BYTES * num_nodes + slab + slab // 2
        least = least_memory(files, plan.baseline + self.num_bytes, case.batch)
        if _RANK_BYTES * num_nodes > room or least > plan.memory:
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
        seconds = min(_RANK_SHARE * now * case.profile.epoch, _RANK_SECONDS)
        _, ranked = rank_rows(loader, seconds=seconds, reading=reading)
        orders = {name: rows.order[: rows.used].clone() for name, rows in ranked}
        if self._all_stay(orders, plan, mine):
            log.info("%s: rows are not put in order, all that are used stay in memory", path)
            return
        then = seconds_per_batch(case, _simulate_ordered(case, plan.memory, files, orders))
        if then > WORTH * now:
            log.info("%s: rows are not put in order, %.3g s a batch not %.3g", path, then, now)
            return
        parts = []
        left = room_on_disk(folder, self._contents.order_limit)
        for name, order in orders.items():
            own = self._files_of(name, mine)
            columns = {f.name: self._contents.column(f.name) for f in own}
            width = sum(column.row_bytes for column in columns.values())
            if width > 0 and order.numel() > 0:
                rows = order[: left // (2 * width)].clone()
                left -= 2 * width * rows.numel()
                is_whole = rows.numel() == order.numel()
                parts.append(CopyOf(name, case.graph.node_types[name], rows, columns, is_whole))
        if not any(part.order.numel() for part in parts):
            log.info("%s: rows are not put in order, the disk of %s is full", path, folder)
            return
        remove_oldest(folder, _MOST_COPIES - 1)
        folder.mkdir(parents=True, exist_ok=True)
        stop = threading.Event()
        # The first batch has the disk for itself. Then copying leaves it the less to loaders, the
        # more they gain by what is copied: each second of theirs is worth so many of later ones.
        wait, rest = _FIRST_BATCHES * now, min(1.0, then / max(now, then))
        self.thread = threading.Thread(
            target=_copy, args=(folder / key, parts, slab, stop, wait, rest), daemon=True,
            name="graphzero-order",
        )  # fmt: skip
        self.thread.start()
        weakref.finalize(self, _end, self.thread, stop)  # at exit, too

    def _files_of(self, node_type: str | None, files: Sequence[FileSize]) -> list[FileSize]:
        """Those of a node type's attributes."""
        record = self._contents.schema.node_type(node_type)
        attrs = set() if record is None else set(record.attrs.values())
        return [file for file in files if file.name in attrs]

    def _all_stay(
        self, orders: Mapping[str | None, Tensor], plan: MemoryPlan, files: Sequence[FileSize]
    ) -> bool:
        """Whether there is room for all rows that are used where they lie now."""
        return all(
            group_bits_of(file.row_bytes, file.num_rows) == 0
            and order.numel() * (file.row_bytes + costs.FRAME) <= plan.hot[file.name]
            for name, order in orders.items()
            for file in self._files_of(name, files)
            if file.name in plan.hot
        )


def _end(thread: threading.Thread, stop: threading.Event) -> None:
    stop.set()
    thread.join()


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


def _copy(
    target: Path,
    parts: Sequence[CopyOf],
    slab: int,
    stop: threading.Event,
    wait: float,
    rest: float,
) -> None:
    if stop.wait(wait):
        return
    begun = perf_counter()
    try:
        write_copy(target, parts, slab, stop, rest)
    except Stopped:
        pass
    except OSError as error:
        log.warning("%s: rows are not put in order: %s", target, error)
    except Exception:  # of a thread that nobody waits for
        log.exception("%s: rows are not put in order", target)
    else:
        rows = sum(part.order.numel() for part in parts)
        log.info(
            "%s: %s rows in the order of their use, made in %.0f s",
            target, f"{rows:,}", perf_counter() - begun,
        )  # fmt: skip
