"""``EpochOfShards``: the batches of one epoch of a loader whose store lies in shards."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

from pyg_graphzero import _core
from pyg_graphzero.loader.epoch import Epoch, Request
from pyg_graphzero.loader.plan import Fetched
from pyg_graphzero.pyg.data import contents_of
from pyg_graphzero.shards.exchange import Wanted


class EpochOfShards(Epoch):
    """An epoch over a store in shards: rows of its batches are fetched for windows of them, ahead.

    Batches that the engine has made wait here until those of a window are there, and again until
    their rows are: the next window is under way while the last one is used. Where neighbours lie in
    shards, too, windows sample their batches, and the engine has none.

    Args:
        loader: See :class:`Epoch`.
        first: See :class:`Epoch`.
    """

    def __init__(self, loader: Any, first: int) -> None:
        self._sampled = loader.graph_sampler.graph.shards  # the shards, if they have neighbours
        self._shards = contents_of(loader.data).shards  # type: ignore[union-attr]
        super().__init__(loader, first)
        self._made: dict[int, tuple[_core.Batch | None, Request]] = {}  # until it was used
        self._asked: dict[int, tuple[Any, int]] = {}  # its window, and its place in that
        self._begins = self._ends = first  # numbers from the one to the other wait for a window

    def get(self, number: int) -> Any:
        """Makes batch ``number``; see :meth:`Epoch.get`.

        Raises:
            RankLostError: A rank that has rows of it does not answer.
        """
        if number not in self._made and number != self._ends:
            self._made.clear()
            self._asked.clear()
            self._begins = self._ends = number
        for old in [each for each in self._made if each < number - 1]:
            del self._made[old]
            self._asked.pop(old, None)
        self._make(number)
        (batch, request), (window, place) = self._made[number], self._asked[number]
        with self._waiting:
            if batch is None:
                batch = window.batch(place)
                self.stats.add(batch)
                self.stats.elapsed = perf_counter() - self._begun
            # Without a plan, it is put together of a transform's sample.
            fetched = () if request.plan is None else (window.rows(place),)
        return super()._finish(batch, request, *fetched)

    @property
    def _ahead(self) -> int:
        return super()._ahead if self._sampled is None else 0

    def _begin(self, number: int) -> None:
        if self._sampled is None:
            super()._begin(number)

    def _finish(self, batch: _core.Batch, request: Request, *fetched: Fetched) -> Any:
        return batch, request  # its rows are not there yet

    def _make(self, number: int) -> None:
        """Has a batch made if it is not, and one or two behind those that are."""
        together = self._shards.together
        for _ in range(2):
            if self._ends >= number + 2 * together:
                break
            try:
                self._made[self._ends] = self._begun_batch(self._ends)
            except Exception:
                if self._ends == number:
                    raise
                break  # it is raised when that batch is wanted
            self._ends += 1
            if self._ends - self._begins >= together:
                self._ask()
        if number >= self._begins:
            self._ask()

    def _begun_batch(self, number: int) -> tuple[_core.Batch | None, Request]:
        """A batch that the engine has made, or how its window is to make it."""
        if self._sampled is None:
            made: tuple[_core.Batch, Request] = super().get(number)
            return made
        with self._preparing:
            self._seeds.forget(number - 1)
            return None, self._request(number)

    def _ask(self) -> None:
        """Has all batches that wait for a window sampled, if need be, and their rows fetched."""
        numbers, sampler = range(self._begins, self._ends), self._loader.graph_sampler
        self._begins = self._ends
        made, requests = zip(*(self._made[number] for number in numbers), strict=True)
        shards, threads = self._sampled, self._loader.num_workers or sampler.num_threads

        def wanted(batch: Any, request: Request) -> Wanted:
            if request.plan is None or isinstance(batch, Exception):
                return {}
            return request.plan.wanted(sampler.sample_of(batch))

        def make() -> tuple[Sequence[Any], list[Wanted]]:
            asked = [request.asked for request in requests]
            batches = made if shards is None else shards.sample(asked, threads)
            return batches, list(map(wanted, batches, requests))

        window = self._shards.ask(make)
        self._asked |= {number: (window, place) for place, number in enumerate(numbers)}
