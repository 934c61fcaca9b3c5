"""PyG's convolutions over a block, without a message for each edge.

Each function gives the rows that the convolution of its name gives for the same nodes, with
gradients. Where a convolution multiplies all rows by a matrix and then sums them up, sums may come
first: there are fewer sums than rows.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.typing
from torch import Tensor
from torch_geometric.nn import (
    GATConv,
    GATv2Conv,
    GCN2Conv,
    GCNConv,
    GINConv,
    GraphConv,
    LGConv,
    MFConv,
    RGCNConv,
    SAGEConv,
    SimpleConv,
    TransformerConv,
)
from torch_geometric.nn.resolver import aggregation_resolver
from torch_geometric.utils.sparse import index2ptr

from pyg_graphzero.nn import kinds
from pyg_graphzero.nn.block import Block, Edges, made_once
from pyg_graphzero.nn.degrees import Rule
from pyg_graphzero.nn.ops import (
    dropout,
    neighbor_dot,
    neighbor_max,
    neighbor_min,
    neighbor_score,
    neighbor_softmax,
    neighbor_sum,
)
from pyg_graphzero.sampling.hops import ALL
from pyg_graphzero.store.columns import writes_to

# Cost of adding up one number, which waits for memory, in multiplications of a matrix product.
_SUM_COST = 16


@dataclass(eq=False)
class Work:
    """One call of a convolution, over a block.

    Attributes:
        conv: The convolution.
        src: Rows of sources.
        dst: Rows of destinations.
        block: The block.
        given: Other arguments of the convolution.
        apart: Whether rows of both were given apart.
    """

    conv: Any
    src: Tensor
    dst: Tensor
    block: Block
    given: dict[str, Any]
    apart: bool

    def __post_init__(self) -> None:
        self.edges = self.block.edge_index()
        #: Whether the convolution makes rows of sources too, which are not needed.
        self.is_square = not self.apart and type(self.conv) not in kinds.BIPARTITE

    def by_pyg(self, **parts: Any) -> Tensor:
        """Rows that the convolution's own ``forward`` computes.

        Args:
            **parts: Attributes in place of the convolution's, such as ``propagate``.
        """
        x = self.src if self.is_square else (self.src, self.dst)
        called = copy.copy(self.conv) if parts else self.conv
        vars(called).update(parts)
        out: Tensor = type(called).forward(called, x=x, edge_index=self.edges, **self.given)
        return out[: self.block.num_dst] if self.is_square else out


@dataclass(frozen=True)
class Layer:
    """How a convolution is computed over a block.

    Attributes:
        what: The way it is computed, in words.
        compute: Function that computes it.
        aggrs: Aggregations that it can take.
        reach: Hops of edges, beyond those of the layer, whose values the function is given.
        only_sums: Whether a convolution sums the rows of sources and uses them for nothing else.
    """

    what: str
    compute: Callable[[Work], Tensor]
    aggrs: tuple[str, ...] = ("add", "sum")
    reach: int = 1
    only_sums: Callable[[Any], bool] = lambda conv: False

    def why_not(self, conv: Any, given: dict[str, Any]) -> str | None:
        """Names the setting or argument of a convolution that cannot be computed so, if any."""
        if given.get("edge_attr") is not None:
            return "edge_attr"
        if conv.aggr not in self.aggrs:
            return f"aggr={conv.aggr!r}"
        if kinds.is_changed(conv):
            return "steps of its own"
        if type(conv.aggr_module) is not type(aggregation_resolver(conv.aggr)):
            return f"aggr_module is a {type(conv.aggr_module).__name__}"
        if conv.node_dim not in (0, -2):
            return f"node_dim={conv.node_dim}"
        is_whole = isinstance(conv, RGCNConv) and conv.num_bases is None and conv.num_blocks is None
        if is_whole and torch_geometric.typing.WITH_SEGMM:
            return "pyg-lib's segment_matmul takes all relations together"
        return None


def _propagated(work: Work) -> Tensor:
    """Runs the convolution's own ``forward``, with sums of the block in place of ``propagate``."""
    conv, block = work.conv, work.block

    def propagate(edge_index: Any, size: Any = None, **values: Any) -> Any:
        x, weight = values["x"], values.get("edge_weight")
        rows = x[0] if isinstance(x, tuple | list) else x
        weight = None if weight is None else weight.reshape(-1)
        if edge_index is work.edges:
            out = block.sum(rows, weight, mean=conv.aggr == "mean")
        elif isinstance(conv, RGCNConv):  # edges of one relation, in their order
            bounds = index2ptr(edge_index[1], block.num_dst)
            out = neighbor_sum(rows, edge_index[0], bounds, weight, mean=conv.aggr == "mean")
        else:  # it has added some
            return conv.propagate(edge_index, size=size, **values)
        return F.pad(out, (0, 0, 0, len(rows) - len(out))) if work.is_square else out

    return work.by_pyg(propagate=propagate)


def sums_first(rows: Tensor, blocks: Sequence[Block], width: int, sums: int = 1) -> bool:
    """Whether sums of rows come before a product of ``width`` columns.

    Args:
        rows: Rows to sum, ``[num_src, columns]``.
        blocks: Blocks whose edges are summed over.
        width: Columns of the product.
        sums: Number of sums for each destination, each with a product of its own.
    """
    columns = rows.size(-1)
    num_dst = sum(block.num_dst for block in blocks)
    num_edges = sum(block.num_edges for block in blocks)
    after = sums * columns * (num_dst * width / sums + _SUM_COST * num_edges)
    before = width * (len(rows) * columns + _SUM_COST * num_edges)
    return after <= before


def _sage(work: Work) -> Tensor:
    conv, src, block = work.conv, work.src, work.block
    if conv.project:
        src = conv.lin(src).relu()
    if conv.aggr in ("max", "min"):
        extreme = neighbor_max if conv.aggr == "max" else neighbor_min
        out = extreme(src, block.src, block.bounds)
    else:
        out = block.sum(src, mean=conv.aggr == "mean")
    out = conv.lin_l(out)
    if conv.root_weight:
        lin, dst = conv.lin_r, work.dst
        are_products = kinds.is_product(conv.lin_l) and kinds.is_product(lin) and lin.bias is None
        if are_products and out.dtype == dst.dtype == lin.weight.dtype:
            out.addmm_(dst, lin.weight.t())  # it is new, and nothing else refers to it
        else:
            out = out + lin(dst)
    return F.normalize(out, p=2.0, dim=-1) if conv.normalize else out


def _gcn(work: Work) -> Tensor:
    conv, src = work.conv, work.src
    edges: Block | Edges = work.block
    weight = work.given.get("edge_weight")
    if conv.normalize:
        edges, weight = _normalized(conv, weight, work.block, src.dtype)
    elif weight is not None:
        weight = weight[: work.block.num_edges]
    is_product = kinds.is_product(conv.lin) and conv.lin.bias is None
    first = is_product and sums_first(src, [work.block], conv.out_channels)
    out = neighbor_sum(src if first else conv.lin(src), edges.src, edges.bounds, weight)
    if first:
        out = conv.lin(out)
    return out if conv.bias is None else out + conv.bias


def _normalized(
    conv: Any, weight: Tensor | None, block: Block, dtype: torch.dtype
) -> tuple[Edges, Tensor]:
    """Edges of a block, with loops if a convolution adds some; their weights, by the batch."""
    rule, count = Rule.of(conv, weight is not None), block.num_nodes

    def make() -> tuple[Edges, Tensor]:
        edge_index = block.edges.plain()
        ones = edge_index.new_ones(edge_index.size(1), dtype=dtype)
        values = ones if weight is None else weight.reshape(-1)
        roots = rule.roots(edge_index[0], edge_index[1], values, count)
        (src, dst), weights = rule.weighted(roots, edge_index, count, values)
        return Edges(src, index2ptr(dst, count)), weights

    if weight is not None and weight.requires_grad:
        edges, weights = make()
    else:
        of = None if weight is None else (id(weight), writes_to(weight))
        made = made_once(block.edges, (rule, dtype, of), lambda: (weight, make()))
        edges, weights = made[1]  # the id() is no other's, as long as the weight is kept
    edges = edges.first(block.num_dst)
    return edges, weights[: len(edges.src)]


def _gat(work: Work) -> Tensor:
    conv, src, dst, block = work.conv, work.src, work.dst, work.block
    heads, width = conv.heads, conv.out_channels
    edges = block.with_loops() if conv.add_self_loops else block
    lin_src = conv.lin if conv.lin is not None else conv.lin_src
    lin_dst = conv.lin if conv.lin is not None else conv.lin_dst
    are_products = all(kinds.is_product(lin) and lin.bias is None for lin in (lin_src, lin_dst))
    first = are_products and sums_first(src, [block], heads * width, heads)
    if first:
        from_src = src @ _folded(lin_src.weight, conv.att_src).t()
    else:
        rows = lin_src(src).view(-1, heads, width)
        from_src = (rows * conv.att_src).sum(-1)
    if are_products:
        from_dst = dst @ _folded(lin_dst.weight, conv.att_dst).t()
    else:
        is_same = lin_dst is lin_src and not work.apart
        own = rows[: block.num_dst] if is_same else lin_dst(dst).view(-1, heads, width)
        from_dst = (own * conv.att_dst).sum(-1)
    scores = from_src[edges.src] + spread(from_dst, edges.bounds, len(edges.src))
    scores = F.leaky_relu(scores, conv.negative_slope)
    share = _shares(conv, scores, edges.bounds)
    if first:
        weights = lin_src.weight.view(heads, width, -1)
        out = torch.stack(
            [
                F.linear(neighbor_sum(src, edges.src, edges.bounds, share[:, head]), weights[head])
                for head in range(heads)
            ],
            dim=1,
        )
    else:
        out = neighbor_sum(rows, edges.src, edges.bounds, share)
    out = out.flatten(1) if conv.concat else out.mean(dim=1)
    if conv.res is not None:
        out = out + conv.res(dst)
    return out if conv.bias is None else out + conv.bias


def _shares(conv: Any, scores: Tensor, bounds: Tensor) -> Tensor:
    """Share of each edge among its destination's in-edges, after dropout."""
    share = neighbor_softmax(scores, bounds)
    return dropout(share, p=conv.dropout, training=conv.training)


def _folded(weight: Tensor, attention: Tensor) -> Tensor:
    """``attention`` times ``weight`` by head, ``[heads, columns]``: maps a row to its scores."""
    heads, width = attention.shape[-2:]
    return torch.einsum("hoi,ho->hi", weight.view(heads, width, -1), attention.view(heads, width))


def spread(rows: Tensor, bounds: Tensor, count: int) -> Tensor:
    """A destination's row for each of its in-edges, ``[num_edges, ...]``."""
    return rows.repeat_interleave(bounds.diff(), dim=0, output_size=count)


def _gatv2(work: Work) -> Tensor:
    conv, block = work.conv, work.block
    edges = block.with_loops() if conv.add_self_loops else block

    def propagate(edge_index: Tensor, x: tuple[Tensor, Tensor], **_: Any) -> Tensor:
        scores = neighbor_score(*x, conv.att, edges.src, edges.bounds, conv.negative_slope)
        return neighbor_sum(x[0], edges.src, edges.bounds, _shares(conv, scores, edges.bounds))

    return work.by_pyg(
        propagate=propagate, edge_updater=lambda *_, **__: None, add_self_loops=False
    )


def _transformer(work: Work) -> Tensor:
    conv, block = work.conv, work.block

    def propagate(edge_index: Tensor, query: Tensor, key: Tensor, value: Tensor, **_: Any) -> Any:
        scores = neighbor_dot(query, key, block.src, block.bounds) / math.sqrt(conv.out_channels)
        return neighbor_sum(value, block.src, block.bounds, _shares(conv, scores, block.bounds))

    return work.by_pyg(propagate=propagate)


#: Way to compute convolutions whose message is the neighbour's row, times a weight if there is one.
propagated = Layer(
    "trimmed; sums of rows",
    _propagated,
    ("add", "sum", "mean"),
    only_sums=lambda conv: type(conv) in (GINConv, GraphConv),
)
#: Way to compute all other convolutions.
messages = Layer("trimmed; a message for each edge", Work.by_pyg)
#: Ways by class; a subclass may have other messages.
LAYERS: dict[type, Layer] = {
    **dict.fromkeys(
        (GCN2Conv, GINConv, GraphConv, LGConv, MFConv, RGCNConv, SimpleConv), propagated
    ),
    SAGEConv: Layer(
        "trimmed; sums of rows",
        _sage,
        ("add", "sum", "mean", "max", "min"),
        only_sums=lambda conv: not conv.project and conv.aggr not in ("max", "min"),
    ),
    GCNConv: Layer("trimmed; weighted sums of rows, by the degrees of the batch", _gcn, reach=ALL),
    GATConv: Layer("trimmed; attention in one pass", _gat),
    GATv2Conv: Layer("trimmed; attention in one pass", _gatv2),
    TransformerConv: Layer("trimmed; attention in one pass", _transformer),
}
