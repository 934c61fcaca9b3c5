"""Neighbour sampling as a PyG ``BaseSampler``, over a store or a graph in memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    NumNeighbors,
    SamplerOutput,
)
from torch_geometric.sampler.base import SubgraphType

from pyg_graphzero import _core
from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.sampling.graph import (
    EdgePermutation,
    SampledGraph,
    add_order,
    graph_of,
    graph_of_stores,
    resolve,
)
from pyg_graphzero.sampling.link_seeds import link_seeds
from pyg_graphzero.sampling.methods import fan_outs, labor_of, one_of
from pyg_graphzero.sampling.negatives import NonEdgeSampling
from pyg_graphzero.store.columns import engine_array, gather, look_up
from pyg_graphzero.store.edge_order import comparable_times
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.keys import BatchKey, batch_number, random_key

# Seeds as the engine takes them: (number of the node type, nodes, their times or None) each.
Seeds = list[tuple[int, Any, Any]]


@dataclass
class Sampled:
    """What was sampled, by the numbers of node and edge types.

    Attributes:
        nodes: Rows by node type, seeds first; see ``SampledGraph``.
        trees: Seed numbers by node type; None unless disjoint.
        edge_index: Within ``nodes``, by edge type.
        slots: In CSC, by edge type; None where edges have no identity.
        num_sampled_nodes: Counts per hop by node type.
        num_sampled_edges: Counts per hop by edge type; None where edges belong to no hop.
    """

    nodes: list[Tensor]
    trees: list[Tensor] | None
    edge_index: list[Tensor]
    slots: Sequence[Tensor | None]
    num_sampled_nodes: list[list[int]] | None = None
    num_sampled_edges: list[list[int]] | None = None


@dataclass
class Prepared:
    """A batch that can be sampled.

    Attributes:
        seeds: Around what.
        finish: Takes the sample and gives the metadata PyG's loaders read.
    """

    seeds: Seeds
    finish: Callable[[Sampled], Any]


class GraphSampler(BaseSampler):
    """What the samplers share: a graph, the engine over it, and seeds that are checked.

    A subclass builds its engine and says how it samples (``recipe``).

    Args:
        graph: The topology.
        is_hetero: Whether samples are heterogeneous.
        num_threads: Threads inside one batch; 0 uses as many as torch does.
    """

    def __init__(self, graph: SampledGraph, is_hetero: bool, num_threads: int) -> None:
        self.graph = graph
        self.is_hetero = is_hetero
        self.num_threads = num_threads
        self.restart()

    def restart(self) -> None:
        """Samples from what the graph has by now."""
        self.engine = self._build()
        self._recycling = _core.Recycling()  # the memory of a dead batch serves the next one

    @abstractmethod
    def _build(self) -> Any:
        """The engine's sampler over ``self.graph``."""

    @abstractmethod
    def recipe(self, plan: _core.GatherPlan | None = None) -> _core.Recipe:
        """How the engine makes batches: samples, and gathers what ``plan`` says."""

    @abstractmethod
    def prepare_nodes(self, inputs: NodeSamplerInput) -> Prepared:
        """What to sample around seed nodes."""

    @property
    def is_final(self) -> bool:
        """Whether batches are what the engine samples, so that it can gather too."""
        return True

    @property
    def is_by_hop(self) -> bool:
        """Whether every edge was sampled in a hop; induced ones are of none."""
        return False

    def sample_from_nodes(
        self, inputs: NodeSamplerInput, key: int | None = None, **kwargs: Any
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Samples one batch.

        Args:
            inputs: The seeds, and their times where the sampler has a ``time_attr``.
            key: Names the batch; the same key gives the same sample. None draws one from torch's
                generator.
            **kwargs: Ignored, PyG passes none today.

        Returns:
            Node ids (seeds first, duplicates kept), ``row``/``col`` within them, ``edge`` as CSC
            slots (see ``edge_permutation``), ``batch`` if disjoint, and counts per hop.

        Raises:
            IndexError: A seed is not a node.
            KeyError: There is no such node type.
            TypeError: The seeds are not integers.
            ValueError: Times are missing.
        """
        key = random_key() if key is None else key
        return self.sample(self.prepare_nodes(inputs), key)

    def sample(self, prepared: Prepared, key: int) -> SamplerOutput | HeteroSamplerOutput:
        """Samples a batch; the same key gives the same sample."""
        made = self.recipe().make(prepared.seeds, key % 2**64, self.num_threads, batch_number(key))
        sampled = self.sample_of(made)
        return self.output(sampled, prepared.finish(sampled))

    def sample_of(self, batch: _core.Batch) -> Sampled:
        """What was sampled of a batch of the engine."""
        return Sampled(
            batch.nodes, batch.trees or None, batch.edge_index, batch.slots,
            batch.num_sampled_nodes, batch.num_sampled_edges if self.is_by_hop else None,
        )  # fmt: skip

    def output(self, sampled: Sampled, metadata: Any) -> Any:
        """A sample as PyG has it, of the user's nodes."""
        nodes = [
            self.graph.nodes(name, rows, self.num_threads)
            for name, rows in zip(self.graph.node_types, sampled.nodes, strict=True)
        ]
        if not self.is_hetero:
            empty = torch.empty(0, dtype=torch.int64)
            edge_index = sampled.edge_index[0] if sampled.edge_index else empty.expand(2, 0)
            num_edges = sampled.num_sampled_edges
            return SamplerOutput(
                node=nodes[0],
                row=edge_index[0],
                col=edge_index[1],
                edge=sampled.slots[0] if sampled.slots else empty,
                batch=sampled.trees[0] if sampled.trees else None,
                num_sampled_nodes=sampled.num_sampled_nodes and sampled.num_sampled_nodes[0],
                num_sampled_edges=num_edges and num_edges[0],
                metadata=metadata,
            )
        types, names = list(self.graph.node_types), self.graph.edge_types

        def by(keys: list[Any], values: Any) -> Any:
            return None if values is None else dict(zip(keys, values, strict=True))

        return HeteroSamplerOutput(
            node=by(types, nodes),
            row=by(names, [edge_index[0] for edge_index in sampled.edge_index]),
            col=by(names, [edge_index[1] for edge_index in sampled.edge_index]),
            edge=by(names, sampled.slots),
            batch=by(types, sampled.trees),
            num_sampled_nodes=by(types, sampled.num_sampled_nodes),
            num_sampled_edges=by(names, sampled.num_sampled_edges),
            metadata=metadata,
        )

    def sampled(self, out: SamplerOutput | HeteroSamplerOutput) -> Sampled:
        """The opposite of ``output``, for what somebody made of it."""
        if isinstance(out, SamplerOutput):

            def of(value: Any) -> Any:
                return None if value is None else [value]

            nodes, has_edges = self._rows(None, out.node), bool(self.graph.edge_types)
            return Sampled(
                [nodes],
                of(out.batch),
                [torch.stack([out.row, out.col])] if has_edges else [],
                [out.edge] if has_edges else [],
                of(out.num_sampled_nodes),
                of(out.num_sampled_edges) if has_edges else None,
            )

        def listed(keys: Any, values: Any) -> Any:
            return None if values is None else [values[key] for key in keys]

        types, names = self.graph.node_types, self.graph.edge_types
        slots = dict.fromkeys(names) if out.edge is None else out.edge
        return Sampled(
            [self._rows(name, out.node[name]) for name in types],
            listed(types, out.batch),
            [torch.stack([out.row[name], out.col[name]]) for name in names],
            [slots[name] for name in names],
            listed(types, out.num_sampled_nodes),
            listed(names, out.num_sampled_edges),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("engine", "_recycling")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.restart()

    @property
    def num_nodes(self) -> Any:
        """Number of nodes: an int, or a dict by type."""
        return dict(self.graph.node_types) if self.is_hetero else self.graph.node_types[None]

    @property
    def edge_permutation(self) -> Any:
        """What leads from CSC slots to original edge ids, for PyG's own loaders.

        ``int64`` in memory or None; of a graph on disk, ids are looked up when they are asked for.
        """
        graph = self.graph
        found: dict[EdgeType | None, Any] = {}
        for name in graph.edge_types:
            ids = graph.edge_ids.get(name)
            if graph.contents is not None:
                found[name] = EdgePermutation(self, name)
            else:
                found[name] = None if ids is None else ids.to(torch.int64)
        return found if self.is_hetero else found.get(None)

    def original_edge_ids(self, name: EdgeType | None, slots: Tensor) -> Tensor:
        """Original edge ids (``int64``) of CSC slots."""
        ids = self.graph.edge_ids.get(name)
        return slots if ids is None else look_up(ids, slots, self.num_threads)

    def _rows(self, node_type: str | None, nodes: Tensor) -> Tensor:
        return self.graph.rows(node_type, nodes, threads=self.num_threads)

    def _seeds(self, node_type: str | None, nodes: Tensor) -> tuple[int, Tensor]:
        """The number of a node type and seeds of it as the engine takes them."""
        types = list(self.graph.node_types)
        if node_type not in types:
            raise KeyError(f"input node type: found {node_type!r}, expected one of {types}")
        if nodes.dtype.is_floating_point or nodes.dtype.is_complex or nodes.dtype == torch.bool:
            raise TypeError(f"seeds: found {nodes.dtype}, expected integers")
        nodes = nodes.to(torch.int64).contiguous().view(-1)
        return types.index(node_type), self.graph.rows(node_type, nodes, "seed")


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
        weight_attr: Edge attribute with weights: draws are in proportion to it, edges of weight 0
            are never drawn unless all neighbours are asked for.
        is_sorted: Neighbourhoods are sorted by time already.
        sample_direction: ``"forward"`` draws in-neighbours, ``"backward"`` out-neighbours.
        num_threads: Threads inside one batch; 0 uses as many as torch does.
        method: ``"uniform"``: every node draws for itself (in proportion to ``weight_attr``, where
            there is one). ``"labor"``: it draws with the same probabilities, but all nodes of a hop
            by the same random number for each neighbour, so that they share neighbours where they
            can (Balin & Catalyurek 2023, "Layer-Neighbor Sampling"). Costs O(degree) a node; edges
            of the same two nodes are drawn together.
        layer_dependency: With ``"labor"``: the hops share these numbers too.
        batch_dependency: With ``"labor"``: over how many consecutive batches of an epoch the
            numbers drift from one set to the next (Balin et al. 2023, "Cooperative Minibatching in
            Graph Neural Networks"); 1: each batch has its own. Needs a loader of this package.

    Raises:
        ValueError: A fan-out below -1, lists of different length, an attribute that is not there,
            ``"labor"`` with ``replace`` or with the ``"last"`` neighbours, its options without it.

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
        subgraph_type: SubgraphType | str = "directional",
        replace: bool = False,
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        is_sorted: bool = False,
        sample_direction: str = "forward",
        num_threads: int = 0,
        *,
        method: str = "uniform",
        layer_dependency: bool = False,
        batch_dependency: int = 1,
    ) -> None:
        one_of("temporal_strategy", temporal_strategy, ("uniform", "last"))
        one_of("sample_direction", sample_direction, ("forward", "backward"))
        labor_of(method, layer_dependency, batch_dependency, replace, temporal_strategy)
        self.subgraph_type = SubgraphType(subgraph_type)
        data = resolve(data)
        if isinstance(data, tuple):
            if weight_attr is not None or sample_direction != "forward":
                raise UnsupportedError(
                    "data: found stores of another package, with weights or backward sampling; "
                    "convert the graph, or give it as Data or HeteroData"
                )
            graph = graph_of_stores(*data)
        else:
            graph = graph_of(data, backward=sample_direction == "backward")
        if time_attr is not None or weight_attr is not None:
            add_order(graph, data, time_attr, weight_attr, is_sorted)
        super().__init__(graph, None not in graph.node_types, num_threads)
        self.num_neighbors = num_neighbors
        self.replace = replace
        self.disjoint = disjoint or time_attr is not None
        self.temporal_strategy = temporal_strategy
        self.time_attr = time_attr
        self.method = method
        self.layer_dependency = layer_dependency
        self.batch_dependency = batch_dependency

    def _build(self) -> _core.NeighborSampler:
        return _core.NeighborSampler(self.graph.builder())

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

    def recipe(self, plan: _core.GatherPlan | None = None) -> _core.Recipe:
        """How the engine makes batches: samples, and gathers what ``plan`` says."""
        return _core.Recipe.neighbors(
            self.engine,
            self._fanouts,
            replace=self.replace,
            disjoint=self.disjoint,
            last=self.temporal_strategy == "last",
            induced=self.subgraph_type == SubgraphType.induced,
            plan=plan,
            # Walked backwards, messages still go along the edges.
            backward=self.graph.backward,
            labor=labor_of(
                self.method,
                self.layer_dependency,
                self.batch_dependency,
                self.replace,
                self.temporal_strategy,
            ),
            window=self.graph.window,
        )

    def sample(self, prepared: Prepared, key: int) -> SamplerOutput | HeteroSamplerOutput:
        """Samples a batch; the same key gives the same sample.

        Raises:
            UnsupportedError: ``batch_dependency``, and a key that is not of a batch in an epoch.
        """
        if self.batch_dependency > 1 and not isinstance(key, BatchKey):
            raise UnsupportedError(
                f"batch_dependency={self.batch_dependency}: found a batch without its number in an "
                "epoch, expected batches of gz.loader.NeighborLoader or LinkNeighborLoader, which "
                "number them"
            )
        return super().sample(prepared, key)

    @property
    def is_final(self) -> bool:
        """Whether batches are what the engine samples, so that it can gather too."""
        return self.subgraph_type != SubgraphType.bidirectional

    @property
    def is_by_hop(self) -> bool:
        """Whether every edge was sampled in a hop; induced ones are of none."""
        return self.subgraph_type != SubgraphType.induced

    def prepare_nodes(self, inputs: NodeSamplerInput) -> Prepared:
        """What to sample around seed nodes."""
        nodes, times = inputs.node, inputs.time
        if times is not None:
            times = self._seed_times(times, nodes.numel())
        seeds = [self._typed_seeds(inputs.input_type, nodes, times)]
        return Prepared(seeds, lambda sampled: (inputs.input_id, inputs.time))

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
            As ``sample_from_nodes``; ``metadata`` as PyG's ``LinkLoader`` reads it.

        Raises:
            UnsupportedError: ``exclude_edges`` with node times, or walking backwards.
        """
        key = random_key() if key is None else key
        return self.sample(self.prepare_edges(inputs, neg_sampling, key, exclude_edges), key)

    def prepare_edges(
        self,
        inputs: EdgeSamplerInput,
        neg_sampling: NegativeSampling | None,
        key: int,
        exclude_edges: bool = False,
    ) -> Prepared:
        """What to sample around the ends of seed edges, as ``sample_from_edges`` does."""
        node_times = self.graph.node_times
        if exclude_edges and neg_sampling is not None:
            if node_times or self.graph.backward:
                raise UnsupportedError(
                    "exclude_edges: found node times or backward sampling, expected neither; leave "
                    "exclude_edges out"
                )
            neg_sampling = NonEdgeSampling(
                neg_sampling, self.graph, inputs.input_type, inputs.row, self.disjoint
            )
        # PyG draws negatives from torch's generator, which every worker has another of.
        generator = torch.default_generator
        state = generator.get_state()
        try:
            generator.manual_seed(key % 2**63)
            links = link_seeds(
                inputs,
                neg_sampling,
                self.graph.node_types.__getitem__,
                self.disjoint,
                node_times,
                lambda times: self._seed_times(times, inputs.row.numel()),
            )
        finally:
            generator.set_state(state)
        times = links.times or {}
        seeds = [self._typed_seeds(t, nodes, times.get(t)) for t, nodes in links.nodes.items()]

        def finish(sampled: Sampled) -> Any:
            for trees in sampled.trees or []:
                trees[:] = links.trees[trees]
            return links.metadata

        return Prepared(seeds, finish)

    def _seed_times(self, times: Tensor, count: int) -> Tensor:
        if self.graph.float_times is None:
            raise ValueError("seed times: found some, expected none without a time_attr")
        if times.numel() != count:
            raise ValueError(f"seed times: found {times.numel()}, expected {count}")
        if times.dtype.is_floating_point and not self.graph.float_times:
            raise ValueError(
                f"seed times: found {times.dtype}, expected integers as {self.time_attr!r} has them"
            )
        return comparable_times(times, "seed times", self.graph.float_times)

    def _typed_seeds(
        self, node_type: str | None, nodes: Tensor, times: Tensor | None
    ) -> tuple[int, Any, Any]:
        number, rows = self._seeds(node_type, nodes)
        if times is None and self.graph.float_times is not None:
            times = self._times_of(node_type, nodes)
        ready = None if times is None else engine_array(times.contiguous())
        return number, engine_array(rows), ready

    def _times_of(self, node_type: str | None, nodes: Tensor) -> Tensor:
        if node_type not in self.graph.node_times:
            of = "the seeds" if node_type is None else f"the {node_type!r} seeds"
            raise ValueError(
                f"seed times: found none, and {of} have no {self.time_attr!r} of their own; give "
                "input_time (or edge_label_time)"
            )
        own, nodes = self.graph.node_times[node_type], nodes.to(torch.int64).view(-1)
        outside = nodes[(nodes < 0) | (nodes >= own.numel())]
        if outside.numel():
            raise IndexError(
                f"seeds: found node {int(outside[0])}, expected 0 <= node < {own.numel()}"
            )
        return gather(own, nodes)
