"""``ShaDowKHopSampler``: a subgraph of its own around every seed."""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric.loader
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.sampler import NodeSamplerInput, SamplerOutput

from pyg_graphzero.loader.engine import EngineLoader
from pyg_graphzero.loader.inputs import homogeneous, seed_nodes
from pyg_graphzero.sampling.base import Prepared, Sampled
from pyg_graphzero.sampling.neighbor import NeighborSampler


class ShaDowKHopSampler(EngineLoader[Batch], torch_geometric.loader.ShaDowKHopSampler):
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
        device: Where batches are delivered; see ``NeighborLoader``.
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
        *,
        device: Any = None,
        **kwargs: Any,
    ) -> None:
        data = homogeneous(data, "data")
        if depth < 0:
            raise ValueError(f"depth: found {depth}, expected 0 or more")
        self.depth = depth
        self.num_neighbors = num_neighbors
        self.replace = replace
        self.node_idx = seed_nodes(data, node_idx)
        sampler = NeighborSampler(
            data, [num_neighbors] * depth, subgraph_type="induced", replace=replace, disjoint=True
        )
        self._start(data, self.node_idx.numel(), sampler, device, kwargs)

    def _prepare(self, index: Any, key: int) -> Prepared:
        return self.node_sampler.prepare_nodes(NodeSamplerInput(index, self.node_idx[index]))

    def seed_rows(self) -> Tensor:
        """Seeds in order; see :class:`~pyg_graphzero.memory.source.BatchSource`."""
        return self.node_idx

    def filter_fn(self, out: SamplerOutput) -> Batch:
        """Orders what was sampled tree by tree, and joins it with its attributes."""
        num_roots = out.metadata[0].numel()
        order = torch.argsort(out.batch, stable=True)  # hop by hop to tree by tree
        place = torch.empty_like(order)
        place[order] = torch.arange(order.numel())
        row, col = place[out.row], place[out.col]
        edges = torch.argsort(col, stable=True)

        sizes = torch.bincount(out.batch, minlength=num_roots)
        batch = Batch(batch=out.batch[order], ptr=torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]))
        batch.root_n_id = place[:num_roots]
        joined = torch.stack([row[edges], col[edges]])
        (rows,) = self.node_sampler.sampled(out).nodes
        slots = None if out.edge is None else out.edge[edges]
        sampled = Sampled([rows[order]], None, [joined], [slots])
        plan = self._current_plan()
        plan.assemble(sampled, plan.gather(sampled, self.node_sampler.num_threads), batch)
        if "y" in self.data and self.data.stores[0].is_node_attr("y"):
            batch.y = batch.y[batch.root_n_id]
        return batch
