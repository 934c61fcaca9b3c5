"""Counts of an epoch, predicted or measured, and rates that follow from them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(kw_only=True)
class Rates:
    """Counts of one epoch, as in :class:`~pyg_graphzero.loader.stats.LoaderStats`."""

    batches: int = 0
    nodes: int = 0
    edges: int = 0
    rows: int = 0
    hits: int = 0
    reads: int = 0
    read_bytes: int = 0
    useful_bytes: int = 0

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
