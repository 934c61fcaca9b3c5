"""Findings of ``graphzero doctor``, as numbers and in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyg_graphzero.loader.stats import LoaderStats
from pyg_graphzero.memory.needs import Kind, Need
from pyg_graphzero.memory.plan import MemoryPlan
from pyg_graphzero.util.disk import DiskSpeed
from pyg_graphzero.util.html import Shown
from pyg_graphzero.util.sizes import format_bytes

#: Resources that may bind an epoch.
RANDOM_READS = "disk (random reads)"
BANDWIDTH = "disk (bandwidth)"
CPU = "CPU (sampling and gathering)"


@dataclass
class Advice:
    """One change, and what it brings.

    Attributes:
        change: The change.
        kept: Share of what loaders read from that stays in memory then.
        num_bytes: All that loaders read from then.
    """

    change: str
    kept: float
    num_bytes: int


@dataclass
class Diagnosis(Shown):
    """Findings of :func:`~pyg_graphzero.tune.doctor`.

    Attributes:
        path: The store.
        machine: Processor, cores, memory and limit on it, as plain data.
        free_memory: Bytes this process may still take.
        disk: How fast the store's disk is.
        files: Files that loaders read from, with their sizes.
        seeds: The seeds by name, or in words.
        num_seeds: Their number.
        num_neighbors: The fan-out.
        batch_size: Seeds per batch.
        num_batches: Number of an epoch's batches.
        memory_plan: How the budget is divided.
        loaded: Counts and times of the batches that were loaded, without those that came first.
        advice: Changes by which more stays in memory, best first; empty where the disk does not
            bind.
        notes: Limits of these figures.
    """

    path: Path
    machine: dict[str, Any]
    free_memory: int
    disk: DiskSpeed
    files: list[Need]
    seeds: str
    num_seeds: int
    num_neighbors: Any
    batch_size: int
    num_batches: int
    memory_plan: MemoryPlan
    loaded: LoaderStats
    advice: list[Advice] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        """Whether all that is read from stays in memory."""
        return self.memory_plan.is_whole

    @property
    def is_disk_bound(self) -> bool:
        """Whether these batches waited for the disk, rather than for the processor."""
        return self.loaded.verdict == "disk-bound"

    @property
    def binds(self) -> str:
        """The resource that binds an epoch without a model."""
        if self.fits or not self.is_disk_bound:
            return CPU
        loaded = self.loaded
        reads = loaded.reads + loaded.topology_reads
        num_bytes = loaded.read_bytes + loaded.topology_bytes
        streaming = num_bytes / self.disk.bytes_per_second
        return RANDOM_READS if self.disk.seconds(reads, num_bytes) >= 2 * streaming else BANDWIDTH

    @property
    def verdict(self) -> str:
        """``binds``, and whether memory is enough."""
        return f"memory is enough; {self.binds}" if self.fits else self.binds

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        value = asdict(self)
        value |= {"path": str(self.path), "fits": self.fits, "verdict": self.verdict}
        for file in value["files"]:
            file["kind"] = file["kind"].name.lower()
        value["disk"] |= {"merge_gap": self.disk.merge_gap, "doubt": self.disk.doubt}
        value["loaded"] = self.loaded.to_dict()
        return value

    def __str__(self) -> str:
        return "\n".join(
            [*_machine_lines(self), *_store_lines(self), *_epoch_lines(self), *_advice_lines(self)]
        )


def _machine_lines(found: Diagnosis) -> list[str]:
    facts = found.machine
    limit = facts["memory_limit_bytes"]
    within = "" if limit is None else f", limited to {format_bytes(limit)}"
    return [
        f"machine: {facts['usable_cores']} cores, {format_bytes(facts['ram_bytes'])} of memory"
        f"{within}, {format_bytes(found.free_memory)} free",
        f"disk: {found.disk}",
    ]


def _store_lines(found: Diagnosis) -> list[str]:
    plan, total = found.memory_plan, sum(file.num_bytes for file in found.files)
    lines = [f"store: {found.path}, loaders read from {format_bytes(total)}"]
    for file in sorted(found.files, key=lambda each: -each.num_bytes):
        if file.kind in (Kind.BOUNDS, Kind.TABLE):
            continue
        place = "in memory"
        if file.name not in plan.held:
            place = f"{plan.hot[file.name] / max(1, file.num_bytes):.0%} in memory"
        lines.append(
            f"  {file.name}: {file.num_rows:,} rows of {file.row_bytes:,} bytes, "
            f"{format_bytes(file.num_bytes)}: {place}"
        )
    return [*lines, *str(plan).splitlines()]


def _epoch_lines(found: Diagnosis) -> list[str]:
    loaded, per = found.loaded, max(1, found.loaded.batches)
    lines = [
        f"epoch: {found.num_batches:,} batches of {found.batch_size:,} seeds ({found.seeds}), "
        f"fan-out {found.num_neighbors}",
        f"  a batch: {loaded.nodes / per:,.0f} nodes, {loaded.edges / per:,.0f} edges, "
        f"{format_bytes(loaded.bytes // per)}",
        *(f"  {line}" for line in str(loaded).splitlines()),
    ]
    if found.fits:
        total = sum(file.num_bytes for file in found.files)
        lines.append(f"  everything fits: {format_bytes(total)} are read once, then nothing")
    lines.append(f"  binds: {found.verdict}")
    return [*lines, *(f"  note: {note}" for note in found.notes)]


def _advice_lines(found: Diagnosis) -> list[str]:
    if not found.advice:
        is_disk = not found.fits and found.is_disk_bound
        return [f"what would help: {'a faster disk' if is_disk else 'more processors'}"]
    width = max(len(each.change) for each in found.advice)
    lines = ["what would help:"]
    for each in found.advice:
        kept = f"{each.kept:4.0%} of {format_bytes(each.num_bytes)} in memory"
        lines.append(f"  {each.change:<{width}}  {kept}")
    return lines
