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
from dataclasses import dataclass, field
from itertools import chain, cycle
from math import prod
from time import perf_counter
from typing import Any
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.errors import RankLostError, UnsupportedError
from pyg_graphzero.shards.owners import Owners, places_in
from pyg_graphzero.store.columns import EncodedRows, engine_array, gather

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
        files: The same columns, to be read past the page cache.
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

    def read(self, numbers: Tensor, reader: _core.DiskGather | None) -> list[Tensor]:
        """Own rows as bytes, a tensor for each column; None: from the mapped files."""
        places = places_in(self.numbers, numbers).contiguous()
        if reader is None or len(places) == 0:
            return [as_bytes(gather(column, places)) for column in self.columns.values()]
        found = [
            torch.empty(len(places), row_bytes(column), dtype=torch.uint8)
            for column in self.columns.values()
        ]
        for file, rows in zip(self.files, found, strict=True):
            if rows.numel():
                reader.gather(file, [engine_array(places)], [engine_array(rows)])
        return [rows.view(-1) for rows in found]

    def split(self, raw: Tensor, count: int) -> list[Tensor]:
        """Divides the bytes that :meth:`read` gave of ``count`` numbers by column."""
        return list(raw.split([count * row_bytes(column) for column in self.columns.values()]))

    def tables(self, by_owner: Sequence[list[Tensor]]) -> dict[str, Tensor | EncodedRows]:
        """The rows by attribute, from their bytes by owner and column."""
        found: dict[str, Tensor | EncodedRows] = {}
        for (attr, column), parts in zip(
            self.columns.items(), zip(*by_owner, strict=True), strict=True
        ):
            rows = torch.cat(parts).view(column.dtype).view(-1, *column.shape[1:])
            by = self.decoders.get(attr)
            found[attr] = rows if by is None else EncodedRows(rows, by.scale, by.zero_point)
        return found


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


class _Ask:
    """Rows that a thread waits for."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.tables: dict[Key, Table] = {}
        self.error: BaseException | None = None
        self.done = threading.Event()

    def end(self, error: BaseException | None = None) -> None:
        self.error = error
        self.done.set()


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
        self._state = _SERVES
        self._error: RankLostError | None = None
        self._process = os.getpid()
        self.stats = ExchangeStats()
        self._users: WeakSet[threading.Thread] = WeakSet()
        self._thread = threading.Thread(target=self._serve, name="graphzero-shards", daemon=True)
        self._thread.start()
        # Its thread must not be in a call of torch's when the interpreter ends.
        atexit.register(self.fail)

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

    def fetch(self, wanted: Wanted) -> dict[Key, Table]:
        """Rows by key; waits for them. Keys without rows in shards are left out.

        Raises:
            RankLostError: A rank does not answer, or the shards were closed.
        """
        ask = _Ask(wanted)
        with self._turn:
            if self._error is not None or self._state != _SERVES:
                ask.end(self._error or RankLostError(f"{self._what}: the shards were closed"))
            else:
                self._waiting.append(ask)
                self._turn.notify()
        ask.done.wait()
        if ask.error is not None:
            raise ask.error
        return ask.tables

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
            atexit.unregister(self.fail)

    def _serve(self) -> None:
        """The thread: one round after the other."""
        ask, pause, shelves = None, _LEAST_PAUSE, self.shelves.values()
        try:
            while True:
                with self._turn:
                    if not self._waiting and self._state == _SERVES:
                        self._turn.wait(pause)
                    ask = self._waiting.popleft() if self._waiting else None
                    state = _SERVES if ask is not None else self._state
                begun = perf_counter()
                orders = self._orders({} if ask is None else ask.wanted)
                counts = self._counts([sizes for _, _, sizes in orders], state)
                states = counts[:, -1].tolist()
                if _FAILS in states:
                    raise ConnectionError(f"rank {states.index(_FAILS)} has ended early")
                if set(states) == {_LEAVES}:
                    return
                pause = min(2 * pause, _MOST_PAUSE)
                tables = None
                if bool(counts[:, :-1].any()):
                    pause = _LEAST_PAUSE
                    wanted = counts[:, :-1].reshape(self._size, len(self.shelves), self._size)
                    tables = self._swap(wanted, [numbers for numbers, _, _ in orders])
                    self.stats.exchanges += 1
                    self.stats.seconds += perf_counter() - begun
                if ask is not None:
                    tables = tables or [each.tables([each.read(_NONE, None)]) for each in shelves]
                    made = zip(self.shelves, tables, orders, strict=True)
                    ask.tables = {k: (t, at) for k, t, (_, at, _) in made if k in ask.wanted}
                    ask.end()
        except BaseException as error:
            message = (
                f"{self._what}: cannot exchange rows with the other ranks ({error}); one of them "
                "has ended or does not answer: start all again, from a checkpoint"
            )
            with self._turn:
                self._error = RankLostError(message)
                lost = [*([] if ask is None else [ask]), *self._waiting]
                self._waiting.clear()
            for each in lost:
                each.end(self._error)

    def _orders(self, wanted: Wanted) -> list[tuple[Tensor, Tensor, list[int]]]:
        """Numbers of each shelf by owner; where each wanted one went; how many each owner has."""
        found = []
        for key, shelf in self.shelves.items():
            numbers = wanted.get(key, _NONE)
            owners = shelf.owners.of(numbers)
            sizes = owners.bincount(minlength=self._size).tolist()
            places = torch.arange(len(numbers))
            if bool((owners[1:] < owners[:-1]).any()):  # numbers of ranges that rise are in order
                order = torch.cat(
                    [(owners == rank).nonzero().view(-1) for rank in range(self._size)]
                )
                numbers, places[order] = numbers[order], places.clone()
            found.append((numbers, places, sizes))
        return found

    def _counts(self, sizes: list[list[int]], state: int) -> Tensor:
        """Has all ranks tell how many rows they want: ``[rank, (shelf, owner) and state]``."""
        own = torch.tensor([*chain(*sizes), state])
        found = torch.empty(self._size, len(own), dtype=torch.int64)
        dist.all_gather(list(found.unbind()), own, group=self._group)
        return found

    def _swap(self, counts: Tensor, wanted: list[Tensor]) -> list[dict[str, Tensor | EncodedRows]]:
        """Gives and takes rows.

        Args:
            counts: Rows that each rank wants, ``int64 [rank, shelf, owner]``.
            wanted: This rank's numbers by shelf, owner after owner.

        Returns:
            Rows by shelf, in the order of ``wanted``.
        """
        me, shelves = self.rank, list(self.shelves.values())
        lists = [
            numbers.split(sizes) for numbers, sizes in zip(wanted, counts[me].tolist(), strict=True)
        ]
        away = counts.clone()
        away[torch.arange(self._size), :, torch.arange(self._size)] = 0  # own rows do not travel
        to_me, of_me = away[:, :, me], away[me].t()  # [rank, shelf]
        asking = [
            as_bytes(numbers[rank].to(shelf.kind))
            for rank in range(self._size)
            if rank != me
            for shelf, numbers in zip(shelves, lists, strict=True)
        ]
        widths = torch.tensor([shelf.kind.itemsize for shelf in shelves])
        asked = self._all_to_all(asking, to_me * widths, of_me * widths)
        given = [
            piece
            for raw, shelf in zip(asked, cycle(shelves), strict=False)
            for piece in shelf.read(raw.clone().view(shelf.kind).to(torch.int64), self.reader)
        ]
        widths = torch.tensor([shelf.row_bytes for shelf in shelves])
        taken = iter(self._all_to_all(given, of_me * widths, to_me * widths))
        parts: list[list[list[Tensor]]] = [[] for _ in shelves]  # by shelf and owner, the columns
        for rank in range(self._size):
            for part, shelf, numbers in zip(parts, shelves, lists, strict=True):
                raw, own = next(taken), numbers[rank]
                is_own = rank == me
                part.append(shelf.read(own, self.reader) if is_own else shelf.split(raw, len(own)))
        return [shelf.tables(part) for shelf, part in zip(shelves, parts, strict=True)]

    def _all_to_all(self, given: list[Tensor], taken: Tensor, sent: Tensor) -> Sequence[Tensor]:
        """Swaps bytes.

        Args:
            given: Bytes for each rank, by shelf.
            taken: How many come, ``[rank, shelf]``.
            sent: How many go, ``[rank, shelf]``.

        Returns:
            Bytes of each rank, by shelf.
        """
        found = torch.empty(int(taken.sum()), dtype=torch.uint8)
        none = torch.empty(0, dtype=torch.uint8)
        dist.all_to_all_single(
            found,
            torch.cat([none, *given]),
            taken.sum(1).tolist(),
            sent.sum(1).tolist(),
            group=self._group,
        )
        self.stats.sent += int(sent.sum())
        self.stats.received += len(found)
        return found.split(taken.reshape(-1).tolist())


def row_bytes(column: Tensor) -> int:
    """Bytes of a row."""
    return prod(column.shape[1:]) * column.dtype.itemsize


def as_bytes(rows: Tensor) -> Tensor:
    """The bytes of some rows, ``uint8 [n]``."""
    rows = rows.contiguous()
    return rows.view(-1).view(torch.uint8) if rows.numel() else rows.new_empty(0, dtype=torch.uint8)
