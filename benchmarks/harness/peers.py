"""Contestants: stock PyG over memory maps, a tuned map, GraphBolt's scheme, and this package.

All read the rows and the topology that a store has. ``TunedMemmap`` and ``GraphBolt`` sample with
this package's sampler, so that only the way to get rows differs.
"""

from __future__ import annotations

import mmap
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import NodeSamplerInput

from harness.child import Task, Tell, deliver
from harness.communities import made_ahead
from harness.sieve import SieveCache
from pyg_graphzero import _core
from pyg_graphzero import open as open_store
from pyg_graphzero.bench.process import memory, warm
from pyg_graphzero.loader import NeighborLoader
from pyg_graphzero.sampling.neighbor import NeighborSampler
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.util.machine import version

# Where rows begin in a .gd file (docs/format.md).
_DATA_OFFSET = 4096
# Batches under way, and what their work needs besides, is left out of a row cache this often.
_BATCHES_UNDER_WAY = 4
_PAGE = 4096
_COUNTS = ("rows", "hits", "reads", "read_bytes", "useful_bytes", "read_seconds")
T = TypeVar("T")


def seeds_of(task: Task) -> Tensor:
    """The seeds of an epoch, shuffled by the task's seed and cut: ``int64 [n]``."""
    with open_store(task.store) as store:
        seeds = store.data()[task.seeds]
        seeds = seeds.nonzero().view(-1) if seeds.dtype == torch.bool else seeds.clone()
    order = torch.randperm(len(seeds), generator=torch.Generator().manual_seed(task.seed))
    return seeds[order][: task.num_seeds or None]


class StoreFiles:
    """A store's raw files, for the contestants that do not use this package's loaders."""

    def __init__(self, path: Path) -> None:
        self.contents = StoreContents(path)
        self.x = self.contents.column(self._file("x"))
        self.y = self.contents.view(self._file("y"))
        self.topology = Path(self.contents.topology(None).path)
        self.num_nodes, self.num_features = self.x.shape
        self.dtype = getattr(torch, self.x.dtype)
        row_bytes = self.num_features * self.dtype.itemsize
        if self.x.row_stride != row_bytes:
            raise ValueError(
                f"{self.x.path}: found rows of {row_bytes} bytes {self.x.row_stride} apart, "
                "expected rows without padding; choose --features such as 128"
            )

    def _file(self, attr: str) -> str:
        return self.contents.node_type(None).attrs[attr]

    def memmap(self) -> np.memmap:
        """The features as a script maps them."""
        kind = torch.empty(0, dtype=self.dtype).numpy().dtype
        shape = (self.num_nodes, self.num_features)
        return np.memmap(self.x.path, dtype=kind, mode="r", offset=_DATA_OFFSET, shape=shape)


class Contestant(ABC):
    """One way to get batches. Making it is what a script does before its first epoch."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.seeds = seeds_of(task)

    @abstractmethod
    def epoch(self) -> Iterable[Any]:
        """Batches with ``n_id``, ``x``, ``y`` and ``batch_size``."""

    def counts(self) -> dict[str, Any]:
        """Counts of the last epoch's reads."""
        return {}

    def facts(self) -> dict[str, Any]:
        """Settings that the contestant chose itself, for the report."""
        return {}


class Stock(Contestant):
    """PyG's own loader: features over ``np.memmap``, topology in RAM."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        import torch_geometric.loader
        from torch_sparse import SparseTensor

        files = StoreFiles(Path(task.store))
        indptr, indices = files.contents.csc(None)
        # An adjacency in the order that PyG samples by: from edge_index it would be sorted anew,
        # which takes more memory than the limit allows.
        n = files.num_nodes
        adj_t = SparseTensor(
            rowptr=indptr.clone(),
            col=indices.to(torch.int64),  # the sampler knows no others
            sparse_sizes=(n, n),
            is_sorted=True,
            trust_data=True,
        )
        x = torch.from_numpy(files.memmap())
        self.loader = torch_geometric.loader.NeighborLoader(
            Data(x=x, y=files.y.clone(), adj_t=adj_t, num_nodes=n),
            num_neighbors=task.fanout,
            batch_size=task.batch_size,
            input_nodes=self.seeds,
            shuffle=True,
            num_workers=task.workers,
        )

    def epoch(self) -> Iterable[Any]:
        """The loader."""
        return self.loader

    def facts(self) -> dict[str, Any]:
        """Versions of packages that may be installed for it alone, and batches of an epoch."""
        found: dict[str, Any] = {name: version(name) for name in ("torch_sparse", "pyg_lib")}
        return found | {"epoch_batches": len(self.loader)}


class Ours(Contestant):
    """This package's loader, with the budget that the task names or the one it finds itself."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        row_cache = "auto" if task.options.get("order", "auto") == "auto" else False
        self.store = open_store(task.store, memory=task.budget, row_cache=row_cache)
        self.loader = NeighborLoader(
            self.store.data(),
            num_neighbors=task.fanout,
            batch_size=task.batch_size,
            input_nodes=self.seeds,
            shuffle=True,
            num_workers=task.workers,
            edge_ids=False,  # not looked at here
            first_aggregation=task.options.get("first_aggregation"),
        )

    def epoch(self) -> Iterable[Any]:
        """The loader."""
        return self.loader

    def counts(self) -> dict[str, Any]:
        """All of ``loader.stats()``, and what the budget went to."""
        stats, plan = self.loader.stats(), self.store.memory_plan
        found = {} if stats is None else stats.to_dict()
        return found if plan is None else found | {"memory_plan": dict(plan.parts)}


class Peer(Contestant):
    """Our sampler and another way to get rows: a thread samples ahead, another gets rows ahead."""

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
    """Yields the items; a thread makes the next two while one is used."""
    rest: Iterator[T | None] = iter(items)
    for item in made_ahead(lambda _: next(rest, None), count(), threads=1):
        if item is None:
            return
        yield item


class TunedMemmap(Peer):
    """Stock PyG's memory map, read by several threads at once, without read-ahead."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        with open(self.files.x.path, "rb") as file:
            table = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        table.madvise(mmap.MADV_RANDOM)
        size = self.files.num_nodes * self.row_bytes
        rows = torch.frombuffer(table, dtype=torch.uint8, offset=_DATA_OFFSET, count=size)
        self._table = _core.RowTable(rows.view(-1, self.row_bytes))

    def fetch(self, nodes: Tensor, out: Tensor) -> None:
        """Threads copy out of the map; each waits for its own page faults."""
        _core.gather_rows(self._table, nodes, out, self.task.options["threads"])


class GraphBolt(Peer):
    """The scheme of DGL GraphBolt, enacted: a row cache, and a read for every row it lacks.

    SIEVE eviction; reads of at most 4 KiB past the page cache, by io_uring where it can be had.
    Rows that lie next to each other within such a read share it, in the scheme's favour.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        warm([self.files.topology])  # the scheme holds it in RAM
        self._column = _core.ColumnFile.of(self.files.x)
        self._disk = _core.DiskGather("auto", depth=128)
        self._capacity = self._fitting_rows()
        self._cache = SieveCache(self.files.num_nodes, self._capacity, self.row_bytes)
        self._counts = dict.fromkeys(_COUNTS, 0.0)

    def _fitting_rows(self) -> int:
        """Rows that the limit leaves room for."""
        given = self.task.options.get("cache_bytes")
        if given is not None:
            return int(given) // self.row_bytes
        assert self.task.limit is not None
        # A batch, to see how large they are.
        _, out = next(self._sample())
        batch = len(out.node) * self.row_bytes + len(out.row) * 24
        taken = memory(os.getpid())["own"] + self.files.topology.stat().st_size
        taken += 4 * self.files.num_nodes + _BATCHES_UNDER_WAY * batch + (64 << 20)
        return max(0, self.task.limit - taken) // (self.row_bytes + 24)

    def fetch(self, nodes: Tensor, out: Tensor) -> None:
        """Rows from the cache, the others from the disk and then into the cache."""
        missed = self._cache.query(nodes, out)
        start = time.perf_counter()
        found = self._disk.gather(
            self._column, [nodes[missed]], [out], [missed], merge_gap=0, max_read=_PAGE
        )
        took = time.perf_counter() - start
        self._cache.insert(nodes, missed, out)
        values = [len(nodes), len(nodes) - len(missed), found.reads, found.bytes]
        for name, value in zip(_COUNTS, [*values, found.useful_bytes, took], strict=True):
            self._counts[name] += value

    def epoch(self) -> Iterable[Any]:
        """Sets the counts to zero, then samples and fetches ahead."""
        self._counts = dict.fromkeys(_COUNTS, 0.0)
        return super().epoch()

    def counts(self) -> dict[str, Any]:
        """Rows wanted, found and read."""
        return dict(self._counts)

    def facts(self) -> dict[str, Any]:
        """The cache's size and the reader."""
        size = self._capacity * self.row_bytes
        return {"cache_rows": self._capacity, "cache_bytes": size, "reader": self._disk.reader}


CONTESTANTS: dict[str, type[Contestant]] = {
    "stock": Stock,
    "ours": Ours,
    "load": Ours,
    "memmap": TunedMemmap,
    "graphbolt": GraphBolt,
}


def compete_alone(task: Task, tell: Tell, step: Callable[[Any], object]) -> None:
    """Epochs of the contestant that does the task, each batch given to ``step``."""
    start = time.perf_counter()
    contestant = CONTESTANTS[task.do](task)
    took = time.perf_counter() - start
    tell({"event": "ready", "seconds": took, "facts": contestant.facts()})
    deliver(task, tell, contestant.epoch, step, contestant.counts)
