"""Neighbour sampling as a PyG ``BaseSampler``, over a store or a graph in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import (
    BaseSampler,
    HeteroSamplerOutput,
    NodeSamplerInput,
    NumNeighbors,
    SamplerOutput,
)

from pyg_graphzero import _core
from pyg_graphzero.contents import StoreContents
from pyg_graphzero.convert.csc import EdgeChunk, build_csc
from pyg_graphzero.data import DiskData, DiskHeteroData, OnDemand, raw_items
from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.schema import EdgeType


@dataclass
class SampledGraph:
    """The topology a sampler walks: node types with sizes, edge types with CSC.

    Homogeneous graphs have the one node type None and at most the one edge type None.

    Attributes:
        node_types: Number of nodes by type.
        edge_types: The edge types, in sampling order.
        contents: The store that holds the topologies, or None.
        arrays: ``(indptr, indices)`` by edge type where they are in memory.
        edge_ids: ``int32`` or ``int64 [num_edges]``, the original edge id of every CSC slot; None
            where slots are ids.
    """

    node_types: dict[str | None, int]
    edge_types: list[EdgeType | None]
    contents: StoreContents | None = None
    arrays: dict[EdgeType | None, tuple[Tensor, Tensor]] = field(default_factory=dict)
    edge_ids: dict[EdgeType | None, Tensor | None] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        # What lies in the store's files is found again there, not pickled.
        held = {name: ids for name, ids in self.edge_ids.items() if name in self.arrays}
        return {**self.__dict__, "edge_ids": held}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.contents is not None:
            for name in self.edge_types:
                if name not in self.arrays:
                    self.edge_ids[name] = self.contents.edge_id(name)

    def build(self) -> _core.NeighborSampler:
        """The engine's sampler over these arrays."""
        position = {name: i for i, name in enumerate(self.node_types)}
        builder = _core.SamplerBuilder(list(self.node_types.values()))
        for name in self.edge_types:
            src = position[None if name is None else name[0]]
            dst = position[None if name is None else name[2]]
            if name in self.arrays:
                indptr, indices = self.arrays[name]
                num_src = list(self.node_types.values())[src]
                builder.add_arrays(src, dst, indptr, indices, num_src, f"edge type {name}")
            else:
                assert self.contents is not None
                builder.add_file(src, dst, self.contents.topology(name))
        return _core.NeighborSampler(builder)


def graph_of(data: Any) -> SampledGraph:
    """The graph of a store's ``.data()``, or of ``Data``/``HeteroData`` in memory.

    In memory the edges are sorted by destination once; features are not touched.

    Raises:
        UnsupportedError: ``data`` has no ``edge_index``.
    """
    stores = {None: data._store} if isinstance(data, Data) else data._edge_store_dict
    if isinstance(data, Data):
        node_types: dict[str | None, int] = {None: int(data.num_nodes)}
    else:
        node_types = {name: int(data[name].num_nodes) for name in data.node_types}
    on_disk = isinstance(data, (DiskData, DiskHeteroData))
    graph = SampledGraph(node_types, [], data.__dict__["_contents"] if on_disk else None)
    for name, store in stores.items():
        edge_index = dict(raw_items(store)).get("edge_index")
        if edge_index is None:
            if name is None and "adj_t" not in store and "adj" not in store:
                continue  # a homogeneous graph without edges
            raise UnsupportedError(
                f"edge type {name}: found no edge_index; convert adj_t with "
                "edge_index = torch.stack(adj_t.coo()[1::-1])"
            )
        graph.edge_types.append(name)
        if isinstance(edge_index, OnDemand) and not edge_index.is_built:
            assert graph.contents is not None
            graph.edge_ids[name] = graph.contents.edge_id(name)
            continue
        if isinstance(edge_index, OnDemand):
            edge_index = edge_index.value()
        src, dst = (None, None) if name is None else (name[0], name[2])
        row, col = torch.as_tensor(edge_index, device="cpu").to(torch.int64).contiguous()
        csc = build_csc([EdgeChunk(row, col)], node_types[src], node_types[dst])
        graph.arrays[name] = (csc.indptr, csc.indices)
        graph.edge_ids[name] = csc.edge_id
    return graph


def random_key(generator: torch.Generator | None = None) -> int:
    """A key for one batch or epoch, drawn from torch's generator."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator))


class NeighborSampler(BaseSampler):
    """Samples the multi-hop neighbourhood of seed nodes.

    Sampling is uniform over in-neighbours, with or without replacement (Hamilton et al. 2017,
    "Inductive Representation Learning on Large Graphs"). A batch is a function of its key alone:
    the same for any number of threads.

    Args:
        data: ``store.data()``, or ``Data``/``HeteroData`` in memory.
        num_neighbors: Fan-out per hop: a list, a dict of lists by edge type, or PyG's
            ``NumNeighbors``. ``-1`` takes all neighbours, ``0`` none.
        replace: Draw with replacement.
        num_threads: Threads inside one batch; 0 uses as many as torch does.

    Raises:
        ValueError: A fan-out below -1, or lists of different length.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> from torch_geometric.sampler import NodeSamplerInput
        >>> sampler = gz.sampler.NeighborSampler(gz.open(example_store).data(), [-1])
        >>> out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([2])))
        >>> out.node.tolist(), out.num_sampled_edges
        ([2, 1, 0], [2])
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        replace: bool = False,
        num_threads: int = 0,
    ) -> None:
        self.graph = graph_of(data)
        self.is_hetero = isinstance(data, HeteroData)
        self.num_neighbors = num_neighbors
        self.replace = replace
        self.num_threads = num_threads
        self._engine = self.graph.build()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_engine"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._engine = self.graph.build()

    @property
    def num_neighbors(self) -> NumNeighbors:
        """The fan-out."""
        return self._num_neighbors

    @num_neighbors.setter
    def num_neighbors(self, value: Any) -> None:
        fanout = value if isinstance(value, NumNeighbors) else NumNeighbors(value)
        names = self.graph.edge_types
        if self.is_hetero:
            by_type = fanout.get_values(names)
            lists = [list(by_type[name]) for name in names]
        else:
            values = fanout.get_values()
            if isinstance(values, dict):
                raise ValueError(
                    "num_neighbors: found a dict by edge type, expected a list for a "
                    "homogeneous graph"
                )
            lists = [list(values) for _ in names]
        for name, hops in zip(names, lists, strict=True):
            for hop, k in enumerate(hops):
                if isinstance(k, bool) or not isinstance(k, int) or k < -1:
                    where = f"num_neighbors[{hop}]" + ("" if name is None else f" of {name}")
                    raise ValueError(
                        f"{where}: found {k!r}, expected a count, 0, or -1 for all neighbors"
                    )
        self._num_neighbors = fanout
        self._fanouts = lists

    @property
    def edge_permutation(self) -> Any:
        """Original edge ids by CSC slot, as PyG's own loaders want them (``int64``, in memory)."""
        wide = {
            name: None if ids is None else ids.to(torch.int64)
            for name, ids in self.graph.edge_ids.items()
        }
        return wide if self.is_hetero else wide.get(None)

    def original_edge_ids(self, name: EdgeType | None, slots: Tensor) -> Tensor:
        """Original edge ids (``int64``) of CSC slots."""
        ids = self.graph.edge_ids.get(name)
        if ids is None or slots.numel() == 0:
            return slots
        return _core.gather_int64(
            ids.view(torch.uint8).view(-1, ids.element_size()), slots, self.num_threads
        )

    def sample_from_nodes(
        self, inputs: NodeSamplerInput, key: int | None = None, **kwargs: Any
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Samples one batch.

        Args:
            inputs: The seeds.
            key: Names the batch; the same key gives the same sample. None draws one from torch's
                generator.
            **kwargs: Ignored, PyG passes none today.

        Returns:
            Node ids (seeds first, duplicates kept), ``row``/``col`` within them, ``edge`` as CSC
            slots (see ``edge_permutation``), and counts per hop.

        Raises:
            IndexError: A seed is not a node.
            TypeError: The seeds are not integers.
        """
        seeds = inputs.node
        if seeds.dtype.is_floating_point or seeds.dtype.is_complex or seeds.dtype == torch.bool:
            raise TypeError(f"seeds: found {seeds.dtype}, expected integers")
        seeds = seeds.to(torch.int64).contiguous().view(-1)
        types = list(self.graph.node_types)
        if inputs.input_type not in types:
            raise KeyError(f"input node type: found {inputs.input_type!r}, expected one of {types}")
        nodes, edges, node_counts, edge_counts = self._engine.sample(
            [(types.index(inputs.input_type), seeds)],
            self._fanouts,
            self.replace,
            random_key() if key is None else key % 2**64,
            self.num_threads,
        )
        metadata = (inputs.input_id, inputs.time)
        if self.is_hetero:
            names = self.graph.edge_types
            return HeteroSamplerOutput(
                node=dict(zip(types, nodes, strict=True)),
                row={n: e[0] for n, e in zip(names, edges, strict=True)},
                col={n: e[1] for n, e in zip(names, edges, strict=True)},
                edge={n: e[2] for n, e in zip(names, edges, strict=True)},
                batch=None,
                num_sampled_nodes=dict(zip(types, node_counts, strict=True)),
                num_sampled_edges=dict(zip(names, edge_counts, strict=True)),
                metadata=metadata,
            )
        empty = torch.empty(0, dtype=torch.int64)
        row, col, slot = edges[0] if edges else (empty, empty, empty)
        return SamplerOutput(
            node=nodes[0],
            row=row,
            col=col,
            edge=slot,
            batch=None,
            num_sampled_nodes=node_counts[0],
            num_sampled_edges=edge_counts[0] if edge_counts else [],
            metadata=metadata,
        )

    def sample_from_edges(self, *args: Any, **kwargs: Any) -> Any:
        """Not available: link seeds are sampled by PyG's own ``LinkNeighborLoader``.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "sample_from_edges: this release samples from nodes; use "
            "torch_geometric.loader.LinkNeighborLoader on a graph in memory"
        )
