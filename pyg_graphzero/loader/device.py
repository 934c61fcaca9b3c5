"""Batches on the device that trains, copied by PyG's ``PrefetchLoader``."""

from __future__ import annotations

from itertools import count
from typing import Any

import torch
from torch_geometric.loader import PrefetchLoader

# Devices to which PrefetchLoader copies on a stream of its own; it copies to no other.
_STREAMED = ("cuda", "xpu")


class EpochOnDevice:
    """Batches of an epoch, by number, copied to a device by PyG's ``PrefetchLoader``.

    Args:
        epoch: Gives batches in main memory.
        device: Where to.

    Raises:
        RuntimeError: There is no such device; a torch built without it raises an AssertionError.
    """

    def __init__(self, epoch: Any, device: torch.device) -> None:
        torch.empty(0, device=device)
        self._epoch = epoch
        self._device = device
        self._copies: Any = None
        self._next = 0

    def get(self, number: int) -> Any:
        """Makes batch ``number``, or waits for it; see :meth:`Epoch.get`."""
        if self._device.type not in _STREAMED:
            return self._epoch.get(number).to(self._device)
        copies, self._copies = self._copies, None
        if copies is None or number != self._next:
            batches = map(self._epoch.get, count(number))
            copies = iter(PrefetchLoader(batches, self._device))
        batch = next(copies)
        if batch is None:  # PyG's, for no batch at all
            raise StopIteration
        self._copies, self._next = copies, number + 1
        return batch
