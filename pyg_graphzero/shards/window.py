"""``Window``: some batches that are made together, with what other ranks have of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.shards.exchange import Exchange, Key, Table, Wanted
from pyg_graphzero.shards.fetcher import Fetcher
from pyg_graphzero.store.columns import gather

#: Rows of one batch by key and attribute, decoded.
RowsByKey = dict[Key, dict[str, Tensor]]
# Where the rows of each batch are among those of all, by key.
Places = dict[Key, Sequence[Tensor]]
#: (recipe, seeds, key, number, excluded) of a batch, as the engine is asked for it.
Asked = tuple[_core.Recipe, Any, int, int, Any]


class Window:
    """Batches whose rows are fetched together, each row of a node once, on a thread of its own.

    Args:
        fetcher: Where rows come from.
        make: Gives the batches, or an error in place of one, and the rows that each wants. It runs
            on that thread.
    """

    def __init__(
        self, fetcher: Fetcher, make: Callable[[], tuple[Sequence[Any], Sequence[Wanted]]]
    ) -> None:
        self._fetcher = fetcher
        self._make = make
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._batches: Sequence[Any] = ()
        self._tables: dict[Key, Table] = {}
        self._places: Places = {}
        fetcher.exchange.start(self._run)

    def batch(self, place: int) -> Any:
        """A batch as it was sampled; waits for it.

        Raises:
            RankLostError: Another rank does not answer.
        """
        self._wait()
        batch = self._batches[place]
        if isinstance(batch, Exception):
            raise batch
        return batch

    def rows(self, place: int) -> RowsByKey:
        """The rows of a batch; waits for them.

        Raises:
            RankLostError: Another rank does not answer.
            MemoryBudgetError: They are too large.
        """
        self._wait()
        found: RowsByKey = {}
        for key, (tables, at) in self._tables.items():
            places = at[self._places[key][place]]
            found[key] = {attr: gather(rows, places) for attr, rows in tables.items()}
        return found

    def _wait(self) -> None:
        self._done.wait()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._batches, wanted = self._make()
            united, self._places = _united(wanted)
            self._tables = self._fetcher.fetch(united, len(wanted))
        except BaseException as error:
            self._error = error
        self._done.set()


def _united(wanted: Sequence[Wanted]) -> tuple[Wanted, Places]:
    """Rows that any of some batches wants, of nodes each once; where among them each one's are."""
    none, united, found = torch.empty(0, dtype=torch.int64), {}, {}
    for key in {key: None for each in wanted for key in each}:
        lists = [each.get(key, none) for each in wanted]
        numbers, places = torch.cat(lists), torch.arange(sum(map(len, lists)))
        if key[0] == "node":
            numbers, places = numbers.unique(return_inverse=True)
        united[key] = numbers
        found[key] = places.split([len(each) for each in lists])
    return united, found


def sample(
    exchange: Exchange, names: Mapping[str, Any], asked: Sequence[Asked], num_threads: int
) -> list[Any]:
    """Samples batches whose neighbours other ranks have: once a hop, these are asked for.

    Args:
        exchange: Where neighbours come from, under ``("neighbour", edge type)``.
        names: Edge types by the path of their topology.
        asked: The batches.
        num_threads: Threads inside one batch.

    Returns:
        The batches; an error in place of one that has one.

    Raises:
        RankLostError: Another rank does not answer.
    """
    window = _core.SteppedWindow(asked, num_threads)
    while lists := window.step():
        keys = [("neighbour", names[path]) for path, _ in lists]
        united, places = _united([{key: lists[n][1]} for n, key in enumerate(keys)])
        tables = {
            key: gather(rows["source"], at).to(torch.int64)
            for key, (rows, at) in exchange.fetch(united, {}).items()
        }
        window.fill([tables[key][places[key][n]] for n, key in enumerate(keys)])
    batches: list[Any] = []
    for number in range(len(asked)):
        try:
            batches.append(window.take(number))
        except Exception as error:
            batches.append(error)
    return batches
