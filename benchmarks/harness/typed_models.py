"""Models of typed nodes and edges, as PyG's examples have them, for a training step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from torch import nn
from torch_geometric.nn import GraphSAGE, HeteroConv, HGTConv, RGCNConv, SAGEConv, to_hetero
from torch_geometric.utils import trim_to_layer

NUM_RELATIONS = 5


class Layers(nn.Module):
    """Convolutions with ReLU between them.

    Args:
        convs: In order.
    """

    def __init__(self, convs: Iterable[nn.Module]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(
        self,
        x: Any,
        edges: Any,
        relations: Any = None,
        num_sampled_nodes_per_hop: Any = None,
        num_sampled_edges_per_hop: Any = None,
    ) -> Any:
        """Rows of the last layer; trimmed by PyG's means where numbers by hop are given."""
        sampled = num_sampled_nodes_per_hop, num_sampled_edges_per_hop
        for number, conv in enumerate(self.convs):
            if number and isinstance(x, dict):
                x = {name: rows.relu() for name, rows in x.items()}
            elif number:
                x = x.relu()
            if sampled[0] is not None:
                x, edges, relations = trim_to_layer(number, *sampled, x, edges, relations)
            x = conv(x, edges) if relations is None else conv(x, edges, relations)
        return x


def _hetero_sage(widths: list[int], metadata: Any, heads: int) -> nn.Module:
    return Layers(
        HeteroConv({name: SAGEConv((ins, ins), outs) for name in metadata[1]})
        for ins, outs in pairwise(widths)
    )


def _to_hetero(widths: list[int], metadata: Any, heads: int) -> nn.Module:
    first, hidden, *_, last = widths
    return to_hetero(GraphSAGE((first, first), hidden, len(widths) - 1, last), metadata)


def _hgt(widths: list[int], metadata: Any, heads: int) -> nn.Module:
    return Layers(HGTConv(ins, outs, metadata, heads) for ins, outs in pairwise(widths))


def _rgcn(widths: list[int], metadata: Any, heads: int) -> nn.Module:
    return Layers(RGCNConv(ins, outs, NUM_RELATIONS) for ins, outs in pairwise(widths))


#: Models of typed nodes.
TYPED = ("HeteroConv", "to_hetero", "HGT")
#: Models of one node type, whose edges have a relation each.
BY_RELATION = ("RGCN",)
#: Given the widths of all layers, the types of a batch, and how many heads of attention.
LAYERS: dict[str, Callable[[list[int], Any, int], nn.Module]] = {
    "HeteroConv": _hetero_sage,
    "to_hetero": _to_hetero,
    "HGT": _hgt,
    "RGCN": _rgcn,
}
