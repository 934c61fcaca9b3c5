"""Figures that a forecast and the loaders have in common."""

from __future__ import annotations


class Rates:
    """What follows from the counts of an epoch, measured or predicted."""

    batches: int
    rows: int
    hits: int
    reads: int
    read_bytes: int
    elapsed: float

    @property
    def batches_per_second(self) -> float:
        """Batches delivered per second of wall time."""
        return self.batches / self.elapsed if self.elapsed else 0.0

    @property
    def hit_rate(self) -> float:
        """Of ``rows``, the share found in memory; 1.0 where all columns are there whole."""
        return self.hits / self.rows if self.rows else 1.0

    @property
    def reads_per_batch(self) -> float:
        """Requests to the disk for each batch delivered."""
        return self.reads / self.batches if self.batches else 0.0

    @property
    def read_bytes_per_batch(self) -> float:
        """Bytes read for each batch delivered."""
        return self.read_bytes / self.batches if self.batches else 0.0
