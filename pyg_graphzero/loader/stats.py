"""Where an epoch's time goes: in the engine, in the loader's Python, or in who trains."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from pyg_graphzero import _core
from pyg_graphzero.util.html import outline

# A consumer that waits for less than this share of its time has nothing to gain from the loader.
_BOUND = 0.1


@dataclass
class LoaderStats:
    """Counts and times of one epoch so far; all times in seconds.

    Attributes:
        num_workers: Threads of the engine that worked ahead; 0: the consumer worked itself, or one
            prepared the next batch meanwhile.
        batches: Batches delivered.
        nodes: Their sampled nodes.
        edges: Their sampled edges.
        bytes: Memory that these batches held.
        rows: Rows asked for of columns that are not in memory whole; ``hits``, ``reads``,
            ``read_bytes`` and ``useful_bytes`` are about these columns.
        hits: Rows among them that were found in memory.
        reads: Requests to the disk.
        read_bytes: Bytes that these requests read.
        useful_bytes: Bytes among them in rows asked for.
        topology_rows: Neighbours asked for of topologies that are not in memory whole; the other
            ``topology_`` fields are about these topologies.
        topology_hits: Neighbours among them that were found in memory.
        topology_reads: Requests to the disk.
        topology_bytes: Bytes that these requests read.
        topology_useful_bytes: Bytes among them in neighbours asked for.
        elapsed: Wall time from the beginning of the epoch to the last delivery.
        sample: Time of sampling, and of reading neighbours, summed over threads.
        gather: Time of gathering rows, summed over threads.
        read: Time during which rows were read from disk, by a thread of its own.
        topology_read: Part of ``sample`` during which neighbours were read from disk.
        reordered: Rows were read from a copy in the order of their use (``gz.open(row_cache=)``).
        prepare: The consumer's time to choose seeds and ask for batches.
        wait: The consumer's time until batches were ready. Without workers: while it made them.
        finish: The consumer's time to make ``Data`` of arrays, and in transforms.
    """

    num_workers: int
    batches: int = 0
    nodes: int = 0
    edges: int = 0
    bytes: int = 0
    rows: int = 0
    hits: int = 0
    reads: int = 0
    read_bytes: int = 0
    useful_bytes: int = 0
    topology_rows: int = 0
    topology_hits: int = 0
    topology_reads: int = 0
    topology_bytes: int = 0
    topology_useful_bytes: int = 0
    elapsed: float = 0.0
    sample: float = 0.0
    gather: float = 0.0
    read: float = 0.0
    topology_read: float = 0.0
    reordered: bool = False
    prepare: float = 0.0
    wait: float = 0.0
    finish: float = 0.0

    def add(self, batch: _core.Batch) -> None:
        """Counts a batch that is delivered."""
        self.batches += 1
        self.sample += batch.sample_seconds
        self.gather += batch.gather_seconds
        self.nodes += batch.num_nodes
        self.edges += batch.num_edges
        self.bytes += batch.num_bytes
        if batch.read is not None:
            self.add_read(batch.read)
        read = batch.topology_read
        if read is not None:
            self.topology_rows += read.rows
            self.topology_hits += read.hits
            self.topology_reads += read.reads
            self.topology_bytes += read.bytes
            self.topology_useful_bytes += read.useful_bytes
            self.topology_read += read.seconds

    def add_read(self, read: _core.ReadStats) -> None:
        """Counts what was read of columns."""
        self.rows += read.rows
        self.hits += read.hits
        self.reads += read.reads
        self.read_bytes += read.bytes
        self.useful_bytes += read.useful_bytes
        self.read += read.seconds

    def since(self, before: LoaderStats) -> LoaderStats:
        """Counts and times that were added since an earlier copy."""
        added = {
            name: value - getattr(before, name)
            for name, value in vars(self).items()
            if name not in ("num_workers", "reordered")
        }
        return dataclasses.replace(self, **added)

    @property
    def hit_rate(self) -> float:
        """Share of ``rows`` that was found in memory; 1.0 where all columns are there whole."""
        return self.hits / self.rows if self.rows else 1.0

    @property
    def reads_per_batch(self) -> float:
        """Requests to the disk for each batch delivered."""
        return self.reads / self.batches if self.batches else 0.0

    @property
    def read_bytes_per_batch(self) -> float:
        """Bytes read for each batch delivered."""
        return self.read_bytes / self.batches if self.batches else 0.0

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
        """The consumer's own time: between one batch and its asking for the next."""
        return max(0.0, self.elapsed - self.prepare - self.wait - self.finish)

    @property
    def idle(self) -> float:
        """Time that the engine's threads waited for the consumer, summed over threads."""
        return max(0.0, self.num_workers * self.elapsed - self.sample - self.gather)

    @property
    def stall(self) -> float:
        """Seconds the consumer waited for the disk.

        The part of ``wait`` that the busier one of the readers, of rows and of neighbours, was busy
        for; 0 where each of the engine's threads computed for longer than that, so that the
        consumer waited for these threads.
        """
        computed = self.sample - self.topology_read + self.gather
        disk = max(self.read, self.topology_read)
        return min(self.wait, disk) if disk > computed / max(1, self.num_workers) else 0.0

    @property
    def verdict(self) -> str:
        """``"compute-bound"`` where the consumer waited for less than a tenth of the time.

        A faster loader would not make the epoch shorter then. ``"disk-bound"`` where it waited,
        and for the disk most of that time; else ``"loader-bound"``.
        """
        if self.batches == 0:
            return "no batches yet"
        waited = self.prepare + self.wait + self.finish
        if waited < _BOUND * self.elapsed:
            return "compute-bound"
        return "disk-bound" if self.stall > waited / 2 else "loader-bound"

    def to_dict(self) -> dict[str, Any]:
        """All of it, for a log."""
        derived = [name for name, own in vars(LoaderStats).items() if isinstance(own, property)]
        return dataclasses.asdict(self) | {name: getattr(self, name) for name in derived}

    def __str__(self) -> str:
        def share(seconds: float, threads: int = 1) -> str:
            each = seconds / max(1, threads)
            return f"{each:.3g} s ({100 * each / (self.elapsed or 1):.0f}%)"

        workers = self.num_workers
        busy = "" if workers == 0 else f", idle {share(self.idle, workers)}"
        mean = ", mean of each" if workers > 1 else ""
        neighbours = (
            f"\n  neighbours: read {share(self.topology_read)}, "
            f"{self.topology_reads / max(1, self.batches):,.0f} reads a batch"
        )
        disk = (
            f"\n  disk: read {share(self.read)}, the consumer stalled {share(self.stall)}; "
            f"{self.hit_rate:.1%} of {self.rows:,} rows in memory, {self.reads_per_batch:,.0f} "
            f"reads and {self.read_bytes_per_batch / 2**20:.1f} MiB a batch, "
            f"{self.useful_bytes / (self.read_bytes or 1):.0%} of that wanted"
            f"{', rows in the order of their use' if self.reordered else ''}"
        )
        return (
            f"{self.verdict}: {self.batches:,} batches in {self.elapsed:.3g} s, "
            f"{self.batches_per_second:.1f} batches/s, "
            f"{self.edges_per_second / 1e6:.1f} M edges/s, {self.bytes / 2**20:,.0f} MiB\n"
            f"  engine, {workers} workers{mean}: sample {share(self.sample, workers)}, "
            f"gather {share(self.gather, workers)}{busy}\n"
            f"  consumer: prepare {share(self.prepare)}, wait {share(self.wait)}, "
            f"finish {share(self.finish)}, train {share(self.train)}"
            f"{neighbours if self.topology_rows else ''}{disk if self.rows else ''}"
        )

    def __repr__(self) -> str:
        return f"LoaderStats({self})"

    def _repr_html_(self) -> str:
        return outline(str(self))


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
