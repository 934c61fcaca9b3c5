"""The base of all samplers: a graph, the engine over it, and samples as PyG has them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import (
    BaseSampler,
    HeteroSamplerOutput,
    NodeSamplerInput,
    SamplerOutput,
)

from pyg_graphzero import _core
from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.sampling.excluded import Excluded
from pyg_graphzero.sampling.graph import EdgePermutation, SampledGraph, Unmapped
from pyg_graphzero.shards.window import Asked
from pyg_graphzero.store.columns import look_up
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.keys import batch_number, random_key

# Seeds as the engine takes them: (number of the node type, nodes, their times or None) each.
Seeds = list[tuple[int, Any, Any]]


@dataclass
class Sampled:
    """A sample, by the numbers of node and edge types.

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


@dataclass(frozen=True)
class Reading:
    """Where an engine finds neighbours.

    Attributes:
        engine: The engine's sampler, over neighbours in memory or mapped, or over some that are
            read.
        window: For how many batches those are read at once, and how many bytes.
    """

    engine: Any
    window: tuple[int, int] = (1, 0)


@dataclass
class Prepared:
    """A batch that can be sampled.

    Attributes:
        seeds: Around what.
        finish: Takes the sample and gives the metadata PyG's loaders read.
        excluded: Edges that are in no hop.
    """

    seeds: Seeds
    finish: Callable[[Sampled], Any]
    excluded: Excluded = field(default_factory=list)

    def asked(self, recipe: _core.Recipe, key: int) -> Asked:
        """The batch as the engine is asked for it; ``key`` names its randomness."""
        return recipe, self.seeds, key % 2**64, batch_number(key), self.excluded


class GraphSampler(BaseSampler):
    """The base of all samplers: a graph, the engine over it, and seeds that are checked.

    A subclass builds its engine and says how it samples (``recipe``).

    Args:
        graph: The topology.
        is_hetero: Whether samples are heterogeneous.
        num_threads: Threads inside one batch; 0 uses as many as torch does.

    Attributes:
        is_final: Edges are what the engine samples, so that it can gather their rows too.
        is_by_hop: Every edge was sampled in a hop; induced ones are of none.
        may_read: Neighbours may be read for batches; else all are in memory, or mapped.
    """

    is_final: bool = True
    is_by_hop: bool = False
    may_read: bool = True

    def __init__(self, graph: SampledGraph, is_hetero: bool, num_threads: int) -> None:
        self.graph = graph
        self.is_hetero = is_hetero
        self.num_threads = num_threads
        self._open()

    def _open(self) -> None:
        self._mapped = Reading(self._build({}))
        # The memory of a dead batch serves the next one; that of stores is within a budget.
        self._recycling = _core.Recycling(is_bounded=self.graph.contents is not None)

    @abstractmethod
    def _build(self, unmapped: Mapping[EdgeType | None, Unmapped]) -> Any:
        """The engine's sampler over ``self.graph``; see :meth:`SampledGraph.builder`."""

    def reading(
        self, unmapped: Mapping[EdgeType | None, Unmapped], window: tuple[int, int]
    ) -> Reading:
        """The argument of :meth:`recipe` where not all is read through the map of a file."""
        return Reading(self._build(unmapped), window)

    @abstractmethod
    def recipe(
        self, plan: _core.GatherPlan | None = None, reading: Reading | None = None
    ) -> _core.Recipe:
        """How the engine makes batches.

        Args:
            plan: Rows it gathers; None: none.
            reading: How neighbours are read; None: they are in memory, or mapped.
        """

    @abstractmethod
    def prepare_nodes(self, inputs: NodeSamplerInput) -> Prepared:
        """Lays out a sample around seed nodes."""

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
            slots (see ``edge_permutation``; None where edges have no ids), ``batch`` if disjoint,
            and counts per hop.

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
        made = self.make(prepared.asked(self.recipe(), key))
        sampled = self.sample_of(made)
        return self.output(sampled, prepared.finish(sampled))

    def make(self, asked: Asked) -> _core.Batch:
        """Makes a batch now."""
        shards, threads = self.graph.shards, self.num_threads
        if shards is None:
            recipe, seeds, key, number, excluded = asked
            return recipe.make(seeds, key, threads, number, excluded)
        made: _core.Batch = shards.ask(lambda: (shards.sample([asked], threads), [{}])).batch(0)
        return made

    def sample_of(self, batch: _core.Batch) -> Sampled:
        """The sample of a batch of the engine."""
        return Sampled(
            batch.nodes, batch.trees or None, batch.edge_index, batch.slots,
            batch.num_sampled_nodes, batch.num_sampled_edges if self.is_by_hop else None,
        )  # fmt: skip

    def output(self, sampled: Sampled, metadata: Any) -> Any:
        """A sample as PyG has it."""
        types, names = list(self.graph.node_types), self.graph.edge_types
        ends: list[Tensor] = list(sampled.edge_index)
        slots = [
            None if name in self.graph.unnumbered else each
            for name, each in zip(names, sampled.slots, strict=True)
        ]

        def by(keys: Sequence[Any], values: Any) -> Any:
            if not self.is_hetero:
                return values[0] if values else values
            return None if values is None else dict(zip(keys, values, strict=True))

        return (HeteroSamplerOutput if self.is_hetero else SamplerOutput)(
            node=by(types, sampled.nodes),
            row=by(names, [edge_index[0] for edge_index in ends]),
            col=by(names, [edge_index[1] for edge_index in ends]),
            edge=by(names, slots),
            batch=by(types, sampled.trees),
            num_sampled_nodes=by(types, sampled.num_sampled_nodes),
            num_sampled_edges=by(names, sampled.num_sampled_edges),
            metadata=metadata,
        )

    def sampled(self, out: SamplerOutput | HeteroSamplerOutput) -> Sampled:
        """The opposite of ``output``, for a sample that a caller has changed."""

        def listed(keys: Iterable[Any], values: Any) -> Any:
            if values is None:
                return None
            return [values[key] if self.is_hetero else values for key in keys]

        types, names = self.graph.node_types, self.graph.edge_types
        rows, cols = listed(names, out.row), listed(names, out.col)
        return Sampled(
            listed(types, out.node),
            listed(types, out.batch),
            [torch.stack(ends) for ends in zip(rows, cols, strict=True)],
            listed(names, out.edge) or [None] * len(names),
            listed(types, out.num_sampled_nodes),
            listed(names, out.num_sampled_edges),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_mapped", "_recycling")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    @property
    def num_nodes(self) -> Any:
        """Number of nodes: an int, or a dict by type."""
        return dict(self.graph.node_types) if self.is_hetero else self.graph.node_types[None]

    @property
    def edge_permutation(self) -> Any:
        """Leads from CSC slots to original edge ids, for PyG's own loaders; looks them up."""
        found = {name: EdgePermutation(self, name) for name in self.graph.edge_types}
        return found if self.is_hetero else found[None]

    def original_edge_ids(self, name: EdgeType | None, slots: Tensor) -> Tensor:
        """Original edge ids (``int64``) of CSC slots.

        Raises:
            UnsupportedError: They lie in shards.
        """
        if self.graph.shards is not None:
            raise UnsupportedError(
                "edge_permutation: found ids of edges in shards, expected a store that one machine "
                "has; batches of gz.loader's loaders have e_id"
            )
        ids = self.graph.ids(name)
        return slots if ids is None else look_up(ids, slots, self.num_threads)

    def _seeds(self, node_type: str | None, nodes: Tensor) -> tuple[int, Tensor]:
        """The number of a node type and seeds of it as the engine takes them."""
        types = list(self.graph.node_types)
        if node_type not in types:
            raise KeyError(f"input node type: found {node_type!r}, expected one of {types}")
        if nodes.dtype.is_floating_point or nodes.dtype.is_complex or nodes.dtype == torch.bool:
            raise TypeError(f"seeds: found {nodes.dtype}, expected integers")
        return types.index(node_type), nodes.to(torch.int64).contiguous().view(-1)
