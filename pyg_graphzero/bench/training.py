"""The model that training is measured with: GraphSAGE, a layer per hop, computed in three ways."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch_geometric.data import HeteroData
from torch_geometric.nn import GraphSAGE, to_hetero

from pyg_graphzero.nn import accelerate

#: Computed as PyG has it; trimmed by PyG's own means (``trim_to_layer``); by ``nn.accelerate``.
MODELS = ("stock", "trimmed", "accelerated")
_HIDDEN_CHANNELS = 128


class Trainer:
    """Trains GraphSAGE (Hamilton et al. 2017) with Adam, batch by batch.

    Args:
        data: The graph; only its types are looked at.
        node_type: Type of the seed nodes.
        num_layers: Layers.
        num_classes: Classes of the seed nodes.
        model: One of ``MODELS``: the same result, with less and less memory and time. The last
            two need batches that count their nodes and edges by hop.
        hidden_channels: Width of the layers between.
        in_channels: Width of the features; -1: that of the first batch's, which has those of all
            nodes.
        dropout: Share of what these pass on that is left out in training.

    Attributes:
        model: The model; its layers have their sizes after the first step.
    """

    def __init__(
        self,
        data: Any,
        node_type: str | None,
        num_layers: int,
        num_classes: int,
        model: str = "stock",
        hidden_channels: int = _HIDDEN_CHANNELS,
        in_channels: int = -1,
        dropout: float = 0.0,
    ) -> None:
        self._node_type = node_type
        hetero = isinstance(data, HeteroData)
        self._is_trimmed = model == "trimmed"
        self.model: torch.nn.Module = GraphSAGE(
            (in_channels, in_channels) if hetero else in_channels,
            hidden_channels,
            num_layers,
            num_classes,
            dropout=dropout,
        )
        if hetero:
            self.model = to_hetero(self.model, data.metadata())
        if model == "accelerated":
            accelerate(self.model)
        self._optimizer: torch.optim.Optimizer | None = None

    def step(self, batch: Any) -> float:
        """Forward, backward, update; returns the loss."""
        if self._optimizer is None:
            with torch.no_grad():  # sizes the lazy layers
                self._forward(batch)
            self._optimizer = torch.optim.Adam(self.model.parameters(), lr=0.003)
        self._optimizer.zero_grad()
        seeds = batch if self._node_type is None else batch[self._node_type]
        size = seeds.batch_size
        out = self._forward(batch)[:size]
        loss = F.cross_entropy(out, seeds.y[:size].view(-1).long())
        loss.backward()
        self._optimizer.step()
        return loss.item()

    def _forward(self, batch: Any) -> torch.Tensor:
        if self._is_trimmed:
            return self.model(
                batch.x.float(),
                batch.edge_index,
                num_sampled_nodes_per_hop=batch.num_sampled_nodes,
                num_sampled_edges_per_hop=batch.num_sampled_edges,
            )
        if self._node_type is None:
            return self.model(batch.x.float(), batch.edge_index)
        x = {name: value.float() for name, value in batch.x_dict.items()}
        return self.model(x, batch.edge_index_dict)[self._node_type]
