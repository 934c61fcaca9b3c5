"""The choices of one run, and the cases they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from pyg_graphzero.bench.training import MODELS


@dataclass(frozen=True)
class Case:
    """One line of the table: every contestant plays it, round by round in turn.

    Attributes:
        workload: Name of the workload.
        workers: ``num_workers`` of the loaders; None where there is no loader.
        threads: Threads of torch and of the sampler; None leaves them as they are by default.
        model: How the model is computed, one of ``MODELS``; None where nothing is trained.
    """

    workload: str
    workers: int | None = None
    threads: int | None = None
    model: str | None = None

    def __str__(self) -> str:
        count, unit = (self.threads, "thread") if self.workers is None else (self.workers, "worker")
        model = "" if self.model is None else f", {self.model} model"
        return f"{self.workload}{model}, {count} {unit}{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class Settings:
    """The choices of one run.

    Attributes:
        data: The graph; see ``data.prepare``.
        workloads: Names of workloads, in the order they run in.
        fanout: Neighbours per hop.
        batch_size: Seed nodes per batch; links have four ends each, negatives included, so a batch
            of links is of a quarter as many.
        workers: ``num_workers`` to try.
        threads: Sampling threads to try.
        models: Ways to compute the model to try, some of ``MODELS``.
        batches: Batches per round.
        rounds: Timed rounds per case and contestant.
        seed: Seed of the seed nodes and of sampling.
    """

    data: str = "synthetic:1000000,15000000,128"
    workloads: Sequence[str] = ("sample", "load", "train", "link")
    fanout: Sequence[int] = (15, 10, 5)
    batch_size: int = 1024
    workers: Sequence[int] = (0, 2)
    threads: Sequence[int] = (1,)
    models: Sequence[str] = MODELS
    batches: int = 10
    rounds: int = 3
    seed: int = 0

    def cases(self) -> list[Case]:
        """The lines of the table."""
        cases = []
        for workload in self.workloads:
            if workload == "sample":
                cases += [Case(workload, threads=count) for count in self.threads]
                continue
            pairs = product(self.workers, self.models if workload == "train" else (None,))
            cases += [Case(workload, workers=count, model=model) for count, model in pairs]
        return cases
