"""``KeyedLoader``, a part of every loader: each batch has a key, and batches travel whole.

A ``DataLoader`` does not tell ``collate_fn`` which batch it makes. Here the index sampler does, so
that a batch is the same in whichever process it is made.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from typing import Any, Generic, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)
from torch_geometric.loader.base import DataLoaderIterator
from typing_extensions import TypeVar

from pyg_graphzero.loader.locality import grouped_order
from pyg_graphzero.loader.steady import Steady, is_struck
from pyg_graphzero.util.keys import BatchKey, random_key

#: The class of the graph that a loader is over, which is that of its batches.
Graph_co = TypeVar("Graph_co", covariant=True, default=Any)


class KeyedIndex(NamedTuple):
    """The input of one batch: its seeds' positions, and the key of its randomness."""

    index: Any
    key: BatchKey


# A function that shuffles a number of positions, by a generator.
Shuffle = Callable[[int, torch.Generator | None], Tensor]


def plain_shuffle(size: int, generator: torch.Generator | None) -> Tensor:
    """All positions in an order of which each is equally likely."""
    return torch.randperm(size, generator=generator)


class KeyedSampler:
    """Gives every batch of an epoch its own key, so that it is the same in any process.

    Args:
        base: The batch sampler, which chooses the seeds of each batch.
        loader: Knows the generator, and how many batches of a resumed epoch are done.
    """

    def __init__(self, base: Any, loader: KeyedLoader) -> None:
        self.base = base
        self._loader = weakref.ref(loader)  # see KeyedLoader._get_iterator

    def __iter__(self) -> Iterator[KeyedIndex]:
        loader = self._loader()
        assert loader is not None, "the iterator in use holds on to the loader"
        # Read now, not at the first batch: another iteration may have begun by then.
        indices = index_batches(self.base, loader._shuffle())
        return KeyedIndices(indices, loader._num_batches, loader.generator)

    def __len__(self) -> int:
        return len(self.base)


class KeyedIndices(Steady[tuple[Any, int], KeyedIndex]):
    """One epoch's seeds, batch by batch, with their keys.

    Args:
        indices: The positions of each batch.
        done: How many batches to pass over.
        generator: Where the key of the epoch is drawn from.
    """

    def __init__(
        self, indices: Iterator[Any], done: int, generator: torch.Generator | None
    ) -> None:
        super().__init__(zip(indices, count()))
        self._indices = indices
        self._done = done
        self._generator = generator
        # Drawn in place, so that it is either drawn or not, whenever an exception strikes.
        self._drawn = torch.full((), -1)
        self._epoch_key: int | None = None
        self._is_cut = False

    def _take(self) -> None:
        try:
            super()._take()
        except BaseException as error:
            # An exception ends a generator for good. That is not the end of the epoch, and must
            # not be taken for it.
            is_over = getattr(self._indices, "gi_frame", self) is None
            self._is_cut = self._is_cut or (is_over and is_struck(error))
            raise
        if self._is_cut and not self._held:
            raise RuntimeError(
                "this epoch cannot go on: an exception struck inside the loader's sampler, a "
                "generator, and ended it; iterate over the loader again"
            )

    def _make(self, item: tuple[Any, int]) -> KeyedIndex | None:
        index, number = item
        if self._epoch_key is None:
            if self._drawn < 0:  # after the shuffle has drawn, whose order is then stock PyG's
                self._drawn.random_(generator=self._generator)
            self._epoch_key = int(self._drawn)
        if number < self._done:
            return None
        return KeyedIndex(index, BatchKey(self._epoch_key, number))


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
    """An epoch's iterator, as its user has it: tells the loader how far it is.

    A batch that an exception kept from its user is the next one delivered. Several threads may take
    batches from it, each of which goes to one of them.
    """

    def __init__(self, loader: KeyedLoader, iterator: Any) -> None:
        self.loader = loader
        self.iterator = iterator
        self._held: deque[Any] = deque()  # taken from the iterator, and not delivered
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._is_busy = False

    def __next__(self) -> Any:
        if self._process != os.getpid():  # the thread that held the lock is in another process
            self._lock, self._process, self._is_busy = threading.RLock(), os.getpid(), False
        mine: deque[Any] = deque()
        progress, count = self.loader.__dict__, 0  # past __setattr__, in which something may strike
        try:
            with self._lock:
                held = self._fetch()
                self._held, mine, count = deque(), held, 1
                progress["_num_batches"] += 1
            return mine[0]
        except BaseException:
            progress["_num_batches"] -= count
            self._held.extendleft(mine)
            raise

    def _fetch(self) -> deque[Any]:
        if self._is_busy:
            raise RuntimeError("this iterator is making a batch already, further down in this call")
        try:
            self._is_busy = True
            if not self._held:
                self._held.extend(islice(self.iterator, 1))
        finally:
            self._is_busy = False
        if not self._held:
            raise StopIteration
        return self._held

    def __len__(self) -> int:
        return len(self.iterator)


class KeyedLoader(Generic[Graph_co]):
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
    # Without workers, where torch takes no prefetch_factor: it is to be 0.
    _prepares_none: bool = False

    def seed_rows(self) -> Tensor | None:
        """Where the seeds lie in the store; None: in the order of their positions."""
        return None

    def _shuffle(self) -> Shuffle:
        if self.locality is None:
            return plain_shuffle
        rows, group = self.seed_rows(), self.locality
        return lambda size, generator: grouped_order(rows, size, group, generator)

    def __setattr__(self, name: str, value: Any) -> None:
        # PyG hands DataLoader a range; DataLoader forbids changing it later.
        if name == "dataset" and isinstance(value, range):
            value = Positions(len(value))
        if name == "prefetch_factor" and value is None and self._prepares_none:
            value = 0
        # The class has this method; an attribute would make the loader refer to itself.
        if name == "collate_fn" and getattr(value, "__self__", None) is self:
            return
        super().__setattr__(name, value)

    def _get_iterator(self) -> Any:
        # The loader keeps an iterator with persistent workers. If that kept the loader, both would
        # wait for the garbage collector, which closes the workers' queues before the workers can be
        # told to end: torch then waits five seconds for each.
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

    def __iter__(self) -> Iterator[Graph_co]:
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
            ``num_batches``: how many batches were handed to the consumer; one that an exception
            kept it from assigning among them. State that a custom ``sampler``
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
    """The positions of a batch, and its key; None if they are not of a :class:`KeyedSampler`."""
    key = None
    if isinstance(index, KeyedIndex):
        index, key = index
    return as_positions(index), key


def as_positions(index: Any) -> Tensor:
    """The positions of a batch as a tensor."""
    index = torch.as_tensor(index)
    return index.to(torch.int64) if index.numel() == 0 else index


def index_batches(base: Any, shuffle: Shuffle = plain_shuffle) -> Iterator[Any]:
    """The positions of each batch, as ``base`` gives them; ``shuffle`` is how torch's own does."""
    sampler = base.sampler if type(base) is BatchSampler else None
    in_order = type(sampler) is SequentialSampler
    shuffled = (
        type(sampler) is RandomSampler and not sampler.replacement and not sampler._num_samples
    )
    return Slices(base, shuffle if shuffled else None) if in_order or shuffled else iter(base)


def is_settled(base: Any) -> bool:
    """Whether all seeds of an epoch are chosen together with those of its first batch.

    It does not matter then when later batches are asked for. True for torch's own samplers, but for
    those that draw as they go, or read the user's data; and for an ``__iter__`` that is marked by
    :func:`settled`.
    """
    if type(base) is not BatchSampler:
        return False
    at_once: Any = (WeightedRandomSampler.__iter__, DistributedSampler.__iter__)
    own: Any = type(base.sampler).__iter__
    says_so = getattr(own, "is_settled", False)
    return says_so or isinstance(index_batches(base), Slices) or own in at_once


def settled(iterate: Callable[[Any], Iterator[int]]) -> Callable[[Any], Iterator[int]]:
    """Marks the ``__iter__`` of a sampler that chooses all of an epoch when it is first asked."""
    iterate.is_settled = True  # type: ignore[attr-defined]
    return iterate


class Slices(Iterator[Tensor]):
    """The batches of torch's own samplers, without their Python list of all positions.

    Args:
        base: The batch sampler.
        shuffle: Draws the order when the first batch is asked for; None: positions in order.
    """

    def __init__(self, base: Any, shuffle: Shuffle | None) -> None:
        self._sampler: Any = base.sampler
        self._shuffle = shuffle
        self._order: Tensor | None = None
        size = len(self._sampler)
        self._batch = base.batch_size
        self._stop = size - base.drop_last * (size % base.batch_size)
        self._size = size
        self._first = 0

    def __next__(self) -> Tensor:
        if self._shuffle is not None and self._order is None:
            self._draw(self._shuffle)
        first = self._first
        if first >= self._stop:
            raise StopIteration
        last = min(first + self._batch, self._size)
        index = torch.arange(first, last) if self._order is None else self._order[first:last]
        self._first = last
        return index

    def _draw(self, shuffle: Shuffle) -> None:
        # Drawn again from where it began, if an exception strikes before the order is kept.
        generators = {torch.default_generator, self._sampler.generator or torch.default_generator}
        states = [(generator, generator.get_state()) for generator in generators]
        try:
            self._order = shuffle(self._size, _generator_of(self._sampler))
        except BaseException:
            for generator, state in states:
                generator.set_state(state)
            raise


def _generator_of(sampler: RandomSampler) -> torch.Generator:
    """The generator from which a ``RandomSampler`` draws an epoch's order."""
    if sampler.generator is not None:
        return sampler.generator
    generator = torch.Generator()
    generator.manual_seed(random_key())
    return generator
