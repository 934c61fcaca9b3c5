"""``Epoch``: the batches of one epoch of a loader, by number, from the engine."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from typing import Any

from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _BaseDataLoaderIter

from pyg_graphzero import _core
from pyg_graphzero.loader.plan import BatchPlan, Fetched
from pyg_graphzero.loader.stats import LoaderStats, Stopwatch
from pyg_graphzero.memory.lease import Lease
from pyg_graphzero.memory.residence import Residence
from pyg_graphzero.memory.usage import Usage
from pyg_graphzero.sampling.base import Sampled
from pyg_graphzero.shards.window import Asked
from pyg_graphzero.util.system import free_memory

# Share of the free memory for batches that wait for the consumer.
_SHARE_AHEAD = 0.25
# Engines whose threads must not outlive the interpreter. The references are plain: one with a
# callback, as a WeakValueDictionary has, would lose a Ctrl-C that strikes in the callback.
_live: dict[int, weakref.ref[_core.Epoch]] = {}
_engines = count()
_is_ending = False


def begin_engine(threads: int, max_bytes: int, first: int) -> _core.Epoch:
    """Starts threads that wait for batches to make, from number ``first`` on, until it is closed.

    Raises:
        RuntimeError: The interpreter is about to end.
    """
    engine = _core.Epoch(threads, max_bytes, first)
    for number, reference in list(_live.items()):
        if reference() is None:
            _live.pop(number, None)
    _live[next(_engines)] = weakref.ref(engine)
    if _is_ending:
        engine.close()
        raise RuntimeError("the interpreter is ending: no more batches are made")
    return engine


@atexit.register
def _close_all() -> None:
    global _is_ending
    _is_ending = True
    for reference in list(_live.values()):  # daemon threads may be adding to it
        engine = reference()
        if engine is not None:
            engine.close()


@dataclass
class Request:
    """How a batch is to be made.

    Attributes:
        asked: The batch as the engine is asked for it.
        finish: See :class:`~.sampling.base.Prepared`.
        plan: How its attributes are put together; None: they are not gathered by the engine.
    """

    asked: Asked
    finish: Callable[[Sampled], Any]
    plan: BatchPlan | None


class Epoch:
    """Makes the batches of a loader's epoch: ahead by threads, or each when it is asked for.

    A batch is a function of the loader's recipe, its seeds, its key and its number. So an epoch has
    no state that must survive: after a fork it begins anew at the number that is asked for.

    Args:
        loader: The loader, whose sampler is one of this package.
        first: Number of the first batch that will be asked for.
    """

    def __init__(self, loader: Any, first: int) -> None:
        # Torch's own iterator draws a seed for its workers, before the shuffle, and looks for a
        # device that pin_memory is for.
        self._torchs = _BaseDataLoaderIter(loader)
        self._loader = loader
        self._seeds = loader.keyed_seeds(first)
        self._engine: _core.Epoch | None = None
        self._files: Residence | None = None
        self._lease: Lease | None = None
        self._watch: Usage | None = None
        self._requests: dict[int, Request] = {}  # of batches that the engine has
        self._process: int | None = None  # the one that it has begun in
        self._begun = perf_counter()
        self.stats = LoaderStats(loader.num_workers)
        self._preparing, self._waiting, self._finishing = (
            Stopwatch(self.stats, field) for field in ("prepare", "wait", "finish")
        )
        with self._preparing:
            self._begin(first)
            if self._ahead:
                self._fill(first)

    def get(self, number: int) -> Any:
        """Makes batch ``number``, or waits for it: any that is not before the last but one.

        A batch that is asked for again is the same, bit for bit.

        Raises:
            StopIteration: The epoch has no such batch.
            RuntimeError: The batch took longer than the loader's ``timeout``.
        """
        loader = self._loader
        with self._preparing:
            self._seeds.forget(number - 1)
            if self._is_over(number):
                self._seeds.at(number)  # nothing begins where there is no such batch
                self._begin(number)
            engine = self._engine
            if engine is None or number < engine.next:
                # Its arrays, if it was made before, were handed over and may have been written to.
                request, engine = self._request(number), None
            elif self._fill(number, wanted=number):
                request = self._requests[number]
            else:
                self._close()
                raise StopIteration
        with self._waiting:
            if engine is None:
                batch = loader.graph_sampler.make(request.asked)
            else:
                batch = engine.get(number, loader.timeout)
        if batch is None:
            raise RuntimeError(f"DataLoader timed out after {loader.timeout} seconds")
        with self._preparing:
            is_last = not self._fill(number + 1)
            self._requests.pop(number, None)
        with self._finishing:
            finished = self._finish(batch, request)
        if is_last:  # a consumer that counts batches does not ask for one more
            self._close()
        self.stats.add(batch)
        self.stats.elapsed = perf_counter() - self._begun
        return finished

    def _begin(self, number: int) -> None:
        """Starts the engine at a batch."""
        self._close()
        loader, lease = self._loader, self._begin_lease()
        self._lease, self._requests = lease, {}
        if lease is not None:
            threads, room = lease.threads, lease.ready_bytes
        else:
            threads = loader.num_workers if loader.prefetch_factor != 0 else 0
            room = int(_SHARE_AHEAD * free_memory()) if threads else 0
        self.stats.num_workers = threads
        if threads > 0:
            self._engine = begin_engine(threads, room, number)
        if lease is not None:
            lease.engine = self._engine
        self._process = os.getpid()

    def _begin_lease(self) -> Lease | None:
        """The epoch's share of the memory budget; None where all is in memory."""
        loader = self._loader
        self._files = None  # frees the columns of the last plan before the next one is chosen
        files = self._files = loader.files()
        plan = loader.plan_by(files)
        self._watch = None if files is None else loader.keeper().watch_for(loader)
        self.stats.reordered = files is not None and files.copy is not None
        if files is None or files.leases is None:
            return None
        size = loader.size_in(files)
        if files.plan.window > 0:
            window = max(1, int(files.plan.window_of(loader.epoch_length()) / size))
            plan.columns.read_into(files.leases.windows, window)
        return files.leases.begin(loader.num_workers, size)

    def _is_over(self, number: int) -> bool:
        """The engine cannot give this batch."""
        if self._process != os.getpid():  # it is closed, or its threads are in another process
            return True
        return self._engine is not None and self._engine.next - number not in (0, 1)

    def _close(self) -> None:
        """Ends the threads, and leaves the epoch's share of the memory budget to others."""
        self._process = None
        engine, lease = self._engine, self._lease
        self._engine = self._lease = None
        if engine is not None:
            engine.close()
        if lease is not None:
            lease.give_back()

    @property
    def _ahead(self) -> int:
        """Number of batches that may be made before they are asked for."""
        if self._lease is not None:
            return self._lease.ahead
        return int(self._loader.num_workers * (self._loader.prefetch_factor or 0))

    def _request(self, number: int) -> Request:
        """How a batch is made."""
        plan = self._loader.plan_by(self._files)
        request: Request = self._loader._request(plan, *self._seeds.at(number))
        return request

    def _fill(self, first: int, wanted: int | None = None) -> bool:
        """Asks the engine for batches: ``wanted``, and as many from ``first`` on as may be ahead.

        An error in a batch ahead is raised when that batch is wanted.

        Returns:
            False where the epoch is known to have no batch ``first``.
        """
        engine = self._engine
        if engine is None:
            return True
        stop, has_first = first + max(self._ahead, int(wanted is not None)), True
        while (number := engine.end) < stop:
            try:
                request = self._requests[number] = self._request(number)
            except StopIteration:
                engine.flush()
                has_first = number > first
                break
            except Exception:
                if number == wanted:
                    raise
                break
            recipe, seeds, key, _, excluded = request.asked
            engine.add(number, recipe, seeds, key, excluded)
        if self._lease is not None:
            self._lease.pending = engine.end - first
        return has_first

    def _finish(self, batch: _core.Batch, request: Request, *fetched: Fetched) -> Any:
        """Turns the engine's batch into the consumer's, and notes its rows where use is watched."""
        if self._watch is not None:
            self._watch.add(batch)
        finished = self._loader._finish(batch, request, *fetched)
        if self._torchs._pin_memory:
            finished = pin_memory(finished, self._torchs._pin_memory_device)
        return finished
