"""``EngineLoader``: the common part of all loaders whose batches the engine makes."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from pyg_graphzero import _core
from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.loader.delivery import DeviceIterator, copier_to
from pyg_graphzero.loader.keyed import (
    Graph_co,
    KeyedLoader,
    Positions,
    as_positions,
    is_settled,
    split_key,
)
from pyg_graphzero.loader.locality import check_locality
from pyg_graphzero.loader.pipeline import BatchIterator, Hooks, Request, start_pipeline
from pyg_graphzero.loader.plan import BatchPlan
from pyg_graphzero.loader.stats import LoaderStats
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.paged import PagedFiles
from pyg_graphzero.memory.pager import Pager, pager_of
from pyg_graphzero.memory.quota import EpochQuota
from pyg_graphzero.sampling.base import GraphSampler, Prepared
from pyg_graphzero.store.columns import writes_to
from pyg_graphzero.util.keys import batch_number, random_key
from pyg_graphzero.util.system import free_memory

# Share of the free memory for batches that wait for the consumer.
_SHARE_AHEAD = 0.25
# How batches are put together of what is in memory whole; what is read is in `PagedFiles.made`.
_plans_in_memory: WeakKeyDictionary[Any, BatchPlan] = WeakKeyDictionary()
# Packages whose samplers and seeds may be used before a batch is asked for: NoneType's, too.
_KNOWN = ("pyg_graphzero", "torch_geometric", "builtins")
# Attributes that decide which seeds a batch has, of all kinds of loaders.
_SEEDS = ("input_data", "node_idx", "neg_sampling", "exclude_edges", "_seed_windows")


def _state(value: Any, depth: int = 1) -> Any:
    """Equal as long as a value, and what it holds, are the same and not written to."""
    if isinstance(value, Tensor):
        return id(value), writes_to(value)
    if depth > 0 and hasattr(value, "__dict__"):
        return type(value), [(key, _state(held, depth - 1)) for key, held in vars(value).items()]
    return value if isinstance(value, (bool, int, float, str, tuple)) else id(value)


class EngineLoader(KeyedLoader[Graph_co]):
    """Mixed into PyG's loaders, in front of them.

    With a sampler of ours, ``num_workers`` are threads of the engine. With any other sampler they
    are torch's processes, as in PyG.
    """

    data: Any
    num_workers: int
    batch_sampler: Any
    prefetch_factor: int | None
    timeout: float
    transform: Any = None
    transform_sampler_output: Any = None
    filter_per_worker: bool | None
    edge_ids: bool = True  # batches have e_id
    ahead: str | None = None  # how features of neighbours are added up while they are gathered
    node_ids: bool = True  # n_id are the user's nodes; else rows of the store
    # Made when they are first wanted; they stay behind when the loader is pickled.
    _idle_pipeline: _core.Pipeline | None = None
    _stats: LoaderStats | None = None
    _device: torch.device | None = None

    def _keep(self, device: Any, locality: int | None, arguments: dict[str, Any]) -> None:
        """Takes what torch's constructor does not know, or would refuse, from its arguments."""
        self.device = device
        self.locality = check_locality(locality, arguments)
        if arguments.get("prefetch_factor") == 0 and not arguments.get("num_workers"):
            del arguments["prefetch_factor"]
            self._prepares_none = True

    def _load(self, count: int, arguments: dict[str, Any]) -> None:
        """``DataLoader``'s constructor, where PyG's would sort or copy edges.

        Args:
            count: How many seeds there are.
            arguments: Arguments of ``DataLoader``.
        """
        given = {"dataset": Positions(count), "collate_fn": self.collate_fn}
        DataLoader.__init__(self, **(arguments | given))  # type: ignore[arg-type]

    @property
    @abstractmethod
    def graph_sampler(self) -> Any:
        """The sampler in use, ours or not."""

    @abstractmethod
    def _prepare(self, index: Any, key: int) -> Prepared:
        """Prepares the sample of the seeds at some positions."""

    def trial(self, index: Tensor, key: int) -> Prepared:
        """Prepares a sample of as many seeds, no matter which: ``index`` is random."""
        return self._prepare(index, key)

    @abstractmethod
    def _label(self, batch: Data | HeteroData, metadata: Any) -> None:
        """Says in a batch what is known of its seeds."""

    def collate_fn(self, index: Any) -> Any:
        """Samples one batch, and gathers its features if that is this process's job."""
        index, given = split_key(index)
        if not isinstance(self.graph_sampler, GraphSampler):
            stock: Any = super()
            return stock.collate_fn(index)
        key = random_key() if given is None else given
        out = self.graph_sampler.sample(self._prepare(index, key), key)
        return self.filter_fn(out) if self.filter_per_worker else out

    def filter_fn(self, out: SamplerOutput | HeteroSamplerOutput) -> Data | HeteroData:
        """Joins sampled nodes and edges with their attributes."""
        if not isinstance(self.graph_sampler, GraphSampler) or isinstance(self.data, tuple):
            stock: Any = super()
            return stock.filter_fn(out)
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
            stock: Any = super()
            stock.check_worker_number_rationality()

    def _runs_in_engine(self) -> bool:
        own = getattr(self.collate_fn, "__func__", None) is EngineLoader.collate_fn
        return own and isinstance(self.graph_sampler, GraphSampler)

    def _pager(self) -> Pager | None:
        return pager_of(self.graph_sampler.graph.contents)

    def _files(self) -> PagedFiles | None:
        """The store's files by the memory plan for an epoch that begins now; None: in memory."""
        pager = None if isinstance(self.data, tuple) else self._pager()
        return None if pager is None else pager.files_for(self)

    def _current_plan(self) -> BatchPlan:
        """How a batch is put together with the columns in memory now, of whichever epoch."""
        pager = self._pager()
        return self._plan_by(None if pager is None else pager.files or pager.files_for(self))

    def _plan_by(self, files: PagedFiles | None) -> BatchPlan:
        made = _plans_in_memory if files is None else files.made
        plan, sampler = made.get(self), self.graph_sampler
        if plan is None or not plan.is_for(self.data, sampler.graph):
            reading = None if files is None else files.reading(sampler, self._size_in(files))
            plan = made[self] = BatchPlan(
                self.data, sampler, self.edge_ids, files, self.node_ids, reading, self.ahead
            )
        return plan

    def _size_in(self, files: PagedFiles) -> float:
        """How large a batch is, in batches that there is room for."""
        pager = self._pager()
        return 1.0 if pager is None or files.plan.is_whole else pager.relative_size(self)

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

    def _may_prepare(self, num_bytes: int) -> bool:
        """Without workers: whether nothing but the clock tells if the next batch is made early.

        Args:
            num_bytes: Size of the batch, which is one more in memory then.
        """
        asked = self.graph_sampler, self.__dict__.get("input_data")
        roots = [type(part).__module__.partition(".")[0] for part in asked]
        return (
            self.prefetch_factor != 0
            and is_settled(self.batch_sampler)
            and all(root in _KNOWN for root in roots)
            and num_bytes <= _SHARE_AHEAD * free_memory()
        )

    def _request(self, plan: BatchPlan | None, index: Any, key: int) -> Request:
        """A batch from the positions of its seeds, for the engine to sample and maybe gather."""
        prepared, basis = self._prepare(as_positions(index), key), self._basis(plan)
        reading, plan = None if plan is None else plan.reading, basis[0]
        recipe = self.graph_sampler.recipe(None if plan is None else plan.columns, reading)
        return Request(recipe, prepared.seeds, int(key), (plan, prepared), batch_number(key), basis)

    def _basis(self, plan: BatchPlan | None) -> tuple[Any, ...]:
        """A request's inputs besides positions and key: first the plan it gathers by."""
        gathers = (
            self.graph_sampler.is_final
            and not self.transform_sampler_output
            and getattr(self.filter_fn, "__func__", None) is EngineLoader.filter_fn
        )
        plan = plan if gathers else None
        seeds = [_state(value) for name, value in vars(self).items() if name in _SEEDS]
        return plan, plan and plan.writes(), self.graph_sampler.basis, seeds

    def _finish(self, batch: _core.Batch, context: tuple[BatchPlan | None, Prepared]) -> Any:
        """Turns the engine's batch into the consumer's."""
        plan, prepared = context
        sampled = self.graph_sampler.sample_of(batch)
        metadata = prepared.finish(sampled)
        if plan is None:
            return self.filter_fn(self.graph_sampler.output(sampled, metadata))
        return self._labelled(plan.assemble(sampled, batch.gathered), metadata)

    @property
    def device(self) -> torch.device | None:
        """Where batches are delivered; None leaves them in main memory."""
        return self._device

    @device.setter
    def device(self, value: Any) -> None:
        self._device = None if value is None else torch.device(value)

    def _begin(self) -> Any:
        iterator: Any
        if self._runs_in_engine():
            epoch = _Epoch(self)
            hooks = Hooks(
                epoch.quota, epoch.is_outdated, self._take_pipeline, self._return_pipeline,
                self._may_ask, self._may_prepare, epoch.is_current, epoch.request, epoch.finish,
            )  # fmt: skip
            iterator = BatchIterator(self, hooks)
            self._stats, is_ready = iterator.stats, iterator.is_ready
            epoch.report(iterator.stats)
        else:
            iterator, is_ready = super()._begin(), bool
        if self._device is None or self._device.type == "cpu":
            return iterator
        return DeviceIterator(iterator, copier_to(self._device), is_ready)

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

    def _take_pipeline(self, quota: EpochQuota | None) -> _core.Pipeline:
        if quota is not None:
            quota.pipeline = start_pipeline(quota.threads, quota.ready_bytes)
            return quota.pipeline
        pipeline, self._idle_pipeline = self._idle_pipeline, None
        if pipeline is None or pipeline.orphaned:
            pipeline = start_pipeline(max(1, self.num_workers), int(_SHARE_AHEAD * free_memory()))
        return pipeline

    def _return_pipeline(self, pipeline: _core.Pipeline) -> None:
        if self.persistent_workers and self._idle_pipeline is None:
            self._idle_pipeline = pipeline
        else:
            pipeline.close()

    def __getstate__(self) -> dict[str, Any]:
        own = ("_idle_pipeline", "_stats")
        return {k: v for k, v in self.__dict__.items() if k not in own}


class _Epoch:
    """One epoch of a loader: it ends with the plan of memory that it began with."""

    def __init__(self, loader: EngineLoader) -> None:
        self._loader = loader
        self._files: PagedFiles | None = None
        self._stats: LoaderStats | None = None

    def report(self, stats: LoaderStats) -> None:
        """Keeps ``stats`` up to date from now on: whether rows are read in the order of use."""
        self._stats, stats.reordered = stats, self._is_reordered

    def is_outdated(self) -> bool:
        """A better memory plan is ready, and no other epoch is under way."""
        pager, files = self._loader._pager(), self._files
        if pager is None or files is None or files.is_foreign or files is not pager.files:
            return False
        return pager.is_better_known and files.quotas is not None and len(files.quotas) == 1

    def quota(self) -> EpochQuota | None:
        """The epoch's share of the memory budget; None where all is in memory."""
        loader = self._loader
        self._files = None  # frees the columns of the last plan before the next one is chosen
        files = self._files = loader._files()
        if self._stats is not None:
            self.report(self._stats)
        plan = self._plan()
        if plan is None or files is None or files.quotas is None:
            return None
        size = loader._size_in(files)
        window = max(1, int(files.plan.window_of(loader.epoch_length()) / size))
        plan.columns.read_into(files.quotas.windows, window)
        return files.quotas.begin(loader.num_workers, size)

    @property
    def _is_reordered(self) -> bool:
        """Whether rows are read from a copy in the order of their use."""
        return self._files is not None and self._files.order is not None

    def request(self, index: Any, key: int) -> Request:
        """How the batch of some positions is made."""
        return self._loader._request(self._plan(), index, key)

    def finish(self, batch: _core.Batch, context: tuple[BatchPlan | None, Prepared]) -> Any:
        """Turns the engine's batch into the consumer's, and notes its rows where use is watched."""
        if self._files is not None and self._files.watch is not None:
            self._files.watch.add(self._loader, batch)
        return self._loader._finish(batch, context)

    def is_current(self, request: Request) -> bool:
        """The request would be the same if it were made now."""
        return bool(request.basis == self._loader._basis(self._plan()))

    def _plan(self) -> BatchPlan | None:
        loader, files = self._loader, self._files
        if files is not None and files.is_foreign:
            files = self._files = loader._files()
        return None if isinstance(loader.data, tuple) else loader._plan_by(files)
