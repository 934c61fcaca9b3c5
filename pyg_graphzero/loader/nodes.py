"""What the loaders of seed nodes share: a batch from the seeds' positions and its key."""

from __future__ import annotations

from typing import Any

from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, NodeSamplerInput, SamplerOutput

from pyg_graphzero.loader.assemble import assemble
from pyg_graphzero.loader.keyed import KeyedLoader, split_key
from pyg_graphzero.sampler import GraphSampler


class SeedNodeLoader(KeyedLoader):
    """Mixed into PyG's loaders of seed nodes, in front of them."""

    data: Data | HeteroData
    node_sampler: Any
    input_data: NodeSamplerInput
    filter_per_worker: bool | None
    transform: Any
    transform_sampler_output: Any

    def collate_fn(self, index: Any) -> Any:
        """Samples one batch, and gathers its features if that is this process's job."""
        index, key = split_key(index)
        inputs = self.input_data[index]
        if isinstance(self.node_sampler, GraphSampler):
            out = self.node_sampler.sample_from_nodes(inputs, key=key)
        else:
            out = self.node_sampler.sample_from_nodes(inputs)
        return self.filter_fn(out) if self.filter_per_worker else out

    def filter_fn(self, out: SamplerOutput | HeteroSamplerOutput) -> Data | HeteroData:
        """Joins sampled nodes and edges with their attributes."""
        if not isinstance(self.node_sampler, GraphSampler) or isinstance(self.data, tuple):
            stock: Any = super()
            return stock.filter_fn(out)
        if self.transform_sampler_output:
            out = self.transform_sampler_output(out)
        batch = assemble(self.data, self.node_sampler, out)
        input_type = self.input_data.input_type
        seeds = batch if input_type is None else batch[input_type]
        seeds.input_id, seeds.seed_time = out.metadata[:2]
        seeds.batch_size = out.metadata[0].size(0)
        return batch if self.transform is None else self.transform(batch)
