"""A typed graph in the proportions of MAG240M, of any size, the same for the same arguments."""

from __future__ import annotations

import torch
from torch_geometric.data import HeteroData

from pyg_graphzero.bench.synthetic import attributes, edges

# Nodes and edges of MAG240M for each of its 121,751,666 papers (OGB-LSC).
_MAG_NODES = {"paper": 1.0, "author": 1.005, "institution": 0.000211}
_MAG_EDGES = {
    ("paper", "cites", "paper"): 10.66,
    ("author", "writes", "paper"): 3.17,
    ("author", "affiliated_with", "institution"): 0.366,
}


def academic(num_papers: int, dim: int, seed: int = 0) -> HeteroData:
    """Papers, authors and institutions in the proportions of MAG240M, papers cited both ways.

    Args:
        num_papers: Number of papers; there are about as many authors.
        dim: Width of every type's features.
        seed: Seed of the graph; equal seeds give equal graphs.

    Returns:
        Types ``"paper"``, ``"author"`` and ``"institution"`` with what ``power_law`` gives, and
        five relations among them: citations, and two with their reverse.
    """
    generator = torch.Generator().manual_seed(seed)
    data = HeteroData()
    for name, share in _MAG_NODES.items():
        data[name].num_nodes = max(1, round(num_papers * share))
        data[name].update(attributes(data[name].num_nodes, dim, generator))
    for (src, name, dst), share in _MAG_EDGES.items():
        ends = data[src].num_nodes, data[dst].num_nodes
        found = edges(*ends, round(num_papers * share), generator)
        if src == dst:
            found = torch.cat((found, found.flip(0)), 1)
        else:
            data[dst, f"rev_{name}", src].edge_index = found.flip(0)
        data[src, name, dst].edge_index = found
    return data
