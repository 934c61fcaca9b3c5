"""Processes that train together: what each does, what they agree on, and what ends them.

For scripts that run alone and under torchrun alike; ``papers100m_sage.py`` is one.
"""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class Ranks:
    """The processes that train together, as torchrun has started them; one without it.

    Sums and other agreements travel by gloo, in main memory; gradients by nccl between GPUs.
    """

    def __init__(self, device: torch.device) -> None:
        self.rank = int(os.environ.get("RANK", 0))
        self.size = int(os.environ.get("WORLD_SIZE", 1))
        self.local_size = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        self.machine = int(os.environ.get("GROUP_RANK", 0))
        self._gloo: Any = None
        if device.type == "cuda":
            torch.cuda.set_device(device)
        if "RANK" in os.environ:
            backend = "nccl" if device.type == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=timedelta(minutes=30))
            self._gloo = dist.new_group(backend="gloo")

    def sum(self, *numbers: float) -> list[float]:
        """The sums over all ranks."""
        total = torch.tensor(numbers, dtype=torch.float64)
        if self._gloo is not None:
            dist.all_reduce(total, group=self._gloo)
        return total.tolist()

    def any(self, flag: bool) -> bool:
        """Whether one of the ranks says so."""
        return flag if self.size == 1 else self.sum(flag)[0] > 0

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, in the order of ranks, on rank 0; other ranks get an empty list."""
        if self._gloo is None:
            return [value]
        found = [None] * self.size if self.rank == 0 else None
        dist.gather_object(value, found, dst=0, group=self._gloo)
        return found or []

    def wait(self) -> None:
        """Until all are here."""
        if self._gloo is not None:
            dist.barrier(group=self._gloo)

    def say(self, *words: Any) -> None:
        """Prints, once for all."""
        if self.rank == 0:
            print(*words, flush=True)

    def leave(self) -> None:
        """Ends the group when all are here; no `DistributedDataParallel` may hold it any more.

        One that is the last to hold it joins gloo's threads with the GIL held, and they need the
        GIL to let go of a tensor.
        """
        if self._gloo is not None:
            self.wait()
            dist.destroy_process_group()
            self._gloo = None


def share_of(nodes: Tensor, rank: int, size: int, pad: bool) -> Tensor:
    """A rank's part of some nodes: every ``size``-th.

    Args:
        nodes: ``int64 [n]``.
        rank: Rank that gets the part.
        size: Number of ranks.
        pad: Whether all ranks get as many, the first ones again where they do not divide: in
            training all must make the same number of steps, or they wait for each other for ever.
            Nodes that are counted must not be padded.
    """
    if pad and len(nodes) > 0:
        even = -(-len(nodes) // size) * size
        nodes = nodes[torch.arange(even) % len(nodes)]
    return nodes[rank::size]


class Interrupt:
    """Remembers SIGTERM and Ctrl-C until a checkpoint has been written."""

    def __init__(self) -> None:
        self.signal = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._remember)

    def _remember(self, number: int, frame: object) -> None:
        self.signal = number

    def release(self) -> None:
        """Lets the signals end the process again."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class MemoryPeak:
    """The most memory this process was seen to take, by kind."""

    def __init__(self) -> None:
        self.anon = self.file = self.total = 0

    def look(self) -> None:
        """Compares what is taken now."""
        lines = Path("/proc/self/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        anon, file = (int(fields[name].split()[0]) << 10 for name in ("RssAnon", "RssFile"))
        if anon + file > self.total:
            self.anon, self.file, self.total = anon, file, anon + file
