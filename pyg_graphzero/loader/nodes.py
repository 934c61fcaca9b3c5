"""``SeedNodeLoader``: the common part of all loaders of seed nodes."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NodeSamplerInput

from pyg_graphzero.loader.engine import EngineLoader
from pyg_graphzero.loader.keyed import Graph_co
from pyg_graphzero.loader.locality import store_rows
from pyg_graphzero.sampling.base import Prepared


class SeedNodeLoader(EngineLoader[Graph_co]):
    """Mixed into PyG's loaders of seed nodes, in front of them."""

    node_sampler: Any
    input_data: NodeSamplerInput
    _seed_windows: Tensor | None = None

    @property
    def graph_sampler(self) -> Any:
        """The sampler in use, ours or not."""
        return self.node_sampler

    def _prepare(self, index: Any, key: int) -> Prepared:
        windows = () if self._seed_windows is None else (self._seed_windows[index],)
        prepared: Prepared = self.node_sampler.prepare_nodes(self.input_data[index], *windows)
        return prepared

    def seed_rows(self) -> Tensor:
        """Where the seeds' rows lie; see :class:`~pyg_graphzero.memory.source.BatchSource`."""
        return store_rows(self.graph_sampler, self.input_data.input_type, self.input_data.node)

    def _label(self, batch: Data | HeteroData, metadata: Any) -> None:
        input_type = self.input_data.input_type
        seeds = batch if input_type is None else batch[input_type]
        seeds.input_id, seeds.seed_time = metadata[:2]
        seeds.batch_size = metadata[0].size(0)
