"""Peers of this package's loader in ``out_of_core.py``: a tuned memory map, and GraphBolt's scheme.

Both sample with this package's sampler, so that only the way to get rows differs.
"""

from __future__ import annotations

import mmap
import os
import queue
import threading
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
from out_of_core_task import Contestant, StoreFiles, Task
from sieve import SieveCache
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import NodeSamplerInput

from pyg_graphzero import _core
from pyg_graphzero import open as open_store
from pyg_graphzero.bench.page_cache import warm
from pyg_graphzero.bench.process import memory
from pyg_graphzero.sampling.sampler import NeighborSampler

# Batches under way, and what their work needs besides, is left out of a row cache this often.
_BATCHES_UNDER_WAY = 4
_PAGE = 4096
_COUNTS = ("rows", "hits", "reads", "read_bytes", "useful_bytes", "read_seconds")
T = TypeVar("T")


class Peer(Contestant):
    """Our sampler and another way to get rows: a thread samples ahead, another gets rows ahead.

    Sampling is the same for all, so that only storage is compared.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.files = StoreFiles(Path(task.store))
        self.row_bytes = self.files.x.row_stride
        data = open_store(task.store).data()
        self.sampler = NeighborSampler(data, task.fanout, num_threads=1)

    @abstractmethod
    def fetch(self, nodes: Tensor, out: Tensor) -> None:
        """Puts the rows of nodes into ``out``, ``uint8 [num_nodes, row_bytes]``."""

    def _sample(self) -> Iterator[Any]:
        order = self.seeds[torch.randperm(len(self.seeds))]
        for chunk in order.split(self.task.batch_size):
            yield len(chunk), self.sampler.sample_from_nodes(NodeSamplerInput(None, chunk))

    def _gather(self, sampled: Iterable[Any]) -> Iterator[Data]:
        for size, out in sampled:
            rows = torch.empty(len(out.node), self.row_bytes, dtype=torch.uint8)
            self.fetch(out.node, rows)
            yield Data(
                x=rows.view(self.files.dtype),
                y=self.files.y[out.node],
                edge_index=torch.stack([out.row, out.col]),
                n_id=out.node,
                batch_size=size,
            )

    def epoch(self) -> Iterable[Any]:
        """Sampled and fetched ahead."""
        return ahead(self._gather(ahead(self._sample())))


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The same items, made by a thread while the last one is used."""
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(1)

    def work() -> None:
        try:
            for item in items:
                ready.put(("item", item))
            ready.put(("end", None))
        except BaseException as error:
            ready.put(("error", error))

    threading.Thread(target=work, daemon=True).start()
    while True:
        kind, value = ready.get()
        if kind == "error":
            raise value
        if kind == "end":
            return
        yield value


class TunedMemmap(Peer):
    """The same map as stock PyG's, read by several threads at once, in one of two ways.

    ``random``: the kernel is told to read no more than it is asked for. ``sorted``: it reads ahead,
    and rows are asked for in the order of the file.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        table = self.files.memmap()
        self._sorted = task.options["advice"] == "sorted"
        if not self._sorted:
            table._mmap.madvise(mmap.MADV_RANDOM)  # NumPy has no public way to it
        raw = torch.from_numpy(table).view(torch.uint8)
        self._table = _core.RowTable(raw)
        self._threads = task.options["threads"]

    def fetch(self, nodes: Tensor, out: Tensor) -> None:
        """Threads copy out of the map; each waits for its own page faults."""
        if not self._sorted:
            _core.gather_rows(self._table, nodes, out, self._threads)
            return
        nodes, order = nodes.sort()
        rows = torch.empty_like(out)
        _core.gather_rows(self._table, nodes, rows, self._threads)
        out[order] = rows


class GraphBolt(Peer):
    """The scheme of DGL GraphBolt, enacted: a row cache, and a read for every row it lacks.

    SIEVE eviction; reads of at most 4 KiB past the page cache, by io_uring where it can be had.
    Rows that lie next to each other within such a read share it, in the scheme's favour.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        warm([self.files.topology])  # the scheme holds it in RAM
        self._column = _core.ColumnFile.of(self.files.x)
        self._disk = _core.DiskGather("auto", depth=task.options.get("depth", 128))
        self._capacity = self._fitting_rows()
        self._cache = SieveCache(self.files.num_nodes, self._capacity, self.row_bytes)
        self._counts = dict.fromkeys(_COUNTS, 0.0)

    def _fitting_rows(self) -> int:
        """Rows that the limit leaves room for."""
        given = self.task.options.get("cache_bytes")
        if given is not None:
            return int(given) // self.row_bytes
        assert self.task.memory is not None
        # A batch, to see how large they are.
        _, out = next(self._sample())
        batch = len(out.node) * self.row_bytes + len(out.row) * 24
        used = memory(os.getpid())
        taken = used["anon"] + used["shmem"] + self.files.topology.stat().st_size
        taken += 4 * self.files.num_nodes + _BATCHES_UNDER_WAY * batch + (64 << 20)
        return max(0, self.task.memory - taken) // (self.row_bytes + 24)

    def fetch(self, nodes: Tensor, out: Tensor) -> None:
        """Rows from the cache, the others from the disk and then into the cache."""
        missed = self._cache.query(nodes, out)
        start = time.perf_counter()
        found = self._disk.gather(
            self._column, [nodes[missed]], [out], [missed], merge_gap=0, max_read=_PAGE
        )
        took = time.perf_counter() - start
        self._cache.insert(nodes, missed, out)
        values = (len(nodes), len(nodes) - len(missed), found.reads, found.bytes)
        values += (found.useful_bytes, took)
        for name, value in zip(_COUNTS, values, strict=True):
            self._counts[name] += value

    def epoch(self) -> Iterable[Any]:
        """As its base; counts from zero."""
        self._counts = dict.fromkeys(_COUNTS, 0.0)
        return super().epoch()

    def counts(self) -> dict[str, Any]:
        """Rows wanted, found and read."""
        return dict(self._counts)

    def facts(self) -> dict[str, Any]:
        """The cache's size and the reader."""
        size = self._capacity * self.row_bytes
        return {"cache_rows": self._capacity, "cache_bytes": size, "reader": self._disk.reader}
