"""Seed edges in, batches out: ``LinkLoader`` by a sampler that is given, ``LinkNeighborLoader``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch_geometric.loader
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader.utils import infer_filter_per_worker
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling
from torch_geometric.sampler.base import SubgraphType

from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.loader.engine import EngineLoader
from pyg_graphzero.loader.first_aggregation import check_first_aggregation
from pyg_graphzero.loader.inputs import check_edge_labels, sampler_of
from pyg_graphzero.loader.keyed import Graph_co
from pyg_graphzero.loader.stored_edges import StoredEdges
from pyg_graphzero.pyg.data import edge_storages
from pyg_graphzero.pyg.lazy import OnDemand
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.sampling.base import Prepared
from pyg_graphzero.sampling.excluded import excluded_types
from pyg_graphzero.sampling.graph import plain, resolve
from pyg_graphzero.sampling.neighbor import NeighborSampler
from pyg_graphzero.sampling.options import SamplingOptions
from pyg_graphzero.sampling.windows import check_of_seeds
from pyg_graphzero.store.schema import EdgeType


class LinkLoader(EngineLoader[Graph_co], torch_geometric.loader.LinkLoader):
    """A mini-batch loader around seed edges; see PyG's class of the same name.

    A subclass of PyG's ``LinkLoader`` that takes its arguments and yields its batches, and the base
    of ``LinkNeighborLoader``. With a ``gz.sampler.NeighborSampler`` the engine samples and gathers,
    as there. Any other sampler samples as it does in PyG's loader, in processes; over a store,
    attributes are read whole then.

    Args:
        data: The graph; see ``NodeLoader``.
        link_sampler: A ``gz.sampler.NeighborSampler``, or any PyG ``BaseSampler`` that samples from
            edges, over the same graph.
        edge_label_index: Seeds: None (all edges), integers ``[2, n]``, a mask of the edges or the
            name of one, an edge type, or (edge type, one of these); see ``LinkNeighborLoader``.
        edge_label: One label per seed, ``[n]``; with a mask one for each edge.
        edge_label_time: One time per seed, likewise; needs a sampler with a ``time_attr``.
        neg_sampling: How negatives are drawn; see ``LinkNeighborLoader``.
        neg_sampling_ratio: Deprecated by PyG: binary negatives per seed.
        transform: Called with every batch.
        transform_sampler_output: Called with every sampler output.
        filter_per_worker: Matters only with a sampler that is not ours; the engine gathers ahead.
        custom_cls: Taken for PyG's sake.
        input_id: Shown by ``batch.input_id`` for each seed, ``int64 [n]``; None: its position.
        exclude_seed_edges: With a sampler of ours, seed edges are no messages of their own batch;
            see ``LinkNeighborLoader``.
        device: Where batches are delivered; see ``NeighborLoader``.
        edge_ids: With a sampler of ours, batches have ``e_id``; see ``NeighborLoader``.
        options: ``exclude_edges`` and ``seed_order``; how neighbours are drawn is for
            the sampler to be told.
        **kwargs: Arguments of ``torch.utils.data.DataLoader``; see ``NeighborLoader``.

    Raises:
        ValueError: An argument that does not fit the graph.
        IndexError: An end of a seed edge is not a node.
        MemoryBudgetError: No room for the order of all edges; see ``seed_order``.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> data = gz.open(example_store).data()
        >>> sampler = gz.sampler.NeighborSampler(data, num_neighbors=[-1])
        >>> edges = torch.tensor([[0, 1], [1, 2]])
        >>> loader = gz.loader.LinkLoader(data, sampler, edges, neg_sampling="binary", batch_size=2)
        >>> next(iter(loader)).edge_label.tolist()
        [1.0, 1.0, 0.0, 0.0]
    """

    _taken = ("exclude_edges", "seed_order")

    def __init__(
        self,
        data: Graph_co | Store | Sequence[Any],
        link_sampler: Any,
        edge_label_index: Any = None,
        edge_label: Tensor | None = None,
        edge_label_time: Tensor | None = None,
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        transform: Any = None,
        transform_sampler_output: Any = None,
        filter_per_worker: bool | None = None,
        custom_cls: Any = None,
        input_id: Tensor | None = None,
        *,
        exclude_seed_edges: bool | str | Mapping[EdgeType, EdgeType] = False,
        device: Any = None,
        edge_ids: bool = True,
        options: SamplingOptions | None = None,
        **kwargs: Any,
    ) -> None:
        self._keep(device, options, link_sampler)
        if neg_sampling_ratio is not None and neg_sampling_ratio != 0.0:
            neg_sampling = NegativeSampling("binary", neg_sampling_ratio)
        # Lightning makes loaders anew from attributes named as their arguments are.
        self.data = data = resolve(data)
        self.link_sampler = link_sampler
        self.edge_label_index = edge_label_index
        self.edge_label = edge_label
        self.edge_label_time = edge_label_time
        self.neg_sampling = NegativeSampling.cast(neg_sampling)
        self.transform = transform
        self.transform_sampler_output = transform_sampler_output
        own = infer_filter_per_worker(data) if filter_per_worker is None else filter_per_worker
        self.filter_per_worker = own
        self.custom_cls = custom_cls
        self.input_id = input_id
        self.exclude_seed_edges = exclude_seed_edges
        self.edge_ids = edge_ids
        name, edges = check_edge_labels(data, edge_label_index)
        self._excluded = self._excluded_types(name)
        self.input_data = self._seed_edges(name, edges, edge_label, edge_label_time, input_id)
        check_of_seeds(_count(self.input_data), time_window=self.seed_windows)
        self._load(_count(self.input_data), kwargs)

    def _seed_edges(
        self,
        name: EdgeType | None,
        edges: Any,
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
        own: Any = edge_storages(self.data).get(name)  # seeds may be of another relation
        count = own.num_edges if edges is None else edges.shape[-1]
        check_of_seeds(count, edge_label=label, edge_label_time=time, input_id=input_id)
        is_mask = edges is not None and len(edges.shape) == 1
        on_disk = isinstance(sampler, NeighborSampler) and sampler.graph.on_disk(name)
        if (edges is None or is_mask) and on_disk and not sampler.graph.backward:
            mask = sampler.graph.in_slots(name, edges, "edge_label_index") if is_mask else None
            return StoredEdges(sampler, name, label, time, input_id, self.options.seed_order, mask)
        if self.options.seed_order == "store":
            raise ValueError(
                "seed_order='store': found seed edges of another order, expected edge_label_index "
                "to name all edges of a store (None, or an edge type)"
            )
        if is_mask:
            chosen = edges.value() if isinstance(edges, OnDemand) else edges
            at = chosen.nonzero().view(-1)
            label, time = (None if each is None else each[at] for each in (label, time))
            input_id = at if input_id is None else input_id[at]
        if edges is None or is_mask:
            edges = plain(own.edge_index)
            edges = edges[:, at] if is_mask else edges
        return EdgeSamplerInput(input_id, edges[0], edges[1], label, time, name)

    def _excluded_types(self, name: EdgeType | None) -> list[tuple[EdgeType | None, bool]]:
        sampler, value = self.link_sampler, self.exclude_seed_edges
        if value is False:
            return []
        if not isinstance(sampler, NeighborSampler):
            raise UnsupportedError(
                f"exclude_seed_edges={value!r}: found a {type(sampler).__name__}, expected a "
                "NeighborSampler of pyg_graphzero"
            )
        if value and sampler.options.method == "labor":
            raise UnsupportedError(
                f"exclude_seed_edges={value!r}: found method='labor', expected 'uniform'"
            )
        types = excluded_types(sampler.graph, name, value)
        if value is True and sampler.subgraph_type == SubgraphType.bidirectional:
            raise ValueError(
                "exclude_seed_edges=True: found subgraph_type='bidirectional', where the reverse "
                "of a message is one too; expected 'reverse', or a dict from the edge type to its "
                "reverse"
            )
        return types

    @property
    def graph_sampler(self) -> Any:
        """The sampler in use, ours or not."""
        return self.link_sampler

    def _prepare(self, index: Any, key: int) -> Prepared:
        return self._around(self.input_data[index], key, index)

    def trial(self, index: Tensor, key: int) -> Prepared:
        """Prepares a sample of as many seeds, no matter which: ``index`` is random."""
        seeds = self.input_data
        return self._around(
            seeds.in_slots(index) if isinstance(seeds, StoredEdges) else seeds[index], key, index
        )

    def _around(self, seeds: EdgeSamplerInput, key: int, index: Any) -> Prepared:
        windows = () if self.seed_windows is None else (self.seed_windows[index],)
        prepared: Prepared = self.link_sampler.prepare_edges(
            seeds, self.neg_sampling, key, self.options.exclude_edges, *windows,
            excluded=self._excluded,
        )  # fmt: skip
        return prepared

    def seed_rows(self) -> Tensor | None:
        """Destinations of the seeds; see :class:`~pyg_graphzero.memory.source.BatchSource`."""
        seeds = self.input_data
        return None if isinstance(seeds, StoredEdges) else seeds.col  # by destination already

    def _label(self, batch: Data | HeteroData, metadata: Any) -> None:
        name = self.input_data.input_type
        seeds, src, dst = (
            (batch, batch, batch) if name is None else (batch[name], batch[name[0]], batch[name[2]])
        )
        seeds.input_id = metadata[0]
        if self.neg_sampling is not None and self.neg_sampling.is_triplet():
            src.src_index, dst.dst_pos_index, dst.dst_neg_index = metadata[1:4]
            src.seed_time = dst.seed_time = metadata[4]
            # The graph's own, of a split, are none of this batch's.
            seeds.edge_label_index = seeds.edge_label_time = None
        else:
            seeds.edge_label_index, seeds.edge_label, seeds.edge_label_time = metadata[1:4]


class LinkNeighborLoader(LinkLoader[Graph_co], torch_geometric.loader.LinkNeighborLoader):
    """A mini-batch loader around seed edges; see PyG's class of the same name.

    A subclass of PyG's ``LinkNeighborLoader`` that takes its arguments and yields its batches.
    Sampling, negatives included, is a function of the batch's key (see ``NeighborLoader``). Where
    ``edge_label_index`` names all edges of a store, neither row of them is built in memory: they
    are looked up batch by batch, in the order of the input; see ``SamplingOptions.seed_order``.

    Args:
        data: The graph; see ``NeighborLoader``.
        num_neighbors: Fan-out per hop; see ``NeighborLoader``.
        edge_label_index: Seeds: None (all edges), a tensor ``[2, n]``, a mask ``bool [num_edges]``,
            an edge type, or (edge type, one of these). A mask may be given as the name of an edge
            attribute: of a store, 4 bytes for each of its seeds are held, which come by destination
            as in the store; ``input_id`` says which edge a seed is.
        edge_label: One label per seed; with a mask one for each edge.
        edge_label_time: One time per seed, likewise; needs ``time_attr``.
        replace: Draw with replacement.
        subgraph_type: ``"directional"``, ``"bidirectional"`` or ``"induced"``.
        disjoint: Every seed edge grows a tree of its own, named by ``batch.batch``.
        temporal_strategy: ``"uniform"``, or ``"last"`` for the newest neighbours.
        neg_sampling: PyG's ``NegativeSampling``, ``"binary"`` or ``"triplet"``. A subclass's own
            ``sample()`` draws from torch's generator, which threads share.
        neg_sampling_ratio: Deprecated by PyG: binary negatives per seed.
        time_attr: Node or edge attribute with times; see ``NeighborLoader``.
        time_window: With ``time_attr``; see ``NeighborLoader``. A tensor has a number for each seed
            edge.
        weight_attr: Edge attribute in proportion to which neighbours are drawn.
        transform: Called with every batch.
        transform_sampler_output: Called with every sampler output.
        is_sorted: Neighbourhoods are sorted by time already.
        filter_per_worker: Matters only with a sampler that is not ours; the engine gathers ahead.
        neighbor_sampler: A PyG ``BaseSampler`` to use instead.
        directed: Deprecated; False means ``subgraph_type="induced"``.
        exclude_seed_edges: True: no seed edge of a batch is a message in it, so that its label
            cannot be read off the graph; ``"reverse"``: nor is its reverse, of the same type or of
            PyG's ``rev_`` name; a dict from edge type to reverse type names another. Edges are
            known by their ends, parallel ones too; where edges have times, only those of the seed's
            own time are left out. Neighbours are drawn among the rest.
        device: Where batches are delivered; see ``NeighborLoader``.
        edge_ids: Batches have ``e_id``. Where it is not used, False spares a lookup for every
            edge, and reads where the ids do not fit in memory.
        first_aggregation: ``"mean"`` or ``"sum"``: neighbours' features arrive added up; see
            ``NeighborLoader``.
        options: How neighbours, negatives and seeds are drawn beyond that; see ``SamplingOptions``.
        **kwargs: ``input_id``, ``custom_cls`` and the arguments of ``DataLoader``.

    Raises:
        ValueError: An argument that does not fit the graph.
        IndexError: An end of a seed edge is not a node.
        UnsupportedError: ``first_aggregation`` with what makes batches in another way.
        MemoryBudgetError: No room for the order of all edges; see ``seed_order``.

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
        data: Graph_co | Store | Sequence[Any],
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
        exclude_seed_edges: bool | str | Mapping[EdgeType, EdgeType] = False,
        device: Any = None,
        edge_ids: bool = True,
        time_window: Any = None,
        first_aggregation: str | None = None,
        options: SamplingOptions | None = None,
        **kwargs: Any,
    ) -> None:
        if (edge_label_time is None) != (time_attr is None) and neighbor_sampler is None:
            raise ValueError(
                f"edge_label_time and time_attr={time_attr!r}: found one without the other, "
                "expected both or neither"
            )
        data = resolve(data)
        sampler = sampler_of(self, data, locals(), self._taken)
        super().__init__(
            data, sampler, edge_label_index, edge_label, edge_label_time, neg_sampling,
            neg_sampling_ratio, transform, transform_sampler_output, filter_per_worker,
            exclude_seed_edges=exclude_seed_edges, device=device, edge_ids=edge_ids,
            options=options, **kwargs,
        )  # fmt: skip
        check_first_aggregation(first_aggregation, self)


def _count(seeds: StoredEdges | EdgeSamplerInput) -> int:
    return len(seeds) if isinstance(seeds, StoredEdges) else seeds.row.numel()
