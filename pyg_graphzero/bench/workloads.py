"""Workloads: sampling alone, loading, training, links. One round of each, timed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch_geometric.sampler import NodeSamplerInput

from pyg_graphzero.bench.contestants import Contestant
from pyg_graphzero.bench.data import Seeds
from pyg_graphzero.bench.process import Clock
from pyg_graphzero.bench.settings import Case, Settings
from pyg_graphzero.bench.training import Trainer, graph_sage


@dataclass(frozen=True)
class Task:
    """All that the process of one contestant needs to know.

    Attributes:
        contestant: Its name.
        case: The case that it plays.
        settings: The choices of the run.
        store: The graph.
        seeds: Seeds to start from.
    """

    contestant: str
    case: Case
    settings: Settings
    store: Path
    seeds: Seeds


class Workload:
    """One contestant's part in a case. Making it makes the sampler or loader.

    Args:
        contestant: With its graph open.
        task: The settings.
    """

    def __init__(self, contestant: Contestant, task: Task) -> None:
        self.task = task
        self.loader = self.made(contestant, list(task.settings.fanout), self.options)

    def made(self, contestant: Contestant, fanout: list[int], options: dict[str, Any]) -> Any:
        """The loader; whatever else a subclass makes has its own :meth:`batches`."""
        return contestant.node_loader(fanout, self.task.seeds, **options)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of a loader."""
        workers = self.task.case.workers or 0
        # A round is short: it should not be about starting workers.
        options = {"num_workers": workers, "persistent_workers": workers > 0}
        return options | {"batch_size": self.task.settings.batch_size}

    @staticmethod
    def missing(seeds: Seeds, model: str | None) -> str | None:
        """Why a graph with such seeds will not do, with this model, or None."""
        return None

    def batches(self) -> Iterator[Any]:
        """An epoch's batches, used."""
        yield from self.loader

    def round(self, number: int) -> dict[str, Any]:
        """Runs one epoch.

        Args:
            number: 0 is the round whose times do not count: it counts what batches hold.

        Returns:
            ``seconds`` of wall time, ``cpu_seconds``, and number of ``batches``; in round 0 their
            ``edges`` and ``nodes``, in others the ``stats`` of a loader that reports on itself.
        """
        torch.manual_seed(self.task.settings.seed + number)
        found = {"batches": 0, "edges": 0, "nodes": 0}
        with Clock() as clock:
            for batch in self.batches():
                found["batches"] += 1
                if number == 0:
                    sampled = hasattr(batch, "row")  # a sampler's output, not a loader's
                    found["edges"] += _length(batch.row) if sampled else batch.num_edges
                    found["nodes"] += _length(batch.node) if sampled else batch.num_nodes
        stats = getattr(self.loader, "stats", None)
        said = {"stats": stats().to_dict()} if number and stats is not None else {}
        return found | said | {"seconds": clock.seconds, "cpu_seconds": clock.cpu_seconds}


def _length(value: Any) -> int:
    """Elements of a tensor, or of the tensors by type."""
    if isinstance(value, Mapping):
        return sum(map(_length, value.values()))
    return 0 if value is None else value.numel()


class Sample(Workload):
    """Sampling alone: seeds in, ids and edges out."""

    def made(self, contestant: Contestant, fanout: list[int], options: dict[str, Any]) -> Any:
        """The sampler."""
        return contestant.sampler(fanout, self.task.case.threads or 0)

    def batches(self) -> Iterator[Any]:
        """Samples of the seeds, chunk by chunk."""
        seeds = self.task.seeds
        for chunk in seeds.nodes.split(self.task.settings.batch_size):
            asked = NodeSamplerInput(None, chunk, input_type=seeds.node_type)
            yield self.loader.sample_from_nodes(asked)


class Link(Workload):
    """Loading around seed edges, with as many negatives."""

    def made(self, contestant: Contestant, fanout: list[int], options: dict[str, Any]) -> Any:
        """The loader; an edge has two ends, and so has its negative."""
        size = max(1, self.task.settings.batch_size // 4)
        return contestant.link_loader(fanout, self.task.seeds, **options | {"batch_size": size})


class Train(Workload):
    """Training on what a node loader yields."""

    def __init__(self, contestant: Contestant, task: Task) -> None:
        super().__init__(contestant, task)
        seeds, model = task.seeds, task.case.model
        assert seeds.num_classes is not None
        assert model is not None
        net = graph_sage(contestant.data, len(task.settings.fanout), seeds.num_classes)
        self.trainer = Trainer(net, model, seeds.node_type)

    @staticmethod
    def missing(seeds: Seeds, model: str | None) -> str | None:
        """Training needs features and labels, and a model that can be had of the graph."""
        if seeds.num_classes is None:
            return "it needs features x of every node and one integer label y of every seed node"
        if model == "trimmed" and seeds.node_type is not None:
            return "PyG cannot trim what to_hetero() makes: it takes no counts by hop"
        return None

    def batches(self) -> Iterator[Any]:
        """An epoch's batches, with a step of training each."""
        for batch in self.loader:
            self.trainer.step(batch)
            yield batch


WORKLOADS: dict[str, type[Workload]] = {
    "sample": Sample,
    "load": Workload,
    "train": Train,
    "link": Link,
}
