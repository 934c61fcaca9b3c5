"""Random graphs with hubs on both sides, of any size, the same for the same arguments."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

# Node of rank r receives in proportion to r^(1/a - 1), and sends likewise: a power law each, over
# random orders of the nodes. At 5 M nodes and 75 M edges these two give batches of 1024 random
# seeds and fan-out [15, 10, 5] some 264 K edges and 183 K nodes; with uniform senders, as random
# graphs often have them, it is 360 K nodes, and no node is ever met twice.
_RECEIVED = 3.3
_SENT = 5.0

NUM_CLASSES = 172
_CHUNK = 1 << 22


def power_law(num_nodes: int, num_edges: int, dim: int, seed: int = 0) -> Data:
    """A homogeneous graph with hubs.

    Args:
        num_nodes: Number of nodes.
        num_edges: Number of edges, some of them parallel.
        dim: Width of the ``float32`` features ``x``; 0 for none.
        seed: An equal one gives an equal graph.

    Returns:
        ``edge_index``, ``x``, ``y`` (of ``NUM_CLASSES``) and ``train_mask`` (one node in ten).
    """
    generator = torch.Generator().manual_seed(seed)
    data = Data(edge_index=edges(num_nodes, num_nodes, num_edges, generator), num_nodes=num_nodes)
    data.update(attributes(num_nodes, dim, generator))
    return data


def power_law_hetero(
    num_nodes: int, num_edges: int, dim: int, num_edge_types: int, seed: int = 0
) -> HeteroData:
    """A graph with hubs and types: nodes and edges are spread evenly over them.

    Args:
        num_nodes: Number of nodes of all types.
        num_edges: Number of edges of all types.
        dim: Width of every type's features.
        num_edge_types: Number of edge types; there are just enough node types for as many pairs.
        seed: An equal one gives an equal graph.

    Returns:
        Node types ``n0``, ``n1``, … with what ``power_law`` gives, every one of them with edges in.
    """
    generator = torch.Generator().manual_seed(seed)
    num_types = math.isqrt(num_edge_types - 1) + 1
    data = HeteroData()
    for i, count in enumerate(_shares(num_nodes, num_types)):
        data[f"n{i}"].num_nodes = count
        data[f"n{i}"].update(attributes(count, dim, generator))
    for i, count in enumerate(_shares(num_edges, num_edge_types)):
        # First every type to itself, then to the next one, and so on.
        src, dst = i % num_types, (i + i // num_types) % num_types
        ends = data[f"n{src}"].num_nodes, data[f"n{dst}"].num_nodes
        data[f"n{src}", f"e{i}", f"n{dst}"].edge_index = edges(*ends, count, generator)
    return data


def _shares(total: int, parts: int) -> list[int]:
    return [total // parts + (i < total % parts) for i in range(parts)]


def attributes(num_nodes: int, dim: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Attributes of nodes by name, as :func:`power_law` gives them."""
    made = {
        "y": torch.randint(0, NUM_CLASSES, (num_nodes,), generator=generator),
        "train_mask": torch.rand(num_nodes, generator=generator) < 0.1,
    }
    return made | ({"x": torch.randn(num_nodes, dim, generator=generator)} if dim else {})


def edges(num_src: int, num_dst: int, num_edges: int, generator: torch.Generator) -> Tensor:
    """``int64 [2, num_edges]``, in chunks: little more memory than the result takes."""
    result = torch.empty(2, num_edges, dtype=torch.int64)
    for ends, count, skew in ((result[0], num_src, _SENT), (result[1], num_dst, _RECEIVED)):
        order = torch.randperm(count, generator=generator)
        for part in ends.split(_CHUNK):
            # Doubles: a float has too few bits to reach every node of a large graph.
            rank = torch.rand(len(part), generator=generator, dtype=torch.float64)
            torch.index_select(order, 0, rank.pow_(skew).mul_(count).long(), out=part)
    return result
