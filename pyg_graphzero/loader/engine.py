"""``EngineLoader``, the common part of all loaders whose batches the engine makes."""

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
from pyg_graphzero.loader.device import EpochOnDevice
from pyg_graphzero.loader.epoch import Epoch, Request
from pyg_graphzero.loader.epoch_of_shards import EpochOfShards
from pyg_graphzero.loader.first_aggregation import check_first_aggregation
from pyg_graphzero.loader.keyed import Graph_co, KeyedIndex, KeyedLoader, Positions, as_positions
from pyg_graphzero.loader.plan import BatchPlan, Fetched
from pyg_graphzero.loader.stats import LoaderStats
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.keeper import Keeper, keeper_of
from pyg_graphzero.memory.residence import Residence
from pyg_graphzero.pyg.data import contents_of
from pyg_graphzero.sampling.base import GraphSampler, Prepared
from pyg_graphzero.sampling.options import SamplingOptions, options_of
from pyg_graphzero.util.keys import random_key

# How batches are put together of what is in memory whole; what is read is in `Residence.made`.
_plans_in_memory: WeakKeyDictionary[Any, BatchPlan] = WeakKeyDictionary()


class EngineLoader(KeyedLoader[Graph_co]):
    """Mixed into PyG's loaders, in front of them.

    With a sampler of ours, ``num_workers`` are threads of the engine. With any other sampler they
    are torch's processes, as in PyG.
    """

    data: Any
    node_sampler: Any
    num_workers: int
    prefetch_factor: int | None
    timeout: float
    transform: Any = None
    transform_sampler_output: Any = None
    filter_per_worker: bool | None = True  # collate_fn makes whole batches
    edge_ids: bool = True  # batches have e_id
    maps_topology = False  # see BatchSource
    first_aggregation: str | None = None  # of features, while they are gathered
    _stats: LoaderStats | None = None
    _device: torch.device | None = None
    seed_windows: Tensor | None = None  # a length of time for each seed
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

    def _start(
        self, data: Any, count: int, sampler: GraphSampler, device: Any, arguments: dict[str, Any]
    ) -> None:
        """Takes the graph and its sampler, where PyG's constructor would make one."""
        self._keep(device)
        self.data, self.node_sampler = data, sampler
        self._load(count, arguments)

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
        index, given = index if isinstance(index, KeyedIndex) else (index, None)
        index = as_positions(index)
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

    def keeper(self) -> Keeper | None:
        """The keeper of the store that is sampled; None where there is none."""
        return keeper_of(self.graph_sampler.graph.contents)

    def files(self) -> Residence | None:
        """The store's files by the memory plan for an epoch that begins now; None: in memory."""
        keeper = self.keeper()
        return None if keeper is None else keeper.residence_for(self)

    def _current_plan(self) -> BatchPlan:
        """How a batch is put together with the columns in memory now, of whichever epoch."""
        keeper = self.keeper()
        return self.plan_by(
            None if keeper is None else keeper.current or keeper.residence_for(self)
        )

    def plan_by(self, files: Residence | None) -> BatchPlan:
        """How a batch is put together of the files by a memory plan; None: all is in memory."""
        made = _plans_in_memory if files is None else files.made
        plan, sampler = made.get(self), self.graph_sampler
        if plan is None or not plan.is_for(self.data, sampler.graph, self.first_aggregation):
            check_first_aggregation(self.first_aggregation, self)
            reading = None if files is None else files.reading(sampler, self.size_in(files))
            plan = made[self] = BatchPlan(
                self.data, sampler, self.edge_ids, files, reading, self.first_aggregation
            )
        return plan

    def size_in(self, files: Residence) -> float:
        """How large a batch is, in batches that there is room for."""
        keeper = self.keeper()
        return 1.0 if keeper is None or files.plan.is_whole else keeper.relative_size(self)

    def epoch_length(self) -> int:
        """How many batches an epoch has."""
        loader: Any = self  # a DataLoader
        try:
            return len(loader)
        except (TypeError, ValueError):  # a batch sampler that does not say; ValueError is PyG's
            return 2 * costs.MAX_WINDOW

    def _request(self, plan: BatchPlan, index: Any, key: int) -> Request:
        """A batch from the positions of its seeds, for the engine to sample and maybe gather."""
        prepared = self._prepare(as_positions(index), key)
        gathers = (
            (self.graph_sampler.is_final or not plan.is_by_edge)
            and not self.transform_sampler_output
            and getattr(self.filter_fn, "__func__", None) is EngineLoader.filter_fn
        )
        recipe = self.graph_sampler.recipe(plan.columns if gathers else None, plan.reading)
        return Request(prepared.asked(recipe, key), prepared.finish, plan if gathers else None)

    def _finish(self, batch: _core.Batch, request: Request, *fetched: Fetched) -> Any:
        """Turns the engine's batch into the consumer's, with its rows in shards if there are."""
        plan, sampler = request.plan, self.graph_sampler
        sampled = sampler.sample_of(batch)
        metadata = request.finish(sampled)
        if plan is None:
            return self.filter_fn(sampler.output(sampled, metadata))
        if not sampler.is_final:
            sampled = sampler.sampled(sampler.output(sampled, metadata))
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
