"""HGT sampling as a PyG ``BaseSampler``, over a store or a graph in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch_geometric.data import HeteroData
from torch_geometric.sampler import HeteroSamplerOutput

from pyg_graphzero import _core
from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.sampling.base import Reading
from pyg_graphzero.sampling.graph import Unmapped, graph_of, resolve
from pyg_graphzero.sampling.options import TimeOptions
from pyg_graphzero.sampling.order import add_order
from pyg_graphzero.sampling.timed import TimedSampler
from pyg_graphzero.store.schema import EdgeType


@dataclass(frozen=True)
class HGTOptions(TimeOptions):
    """The options of an :class:`HGTSampler`, where each is described.

    Raises:
        ValueError: As :class:`TimeOptions`.
        UnsupportedError: ``temporal_strategy="last"``.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temporal_strategy == "last":
            raise UnsupportedError(
                "temporal_strategy: found 'last', expected 'uniform': HGT sampling draws nodes in "
                "proportion to their budgets, not the newest; time_window limits how old they are"
            )


class HGTSampler(TimedSampler):
    """Samples about as many nodes of every type, and all edges among them.

    Every sampled node gives each of its ``n`` in-neighbours by an edge type ``1 / n`` of budget; a
    hop adds ``num_samples`` nodes of each type, drawn without replacement in proportion to budget
    squared (Hu et al. 2020, "Heterogeneous Graph Transformer", Algorithms 1 and 2). As in
    torch-sparse, a hop's nodes of all types are drawn before any of them adds to a budget, and of a
    node with more than 50 neighbours by one edge type only 50, drawn at random, get budget. Edges
    among sampled nodes are complete all the same. A batch is a function of its key alone.

    With ``time_attr``, every seed grows a tree of its own, at its time ``t``: trees share no node,
    and the same node in two trees is two nodes of the sample. All of the above is then said of the
    nodes of a tree, whose neighbours are those with ``t - time_window <= time <= t``: ``n`` counts
    these, the 50 are drawn from these, and edges join nodes of one tree and are among these. So a
    tree has nothing that is later than its seed. ``num_samples`` counts the nodes of all trees
    together, which compete for their places by their budgets. Types without times are not
    restricted, as with ``NeighborSampler``.

    Args:
        data: A heterogeneous ``Store``, its ``.data()``, or ``HeteroData`` in memory.
        num_samples: Nodes to add per hop: a list for every node type, or a dict of lists of equal
            length by node type; types that are not in it get no nodes besides seeds.
        num_threads: Threads inside one batch; 0 uses as many as torch does.
        time_attr: Node or edge attribute with times. Node times stand in for seed times where none
            are given.
        temporal_strategy: ``"uniform"``: among all neighbours in time, by budget.
        time_window: With ``time_attr``: a number in the units of the times, a list by hop, or a
            dict of these by edge type; None is no limit. The window of a hop is that of the edges
            into the nodes whose neighbours it looks at (the first hop's: into seeds); that of the
            last hop is also that of the edges into the nodes that it adds.
        strict: With ``time_attr``: nothing of the seed's very time is there either.

    Raises:
        TypeError: The graph is homogeneous.
        ValueError: A negative count, an unknown node type, lists of different length, an attribute
            that is not there.
        UnsupportedError: ``temporal_strategy="last"``.

    Example:
        >>> import torch
        >>> from pyg_graphzero.sampling.hgt import HGTSampler
        >>> from torch_geometric.data import HeteroData
        >>> from torch_geometric.sampler import NodeSamplerInput
        >>> data = HeteroData()
        >>> data["author"].x, data["paper"].x = torch.eye(3), torch.eye(2)
        >>> data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 2], [0, 0, 1]])
        >>> sampler = HGTSampler(data, {"author": [1]})
        >>> seeds = NodeSamplerInput(None, torch.tensor([1]), None, "paper")
        >>> out = sampler.sample_from_nodes(seeds)
        >>> out.node["author"].tolist(), out.num_sampled_nodes["author"]
        ([2], [0, 1])
    """

    def __init__(
        self,
        data: Any,
        num_samples: Any,
        num_threads: int = 0,
        *,
        time_attr: str | None = None,
        temporal_strategy: str = "uniform",
        time_window: Any = None,
        strict: bool = False,
    ) -> None:
        options = HGTOptions.of(locals())
        data = resolve(data)
        if not isinstance(data, HeteroData):
            raise TypeError(
                f"data: found {type(data).__name__}, expected a heterogeneous graph; for a "
                "homogeneous one use gz.loader.NeighborLoader"
            )
        graph = graph_of(data)
        if options.time_attr is not None:
            add_order(graph, data, options.time_attr, None)
        self.options = options
        super().__init__(graph, True, num_threads)
        self.num_samples = num_samples
        self.windows()  # raises where one does not fit

    def _build(self, unmapped: Mapping[EdgeType | None, Unmapped]) -> _core.HgtSampler:
        return _core.HgtSampler(self.graph.builder(unmapped))

    @property
    def num_samples(self) -> dict[str, list[int]]:
        """Nodes to add per hop, by node type."""
        return self._num_samples

    @num_samples.setter
    def num_samples(self, value: Any) -> None:
        types = [str(name) for name in self.graph.node_types]
        given = value if isinstance(value, Mapping) else dict.fromkeys(types, value)
        for name, counts in given.items():
            if name not in types:
                raise ValueError(f"num_samples: found node type {name!r}, expected some of {types}")
            if not isinstance(counts, (list, tuple)):
                raise ValueError(
                    f"num_samples of {name!r}: found {counts!r}, expected a list of counts"
                )
            for hop, k in enumerate(counts):
                if isinstance(k, bool) or not isinstance(k, int) or k < 0:
                    raise ValueError(
                        f"num_samples[{hop}] of {name!r}: found {k!r}, expected a count or 0"
                    )
        lengths = {name: len(counts) for name, counts in given.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"num_samples: found {lengths} hops, expected the same number for every node type"
            )
        hops = max(lengths.values(), default=0)
        self._num_samples = {name: list(given.get(name, [0] * hops)) for name in types}

    @property
    def _num_windows(self) -> int:
        # Without hops there are still edges among the seeds.
        return max([1, *map(len, self._num_samples.values())])

    def recipe(
        self, plan: _core.GatherPlan | None = None, reading: Reading | None = None
    ) -> _core.Recipe:
        """How the engine makes batches; see :meth:`GraphSampler.recipe`."""
        reading, counts = reading or self._mapped, list(self._num_samples.values())
        return _core.Recipe.hgt(
            reading.engine,
            counts,
            plan,
            reading.window,
            disjoint=self.options.time_attr is not None,
            earliest=self._window_rows,
        )

    def sample_from_edges(self, *args: Any, **kwargs: Any) -> HeteroSamplerOutput:
        """Not there, as in PyG.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "HGT sampling starts from nodes; around edges use gz.loader.LinkNeighborLoader"
        )

    prepare_edges = sample_from_edges  # a loader of ours asks for this one
