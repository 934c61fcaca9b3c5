"""The model that training is measured with: GraphSAGE, one layer per hop."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch_geometric.data import HeteroData
from torch_geometric.nn import GraphSAGE, to_hetero

_HIDDEN_CHANNELS = 128


class Trainer:
    """Trains GraphSAGE (Hamilton et al. 2017) with Adam, batch by batch.

    Args:
        data: The graph; only its types are looked at.
        node_type: Type of the seed nodes.
        num_layers: Layers.
        num_classes: Classes of the seed nodes.
    """

    def __init__(self, data: Any, node_type: str | None, num_layers: int, num_classes: int) -> None:
        self._node_type = node_type
        hetero = isinstance(data, HeteroData)
        model: torch.nn.Module = GraphSAGE(
            (-1, -1) if hetero else -1, _HIDDEN_CHANNELS, num_layers, num_classes
        )
        self._model = to_hetero(model, data.metadata()) if hetero else model
        self._optimizer: torch.optim.Optimizer | None = None

    def step(self, batch: Any) -> None:
        """Forward, backward, update."""
        if self._optimizer is None:
            with torch.no_grad():  # sizes the lazy layers
                self._forward(batch)
            self._optimizer = torch.optim.Adam(self._model.parameters(), lr=0.003)
        self._optimizer.zero_grad()
        seeds = batch if self._node_type is None else batch[self._node_type]
        size = seeds.batch_size
        out = self._forward(batch)[:size]
        F.cross_entropy(out, seeds.y[:size].view(-1).long()).backward()
        self._optimizer.step()

    def _forward(self, batch: Any) -> torch.Tensor:
        if self._node_type is None:
            return self._model(batch.x.float(), batch.edge_index)
        x = {name: value.float() for name, value in batch.x_dict.items()}
        return self._model(x, batch.edge_index_dict)[self._node_type]
