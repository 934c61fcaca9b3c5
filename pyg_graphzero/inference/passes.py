"""One layer over all nodes of a type: rows in the order in which they lie on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.inference.hop import Hop, Inputs
from pyg_graphzero.inference.normalize import Normalization
from pyg_graphzero.inference.rows import RowFile
from pyg_graphzero.inference.stack import Layer
from pyg_graphzero.inference.sweep import SweepLoader, sweep_bounds
from pyg_graphzero.loader.stats import LoaderStats
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.budget import how_many
from pyg_graphzero.pyg.data import contents_of, edge_storages, node_storages
from pyg_graphzero.pyg.lazy import raw_items
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeType

_CPU = torch.device("cpu")


def only(data: Any, inputs: Inputs, node_type: str | None, names: Sequence[EdgeType | None]) -> Any:
    """``store.data()`` with what one layer needs for one node type, and nothing else.

    Args:
        data: Is changed.
        inputs: The attributes.
        node_type: Of the destinations.
        names: The edge types.
    """
    nodes, edges = node_storages(data), edge_storages(data)
    for name, store in nodes.items():
        kept = {"num_nodes", "edge_index", inputs.attr}
        kept |= set(inputs.of_edges) if name is None else set()
        for key, _ in raw_items(store):
            if key not in kept:
                del store[key]
    if node_type is None:
        return data
    for edge_type, store in edges.items():
        if edge_type not in names:
            del data[edge_type]
            continue
        for key, _ in raw_items(store):
            if key != "edge_index" and key not in inputs.of_edges:
                del store[key]
    ends = {node_type, *(name[0] for name in names if name is not None)}
    for name in nodes:
        if name not in ends:
            del data[name]
    for key in list(data._global_store.keys()):
        del data._global_store[key]
    return data


def batch_edges(memory: int, row_bytes: int) -> int:
    """How many edges a batch has where the user does not say: fewer in a small budget."""
    bounds = costs.LEAST_LAYER_EDGES, costs.MAX_LAYER_EDGES
    return how_many(memory, costs.LAYER_SHARE, row_bytes + costs.LAYER_EDGE, *bounds)


@dataclass(frozen=True)
class Task:
    """One layer over the rows of one node type: what a pass is about, however it reads.

    Attributes:
        layer: What to compute.
        inputs: Which attributes go in.
        normalization: Is told of the batch under way.
        device: Where the layer runs.
        earlier: Columns whose rows of the destinations the layer wants.
    """

    layer: Layer
    inputs: Inputs
    normalization: Normalization | None = None
    device: torch.device = _CPU
    earlier: Sequence[str] = ()

    def earlier_rows(self, contents: StoreContents, node_type: str | None) -> list[RowFile]:
        """Of the ``earlier`` columns."""
        return [RowFile(contents, node_type, attr) for attr in self.earlier]

    def compute(self, hop: Hop) -> Tensor:
        """What the layer makes of a batch; on the CPU."""
        if self.normalization is not None:
            self.normalization.hop = hop
        out = self.layer(hop)
        if self.normalization is not None:
            self.normalization.hop = None  # or it kept what is in there
        assert out is not None, "it gave rows when it was tried"
        return out.cpu()


class LayerPass:
    """A layer over the rows of one node type, by batches of them and their neighbours.

    Args:
        task: What to compute.
        data: ``store.data()``; is cut down to what the layer needs.
        node_type: The type of those rows.
        names: The edge types that end there and are to be used.
        max_edges: Bounds a batch.
        num_workers: Threads of the engine that work ahead.

    Attributes:
        loader: What makes the batches.
        peak_memory: 0: whoever takes the batches sees what was taken for them.
    """

    peak_memory = 0

    def __init__(
        self,
        task: Task,
        data: Any,
        node_type: str | None,
        names: Sequence[EdgeType | None],
        *,
        max_edges: int,
        num_workers: int = 0,
    ) -> None:
        contents = contents_of(data)
        assert contents is not None
        only(data, task.inputs, node_type, names)
        self.task = task
        self.node_type = node_type
        self._earlier = task.earlier_rows(contents, node_type)
        bounds = sweep_bounds(data, node_type, max_edges)
        self.loader = SweepLoader(data, node_type, bounds, num_workers)

    def stats(self) -> LoaderStats:
        """What was read until now, and who waited for whom."""
        return self.loader.stats()

    @torch.no_grad()
    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        """The first row of each batch, and what the layer makes of it; on the CPU."""
        for batch in self.loader:
            hop = Hop.of(batch, self.node_type, self.task.inputs, self.task.device)
            hop.earlier = [
                rows.read(hop.first_row, hop.num_dst).to(self.task.device) for rows in self._earlier
            ]
            yield hop.first_row, self.task.compute(hop)
