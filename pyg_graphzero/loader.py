"""PyG's loaders over a store: the same arguments, the same batches, another engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch_geometric.loader
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import BaseStorage
from torch_geometric.loader.utils import index_select
from torch_geometric.sampler import HeteroSamplerOutput, NodeSamplerInput, SamplerOutput

from pyg_graphzero.columns import gather
from pyg_graphzero.data import OnDemand, raw_items
from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.sampler import NeighborSampler, random_key
from pyg_graphzero.schema import EdgeType
from pyg_graphzero.stores import DiskFeatureStore, DiskGraphStore, Store


class KeyedIndex(NamedTuple):
    """What one batch is made from: its seeds' positions, and the key of its randomness."""

    index: Any
    key: int


class _KeyedSampler:
    """Gives every batch of an epoch its own key, so that it is the same in any process."""

    def __init__(self, base: Any, generator: torch.Generator | None) -> None:
        self.base = base
        self.generator = generator

    def __iter__(self) -> Iterator[KeyedIndex]:
        epoch_key = 0
        for number, index in enumerate(self.base):
            if number == 0:  # after the shuffle has drawn, whose order is then stock PyG's
                epoch_key = random_key(self.generator)
            yield KeyedIndex(index, (epoch_key + number) % 2**64)

    def __len__(self) -> int:
        return len(self.base)


class _Positions(Sequence[Any]):
    """The loader's dataset: positions 0 … n-1, taken as whole batches."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        return index

    def __getitems__(self, index: Any) -> Any:
        return index


class NeighborLoader(torch_geometric.loader.NeighborLoader):
    """A mini-batch loader with neighbour sampling; see PyG's class of the same name.

    A subclass of PyG's ``NeighborLoader`` that takes its arguments and yields its batches. Sampling
    and feature gathering run in C++ without the GIL. ``torch.manual_seed`` (or ``generator=``)
    governs both shuffling and sampling; batches do not depend on ``num_workers`` or threads.

    Args:
        data: A ``Store``, its ``.data()``, its ``(feature_store, graph_store)``, or ``Data`` or
            ``HeteroData`` in memory.
        num_neighbors: Fan-out per hop: a list, a dict by edge type, or ``NumNeighbors``; -1 takes
            all neighbours.
        input_nodes: Seeds: None (all nodes), an index, a mask, a node type, or (type, one of them).
        replace: Draw with replacement.
        subgraph_type: ``"directional"``.
        transform: Called with every batch.
        transform_sampler_output: Called with every sampler output.
        filter_per_worker: Whether features are gathered in the worker process.
        neighbor_sampler: A PyG ``BaseSampler`` to use instead.
        input_id: What ``batch.input_id`` shows for each seed.
        **kwargs: Arguments of ``torch.utils.data.DataLoader``.

    Raises:
        ValueError: An argument that does not fit the graph.
        IndexError: A seed that is not a node.
        UnsupportedError: An argument this loader cannot honour; the message says what can.

    Example:
        >>> import pyg_graphzero as gz
        >>> data = gz.open(example_store).data()
        >>> loader = gz.loader.NeighborLoader(data, num_neighbors=[-1], batch_size=4)
        >>> next(iter(loader)).batch_size
        4
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: Tensor | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Any = None,
        transform_sampler_output: Any = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        **kwargs: Any,
    ) -> None:
        _refuse(
            subgraph_type=(getattr(subgraph_type, "value", subgraph_type), "directional"),
            directed=(directed, True),
            disjoint=(disjoint, False),
            time_attr=(time_attr, None),
            input_time=(input_time, None),
            weight_attr=(weight_attr, None),
            temporal_strategy=(temporal_strategy, "uniform"),
        )
        data = resolve(data)
        if neighbor_sampler is None:
            neighbor_sampler = NeighborSampler(data, num_neighbors, replace=replace)
        super().__init__(
            data,
            num_neighbors,
            input_nodes=check_input_nodes(data, input_nodes),
            replace=replace,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            is_sorted=is_sorted,
            filter_per_worker=filter_per_worker,
            neighbor_sampler=neighbor_sampler,
            **kwargs,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        # PyG hands DataLoader a range; DataLoader forbids changing it later.
        if name == "dataset" and isinstance(value, range):
            value = _Positions(len(value))
        super().__setattr__(name, value)

    @property
    def _index_sampler(self) -> _KeyedSampler:
        return _KeyedSampler(super()._index_sampler, self.generator)

    def collate_fn(self, index: Any) -> Any:
        """Samples one batch, and gathers its features if that is this process's job."""
        key = None
        if isinstance(index, KeyedIndex):
            index, key = index
        inputs: NodeSamplerInput = self.input_data[_as_index(index)]
        if isinstance(self.node_sampler, NeighborSampler):
            out = self.node_sampler.sample_from_nodes(inputs, key=key)
        else:
            out = self.node_sampler.sample_from_nodes(inputs)
        return self.filter_fn(out) if self.filter_per_worker else out

    def filter_fn(self, out: SamplerOutput | HeteroSamplerOutput) -> Data | HeteroData:
        """Joins sampled nodes and edges with their attributes."""
        if not isinstance(self.node_sampler, NeighborSampler):
            return super().filter_fn(out)
        if self.transform_sampler_output:
            out = self.transform_sampler_output(out)
        batch = assemble(self.data, self.node_sampler, out, self.input_data.input_type)
        return batch if self.transform is None else self.transform(batch)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.dataset)} seeds, {len(self)} batches)"


def _refuse(**arguments: tuple[Any, Any]) -> None:
    for name, (found, supported) in arguments.items():
        if found is not supported and found != supported:
            raise UnsupportedError(
                f"{name}: found {found!r}, expected {supported!r}: this release samples uniformly "
                "and directionally; use torch_geometric.loader.NeighborLoader on a graph in memory"
            )


def resolve(data: Any) -> Data | HeteroData:
    """What a loader was given, as ``Data`` or ``HeteroData``.

    Raises:
        TypeError: It is none of the inputs the loaders take.
    """
    if isinstance(data, Store):
        return data.data()
    if isinstance(data, (Data, HeteroData)):
        return data
    if (
        isinstance(data, (tuple, list))
        and len(data) == 2
        and isinstance(data[0], DiskFeatureStore)
        and isinstance(data[1], DiskGraphStore)
        and data[0].store.path == data[1].store.path
    ):
        return data[0].store.data()
    raise TypeError(
        f"data: found {type(data).__name__}, expected a Store, its .data(), the (feature_store, "
        "graph_store) of one store, or Data or HeteroData in memory"
    )


def check_input_nodes(data: Data | HeteroData, input_nodes: Any) -> Any:
    """``input_nodes`` as PyG takes them, after checking that they are nodes of the graph."""
    if isinstance(data, HeteroData):
        name, nodes = input_nodes, None
        if isinstance(input_nodes, (tuple, list)) and len(input_nodes) == 2:
            name, nodes = input_nodes
        if not isinstance(name, str):
            raise ValueError(
                f"input_nodes: found {type(input_nodes).__name__}, expected a node type or "
                f"(node type, index or mask); node types are {data.node_types}"
            )
        if name not in data.node_types:
            raise ValueError(
                f"input_nodes: found node type {name!r}, expected one of {data.node_types}"
            )
        return name, _check_nodes(nodes, int(data[name].num_nodes))
    return _check_nodes(input_nodes, int(data.num_nodes))


def _check_nodes(nodes: Any, num_nodes: int) -> Tensor | None:
    if nodes is None:
        return None
    nodes = torch.as_tensor(nodes).cpu()
    if nodes.numel() == 0 and nodes.dtype == torch.get_default_dtype():
        nodes = nodes.to(torch.int64)  # torch.as_tensor([]) is a float tensor
    if nodes.dim() != 1 or nodes.dtype.is_floating_point or nodes.dtype.is_complex:
        raise ValueError(
            f"input_nodes: found {nodes.dtype} of shape {list(nodes.shape)}, expected integers or "
            "bool, one-dimensional"
        )
    if nodes.dtype == torch.bool:
        if nodes.numel() != num_nodes:
            raise ValueError(
                f"input_nodes: found a mask of {nodes.numel()}, expected {num_nodes} nodes"
            )
        return nodes
    nodes = nodes.to(torch.int64)
    bad = (nodes < 0) | (nodes >= num_nodes)
    if bad.any():
        at = int(bad.nonzero()[0, 0])
        raise IndexError(
            f"input_nodes[{at}]: found node {int(nodes[at])}, expected 0 <= node < {num_nodes}"
        )
    return nodes


def _as_index(index: Any) -> Tensor:
    index = torch.as_tensor(index)
    return index.to(torch.int64) if index.numel() == 0 else index


def assemble(
    data: Data | HeteroData,
    sampler: NeighborSampler,
    out: SamplerOutput | HeteroSamplerOutput,
    input_type: str | None,
) -> Data | HeteroData:
    """A plain ``Data``/``HeteroData`` batch from what was sampled and the attributes of ``data``.

    Args:
        data: Where attributes come from, on disk or in memory.
        sampler: Knows the original ids of sampled edges.
        out: The sample; ``edge`` holds CSC slots.
        input_type: Node type of the seeds, None if homogeneous.
    """
    hetero = isinstance(out, HeteroSamplerOutput)
    batch = HeteroData() if hetero else Data()
    if hetero:
        for key, value in data._global_store.items():
            batch[key] = value
        for name in data.node_types:
            fill_nodes(data[name], batch[name], out.node[name])
        for name in data.edge_types:
            fill_edges(
                data[name], batch[name], sampler, name, out.row[name], out.col[name], out.edge[name]
            )
    else:
        fill_nodes(data._store, batch._store, out.node)
        fill_edges(data._store, batch._store, sampler, None, out.row, out.col, out.edge)

    target = batch[input_type] if hetero else batch
    if hetero:
        batch.set_value_dict("batch", out.batch)
        batch.set_value_dict("num_sampled_nodes", out.num_sampled_nodes)
        batch.set_value_dict("num_sampled_edges", out.num_sampled_edges)
    else:
        batch.batch = out.batch
        batch.num_sampled_nodes = out.num_sampled_nodes
        batch.num_sampled_edges = out.num_sampled_edges
    target.input_id, target.seed_time = out.metadata[0], out.metadata[1]
    target.batch_size = out.metadata[0].size(0)
    return batch


def fill_nodes(store: BaseStorage, out: BaseStorage, n_id: Tensor) -> None:
    """Node attributes of the sampled nodes, and everything that is neither node nor edge level."""
    for key, value in raw_items(store):
        if key == "num_nodes":
            out.num_nodes = n_id.numel()
        elif isinstance(value, OnDemand) or store.is_edge_attr(key):
            continue
        elif store.is_node_attr(key):
            out[key] = _select(store, key, value, n_id)
        else:
            out[key] = value
    if "n_id" not in out:
        out["n_id"] = n_id


def fill_edges(
    store: BaseStorage,
    out: BaseStorage,
    sampler: NeighborSampler,
    name: EdgeType | None,
    row: Tensor,
    col: Tensor,
    slots: Tensor | None,
) -> None:
    """The sampled edges and their attributes, joined by original edge id."""
    e_id = None if slots is None else sampler.original_edge_ids(name, slots)
    for key, value in raw_items(store):
        if key == "edge_index":
            out.edge_index = torch.stack([row, col])
        elif isinstance(value, OnDemand):
            # Slots are those of the files unless the edges in memory were sampled instead.
            on_disk = name not in sampler.graph.arrays and not value.is_built
            if slots is not None and on_disk and value.slots is not None:
                out[key] = gather(value.slots, slots, sampler.num_threads)
            elif e_id is not None:
                out[key] = gather(value.value(), e_id, sampler.num_threads)
        elif store.is_edge_attr(key):
            if e_id is not None:
                out[key] = _select(store, key, value, e_id)
        elif name is not None:
            out[key] = value
    if e_id is not None and "e_id" not in out:
        out["e_id"] = e_id


def _select(store: BaseStorage, key: str, value: Any, index: Tensor) -> Any:
    dim = store._parent().__cat_dim__(key, value, store)
    if isinstance(value, Tensor) and value.is_cpu and value.layout == torch.strided and dim == 0:
        return gather(value, index)
    if isinstance(value, (list, tuple)):
        return [value[i] for i in index.tolist()]
    return index_select(value, index.to(value.device) if isinstance(value, Tensor) else index, dim)
