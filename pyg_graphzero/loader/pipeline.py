"""An epoch's batches, made by the engine's threads ahead of whoever trains on them."""

from __future__ import annotations

import atexit
import weakref
from collections import deque
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _BaseDataLoaderIter

from pyg_graphzero import _core
from pyg_graphzero.loader.stats import LoaderStats, Stopwatch
from pyg_graphzero.sampler import Seeds

if TYPE_CHECKING:
    from pyg_graphzero.loader.engine import EngineLoader

# The threads of these must not outlive the interpreter.
_live: weakref.WeakSet[_core.Pipeline] = weakref.WeakSet()


def start_pipeline(num_threads: int, max_bytes: int) -> _core.Pipeline:
    """Starts threads that wait for batches to make, until the pipeline is closed."""
    pipeline = _core.Pipeline(num_threads, max_bytes)
    _live.add(pipeline)
    return pipeline


@atexit.register
def _close_all() -> None:
    for pipeline in list(_live):
        pipeline.close()


@dataclass
class Request:
    """A batch that is to be made.

    Attributes:
        recipe: How.
        seeds: From what.
        key: The key of its randomness.
        context: What its loader needs to finish it.
        number: Which batch of its epoch it is.
        error: Why it cannot be made; raised when its turn comes.
    """

    recipe: Any = None
    seeds: Seeds | None = None
    key: int = 0
    context: Any = None
    number: int = 0
    error: Exception | None = None


class BatchIterator(_BaseDataLoaderIter):
    """One epoch of a loader: in-line with ``num_workers=0``, else ahead, in the same order.

    The consumer's thread chooses seeds and finishes batches; what is between them is the engine's.
    """

    def __init__(self, loader: EngineLoader) -> None:
        # Torch's own draws a seed for its workers, before the shuffle, and looks for a device that
        # pin_memory is for.
        super().__init__(loader)  # type: ignore[arg-type]
        self.loader = loader
        self.stats = LoaderStats(loader.num_workers)
        self._preparing = Stopwatch(self.stats, "prepare")
        self._waiting = Stopwatch(self.stats, "wait")
        self._finishing = Stopwatch(self.stats, "finish")
        self._begun = perf_counter()
        self._is_exhausted = False
        self._pending: deque[Request] = deque()
        self._pipeline: _core.Pipeline | None = None
        # Batches that wait for the disk are made ahead, with workers or without.
        with self._preparing:
            self._lease = loader._lease()
        if self._lease is not None:
            self._lease.pending = self._pending
            self.stats.num_workers = self._lease.threads
        if loader.num_workers > 0 or self._lease is not None:
            self._pipeline = loader._take_pipeline(self._lease)
            with self._preparing:
                self._fill()

    @property
    def _ahead(self) -> int:
        """Batches that may be asked for and not delivered."""
        if self._lease is not None:
            return self._lease.ahead
        return max(1, self.loader.num_workers * (self.loader.prefetch_factor or 1))

    def _next_data(self) -> Any:
        with self._preparing:
            if self._pipeline is not None and self._pipeline.orphaned:
                self._begin_anew()
            self._fill()
        if not self._pending:
            self._end()
            raise StopIteration
        request = self._pending[0]
        if request.error is not None:
            self._pending.popleft()
            raise request.error
        with self._waiting:
            batch = self._made(request)
        if self._pipeline is not None:
            with self._preparing:
                self._fill()
        with self._finishing:
            finished = self.loader._finish(batch, request.context)
            if self._pin_memory:
                finished = pin_memory(finished, self._pin_memory_device)
        self._count(*batch[6])
        if self._is_exhausted and not self._pending:
            self._end()  # now: who counts batches does not ask for one more
        return finished

    def is_ready(self) -> bool:
        """Whether the next batch is there, so that nobody would wait for it."""
        if self._pipeline is None or not self._pending or self._pipeline.orphaned:
            return False
        return self._pending[0].error is None and self._pipeline.is_ready

    def _count(
        self,
        sample: float,
        gather: float,
        nodes: int,
        edges: int,
        size: int,
        read: tuple[int, int, int, int, int, float],
        topology_read: tuple[int, int, int, int, int, float],
    ) -> None:
        stats = self.stats
        rows, hits, reads, read_bytes, useful_bytes, seconds = read
        stats.rows += rows
        stats.hits += hits
        stats.reads += reads
        stats.read_bytes += read_bytes
        stats.useful_bytes += useful_bytes
        stats.read += seconds
        rows, hits, reads, read_bytes, useful_bytes, seconds = topology_read
        stats.topology_rows += rows
        stats.topology_hits += hits
        stats.topology_reads += reads
        stats.topology_bytes += read_bytes
        stats.topology_useful_bytes += useful_bytes
        stats.topology_read += seconds
        stats.batches += 1
        stats.sample += sample
        stats.gather += gather
        stats.nodes += nodes
        stats.edges += edges
        stats.bytes += size
        stats.elapsed = perf_counter() - self._begun

    def __del__(self) -> None:
        # Unfinished: nobody wants what is under way.
        pipeline = getattr(self, "_pipeline", None)
        if pipeline is not None:
            pipeline.close()
            self._give_back()

    def _made(self, request: Request) -> tuple[Any, ...]:
        """The oldest batch that is pending."""
        if self._pipeline is None:
            self._pending.popleft()
            threads = self.loader._sampler.num_threads
            batch = request.recipe.make(request.seeds, request.key, threads, request.number)
        else:
            try:
                batch = self._pipeline.next(self.loader.timeout)
            except KeyboardInterrupt:
                raise  # it is pending still
            except BaseException:
                self._pending.popleft()
                raise
            if batch is None:
                raise RuntimeError(f"DataLoader timed out after {self.loader.timeout} seconds")
            self._pending.popleft()
        return batch

    def _choose(self) -> None:
        """Adds the next batch of the epoch, if there is one."""
        if self._is_exhausted:
            return
        try:
            index, key = next(self._sampler_iter)
            request = self.loader._request(index, key)
        except StopIteration:
            self._is_exhausted = True
            if self._pipeline is not None:
                self._pipeline.flush()
            return
        except Exception as error:
            request = Request(error=error)
        self._pending.append(request)
        self._submit(request)

    def _fill(self) -> None:
        """Asks for batches as far ahead as the loader wants to be; in-line for the next one."""
        while len(self._pending) < self._ahead and not self._is_exhausted:
            if not self.loader._may_ask():
                return
            self._choose()

    def _submit(self, request: Request) -> None:
        if self._pipeline is not None and request.error is None:
            assert request.seeds is not None
            self._pipeline.submit(request.recipe, request.seeds, request.key, request.number)

    def _begin_anew(self) -> None:
        """In a forked child: the threads are the parent's, the requests are known."""
        self._pipeline = self.loader._take_pipeline(self._lease)
        for request in self._pending:
            self._submit(request)
        if self._is_exhausted:
            self._pipeline.flush()

    def _end(self) -> None:
        if self._pipeline is None:
            return
        if self._lease is None:
            self.loader._return_pipeline(self._pipeline)
        else:
            self._pipeline.close()
            self._give_back()
        self._pipeline = None
        self._is_exhausted = True

    def _give_back(self) -> None:
        # Whose it was: a forked child has other leases than the parent it began in.
        if self._lease is not None:
            self._lease.give_back()
        self._lease = None
