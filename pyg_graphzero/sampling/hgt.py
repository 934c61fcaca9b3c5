"""HGT sampling as a PyG ``BaseSampler``, over a store or a graph in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_geometric.data import HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, NodeSamplerInput

from pyg_graphzero import _core
from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.sampling.base import GraphSampler, Prepared, Reading
from pyg_graphzero.sampling.graph import Unmapped, graph_of, resolve
from pyg_graphzero.sampling.options import counts_of
from pyg_graphzero.store.columns import engine_array
from pyg_graphzero.store.schema import EdgeType


class HGTSampler(GraphSampler):
    """Samples about as many nodes of every type, and all edges among them.

    Every sampled node gives each of its ``n`` in-neighbours by an edge type ``1 / n`` of budget; a
    hop adds ``num_samples`` nodes of each type, drawn without replacement in proportion to budget
    squared (Hu et al. 2020, "Heterogeneous Graph Transformer", Algorithms 1 and 2). A hop's nodes
    of all types are drawn before any of them adds to a budget, and only 50 neighbours of a node by
    one edge type, drawn at random, get budget, as in torch-sparse. Edges among sampled nodes are
    complete all the same. A batch is a function of its key alone.

    Args:
        data: A heterogeneous ``Store``, its ``.data()``, or ``HeteroData`` in memory.
        num_samples: Nodes to add per hop: a list for every node type, or a dict of lists of equal
            length by node type; types that are not in it get no nodes besides seeds.
        num_threads: Threads inside one batch; 0 uses as many as torch does.

    Raises:
        TypeError: The graph is homogeneous.
        ValueError: A negative count, an unknown node type, lists of different length.

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

    def __init__(self, data: Any, num_samples: Any, num_threads: int = 0) -> None:
        data = resolve(data)
        if not isinstance(data, HeteroData):
            raise TypeError(
                f"data: found {type(data).__name__}, expected a heterogeneous graph; for a "
                "homogeneous one use gz.loader.NeighborLoader"
            )
        super().__init__(graph_of(data), True, num_threads)
        self.num_samples = num_samples

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
        for name in given:
            if name not in types:
                raise ValueError(f"num_samples: found node type {name!r}, expected some of {types}")
        counts = counts_of("num_samples", given, 0, "a count or 0")
        lengths = {name: len(each) for name, each in counts.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"num_samples: found {lengths} hops, expected the same number for every node type"
            )
        hops = max(lengths.values(), default=0)
        self._num_samples = {name: counts.get(name, [0] * hops) for name in types}

    def prepare_nodes(self, inputs: NodeSamplerInput) -> Prepared:
        """Lays out a sample around seed nodes.

        Raises:
            ValueError: They have times.
        """
        if inputs.time is not None:
            raise ValueError(
                "seed times: found some, expected none: HGT sampling looks at no times; "
                "NeighborLoader does"
            )
        number, rows = self._seeds(inputs.input_type, inputs.node)
        return Prepared(
            [(number, engine_array(rows), None)], lambda sampled: (inputs.input_id, None)
        )

    def recipe(
        self, plan: _core.GatherPlan | None = None, reading: Reading | None = None
    ) -> _core.Recipe:
        """How the engine makes batches; see :meth:`GraphSampler.recipe`."""
        reading, counts = reading or self._mapped, list(self._num_samples.values())
        return _core.Recipe.hgt(reading.engine, counts, plan, reading.window)

    def sample_from_edges(self, *args: Any, **kwargs: Any) -> HeteroSamplerOutput:
        """Not there, as in PyG.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "HGT sampling starts from nodes; around edges use gz.loader.LinkNeighborLoader"
        )

    prepare_edges = sample_from_edges  # a loader of ours asks for this one
