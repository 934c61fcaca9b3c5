"""What every loader shares: each batch has a key of its own, and batches travel whole.

A ``DataLoader`` does not tell ``collate_fn`` which batch it makes. Here the index sampler does, so
that a batch is the same in whichever process it is made.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler
from torch_geometric.loader.base import DataLoaderIterator

from pyg_graphzero.keys import BatchKey, random_key
from pyg_graphzero.loader.locality import grouped_order


class KeyedIndex(NamedTuple):
    """What one batch is made from: its seeds' positions, and the key of its randomness."""

    index: Any
    key: BatchKey


# What shuffles: how many positions, and from which generator.
Shuffle = Callable[[int, torch.Generator | None], Tensor]


def plain_shuffle(size: int, generator: torch.Generator | None) -> Tensor:
    """All positions in an order of which each is equally likely."""
    return torch.randperm(size, generator=generator)


class KeyedSampler:
    """Gives every batch of an epoch its own key, so that it is the same in any process.

    Args:
        base: What chooses the seeds of each batch.
        loader: Knows the generator, and how many batches of a resumed epoch are done.
    """

    def __init__(self, base: Any, loader: KeyedLoader) -> None:
        self.base = base
        self._loader = weakref.ref(loader)  # see KeyedLoader._get_iterator

    def __iter__(self) -> Iterator[KeyedIndex]:
        loader = self._loader()
        assert loader is not None, "the iterator in use holds on to the loader"
        # Read now, not at the first batch: another iteration may have begun by then.
        return self._from(loader._num_batches, loader.generator, loader._shuffle())

    def _from(
        self, done: int, generator: torch.Generator | None, shuffle: Shuffle
    ) -> Iterator[KeyedIndex]:
        epoch_key = 0
        for number, index in enumerate(index_batches(self.base, shuffle)):
            if number == 0:  # after the shuffle has drawn, whose order is then stock PyG's
                epoch_key = random_key(generator)
            if number >= done:
                yield KeyedIndex(index, BatchKey(epoch_key, number))

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


class CountedIterator(Iterator[Any]):
    """An epoch's iterator that tells the loader how far it is."""

    def __init__(self, loader: KeyedLoader, iterator: Any) -> None:
        self.loader = loader
        self.iterator = iterator

    def __next__(self) -> Any:
        batch = next(self.iterator)
        self.loader._num_batches += 1
        return batch

    def __len__(self) -> int:
        return len(self.iterator)


class KeyedLoader:
    """Mixed into PyG's loaders, in front of them."""

    dataset: Any
    filter_per_worker: bool | None = True
    filter_fn: Any
    persistent_workers: bool
    generator: torch.Generator | None
    # The epoch under way: the generator's state before it, and how many batches it has given.
    _epoch_start: Tensor | None = None
    _num_batches: int = 0
    _resumes: bool = False
    locality: int | None = None

    def _seed_rows(self) -> Tensor | None:
        """Where the seeds lie in the store; None: in the order of their positions."""
        return None

    def _shuffle(self) -> Shuffle:
        if self.locality is None:
            return plain_shuffle
        rows, group = self._seed_rows(), self.locality
        return lambda size, generator: grouped_order(rows, size, group, generator)

    def __setattr__(self, name: str, value: Any) -> None:
        # PyG hands DataLoader a range; DataLoader forbids changing it later.
        if name == "dataset" and isinstance(value, range):
            value = Positions(len(value))
        # The class has it already; as an attribute it makes the loader refer to itself.
        if name == "collate_fn" and getattr(value, "__self__", None) is self:
            return
        super().__setattr__(name, value)

    def _get_iterator(self) -> Any:
        # The loader keeps an iterator with persistent workers. If that kept the loader, both would
        # wait for the garbage collector, which closes the workers' queues before anybody can tell
        # the workers to end: torch then waits five seconds for each.
        iterator: Any = DataLoader._get_iterator(self)  # type: ignore[arg-type]
        if self.persistent_workers:
            iterator._collate_fn = None  # the workers have theirs
        if self.filter_per_worker:
            return iterator
        filter_fn: Any = weakref.WeakMethod(self.filter_fn)
        return DataLoaderIterator(iterator, lambda out: filter_fn()(out))

    @property
    def _index_sampler(self) -> KeyedSampler:
        return KeyedSampler(super()._index_sampler, self)  # type: ignore[misc]

    def __iter__(self) -> Iterator[Any]:
        generator = torch.default_generator if self.generator is None else self.generator
        if self._resumes and self._epoch_start is not None:
            generator.set_state(self._epoch_start)
        else:
            self._epoch_start, self._num_batches = generator.get_state(), 0
        self._resumes = False
        return CountedIterator(self, self._begin())

    def _begin(self) -> Any:
        return super().__iter__()  # type: ignore[misc]

    def state_dict(self) -> dict[str, Any]:
        """Where the epoch under way stands, to go on from in another process.

        Returns:
            ``generator``: the state of the loader's (or torch's) generator before the epoch;
            ``num_batches``: how many batches the consumer has had. State that a custom ``sampler``
            keeps outside that generator is the caller's to save.
        """
        return {"generator": self._epoch_start, "num_batches": self._num_batches}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration go on where ``state_dict`` was taken, with the same batches."""
        self._epoch_start = state["generator"]
        self._num_batches = int(state["num_batches"])
        self._resumes = self._epoch_start is not None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"  # as PyG's loaders print


def split_key(index: Any) -> tuple[Tensor, BatchKey | None]:
    """The positions of a batch, and its key; None where somebody else chose them."""
    key = None
    if isinstance(index, KeyedIndex):
        index, key = index
    return as_positions(index), key


def as_positions(index: Any) -> Tensor:
    """The positions of a batch as a tensor."""
    index = torch.as_tensor(index)
    return index.to(torch.int64) if index.numel() == 0 else index


def index_batches(base: Any, shuffle: Shuffle = plain_shuffle) -> Iterator[Any]:
    """The positions of each batch, as ``base`` gives them; ``shuffle`` is how torch's own does.

    torch's own samplers make a Python list of all positions; the same order is had from one tensor.
    """
    sampler = base.sampler if type(base) is BatchSampler else None
    if type(sampler) is SequentialSampler:
        order = None
    elif type(sampler) is RandomSampler and not sampler.replacement and not sampler._num_samples:
        order = shuffle(len(sampler), _generator_of(sampler))
    else:
        yield from base
        return
    size, batch = len(sampler), base.batch_size
    for first in range(0, size - base.drop_last * (size % batch), batch):
        last = min(first + batch, size)
        yield torch.arange(first, last) if order is None else order[first:last]


def _generator_of(sampler: RandomSampler) -> torch.Generator:
    """What a ``RandomSampler`` draws an epoch's order from."""
    if sampler.generator is not None:
        return sampler.generator
    generator = torch.Generator()
    generator.manual_seed(random_key())
    return generator
