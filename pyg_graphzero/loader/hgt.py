"""``HGTLoader``: seed nodes in, batches with about as many nodes of every type out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch_geometric.loader

from pyg_graphzero.loader.keyed import Graph_co
from pyg_graphzero.loader.nodes import NodeLoader
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.sampling.graph import resolve
from pyg_graphzero.sampling.hgt import HGTSampler


class HGTLoader(NodeLoader[Graph_co], torch_geometric.loader.HGTLoader):
    """A mini-batch loader for heterogeneous graphs; see PyG's class of the same name.

    A subclass of PyG's ``HGTLoader`` that takes its arguments and yields its batches, without
    torch-sparse. How nodes are chosen is said at ``HGTSampler`` (Hu et al. 2020, "Heterogeneous
    Graph Transformer"). Batches are as ``NeighborLoader``'s, with ``num_sampled_nodes`` per hop
    and all edges among the sampled nodes, so no ``num_sampled_edges``; they do not depend on
    ``num_workers`` or threads.

    Args:
        data: A heterogeneous ``Store``, its ``.data()``, its ``(feature_store, graph_store)``, or
            ``HeteroData`` in memory.
        num_samples: Nodes to add per hop: a list for every node type, or a dict of lists of equal
            length by node type; 0 adds none, types that are not in the dict get none.
        input_nodes: Seeds: a node type, or (node type, index or mask or None).
        is_sorted: Taken for PyG's sake: stores are sorted, and edges in memory are sorted once.
        transform: Called with every batch.
        transform_sampler_output: Called with every sampler output.
        filter_per_worker: Taken for PyG's sake: the engine gathers ahead.
        device: Where batches are delivered; see ``NeighborLoader``.
        edge_ids: Batches have ``e_id``. Where it is not used, False spares a lookup for every
            edge, and reads where the ids do not fit in memory.
        **kwargs: ``input_id`` (what ``batch[type].input_id`` shows for each seed), and the
            arguments of ``torch.utils.data.DataLoader``.

    Raises:
        TypeError: The graph is homogeneous.
        ValueError: An argument that does not fit the graph.
        IndexError: A seed that is not a node.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> from torch_geometric.data import HeteroData
        >>> data = HeteroData()
        >>> data["author"].x, data["paper"].x = torch.eye(3), torch.eye(2)
        >>> data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 2], [0, 0, 1]])
        >>> loader = gz.loader.HGTLoader(data, {"author": [2]}, "paper", batch_size=1)
        >>> [batch["author"].n_id.sort().values.tolist() for batch in loader]
        [[0, 1], [2]]
    """

    def __init__(
        self,
        data: Graph_co | Store | Sequence[Any],
        num_samples: Any,
        input_nodes: Any,
        is_sorted: bool = False,
        transform: Any = None,
        transform_sampler_output: Any = None,
        filter_per_worker: bool | None = None,
        *,
        device: Any = None,
        edge_ids: bool = True,
        **kwargs: Any,
    ) -> None:
        data = resolve(data)
        super().__init__(
            data, HGTSampler(data, num_samples), input_nodes, None, transform,
            transform_sampler_output, filter_per_worker, device=device, edge_ids=edge_ids,
            **kwargs,
        )  # fmt: skip
        # Lightning makes loaders anew from attributes named as their arguments are.
        self.num_samples = num_samples
        self.is_sorted = is_sorted
