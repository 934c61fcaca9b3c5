"""``Fetcher``: rows for windows of batches, within a budget; other ranks' rows are kept."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from pyg_graphzero.errors import MemoryBudgetError
from pyg_graphzero.shards.exchange import (
    Exchange,
    Key,
    Shelf,
    Table,
    Wanted,
    as_bytes,
    row_bytes,
)
from pyg_graphzero.store.columns import EncodedRows

# Batches whose rows are fetched at once, at most; and windows that lie in memory.
_TOGETHER, _WINDOWS = 4, 3


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
        self._left = max(0, count)
        self._places = torch.full((nodes if self._left else 0,), -1, dtype=torch.int32)
        self._rows = {  # memory is taken as they are written
            attr: torch.empty(self._left, row_bytes(column), dtype=torch.uint8)
            for attr, column in shelf.columns.items()
        }
        self._count, self._turn = 0, threading.Lock()

    def __bool__(self) -> bool:
        return len(self._places) > 0

    def places(self, numbers: Tensor) -> Tensor:
        """Where rows are, ``int64 [n]``; -1: not here."""
        return self._places[numbers].to(torch.int64)

    def join(self, numbers: Tensor, places: Tensor, fetched: Table) -> Table:
        """Rows of some nodes, of which those were fetched that are not here; keeps these."""
        tables, at = fetched
        is_old = places >= 0
        is_away = self._shelf.owners.of(numbers[~is_old]) != self._rank
        with self._turn:
            is_new = is_away & (self._places[numbers[~is_old]] < 0)
            new = is_new.nonzero().view(-1)[: self._left]
            room = slice(self._count, self._count + len(new))
            found: dict[str, Tensor | EncodedRows] = {}
            for attr, rows in tables.items():
                stored = rows.stored if isinstance(rows, EncodedRows) else rows
                fresh = as_bytes(stored).view(len(stored), row_bytes(stored))[at]
                self._rows[attr][room] = fresh[new]
                joined = fresh.new_empty(len(numbers), fresh.shape[1])
                joined[is_old], joined[~is_old] = self._rows[attr][places[is_old]], fresh
                own = joined.view(-1).view(stored.dtype).view(-1, *stored.shape[1:])
                found[attr] = replace(rows, stored=own) if isinstance(rows, EncodedRows) else own
            # Last: other threads read a row once its place is known.
            self._places[numbers[~is_old][new]] = torch.arange(
                room.start, room.stop, dtype=torch.int32
            )
            self._count, self._left = room.stop, self._left - len(new)
        return found, torch.arange(len(numbers))


class Fetcher:
    """Fetches rows for windows of batches, and says how many batches a window may have.

    Args:
        exchange: Where rows come from.
        room: Bytes for windows, and for rows that are kept; None: no limit, and none are kept.
        memory: The budget that it is a part of, for messages.
    """

    def __init__(self, exchange: Exchange, room: int | None, memory: str) -> None:
        self.exchange = exchange
        self._room, self._memory = room, memory
        self._batch_bytes = 0  # of the largest until now
        shelves = {key: each for key, each in exchange.shelves.items() if key[0] == "node"}
        sizes = {key: e.row_bytes * e.owners.division.num_nodes for key, e in shelves.items()}
        share = 2 * (room or 0) / (3 * max(1, sum(sizes.values())))
        made = {
            key: Kept(each, exchange.rank, int(share * sizes[key])) for key, each in shelves.items()
        }
        self._kept: Mapping[Key, Kept] = {key: each for key, each in made.items() if each}

    @property
    def together(self) -> int:
        """Batches of a window; one until it is known how large they are."""
        if self._room is None:
            return _TOGETHER
        if not self._batch_bytes:
            return 1
        return max(1, min(_TOGETHER, self._room // (3 * _WINDOWS * self._batch_bytes)))

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
        found = self.exchange.fetch(missing)
        for key, at in places.items():
            found[key] = self._kept[key].join(wanted[key], at, found[key])
            self.exchange.stats.kept += int((at >= 0).sum())
        sizes = [
            row_bytes(rows.stored if isinstance(rows, EncodedRows) else rows) * len(at)
            for tables, at in found.values()
            for rows in tables.values()
        ]
        self._batch_bytes = max(self._batch_bytes, sum(sizes) // max(1, num_batches))
        if self._room is not None and _WINDOWS * self._batch_bytes > self._room:
            needed = _WINDOWS * self._batch_bytes
            raise MemoryBudgetError(
                f"memory={self._memory}: found {self._room / 1e6:,.0f} MB for rows of other ranks, "
                f"expected {needed / 1e6:,.0f} MB: rows of {_WINDOWS} batches; raise memory=, or "
                "make batches smaller"
            )
        return found
