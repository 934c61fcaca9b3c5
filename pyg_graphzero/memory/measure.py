"""Which rows are sampled how often: some batches of a loader, topology only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.memory.plan import BatchSize
from pyg_graphzero.memory.source import BatchSource

#: An epoch's beginning is delayed by no more than this many seconds, and one batch.
SECONDS = 3.0
_MOST_BATCHES = 512
# So few tell how large batches are.
_FEW_BATCHES = 4
# Where a batch sampler of the user's decides.
_BATCH_SIZE = 1024
# Batches differ by a few percent.
_SLACK = 1.15
# edge_index and slot, and what they take while they wait, if ids fit 32 bits.
_EDGE_BYTES = 24
_PACKED = 0.5


@dataclass
class Accesses:
    """How often nodes were in a batch.

    Attributes:
        counts: ``int16 [num_nodes]`` by node type, 32,767 at most.
        num_batches: How many batches were sampled.
        nodes: Of the largest batch, by node type.
        edges: Of the largest batch, all edge types together.
    """

    counts: dict[str | None, Tensor]
    num_batches: int = 0
    nodes: dict[str | None, int] = field(default_factory=dict)
    edges: int = 0

    @classmethod
    def none(cls, node_types: Mapping[str | None, int]) -> Accesses:
        """Of no batch yet; ``node_types``: how many nodes there are of each."""
        return cls({name: torch.zeros(n, dtype=torch.int16) for name, n in node_types.items()})

    def count(self, lists: Sequence[Tensor]) -> None:
        """Adds a batch: its nodes, ``int64 [any]`` for each node type in turn."""
        for (name, counts), nodes in zip(self.counts.items(), lists, strict=True):
            counts[nodes] = (counts[nodes] + 1).clamp_(max=torch.iinfo(torch.int16).max - 1)
            self.nodes[name] = max(self.nodes.get(name, 0), nodes.numel())
        self.num_batches += 1

    def most_used(self, node_type: str | None, count: int, group_bits: int = 0) -> Tensor:
        """The ``count`` nodes sampled most often, fewer if fewer were (``int64``, ascending).

        With ``group_bits``, groups of ``2**group_bits`` nodes that follow each other.
        """
        counts = self.counts[node_type]
        if group_bits > 0:
            whole = -len(counts) % (1 << group_bits)
            groups = torch.nn.functional.pad(counts, (0, whole)).view(-1, 1 << group_bits)
            counts = groups.sum(1)
        return top_rows(counts, count)

    def batch_size(self, row_bytes: Mapping[str | None, int]) -> BatchSize:
        """What the largest batch takes, with some slack; ``row_bytes``: of a node's attributes."""
        sampled = 8 * sum(self.nodes.values()) + _EDGE_BYTES * self.edges
        whole = sampled + sum(row_bytes[name] * count for name, count in self.nodes.items())
        return BatchSize(
            int(_SLACK * _PACKED * sampled), int(_SLACK * whole), sum(self.nodes.values())
        )


def top_rows(counts: Tensor, count: int) -> Tensor:
    """The ``count`` rows of the highest counts, fewer if fewer have any (``int64``, ascending)."""
    seen = int((counts > 0).sum())
    if seen <= count:
        return counts.nonzero().view(-1)
    # The level above which all are taken, and of which some are; no sort of all nodes.
    per_level = torch.bincount(counts[counts > 0].to(torch.int64))
    from_top = per_level.flip(0).cumsum(0)
    level = len(per_level) - 1 - int(torch.searchsorted(from_top, count, right=True))
    above = (counts > level).nonzero().view(-1)
    some = (counts == level).nonzero().view(-1)[: count - len(above)]
    return torch.cat([above, some]).sort().values


def measure(loader: BatchSource, seconds: float = SECONDS, most: int | None = None) -> Accesses:
    """Samples batches around random seeds of the loader, as it would, and counts nodes.

    torch's generator is left as it is.

    Args:
        loader: Whose seeds and sampler are used.
        seconds: When to stop, after one batch at least.
        most: Batches to sample; None: as many as an epoch has, within reason.
    """
    found = Accesses.none(loader.graph_sampler.graph.node_types)
    for batch in _batches(loader, seconds, most or _MOST_BATCHES):
        found.count(batch.nodes)
        found.edges = max(found.edges, batch.num_edges)
    return found


def measure_size(loader: BatchSource, row_bytes: Mapping[str | None, int]) -> BatchSize:
    """How large batches of the loader are, by a few; no node is counted.

    ``row_bytes`` are those of a node's attributes.
    """
    found = Accesses({})
    for batch in _batches(loader, SECONDS, _FEW_BATCHES):
        for name, nodes in zip(loader.graph_sampler.graph.node_types, batch.nodes, strict=True):
            found.nodes[name] = max(found.nodes.get(name, 0), nodes.numel())
        found.edges = max(found.edges, batch.num_edges)
    return found.batch_size(row_bytes)


def larger(a: BatchSize, b: BatchSize) -> BatchSize:
    """One that is as large as both in every respect."""
    return BatchSize(max(a.sampled, b.sampled), max(a.whole, b.whole), max(a.nodes, b.nodes))


def _batches(loader: BatchSource, seconds: float, most: int) -> Iterator[_core.Batch]:
    """Batches around random seeds, always the same ones; one at least if there are seeds."""
    sampler: Any = loader.graph_sampler
    num_seeds = len(loader.dataset)
    if num_seeds == 0:
        return
    size = min(num_seeds, getattr(loader, "batch_size", None) or _BATCH_SIZE)
    epoch = -(-num_seeds // size)
    generator = torch.Generator().manual_seed(0)
    recipe = sampler.recipe()
    begun = perf_counter()
    for key in range(min(epoch, most)):
        positions = torch.randint(num_seeds, (size,), generator=generator)
        prepared = loader.trial(positions, key)
        yield recipe.make(prepared.seeds, key, sampler.num_threads)
        if perf_counter() - begun > seconds:
            return
