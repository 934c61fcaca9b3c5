"""Edges of a store as seeds: looked up batch by batch, all in the order of the input or some."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import EdgeSamplerInput

from pyg_graphzero.errors import MemoryBudgetError
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.budget import how_many
from pyg_graphzero.sampling.neighbor import NeighborSampler
from pyg_graphzero.store.columns import engine_array, gather, look_up
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.system import private_rss


def _check_room(contents: StoreContents, name: EdgeType | None) -> None:
    """Refuses to hold the slot of every edge where these take most of what the budget has left.

    Raises:
        MemoryBudgetError: There is no room for them.
    """
    num_edges = contents.edge_type(name).num_edges
    each, room = 4 if num_edges <= 1 << 31 else 8, contents.memory - private_rss()
    most = how_many(room, costs.SLOTS_SHARE, each, least=costs.LEAST_SLOTS)
    if num_edges > most:
        raise MemoryBudgetError(
            f"memory: found {each * most / 1e6:,.0f} MB for the order of {num_edges:,} seed edges "
            f"of {contents.path}, expected {each * num_edges / 1e6:,.0f} MB: in the order of the "
            "input a batch takes any of them; SamplingOptions(seed_order='store') needs nothing"
        )


@dataclass(eq=False)
class StoredEdges:
    """Edges of one type as seeds. Stands in for PyG's ``EdgeSamplerInput`` without its rows.

    Attributes:
        sampler: Over the store.
        input_type: The edge type.
        label: One for each edge, in the order of the input; or None.
        time: One for each edge, in the order of the input; or None.
        input_id: One for each edge, in the order of the input; None: the edges' own numbers.
        order: Which edge has position i: ``"input"``: edge i, if edges have ids; ``"store"``: the
            one in CSC slot i, so that neighbouring positions have the same destination.
        mask: ``bool [num_edges]`` by CSC slot: the edges that are seeds, in the order of the slots;
            None: all.
        chosen: Slots of these.
    """

    sampler: NeighborSampler
    input_type: EdgeType | None
    label: Tensor | None
    time: Tensor | None
    input_id: Tensor | None
    order: str
    mask: InitVar[Tensor | None] = None
    chosen: Tensor | None = field(default=None, init=False)
    _indices: Tensor | None = field(default=None, init=False)

    def __post_init__(self, mask: Tensor | None) -> None:
        graph, name = self.sampler.graph, self.input_type
        given = {"edge_label": self.label, "edge_label_time": self.time, "input_id": self.input_id}
        for what in (what for what, values in given.items() if values is not None):
            graph.need_edge_ids(name, f"{what} of all edges")
        if mask is not None:
            self.order, chosen = "store", mask.nonzero().view(-1)
            self.chosen = chosen.to(torch.int32) if mask.numel() <= 1 << 31 else chosen
        if self.order == "input" and graph.ids(name) is not None:
            _check_room(graph.store, name)
            graph.store.edge_position(name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_indices": None}

    def __len__(self) -> int:
        of_all = self.sampler.graph.topology(self.input_type).num_edges
        return of_all if self.chosen is None else self.chosen.numel()

    def __getitem__(self, index: Tensor) -> EdgeSamplerInput:
        if self.chosen is not None:
            return self.in_slots(self.chosen[index].to(torch.int64))
        if self.order == "store":
            return self.in_slots(index)
        slots = self.sampler.graph.store.edge_position(self.input_type)
        return self._of(index, index if slots is None else look_up(slots, index))

    def in_slots(self, slots: Tensor) -> EdgeSamplerInput:
        """The edges in some CSC slots, which nothing has to be looked up for."""
        return self._of(self.sampler.original_edge_ids(self.input_type, slots), slots)

    def _of(self, edge_id: Tensor, slots: Tensor) -> EdgeSamplerInput:
        contents = self.sampler.graph.store
        if self._indices is None:
            self._indices = contents.csc(self.input_type)[1]
        src = gather(self._indices, slots).to(torch.int64)
        dst = contents.topology(self.input_type).destinations(engine_array(slots.contiguous()))
        return EdgeSamplerInput(
            edge_id if self.input_id is None else self.input_id[edge_id],
            contents.checked_sources(self.input_type, src),
            dst,
            None if self.label is None else self.label[edge_id],
            None if self.time is None else self.time[edge_id],
            self.input_type,
        )
