"""The model that training is measured with: GraphSAGE, one layer per hop."""

from __future__ import annotations

from collections.abc import Iterable
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
        trim: A layer leaves out nodes and edges that no seed hears of any more (PyG's
            ``trim_to_layer``): the same result, with less memory and time. One node type only.
        hidden_channels: Width of the layers between.
        dropout: Share of what these pass on that is left out in training.

    Attributes:
        model: What is trained; its layers have their sizes after the first step.

    Raises:
        ValueError: ``trim`` with several types of nodes.
    """

    def __init__(
        self,
        data: Any,
        node_type: str | None,
        num_layers: int,
        num_classes: int,
        trim: bool = False,
        hidden_channels: int = _HIDDEN_CHANNELS,
        dropout: float = 0.0,
    ) -> None:
        self._node_type = node_type
        self._trim = trim
        hetero = isinstance(data, HeteroData)
        if trim and hetero:
            raise ValueError("trim: found HeteroData, expected Data")
        model: torch.nn.Module = GraphSAGE(
            (-1, -1) if hetero else -1, hidden_channels, num_layers, num_classes, dropout=dropout
        )
        self.model = to_hetero(model, data.metadata()) if hetero else model
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

    @torch.no_grad()
    def accuracy(self, batches: Iterable[Any]) -> float:
        """Share of the seeds of some batches whose class is found."""
        right = total = 0
        self.model.eval()
        for batch in batches:
            seeds = batch if self._node_type is None else batch[self._node_type]
            found = self._forward(batch)[: seeds.batch_size].argmax(-1)
            right += int((found == seeds.y[: seeds.batch_size].view(-1)).sum())
            total += seeds.batch_size
        self.model.train()
        return right / max(1, total)

    def _forward(self, batch: Any) -> torch.Tensor:
        if self._trim:
            return self.model(
                batch.x.float(),
                batch.edge_index,
                num_sampled_nodes_per_hop=batch.num_sampled_nodes,
                num_sampled_edges_per_hop=batch.num_sampled_edges,
            )[: batch.batch_size]
        if self._node_type is None:
            return self.model(batch.x.float(), batch.edge_index)
        x = {name: value.float() for name, value in batch.x_dict.items()}
        return self.model(x, batch.edge_index_dict)[self._node_type]
