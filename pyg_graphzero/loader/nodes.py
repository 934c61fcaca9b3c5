"""``NodeLoader``: seed nodes in, batches out, by a sampler that is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch_geometric.loader
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_graphzero.loader.engine import EngineLoader
from pyg_graphzero.loader.inputs import check_input_nodes
from pyg_graphzero.loader.keyed import Graph_co
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.sampling.base import Prepared
from pyg_graphzero.sampling.graph import resolve
from pyg_graphzero.sampling.options import SamplingOptions
from pyg_graphzero.sampling.windows import check_of_seeds


class NodeLoader(EngineLoader[Graph_co], torch_geometric.loader.NodeLoader):
    """A mini-batch loader around seed nodes; see PyG's class of the same name.

    A subclass of PyG's ``NodeLoader`` that takes its arguments and yields its batches, and the base
    of ``NeighborLoader`` and ``HGTLoader``. With a sampler of ``gz.sampler`` the engine samples and
    gathers, as there. Any other samples as it does in PyG's loader, in processes; over a store,
    attributes are read whole then.

    Args:
        data: A ``Store``, its ``.data()``, its ``(feature_store, graph_store)``, or ``Data`` or
            ``HeteroData`` in memory.
        node_sampler: A sampler of ``gz.sampler``, or any PyG ``BaseSampler``, over the same graph.
        input_nodes: Seeds: None (all nodes), an index (integers ``[n]``), a mask (``bool
            [num_nodes]``), a node type, or (type, one of them).
        input_time: Times of the seeds, ``[n]``; needs a sampler with a ``time_attr``.
        transform: Called with every batch.
        transform_sampler_output: Called with every sampler output.
        filter_per_worker: Matters only with a sampler that is not ours; the engine gathers ahead.
        custom_cls: Taken for PyG's sake.
        input_id: Shown by ``batch.input_id`` for each seed, ``int64 [n]``; None: its position.
        device: Where batches are delivered; see ``NeighborLoader``.
        edge_ids: With a sampler of ours, batches have ``e_id``; see ``NeighborLoader``.
        options: None, or how the sampler draws, once more.
        **kwargs: Arguments of ``torch.utils.data.DataLoader``; see ``NeighborLoader``.

    Raises:
        ValueError: An argument that does not fit the graph.
        IndexError: A seed that is not a node.

    Example:
        >>> import pyg_graphzero as gz
        >>> data = gz.open(example_store).data()
        >>> sampler = gz.sampler.NeighborSampler(data, num_neighbors=[-1])
        >>> loader = gz.loader.NodeLoader(data, sampler, input_nodes=[2], batch_size=4)
        >>> next(iter(loader)).n_id.tolist()
        [2, 1, 0]
    """

    def __init__(
        self,
        data: Graph_co | Store | Sequence[Any],
        node_sampler: Any,
        input_nodes: Any = None,
        input_time: Tensor | None = None,
        transform: Any = None,
        transform_sampler_output: Any = None,
        filter_per_worker: bool | None = None,
        custom_cls: Any = None,
        input_id: Tensor | None = None,
        *,
        device: Any = None,
        edge_ids: bool = True,
        options: SamplingOptions | None = None,
        **kwargs: Any,
    ) -> None:
        self.edge_ids = edge_ids
        self._keep(device, options, node_sampler)
        data = resolve(data)
        # By name: super() is PyG's NeighborLoader in a NeighborLoader, and would make its sampler.
        torch_geometric.loader.NodeLoader.__init__(
            self, data, node_sampler, check_input_nodes(data, input_nodes), input_time, transform,
            transform_sampler_output, filter_per_worker, custom_cls, **kwargs,
        )  # fmt: skip
        seeds, of_seeds = self.input_data, {"input_id": input_id, "input_time": input_time}
        check_of_seeds(len(seeds.node), "seeds", time_window=self._seed_windows, **of_seeds)
        if input_id is not None:  # PyG leaves it out where all nodes are seeds
            self.input_id = seeds.input_id = input_id.cpu()

    def _prepare(self, index: Any, key: int) -> Prepared:
        windows = () if self._seed_windows is None else (self._seed_windows[index],)
        prepared: Prepared = self.node_sampler.prepare_nodes(self.input_data[index], *windows)
        return prepared

    def seed_rows(self) -> Tensor:
        """Seeds in order; see :class:`~pyg_graphzero.memory.source.BatchSource`."""
        seeds: Tensor = self.input_data.node
        return seeds

    def _label(self, batch: Data | HeteroData, metadata: Any) -> None:
        input_type = self.input_data.input_type
        seeds = batch if input_type is None else batch[input_type]
        seeds.input_id, seeds.seed_time = metadata[:2]
        seeds.batch_size = metadata[0].size(0)
