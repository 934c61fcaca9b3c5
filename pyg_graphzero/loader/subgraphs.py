"""Loaders of induced subgraphs: nodes are chosen, and all edges among them come along."""

from __future__ import annotations

from abc import abstractmethod
from math import ceil
from typing import Any

import torch_geometric.loader
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_graphzero.loader.engine import EngineLoader
from pyg_graphzero.loader.keyed import Graph_co
from pyg_graphzero.sampling.base import Prepared
from pyg_graphzero.sampling.graph import resolve
from pyg_graphzero.sampling.neighbor import NeighborSampler
from pyg_graphzero.util.arguments import check_count


class SubgraphLoader(EngineLoader[Graph_co]):
    """Mixed into PyG's loaders of induced subgraphs, in front of them.

    It is the case of neighbour sampling without hops. A subclass says which nodes a batch has.
    """

    node_sampler: NeighborSampler

    @abstractmethod
    def _nodes(self, index: Tensor, key: int) -> dict[str | None, Tensor]:
        """The nodes of a batch by type, each once."""

    def _prepare(self, index: Any, key: int) -> Prepared:
        return self.node_sampler.prepare_induced(self._nodes(index, key))


def induced(data: Data | HeteroData) -> NeighborSampler:
    """A sampler of the edges among given nodes."""
    return NeighborSampler(data, [], subgraph_type="induced")


class RandomNodeLoader(SubgraphLoader[Graph_co], torch_geometric.loader.RandomNodeLoader):
    """Subgraphs of random nodes; see PyG's class of the same name.

    Args:
        data: A store, its ``.data()``, or ``Data`` or ``HeteroData`` in memory.
        num_parts: Into how many parts the nodes are split in each epoch.
        device: Where batches are delivered; see ``NeighborLoader``.
        **kwargs: Arguments of ``torch.utils.data.DataLoader``: ``shuffle=True`` splits at random.

    Batches have the nodes, all edges among them, and what is known of both; ``n_id`` and ``e_id``
    are the original ids.

    Raises:
        ValueError: ``num_parts`` is not 1 or more.

    Example:
        >>> import pyg_graphzero as gz
        >>> loader = gz.loader.RandomNodeLoader(gz.open(example_store), num_parts=2)
        >>> [batch.num_nodes for batch in loader]
        [2, 2]
    """

    def __init__(self, data: Any, num_parts: int, *, device: Any = None, **kwargs: Any) -> None:
        data = resolve(data)
        check_count("num_parts", num_parts)
        sampler = induced(data)
        self.num_parts = num_parts
        self.num_nodes = sum(sampler.graph.node_types.values())
        kwargs["batch_size"] = max(1, ceil(self.num_nodes / num_parts))
        self._start(data, self.num_nodes, sampler, device, kwargs)

    def _nodes(self, index: Tensor, key: int) -> dict[str | None, Tensor]:
        nodes, first = {}, 0
        for name, count in self.node_sampler.graph.node_types.items():
            mine = (index >= first) & (index < first + count)
            nodes[name] = index[mine] - first
            first += count
        return nodes
