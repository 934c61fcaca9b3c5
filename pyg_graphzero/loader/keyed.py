"""``KeyedLoader``, a part of every loader: each batch has a number and a key.

A ``DataLoader`` does not tell ``collate_fn`` which batch it makes. Here the index sampler does, so
that a batch is the same in whichever process it is made.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Generic, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler
from typing_extensions import TypeVar

from pyg_graphzero.sampling.options import SamplingOptions
from pyg_graphzero.util.keys import BatchKey

#: The class of the graph that a loader is over, which is that of its batches.
Graph_co = TypeVar("Graph_co", covariant=True, default=Any)


class KeyedIndex(NamedTuple):
    """The input of one batch: its seeds' positions, and the key of its randomness."""

    index: Any
    key: BatchKey


class Taken:
    """Items of an iterator by number, kept until they are forgotten.

    Args:
        items: Gives the item of number ``first``, then those that follow.
        first: The first number.
    """

    def __init__(self, items: Iterator[Any], first: int = 0) -> None:
        self._items = zip(items, count(first))
        self._kept: deque[tuple[Any, int]] = deque()
        self._oldest = first
        self._error: BaseException | None = None

    def at(self, number: int) -> Any:
        """The item of a number that is not forgotten.

        Raises:
            StopIteration: The iterator has ended before.
            RuntimeError: An exception has ended it.
        """
        kept = self._kept
        while not kept or kept[-1][1] < number:
            self.forget(self._oldest)
            before = len(kept)
            try:
                # One call of a C function: an item is kept, or was not taken, whatever strikes.
                kept.extend(islice(self._items, 1))
            except BaseException as error:
                self._error = error
                raise
            if len(kept) == before:
                if self._error is None:
                    raise StopIteration
                raise RuntimeError(
                    f"this epoch cannot go on: {self._error!r} ended it; iterate "
                    "over the loader again"
                ) from self._error
            self._error = None
        return kept[number - kept[0][1]][0]

    def forget(self, oldest: int) -> None:
        """Forgets items before a number."""
        self._oldest, kept = oldest, self._kept
        while kept and kept[0][1] < oldest:
            kept.popleft()

    def get(self, number: int) -> Any:
        """The next item, or once more the last one."""
        self.forget(number)
        return self.at(number)


class Slices:
    """The positions of batches of torch's own samplers, without a Python list of all positions.

    Args:
        base: The batch sampler.
        shuffles: Draws an order when the first batch is asked for.
    """

    def __init__(self, base: Any, shuffles: bool) -> None:
        self._sampler: Any = base.sampler
        self._shuffles = shuffles
        self._batch = base.batch_size
        self._size = len(self._sampler)
        self._stop = self._size - base.drop_last * (self._size % self._batch)
        # Drawn in place, so that they are either drawn or not, whenever an exception strikes.
        self._seed = torch.full((), -1)
        self._order = torch.empty(self._size if shuffles else 0, dtype=torch.int64)
        self._order[:1] = -1
        self._is_drawn = False

    def at(self, number: int) -> Tensor:
        """Positions of a batch.

        Raises:
            StopIteration: There is no such batch.
        """
        if self._shuffles and not self._is_drawn:
            self._draw()
        first = number * self._batch
        if first >= self._stop:
            raise StopIteration
        last = min(first + self._batch, self._size)
        return self._order[first:last] if self._shuffles else torch.arange(first, last)

    def forget(self, oldest: int) -> None:
        """Nothing is kept by number."""

    def _draw(self) -> None:
        """Draws the order as a ``RandomSampler`` does, once."""
        generator = self._sampler.generator
        if generator is None and int(self._seed) < 0:
            self._seed.random_()
        if self._size and int(self._order[0]) < 0:
            generator = generator or torch.Generator().manual_seed(int(self._seed))
            torch.randperm(self._size, generator=generator, out=self._order)
        self._is_drawn = True


def batches_of(base: Any) -> Slices | Taken:
    """The positions of batches, as ``base`` gives them."""
    sampler = base.sampler if type(base) is BatchSampler else None
    if type(sampler) is SequentialSampler:
        return Slices(base, shuffles=False)
    if type(sampler) is RandomSampler and not sampler.replacement and not sampler._num_samples:
        return Slices(base, shuffles=True)
    return Taken(iter(base))


class KeyedSeeds:
    """The seeds of an epoch's batches, by number, with their keys.

    Args:
        positions: The positions of each batch.
        generator: Where the key of the epoch is drawn from.
        first: Number of the first batch that will be asked for.
    """

    def __init__(
        self, positions: Slices | Taken, generator: torch.Generator | None, first: int
    ) -> None:
        self._positions = positions
        self._generator = generator
        self._positions.forget(first)
        # Drawn in place, so that it is either drawn or not, whenever an exception strikes.
        self._drawn = torch.full((), -1)

    def at(self, number: int) -> KeyedIndex:
        """The seeds of a batch that is not forgotten.

        Raises:
            StopIteration: There is no such batch.
        """
        try:
            index = self._positions.at(number)
        except StopIteration:
            self._epoch_key()  # an epoch that goes on at its end draws all the same
            raise
        return KeyedIndex(index, BatchKey(self._epoch_key(), number))

    def _epoch_key(self) -> int:
        if int(self._drawn) < 0:  # after the shuffle has drawn, whose order is then stock PyG's
            self._drawn.random_(generator=self._generator)
        return int(self._drawn)

    def forget(self, oldest: int) -> None:
        """Forgets the seeds of batches before a number."""
        self._positions.forget(oldest)

    def get(self, number: int) -> KeyedIndex:
        """The seeds of the next batch, or once more of the last one."""
        self.forget(number)
        return self.at(number)


class KeyedSampler:
    """Gives every batch of an epoch its own key, so that it is the same in any process.

    Args:
        base: The batch sampler, which chooses the seeds of each batch.
        loader: Knows the generator, and how many batches of a resumed epoch are done.
    """

    def __init__(self, base: Any, loader: KeyedLoader) -> None:
        self.base = base
        self._loader = loader

    def __iter__(self) -> Iterator[KeyedIndex]:
        # Read now, not at the first batch: another iteration may have begun by then.
        first = self._loader._progress.number
        return map(self._loader.keyed_seeds(first).get, count(first))

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

    __getitems__ = __getitem__


@dataclass
class Progress:
    """How far an epoch is.

    Attributes:
        start: State of the loader's generator before the epoch; None before the first.
        number: Number of the batch that comes next.
    """

    start: Tensor | None = None
    number: int = 0


class EpochIterator(Iterator[Any]):
    """An epoch's iterator, as its user has it.

    Its state is the number of the batch that comes next, raised once that batch is made. A batch
    that an exception kept from its user comes next. Several threads may take batches from one
    iterator, each of which goes to one of them.

    Args:
        loader: The loader.
        progress: Where the number is kept.
        epoch: ``get(number)`` gives a batch, the same one when it is asked again.
    """

    def __init__(self, loader: Any, progress: Progress, epoch: Any) -> None:
        self._loader = loader
        self._progress = progress
        self.epoch = epoch
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._is_busy = False

    def __next__(self) -> Any:
        if self._process != os.getpid():  # the thread that held the lock is in another process
            self._lock, self._process, self._is_busy = threading.RLock(), os.getpid(), False
        progress, number = self._progress, None
        try:
            with self._lock:
                batch = self._make(progress.number)
                number = progress.number
                progress.number = number + 1
            return batch
        except BaseException:
            if number is not None and progress.number == number + 1:
                progress.number = number
            raise

    def _make(self, number: int) -> Any:
        if self._is_busy:
            raise RuntimeError("this iterator is making a batch already, further down in this call")
        try:
            self._is_busy = True
            # Profilers know by this name when a loop waits for its loader.
            with torch.autograd.profiler.record_function("enumerate(DataLoader)#Epoch.__next__"):
                return self.epoch.get(number)
        finally:
            self._is_busy = False

    def __len__(self) -> int:
        return len(self._loader)


class KeyedLoader(Generic[Graph_co]):
    """Mixed into PyG's loaders, in front of them."""

    dataset: Any
    generator: torch.Generator | None
    _progress = Progress()  # of the latest epoch
    _resumed: Progress | None = None  # where the next one begins, if not at its start
    options = SamplingOptions()

    def seed_rows(self) -> Tensor | None:
        """Where the seeds lie in the store; None: in the order of their positions."""
        return None

    def __setattr__(self, name: str, value: Any) -> None:
        # PyG hands DataLoader a range; DataLoader forbids changing it later.
        if name == "dataset" and isinstance(value, range):
            value = Positions(len(value))
        # The class has this method; an attribute would make the loader refer to itself.
        if name == "collate_fn" and getattr(value, "__self__", None) is self:
            return
        super().__setattr__(name, value)

    @property
    def _index_sampler(self) -> KeyedSampler:
        return KeyedSampler(super()._index_sampler, self)  # type: ignore[misc]

    def keyed_seeds(self, first: int) -> KeyedSeeds:
        """The seeds of an epoch that begins, or goes on at batch ``first``."""
        base: Any = super()._index_sampler  # type: ignore[misc]
        return KeyedSeeds(batches_of(base), self.generator, first)

    def __iter__(self) -> Iterator[Graph_co]:
        generator = torch.default_generator if self.generator is None else self.generator
        progress = self._resumed or Progress(generator.get_state())
        generator.set_state(progress.start)  # type: ignore[arg-type]
        self._progress, self._resumed = progress, None
        return EpochIterator(self, progress, self._epoch(progress.number))

    def _epoch(self, first: int) -> Any:
        """Batches by number, see :class:`EpochIterator`, from ``first`` on."""
        return Taken(super().__iter__(), first)  # type: ignore[misc]

    def state_dict(self) -> dict[str, Any]:
        """Where the epoch under way stands, to go on from in another process.

        Returns:
            ``generator``: the state of the loader's (or torch's) generator before the epoch;
            ``num_batches``: how many batches were handed to the consumer; one that an exception
            kept it from assigning among them. State that a custom ``sampler``
            keeps outside that generator is the caller's to save.
        """
        return {"generator": self._progress.start, "num_batches": self._progress.number}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration go on where ``state_dict`` was taken, with the same batches.

        Raises:
            KeyError: ``state`` is not what ``state_dict`` returned.
        """
        if missing := {"generator", "num_batches"}.difference(state):
            raise KeyError(f"state: found {list(state)}, expected {sorted(missing)} as well")
        self._progress = Progress(state["generator"], int(state["num_batches"]))
        self._resumed = None if state["generator"] is None else self._progress

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"  # as PyG's loaders print


def as_positions(index: Any) -> Tensor:
    """The positions of a batch as a tensor."""
    index = torch.as_tensor(index)
    return index.to(torch.int64) if index.numel() == 0 else index
