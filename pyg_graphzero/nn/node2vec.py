"""PyG's embeddings by random walks, with walks of the engine, over a store or in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Embedding
from torch_geometric.data import Data
from torch_geometric.nn import Node2Vec as StockNode2Vec
from torch_geometric.utils.num_nodes import maybe_num_nodes

from pyg_graphzero.loader.walks import RandomWalker


class Node2Vec(StockNode2Vec):
    """``torch_geometric.nn.Node2Vec`` over a store; it needs neither pyg-lib nor torch-cluster.

    All arguments but the first are PyG's.

    Args:
        source: A store, its ``.data()``, ``Data`` in memory, or an ``edge_index`` as in PyG.
        embedding_dim: Size of an embedding.
        walk_length: Nodes of a walk.
        context_size: Nodes of a positive sample.
        walks_per_node: Walks from each node of a batch.
        p: Return parameter of node2vec; see :func:`pyg_graphzero.sampler.random_walk`.
        q: In-out parameter of node2vec; see :func:`pyg_graphzero.sampler.random_walk`.
        num_negative_samples: Negative samples for each positive one.
        num_nodes: Number of nodes of an ``edge_index``; a graph knows its own.
        sparse: Whether gradients of the embeddings are sparse.
        reverse: Whether to walk against edges, which PyG cannot.

    Raises:
        UnsupportedError: The store has directed edges by destination only.
        ValueError: ``walk_length`` is below ``context_size``, this below 2, or ``num_nodes`` is not
            the graph's.

    Example:
        >>> import pyg_graphzero as gz
        >>> store = gz.open(example_store)
        >>> model = gz.nn.Node2Vec(store, 8, walk_length=4, context_size=3, reverse=True)
        >>> for positive, negative in model.loader(batch_size=2):
        ...     loss = model.loss(positive, negative)
    """

    def __init__(
        self,
        source: Any,
        embedding_dim: int,
        walk_length: int,
        context_size: int,
        walks_per_node: int = 1,
        p: float = 1.0,
        q: float = 1.0,
        num_negative_samples: int = 1,
        num_nodes: int | None = None,
        sparse: bool = False,
        reverse: bool = False,
    ) -> None:
        torch.nn.Module.__init__(self)  # PyG's own sorts the edges
        if walk_length < context_size or context_size < 2:
            raise ValueError(
                f"walk_length={walk_length}, context_size={context_size}: expected a context of 2 "
                "nodes or more, and a walk at least as long"
            )
        if isinstance(source, Tensor):
            num_nodes = maybe_num_nodes(source, num_nodes)
            source = Data(edge_index=source, num_nodes=num_nodes)
        self.walker = RandomWalker(source, p, q, reverse=reverse)
        self.num_nodes = self.walker.num_nodes_of()
        if num_nodes not in (None, self.num_nodes):
            raise ValueError(f"num_nodes: found {num_nodes}, expected {self.num_nodes} or none")
        self.EPS = 1e-15
        self.embedding_dim = embedding_dim
        self.walk_length = walk_length - 1
        self.context_size = context_size
        self.walks_per_node = walks_per_node
        self.p = p
        self.q = q
        self.num_negative_samples = num_negative_samples
        self.embedding = Embedding(self.num_nodes, embedding_dim, sparse=sparse)
        self.reset_parameters()

    def pos_sample(self, batch: Tensor) -> Tensor:
        """Windows of walks from some nodes, ``int64 [n, context_size]``."""
        start = batch.repeat(self.walks_per_node)
        walks = self.walker.walk(start, self.walk_length, on_end="stay")
        # Every run of nodes of each walk, in PyG's order.
        return walks.unfold(1, self.context_size, 1).transpose(0, 1).reshape(-1, self.context_size)
