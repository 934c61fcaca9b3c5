"""``gz.rag.GraphStore``: subgraphs around retrieved nodes and edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.pyg.edges import DiskGraphStore
from pyg_graphzero.pyg.stores import Store, check_store
from pyg_graphzero.sampling.both_ways import BidirectionalNeighborSampler
from pyg_graphzero.sampling.neighbor import NeighborSampler
from pyg_graphzero.util.keys import random_key


@dataclass(frozen=True)
class Slots:
    """Metadata of a sample: places of its edges in the store, which has attributes by these.

    Attributes:
        by_type: ``int64 [num_sampled_edges]`` of each edge type; None where edges have no ids.
    """

    by_type: list[Tensor | None]


class EdgesOnDisk:
    """Stands for an edge index that stays on disk, where PyG's loader takes and returns one."""

    def contiguous(self) -> EdgesOnDisk:
        """Itself."""
        return self


class GraphStore(DiskGraphStore):
    """Subgraphs of a store for PyG's ``RAGQueryLoader``: its ``RAGGraphStore`` protocol.

    Edges are read from disk as they are drawn, along and against their direction, so that a store
    needs them by source too (``gz.convert(both_directions=True)`` or ``Store.create_csr``). Also
    PyG's ``GraphStore`` over the store.

    Args:
        store: An opened store, homogeneous or of several types.
        sampler: The class that samples: ``gz.sampler.NeighborSampler`` draws in-neighbours alone,
            which is enough for an undirected graph.
        **options: Arguments of the sampler beside the graph and the fan-out: ``replace``,
            ``weight_attr``, ``subgraph_type="induced"`` …

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> graph = gz.rag.GraphStore(gz.open(example_store), gz.sampler.NeighborSampler)
        >>> graph.config = {"num_neighbors": [-1]}
        >>> sample = graph.sample_subgraph(torch.tensor([1]))
        >>> sample.node.tolist(), sample.edge.tolist()
        ([1, 0], [0])
    """

    def __init__(
        self,
        store: Store,
        sampler: type[NeighborSampler] = BidirectionalNeighborSampler,
        **options: Any,
    ) -> None:
        super().__init__(check_store(store))
        self._edges = EdgesOnDisk()
        self._again = partial(GraphStore, store, sampler, **options)
        self._make = partial(sampler, store, **options)
        self._config: dict[str, Any] = {}
        self._sampler: NeighborSampler | None = None

    @property
    def config(self) -> dict[str, Any]:
        """Settings: ``num_neighbors``, the fan-out by hop for each direction, or by edge type.

        Raises:
            ValueError: They are set without ``num_neighbors``.
            UnsupportedError: The store has edges by destination only.
        """
        return self._config

    @config.setter
    def config(self, config: dict[str, Any]) -> None:
        fan_out = setting(config, "num_neighbors", "the fan-out by hop")
        self._sampler = self._make(num_neighbors=fan_out)
        self._config = config

    @property
    def edge_index(self) -> Any:
        """Stands for the edges, which stay on disk; see ``get_edge_index`` for all of them.

        Raises:
            UnsupportedError: Other edges are set.
        """
        return self._edges

    @edge_index.setter
    def edge_index(self, edge_index: Any) -> None:
        if edge_index is not self._edges:
            raise UnsupportedError(
                f"{self.handle.path}: edge_index: found {type(edge_index).__name__}, expected the "
                "store's own; convert other edges by gz.convert"
            )

    def register_feature_store(self, feature_store: Any) -> None:
        """Takes the feature store that the samples are for.

        Raises:
            ValueError: It is of another of this package's stores.
        """
        handle: Any = getattr(feature_store, "handle", self.handle)
        if handle.path != self.handle.path:
            raise ValueError(
                f"feature_store: found one of {handle.path}, expected one of {self.handle.path}"
            )

    def sample_subgraph(
        self, seed_nodes: Any, seed_edges: Any = None, **kwargs: Any
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Samples the subgraph around nodes, and around the ends of edges.

        Args:
            seed_nodes: ``int64 [num_seeds]``; of several types a dict of these by node type.
            seed_edges: Ends ``int64 [2, num_edges]``; of several types a dict by edge type.
            **kwargs: Ignored.

        Returns:
            PyG's output: nodes, seeds first in ascending order; edges between them, ``edge`` being
            their original ids (None where the store has none).

        Raises:
            ValueError: ``config`` was not set.
            IndexError: A seed is no node.
            KeyError: There is no such type.
        """
        if self._sampler is None:
            raise ValueError("config: found none, expected num_neighbors, the fan-out by hop")
        sampler, parts = self._sampler, dict[str | None, list[Tensor]]()
        for name, rows in _by_type(seed_nodes).items():
            parts.setdefault(name, []).append(rows)
        for edge_type, ends in _by_type(seed_edges).items():
            types = (None, None) if edge_type is None else (edge_type[0], edge_type[2])
            for name, rows in zip(types, ends, strict=True):
                parts.setdefault(name, []).append(rows)
        seeds = {name: torch.cat(rows).unique() for name, rows in parts.items()}
        out = sampler.sample(sampler.prepare_induced(seeds), random_key())
        names = sampler.graph.edge_types
        slots = out.edge if sampler.is_hetero else dict.fromkeys(names, out.edge)
        ids = {
            name: None if each is None else sampler.original_edge_ids(name, each)
            for name, each in slots.items()
        }
        out.metadata = Slots([slots[name] for name in names])
        out.edge = ids if sampler.is_hetero else ids.get(None, out.edge)
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        return made_again, (self._again, self._config)


def made_again(make: Callable[[], Any], config: dict[str, Any]) -> Any:
    """One of these stores, with its settings, where it was pickled."""
    made = make()
    if config:
        made.config = config
    return made


def setting(config: Any, name: str, what: str) -> Any:
    """A setting that has to be there.

    Raises:
        ValueError: It is not.
    """
    if not isinstance(config, Mapping) or name not in config:
        found = sorted(config) if isinstance(config, Mapping) else config
        raise ValueError(f"config: found {found}, expected {name!r}: {what}")
    return config[name]


def _by_type(seeds: Any) -> Mapping[Any, Any]:
    if isinstance(seeds, tuple):  # PyG's (type, seeds)
        return {seeds[0]: seeds[1]}
    return seeds if isinstance(seeds, Mapping) else {} if seeds is None else {None: seeds}
