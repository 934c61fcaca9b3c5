"""``Exchange``: rows that lie in shards, fetched by a thread that every rank has.

The threads go round by round, all of them at once. In each round every rank tells the others how
many rows it wants of whom; most ask for nothing, and where none does the round is over. So a rank
that is behind, or has no epoch under way, serves the others all the same. docs/dev/shards.md has
the whole of it.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import product
from time import perf_counter
from typing import Any
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.errors import RankLostError, UnsupportedError
from pyg_graphzero.shards.owners import Owners, places_in
from pyg_graphzero.store.columns import (
    EncodedRows,
    bytes_of_rows,
    engine_array,
    gather_into,
    row_table,
)

# Seconds between rounds while no rank asks for anything: doubled up to the last one.
_LEAST_PAUSE, _MOST_PAUSE = 0.0005, 0.02
# Whether a rank goes on, ends once all do, or has failed.
_SERVES, _LEAVES, _FAILS = range(3)
# Seconds that a rank which fails gives the others to hear of it.
_FAREWELL = 2.0

_NONE = torch.empty(0, dtype=torch.int64)

# Rows of one kind: ("node", a node type), ("edge", an edge type), …; and their numbers.
Key = tuple[str, Any]
Wanted = Mapping[Key, Tensor]
# Rows by attribute in some order, and where among them each that was wanted is.
Table = tuple[dict[str, Tensor | EncodedRows], Tensor]


@dataclass(frozen=True)
class Shelf:
    """Rows of one kind: of the nodes of a type, of the edges of a type by slot.

    Attributes:
        owners: Which rank has each.
        numbers: This rank's own, which rise.
        columns: Their rows by attribute, as they are stored, over mapped files.
        files: Each column's file, to be read past the page cache.
        decoders: Rows of encoded attributes, with what they are decoded by.
    """

    owners: Owners
    numbers: range | Tensor
    columns: dict[str, Tensor]
    files: Sequence[_core.ColumnFile]
    decoders: dict[str, EncodedRows] = field(default_factory=dict)

    @property
    def kind(self) -> torch.dtype:
        """Dtype in which numbers travel."""
        return torch.int32 if self.owners.division.num_nodes <= 1 << 31 else torch.int64

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in all columns."""
        return sum(row_bytes(column) for column in self.columns.values())

    def read(
        self, numbers: Tensor, outs: Sequence[Tensor], reader: _core.DiskGather | None
    ) -> None:
        """Puts own rows into memory for each column, as bytes; reader None: from mapped files."""
        places = places_in(self.numbers, numbers)
        for column, file, out in zip(self.columns.values(), self.files, outs, strict=True):
            rows = row_table(column)
            if reader is not None and out.numel():
                reader.gather(file, [engine_array(places.contiguous())], [engine_array(out)])
            elif rows is not None:
                gather_into(out, rows, places)


@dataclass
class ExchangeStats:
    """Bytes that travelled to and from this rank, and how often.

    Attributes:
        exchanges: Rounds in which some rank wanted rows.
        sent: Bytes of rows and numbers that went to other ranks.
        received: Bytes that came from them.
        seconds: Time in these rounds, waiting for the other ranks included.
        kept: Rows of nodes that did not travel, for this rank had kept them.
    """

    exchanges: int = 0
    sent: int = 0
    received: int = 0
    seconds: float = 0.0
    kept: int = 0


class _Order:
    """Rows that are wanted of a shelf, and the memory that they come to.

    Args:
        shelf: Where they are.
        wanted: Their numbers.
        more: Rows for which there is to be room behind them.

    Attributes:
        numbers: Their numbers by owner.
        rows: Their bytes by owner and column, a part of the table.
        table: The table that they make, owner after owner.
    """

    def __init__(self, shelf: Shelf, wanted: Tensor, more: int) -> None:
        sizes, order = shelf.owners.divide(wanted)
        numbers, places = wanted, torch.arange(len(wanted))
        if order is not None:
            numbers, places[order] = wanted[order], places.clone()
        made = [
            torch.empty((len(numbers) + more, *column.shape[1:]), dtype=column.dtype)
            for column in shelf.columns.values()
        ]
        columns = [bytes_of_rows(each)[: len(numbers)].split(sizes) for each in made]
        self.numbers = numbers.split(sizes)
        self.rows = list(zip(*columns, strict=True))
        tables: dict[str, Tensor | EncodedRows] = {}
        for attr, rows in zip(shelf.columns, made, strict=True):
            by = shelf.decoders.get(attr)
            tables[attr] = rows if by is None else replace(by, stored=rows)
        self.table: Table = tables, places


# Rows that a thread waits for, by shelf.
_Ask = tuple[list[_Order], Future[None]]


class Exchange:
    """Fetches rows from other ranks, and gives them this rank's own.

    Every rank has one, and its thread serves until all have called :meth:`leave`. Thread safety:
    all methods may be called from any thread.

    Args:
        shelves: Rows by key, the same keys and attributes on all ranks.
        group: A group of its own, on gloo.
        what: The store, for messages.

    Attributes:
        shelves: Rows by key, of kinds that have some.
        reader: Reads this rank's own rows; None: they are mapped.
        rank: This rank's number in the group.
        stats: Bytes that have travelled.
    """

    def __init__(self, shelves: Mapping[Key, Shelf], group: Any, what: str) -> None:
        self.shelves = {key: each for key, each in shelves.items() if each.columns}
        self.reader: _core.DiskGather | None = None
        self._group = group
        self.rank, self._size = dist.get_rank(group), dist.get_world_size(group)
        self._what = f"{what}: rank {self.rank} of {self._size}"
        self._turn = threading.Condition()
        self._waiting: deque[_Ask] = deque()
        self._leaving = torch.empty(0, dtype=torch.uint8)  # rows for others, in each round anew
        self._state = _SERVES
        self._error: RankLostError | None = None
        self._process = os.getpid()
        self.stats = ExchangeStats()
        self._users: WeakSet[threading.Thread] = WeakSet()
        self._thread = threading.Thread(target=self._serve, name="graphzero-shards", daemon=True)
        self._thread.start()
        atexit.register(self._at_exit)

    def start(self, run: Callable[[], None]) -> None:
        """Runs what fetches rows on a thread, which ends with the exchange.

        Raises:
            UnsupportedError: This is a forked process.
        """
        if self._process != os.getpid():
            raise UnsupportedError(
                f"{self._what}: found a forked process, expected the one that opened the shards: "
                "use threads (num_workers=) in place of processes"
            )
        thread = threading.Thread(target=run, name="graphzero-window", daemon=True)
        self._users.add(thread)
        thread.start()

    def fetch(self, wanted: Wanted, more: Mapping[Key, int]) -> dict[Key, Table]:
        """Rows by key; waits for them. Keys without rows in shards are left out.

        Args:
            wanted: Their numbers.
            more: Rows by key for which tables have room behind those that were wanted.

        Raises:
            RankLostError: A rank does not answer, or the shards were closed.
        """
        orders = {
            key: _Order(shelf, wanted.get(key, _NONE), more.get(key, 0))
            for key, shelf in self.shelves.items()
        }
        done: Future[None] = Future()
        with self._turn:
            if self._error is not None or self._state != _SERVES:
                raise self._error or RankLostError(f"{self._what}: the shards were closed")
            if any(len(each.numbers[self.rank]) < len(each.table[1]) for each in orders.values()):
                self._waiting.append((list(orders.values()), done))
                self._turn.notify()
            else:  # the other ranks have none of them
                done.set_result(None)
        try:
            for shelf, order in zip(self.shelves.values(), orders.values(), strict=True):
                shelf.read(order.numbers[self.rank], order.rows[self.rank], self.reader)
        finally:
            done.result()
        return {key: orders[key].table for key in wanted if key in orders}

    def leave(self) -> None:
        """Serves the others until all have called this, or one is lost."""
        self._end(_LEAVES, None)

    def fail(self) -> None:
        """Tells the others that this rank does not serve them any more."""
        self._end(_FAILS, _FAREWELL)

    def _end(self, state: int, patience: float | None) -> None:
        with self._turn:
            self._state = state
            self._turn.notify()
        if self._process == os.getpid():
            for thread in [self._thread, *self._users]:
                thread.join(patience)
            if not self._thread.is_alive():
                atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        """Fails, and ends the process if the thread is in a call of torch's even then.

        A call that returns to Python while the interpreter ends aborts the process.
        """
        self.fail()
        if self._thread.is_alive():
            try:
                print(end="", flush=True)
            finally:
                os._exit(1)

    def _serve(self) -> None:
        """The thread: one round after the other."""
        done, pause = None, _LEAST_PAUSE
        nothing = [_Order(shelf, _NONE, 0) for shelf in self.shelves.values()]
        try:
            while True:
                with self._turn:
                    if not self._waiting and self._state == _SERVES:
                        self._turn.wait(pause)
                    orders, done = self._waiting.popleft() if self._waiting else (nothing, None)
                    state = self._state if done is None else _SERVES
                begun = perf_counter()
                counts = self._counts(orders, state)
                states = counts[:, -1].tolist()
                if _FAILS in states:
                    raise ConnectionError(f"rank {states.index(_FAILS)} has ended early")
                if set(states) == {_LEAVES}:
                    return
                pause = min(2 * pause, _MOST_PAUSE)
                if bool(counts[:, :-1].any()):
                    pause = _LEAST_PAUSE
                    self._swap(counts[:, :-1].view(self._size, -1, self._size).tolist(), orders)
                    self.stats.exchanges += 1
                    self.stats.seconds += perf_counter() - begun
                if done is not None:
                    done.set_result(None)
        except BaseException as error:
            message = (
                f"{self._what}: cannot exchange rows with the other ranks ({error}); one of them "
                "has ended or does not answer: start all again, from a checkpoint"
            )
            with self._turn:
                self._error = RankLostError(message)
                lost = [*([] if done is None else [done]), *(each for _, each in self._waiting)]
                self._waiting.clear()
            for each in lost:
                each.set_exception(self._error)

    def _counts(self, orders: list[_Order], state: int) -> Tensor:
        """Has all ranks tell how many rows they want: ``[rank, (shelf, owner) and state]``."""
        sizes = [
            len(numbers) * (rank != self.rank)  # own rows do not travel
            for order in orders
            for rank, numbers in enumerate(order.numbers)
        ]
        own = torch.tensor([*sizes, state])
        found = torch.empty(self._size, len(own), dtype=torch.int64)
        dist.all_gather(list(found.unbind()), own, group=self._group)
        return found

    def _swap(self, counts: list[list[list[int]]], orders: list[_Order]) -> None:
        """Gives and takes rows, straight from and to where they stay.

        Args:
            counts: Rows that each rank wants, ``[rank][shelf][owner]``.
            orders: This rank's by shelf.
        """
        shelves, group, stats, works = list(self.shelves.values()), self._group, self.stats, []
        asked, leaving = [], 0
        for rank, tag in product(range(self._size), range(len(shelves))):
            shelf, order = shelves[tag], orders[tag]
            if count := counts[self.rank][tag][rank]:
                numbers = order.numbers[rank].to(shelf.kind)
                works.append(group.send([numbers], rank, tag))
                for number, rows in enumerate(order.rows[rank], 1):
                    works.append(group.recv([rows], rank, tag + number * len(shelves)))
                stats.sent += count * shelf.kind.itemsize
                stats.received += count * shelf.row_bytes
            if count := counts[rank][tag][self.rank]:
                numbers = torch.empty(count, dtype=shelf.kind)
                asked.append((rank, tag, numbers, group.recv([numbers], rank, tag)))
                leaving += count * shelf.row_bytes
                stats.sent += count * shelf.row_bytes
                stats.received += count * shelf.kind.itemsize
        if leaving > len(self._leaving):
            self._leaving = torch.empty(leaving, dtype=torch.uint8)
        room = self._leaving
        for rank, tag, numbers, work in asked:
            work.wait()
            shelf, outs = shelves[tag], []
            for column in shelf.columns.values():
                width = row_bytes(column)
                outs.append(room[: width * len(numbers)].view(len(numbers), width))
                room = room[width * len(numbers) :]
            shelf.read(numbers.to(torch.int64), outs, self.reader)
            for number, rows in enumerate(outs, 1):
                works.append(group.send([rows], rank, tag + number * len(shelves)))
        for work in works:
            work.wait()


def row_bytes(column: Tensor) -> int:
    """Bytes of a row."""
    return bytes_of_rows(column[:0]).shape[1]
