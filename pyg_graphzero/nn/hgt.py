"""PyG's ``HGTConv`` over what a layer needs (Hu et al. 2020, "Heterogeneous Graph Transformer").

What a relation multiplies its sources with, keys and values, is multiplied with queries and sums of
values instead: there are fewer of them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pyg_graphzero.nn.block import Block
from pyg_graphzero.nn.ops import neighbor_dot, neighbor_softmax, neighbor_sum
from pyg_graphzero.store.schema import EdgeType


def hgt(conv: Any, x: dict[str, Tensor], blocks: dict[EdgeType, Block]) -> dict[str, Tensor]:
    """Rows of the destinations by node type.

    Args:
        conv: The convolution.
        x: Rows of all nodes that it looks at, by node type.
        blocks: What it needs of the edges of each type.
    """
    heads, width = conv.heads, conv.out_channels // conv.heads
    num_dst = {name[2]: block.num_dst for name, block in blocks.items()}
    keys: dict[str, Tensor] = {}
    values: dict[str, Tensor] = {}
    for name in {name[0] for name in blocks}:
        lin = conv.kqv_lin.lins[name]
        size = conv.out_channels
        keys[name] = _part(lin, x[name], 0, size).view(-1, heads, width)
        values[name] = _part(lin, x[name], 2 * size, size).view(-1, heads, width)
    out = {}
    for name, rows in x.items():
        if name not in conv.dst_node_types:
            continue
        own = {edge: block for edge, block in blocks.items() if edge[2] == name}
        count = num_dst.get(name, 0)
        sums = rows.new_zeros(count, conv.out_channels)
        if own:
            query = _part(conv.kqv_lin.lins[name], rows[:count], conv.out_channels,
                          conv.out_channels).view(-1, heads, width)  # fmt: skip
            sums = _attention(conv, query, keys, values, own).flatten(1)
        made = conv.out_lin.lins[name](F.gelu(sums))
        if made.size(-1) == rows.size(-1):
            share = conv.skip[name].sigmoid()
            made = share * made + (1 - share) * rows[:count]
        out[name] = made
    return out


def _part(lin: Any, rows: Tensor, first: int, size: int) -> Tensor:
    """Some columns of a product."""
    bias = None if lin.bias is None else lin.bias[first : first + size]
    return F.linear(rows, lin.weight[first : first + size], bias)


def _attention(
    conv: Any,
    query: Tensor,
    keys: dict[str, Tensor],
    values: dict[str, Tensor],
    blocks: dict[EdgeType, Block],
) -> Tensor:
    """What nodes of one type hear of, ``[num_dst, heads, width]``; all relations share it out."""
    _heads, width = query.shape[1:]
    scores = []
    for name, block in blocks.items():
        asked = torch.einsum("nhd,hed->nhe", query, _relation(conv.k_rel, conv, name))
        prior = conv.p_rel["__".join(name)] / math.sqrt(width)
        scores.append(neighbor_dot(asked, keys[name[0]], block.src, block.bounds) * prior)
    places, bounds = _merged([block.bounds for block in blocks.values()])
    merged = torch.cat(scores)
    merged = torch.zeros_like(merged).index_copy(0, places, merged)
    shares = neighbor_softmax(merged, bounds)[places].split([len(each) for each in scores])
    out = torch.zeros_like(query)
    for (name, block), share in zip(blocks.items(), shares, strict=True):
        heard = neighbor_sum(values[name[0]], block.src, block.bounds, share)
        out = out + torch.einsum("nhd,hde->nhe", heard, _relation(conv.v_rel, conv, name))
    return out


def _relation(lin: Any, conv: Any, name: EdgeType) -> Tensor:
    """A relation's matrices, ``[heads, width, width]``."""
    weight: Tensor = lin.weight[conv.edge_types_map[name] :: len(conv.edge_types)]
    return weight


def _merged(all_bounds: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Edges of several types to the same destinations as one list by destination.

    Args:
        all_bounds: Of each type.

    Returns:
        The place of each edge, type by type, and the bounds of the list.
    """
    places = []
    for number, bounds in enumerate(all_bounds):
        before = sum(
            (other[1:] if place < number else other[:-1])
            for place, other in enumerate(all_bounds)
            if place != number
        )
        own = torch.arange(int(bounds[-1]), device=bounds.device)
        if isinstance(before, Tensor):
            own = own + before.repeat_interleave(bounds.diff(), output_size=len(own))
        places.append(own)
    total = all_bounds[0].clone()
    for bounds in all_bounds[1:]:
        total = total + bounds
    return torch.cat(places), total
