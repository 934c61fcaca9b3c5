"""The older ``NeighborSampler``: bipartite graphs, a hop each, instead of one subgraph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch_geometric.loader
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader.neighbor_sampler import Adj, EdgeIndex
from torch_geometric.sampler import NodeSamplerInput, SamplerOutput
from torch_geometric.utils.num_nodes import maybe_num_nodes

from pyg_graphzero.loader.engine import EngineLoader
from pyg_graphzero.loader.inputs import homogeneous, seed_nodes
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.sampling.base import Prepared
from pyg_graphzero.sampling.graph import plain
from pyg_graphzero.sampling.neighbor import NeighborSampler as GraphNeighborSampler
from pyg_graphzero.sampling.options import Description
from pyg_graphzero.util.keys import random_key


class NeighborSampler(EngineLoader[Any], torch_geometric.loader.NeighborSampler):
    """Bipartite graphs of neighbours, hop by hop; see PyG's loader of the same name.

    In each hop every node that the batch has so far draws neighbours anew (``NeighborLoader`` has
    only the newest ones draw). No features are read; scripts look them up by ``n_id``.

    Args:
        edge_index: A homogeneous store, its ``.data()``, or ``Data``, whose edges are sampled where
            they are; or ``edge_index``, ``int64 [2, num_edges]``; or a transposed ``SparseTensor``.
        sizes: Neighbours per node and hop; -1 takes all.
        node_idx: Seeds: None (all nodes), an index or a mask.
        num_nodes: How many there are, where ``edge_index`` does not say.
        return_e_id: ``e_id`` are the numbers of the edges; False: None.
        transform: Called with ``batch_size, n_id, adjs``; what it returns is the batch.
        **kwargs: Arguments of ``torch.utils.data.DataLoader``.

    Batches are ``(batch_size, n_id, adjs)``: the nodes, seeds first, and ``(edge_index, e_id,
    size)`` of each hop, the outermost first; the one itself if there is one hop. ``size`` is the
    number of sources and of targets, which are the first of the sources. A ``SparseTensor`` gives
    ``(adj_t, e_id, size)`` instead.

    Raises:
        TypeError: The graph is heterogeneous.
        ValueError: An argument that does not fit the graph.
        IndexError: A seed that is not a node.
        MissingEdgeIdsError: ``return_e_id`` where a store's edges have no numbers.

    Example:
        >>> import pyg_graphzero as gz
        >>> loader = gz.loader.NeighborSampler(gz.open(example_store), sizes=[-1, -1], batch_size=2)
        >>> for batch_size, n_id, adjs in loader:
        ...     print(batch_size, n_id.tolist(), [adj.size for adj in adjs])
        2 [0, 1, 2] [(3, 3), (3, 2)]
        2 [2, 3, 1, 0] [(4, 4), (4, 2)]
    """

    def __init__(
        self,
        edge_index: Any,
        sizes: Sequence[int],
        node_idx: Any = None,
        num_nodes: int | None = None,
        return_e_id: bool = True,
        transform: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        data = _edges_alone(edge_index, node_idx, num_nodes)
        self.edge_index, self.num_nodes = edge_index, num_nodes
        self.sizes = sizes
        self.return_e_id = return_e_id
        self.is_sparse_tensor = "adj_t" in data and not torch.is_tensor(data["adj_t"])
        sampler = GraphNeighborSampler.of(data, list(sizes), Description(whole_frontier=True))
        if return_e_id:
            sampler.graph.need_edge_ids(None, "e_id (leave it out: return_e_id=False)")
        self.node_idx = seed_nodes(data, node_idx)
        self.transform = transform
        self._start(data, self.node_idx.numel(), sampler, None, kwargs)

    def _prepare(self, index: Any, key: int) -> Prepared:
        return self.node_sampler.prepare_nodes(NodeSamplerInput(None, self.node_idx[index]))

    def sample(self, batch: Any) -> Any:
        """The batch of some nodes."""
        inputs = NodeSamplerInput(None, torch.as_tensor(batch))
        return self.filter_fn(self.node_sampler.sample_from_nodes(inputs, random_key()))

    def filter_fn(self, out: SamplerOutput) -> Any:
        """Cuts a sample into hops."""
        assert out.num_sampled_nodes is not None
        nodes = list(accumulate(out.num_sampled_nodes))
        edges = list(accumulate(out.num_sampled_edges or [], initial=0))
        e_id = None
        if self.return_e_id:
            assert out.edge is not None
            e_id = self.node_sampler.original_edge_ids(None, out.edge)
        adjs: list[Any] = []
        for (num_dst, num_src), hop in zip(pairwise(nodes), pairwise(edges), strict=True):
            part = slice(*hop)
            ids = None if e_id is None else e_id[part]
            row, col, size = out.row[part], out.col[part], (num_src, num_dst)
            if self.is_sparse_tensor:
                adjs.append(Adj(self._adj_t(row, col, ids, size), ids, size))
            else:
                adjs.append(EdgeIndex(torch.stack([row, col]), ids, size))
        found = out.num_sampled_nodes[0], out.node, adjs[0] if len(adjs) == 1 else adjs[::-1]
        return found if self.transform is None else self.transform(*found)

    def _adj_t(self, row: Tensor, col: Tensor, e_id: Tensor | None, size: tuple[int, int]) -> Any:
        whole = self.data["adj_t"]
        value = None if e_id is None else whole.storage.value()
        value = None if value is None else value[e_id]
        return type(whole)(row=col, col=row, value=value, sparse_sizes=size[::-1])

    def __repr__(self) -> str:
        return f"{type(self).__name__}(sizes={self.sizes})"


def _edges_alone(given: Any, node_idx: Any, num_nodes: int | None) -> Data:
    """A graph of nothing but the edges: no attribute is read for a batch, or given memory."""
    if isinstance(given, (Store, Data, HeteroData, tuple)):
        whole = homogeneous(given, "edge_index")
        if num_nodes not in (None, whole.num_nodes):
            raise ValueError(f"num_nodes: found {num_nodes}, expected {whole.num_nodes}")
        data, count = copy.copy(whole), whole.num_nodes
        for key in set(data.keys()) - {"edge_index", "adj_t", "num_nodes"}:
            del data[key]
        data.num_nodes = count
        return data
    is_sparse = hasattr(given, "coo")  # a SparseTensor
    if not isinstance(given, Tensor) and not is_sparse:
        raise TypeError(
            f"edge_index: found {type(given).__name__}, expected a store, its .data(), Data, a "
            "tensor [2, num_edges] or a SparseTensor"
        )
    if is_sparse or given.layout != torch.strided:
        return Data(adj_t=given, num_nodes=given.size(0))
    edges = plain(given).cpu()
    if num_nodes is None:
        num_nodes = maybe_num_nodes(edges)
        if node_idx is not None:
            nodes = torch.as_tensor(node_idx)
            is_mask = nodes.dtype == torch.bool
            num_nodes = max(num_nodes, nodes.numel() if is_mask else maybe_num_nodes(nodes))
    return Data(edge_index=edges, num_nodes=num_nodes)
