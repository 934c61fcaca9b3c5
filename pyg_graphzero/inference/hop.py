"""One batch as a layer sees it: some destinations, and everything one hop away from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from pyg_graphzero.sampling.hops import known_no_hops
from pyg_graphzero.store.schema import EdgeType

# Of a hop that layers are tried on: two destinations, and one more node.
_TRIED_NODES = 3
_TRIED_EDGES = ((1, 2, 0), (0, 0, 1))


@dataclass(frozen=True)
class Inputs:
    """Which attributes of a store a layer gets.

    Attributes:
        attr: Of nodes: the rows that go in.
        edge_weight: Of edges: passed as ``edge_weight``; None: nothing is.
        edge_attr: Likewise, as ``edge_attr``.
    """

    attr: str
    edge_weight: str | None = None
    edge_attr: str | None = None

    @property
    def of_edges(self) -> list[str]:
        """The edge attributes."""
        return [name for name in (self.edge_weight, self.edge_attr) if name is not None]


def is_grouped(dst: Tensor) -> bool:
    """Whether edges to ``dst`` come by ascending destination, as a ``SweepLoader`` gives them."""
    return bool((dst[1:] >= dst[:-1]).all())


@dataclass
class Hop:
    """Destinations of one node type, and their neighbours.

    Attributes:
        node_type: Of the destinations; None in a homogeneous graph.
        num_dst: How many there are. Among the nodes of their type they come first.
        first_row: The first one's row in the store; the others follow it.
        x: What goes in, ``[num_nodes, ...]`` by node type.
        edge_index: ``int64 [2, num_edges]`` by edge type, all in-edges of the destinations.
        edge_weight: By edge type, where there are any.
        edge_attr: Likewise.
        rows: Where the nodes lie in the store, ``int64 [num_nodes]`` by node type, on the CPU.
        earlier: What earlier layers made of the destinations, where the last layer wants it.
    """

    node_type: str | None
    num_dst: int
    first_row: int
    x: dict[str | None, Tensor]
    edge_index: dict[EdgeType | None, Tensor]
    edge_weight: dict[EdgeType | None, Tensor] = field(default_factory=dict)
    edge_attr: dict[EdgeType | None, Tensor] = field(default_factory=dict)
    rows: dict[str | None, Tensor] = field(default_factory=dict)
    earlier: Sequence[Tensor] = ()

    @classmethod
    def of(cls, batch: Any, node_type: str | None, inputs: Inputs, device: torch.device) -> Hop:
        """A batch of a ``SweepLoader``, its tensors on ``device``."""
        if isinstance(batch, HeteroData):
            nodes: dict[Any, Any] = {name: batch[name] for name in batch.node_types}
            edges: dict[Any, Any] = {name: batch[name] for name in batch.edge_types}
        else:
            nodes = {None: batch}
            edges = {None: batch} if "edge_index" in batch else {}

        def found(stores: dict[Any, Any], attr: str | None) -> dict[Any, Tensor]:
            return {
                name: known_no_hops(store[attr]).to(device, non_blocking=True)
                for name, store in stores.items()
                if attr is not None and attr in store
            }

        hop = cls(
            node_type,
            batch.batch_size,
            batch.first_row,
            found(nodes, inputs.attr),
            found(edges, "edge_index"),
            found(edges, inputs.edge_weight),
            found(edges, inputs.edge_attr),
            {name: store.n_id for name, store in nodes.items()},
        )
        if not edges and node_type is None:
            hop.edge_index[None] = torch.empty(2, 0, dtype=torch.int64, device=device)
        return hop

    @classmethod
    def tried(
        cls,
        node_type: str | None,
        x: dict[str | None, tuple[torch.Size, torch.dtype]],
        edge_types: Sequence[EdgeType | None],
        edge_values: dict[str, dict[EdgeType | None, tuple[torch.Size, torch.dtype]]],
        device: torch.device,
    ) -> Hop:
        """A hop of no store, to see what a layer does.

        Args:
            node_type: Of the destinations.
            x: Shape and dtype of a row, by node type.
            edge_types: That end in ``node_type``.
            edge_values: Shape of a row and dtype of ``"edge_weight"`` and ``"edge_attr"``.
            device: Where.
        """
        edges = torch.tensor(_TRIED_EDGES, device=device)

        def ones(count: int, row: tuple[torch.Size, torch.dtype]) -> Tensor:
            return torch.ones((count, *row[0]), dtype=row[1], device=device)

        def of(name: str) -> dict[EdgeType | None, Tensor]:
            return {key: ones(3, row) for key, row in edge_values.get(name, {}).items()}

        return cls(
            node_type,
            _TRIED_NODES - 1,
            0,
            # Zeros: rows may be numbers of categories, of which there is one at least.
            {name: ones(_TRIED_NODES, row).zero_() for name, row in x.items()},
            {name: edges.clone() for name in edge_types},
            of("edge_weight"),
            of("edge_attr"),
            {name: torch.zeros(_TRIED_NODES, dtype=torch.int64) for name in x},
        )
