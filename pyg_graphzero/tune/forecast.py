"""Reads of an epoch, from simulated ones, and the resource that binds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pyg_graphzero.loader.stats import Rates
from pyg_graphzero.tune.rehearsal import Sampled, Window
from pyg_graphzero.util.disk import DiskSpeed

#: Resources that may bind an epoch.
RANDOM_READS = "disk (random reads)"
BANDWIDTH = "disk (bandwidth)"
SAMPLING = "CPU (sampling)"


@dataclass
class Forecast(Rates):
    """Counts of one epoch, in the terms of :class:`~pyg_graphzero.loader.stats.LoaderStats`.

    Attributes:
        disk_seconds: Seconds of the disk for these reads, at the speed that was probed.
        binds: ``"disk (random reads)"``, ``"disk (bandwidth)"``, or ``"CPU (sampling)"`` where
            sampling takes longer than the disk.
    """

    disk_seconds: float = 0.0
    binds: str = SAMPLING


def forecast(sampled: Sampled, windows: Sequence[Window], disk: DiskSpeed) -> Forecast:
    """One epoch, once everything that stays in memory is there."""
    scale = sampled.epoch / max(1, len(sampled.batches))
    found = Forecast(
        batches=sampled.epoch,
        nodes=round(sampled.nodes * scale),
        edges=round(sampled.edges * scale),
    )
    batches = sum(window.count for window in windows)
    if batches == 0 or sampled.epoch == 0:
        return found

    def count(name: str) -> int:
        total = sum(getattr(window.read, name) for window in windows)
        return round(total * sampled.epoch / batches)

    found.rows, found.hits, found.reads = count("rows"), count("hits"), count("reads")
    found.read_bytes, found.useful_bytes = count("bytes"), count("useful_bytes")
    found.disk_seconds = disk.seconds(found.reads, found.read_bytes)
    if found.disk_seconds > sampled.seconds * scale / torch.get_num_threads():
        streaming = found.read_bytes / disk.bytes_per_second
        found.binds = RANDOM_READS if found.disk_seconds >= 2 * streaming else BANDWIDTH
    return found
