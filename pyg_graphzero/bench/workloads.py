"""Workloads: sampling alone, loading, training, links. One round of each, timed."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch_geometric.sampler import NodeSamplerInput

from pyg_graphzero.bench.contestants import Contestant
from pyg_graphzero.bench.data import Seeds
from pyg_graphzero.bench.process import Clock
from pyg_graphzero.bench.training import Trainer, cannot_compute

# Batches that the compute of training is measured on: enough to be typical, few enough for RAM.
_PRELOADED = 4


@dataclasses.dataclass(frozen=True)
class Task:
    """All that the process of one contestant needs to know; plain data.

    Attributes:
        contestant: Its name.
        workload: Its name.
        store: The graph.
        seeds: File with the ``Seeds``.
        fanout: Neighbours per hop.
        batch_size: Seed nodes per batch.
        workers: ``num_workers``, or None.
        threads: Threads, or None for what torch takes by itself.
        seed: Seed of sampling.
        model: How the model is computed, where one is trained.
    """

    contestant: str
    workload: str
    store: str
    seeds: str
    fanout: list[int]
    batch_size: int
    workers: int | None
    threads: int | None
    seed: int
    model: str | None = None


class Workload(ABC):
    """One contestant's part in a case. Making it makes the sampler or loader.

    Args:
        contestant: With its graph open.
        seeds: Seeds of the batches.
        task: The settings.
    """

    def __init__(self, contestant: Contestant, seeds: Seeds, task: Task) -> None:
        self.contestant = contestant
        self.seeds = seeds
        self.task = task

    @staticmethod
    def missing(seeds: Seeds, model: str | None) -> str | None:
        """Why a graph with such seeds will not do, with this model, or None."""
        return None

    @abstractmethod
    def batches(self) -> Iterable[Any]:
        """The batches of one epoch."""

    def use(self, batch: Any) -> None:
        """Uses a batch."""
        del batch  # nothing, unless a subclass has a use for it

    def round(self, number: int) -> dict[str, Any]:
        """Runs one epoch.

        Args:
            number: 0 is the round whose times do not count: it counts what batches hold.

        Returns:
            The figures of ``timed``; in round 0 ``edges`` and ``nodes`` as well.
        """
        torch.manual_seed(self.task.seed + number)
        if number:
            return timed(self.batches(), self.use)
        total = {"edges": 0, "nodes": 0}

        def use(batch: Any) -> None:
            sampled = hasattr(batch, "row")  # a sampler's output, not a loader's
            total["edges"] += _length(batch.row) if sampled else batch.num_edges
            total["nodes"] += _length(batch.node) if sampled else batch.num_nodes
            self.use(batch)

        return timed(self.batches(), use) | total


def timed(batches: Iterable[Any], use: Callable[[Any], object]) -> dict[str, Any]:
    """An epoch's ``seconds`` of wall time, ``cpu_seconds``, and number of ``batches``.

    Args:
        batches: The epoch.
        use: Called with every batch.
    """
    count = 0
    with Clock() as clock:
        for batch in batches:
            use(batch)
            count += 1
    return {"batches": count, "seconds": clock.seconds, "cpu_seconds": clock.cpu_seconds}


def _length(value: Any) -> int:
    """Elements of a tensor, or of the tensors by type."""
    if isinstance(value, Mapping):
        return sum(map(_length, value.values()))
    return 0 if value is None else value.numel()


class Sample(Workload):
    """Sampling alone: seeds in, ids and edges out."""

    def __init__(self, contestant: Contestant, seeds: Seeds, task: Task) -> None:
        super().__init__(contestant, seeds, task)
        self.sampler = contestant.sampler(task.fanout, task.threads or 0)

    def batches(self) -> Iterable[Any]:
        """Samples of the seeds, chunk by chunk."""
        for chunk in self.seeds.nodes.split(self.task.batch_size):
            yield self.sampler.sample_from_nodes(
                NodeSamplerInput(None, chunk, input_type=self.seeds.node_type)
            )


class Load(Workload):
    """Sampling and features: an epoch of a node loader."""

    def __init__(self, contestant: Contestant, seeds: Seeds, task: Task) -> None:
        super().__init__(contestant, seeds, task)
        self.loader = self._make()

    def _make(self) -> Iterable[Any]:
        return self.contestant.node_loader(
            self.task.fanout, self.seeds, batch_size=self.task.batch_size, **self._options()
        )

    def _options(self) -> dict[str, Any]:
        workers = self.task.workers or 0
        # A round is short: it should not be about starting workers.
        return {"num_workers": workers, "persistent_workers": workers > 0}

    def batches(self) -> Iterable[Any]:
        """The loader."""
        return self.loader

    def round(self, number: int) -> dict[str, Any]:
        """Runs one epoch; a loader that reports on itself adds its ``stats``."""
        found = super().round(number)
        stats = getattr(self.loader, "stats", None)
        return found if stats is None else found | {"stats": stats().to_dict()}


class Link(Load):
    """Loading around seed edges, with as many negatives."""

    def _make(self) -> Iterable[Any]:
        # Two ends each, of a seed and of a negative.
        size = max(1, self.task.batch_size // 4)
        return self.contestant.link_loader(
            self.task.fanout, self.seeds, batch_size=size, **self._options()
        )


class Train(Load):
    """Training on what a node loader yields, and its parts: the loader alone, compute alone."""

    def __init__(self, contestant: Contestant, seeds: Seeds, task: Task) -> None:
        super().__init__(contestant, seeds, task)
        assert seeds.num_classes is not None
        assert task.model is not None
        self.trainer = Trainer(
            contestant.data, seeds.node_type, len(task.fanout), seeds.num_classes, task.model
        )

    @staticmethod
    def missing(seeds: Seeds, model: str | None) -> str | None:
        """Training needs features and labels, and a model that can be had of the graph."""
        if seeds.num_classes is None:
            return "it needs features x of every node and one integer label y of every seed node"
        assert model is not None
        return cannot_compute(model, seeds.node_type is not None)

    def use(self, batch: Any) -> None:
        """A step of training."""
        self.trainer.step(batch)

    def round(self, number: int) -> dict[str, Any]:
        """Runs one epoch, and but for round 0 the parts.

        Returns:
            Figures of other loaders; ``loader_seconds`` and ``loader_cpu_seconds`` of this epoch
            without training; ``compute_seconds`` for ``compute_batches`` that were there already.
        """
        found = super().round(number)
        if number == 0:
            return found
        ready: list[Any] = []
        alone = timed(self.loader, lambda b: ready.append(b) if len(ready) < _PRELOADED else None)
        compute = timed(ready, self.use)
        return found | {
            "loader_seconds": alone["seconds"],
            "loader_cpu_seconds": alone["cpu_seconds"],
            "compute_seconds": compute["seconds"],
            "compute_batches": compute["batches"],
        }


WORKLOADS: dict[str, type[Workload]] = {
    "sample": Sample,
    "load": Load,
    "train": Train,
    "link": Link,
}
