"""What every loader shares: each batch has a key of its own, and batches travel whole.

A ``DataLoader`` does not tell ``collate_fn`` which batch it makes. Here the index sampler does, so
that a batch is the same in whichever process it is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_graphzero.sampler import random_key


class KeyedIndex(NamedTuple):
    """What one batch is made from: its seeds' positions, and the key of its randomness."""

    index: Any
    key: int


class KeyedSampler:
    """Gives every batch of an epoch its own key, so that it is the same in any process."""

    def __init__(self, base: Any, generator: torch.Generator | None) -> None:
        self.base = base
        self.generator = generator

    def __iter__(self) -> Iterator[KeyedIndex]:
        epoch_key = 0
        for number, index in enumerate(self.base):
            if number == 0:  # after the shuffle has drawn, whose order is then stock PyG's
                epoch_key = random_key(self.generator)
            yield KeyedIndex(index, (epoch_key + number) % 2**64)

    def __len__(self) -> int:
        return len(self.base)


class Positions(Sequence[Any]):
    """The loader's dataset: positions 0 … n-1, taken as whole batches."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        return index

    def __getitems__(self, index: Any) -> Any:
        return index


class KeyedLoader:
    """Mixed into PyG's loaders, in front of them."""

    dataset: Any
    generator: torch.Generator | None

    def __setattr__(self, name: str, value: Any) -> None:
        # PyG hands DataLoader a range; DataLoader forbids changing it later.
        if name == "dataset" and isinstance(value, range):
            value = Positions(len(value))
        super().__setattr__(name, value)

    @property
    def _index_sampler(self) -> KeyedSampler:
        return KeyedSampler(super()._index_sampler, self.generator)  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.dataset)} seeds, {len(self)} batches)"  # type: ignore[arg-type]


def split_key(index: Any) -> tuple[Tensor, int | None]:
    """The positions of a batch as a tensor, and its key; None where somebody else chose them."""
    key = None
    if isinstance(index, KeyedIndex):
        index, key = index
    index = torch.as_tensor(index)
    return (index.to(torch.int64) if index.numel() == 0 else index), key
