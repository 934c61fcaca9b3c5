"""Negatives of seed edges: drawn from the batch's key, none later than its positive."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling

from pyg_graphzero.errors import FormatError
from pyg_graphzero.sampling.graph import SampledGraph
from pyg_graphzero.sampling.windows import check_of_seeds
from pyg_graphzero.store.columns import gather
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.arguments import of_type

# Draws again as often as this before all nodes that there were by a seed's time are listed for it.
_ROUNDS = 100

# (positions of negatives, the nodes drawn for them) -> which of these are to be drawn again
Refused = Callable[[Tensor, Tensor], Tensor]


def are_edges(graph: SampledGraph, name: EdgeType | None, src: Tensor, dst: Tensor) -> Tensor:
    """Which pairs are edges, in time proportional to the degrees of ``dst``.

    Args:
        graph: The graph, walked forward.
        name: The edge type.
        src: ``int64 [n]``.
        dst: ``int64 [n]``.

    Returns:
        ``bool [n]``.

    Raises:
        FormatError: Neighbourhoods of the store are not among the edges.
    """
    indptr, indices = graph.csc(name)
    first, last = gather(indptr, dst), gather(indptr, dst + 1)
    bad = (first < 0) | (last < first) | (last > indices.numel())
    if bad.any():
        where, found = f"indptr[{int(dst[bad][0])}]", "a range outside the edges"
        expected = f"numbers that rise from 0 to {indices.numel()}"
        raise FormatError.of(graph.topology(name).path, where, found, expected)
    degree = last - first
    pair = torch.repeat_interleave(torch.arange(dst.numel()), degree)
    slots = torch.arange(pair.numel()) - (degree.cumsum(0) - degree)[pair] + first[pair]
    hits = gather(indices, slots).to(torch.int64) == src[pair]
    are = torch.zeros(dst.numel(), dtype=torch.bool)
    are[pair[hits]] = True
    return are


@dataclass
class Negatives:
    """Draws the negatives of one batch.

    PyG's ``NegativeSampling`` draws from torch's generator. All threads share that one: seeding it
    here would change the draws of a training step. A subclass's own ``sample()`` is called, and
    draws from torch's.

    Attributes:
        base: How many to draw, and with which weights.
        key: Seed of the draws.
        graph: The graph.
        name: The seeds' edge type.
        exclude_edges: No negative is an edge of the graph, which is walked forward.

    Raises:
        ValueError: The graph has no such edge type.
    """

    base: NegativeSampling
    key: int
    graph: SampledGraph
    name: EdgeType | None
    exclude_edges: bool

    def __post_init__(self) -> None:
        if self.exclude_edges and self.name not in self.graph.edge_types:
            raise ValueError(
                f"exclude_edges: found edge type {self.name}, expected one of "
                f"{self.graph.edge_types}: of another it is not known which pairs are edges"
            )
        self.is_triplet = bool(self.base.is_triplet())
        self._generator = torch.Generator().manual_seed(self.key)
        self._is_plain = type(self.base).sample is NegativeSampling.sample

    def draw(
        self, inputs: EdgeSamplerInput, disjoint: bool, times: Tensor | None
    ) -> tuple[Tensor | None, Tensor]:
        """Sources and destinations of the negatives.

        Args:
            inputs: The positive edges.
            disjoint: How triplets are laid out: negative j is of positive j mod n if disjoint, else
                of positive j div amount.
            times: Comparable time of each positive edge. Where nodes have times, negative j is
                there by that of positive j mod n.

        Returns:
            ``int64 [num_negatives]`` each; None for the sources of triplets.

        Raises:
            ValueError: There is no node to draw, by the time of a seed or that is no neighbour.
        """
        count = math.ceil(inputs.row.numel() * self.base.amount)
        src_type, dst_type = (None, None) if self.name is None else (self.name[0], self.name[2])
        if self.is_triplet:
            amount = int(self.base.amount)
            src = inputs.row.repeat(amount) if disjoint else inputs.row.repeat_interleave(amount)
        else:
            src = self._end("src", src_type, count, times, None)
        dst = self._end("dst", dst_type, count, times, src if self.exclude_edges else None)
        return None if self.is_triplet else src, dst

    def _end(
        self, end: str, node_type: str | None, count: int, times: Tensor | None, src: Tensor | None
    ) -> Tensor:
        """One end of the negatives; where sources are given, none is an edge from these."""
        own_times, latest = self.graph.node_times.get(node_type), None
        if own_times is not None and times is not None:
            latest = times.repeat(math.ceil(count / max(times.numel(), 1)))[:count]
        num_nodes = self.graph.node_types[node_type]

        def refused(at: Tensor, nodes: Tensor) -> Tensor:
            found = torch.zeros(nodes.numel(), dtype=torch.bool)
            if latest is not None and own_times is not None:
                found |= gather(own_times, nodes) > latest[at]
            if src is not None:
                found |= are_edges(self.graph, self.name, src[at], nodes)
            return found

        drawn, todo = self._sample(count, end, num_nodes), torch.arange(count)
        for _ in range(_ROUNDS):
            todo = todo[refused(todo, drawn[todo])]
            if todo.numel() == 0:
                return drawn
            drawn[todo] = self._sample(todo.numel(), end, num_nodes)
        for at in todo.split(1):  # hardly any node is there by then, or is no neighbour
            there = None
            if latest is not None and own_times is not None:
                there = (own_times <= latest[at]).nonzero().view(-1)
            few = self._sample(_ROUNDS, end, num_nodes, there)
            good = few[~refused(at.expand(few.numel()), few)]
            if good.numel() == 0:
                seed = f"seed edge {int(at)}" if src is None else f"source node {int(src[at])}"
                count = num_nodes if there is None else len(there)
                raise ValueError(
                    f"negatives: found none for {seed} of the batch in {_ROUNDS} draws of {count} "
                    f"nodes{of_type(node_type)} that are there by its time, expected one; use "
                    "negatives that may be edges, or later times"
                )
            drawn[at] = good[0]
        return drawn

    def _sample(self, count: int, end: str, num_nodes: int, among: Tensor | None = None) -> Tensor:
        """Nodes, of all or of some, drawn as the user says."""
        weight = self.base.src_weight if end == "src" else self.base.dst_weight
        own = self._generator
        if not self._is_plain:
            return self.base.sample(count, end, num_nodes)
        check_of_seeds(num_nodes, "nodes", **{f"{end}_weight": weight})
        if among is not None and among.numel() == 0:
            return among
        if weight is not None:
            weight = weight if among is None else weight[among]
            if among is not None and not bool(weight.sum() > 0):
                return among[:0]
            drawn = torch.multinomial(weight, count, replacement=True, generator=own)
        else:
            size = num_nodes if among is None else among.numel()
            drawn = torch.randint(size, (count,), generator=own)
        return drawn if among is None else among[drawn]
