"""Training that is measured: a model in three ways, and the GraphSAGE of the benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.nn import GraphSAGE, to_hetero

from pyg_graphzero.nn import accelerate

#: Computed as PyG has it; trimmed by PyG's own means (``trim_to_layer``); by ``nn.accelerate``.
MODELS = ("stock", "trimmed", "accelerated")
_HIDDEN_CHANNELS = 128


def graph_sage(
    data: Any,
    num_layers: int,
    num_classes: int,
    hidden_channels: int = _HIDDEN_CHANNELS,
    in_channels: int = -1,
) -> torch.nn.Module:
    """GraphSAGE (Hamilton et al. 2017) for a graph.

    Args:
        data: The graph; only its types are looked at.
        num_layers: Layers.
        num_classes: Classes of the seed nodes.
        hidden_channels: Width of the layers between.
        in_channels: Width of the features; -1: that of the first batch's, which has those of all
            nodes.
    """
    if not isinstance(data, HeteroData):
        return GraphSAGE(in_channels, hidden_channels, num_layers, num_classes)
    model = GraphSAGE((in_channels, in_channels), hidden_channels, num_layers, num_classes)
    return to_hetero(model, data.metadata())


class Trainer:
    """Trains a model with Adam, batch by batch.

    Args:
        model: The model; its layers have their sizes after the first step.
        way: One of ``MODELS``: the same result, with less and less memory and time. The last two
            need batches that count their nodes and edges by hop.
        node_type: Type of the seed nodes.
        names: Attributes of a batch that the model takes.
        autocast: Entered for each forward pass.

    Attributes:
        model: The model.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        way: str = "stock",
        node_type: str | None = None,
        names: Sequence[str] = ("x", "edge_index"),
        autocast: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.model = accelerate(model) if way == "accelerated" else model
        self._is_trimmed = way == "trimmed"
        self._node_type = node_type
        self._names = names
        self._autocast = nullcontext() if autocast is None else autocast
        self._optimizer: torch.optim.Optimizer | None = None

    def step(self, batch: Any) -> Tensor:
        """Forward, backward, update; returns the loss, a number in a tensor."""
        if self._optimizer is None:
            with torch.no_grad():  # sizes the lazy layers
                self.forward(batch)
            self._optimizer = torch.optim.Adam(self.model.parameters(), lr=0.003)
        self._optimizer.zero_grad()
        seeds = batch if self._node_type is None else batch[self._node_type]
        size = seeds.batch_size
        with self._autocast:
            loss = F.cross_entropy(self.forward(batch)[:size], seeds.y[:size].view(-1).long())
        loss.backward()
        self._optimizer.step()
        return loss.detach()

    def forward(self, batch: Any) -> Tensor:
        """Logits of the nodes of a batch, of those of the seeds' type."""
        of_types = "" if self._node_type is None else "_dict"
        x, *others = (getattr(batch, name + of_types) for name in self._names)
        hops = {
            f"num_sampled_{kind}_per_hop": getattr(batch, f"num_sampled_{kind}{of_types}")
            for kind in ("nodes", "edges")
            if self._is_trimmed
        }
        if self._node_type is None:
            return self.model(x.float(), *others, **hops)
        x = {name: rows.float() for name, rows in x.items()}
        return self.model(x, *others, **hops)[self._node_type]
