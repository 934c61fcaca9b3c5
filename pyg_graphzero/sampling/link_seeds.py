"""Seed edges and their negatives: the nodes to sample around, and where these end up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import EdgeSamplerInput

from pyg_graphzero.sampling.negatives import Negatives


@dataclass
class LinkSeeds:
    """One batch of seed edges, positive ones first.

    Attributes:
        nodes: Nodes to sample around, by node type.
        times: Their times by node type; of no type without times.
        windows: The window of each, by node type; of no type without windows.
        trees: The number of each seed's positive edge, ends of one type after the other.
        metadata: Values that PyG's ``LinkLoader`` asks for: ``input_id``, where the ends of the
            seed edges are in the batch, labels and times.
    """

    nodes: dict[str | None, Tensor]
    times: dict[str | None, Tensor]
    windows: dict[str | None, Tensor]
    trees: Tensor
    metadata: tuple[Any, ...]


def link_seeds(
    inputs: EdgeSamplerInput,
    negatives: Negatives | None,
    disjoint: bool,
    times: Tensor | None,
    windows: Tensor | None = None,
) -> LinkSeeds:
    """Draws negatives, and lays the ends of all seed edges out.

    Binary negatives are pairs of their own, labelled 0; a triplet's negatives are destinations for
    a positive's source. Unless disjoint, a node that is the end of several edges is one seed.

    Args:
        inputs: The positive edges.
        negatives: Draws negatives; None for no negatives.
        disjoint: Every seed edge grows a tree of its own.
        times: Comparable time of each positive edge.
        windows: A length of time for each positive edge.
    """
    name = inputs.input_type
    src_type, dst_type = (None, None) if name is None else (name[0], name[2])
    src, dst, label = inputs.row, inputs.col, inputs.label
    num_links = src.numel()
    triplet = negatives is not None and negatives.is_triplet
    if negatives is not None:
        if triplet and label is not None:
            raise ValueError("edge_label: found some, expected none with triplet negatives")
        others, partners = negatives.draw(inputs, disjoint, times)
        if others is not None:
            src = torch.cat([src, others])
        dst = torch.cat([dst, partners])
        if not triplet:
            label = torch.ones(num_links) if label is None else label
            count = src.numel() - num_links
            label = torch.cat([label, label.new_zeros((count, *label.shape[1:]))])

    def repeated(values: Tensor, count: int) -> Tensor:
        return values.repeat(math.ceil(count / max(num_links, 1)))[:count]

    ends = [(src_type, src), (dst_type, dst)]
    by_type: dict[str | None, Tensor] = {}
    for node_type, nodes in ends:
        before = by_type.get(node_type)
        by_type[node_type] = nodes if before is None else torch.cat([before, nodes])

    def of_ends(values: Any) -> dict[str | None, Tensor]:
        return {
            node_type: torch.cat([repeated(values, n.numel()) for t, n in ends if t == node_type])
            for node_type in (() if values is None else by_type)
        }

    seed_times, seed_windows = of_ends(times), of_ends(windows)
    if disjoint:
        place = {node_type: torch.arange(n.numel()) for node_type, n in by_type.items()}
    else:
        unique = {t: n.unique(return_inverse=True) for t, n in by_type.items()}
        by_type = {t: nodes for t, (nodes, _) in unique.items()}
        place = {t: inverse for t, (_, inverse) in unique.items()}
    at_src = place[src_type][: src.numel()]
    at_dst = place[dst_type][-dst.numel() :]

    own_time = None if inputs.time is None else repeated(inputs.time, src.numel())
    if not triplet:
        metadata: tuple[Any, ...] = (
            inputs.input_id, torch.stack([at_src, at_dst]), label, own_time,
        )  # fmt: skip
    else:
        negative = at_dst[num_links:]
        if disjoint:  # seed j and negatives j, j + num_links … share a tree
            negative = negative.view(-1, num_links).t()
        negative = negative.reshape(num_links, -1).squeeze(-1)
        metadata = (inputs.input_id, at_src, at_dst[:num_links], negative, own_time)
    # Both ends of an edge share a tree, and negatives that of a positive.
    trees = torch.cat([torch.arange(n.numel()) % max(num_links, 1) for _, n in ends])
    return LinkSeeds(by_type, seed_times, seed_windows, trees, metadata)
