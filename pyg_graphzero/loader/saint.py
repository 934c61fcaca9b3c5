"""GraphSAINT's samplers: subgraphs of random nodes, edges or walks, and what makes up for that."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

import torch
import torch_geometric.loader
from torch import Tensor
from torch_geometric.data import Data

from pyg_graphzero.loader.inputs import homogeneous
from pyg_graphzero.loader.subgraphs import SubgraphLoader, induced
from pyg_graphzero.loader.walks import RandomWalker
from pyg_graphzero.store.columns import gather
from pyg_graphzero.util.arguments import check_count
from pyg_graphzero.util.keys import random_key


class GraphSAINTSampler(SubgraphLoader[Data]):
    """Mixed into PyG's GraphSAINT samplers, in front of them.

    Zeng et al. 2020, "GraphSAINT: Graph Sampling Based Inductive Learning Method". A batch is the
    subgraph of the nodes that were drawn. With ``sample_coverage``, ``node_norm`` and ``edge_norm``
    make up for how likely its nodes and edges are: batches are sampled at first, without features,
    until they have each node ``sample_coverage`` times on average.
    """

    _reversals: tuple[bool, ...] = ()  # the directions of the walks that draws are made of

    def __init__(
        self,
        data: Any,
        batch_size: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        save_dir: str | None = None,
        log: bool = True,
        *,
        device: Any = None,
        **kwargs: Any,
    ) -> None:
        check_count("batch_size", batch_size)
        check_count("num_steps", num_steps)
        data = homogeneous(data, "data")
        for name in ("node_norm", "edge_norm"):
            if name in data:
                raise ValueError(f"data.{name}: found one, which batches have of this loader")
        self.N, self.E = int(data.num_nodes), int(data.num_edges)
        if self.E == 0:
            raise ValueError("data: found no edges, expected some to draw from")
        self.num_steps, self._batch_size = num_steps, batch_size
        self.sample_coverage, self.save_dir, self.log = sample_coverage, save_dir, log
        self.node_norm: Tensor | None = None
        self.edge_norm: Tensor | None = None
        self._start(data, num_steps, induced(data), device, kwargs)
        self._walkers = [RandomWalker(data, reverse=reverse) for reverse in self._reversals]
        if sample_coverage > 0:
            path = Path(save_dir or "") / self._filename
            if save_dir is not None and path.exists():
                self.node_norm, self.edge_norm = torch.load(path, weights_only=True)
            else:
                self.node_norm, self.edge_norm = self._compute_norm()
                if save_dir is not None:
                    torch.save((self.node_norm, self.edge_norm), path)

    @abstractmethod
    def draw(self, generator: torch.Generator) -> Tensor:
        """The nodes of a batch, some of them more than once."""

    @property
    def _filename(self) -> str:
        length = f"_{self.walk_length}" if hasattr(self, "walk_length") else ""
        return f"gz_{type(self).__name__.lower()}{length}_{self.sample_coverage}.pt"

    def __len__(self) -> int:
        return self.num_steps

    def _nodes(self, index: Tensor, key: int) -> dict[str | None, Tensor]:
        generator = torch.Generator().manual_seed(key % 2**63)
        return {None: self.draw(generator).view(-1).unique()}

    def _ids(self, metadata: Any) -> tuple[Tensor, Tensor]:
        """Numbers of a sample's nodes and edges."""
        (rows,), (slots,) = metadata
        return rows, self.node_sampler.original_edge_ids(None, slots)

    def _label(self, batch: Any, metadata: Any) -> None:
        if self.node_norm is not None and self.edge_norm is not None:
            n_id, e_id = self._ids(metadata)
            batch.node_norm, batch.edge_norm = self.node_norm[n_id], self.edge_norm[e_id]

    def _compute_norm(self) -> tuple[Tensor, Tensor]:
        graph, index = self.node_sampler.graph, torch.zeros(1, dtype=torch.int64)
        if graph.contents is not None:
            graph.contents.tell_use(
                "edge_norm, which is counted for every edge", 28 * self.E,
                "leave out sample_coverage, or use NeighborLoader",
            )  # fmt: skip
        nodes, edges = torch.zeros(self.N), torch.zeros(self.E)
        num_samples = total = 0
        while total < self.N * self.sample_coverage:
            key = random_key()
            sample = self.node_sampler.sample(self._prepare(index, key), key)
            n_id, e_id = self._ids(sample.metadata)
            nodes[n_id] += 1
            edges[e_id] += 1
            total += n_id.numel()
            num_samples += 1
        to = torch.repeat_interleave(torch.arange(self.N), graph.bounds(None).diff())
        of_target = torch.empty(self.E)
        e_id = self.node_sampler.original_edge_ids(None, torch.arange(self.E))
        of_target[e_id] = nodes[to]
        edge_norm = (of_target / edges).clamp_(0, 1e4).nan_to_num_(nan=0.1)
        node_norm = num_samples / nodes.clamp_(min=0.1) / self.N
        return node_norm, edge_norm


class GraphSAINTNodeSampler(GraphSAINTSampler, torch_geometric.loader.GraphSAINTNodeSampler):
    """Subgraphs of random nodes, in proportion to out-degree; see PyG's class of the same name.

    Args:
        data: A homogeneous store, its ``.data()``, or ``Data`` in memory.
        batch_size: How many nodes are drawn for a batch, with replacement.
        num_steps: Batches of an epoch.
        sample_coverage: How often the average node is sampled to estimate ``node_norm`` and
            ``edge_norm``; 0: batches have none. A number per edge is kept in memory.
        save_dir: Where these are kept, to be read the next time.
        log: Accepted; nothing is printed.
        device: Where batches are delivered; see ``NeighborLoader``.
        **kwargs: Arguments of ``torch.utils.data.DataLoader``.

    Raises:
        TypeError: The graph is heterogeneous.
        ValueError: The graph has no edges, or a ``node_norm`` of its own.
        DoesNotFitError: ``sample_coverage`` of a large store, opened with ``strict=True``.

    Example:
        >>> import pyg_graphzero as gz
        >>> loader = gz.loader.GraphSAINTNodeSampler(
        ...     gz.open(example_store), batch_size=3, num_steps=5, sample_coverage=10
        ... )
        >>> len(loader), "edge_norm" in next(iter(loader))
        (5, True)
    """

    def draw(self, generator: torch.Generator) -> Tensor:
        """The sources of random edges."""
        graph = self.node_sampler.graph
        slots = torch.randint(self.E, (self._batch_size,), generator=generator)
        return gather(graph.csc(None)[1], slots).to(torch.int64)


class GraphSAINTEdgeSampler(GraphSAINTSampler, torch_geometric.loader.GraphSAINTEdgeSampler):
    """Subgraphs of the ends of random edges; see PyG's class of the same name.

    An edge is drawn in proportion to 1 / the out-degree of its source + 1 / the in-degree of its
    target, with replacement: the step of a walk from any node, along or against edges. Directed
    edges of a store are needed by source, too: see ``Store.create_csr``.

    Args:
        data: A homogeneous store, its ``.data()``, or ``Data`` in memory.
        batch_size: How many edges are drawn for a batch.
        num_steps: Batches of an epoch.
        sample_coverage: See ``GraphSAINTNodeSampler``.
        save_dir: See ``GraphSAINTNodeSampler``.
        log: Accepted; nothing is printed.
        device: Where batches are delivered; see ``NeighborLoader``.
        **kwargs: Arguments of ``torch.utils.data.DataLoader``.

    Raises:
        UnsupportedError: The store has directed edges by destination only.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> from torch_geometric.data import Data
        >>> ring = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3)
        >>> next(iter(gz.loader.GraphSAINTEdgeSampler(ring, batch_size=1))).num_edges
        1
    """

    _reversals = (False, True)

    def draw(self, generator: torch.Generator) -> Tensor:
        """Both ends of random edges."""
        found, missing = [], self._batch_size
        while missing > 0:
            start = torch.randint(self.N, (2 * missing,), generator=generator)
            is_along = torch.rand(start.numel(), generator=generator) < 0.5
            ends = torch.empty(start.numel(), 2, dtype=torch.int64)
            for walker, mine in zip(self._walkers, (is_along, ~is_along), strict=True):
                ends[mine] = walker.walk(start[mine], 1, generator=generator)
            ends = ends[ends[:, 1] >= 0][:missing]  # a node without such edges: drawn again
            found.append(ends)
            missing -= len(ends)
        return torch.cat(found)


class GraphSAINTRandomWalkSampler(
    GraphSAINTSampler, torch_geometric.loader.GraphSAINTRandomWalkSampler
):
    """Subgraphs of the nodes of random walks; see PyG's class of the same name.

    Walks go along edges, and stay where they end. Directed edges of a store are needed by source,
    too: see ``Store.create_csr``.

    Args:
        data: A homogeneous store, its ``.data()``, or ``Data`` in memory.
        batch_size: How many walks are begun for a batch, each at any node.
        walk_length: How many steps they have.
        num_steps: Batches of an epoch.
        sample_coverage: See ``GraphSAINTNodeSampler``.
        save_dir: See ``GraphSAINTNodeSampler``.
        log: Accepted; nothing is printed.
        device: Where batches are delivered; see ``NeighborLoader``.
        **kwargs: Arguments of ``torch.utils.data.DataLoader``.

    Raises:
        UnsupportedError: The store has directed edges by destination only.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> from torch_geometric.data import Data
        >>> ring = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3)
        >>> loader = gz.loader.GraphSAINTRandomWalkSampler(ring, batch_size=1, walk_length=1)
        >>> next(iter(loader)).num_nodes
        2
    """

    _reversals = (False,)

    def __init__(
        self,
        data: Any,
        batch_size: int,
        walk_length: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        save_dir: str | None = None,
        log: bool = True,
        *,
        device: Any = None,
        **kwargs: Any,
    ) -> None:
        check_count("walk_length", walk_length)
        self.walk_length = walk_length
        super().__init__(
            data, batch_size, num_steps, sample_coverage, save_dir, log, device=device, **kwargs
        )

    def draw(self, generator: torch.Generator) -> Tensor:
        """The nodes of random walks, ``[batch_size, walk_length + 1]``."""
        start = torch.randint(self.N, (self._batch_size,), generator=generator)
        (walker,) = self._walkers
        walks: Tensor = walker.walk(start, self.walk_length, on_end="stay", generator=generator)
        return walks
