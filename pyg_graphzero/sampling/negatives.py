"""Negative edges that are not edges of the graph. PyG's may be."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.sampler import NegativeSampling

from pyg_graphzero.sampling.graph import SampledGraph
from pyg_graphzero.store.columns import gather
from pyg_graphzero.store.schema import EdgeType

# A node that this many draws found no partner for is taken to have none.
_ROUNDS = 100


class KeyedNegatives(NegativeSampling):
    """PyG's ``NegativeSampling`` for one batch, drawn from the batch's key.

    PyG draws from torch's generator. All threads share that one: seeding it here would change the
    draws of a training step. A subclass's own ``sample()`` is called, and draws from torch's.

    Args:
        base: How many to draw, and with which weights.
        key: Seed of the draws.
    """

    def __init__(self, base: NegativeSampling, key: int) -> None:
        super().__init__(base.mode, base.amount, base.src_weight, base.dst_weight)
        self.base = base
        self._generator = torch.Generator().manual_seed(key)

    def sample(self, num_samples: int, endpoint: str, num_nodes: int | None = None) -> Tensor:
        """Draws one end of the negatives.

        Args:
            num_samples: How many nodes.
            endpoint: ``"src"`` or ``"dst"``.
            num_nodes: How many there are to draw from.

        Returns:
            ``int64 [num_samples]``.

        Raises:
            ValueError: There are no weights and no ``num_nodes``, or they do not agree.
        """
        weight = self.src_weight if endpoint == "src" else self.dst_weight
        if type(self.base).sample is NegativeSampling.sample:
            own = self._generator
            if weight is not None and num_nodes in (None, weight.numel()):
                return torch.multinomial(weight, num_samples, replacement=True, generator=own)
            if weight is None and num_nodes is not None:
                return torch.randint(num_nodes, (num_samples,), generator=own)
        return self.base.sample(num_samples, endpoint, num_nodes)


def are_edges(graph: SampledGraph, name: EdgeType | None, src: Tensor, dst: Tensor) -> Tensor:
    """Which pairs are edges, in time proportional to the degrees of ``dst``.

    Args:
        graph: The graph, walked forward.
        name: The edge type.
        src: ``int64 [n]``.
        dst: Likewise.

    Returns:
        ``bool [n]``.
    """
    indices = graph.csc(name)[1]
    first, degree = graph.neighborhoods(name, dst)
    pair = torch.repeat_interleave(torch.arange(dst.numel()), degree)
    slots = torch.arange(pair.numel()) - (degree.cumsum(0) - degree)[pair] + first[pair]
    hits = gather(indices, slots).to(torch.int64) == src[pair]
    found = torch.zeros(dst.numel(), dtype=torch.bool)
    found[pair[hits]] = True
    return found


class NonEdgeSampling(KeyedNegatives):
    """Negatives of one batch, whose destinations are drawn again where they hit an edge.

    Args:
        base: How many to draw, and with which weights.
        key: Seed of the draws.
        graph: The graph, walked forward.
        name: The edge type.
        src: Sources of the batch's positive edges, ``int64 [n]``.
        disjoint: How PyG lays out triplets: negative j belongs to positive j mod n if disjoint,
            else to positive j div amount.

    Raises:
        ValueError: The graph has no such edge type.
    """

    def __init__(
        self,
        base: NegativeSampling,
        key: int,
        graph: SampledGraph,
        name: EdgeType | None,
        src: Tensor,
        disjoint: bool,
    ) -> None:
        super().__init__(base, key)
        if name not in graph.edge_types:
            raise ValueError(
                f"exclude_edges: found edge type {name}, expected one of {graph.edge_types}: of "
                "another it is not known which pairs are edges"
            )
        self.graph = graph
        self.name = name
        if self.is_triplet():
            amount = int(self.amount)
            src = src.repeat(amount) if disjoint else src.repeat_interleave(amount)
        self.src = src

    def sample(self, num_samples: int, endpoint: str, num_nodes: int | None = None) -> Tensor:
        """Draws one end of the negatives; PyG asks for sources first.

        Raises:
            ValueError: A source has an edge to every destination that can be drawn.
        """
        drawn = super().sample(num_samples, endpoint, num_nodes)
        if endpoint == "src":
            self.src = drawn
            return drawn
        todo = torch.arange(num_samples)
        for _ in range(_ROUNDS):
            todo = todo[are_edges(self.graph, self.name, self.src[todo], drawn[todo])]
            if todo.numel() == 0:
                return drawn
            drawn[todo] = super().sample(todo.numel(), endpoint, num_nodes)
        raise ValueError(
            f"negatives: found none for source node {int(self.src[todo[0]])} in {_ROUNDS} draws: "
            "it has edges to (nearly) all destinations; use negatives that may be edges"
        )
