"""``Fetcher``: rows for windows of batches, within a budget; other ranks' rows are kept."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from pyg_graphzero.errors import MemoryBudgetError
from pyg_graphzero.shards.exchange import Exchange, Key, Shelf, Table, Wanted, row_bytes
from pyg_graphzero.store.columns import EncodedRows, bytes_of_rows, gather_into, row_table

# Batches whose rows are fetched at once, at most.
_TOGETHER = 4
# How often rows of a window are in memory as they are stored: those of three windows, and those
# that leave while one is fetched; and decoded: the consumer's batch, and the next one.
_STORED, _DECODED = 4, 2
# Bytes of numbers for a row of a window: of its node, and of its place.
_NUMBERS = 64


class Kept:
    """Rows of other ranks' nodes, of one type: the first that are used, as many as fit.

    Thread safety: all methods may be called from any thread.

    Args:
        shelf: The type's rows.
        rank: This rank, whose own rows are not kept.
        room: Bytes for rows, and for 4 of each node.
    """

    def __init__(self, shelf: Shelf, rank: int, room: int) -> None:
        nodes = shelf.owners.division.num_nodes
        count = min(nodes - len(shelf.numbers), (room - 4 * nodes) // max(1, shelf.row_bytes))
        self._shelf, self._rank = shelf, rank
        self._left = max(0, count)  # that may still be kept
        self._places = torch.full((nodes if self._left else 0,), -1, dtype=torch.int32)
        self._rows = {  # memory is taken as they are written
            attr: torch.empty(self._left, row_bytes(column), dtype=torch.uint8)
            for attr, column in shelf.columns.items()
        }
        self._count, self._turn = 0, threading.Lock()

    def __bool__(self) -> bool:
        return len(self._places) > 0

    def bound(self, room: int) -> None:
        """No more rows are kept than these bytes have room for."""
        with self._turn:
            count = room // max(1, self._shelf.row_bytes) - self._count
            self._left = max(0, min(self._left, count))

    def places(self, numbers: Tensor) -> Tensor:
        """Where rows are, ``int64 [n]``; -1: not here."""
        return self._places[numbers].to(torch.int64)

    def join(self, numbers: Tensor, places: Tensor, fetched: Table) -> Table:
        """Puts rows that are here behind those that were fetched, and keeps these.

        Args:
            numbers: Nodes.
            places: Their places.
            fetched: Rows that are not here, with room behind them for the others.
        """
        tables, at = fetched
        old, new = (places >= 0).nonzero().view(-1), (places < 0).nonzero().view(-1)
        joined = torch.arange(len(numbers))
        joined[new], joined[old] = at, torch.arange(len(new), len(numbers))
        for attr, rows in tables.items():
            stored = bytes_of_rows(rows.stored if isinstance(rows, EncodedRows) else rows)
            kept = row_table(self._rows[attr])
            if len(old) and kept is not None:
                gather_into(stored[len(new) :], kept, places[old])
        if self._left:
            self._keep(numbers[new], tables, at)
        return tables, joined

    def _keep(
        self, numbers: Tensor, tables: Mapping[str, Tensor | EncodedRows], at: Tensor
    ) -> None:
        """Keeps as many rows of other ranks as there is room for."""
        is_away = self._shelf.owners.of(numbers) != self._rank
        with self._turn:
            new = (is_away & (self._places[numbers] < 0)).nonzero().view(-1)[: self._left]
            room = slice(self._count, self._count + len(new))
            for attr, rows in tables.items():
                stored = row_table(rows.stored if isinstance(rows, EncodedRows) else rows)
                if stored is not None:
                    gather_into(self._rows[attr][room], stored, at[new])
            # Last: other threads read a row once its place is known.
            self._places[numbers[new]] = torch.arange(room.start, room.stop, dtype=torch.int32)
            self._count, self._left = room.stop, self._left - len(new)


class Fetcher:
    """Fetches rows for windows of batches, and says how many batches a window may have.

    Args:
        exchange: Where rows come from.
        room: Bytes for batches with their rows, and for rows that are kept; None: no limit.
        kept: Bytes of it for rows that are kept, at most.
        memory: The budget that it is a part of, for messages.
    """

    def __init__(self, exchange: Exchange, room: int | None, kept: int, memory: str) -> None:
        self.exchange = exchange
        self._room, self._memory = room, memory
        self._stored = self._decoded = 0  # bytes of the largest batch until now
        shelves = {key: each for key, each in exchange.shelves.items() if key[0] == "node"}
        sizes = {key: e.row_bytes * e.owners.division.num_nodes for key, e in shelves.items()}
        self._shares = {key: size / max(1, sum(sizes.values())) for key, size in sizes.items()}
        made = {
            key: Kept(each, exchange.rank, int(kept * self._shares[key]))
            for key, each in shelves.items()
        }
        self._kept: Mapping[Key, Kept] = {key: each for key, each in made.items() if each}

    @property
    def together(self) -> int:
        """Batches of a window; one until it is known how large they are."""
        if self._room is None:
            return _TOGETHER
        if not self._stored:
            return 1
        left = self._room - _DECODED * self._decoded
        return max(1, min(_TOGETHER, left // (2 * _STORED * self._stored)))

    def fetch(self, wanted: Wanted, num_batches: int) -> dict[Key, Table]:
        """Rows by key for some batches; see :meth:`Exchange.fetch`.

        Raises:
            MemoryBudgetError: A batch's rows are too large for the budget.
            RankLostError: A rank does not answer, or the shards were closed.
        """
        places = {
            key: kept.places(wanted[key]) for key, kept in self._kept.items() if key in wanted
        }
        missing = {
            key: numbers[places[key] < 0] if key in places else numbers
            for key, numbers in wanted.items()
        }
        more = {key: len(wanted[key]) - len(numbers) for key, numbers in missing.items()}
        found = self.exchange.fetch(missing, more)
        self._measure(wanted, found, num_batches)
        for key, at in places.items():
            found[key] = self._kept[key].join(wanted[key], at, found[key])
            self.exchange.stats.kept += int((at >= 0).sum())
        return found

    def _measure(self, wanted: Wanted, found: dict[Key, Table], num_batches: int) -> None:
        """Learns how large batches are, and leaves as much of the room to them.

        Raises:
            MemoryBudgetError: The room is too small for one.
        """
        stored = decoded = 0
        for key, (tables, _) in found.items():
            stored += _NUMBERS * len(wanted[key])
            for rows in tables.values():
                each = row_bytes(rows.stored if isinstance(rows, EncodedRows) else rows)
                stored += each * len(wanted[key])
                decoded += prod(rows.shape[1:]) * rows.dtype.itemsize * len(wanted[key])
        self._stored = max(self._stored, stored // max(1, num_batches))
        self._decoded = max(self._decoded, decoded // max(1, num_batches))
        if self._room is None:
            return
        needed = _STORED * self.together * self._stored + _DECODED * self._decoded
        for key, kept in self._kept.items():
            kept.bound(int((self._room - needed) * self._shares[key]))
        if needed > self._room:
            raise MemoryBudgetError(
                f"memory={self._memory}: found {self._room / 1e6:,.0f} MB for batches with rows of "
                f"other ranks, expected {needed / 1e6:,.0f} MB; raise memory=, or make batches "
                "smaller"
            )
