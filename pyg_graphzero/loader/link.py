"""``LinkNeighborLoader``: seed edges in, batches out."""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric.loader
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader.utils import infer_filter_per_worker
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling

from pyg_graphzero.columns import gather, permuted
from pyg_graphzero.graph import plain, resolve
from pyg_graphzero.loader.engine import EngineLoader
from pyg_graphzero.loader.inputs import check_edge_labels
from pyg_graphzero.loader.keyed import Positions
from pyg_graphzero.loader.locality import check_locality, store_rows
from pyg_graphzero.methods import check_given
from pyg_graphzero.sampler import NeighborSampler, Prepared
from pyg_graphzero.schema import EdgeType


class StoredEdges:
    """All edges of one type as seeds, looked up in the CSC arrays batch by batch.

    Seeds come by destination, in whatever order the store has the nodes; their ``input_id`` is the
    original edge id. Stands in for PyG's ``EdgeSamplerInput`` without its two rows of ids.
    """

    def __init__(
        self,
        sampler: NeighborSampler,
        name: EdgeType | None,
        label: Tensor | None,
        time: Tensor | None,
    ) -> None:
        self.sampler = sampler
        self.input_type = name
        self.label = label
        self.time = time
        self._open()

    def _open(self) -> None:
        graph = self.sampler.graph
        self.row_indptr, self.indices = graph.csc(self.input_type)
        _, dst = graph.ends(self.input_type)
        rank = graph.rank(dst)
        self.indptr = self.row_indptr
        if rank is not None:  # by nodes: where the edges of each are among the seeds
            degree = permuted(self.row_indptr.diff(), rank)
            self.indptr = torch.cat([degree.new_zeros(1), degree.cumsum(0)])

    def __getstate__(self) -> dict[str, Any]:
        held = ("row_indptr", "indptr", "indices")
        return {k: v for k, v in self.__dict__.items() if k not in held}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __len__(self) -> int:
        return self.indices.numel()

    def __getitem__(self, index: Tensor) -> EdgeSamplerInput:
        graph, (src_type, dst_type) = self.sampler.graph, self.sampler.graph.ends(self.input_type)
        dst = torch.searchsorted(self.indptr, index, right=True) - 1
        slots = index
        if self.indptr is not self.row_indptr:
            first = gather(self.row_indptr, graph.rows(dst_type, dst))
            slots = index - gather(self.indptr, dst) + first
        edge_id = self.sampler.original_edge_ids(self.input_type, slots)
        return EdgeSamplerInput(
            edge_id,
            graph.nodes(src_type, gather(self.indices, slots).to(torch.int64)),
            dst,
            None if self.label is None else self.label[edge_id],
            None if self.time is None else self.time[edge_id],
            self.input_type,
        )


class LinkNeighborLoader(EngineLoader, torch_geometric.loader.LinkNeighborLoader):
    """A mini-batch loader around seed edges; see PyG's class of the same name.

    A subclass of PyG's ``LinkNeighborLoader`` that takes its arguments and yields its batches.
    Sampling, negatives included, is a function of the batch's key (see ``NeighborLoader``). Where
    ``edge_label_index`` names all edges of a store, nothing of their size is built in memory: seeds
    then come by destination, with their original edge id as ``input_id``.

    Args:
        data: What ``NeighborLoader`` takes.
        num_neighbors: Fan-out per hop; see ``NeighborLoader``.
        edge_label_index: Seeds: None (all edges), a tensor ``[2, n]``, an edge type, or
            (edge type, tensor or None).
        edge_label: One label per seed.
        edge_label_time: One time per seed; needs ``time_attr``.
        replace: Draw with replacement.
        subgraph_type: ``"directional"``, ``"bidirectional"`` or ``"induced"``.
        disjoint: Every seed edge grows a tree of its own, named by ``batch.batch``.
        temporal_strategy: ``"uniform"``, or ``"last"`` for the newest neighbours.
        neg_sampling: PyG's ``NegativeSampling``, ``"binary"`` or ``"triplet"``.
        neg_sampling_ratio: Deprecated by PyG: binary negatives per seed.
        time_attr: Node or edge attribute with times; see ``NeighborLoader``.
        weight_attr: Edge attribute in proportion to which neighbours are drawn.
        transform: Called with every batch.
        transform_sampler_output: Called with every sampler output.
        is_sorted: Neighbourhoods are sorted by time already.
        filter_per_worker: As in PyG with somebody else's sampler; the engine gathers ahead.
        neighbor_sampler: A PyG ``BaseSampler`` to use instead.
        directed: Deprecated; False means ``subgraph_type="induced"``.
        exclude_edges: No negative is an edge of the graph (PyG's may be). Not with node times.
        device: Where batches are delivered; see ``NeighborLoader``.
        edge_ids: Batches have ``e_id``. Where it is not used, False spares a lookup for every
            edge, and reads where the ids do not fit in memory.
        method: ``"uniform"`` or ``"labor"``; see ``NeighborLoader``.
        layer_dependency: An option of ``"labor"``; see ``NeighborLoader``.
        batch_dependency: An option of ``"labor"``; see ``NeighborLoader``.
        locality: With ``shuffle=True``: seed edges whose destinations lie next to each other in the
            store are shuffled in groups of this many; None shuffles them one by one.
        **kwargs: ``input_id``, ``custom_cls`` and the arguments of ``DataLoader``.

    Raises:
        ValueError: An argument that does not fit the graph.
        IndexError: An end of a seed edge is not a node.

    Example:
        >>> import pyg_graphzero as gz
        >>> data = gz.open(example_store).data()
        >>> loader = gz.loader.LinkNeighborLoader(
        ...     data, num_neighbors=[-1], neg_sampling="binary", batch_size=2
        ... )
        >>> next(iter(loader)).edge_label.tolist()
        [1.0, 1.0, 0.0, 0.0]
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: Tensor | None = None,
        edge_label_time: Tensor | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Any = None,
        transform_sampler_output: Any = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        *,
        exclude_edges: bool = False,
        device: Any = None,
        edge_ids: bool = True,
        method: str = "uniform",
        layer_dependency: bool = False,
        batch_dependency: int = 1,
        locality: int | None = None,
        **kwargs: Any,
    ) -> None:
        if (edge_label_time is None) != (time_attr is None) and neighbor_sampler is None:
            raise ValueError(
                f"edge_label_time and time_attr={time_attr!r}: found one without the other, "
                "expected both or neither"
            )
        check_given(
            neighbor_sampler,
            method=method,
            layer_dependency=layer_dependency,
            batch_dependency=batch_dependency,
        )
        self.locality = check_locality(locality, kwargs)
        data = resolve(data)
        name, edges = check_edge_labels(data, edge_label_index)
        if neighbor_sampler is None:
            neighbor_sampler = NeighborSampler(
                data,
                num_neighbors,
                subgraph_type=subgraph_type if directed else "induced",
                replace=replace,
                disjoint=disjoint,
                temporal_strategy=temporal_strategy,
                time_attr=time_attr,
                weight_attr=weight_attr,
                is_sorted=is_sorted,
                method=method,
                layer_dependency=layer_dependency,
                batch_dependency=batch_dependency,
            )
        if neg_sampling_ratio is not None and neg_sampling_ratio != 0.0:
            neg_sampling = NegativeSampling("binary", neg_sampling_ratio)
        self.device = device
        self.edge_ids = edge_ids
        self.data = data
        self.link_sampler = neighbor_sampler
        # Lightning makes loaders anew from attributes named as their arguments are.
        self.num_neighbors = num_neighbors
        self.neighbor_sampler = neighbor_sampler
        self.method = method
        self.layer_dependency = layer_dependency
        self.batch_dependency = batch_dependency
        self.edge_label_index = edge_label_index
        self.edge_label = edge_label
        self.edge_label_time = edge_label_time
        self.time_attr = time_attr
        self.neg_sampling = NegativeSampling.cast(neg_sampling)
        self.exclude_edges = exclude_edges
        self.transform = transform
        self.transform_sampler_output = transform_sampler_output
        self.filter_per_worker = filter_per_worker
        if filter_per_worker is None:
            self.filter_per_worker = infer_filter_per_worker(data)
        self.custom_cls = kwargs.pop("custom_cls", None)
        self.input_data = self._seed_edges(
            name, edges, edge_label, edge_label_time, kwargs.pop("input_id", None)
        )
        kwargs.pop("dataset", None)
        kwargs.pop("collate_fn", None)
        # Not PyG's constructor, which copies both rows of the seed edges.
        positions: Any = Positions(_count(self.input_data))
        DataLoader.__init__(self, positions, collate_fn=self.collate_fn, **kwargs)

    def _seed_edges(
        self,
        name: EdgeType | None,
        edges: Tensor | None,
        label: Tensor | None,
        time: Tensor | None,
        input_id: Tensor | None,
    ) -> StoredEdges | EdgeSamplerInput:
        if self.neg_sampling is not None and label is not None:
            if self.neg_sampling.is_triplet():
                raise ValueError("edge_label: found some, expected none with triplet negatives")
            if label.numel() and label.min() == 0:
                label = label + 1  # 0 stands for "negative", as in PyG
        sampler = self.link_sampler
        seeds: StoredEdges | EdgeSamplerInput
        on_disk = isinstance(sampler, NeighborSampler) and sampler.graph.on_disk(name)
        if edges is None and on_disk and not sampler.graph.backward and input_id is None:
            seeds = StoredEdges(sampler, name, label, time)
        else:
            if edges is None:
                edges = plain((self.data if name is None else self.data[name]).edge_index)
            seeds = EdgeSamplerInput(input_id, edges[0], edges[1], label, time, name)
        count = _count(seeds)
        for what, values in (("edge_label", label), ("edge_label_time", time)):
            if values is not None and values.size(0) != count:
                raise ValueError(f"{what}: found {values.size(0)}, expected {count}")
        return seeds

    @property
    def _sampler(self) -> Any:
        return self.link_sampler

    def _prepare(self, index: Any, key: int) -> Prepared:
        prepared: Prepared = self.link_sampler.prepare_edges(
            self.input_data[index], self.neg_sampling, key, self.exclude_edges
        )
        return prepared

    def _seed_rows(self) -> Tensor | None:
        seeds, name = self.input_data, self.input_data.input_type
        dst_type = None if name is None else name[2]
        if not isinstance(seeds, StoredEdges):
            return store_rows(self._sampler, dst_type, seeds.col)
        rank = seeds.sampler.graph.rank(dst_type)
        if rank is None:
            return None
        return torch.repeat_interleave(rank.to(torch.int64), seeds.indptr.diff())

    def _label(self, batch: Data | HeteroData, metadata: Any) -> None:
        name = self.input_data.input_type
        seeds, src, dst = (
            (batch, batch, batch) if name is None else (batch[name], batch[name[0]], batch[name[2]])
        )
        seeds.input_id = metadata[0]
        if self.neg_sampling is not None and self.neg_sampling.is_triplet():
            src.src_index, dst.dst_pos_index, dst.dst_neg_index = metadata[1:4]
            src.seed_time = dst.seed_time = metadata[4]
        else:
            seeds.edge_label_index, seeds.edge_label, seeds.edge_label_time = metadata[1:4]


def _count(seeds: StoredEdges | EdgeSamplerInput) -> int:
    return len(seeds) if isinstance(seeds, StoredEdges) else seeds.row.numel()
