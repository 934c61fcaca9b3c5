"""``Exchange``: rows of nodes that lie in shards, fetched by a thread that every rank has.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pyg_graphzero.errors import RankLostError, UnsupportedError
from pyg_graphzero.shards.owners import Owners, places_in
from pyg_graphzero.store.columns import EncodedRows, gather

# Seconds between rounds while no rank asks for anything: doubled up to the last one.
_LEAST_PAUSE, _MOST_PAUSE = 0.0005, 0.02
# Whether a rank goes on, ends once all do, or has failed.
_SERVES, _LEAVES, _FAILS = range(3)
# Seconds that a rank which fails gives the others to hear of it.
_FAREWELL = 2.0

# The nodes of one batch by node type, and its rows.
Nodes = Mapping[str | None, Tensor]
RowsByAttr = dict[str | None, dict[str, Tensor]]


@dataclass(frozen=True)
class Shelf:
    """The rows of one node type.

    Attributes:
        owners: Which rank has each node.
        nodes: This rank's own, which rise.
        columns: Their rows by attribute, as they are stored, over mapped files.
        decoders: Rows of encoded attributes, with what they are decoded by.
    """

    owners: Owners
    nodes: range | Tensor
    columns: dict[str, Tensor]
    decoders: dict[str, EncodedRows]

    @property
    def row_bytes(self) -> int:
        """Bytes of a node's rows in all columns."""
        return sum(_row_bytes(column) for column in self.columns.values())

    def read(self, nodes: Tensor) -> list[Tensor]:
        """Rows of own nodes as bytes, a tensor for each column."""
        places = places_in(self.nodes, nodes)
        return [_bytes(gather(column, places)) for column in self.columns.values()]

    def split(self, raw: Tensor, count: int) -> list[Tensor]:
        """Divides the bytes that :meth:`read` gave of ``count`` nodes by column."""
        return list(raw.split([count * _row_bytes(column) for column in self.columns.values()]))


class Window:
    """Rows of some batches, each fetched once; its batches take theirs from it.

    Args:
        batches: The nodes of each.
    """

    def __init__(self, batches: Sequence[Nodes]) -> None:
        self._batches: Sequence[Nodes] | None = batches
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._tables: dict[str | None, dict[str, Tensor | EncodedRows]] = {}
        self._places: dict[str | None, Sequence[Tensor]] = {}

    def wanted(self, name: str | None) -> Tensor:
        """The nodes of a type, each once, rising."""
        assert self._batches is not None
        none = torch.empty(0, dtype=torch.int64)
        lists = [nodes.get(name, none) for nodes in self._batches]
        nodes, places = torch.cat(lists).unique(return_inverse=True)
        self._places[name] = places.split([len(each) for each in lists])
        return nodes

    def put(self, name: str | None, tables: dict[str, Tensor | EncodedRows], at: Tensor) -> None:
        """Takes the rows of :meth:`wanted`, which lie at these places of the tables."""
        self._tables[name] = tables
        self._places[name] = [at[places] for places in self._places[name]]

    def end(self, error: BaseException | None = None) -> None:
        """All rows are there, or they are not to be had."""
        self._error, self._batches = error, None
        self._done.set()

    def rows(self, batch: int) -> RowsByAttr:
        """The rows of a batch by node type and attribute, decoded; waits for them.

        Raises:
            RankLostError: Another rank does not answer.
        """
        self._done.wait()
        if self._error is not None:
            raise self._error
        return {
            name: {attr: gather(rows, self._places[name][batch]) for attr, rows in tables.items()}
            for name, tables in self._tables.items()
        }


class Exchange:
    """Fetches rows from other ranks, and gives them this rank's own.

    Every rank has one, and its thread serves until all have called :meth:`leave`. Thread safety:
    all methods may be called from any thread.

    Args:
        shelves: Rows by node type, the same types and attributes on all ranks.
        group: A group of its own, on gloo.
        what: The store, for messages.
    """

    def __init__(self, shelves: Mapping[str | None, Shelf], group: Any, what: str) -> None:
        self._shelves = {name: each for name, each in shelves.items() if each.columns}
        self._group = group
        self._rank, self._size = dist.get_rank(group), dist.get_world_size(group)
        self._what = f"{what}: rank {self._rank} of {self._size}"
        self._turn = threading.Condition()
        self._waiting: deque[Window] = deque()
        self._state = _SERVES
        self._error: RankLostError | None = None
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._serve, name="graphzero-shards", daemon=True)
        self._thread.start()
        # Its thread must not be in a call of torch's when the interpreter ends.
        atexit.register(self.fail)

    def ask(self, batches: Sequence[Nodes]) -> Window:
        """Begins to fetch the rows of some batches.

        Raises:
            UnsupportedError: This is a forked process.
        """
        if self._process != os.getpid():
            raise UnsupportedError(
                f"{self._what}: found a forked process, expected the one that opened the shards: "
                "use threads (num_workers=) in place of processes"
            )
        window = Window(batches)
        with self._turn:
            if self._error is not None or self._state != _SERVES:
                window.end(self._error or RankLostError(f"{self._what}: the shards were closed"))
            else:
                self._waiting.append(window)
                self._turn.notify()
        return window

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
            self._thread.join(patience)
            atexit.unregister(self.fail)

    def _serve(self) -> None:
        """The thread: one round after the other."""
        window, pause = None, _LEAST_PAUSE
        try:
            while True:
                with self._turn:
                    if not self._waiting and self._state == _SERVES:
                        self._turn.wait(pause)
                    window = self._waiting.popleft() if self._waiting else None
                    state = _SERVES if window is not None else self._state
                counts, wanted = self._counts(window, state)
                states = counts[:, -1].tolist()
                if _FAILS in states:
                    raise ConnectionError(f"rank {states.index(_FAILS)} has ended early")
                if set(states) == {_LEAVES}:
                    return
                pause = min(2 * pause, _MOST_PAUSE)
                if bool(counts[:, :-1].any()):
                    pause = _LEAST_PAUSE
                    tables = self._swap(counts[:, :-1].reshape(self._size, -1, self._size), wanted)
                    for name, (table, at) in tables.items() if window is not None else ():
                        window.put(name, table, at)  # type: ignore[union-attr]
                if window is not None:
                    window.end()
        except BaseException as error:
            message = (
                f"{self._what}: cannot exchange rows with the other ranks ({error}); one of them "
                "has ended or does not answer: start all again, from a checkpoint"
            )
            with self._turn:
                self._error = RankLostError(message)
                lost = [*([] if window is None else [window]), *self._waiting]
                self._waiting.clear()
            for each in lost:
                each.end(self._error)

    def _counts(self, window: Window | None, state: int) -> tuple[Tensor, list[list[Tensor]]]:
        """Has all ranks tell how many rows they want.

        Returns:
            ``int64 [rank, (type, owner) and state]``; and this rank's nodes by type
            and owner.
        """
        own = torch.zeros(len(self._shelves) * self._size + 1, dtype=torch.int64)
        wanted: list[list[Tensor]] = []
        for name, shelf in self._shelves.items() if window is not None else ():
            nodes = window.wanted(name)  # type: ignore[union-attr]
            owners = shelf.owners.of(nodes)
            sizes = owners.bincount(minlength=self._size)
            wanted.append(list(nodes[owners.argsort(stable=True)].split(sizes.tolist())))
        if wanted:
            own[:-1] = torch.tensor([len(nodes) for each in wanted for nodes in each])
        own[-1] = state
        found = torch.empty(self._size, len(own), dtype=torch.int64)
        dist.all_gather(list(found.unbind()), own, group=self._group)
        return found, wanted

    def _swap(
        self, counts: Tensor, wanted: list[list[Tensor]]
    ) -> dict[str | None, tuple[dict[str, Tensor | EncodedRows], Tensor]]:
        """Gives and takes rows.

        Args:
            counts: Rows that each rank wants, ``int64 [rank, type, owner]``.
            wanted: This rank's nodes by type and owner; empty where it wants none.

        Returns:
            Rows by type, and where among them each wanted node's are, in rising order of nodes.
        """
        me, ranks, shelves = self._rank, range(self._size), list(self._shelves.values())
        counts = counts.clone()
        counts[torch.arange(self._size), :, torch.arange(self._size)] = 0  # own rows do not travel
        to_me, of_me = counts[:, :, me].contiguous(), counts[me].contiguous()
        none = torch.empty(0, dtype=torch.int64)
        asked = torch.empty(int(to_me.sum()), dtype=torch.int64)
        asking = [nodes[rank] for rank in ranks if rank != me for nodes in wanted]
        dist.all_to_all_single(
            asked,
            torch.cat([none, *asking]),
            to_me.sum(1).tolist(),
            of_me.sum(0).tolist(),
            group=self._group,
        )
        lists = asked.split(to_me.view(-1).tolist())  # by rank, then type
        given = [
            piece
            for number, nodes in enumerate(lists)
            for piece in shelves[number % len(shelves)].read(nodes)
        ]
        widths = torch.tensor([shelf.row_bytes for shelf in shelves])
        taken = torch.empty(int((of_me * widths[:, None]).sum()), dtype=torch.uint8)
        dist.all_to_all_single(
            taken,
            torch.cat([none.to(torch.uint8), *given]),
            (of_me * widths[:, None]).sum(0).tolist(),
            (to_me * widths).sum(1).tolist(),
            group=self._group,
        )
        if not wanted:
            return {}
        pieces = iter(taken.split((of_me * widths[:, None]).t().reshape(-1).tolist()))
        parts: list[list[list[Tensor]]] = [[] for _ in shelves]  # by type and owner, the columns
        for rank in ranks:
            for number, shelf in enumerate(shelves):
                raw, nodes = next(pieces), wanted[number][rank]
                is_own = rank == me
                parts[number].append(shelf.read(nodes) if is_own else shelf.split(raw, len(nodes)))
        found: dict[str | None, tuple[dict[str, Tensor | EncodedRows], Tensor]] = {}
        for name, shelf, by_owner, each in zip(self._shelves, shelves, parts, wanted, strict=True):
            tables: dict[str, Tensor | EncodedRows] = {}
            for (attr, column), columns in zip(
                shelf.columns.items(), zip(*by_owner, strict=True), strict=True
            ):
                rows = torch.cat(columns).view(column.dtype).view(-1, *column.shape[1:])
                decoder = shelf.decoders.get(attr)
                tables[attr] = (
                    rows
                    if decoder is None
                    else EncodedRows(rows, decoder.scale, decoder.zero_point)
                )
            found[name] = tables, torch.cat(each).argsort()
        return found


def _row_bytes(column: Tensor) -> int:
    return prod(column.shape[1:]) * column.dtype.itemsize


def _bytes(rows: Tensor) -> Tensor:
    return rows.view(-1).view(torch.uint8) if rows.numel() else rows.new_empty(0, dtype=torch.uint8)
