"""Findings of ``graphzero doctor``, as numbers and in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyg_graphzero.memory.needs import Kind, Need
from pyg_graphzero.memory.plan import MemoryPlan
from pyg_graphzero.tune.forecast import BANDWIDTH, RANDOM_READS, Forecast
from pyg_graphzero.util.disk import DiskSpeed
from pyg_graphzero.util.html import Shown
from pyg_graphzero.util.sizes import format_bytes


@dataclass
class Advice:
    """One change, and what it is predicted to bring.

    Attributes:
        change: The change.
        epoch: The epoch after it.
        disk_time: Disk time of that epoch, as a share of today's.
    """

    change: str
    epoch: Forecast
    disk_time: float


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
        batch_bytes: Memory of one batch, with its rows.
        sampled_batches: How many were sampled for all this.
        memory_plan: How the budget is divided.
        epoch: An epoch, once everything that stays in memory is there.
        advice: Changes that would help, best first; empty where none would.
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
    batch_bytes: int
    sampled_batches: int
    memory_plan: MemoryPlan
    epoch: Forecast
    advice: list[Advice] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        """Whether all that is read from stays in memory."""
        return self.memory_plan.is_whole

    @property
    def verdict(self) -> str:
        """The resource that binds an epoch."""
        return f"memory is enough; {self.epoch.binds}" if self.fits else self.epoch.binds

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        value = asdict(self)
        value |= {"path": str(self.path), "fits": self.fits, "verdict": self.verdict}
        for file in value["files"]:
            file["kind"] = file["kind"].name.lower()
        value["disk"] |= {"merge_gap": self.disk.merge_gap, "doubt": self.disk.doubt}
        value["epoch"] |= _rates(self.epoch)
        for line, advice in zip(value["advice"], self.advice, strict=True):
            line["epoch"] |= _rates(advice.epoch)
        return value

    def __str__(self) -> str:
        return "\n".join(
            [*_machine_lines(self), *_store_lines(self), *_epoch_lines(self), *_advice_lines(self)]
        )


def _rates(epoch: Forecast) -> dict[str, float]:
    names = ("hit_rate", "reads_per_batch", "read_bytes_per_batch")
    return {name: getattr(epoch, name) for name in names}


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
    memory_plan, total = found.memory_plan, sum(file.num_bytes for file in found.files)
    lines = [f"store: {found.path}, loaders read from {format_bytes(total)}"]
    for file in sorted(found.files, key=lambda each: -each.num_bytes):
        if file.kind in (Kind.BOUNDS, Kind.TABLE):
            continue
        if file.name in memory_plan.held:
            place = "in memory"
        else:
            place = f"{memory_plan.hot[file.name] / max(1, file.num_bytes):.0%} in memory"
        lines.append(
            f"  {file.name}: {file.num_rows:,} rows of {file.row_bytes:,} bytes, "
            f"{format_bytes(file.num_bytes)}: {place}"
        )
    return [*lines, *_memory_lines(found)]


def _memory_lines(found: Diagnosis) -> list[str]:
    plan, lines = found.memory_plan, str(found.memory_plan).splitlines()
    if not plan.is_whole:
        paged = {file.name for file in found.files if file.kind is not Kind.NEIGHBOURS}
        rows = sum(size for name, size in plan.hot.items() if name in paged)
        rows += plan.windows
        lines[0] += (
            f"; rows that do not all fit have {format_bytes(rows)}, "
            f"{rows / max(1, plan.memory - plan.baseline):.0%} of what this process leaves"
        )
    return lines


def _epoch_lines(found: Diagnosis) -> list[str]:
    epoch = found.epoch
    per = max(1, epoch.batches)
    lines = [
        f"epoch: {epoch.batches:,} batches of {found.batch_size:,} seeds ({found.seeds}), fan-out "
        f"{found.num_neighbors}",
        f"  a batch: {epoch.nodes / per:,.0f} nodes, {epoch.edges / per:,.0f} edges, "
        f"{format_bytes(found.batch_bytes)}",
    ]
    if found.fits:
        total = sum(file.num_bytes for file in found.files)
        took = total / found.disk.bytes_per_second
        lines.append(
            f"  everything fits: {format_bytes(total)} are read once ({took:.1f} s if none of it "
            "is in the page cache), nothing after the first touch"
        )
    else:
        useful = epoch.useful_bytes / max(1, epoch.read_bytes)
        wanted = f", {useful:.0%} of that wanted" if epoch.read_bytes else ""
        lines.append(
            f"  {epoch.hit_rate:.1%} of the rows are in memory; {epoch.reads_per_batch:,.0f} reads "
            f"and {format_bytes(epoch.read_bytes_per_batch)} a batch{wanted}"
        )
    lines.append(f"  binds: {found.verdict}")
    return [*lines, *(f"  note: {note}" for note in found.notes)]


def _advice_lines(found: Diagnosis) -> list[str]:
    if not found.advice:
        if found.epoch.binds in (RANDOM_READS, BANDWIDTH):
            return ["what would help: a faster disk"]
        return ["what would help: nothing on the side of memory and disk"]
    width = max(len(each.change) for each in found.advice)
    lines = ["what would help:"]
    for each in found.advice:
        epoch = each.epoch
        lines.append(
            f"  {each.change:<{width}}  {each.disk_time:4.0%} of the disk's time: "
            f"{epoch.hit_rate:.0%} in memory, {epoch.reads_per_batch:,.0f} reads and "
            f"{format_bytes(epoch.read_bytes_per_batch)} a batch; binds: {epoch.binds}"
        )
    return lines
