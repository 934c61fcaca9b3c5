"""``HGTLoader``: seed nodes in, batches with about as many nodes of every type out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch_geometric.loader
from torch import Tensor

from pyg_graphzero.loader.keyed import Graph_co
from pyg_graphzero.loader.nodes import NodeLoader
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.sampling.graph import resolve
from pyg_graphzero.sampling.hgt import HGTSampler
from pyg_graphzero.sampling.windows import split_window


class HGTLoader(NodeLoader[Graph_co], torch_geometric.loader.HGTLoader):
    """A mini-batch loader for heterogeneous graphs; see PyG's class of the same name.

    A subclass of PyG's ``HGTLoader`` that takes its arguments and yields its batches, without
    torch-sparse. How nodes are chosen is said at ``HGTSampler`` (Hu et al. 2020, "Heterogeneous
    Graph Transformer"). Batches are as ``NeighborLoader``'s, with ``num_sampled_nodes`` per hop
    and all edges among the sampled nodes, so no ``num_sampled_edges``; they do not depend on
    ``num_workers`` or threads.

    Args:
        data: A heterogeneous ``Store``, its ``.data()``, its ``(feature_store, graph_store)``, or
            ``HeteroData`` in memory.
        num_samples: Nodes to add per hop: a list for every node type, or a dict of lists of equal
            length by node type; 0 adds none, types that are not in the dict get none.
        input_nodes: Seeds: a node type, or (node type, index or mask or None).
        is_sorted: Taken for PyG's sake: stores are sorted, and edges in memory are sorted once.
        transform: Called with every batch.
        transform_sampler_output: Called with every sampler output.
        filter_per_worker: Taken for PyG's sake: the engine gathers ahead.
        device: Where batches are delivered; see ``NeighborLoader``.
        edge_ids: Batches have ``e_id``. Where it is not used, False spares a lookup for every
            edge, and reads where the ids do not fit in memory.
        locality: Shuffle groups of neighbouring seeds; see ``NeighborLoader``.
        input_time: Times of the seeds, one each; needs ``time_attr``.
        time_attr: Node or edge attribute with times: every seed grows a tree of its own, named by
            ``batch[type].batch``, with nothing that is later than the seed.
        temporal_strategy: ``"uniform"``, the only one.
        time_window: With ``time_attr``: nothing is there that is more than this earlier than its
            seed. A number in the units of the times, a list by hop, a dict of these by edge type,
            or a tensor with a number for each seed.
        strict: With ``time_attr``: nothing of the seed's very time is there either.
        **kwargs: ``input_id`` (what ``batch[type].input_id`` shows for each seed), and the
            arguments of ``torch.utils.data.DataLoader``.

    Raises:
        TypeError: The graph is homogeneous.
        UnsupportedError: ``temporal_strategy="last"``.
        ValueError: An argument that does not fit the graph.
        IndexError: A seed that is not a node.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> from torch_geometric.data import HeteroData
        >>> data = HeteroData()
        >>> data["author"].x, data["paper"].x = torch.eye(3), torch.eye(2)
        >>> data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 2], [0, 0, 1]])
        >>> loader = gz.loader.HGTLoader(data, {"author": [2]}, "paper", batch_size=1)
        >>> [batch["author"].n_id.sort().values.tolist() for batch in loader]
        [[0, 1], [2]]
    """

    def __init__(
        self,
        data: Graph_co | Store | Sequence[Any],
        num_samples: Any,
        input_nodes: Any,
        is_sorted: bool = False,
        transform: Any = None,
        transform_sampler_output: Any = None,
        filter_per_worker: bool | None = None,
        *,
        device: Any = None,
        edge_ids: bool = True,
        locality: int | None = None,
        input_time: Tensor | None = None,
        time_attr: str | None = None,
        temporal_strategy: str = "uniform",
        time_window: Any = None,
        strict: bool = False,
        **kwargs: Any,
    ) -> None:
        given_window, (time_window, self._seed_windows) = time_window, split_window(time_window)
        data = resolve(data)
        sampler = HGTSampler(
            data, num_samples, time_attr=time_attr, temporal_strategy=temporal_strategy,
            time_window=time_window, strict=strict,
        )  # fmt: skip
        super().__init__(
            data, sampler, input_nodes, input_time, transform, transform_sampler_output,
            filter_per_worker, device=device, edge_ids=edge_ids, locality=locality, **kwargs,
        )  # fmt: skip
        # Lightning makes loaders anew from attributes named as their arguments are.
        self.num_samples = num_samples
        self.is_sorted = is_sorted
        self.time_attr, self.temporal_strategy = time_attr, temporal_strategy
        self.time_window, self.strict = given_window, strict
