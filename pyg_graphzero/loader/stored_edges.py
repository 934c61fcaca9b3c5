"""Edges of a store as seeds: looked up batch by batch, all in the order of the input or some."""

from __future__ import annotations

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


class _EdgeSlots:
    """The CSC slots of edge ids: all of them in memory, or block by block as batches ask.

    A block costs one pass over the ids. Where ids rise from batch to batch, each block is needed
    once.

    Args:
        contents: The store.
        name: The edge type.
        in_order: Ids rise from batch to batch.

    Raises:
        MemoryBudgetError: All of them are needed, and the budget has no room for them.
    """

    def __init__(self, contents: StoreContents, name: EdgeType | None, in_order: bool) -> None:
        self.contents = contents
        self.name = name
        self.num_edges = contents.edge_type(name).num_edges
        self._block: tuple[int, Tensor]  # first id, slots
        self._whole: Tensor | None = None
        each = 4 if self.num_edges <= 1 << 31 else 8
        share = costs.SLOTS_BLOCK_SHARE if in_order else costs.SLOTS_SHARE
        room = contents.memory - private_rss()
        self._block_size = how_many(room, share, each, least=costs.LEAST_SLOTS)
        if self.num_edges <= self._block_size:
            self._whole = contents.edge_position(name)
        elif not in_order:
            raise MemoryBudgetError(
                f"memory: found {each * self._block_size / 1e6:,.0f} MB for the order of "
                f"{self.num_edges:,} seed edges of {contents.path}, expected "
                f"{each * self.num_edges / 1e6:,.0f} MB: in the order of the input, and in "
                "no order, each batch takes any of them; SamplingOptions(seed_order='store') "
                "needs nothing, nor do seeds that are not shuffled"
            )
        else:
            self._begin(0)  # now, so that it counts as taken when the budget is divided

    def _begin(self, first: int) -> tuple[int, Tensor]:
        """Makes the block of an id the one that is in memory."""
        self._block = -1, torch.empty(0, dtype=torch.int64)  # never two at a time
        end = min(first + self._block_size, self.num_edges)
        block = first, self.contents.edge_slots(self.name, first, max(first, end))
        self._block = block
        return block

    def __call__(self, ids: Tensor) -> Tensor:
        """The slots (``int64``) of some edge ids."""
        if self._whole is not None:
            return look_up(self._whole, ids)
        slots = torch.empty_like(ids)
        numbers = ids // self._block_size
        for number in numbers.unique().tolist():
            first, block = self._block
            if first != number * self._block_size:
                first, block = self._begin(number * self._block_size)
            chosen = numbers == number
            slots[chosen] = gather(block, ids[chosen] - first).to(torch.int64)
        return slots


class StoredEdges:
    """Edges of one type as seeds. Stands in for PyG's ``EdgeSamplerInput`` without its rows.

    Args:
        sampler: Over the store.
        name: The edge type.
        label: One for each edge, in the order of the input; or None.
        time: One for each edge, in the order of the input; or None.
        input_id: One for each edge, in the order of the input; None: the edges' own numbers.
        order: Which edge has position i: ``"input"``: edge i, if edges have ids; ``"store"``: the
            one in CSC slot i, so that neighbouring positions have the same destination.
        in_order: Positions rise from batch to batch.
        mask: ``bool [num_edges]`` by CSC slot: the edges that are seeds, in the order of the slots;
            None: all.
    """

    def __init__(
        self,
        sampler: NeighborSampler,
        name: EdgeType | None,
        label: Tensor | None,
        time: Tensor | None,
        input_id: Tensor | None,
        order: str,
        in_order: bool,
        mask: Tensor | None = None,
    ) -> None:
        self.sampler = sampler
        self.input_type = name
        self.label = label
        self.time = time
        self.input_id = input_id
        self.order = order
        self.in_order = in_order
        self.chosen: Tensor | None = None  # slots
        if mask is not None:
            self.order, chosen = "store", mask.nonzero().view(-1)
            self.chosen = chosen.to(torch.int32) if mask.numel() <= 1 << 31 else chosen
        self._open()

    def _open(self) -> None:
        graph = self.sampler.graph
        assert graph.contents is not None
        given = {"edge_label": self.label, "edge_label_time": self.time, "input_id": self.input_id}
        for what, values in given.items():
            if values is not None:
                graph.need_edge_ids(self.input_type, f"{what} of all edges")
        self.indices = graph.csc(self.input_type)[1]
        self._slots: _EdgeSlots | None = None  # slots are the positions
        if self.order == "input" and graph.edge_ids.get(self.input_type) is not None:
            self._slots = _EdgeSlots(graph.contents, self.input_type, self.in_order)

    def __getstate__(self) -> dict[str, Any]:
        held = ("indices", "_slots")
        return {k: v for k, v in self.__dict__.items() if k not in held}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __len__(self) -> int:
        return self.indices.numel() if self.chosen is None else self.chosen.numel()

    def __getitem__(self, index: Tensor) -> EdgeSamplerInput:
        if self.chosen is not None:
            return self.in_slots(self.chosen[index].to(torch.int64))
        if self.order == "store":
            return self.in_slots(index)
        return self._of(index, index if self._slots is None else self._slots(index))

    def in_slots(self, slots: Tensor) -> EdgeSamplerInput:
        """The edges in some CSC slots, which nothing has to be looked up for."""
        return self._of(self.sampler.original_edge_ids(self.input_type, slots), slots)

    def _of(self, edge_id: Tensor, slots: Tensor) -> EdgeSamplerInput:
        contents = self.sampler.graph.contents
        assert contents is not None
        topology = contents.topology(self.input_type)
        src = gather(self.indices, slots).to(torch.int64)
        dst = topology.destinations(engine_array(slots.contiguous()))
        return EdgeSamplerInput(
            edge_id if self.input_id is None else self.input_id[edge_id],
            contents.checked_sources(self.input_type, src),
            dst,
            None if self.label is None else self.label[edge_id],
            None if self.time is None else self.time[edge_id],
            self.input_type,
        )
