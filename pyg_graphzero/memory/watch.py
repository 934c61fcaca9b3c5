"""How an epoch's batches use rows, noted as they are delivered.

Where neighbours are read from disk, sampling more batches than training asks for would cost as much
as training. Training's own batches tell as much by the end of an epoch.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.memory.profile import AccessCounts, Profile
from pyg_graphzero.memory.ranking import RankedRows, hot_in
from pyg_graphzero.memory.simulate import Case
from pyg_graphzero.memory.source import BatchSource

# One batch in _KEPT_OF is kept to simulate with; the others are counted.
_KEPT_OF = 8


class Watch:
    """Counts the batches of one loader, as many as an epoch has, and lists rows as they are met.

    Args:
        loader: The loader.
        keep_bytes: Bytes of batches that are kept, and not counted.
        keeps_edges: Keep slots of edges of these batches, too.

    Attributes:
        done: Set when an epoch's batches were seen, or watching was ended.
    """

    def __init__(self, loader: BatchSource, keep_bytes: int, keeps_edges: bool) -> None:
        graph = loader.graph_sampler.graph
        self._num_slots = len(graph.edge_types) if keeps_edges else 0
        self.done = threading.Event()
        self._loader = weakref.ref(loader)
        self._keep_bytes = keep_bytes
        self._kept: list[list[Tensor]] = []
        self._epoch, self._seen = loader.epoch_length(), 0
        self._accesses = AccessCounts.of(graph, torch.int16)
        self._ranked = {name: RankedRows(num) for name, num in graph.node_types.items()}

    def is_of(self, loader: BatchSource) -> bool:
        """Whether it is a loader's, or has seen all that it is to see."""
        return self.done.is_set() or loader is self._loader()

    def add(self, loader: BatchSource, batch: _core.Batch) -> None:
        """Notes a batch that a loader delivers.

        Args:
            loader: Loader that delivered it; others are ignored.
            batch: Its rows are noted.
        """
        if self.done.is_set() or loader is not self._loader():
            return
        self._seen += 1
        lists = [*batch.nodes, *batch.slots[: self._num_slots]]
        num_bytes = sum(rows.nbytes for rows in lists)
        if self._seen % _KEPT_OF == 1 and num_bytes <= self._keep_bytes:
            self._keep_bytes -= num_bytes
            self._kept.append([rows.clone() for rows in lists])
        else:
            self._accesses.add(batch)
            for rows, nodes in zip(self._ranked.values(), batch.nodes, strict=True):
                rows.add(nodes)
        if self._seen >= self._epoch:
            self.done.set()

    def profile(self) -> Profile:
        """The batches that were noted."""
        return Profile(self._epoch, self._accesses, self._kept)

    def end(self) -> None:
        """Notes nothing more, and forgets what it has noted."""
        self.done.set()
        self._kept, self._ranked = [], {}
        self._accesses = AccessCounts({})

    def count(self, case: Case, seconds: float) -> tuple[AccessCounts, int]:
        """See :class:`~pyg_graphzero.memory.own_order.Ranking`; it is known already."""
        return self._accesses, hot_in(1.0)

    def rank(self, counted: AccessCounts) -> Mapping[str | None, RankedRows]:
        """See :class:`~pyg_graphzero.memory.own_order.Ranking`."""
        for name, rows in self._ranked.items():
            rows.rank(counted.counts[name], hot_in(1.0))
        return self._ranked
