"""Keys of randomness: what names an epoch, and each of its batches."""

from __future__ import annotations

import torch


def random_key(generator: torch.Generator | None = None) -> int:
    """A key for one batch or epoch, drawn from torch's generator."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator))


class BatchKey(int):
    """The key of a batch that knows its place: the epoch's key plus the batch's number.

    A plain ``int`` does for everything that treats batches alike.

    Args:
        epoch: The key of the epoch.
        number: Which of its batches, from 0.
    """

    epoch: int
    number: int

    def __new__(cls, epoch: int, number: int) -> BatchKey:  # noqa: D102
        key = super().__new__(cls, (epoch + number) % 2**64)
        key.epoch, key.number = epoch, number
        return key

    def __reduce__(self) -> tuple[type[BatchKey], tuple[int, int]]:
        return BatchKey, (self.epoch, self.number)


def batch_number(key: int) -> int:
    """Which batch of its epoch a key is of; 0 where it does not say."""
    return key.number if isinstance(key, BatchKey) else 0
