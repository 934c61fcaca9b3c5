"""Batches on the device that trains, copied while the last one trains."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch

from pyg_graphzero.loader.steady import Steady, is_struck


class StreamCopier:
    """Copies batches on a stream of its own, beside the one that computes.

    Args:
        device: Where to.
        streams: The module with the device's streams, ``torch.cuda``.
    """

    def __init__(self, device: torch.device, streams: Any) -> None:
        self.device = device
        self.streams = streams
        self.side = streams.Stream(device=device)
        # A batch must live until it is copied; its memory is the engine's, not torch's.
        self.sources: deque[tuple[Any, Any]] = deque()

    def begin(self, batch: Any) -> tuple[Any, Any]:
        """Starts to copy a batch, and returns at once."""
        while self.sources and self.sources[0][0].query():
            self.sources.popleft()
        with self.streams.stream(self.side):
            copy = batch.to(self.device, non_blocking=True)
            done = self.side.record_event()
        self.sources.append((done, batch))
        return copy, done

    def end(self, begun: tuple[Any, Any]) -> Any:
        """The copy, for work that is queued from now on."""
        copy, done = begun
        stream = self.streams.current_stream(self.device)
        stream.wait_event(done)
        copy.record_stream(stream)  # its memory was the side stream's
        return copy


class PlainCopier:
    """Copies to devices without streams."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def begin(self, batch: Any) -> Any:
        """Copies a batch."""
        return batch.to(self.device)

    def end(self, begun: Any) -> Any:
        """The copy."""
        return begun


def copier_to(device: torch.device) -> StreamCopier | PlainCopier:
    """The copier for a device: by a stream of its own on CUDA."""
    return StreamCopier(device, torch.cuda) if device.type == "cuda" else PlainCopier(device)


class Copies(Steady[Any, Any]):
    """Copies of batches, begun.

    Args:
        batches: Gives them.
        copier: Copies them.
    """

    def __init__(self, batches: Iterator[Any], copier: StreamCopier | PlainCopier) -> None:
        super().__init__(batches)
        self._copier = copier

    def _make(self, item: Any) -> Any:
        return self._copier.begin(item)


class DeviceIterator(Iterator[Any]):
    """Delivers the batches of an iterator on a device.

    Where the next batch is ready when one is handed over, its copy begins at once, so that it goes
    on while the consumer trains. The consumer never waits for a batch after the one it asked for.

    Args:
        iterator: Gives batches.
        copier: Copies them.
        is_ready: Says whether ``iterator`` would give one at once.
    """

    def __init__(
        self, iterator: Any, copier: StreamCopier | PlainCopier, is_ready: Callable[[], bool]
    ) -> None:
        self.iterator = iterator
        self.copier = copier
        self.is_ready = is_ready
        self._copies = Copies(iterator, copier)
        self._begun: deque[Any] = deque()  # in order, the batch to be delivered first
        self._error: Exception | None = None  # of the batch after them

    def __next__(self) -> Any:
        begun = self._begun
        if not begun:
            error, self._error = self._error, None
            if error is not None:
                raise error
            begun.extend(islice(self._copies, 1))
        if not begun:
            raise StopIteration
        batch = self.copier.end(begun[0])
        if len(begun) == 1 and self._error is None and self.is_ready():
            try:
                begun.extend(islice(self._copies, 1))
            except Exception as error:
                if is_struck(error):
                    raise
                self._error = error
        self._begun = deque(islice(begun, 1, None))
        return batch

    def __len__(self) -> int:
        return len(self.iterator)
