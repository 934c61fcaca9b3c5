"""``LinkNeighborLoader``: seed edges in, batches out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch_geometric.loader
from torch import Tensor

from pyg_graphzero.loader.first_aggregation import check_first_aggregation
from pyg_graphzero.loader.inputs import sampler_of
from pyg_graphzero.loader.keyed import Graph_co
from pyg_graphzero.loader.links import LinkLoader
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.sampling.graph import resolve
from pyg_graphzero.sampling.options import SamplingOptions
from pyg_graphzero.store.schema import EdgeType


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
        sampler = sampler_of(self, data, locals())
        super().__init__(
            data, sampler, edge_label_index, edge_label, edge_label_time, neg_sampling,
            neg_sampling_ratio, transform, transform_sampler_output, filter_per_worker,
            exclude_seed_edges=exclude_seed_edges, device=device, edge_ids=edge_ids,
            options=options, **kwargs,
        )  # fmt: skip
        check_first_aggregation(first_aggregation, self)
