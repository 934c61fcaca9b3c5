"""One layer's share of a batch: some destinations, their in-edges and the nodes these come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils.sparse import index2ptr

from pyg_graphzero.nn.ops import neighbor_sum
from pyg_graphzero.sampling.hops import Hops, SampledEdgeIndex
from pyg_graphzero.sampling.inner_rows import InnerRows


class Edges(NamedTuple):
    """Edges by destination.

    Attributes:
        src: Source of each edge, ``int64 [num_edges]``.
        bounds: In-edges of destination ``d`` are ``bounds[d]`` up to ``bounds[d + 1]``.
    """

    src: Tensor
    bounds: Tensor

    def first(self, num_dst: int) -> Edges:
        """The edges of the first destinations."""
        bounds = self.bounds[: num_dst + 1]
        return Edges(self.src[: int(bounds[-1])], bounds)


class Block:
    """The nodes and edges that a layer needs to make rows of nodes at most ``hop`` hops away.

    Args:
        edges: Edges of the batch, of one type.
        hops: Hops of the batch.
        hop: Largest distance of a destination from the seeds, in hops.

    Attributes:
        num_src: Number of nodes of the source type that the layer looks at: the first ones.
        num_dst: Number of nodes of the destination type that it makes rows of.
        num_edges: Number of edges that lead to these destinations: the first ones.
        num_nodes: Number of nodes of the destination type in the batch.
    """

    def __init__(self, edges: SampledEdgeIndex, hops: Hops, hop: int) -> None:
        name = edges.edge_type
        src, dst = (None, None) if name is None else (name[0], name[2])
        self.edges = edges
        self.num_src = hops.num_nodes(src, hop + 1)
        self.num_dst = hops.num_nodes(dst, hop)
        self.num_edges = hops.num_edges(name, hop + 1)
        self.num_nodes = hops.num_nodes(dst, hops.depth)

    def sources(self, rows: Tensor) -> Tensor:
        """The rows of its sources; ``rows`` itself where the loader added them up."""
        if isinstance(rows, InnerRows):
            return rows
        return rows.narrow(0, 0, self.num_src) if len(rows) > self.num_src else rows

    def destinations(self, rows: Tensor) -> Tensor:
        """The rows of its destinations."""
        rows = rows.rows if isinstance(rows, InnerRows) else rows
        return rows.narrow(0, 0, self.num_dst) if len(rows) > self.num_dst else rows

    def both(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of its sources, to be summed and nothing else, and those of its destinations.

        Both are rows of one tensor, so that their gradients are added in the memory of the first.
        """
        found: tuple[Tensor, Tensor] = _Both.apply(self.sources(rows), self.num_dst)
        return found

    def sum(self, rows: Tensor, weight: Tensor | None = None, *, mean: bool) -> Tensor:
        """Sums, or means, of the rows of each destination's sources."""
        if isinstance(rows, InnerRows):
            return rows.sums[self.edges.edge_type].narrow(0, 0, self.num_dst)
        return neighbor_sum(rows, self.src, self.bounds, weight, mean=mean)

    def edge_index(self) -> Tensor:
        """Its edges, ``[2, num_edges]``."""
        return self.edges.plain()[:, : self.num_edges]

    @property
    def src(self) -> Tensor:
        """Source of each edge, ``int64 [num_edges]``."""
        return self.edges.plain()[0, : self.num_edges]

    @property
    def bounds(self) -> Tensor:
        """In-edges of destination ``d`` are ``bounds[d]`` up to ``bounds[d + 1]``."""
        bounds: Tensor = made_once(
            self.edges, "bounds", lambda: index2ptr(self.edges.plain()[1], self.num_nodes)
        )
        return bounds[: self.num_dst + 1]

    def with_loops(self) -> Edges:
        """Its edges with a loop at every destination, the last of its in-edges, and no others.

        Sources and destinations are of one type.
        """

        def make() -> Edges:
            src, dst = with_loops(self.edges.plain(), self.num_nodes)[0]
            return Edges(src, index2ptr(dst, self.num_nodes))

        found: Edges = made_once(self.edges, "loops", make)
        return found.first(self.num_dst)


class _Both(torch.autograd.Function):
    """A tensor and its first rows. A slice's own gradient would be as large as the tensor."""

    @staticmethod
    def forward(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
        return rows.view_as(rows), rows.narrow(0, 0, count)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Any) -> None:
        ctx.count = inputs[1]

    @staticmethod
    def backward(ctx: Any, summed: Tensor, first: Tensor) -> tuple[Tensor, None]:
        if torch.is_grad_enabled():  # this gradient has a gradient too
            return torch.cat((summed[: ctx.count] + first, summed[ctx.count :])), None
        # Nothing else refers to the gradient of a sum, so it may be written to.
        summed[: ctx.count] += first
        return summed, None


def with_loops(edge_index: Tensor, num_dst: int) -> tuple[Tensor, Tensor, Tensor]:
    """Edges with a loop at every destination, the last of its in-edges, and no other loops.

    Args:
        edge_index: Edges by ascending destination, ``[2, num_edges]``.
        num_dst: Number of destinations, which come first among the sources.

    Returns:
        The edges; which of those given are among them; the places of these, and then of the loops.
    """
    kept = (edge_index[0] != edge_index[1]).nonzero().view(-1)
    edges, nodes = edge_index[:, kept], torch.arange(num_dst, device=edge_index.device)
    before = torch.arange(len(kept), device=edge_index.device)
    places = torch.cat((before + edges[1], index2ptr(edges[1], num_dst)[1:] + nodes))
    found = torch.cat((edges, nodes.expand(2, -1)), 1)
    return torch.empty_like(found).scatter_(1, places.expand(2, -1), found), kept, places


def made_once(edges: SampledEdgeIndex, key: Any, make: Callable[[], Any]) -> Any:
    """Result computed from a batch's edges once, however many layers ask for it."""
    found = edges.made.get(key)
    if found is None:
        with torch.inference_mode(False), torch.no_grad():  # a batch may be trained on next
            found = edges.made[key] = make()
    return found
