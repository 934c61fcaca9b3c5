"""``EngineLoader``, the common part of all loaders whose batches the engine makes; ``Epoch``."""

from __future__ import annotations

import atexit
import os
import weakref
from abc import abstractmethod
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _BaseDataLoaderIter
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from pyg_graphzero import _core
from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.loader.device import EpochOnDevice
from pyg_graphzero.loader.first_aggregation import check_first_aggregation
from pyg_graphzero.loader.keyed import Graph_co, KeyedLoader, Positions, as_positions, split_key
from pyg_graphzero.loader.plan import BatchPlan, Fetched
from pyg_graphzero.loader.stats import LoaderStats, Stopwatch
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.keeper import Keeper, keeper_of
from pyg_graphzero.memory.lease import Lease
from pyg_graphzero.memory.residence import Residence
from pyg_graphzero.memory.usage import Watch
from pyg_graphzero.pyg.data import contents_of
from pyg_graphzero.sampling.base import GraphSampler, Prepared
from pyg_graphzero.sampling.options import SamplingOptions, options_of
from pyg_graphzero.util.keys import random_key
from pyg_graphzero.util.system import free_memory

# Share of the free memory for batches that wait for the consumer.
_SHARE_AHEAD = 0.25
# Engines whose threads must not outlive the interpreter. The references are plain: one with a
# callback, as a WeakValueDictionary has, would lose a Ctrl-C that strikes in the callback.
_live: dict[int, weakref.ref[_core.Epoch]] = {}
_engines = count()
_is_ending = False
# How batches are put together of what is in memory whole; what is read is in `Residence.made`.
_plans_in_memory: WeakKeyDictionary[Any, BatchPlan] = WeakKeyDictionary()


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
        recipe: How the engine samples and gathers.
        prepared: Seeds of the batch, and edges that are in no hop.
        key: The key of its randomness.
        plan: How its attributes are put together; None: they are not gathered by the engine.
    """

    recipe: _core.Recipe
    prepared: Prepared
    key: int
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
        self._watch: Watch | None = None
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
            batch = (
                request.recipe.make(
                    request.prepared.seeds,
                    request.key,
                    loader.graph_sampler.num_threads,
                    number,
                    request.prepared.excluded,
                )
                if engine is None
                else engine.get(number, loader.timeout)
            )
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
        loader = self._loader
        self._lease = self._begin_lease()
        threads = loader.num_workers if loader.prefetch_factor != 0 else 0
        room = int(_SHARE_AHEAD * free_memory())
        if self._lease is not None:
            threads, room = self._lease.threads, self._lease.ready_bytes
        self.stats.num_workers = threads
        self._requests = {}
        if threads > 0:
            self._engine = begin_engine(threads, room, number)
        if self._lease is not None:
            self._lease.engine = self._engine
        self._process = os.getpid()

    def _begin_lease(self) -> Lease | None:
        """The epoch's share of the memory budget; None where all is in memory."""
        loader = self._loader
        self._files = None  # frees the columns of the last plan before the next one is chosen
        files = self._files = loader._files()
        plan = self._plan()
        self._watch = None if files is None else loader._keeper().watch_for(loader)
        self.stats.reordered = files is not None and files.copy is not None
        if files is None or files.leases is None:
            return None
        size = loader._size_in(files)
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

    def _plan(self) -> BatchPlan:
        plan: BatchPlan = self._loader._plan_by(self._files)
        return plan

    @property
    def _ahead(self) -> int:
        """Number of batches that may be made before they are asked for."""
        if self._lease is not None:
            return self._lease.ahead
        return int(self._loader.num_workers * (self._loader.prefetch_factor or 0))

    def _request(self, number: int) -> Request:
        """How a batch is made."""
        request: Request = self._loader._request(self._plan(), *self._seeds.at(number))
        return request

    def _fill(self, first: int, wanted: int | None = None) -> bool:
        """Asks the engine for batches: ``wanted``, and as many from ``first`` on as may be ahead.

        An error in a batch ahead is raised when that batch is wanted.

        Returns:
            False where the epoch is known to have no batch ``first``.
        """
        engine, loader = self._engine, self._loader
        if engine is None:
            return True
        stop, has_first = first + max(self._ahead, int(wanted is not None)), True
        while (number := engine.end) < stop:
            if number != wanted and not loader._may_ask():
                break
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
            prepared = request.prepared
            engine.add(number, request.recipe, prepared.seeds, request.key, prepared.excluded)
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
        batch, request = self._made[number]
        fetched: tuple[Fetched, ...] = ()
        with self._waiting:
            if batch is None:
                window, place = self._asked[number]
                batch = window.batch(place)
                self.stats.add(batch)
                self.stats.elapsed = perf_counter() - self._begun
            if request.plan is not None:  # or it is put together of a transform's sample
                window, place = self._asked[number]
                fetched = (window.rows(place),)
        return super()._finish(batch, request, *fetched)

    @property
    def _shards(self) -> Any:
        """The shards, if they have neighbours."""
        return self._loader.graph_sampler.graph.shards

    @property
    def _all_shards(self) -> Any:
        return contents_of(self._loader.data).shards  # type: ignore[union-attr]

    @property
    def _ahead(self) -> int:
        return super()._ahead if self._shards is None else 0

    def _begin(self, number: int) -> None:
        if self._shards is None:
            super()._begin(number)

    def _finish(self, batch: _core.Batch, request: Request, *fetched: Fetched) -> Any:
        return batch, request  # its rows are not there yet

    def _make(self, number: int) -> None:
        """Has a batch made if it is not, and one or two behind those that are."""
        together = self._all_shards.together
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
        if self._shards is None:
            made: tuple[_core.Batch, Request] = super().get(number)
            return made
        with self._preparing:
            self._seeds.forget(number - 1)
            return None, self._request(number)

    def _ask(self) -> None:
        """Has all batches that wait for a window sampled, if need be, and their rows fetched."""
        numbers, sampler = range(self._begins, self._ends), self._loader.graph_sampler
        self._begins = self._ends
        made = {number: self._made[number] for number in numbers}

        def wanted_of(number: int, batch: _core.Batch) -> Any:
            plan = made[number][1].plan
            return {} if plan is None else plan.wanted(sampler.sample_of(batch))

        if self._shards is not None:
            window = self._shards.sample(
                [_as_asked(number, request) for number, (_, request) in made.items()],
                lambda place, batch: wanted_of(numbers[place], batch),
                self._loader.num_workers or sampler.num_threads,
            )
        else:
            window = self._all_shards.ask(
                [wanted_of(number, batch) for number, (batch, _) in made.items()]  # type: ignore[arg-type]
            )
        self._asked |= {number: (window, place) for place, number in enumerate(numbers)}


def _as_asked(number: int, request: Request) -> Any:
    """A batch as :func:`~pyg_graphzero.shards.window.sample` takes it."""
    prepared = request.prepared
    return request.recipe, prepared.seeds, request.key, number, prepared.excluded


class EngineLoader(KeyedLoader[Graph_co]):
    """Mixed into PyG's loaders, in front of them.

    With a sampler of ours, ``num_workers`` are threads of the engine. With any other sampler they
    are torch's processes, as in PyG.
    """

    data: Any
    node_sampler: Any
    num_workers: int
    batch_sampler: Any
    prefetch_factor: int | None
    timeout: float
    transform: Any = None
    transform_sampler_output: Any = None
    filter_per_worker: bool | None = True  # collate_fn makes whole batches
    edge_ids: bool = True  # batches have e_id
    first_aggregation: str | None = None  # of features, while they are gathered
    _stats: LoaderStats | None = None
    _device: torch.device | None = None
    _taken: tuple[str, ...] = ()  # options that it takes, its sampler's aside

    def _keep(
        self,
        device: Any,
        options: SamplingOptions | None = None,
        sampler: Any = None,
    ) -> None:
        """Takes what torch's constructor does not know, or would refuse, from its arguments."""
        self.device = device
        self.options = options_of(options, self, self._taken, sampler)

    def _load(self, count: int, arguments: dict[str, Any]) -> None:
        """``DataLoader``'s constructor, where PyG's would sort or copy edges.

        Args:
            count: How many seeds there are.
            arguments: Arguments of ``DataLoader``.
        """
        given = {"dataset": Positions(count), "collate_fn": self.collate_fn}
        DataLoader.__init__(self, **(arguments | given))  # type: ignore[arg-type]

    @property
    def graph_sampler(self) -> Any:
        """The sampler in use, ours or not."""
        return self.node_sampler

    @abstractmethod
    def _prepare(self, index: Any, key: int) -> Prepared:
        """Prepares the sample of the seeds at some positions."""

    def trial(self, index: Tensor, key: int) -> Prepared:
        """Prepares a sample of as many seeds, no matter which: ``index`` is random."""
        return self._prepare(index, key)

    def _label(self, batch: Data | HeteroData, metadata: Any) -> None:
        """Says in a batch what is known of its seeds."""

    def collate_fn(self, index: Any) -> Any:
        """Samples one batch, and gathers its features if that is this process's job."""
        index, given = split_key(index)
        if not isinstance(self.graph_sampler, GraphSampler):
            return super().collate_fn(index)  # type: ignore[misc]
        key = random_key() if given is None else given
        out = self.graph_sampler.sample(self._prepare(index, key), key)
        return self.filter_fn(out) if self.filter_per_worker else out

    def filter_fn(self, out: SamplerOutput | HeteroSamplerOutput) -> Data | HeteroData:
        """Joins sampled nodes and edges with their attributes."""
        if not isinstance(self.graph_sampler, GraphSampler):
            return super().filter_fn(out)  # type: ignore[misc]
        if self.transform_sampler_output:
            out = self.transform_sampler_output(out)
        plan, sampled = self._current_plan(), self.graph_sampler.sampled(out)
        batch = plan.assemble(sampled, plan.gather(sampled, self.graph_sampler.num_threads))
        return self._labelled(batch, out.metadata)

    def _labelled(self, batch: Data | HeteroData, metadata: Any) -> Any:
        self._label(batch, metadata)
        return batch if self.transform is None else self.transform(batch)

    def check_worker_number_rationality(self) -> None:
        """Warns of more workers than there are cores, where workers are processes."""
        if not self._runs_in_engine():
            super().check_worker_number_rationality()  # type: ignore[misc]

    def _runs_in_engine(self) -> bool:
        own = getattr(self.collate_fn, "__func__", None) is EngineLoader.collate_fn
        return own and isinstance(self.graph_sampler, GraphSampler)

    def _keeper(self) -> Keeper | None:
        return keeper_of(self.graph_sampler.graph.contents)

    def _files(self) -> Residence | None:
        """The store's files by the memory plan for an epoch that begins now; None: in memory."""
        keeper = self._keeper()
        return None if keeper is None else keeper.residence_for(self)

    def _current_plan(self) -> BatchPlan:
        """How a batch is put together with the columns in memory now, of whichever epoch."""
        keeper = self._keeper()
        return self._plan_by(
            None if keeper is None else keeper.current or keeper.residence_for(self)
        )

    def _plan_by(self, files: Residence | None) -> BatchPlan:
        made = _plans_in_memory if files is None else files.made
        plan, sampler = made.get(self), self.graph_sampler
        if plan is None or not plan.is_for(self.data, sampler.graph, self.first_aggregation):
            check_first_aggregation(self.first_aggregation, self)
            reading = None if files is None else files.reading(sampler, self._size_in(files))
            plan = made[self] = BatchPlan(
                self.data, sampler, self.edge_ids, files, reading, self.first_aggregation
            )
        return plan

    def _size_in(self, files: Residence) -> float:
        """How large a batch is, in batches that there is room for."""
        keeper = self._keeper()
        return 1.0 if keeper is None or files.plan.is_whole else keeper.relative_size(self)

    def epoch_length(self) -> int:
        """How many batches an epoch has."""
        loader: Any = self  # a DataLoader
        try:
            return len(loader)
        except (TypeError, ValueError):  # a batch sampler that does not say; ValueError is PyG's
            return 2 * costs.MAX_WINDOW

    def _may_ask(self) -> bool:
        """Whether the epoch may ask for one more batch ahead now; always where none is pending."""
        return True

    def _request(self, plan: BatchPlan | None, index: Any, key: int) -> Request:
        """A batch from the positions of its seeds, for the engine to sample and maybe gather."""
        prepared = self._prepare(as_positions(index), key)
        reading = None if plan is None else plan.reading
        gathers = (
            self.graph_sampler.is_final
            and not self.transform_sampler_output
            and getattr(self.filter_fn, "__func__", None) is EngineLoader.filter_fn
        )
        plan = plan if gathers else None
        recipe = self.graph_sampler.recipe(None if plan is None else plan.columns, reading)
        return Request(recipe, prepared, int(key), plan)

    def _finish(self, batch: _core.Batch, request: Request, *fetched: Fetched) -> Any:
        """Turns the engine's batch into the consumer's, with its rows in shards if there are."""
        plan = request.plan
        sampled = self.graph_sampler.sample_of(batch)
        metadata = request.prepared.finish(sampled)
        if plan is None:
            return self.filter_fn(self.graph_sampler.output(sampled, metadata))
        made = plan.assemble(sampled, batch.gathered, None, *fetched)
        return self._labelled(made, metadata)

    @property
    def device(self) -> torch.device | None:
        """Where batches are delivered; None leaves them in main memory."""
        return self._device

    @device.setter
    def device(self, value: Any) -> None:
        self._device = None if value is None else torch.device(value)

    def _epoch(self, first: int) -> Any:
        if self._runs_in_engine():
            contents = contents_of(self.data)
            is_sharded = contents is not None and contents.shards is not None
            epoch = (EpochOfShards if is_sharded else Epoch)(self, first)
            self._stats = epoch.stats
        else:
            epoch = super()._epoch(first)
        if self._device is None or self._device.type == "cpu":
            return epoch
        return EpochOnDevice(epoch, self._device)

    def stats(self) -> LoaderStats:
        """Where the time of the epoch under way goes, or went in the last one.

        Raises:
            UnsupportedError: The sampler that makes the batches is not ours.
        """
        if not self._runs_in_engine():
            raise UnsupportedError(
                f"stats: found batches made by {type(self.graph_sampler).__name__}, expected a "
                "sampler of pyg_graphzero"
            )
        return self._stats or LoaderStats(self.num_workers)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_stats"}
