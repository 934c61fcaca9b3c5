"""An epoch's batches, made by the engine's threads ahead of whoever trains on them."""

from __future__ import annotations

import atexit
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, islice, takewhile
from time import perf_counter
from typing import Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _BaseDataLoaderIter

from pyg_graphzero import _core
from pyg_graphzero.loader.keyed import KeyedIndex
from pyg_graphzero.loader.pace import Pace
from pyg_graphzero.loader.stats import LoaderStats, Stopwatch
from pyg_graphzero.loader.steady import Steady, is_struck
from pyg_graphzero.memory.quota import EpochQuota
from pyg_graphzero.sampling.base import Seeds

# The threads of these must not outlive the interpreter. Plain references: one with a callback, as a
# WeakValueDictionary has, would lose a Ctrl-C that strikes in there.
_live: dict[int, weakref.ref[_core.Pipeline]] = {}
_number = count()
_is_ending = False
# Numbers of all batches of the process, in the order in which they are asked for.
_tickets = count(1)


def start_pipeline(num_threads: int, max_bytes: int) -> _core.Pipeline:
    """Starts threads that wait for batches to make, until the pipeline is closed.

    Raises:
        RuntimeError: The interpreter is about to end.
    """
    pipeline = _core.Pipeline(num_threads, max_bytes)
    for number, reference in list(_live.items()):
        if reference() is None:
            _live.pop(number, None)
    _live[next(_number)] = weakref.ref(pipeline)
    if _is_ending:
        pipeline.close()
        raise RuntimeError("the interpreter is ending: no more batches are made")
    return pipeline


@atexit.register
def _close_all() -> None:
    global _is_ending
    _is_ending = True
    for reference in list(_live.values()):  # daemon threads may be adding to it
        pipeline = reference()
        if pipeline is not None:
            pipeline.close()


@dataclass
class Request:
    """How a batch is to be made.

    Attributes:
        recipe: How the engine samples and gathers.
        seeds: The nodes or edges that the batch is sampled around.
        key: The key of its randomness.
        context: The loader's own notes, with which it finishes the batch.
        number: The batch's number in its epoch.
        basis: State of all other inputs of the batch: equal (``==``) as long as none has changed.
    """

    recipe: Any
    seeds: Seeds
    key: int
    context: Any
    number: int
    basis: Any = None


@dataclass(eq=False)
class Turn:
    """One batch on its way: what is known of it so far.

    Attributes:
        index: The positions of its seeds, and its key; None where the sampler gave an error.
        request: How it is made.
        batch: The finished batch, until it is delivered.
        error: Why the batch cannot be made, until that is raised.
        is_over: The batch was delivered, or its error raised.
        ticket: The engine's number of the batch.
        is_joined: The engine's arrays may belong to a batch already, which a transform may change.
        is_early: Its request, or the error, was made before the consumer asked for the batch.
    """

    index: KeyedIndex | None = None
    request: Request | None = None
    batch: Any = None
    error: Exception | None = None
    is_over: bool = False
    ticket: int = field(default_factory=_tickets.__next__)
    is_joined: bool = False
    is_early: bool = False


@dataclass(frozen=True)
class Hooks:
    """Questions of an epoch to its loader.

    Attributes:
        quota: The epoch's share of the memory budget; None where all is in memory.
        is_outdated: A better memory plan is ready.
        take_pipeline: Threads that make batches, for as long as the quota lasts.
        return_pipeline: Gives them back where there is no quota.
        may_ask: Whether one more batch may be asked for ahead now.
        may_prepare: Without workers: whether the next batch, of this size, may be prepared.
        is_current: Whether a request would be made the same now.
        request: How the batch of some positions is made, with its key.
        finish: Turns the engine's batch into the consumer's.
    """

    quota: Callable[[], EpochQuota | None]
    is_outdated: Callable[[], bool]
    take_pipeline: Callable[[EpochQuota | None], _core.Pipeline]
    return_pipeline: Callable[[_core.Pipeline], None]
    may_ask: Callable[[], bool]
    may_prepare: Callable[[int], bool]
    is_current: Callable[[Request], bool]
    request: Callable[[Any, int], Request]
    finish: Callable[[Any, Any], Any]


class Turns(Steady[KeyedIndex, Turn]):
    """A turn for each batch that the sampler chooses seeds for."""

    def _make(self, item: KeyedIndex) -> Turn:
        return Turn(item)


class BatchIterator(_BaseDataLoaderIter):
    """One epoch of a loader: batches made ahead, or in-line when asked for, in the same order.

    With ``num_workers=0`` one batch is ahead at most, and only the clock shows that it was: if any
    of its inputs has changed by the time the batch is asked for, it is made anew, in-line.

    The consumer's thread chooses seeds and finishes batches; the engine does the rest.

    The turns that are pending say how far the epoch is. An exception that strikes the consumer
    leaves them right, and it goes on from there: a batch that it had and lost is made again,
    in-line, with the same bits. Only an error of a batch's own, in its sampler, its making or its
    transform, takes the batch's place, as in PyG; see
    :func:`~pyg_graphzero.loader.steady.is_struck`. One thread at a time may ask for batches.

    An iterator that is dropped unfinished ends its threads as its pipeline is freed, and its quota
    is no more. It has no ``__del__``: an exception that strikes in ``__del__`` is printed, and
    lost.
    """

    def __init__(self, loader: Any, hooks: Hooks) -> None:
        # Torch's own draws a seed for its workers, before the shuffle, and looks for a device that
        # pin_memory is for.
        super().__init__(loader)
        self.loader = loader
        self._hooks = hooks
        self.stats = LoaderStats(loader.num_workers)
        self._preparing = Stopwatch(self.stats, "prepare")
        self._waiting = Stopwatch(self.stats, "wait")
        self._finishing = Stopwatch(self.stats, "finish")
        self._begun = perf_counter()
        self._turns = Turns(self._sampler_iter)
        self._is_exhausted = False
        self._is_renewing = False
        self._pending: deque[Turn] = deque()
        self._pipeline: _core.Pipeline | None = None
        self._pace: Pace | None = None  # where batches are prepared only if that pays
        self._is_ahead = True  # the pipeline is asked for batches
        # Batches that wait for the disk are made ahead, with workers or without.
        with self._preparing:
            self._quota = hooks.quota()
        if self._quota is not None:
            self._quota.pending = self._pending
            self.stats.num_workers = self._quota.threads
        if loader.num_workers > 0 or self._quota is not None:
            self._pipeline = hooks.take_pipeline(self._quota)
            with self._preparing:
                self._fill()
        else:
            self._is_ahead, self._pace = False, Pace()

    @property
    def _ahead(self) -> int:
        """Batches that may be asked for and not delivered."""
        if self._quota is not None:
            return self._quota.ahead
        return max(1, self.loader.num_workers * (self.loader.prefetch_factor or 1))

    def __next__(self) -> Any:
        # Not torch's own, in which something may strike when the batch is given up here.
        if self._pace is not None:
            self._pace.asked()
        with torch.autograd.profiler.record_function(self._profile_name):
            turn = self._oldest()
        if turn is None:
            raise StopIteration
        if self._pace is not None:
            self._pace.delivered()
        batch, error = turn.batch, turn.error
        turn.batch, turn.error, turn.is_over = None, None, True
        self._num_yielded += 1
        if error is not None:
            raise error
        return batch

    def _oldest(self) -> Turn | None:
        """The turn that is next, its batch finished or its error known; None at the end."""
        pending = self._pending
        while pending and pending[0].is_over:
            pending.popleft()
        with self._preparing:
            if self._pipeline is not None and self._pipeline.orphaned:
                # In a forked child: the threads are the parent's, the requests are known.
                self._pipeline = self._hooks.take_pipeline(self._quota) if self._is_ahead else None
            if self._is_renewing or (self._quota is not None and self._hooks.is_outdated()):
                self._renew()
            self._fill()
        if not pending:
            self._end()
            return None
        turn = pending[0]
        if turn.is_early:
            turn.error = None
        if turn.batch is None and turn.error is None:
            try:
                is_late = not self._finish(turn)
            except Exception as error:
                if is_struck(error):
                    raise
                turn.error, is_late = error, False
            if is_late:
                raise RuntimeError(f"DataLoader timed out after {self.loader.timeout} seconds")
        if self._is_exhausted and len(pending) == 1:
            self._end()  # now: who counts batches does not ask for one more
        return turn

    def _finish(self, turn: Turn) -> bool:
        """Makes the oldest batch, and joins it; False where it takes too long."""
        assert turn.index is not None
        if turn.is_joined or turn.request is None:
            turn.request, turn.is_joined = self._hooks.request(*turn.index), False
        if turn.is_early:
            with self._preparing:
                self._confirm(turn)
        request = turn.request
        assert request is not None
        is_ahead = self._pipeline is not None and self._pipeline.oldest == turn.ticket
        with self._waiting:
            batch = self._made(request, turn.ticket)
        if batch is None:
            return False
        with self._preparing:
            if self._pace is not None:
                self._choose(self._pace, batch, is_ahead)
            if self._is_ahead:
                self._fill(made=1)
        with self._finishing:
            turn.is_joined = True
            finished = self._hooks.finish(batch, request.context)
            if self._pin_memory:
                finished = pin_memory(finished, self._pin_memory_device)
        turn.batch = finished
        self.stats.add(batch)
        self.stats.elapsed = perf_counter() - self._begun
        return True

    def _confirm(self, turn: Turn) -> None:
        """Gives up a prepared batch unless it would be the same if it were made now."""
        assert turn.index is not None
        is_current = False
        try:
            is_current = turn.request is not None and self._hooks.is_current(turn.request)
        finally:
            if not is_current:
                self._is_ahead, self._pace = False, None
                pipeline, self._pipeline = self._pipeline, None
                if pipeline is not None:
                    pipeline.close()
        if not is_current:
            turn.request = self._hooks.request(*turn.index)
        turn.is_early = False

    def _choose(self, pace: Pace, batch: _core.Batch, is_ahead: bool) -> None:
        """Decides whether the next batch is prepared, now that this one is made."""
        threads = 1 if is_ahead else self._threads
        pays = pace.pays(batch.sample_seconds + batch.gather_seconds, threads)
        if pays and self._pipeline is None:
            if _is_ending or not self._hooks.may_prepare(batch.num_bytes):
                self._pace = None
                return
            self._pipeline = self._hooks.take_pipeline(None)
        self._is_ahead = pays

    @property
    def _threads(self) -> int:
        """Number of threads that make a batch in-line."""
        return int(self.loader.graph_sampler.num_threads) or torch.get_num_threads()

    def is_ready(self) -> bool:
        """Whether the next batch is there, so that asking for it would not wait."""
        turn = next((turn for turn in self._pending if not turn.is_over), None)
        if turn is None or turn.batch is not None or turn.error is not None:
            return turn is not None
        pipeline = self._pipeline
        if pipeline is None or pipeline.orphaned or turn.is_early:
            return False
        return pipeline.oldest == turn.ticket and pipeline.is_ready

    def _made(self, request: Request, ticket: int) -> _core.Batch | None:
        """The batch of the oldest turn, as the engine gives it; None where it takes too long."""
        if self._pipeline is not None and self._pipeline.oldest == ticket:
            return self._pipeline.next(self.loader.timeout if self._pace is None else 0.0)
        # No threads make it; or they did, and what they made was lost on its way.
        return request.recipe.make(request.seeds, request.key, self._threads, request.number)

    def _fill(self, made: int = 0) -> None:
        """Asks for batches as far ahead as the loader wants to be; in-line for the next one.

        Args:
            made: Number of pending batches that the engine has given.
        """
        pending = self._pending
        while True:
            if self._is_ahead and self._pipeline is not None:
                self._submit(self._pipeline, made)
            if pending and pending[-1].request is None and pending[-1].error is None:
                self._prepare(pending[-1], is_early=self._pace is not None and made > 0)
            elif (
                self._is_exhausted
                or len(pending) - made >= self._ahead
                or not self._hooks.may_ask()
            ):
                break
            else:
                self._draw()
        if self._pipeline is not None and self._is_exhausted:
            self._pipeline.flush()

    def _submit(self, pipeline: _core.Pipeline, made: int) -> None:
        """Asks the engine for pending batches that it does not know of and that are not made."""
        newest = pipeline.newest
        if not self._pending or self._pending[-1].ticket <= newest:
            return
        unknown = list(takewhile(lambda turn: turn.ticket > newest, reversed(self._pending)))
        for turn in reversed(unknown[: len(self._pending) - made]):
            request = turn.request
            if request is not None and turn.batch is None:
                pipeline.submit(
                    request.recipe, request.seeds, request.key, request.number, turn.ticket
                )

    def _draw(self) -> None:
        """Adds the next turn of the epoch, if there is one."""
        before = len(self._pending)
        try:
            self._pending.extend(islice(self._turns, 1))
        except Exception as error:
            if is_struck(error):
                raise
            self._pending.append(Turn(error=error))
            return
        self._is_exhausted = len(self._pending) == before

    def _prepare(self, turn: Turn, is_early: bool) -> None:
        assert turn.index is not None
        turn.is_early = is_early
        try:
            turn.request = self._hooks.request(*turn.index)
        except Exception as error:
            if is_struck(error):
                raise
            turn.error = error

    def _renew(self) -> None:
        """Goes on by another memory plan: batches made ahead by the last one are made again.

        If something strikes on the way, the next call begins it anew.
        """
        self._is_renewing = True
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.close()
        turns = [turn for turn in self._pending if turn.batch is None and turn.error is None]
        for turn in turns:
            turn.request = None  # it has the rows that are in memory by that plan
        del pipeline
        self._give_back()
        self._quota = self._hooks.quota()
        if self._quota is not None:
            self._quota.pending = self._pending
        self._pipeline = self._hooks.take_pipeline(self._quota)
        for turn in turns:
            self._prepare(turn, is_early=False)
        self._is_renewing = False

    def _end(self) -> None:
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None and self._quota is None:
            self._hooks.return_pipeline(pipeline)
        elif pipeline is not None:
            pipeline.close()
        self._give_back()
        self._is_exhausted = True

    def _give_back(self) -> None:
        # A forked child has other quotas than the parent that the epoch began in.
        if self._quota is not None:
            self._quota.give_back()
        self._quota = None
