"""``BatchSource``: a loader, as the modules that manage memory see it."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, Protocol

from torch import Tensor

from pyg_graphzero.sampling.base import Prepared


class BatchSource(Protocol):
    """A loader, as far as memory is concerned.

    Attributes:
        data: The graph.
        dataset: Its seeds.
        edge_ids: Batches have the ids of their edges.
        maps_topology: Neighbours are taken from front to back through a map; none stay in memory.
        first_aggregation: How features are added up while they are gathered; None: they are not.
    """

    data: Any
    dataset: Sized
    edge_ids: bool
    maps_topology: bool
    first_aggregation: str | None

    @property
    def graph_sampler(self) -> Any:
        """A sampler of this package."""

    def epoch_length(self) -> int:
        """How many batches an epoch has."""

    def seed_rows(self) -> Tensor | None:
        """Node by which seeds are sorted, ``int64 [len(dataset)]``; None: they are sorted."""

    def trial(self, index: Tensor, key: int) -> Prepared:
        """Prepares a sample of as many seeds, no matter which: ``index`` is random."""
