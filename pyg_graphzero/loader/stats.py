"""Where an epoch's time goes: in the engine, in the loader's Python, or in who trains."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

# A consumer that waits for less than this share of its time has nothing to gain from the loader.
_BOUND = 0.1


@dataclass
class LoaderStats:
    """Counts and times of one epoch so far; all times in seconds.

    Attributes:
        num_workers: Threads of the engine that worked ahead; 0: the consumer worked itself.
        batches: Batches delivered.
        nodes: Their sampled nodes.
        edges: Their sampled edges.
        bytes: What they held in memory.
        elapsed: Wall time from the beginning of the epoch to the last delivery.
        sample: Spent sampling, summed over threads.
        gather: Spent gathering rows, summed over threads.
        prepare: The consumer's, to choose seeds and ask for batches.
        wait: The consumer's, for batches that were not ready. Without workers: while it made them.
        finish: The consumer's, to make ``Data`` of arrays, and in transforms.
    """

    num_workers: int
    batches: int = 0
    nodes: int = 0
    edges: int = 0
    bytes: int = 0
    elapsed: float = 0.0
    sample: float = 0.0
    gather: float = 0.0
    prepare: float = 0.0
    wait: float = 0.0
    finish: float = 0.0

    @property
    def batches_per_second(self) -> float:
        """Batches delivered per second of wall time."""
        return self.batches / self.elapsed if self.elapsed else 0.0

    @property
    def edges_per_second(self) -> float:
        """Sampled edges delivered per second of wall time."""
        return self.edges / self.elapsed if self.elapsed else 0.0

    @property
    def train(self) -> float:
        """The consumer's own: between one batch and its asking for the next."""
        return max(0.0, self.elapsed - self.prepare - self.wait - self.finish)

    @property
    def idle(self) -> float:
        """The engine's threads', waiting for the consumer; summed over threads."""
        return max(0.0, self.num_workers * self.elapsed - self.sample - self.gather)

    @property
    def verdict(self) -> str:
        """``"loader-bound"`` where the consumer waited for a tenth of the time or more.

        Else ``"compute-bound"``: a faster loader would not make the epoch shorter.
        """
        if self.batches == 0:
            return "no batches yet"
        waited = self.prepare + self.wait + self.finish
        return "loader-bound" if waited >= _BOUND * self.elapsed else "compute-bound"

    def to_dict(self) -> dict[str, Any]:
        """All of it, for a log."""
        derived = ("batches_per_second", "edges_per_second", "train", "idle", "verdict")
        return dataclasses.asdict(self) | {name: getattr(self, name) for name in derived}

    def __repr__(self) -> str:
        def share(seconds: float) -> str:
            return f"{seconds:.3g} s ({100 * seconds / (self.elapsed or 1):.0f}%)"

        busy = "" if self.num_workers == 0 else f", idle {share(self.idle)}"
        return (
            f"LoaderStats({self.verdict}: {self.batches:,} batches in {self.elapsed:.3g} s, "
            f"{self.batches_per_second:.1f} batches/s, "
            f"{self.edges_per_second / 1e6:.1f} M edges/s, {self.bytes / 2**20:,.0f} MiB\n"
            f"  engine, {self.num_workers} workers: sample {share(self.sample)}, "
            f"gather {share(self.gather)}{busy}\n"
            f"  consumer: prepare {share(self.prepare)}, wait {share(self.wait)}, "
            f"finish {share(self.finish)}, train {share(self.train)})"
        )


class Stopwatch:
    """Adds the time of a ``with`` block to a field of the stats, and names it to the profiler."""

    def __init__(self, stats: LoaderStats, field: str) -> None:
        self._stats = stats
        self._field = field
        self._range: AbstractContextManager[Any] = nullcontext()

    def __enter__(self) -> None:
        if torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
            self._range = torch.profiler.record_function(f"graphzero::{self._field}")
            self._range.__enter__()
        self._begin = perf_counter()

    def __exit__(self, *error: Any) -> None:
        took = perf_counter() - self._begin
        setattr(self._stats, self._field, getattr(self._stats, self._field) + took)
        self._range.__exit__(*error)
        self._range = nullcontext()
