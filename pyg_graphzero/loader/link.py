"""``LinkNeighborLoader``: seed edges in, batches out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch_geometric.loader
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader.utils import infer_filter_per_worker
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling

from pyg_graphzero.loader.engine import EngineLoader
from pyg_graphzero.loader.inputs import check_ahead, check_edge_labels
from pyg_graphzero.loader.keyed import Graph_co
from pyg_graphzero.loader.locality import store_rows
from pyg_graphzero.loader.stored_edges import SEED_ORDERS, StoredEdges
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.sampling.base import Prepared
from pyg_graphzero.sampling.graph import plain, resolve
from pyg_graphzero.sampling.neighbor import NeighborSampler
from pyg_graphzero.sampling.options import SamplingOptions, check_given, one_of
from pyg_graphzero.sampling.windows import check_seed_windows, split_window
from pyg_graphzero.store.schema import EdgeType


class LinkNeighborLoader(EngineLoader[Graph_co], torch_geometric.loader.LinkNeighborLoader):
    """A mini-batch loader around seed edges; see PyG's class of the same name.

    A subclass of PyG's ``LinkNeighborLoader`` that takes its arguments and yields its batches.
    Sampling, negatives included, is a function of the batch's key (see ``NeighborLoader``). Where
    ``edge_label_index`` names all edges of a store, neither row of them is built in memory: they
    are looked up batch by batch, in the order of the input, see ``seed_order``.

    Args:
        data: The graph; see ``NeighborLoader``.
        num_neighbors: Fan-out per hop; see ``NeighborLoader``.
        edge_label_index: Seeds: None (all edges), a tensor ``[2, n]``, an edge type, or
            (edge type, tensor or None).
        edge_label: One label per seed.
        edge_label_time: One time per seed; needs ``time_attr``.
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
        strict: With ``time_attr``: nothing of the seed's very time is drawn either.
        weight_attr: Edge attribute in proportion to which neighbours are drawn.
        transform: Called with every batch.
        transform_sampler_output: Called with every sampler output.
        is_sorted: Neighbourhoods are sorted by time already.
        filter_per_worker: Matters only with a sampler that is not ours; the engine gathers ahead.
        neighbor_sampler: A PyG ``BaseSampler`` to use instead.
        directed: Deprecated; False means ``subgraph_type="induced"``.
        exclude_edges: No negative is an edge of the graph (PyG's may be). Not with node times.
        device: Where batches are delivered; see ``NeighborLoader``.
        edge_ids: Batches have ``e_id``. Where it is not used, False spares a lookup for every
            edge, and reads where the ids do not fit in memory.
        method: ``"uniform"`` or ``"labor"``; see ``NeighborLoader``.
        layer_dependency: An option of ``"labor"``; see ``NeighborLoader``.
        batch_dependency: An option of ``"labor"``; see ``NeighborLoader``.
        ahead: ``"mean"`` or ``"sum"``: neighbours' features arrive added up; see
            ``NeighborLoader``.
        locality: With ``shuffle=True``: seed edges whose destinations lie next to each other in the
            store are shuffled in groups of this many; None shuffles them one by one.
        seed_order: Where seeds are all edges of a store: ``"input"``: position i is edge i, as in
            PyG. Where the input was not sorted by destination that costs 4 bytes an edge, at most
            an eighth of the budget if nothing is shuffled, and some passes over the edge ids.
            ``"store"``: positions are by destination, as edges lie in the store, which costs
            nothing; ``input_id`` says which edge a seed is. ``locality`` implies it.
        **kwargs: ``input_id``, ``custom_cls`` and the arguments of ``DataLoader``.

    Raises:
        ValueError: An argument that does not fit the graph.
        IndexError: An end of a seed edge is not a node.
        UnsupportedError: ``ahead`` with what makes batches in another way.
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
        exclude_edges: bool = False,
        device: Any = None,
        edge_ids: bool = True,
        time_window: Any = None,
        strict: bool = False,
        method: str = "uniform",
        layer_dependency: bool = False,
        batch_dependency: int = 1,
        ahead: str | None = None,
        locality: int | None = None,
        seed_order: str = "input",
        **kwargs: Any,
    ) -> None:
        subgraph_type = subgraph_type if directed else "induced"
        given_window, (time_window, self._seed_windows) = time_window, split_window(time_window)
        check_given(neighbor_sampler, locals())
        options = SamplingOptions.of(locals()) if neighbor_sampler is None else None
        if (edge_label_time is None) != (time_attr is None) and neighbor_sampler is None:
            raise ValueError(
                f"edge_label_time and time_attr={time_attr!r}: found one without the other, "
                "expected both or neither"
            )
        self._keep(device, locality, kwargs)
        one_of("seed_order", seed_order, SEED_ORDERS)
        self.seed_order = seed_order
        data = resolve(data)
        name, edges = check_edge_labels(data, edge_label_index)
        if options is not None:
            neighbor_sampler = NeighborSampler.of(data, num_neighbors, options)
        if neg_sampling_ratio is not None and neg_sampling_ratio != 0.0:
            neg_sampling = NegativeSampling("binary", neg_sampling_ratio)
        self.edge_ids = edge_ids
        self.data = data
        self.link_sampler = neighbor_sampler
        # Lightning makes loaders anew from attributes named as their arguments are.
        self.num_neighbors = num_neighbors
        self.neighbor_sampler = neighbor_sampler
        self.time_window, self.strict = given_window, strict
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
            name, edges, edge_label, edge_label_time, kwargs.pop("input_id", None), _rises(kwargs)
        )
        check_seed_windows(self._seed_windows, _count(self.input_data))
        check_ahead(ahead, self)
        self.ahead = ahead
        self._load(_count(self.input_data), kwargs)

    def _seed_edges(
        self,
        name: EdgeType | None,
        edges: Tensor | None,
        label: Tensor | None,
        time: Tensor | None,
        input_id: Tensor | None,
        in_order: bool,
    ) -> StoredEdges | EdgeSamplerInput:
        if self.neg_sampling is not None and label is not None:
            if self.neg_sampling.is_triplet():
                raise ValueError("edge_label: found some, expected none with triplet negatives")
            if label.numel() and label.min() == 0:
                label = label + 1  # 0 stands for "negative", as in PyG
        sampler = self.link_sampler
        seeds: StoredEdges | EdgeSamplerInput
        on_disk = isinstance(sampler, NeighborSampler) and sampler.graph.on_disk(name)
        if edges is None and on_disk and not sampler.graph.backward:
            is_grouped = self.locality is not None and self.locality > 1
            order = "store" if is_grouped else self.seed_order
            seeds = StoredEdges(sampler, name, label, time, input_id, order, in_order)
        elif self.seed_order == "store":
            raise ValueError(
                "seed_order='store': found seed edges of another order, expected edge_label_index "
                "to name all edges of a store (None, or an edge type)"
            )
        else:
            if edges is None:
                edges = plain((self.data if name is None else self.data[name]).edge_index)
            seeds = EdgeSamplerInput(input_id, edges[0], edges[1], label, time, name)
        count = _count(seeds)
        given = (("edge_label", label), ("edge_label_time", time), ("input_id", input_id))
        for what, values in given:
            if values is not None and values.size(0) != count:
                raise ValueError(f"{what}: found {values.size(0)}, expected {count}")
        return seeds

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
        windows = () if self._seed_windows is None else (self._seed_windows[index],)
        prepared: Prepared = self.link_sampler.prepare_edges(
            seeds, self.neg_sampling, key, self.exclude_edges, *windows
        )
        return prepared

    def seed_rows(self) -> Tensor | None:
        """Where the seeds' rows lie; see :class:`~pyg_graphzero.memory.source.BatchSource`."""
        seeds, name = self.input_data, self.input_data.input_type
        dst_type = None if name is None else name[2]
        if isinstance(seeds, StoredEdges):
            return None  # by destination already
        return store_rows(self.graph_sampler, dst_type, seeds.col)

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


def _count(seeds: StoredEdges | EdgeSamplerInput) -> int:
    return len(seeds) if isinstance(seeds, StoredEdges) else seeds.row.numel()


def _rises(arguments: dict[str, Any]) -> bool:
    """Whether a ``DataLoader`` of these arguments takes one seed after the other."""
    chosen = any(arguments.get(name) is not None for name in ("sampler", "batch_sampler"))
    return not (chosen or arguments.get("shuffle"))
