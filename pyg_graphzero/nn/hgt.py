"""PyG's ``HGTConv`` over a block (Hu et al. 2020, "Heterogeneous Graph Transformer").

PyG multiplies keys and values of all sources with the matrices of a relation. Here queries and sums
of values are multiplied with these matrices instead: there are fewer of them. Where it takes less
work, the weights that make keys and values of the sources' rows are applied to queries and sums
too: then neither keys, nor values, nor gradients of them are made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import HeteroDictLinear
from torch_geometric.nn.dense import HeteroLinear

from pyg_graphzero.nn import kinds
from pyg_graphzero.nn.block import Block
from pyg_graphzero.nn.layers import spread, sums_first
from pyg_graphzero.nn.ops import neighbor_dot, neighbor_softmax, neighbor_sum
from pyg_graphzero.store.schema import EdgeType


class _Made(NamedTuple):
    """Keys and values of all nodes of a type, ``[num_src, heads, width]``."""

    keys: Tensor
    values: Tensor

    def scores(self, query: Sequence[Tensor], matrix: Tensor, block: Block) -> Tensor:
        """Scores of edges: products of query and key, ``[num_edges, heads]``.

        Args:
            query: Queries of the destinations, by head, ``[num_dst, width]``.
            matrix: Matrices of the relation for keys, ``[heads, width, width]``.
            block: Edges of the relation.
        """
        asked = torch.stack(_products(query, matrix), 1)
        return neighbor_dot(asked, self.keys, block.src, block.bounds)

    def heard(self, shares: Tensor, matrix: Tensor, block: Block) -> list[Tensor]:
        """Sums of values for each destination, by head, ``[num_dst, width]``.

        Args:
            shares: Weight of each edge in the sum, ``[num_edges, heads]``.
            matrix: Matrices of the relation for values, ``[heads, width, width]``.
            block: Edges of the relation.
        """
        sums = neighbor_sum(self.values, block.src, block.bounds, shares)
        return _products(sums.unbind(1), matrix.mT)


class _Unmade(NamedTuple):
    """Rows of a type, with the weights and biases that would make keys and values of them.

    Attributes:
        rows: Rows of the nodes, ``[num_src, columns]``.
        to_keys: Weights of keys, ``[heads, width, columns]``.
        to_values: Weights of values, ``[heads, width, columns]``.
        more_keys: Biases of keys, ``[heads, 1, width]``.
        more_values: Biases of values, ``[heads, 1, width]``.
    """

    rows: Tensor
    to_keys: Tensor
    to_values: Tensor
    more_keys: Tensor
    more_values: Tensor

    def scores(self, query: Sequence[Tensor], matrix: Tensor, block: Block) -> Tensor:
        """Computes :meth:`_Made.scores` without keys."""
        made = torch.stack(
            [
                neighbor_dot(asked.to(self.rows.dtype), self.rows, block.src, block.bounds)
                for asked in _products(query, self.to_keys.mT @ matrix)
            ],
            dim=1,
        )
        more = _products(query, self.more_keys @ matrix)
        return made + spread(torch.cat(more, 1), block.bounds, len(made))

    def heard(self, shares: Tensor, matrix: Tensor, block: Block) -> list[Tensor]:
        """Computes :meth:`_Made.heard` without values."""
        sums = [
            neighbor_sum(self.rows, block.src, block.bounds, share) for share in shares.unbind(1)
        ]
        made = _products(sums, matrix.mT @ self.to_values)
        edges = torch.arange(len(shares), device=shares.device)
        total = neighbor_sum(shares, edges, block.bounds).to(made[0].dtype)
        more = (self.more_values @ matrix).squeeze(1)
        parts = zip(made, total.unbind(1), more.unbind(), strict=True)
        return [rows.addr_(weight, row) for rows, weight, row in parts]


def _products(rows: Iterable[Tensor], weight: Tensor) -> list[Tensor]:
    """Rows of each head, ``[num_rows, ins]``, times its matrix in ``[heads, outs, ins]``."""
    return [F.linear(each, part) for each, part in zip(rows, weight, strict=True)]


def are_products(conv: Any) -> bool:
    """Whether the linear layers of a convolution multiply with their weights and do no more."""
    return (
        kinds.is_own(conv.kqv_lin, HeteroDictLinear)
        and kinds.is_own(conv.out_lin, HeteroDictLinear)
        and all(map(kinds.is_product, conv.kqv_lin.lins.values()))
        and all(
            kinds.is_own(lin, HeteroLinear) and lin.bias is None for lin in (conv.k_rel, conv.v_rel)
        )
    )


def hgt(conv: Any, x: dict[str, Tensor], blocks: dict[EdgeType, Block]) -> dict[str, Tensor]:
    """Rows of the destinations by node type.

    Args:
        conv: The convolution.
        x: Rows of all nodes that it looks at, by node type.
        blocks: Block of each edge type.
    """
    num_dst = {name[2]: block.num_dst for name, block in blocks.items()}
    sources = {
        name: _sources(conv, name, x[name], [b for edge, b in blocks.items() if edge[0] == name])
        for name in {name[0] for name in blocks}
    }
    out = {}
    for name, rows in x.items():
        if name not in conv.dst_node_types:
            continue
        own = {edge: block for edge, block in blocks.items() if edge[2] == name}
        rows = rows[: num_dst.get(name, 0)]
        sums = rows.new_zeros(len(rows), conv.out_channels)
        if own:
            sums = _attention(conv, _part(conv, name, rows, 1).unbind(1), sources, own)
        made = conv.out_lin.lins[name](F.gelu(sums))
        if made.size(-1) == rows.size(-1):
            share = conv.skip[name].sigmoid()
            made = share * made + (1 - share) * rows
        out[name] = made
    return out


def _sources(conv: Any, name: str, rows: Tensor, blocks: list[Block]) -> _Made | _Unmade:
    """Keys and values of nodes of one type, or the rows and weights that stand for these.

    Args:
        conv: The convolution.
        name: The node type.
        rows: Rows of these nodes, ``[num_src, columns]``.
        blocks: Blocks of the relations that lead from them.
    """
    size, heads = conv.out_channels, conv.heads
    lin = conv.kqv_lin.lins[name]
    if lin.bias is None or not sums_first(rows, blocks, size, heads):
        return _Made(_part(conv, name, rows, 0), _part(conv, name, rows, 2))
    to_keys, _, to_values = lin.weight.view(3, heads, size // heads, -1)
    more_keys, _, more_values = lin.bias.view(3, heads, 1, size // heads)
    return _Unmade(rows, to_keys, to_values, more_keys, more_values)


def _part(conv: Any, name: str, rows: Tensor, number: int) -> Tensor:
    """Keys (0), queries (1) or values (2) of nodes of one type: ``[num_nodes, heads, width]``."""
    lin = conv.kqv_lin.lins[name]
    part = slice(number * conv.out_channels, (number + 1) * conv.out_channels)
    made = F.linear(rows, lin.weight[part], None if lin.bias is None else lin.bias[part])
    return made.view(len(rows), conv.heads, conv.out_channels // conv.heads)


def _attention(
    conv: Any,
    query: Sequence[Tensor],
    sources: dict[str, _Made | _Unmade],
    blocks: dict[EdgeType, Block],
) -> Tensor:
    """Attention of nodes of one type, ``[num_dst, out_channels]``: a softmax over all relations."""
    scores = []
    for name, block in blocks.items():
        prior = conv.p_rel["__".join(name)] / math.sqrt(query[0].size(-1))
        matrix = _relation(conv.k_rel, conv, name)
        scores.append(sources[name[0]].scores(query, matrix, block) * prior)
    order, bounds = _merged([block.bounds for block in blocks.values()])
    merged = neighbor_softmax(torch.cat(scores)[order], bounds)
    merged = torch.zeros_like(merged).index_copy(0, order, merged)
    shares = merged.split([len(each) for each in scores])
    heard = (
        sources[name[0]].heard(share, _relation(conv.v_rel, conv, name), block)
        for (name, block), share in zip(blocks.items(), shares, strict=True)
    )
    return torch.cat(reduce(_added, heard), 1)


def _added(first: list[Tensor], second: list[Tensor]) -> list[Tensor]:
    """Adds two lists of rows by head, in the memory of the first."""
    return [one.add_(other) for one, other in zip(first, second, strict=True)]


def _relation(lin: Any, conv: Any, name: EdgeType) -> Tensor:
    """A relation's matrices, ``[heads, width, width]``."""
    weight: Tensor = lin.weight[conv.edge_types_map[name] :: len(conv.edge_types)]
    return weight


def _merged(all_bounds: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Merges edges of several types to the same destinations into one list by destination.

    Args:
        all_bounds: Bounds of each type, ``[num_dst + 1]``.

    Returns:
        The edges of all types, one type after another, in the order of the list; and its bounds.
    """
    bounds = torch.stack(all_bounds)
    nodes = torch.arange(bounds.size(1) - 1, device=bounds.device).repeat(len(bounds))
    return nodes.repeat_interleave(bounds.diff().view(-1)).argsort(stable=True), bounds.sum(0)
