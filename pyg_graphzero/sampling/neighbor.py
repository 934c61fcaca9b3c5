"""Neighbour sampling as a PyG ``BaseSampler``, over a store or a graph in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.sampler import (
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    NumNeighbors,
    SamplerOutput,
)
from torch_geometric.sampler.base import SubgraphType
from typing_extensions import Self

from pyg_graphzero import _core
from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.sampling.base import GraphSampler, Prepared, Reading, Sampled
from pyg_graphzero.sampling.excluded import excluded_edges
from pyg_graphzero.sampling.graph import SampledGraph, Unmapped, graph_of, resolve
from pyg_graphzero.sampling.link_seeds import link_seeds
from pyg_graphzero.sampling.negatives import Negatives
from pyg_graphzero.sampling.options import (
    OF_NEIGHBORS,
    Description,
    SamplingOptions,
    fan_outs,
    options_of,
)
from pyg_graphzero.sampling.order import add_order
from pyg_graphzero.sampling.windows import latest_seen, seed_times
from pyg_graphzero.store.columns import engine_array, gather
from pyg_graphzero.store.edge_order import earlier
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.arguments import check_index_set
from pyg_graphzero.util.keys import BatchKey, random_key


class NeighborSampler(GraphSampler):
    """Samples the multi-hop neighbourhood of seed nodes.

    Sampling is over in-neighbours, uniform or by weight, with or without replacement (Hamilton et
    al. 2017, "Inductive Representation Learning on Large Graphs"). A batch is a function of its key
    alone: the same for any number of threads.

    Args:
        data: A ``Store``, its ``.data()``, its two stores, or ``Data``/``HeteroData`` in memory.
        num_neighbors: Fan-out per hop: a list, a dict of lists by edge type, or PyG's
            ``NumNeighbors``. ``-1`` takes all neighbours, ``0`` none.
        subgraph_type: ``"directional"``; ``"bidirectional"`` adds the reverse of every sampled
            edge; ``"induced"`` takes all edges among the sampled nodes.
        replace: Draw with replacement.
        disjoint: Every seed grows a tree of its own; implied by ``time_attr``.
        temporal_strategy: ``"uniform"``, or ``"last"`` for the newest neighbours.
        time_attr: Node or edge attribute with times: no neighbour (edge) later than its seed is
            drawn. Node times stand in for seed times where none are given.
        time_window: With ``time_attr``: nor one that is more than this earlier than its seed. A
            number in the units of the times; None is no limit. An edge of exactly that age is
            still drawn.
        weight_attr: Edge attribute with weights: draws are in proportion to it, edges of weight 0
            are never drawn unless all neighbours are asked for.
        is_sorted: Neighbourhoods are sorted by time already.
        share_memory: Taken for PyG's sake: processes share the files.
        directed: ``False`` is PyG's older word for ``subgraph_type="induced"``.
        sample_direction: ``"forward"`` draws in-neighbours, ``"backward"`` out-neighbours.
        num_threads: Threads inside one batch; 0 uses as many as torch does.
        options: How neighbours are drawn beyond that: ``method`` and its options,
            ``strictly_earlier``.

    Raises:
        ValueError: A fan-out below -1, lists of different length, an attribute that is not there,
            ``"labor"`` with ``replace`` or with the ``"last"`` neighbours, an option of a loader.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> from torch_geometric.sampler import NodeSamplerInput
        >>> sampler = gz.sampler.NeighborSampler(gz.open(example_store).data(), [-1])
        >>> out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([2])))
        >>> out.node.tolist(), out.num_sampled_edges
        ([2, 1, 0], [2])
    """

    description: Description
    _taken: tuple[str, ...] = OF_NEIGHBORS  # options
    _directions = 1  # in which the engine has each edge type

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        subgraph_type: SubgraphType | str = "directional",
        replace: bool = False,
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        is_sorted: bool = False,
        share_memory: bool = False,
        directed: bool = True,
        sample_direction: str = "forward",
        *,
        num_threads: int = 0,
        time_window: Any = None,
        options: SamplingOptions | None = None,
    ) -> None:
        options = options_of(options, self, self._taken)
        self._begin(data, num_neighbors, Description.of(locals()), num_threads)

    @classmethod
    def of(cls, data: Any, num_neighbors: Any, description: Description) -> Self:
        """One that draws so."""
        self = cls.__new__(cls)
        self._begin(data, num_neighbors, description, 0)
        return self

    def __getattr__(self, name: str) -> Any:
        """The description, as attributes that PyG's sampler has."""
        described = vars(self.__dict__["description"]) if "description" in self.__dict__ else {}
        if name not in described:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return described[name]

    def __setattr__(self, name: str, value: Any) -> None:
        described = self.__dict__.get("description")
        if described is not None and name in vars(described):
            name, value = "description", dataclasses.replace(described, **{name: value})
        super().__setattr__(name, value)

    def _begin(
        self, data: Any, num_neighbors: Any, description: Description, num_threads: int
    ) -> None:
        data, backward = resolve(data), description.sample_direction == "backward"
        graph = graph_of(data, backward=backward)
        self._prepare_graph(graph, data, description)
        self.description = description
        super().__init__(graph, None not in graph.node_types, num_threads)
        self.num_neighbors = num_neighbors

    def _prepare_graph(self, graph: SampledGraph, data: Any, own: Description) -> None:
        """Finds what the engine draws by, before it is built."""
        if own.time_attr is not None or own.weight_attr is not None:
            add_order(graph, data, own.time_attr, own.weight_attr, own.is_sorted)

    def _build(self, unmapped: Mapping[EdgeType | None, Unmapped]) -> _core.NeighborSampler:
        return _core.NeighborSampler(self.graph.builder(unmapped))

    @property
    def num_neighbors(self) -> NumNeighbors:
        """The fan-out."""
        return self._num_neighbors

    @num_neighbors.setter
    def num_neighbors(self, value: Any) -> None:
        value = value.tolist() if isinstance(value, (np.ndarray, Tensor)) else value
        fanout = value if isinstance(value, NumNeighbors) else NumNeighbors(value)
        self._fanouts = fan_outs(fanout, self.graph.edge_types, self.is_hetero)
        self._num_neighbors = fanout

    def recipe(
        self, plan: _core.GatherPlan | None = None, reading: Reading | None = None
    ) -> _core.Recipe:
        """How the engine makes batches; see :meth:`GraphSampler.recipe`."""
        own, reading = self.description, reading or self._mapped
        return _core.Recipe.neighbors(
            reading.engine,
            self._fanouts * self._directions,
            replace=own.replace,
            disjoint=own.disjoint,
            last=own.temporal_strategy == "last",
            induced=own.subgraph_type == SubgraphType.induced,
            whole_frontier=own.whole_frontier,
            plan=plan,
            # Walked backwards, messages still go along the edges.
            backward=self.graph.backward,
            labor=own.labor,
            window=reading.window,
        )

    def sample(self, prepared: Prepared, key: int) -> SamplerOutput | HeteroSamplerOutput:
        """Samples a batch; the same key gives the same sample.

        Raises:
            UnsupportedError: ``batch_dependency``, and a key that is not of a batch in an epoch.
        """
        batches = self.options.batch_dependency
        if batches > 1 and not isinstance(key, BatchKey):
            raise UnsupportedError(
                f"batch_dependency={batches}: found a batch without its number in an "
                "epoch, expected batches of gz.loader's loaders, which number them"
            )
        return super().sample(prepared, key)

    @property
    def is_final(self) -> bool:  # type: ignore[override]
        """See :attr:`GraphSampler.is_final`: reverse edges are added."""
        return self.subgraph_type != SubgraphType.bidirectional

    @property
    def may_read(self) -> bool:  # type: ignore[override]
        """See :attr:`GraphSampler.may_read`: LABOR looks at every neighbour of a frontier."""
        return self.description.labor is None

    @property
    def is_by_hop(self) -> bool:  # type: ignore[override]
        """Whether every edge was sampled in a hop; induced ones are of none."""
        return self.subgraph_type != SubgraphType.induced

    def prepare_nodes(self, inputs: NodeSamplerInput, windows: Tensor | None = None) -> Prepared:
        """Lays out a sample around seed nodes.

        Args:
            inputs: The seeds.
            windows: A length of time for each, in place of the sampler's own.
        """
        nodes, times = inputs.node, inputs.time
        if times is not None:
            times = self._seed_times(times, nodes.numel())
        seeds = [self._typed_seeds(inputs.input_type, nodes, times, windows)]
        return Prepared(seeds, lambda sampled: (inputs.input_id, inputs.time))

    def _seed_times(self, times: Tensor, count: int) -> Tensor:
        as_float = self.graph.float_times
        if as_float is None:
            raise ValueError("seed times: found some, expected none without a time_attr")
        own = seed_times(times, count, "seed times", as_float, self.time_attr)
        return latest_seen(own, self.options.strictly_earlier)

    def _typed_seeds(
        self, node_type: str | None, nodes: Tensor, times: Tensor | None, windows: Tensor | None
    ) -> tuple[int, Any, Any]:
        number, rows = self._seeds(node_type, nodes)
        as_float, strictly = self.graph.float_times, self.options.strictly_earlier
        if as_float is None:
            return number, engine_array(rows), None
        if times is None:
            times = latest_seen(self._times_of(node_type, nodes), strictly)
        window = self.time_window if windows is None else windows
        if window is not None:
            earliest = earlier(times + 1 if strictly else times, window, as_float)
            times = torch.cat([times, earliest])
        return number, engine_array(rows), engine_array(times.contiguous())

    def _times_of(self, node_type: str | None, nodes: Tensor) -> Tensor:
        if node_type not in self.graph.node_times:
            of = "the seeds" if node_type is None else f"the {node_type!r} seeds"
            raise ValueError(
                f"seed times: found none, and {of} have no {self.time_attr!r} of their own; give "
                "input_time (or edge_label_time)"
            )
        own = self.graph.node_times[node_type]
        return gather(own, check_index_set(nodes.view(-1), own.numel(), "seeds"))

    def prepare_induced(self, nodes: Mapping[str | None, Tensor]) -> Prepared:
        """A batch of some nodes by type: just them, where there are no hops."""
        seeds = [self._typed_seeds(name, of_type, None, None) for name, of_type in nodes.items()]

        def finish(sampled: Sampled) -> Any:
            sampled.num_sampled_nodes = None  # there was no hop
            return sampled.nodes, sampled.slots

        return Prepared(seeds, finish)

    def output(self, sampled: Sampled, metadata: Any) -> Any:
        """A sample as PyG has it."""
        out = super().output(sampled, metadata)
        if self.subgraph_type == SubgraphType.bidirectional:
            return out.to_bidirectional(keep_orig_edges=False)
        return out

    def sample_from_edges(
        self,
        inputs: EdgeSamplerInput,
        neg_sampling: NegativeSampling | None = None,
        key: int | None = None,
        exclude_edges: bool = False,
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Samples around the ends of seed edges, and of negative ones.

        Args:
            inputs: The seed edges.
            neg_sampling: How to draw negatives, as PyG has it.
            key: Names the batch, negatives included; see ``sample_from_nodes``.
            exclude_edges: No negative is an edge of the graph.

        Returns:
            The output of ``sample_from_nodes``; ``metadata`` is what PyG's ``LinkLoader`` reads.

        Raises:
            UnsupportedError: ``exclude_edges`` walking backwards.
        """
        key = random_key() if key is None else key
        return self.sample(self.prepare_edges(inputs, neg_sampling, key, exclude_edges), key)

    def prepare_edges(
        self,
        inputs: EdgeSamplerInput,
        neg_sampling: NegativeSampling | None,
        key: int,
        exclude_edges: bool = False,
        windows: Tensor | None = None,
        excluded: Sequence[tuple[EdgeType | None, bool]] = (),
    ) -> Prepared:
        """Lays out a sample around the ends of seed edges, as ``sample_from_edges`` does.

        Args:
            inputs: The seed edges.
            neg_sampling: How to draw negatives; None: there are none.
            key: Names the batch.
            exclude_edges: No negative is an edge of the graph.
            windows: A length of time for each seed edge, in place of the sampler's own.
            excluded: Edge types of which seed edges are no messages; see :func:`excluded_types`.
        """
        graph, count = self.graph, inputs.row.numel()
        if exclude_edges and graph.backward and neg_sampling is not None:
            raise UnsupportedError(
                "exclude_edges: found backward sampling, expected forward; leave exclude_edges out"
            )
        negatives = None
        if neg_sampling is not None:
            negatives = Negatives(
                neg_sampling, key % 2**63, graph, inputs.input_type, exclude_edges
            )
        times = None if inputs.time is None else self._seed_times(inputs.time, count)
        links = link_seeds(inputs, negatives, self.disjoint, times, windows)
        seeds = [
            self._typed_seeds(t, nodes, links.times.get(t), links.windows.get(t))
            for t, nodes in links.nodes.items()
        ]
        if times is not None and self.options.strictly_earlier:
            times = times + 1
        at = None if graph.node_times else times
        left_out = excluded_edges(graph, excluded, inputs.row, inputs.col, at)

        def finish(sampled: Sampled) -> Any:
            for trees in sampled.trees or []:
                trees[:] = links.trees[trees]
            return links.metadata

        return Prepared(seeds, finish, left_out)
