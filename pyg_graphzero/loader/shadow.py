"""``ShaDowKHopSampler``: a subgraph of its own around every seed."""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric.loader
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Batch, Data
from torch_geometric.sampler import NodeSamplerInput

from pyg_graphzero.loader.assemble import fill_edges, fill_nodes
from pyg_graphzero.loader.inputs import check_input_nodes, resolve
from pyg_graphzero.loader.keyed import KeyedLoader, Positions, split_key
from pyg_graphzero.sampler import NeighborSampler


class ShaDowKHopSampler(KeyedLoader, torch_geometric.loader.ShaDowKHopSampler):
    """Bounded-depth subgraphs around seeds, batched; see PyG's class of the same name.

    Each seed samples ``num_neighbors`` in-neighbours over ``depth`` hops; its subgraph has all
    edges among the nodes it reached (Zeng et al. 2021, "Decoupling the Depth and Scope of Graph
    Neural Networks"). It is the disjoint, induced case of ``NeighborSampler``.

    Args:
        data: A homogeneous store, its ``.data()``, its ``(feature_store, graph_store)``, or
            ``Data`` in memory.
        depth: Number of hops.
        num_neighbors: Neighbours per node and hop; -1 takes all.
        node_idx: Seeds: None (all nodes), an index or a mask.
        replace: Draw with replacement.
        **kwargs: Arguments of ``torch.utils.data.DataLoader``.

    Batches are PyG ``Batch`` objects: nodes tree by tree, ``batch`` and ``ptr`` say which tree,
    ``root_n_id`` where its seed is, ``y`` holds the seeds' labels only, ``n_id`` and ``e_id`` the
    original ids.

    Raises:
        TypeError: The graph is heterogeneous.
        ValueError: An argument that does not fit the graph.
        IndexError: A seed that is not a node.

    Example:
        >>> import pyg_graphzero as gz
        >>> data = gz.open(example_store).data()
        >>> loader = gz.loader.ShaDowKHopSampler(data, depth=1, num_neighbors=2, batch_size=4)
        >>> next(iter(loader)).ptr.tolist()
        [0, 2, 4, 7, 8]
    """

    def __init__(
        self,
        data: Any,
        depth: int,
        num_neighbors: int,
        node_idx: Any = None,
        replace: bool = False,
        **kwargs: Any,
    ) -> None:
        data = resolve(data)
        if not isinstance(data, Data):
            raise TypeError(
                "data: found a heterogeneous graph, expected a homogeneous one; NeighborLoader "
                "with disjoint=True and subgraph_type='induced' takes both"
            )
        nodes = check_input_nodes(data, node_idx)
        if nodes is None:
            nodes = torch.arange(data.num_nodes)
        elif nodes.dtype == torch.bool:
            nodes = nodes.nonzero().view(-1)
        self.data = data
        self.depth = depth
        self.num_neighbors = num_neighbors
        self.replace = replace
        self.node_idx: Tensor = nodes
        self.node_sampler = NeighborSampler(
            data, [num_neighbors] * depth, subgraph_type="induced", replace=replace, disjoint=True
        )
        kwargs.pop("dataset", None)
        kwargs.pop("collate_fn", None)
        positions: Any = Positions(nodes.numel())
        # Not PyG's constructor, which copies the edges and needs torch-sparse.
        DataLoader.__init__(self, positions, collate_fn=self.collate_fn, **kwargs)

    def collate_fn(self, index: Any) -> Batch:
        """Samples one batch and joins it with its attributes."""
        index, key = split_key(index)
        roots = self.node_idx[index]
        out = self.node_sampler.sample_from_nodes(NodeSamplerInput(index, roots), key=key)
        order = torch.argsort(out.batch, stable=True)  # hop by hop to tree by tree
        place = torch.empty_like(order)
        place[order] = torch.arange(order.numel())
        row, col = place[out.row], place[out.col]
        edges = torch.argsort(col, stable=True)

        sizes = torch.bincount(out.batch, minlength=roots.numel())
        batch = Batch(batch=out.batch[order], ptr=torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]))
        batch.root_n_id = place[: roots.numel()]
        store = self.data._store
        fill_nodes(store, batch._store, out.node[order])
        slots = out.edge[edges]
        fill_edges(store, batch._store, self.node_sampler, None, row[edges], col[edges], slots)
        if "y" in store and store.is_node_attr("y"):
            batch.y = batch.y[batch.root_n_id]
        return batch
