"""Seed nodes in, batches out: ``NodeLoader``, and those of a sampler each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch_geometric.loader
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_graphzero.loader.engine import EngineLoader
from pyg_graphzero.loader.first_aggregation import check_first_aggregation
from pyg_graphzero.loader.inputs import check_input_nodes, sampler_of
from pyg_graphzero.loader.keyed import Graph_co
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.sampling.base import Prepared
from pyg_graphzero.sampling.graph import resolve
from pyg_graphzero.sampling.hgt import HGTSampler
from pyg_graphzero.sampling.options import SamplingOptions
from pyg_graphzero.sampling.windows import check_of_seeds


class NodeLoader(EngineLoader[Graph_co], torch_geometric.loader.NodeLoader):
    """A mini-batch loader around seed nodes; see PyG's class of the same name.

    A subclass of PyG's ``NodeLoader`` that takes its arguments and yields its batches, and the base
    of ``NeighborLoader`` and ``HGTLoader``. With a sampler of ``gz.sampler`` the engine samples and
    gathers, as there. Any other samples as it does in PyG's loader, in processes; over a store,
    attributes are read whole then.

    Args:
        data: A ``Store``, its ``.data()``, its ``(feature_store, graph_store)``, or ``Data`` or
            ``HeteroData`` in memory.
        node_sampler: A sampler of ``gz.sampler``, or any PyG ``BaseSampler``, over the same graph.
        input_nodes: Seeds: None (all nodes), an index (integers ``[n]``), a mask (``bool
            [num_nodes]``), a node type, or (type, one of them).
        input_time: Times of the seeds, ``[n]``; needs a sampler with a ``time_attr``.
        transform: Called with every batch.
        transform_sampler_output: Called with every sampler output.
        filter_per_worker: Matters only with a sampler that is not ours; the engine gathers ahead.
        custom_cls: Taken for PyG's sake.
        input_id: Shown by ``batch.input_id`` for each seed, ``int64 [n]``; None: its position.
        device: Where batches are delivered; see ``NeighborLoader``.
        edge_ids: With a sampler of ours, batches have ``e_id``; see ``NeighborLoader``.
        options: None, or how the sampler draws, once more.
        **kwargs: Arguments of ``torch.utils.data.DataLoader``; see ``NeighborLoader``.

    Raises:
        ValueError: An argument that does not fit the graph.
        IndexError: A seed that is not a node.

    Example:
        >>> import pyg_graphzero as gz
        >>> data = gz.open(example_store).data()
        >>> sampler = gz.sampler.NeighborSampler(data, num_neighbors=[-1])
        >>> loader = gz.loader.NodeLoader(data, sampler, input_nodes=[2], batch_size=4)
        >>> next(iter(loader)).n_id.tolist()
        [2, 1, 0]
    """

    def __init__(
        self,
        data: Graph_co | Store | Sequence[Any],
        node_sampler: Any,
        input_nodes: Any = None,
        input_time: Tensor | None = None,
        transform: Any = None,
        transform_sampler_output: Any = None,
        filter_per_worker: bool | None = None,
        custom_cls: Any = None,
        input_id: Tensor | None = None,
        *,
        device: Any = None,
        edge_ids: bool = True,
        options: SamplingOptions | None = None,
        **kwargs: Any,
    ) -> None:
        self.edge_ids = edge_ids
        self._keep(device, options, node_sampler)
        data = resolve(data)
        # By name: super() is PyG's NeighborLoader in a NeighborLoader, and would make its sampler.
        torch_geometric.loader.NodeLoader.__init__(
            self, data, node_sampler, check_input_nodes(data, input_nodes), input_time, transform,
            transform_sampler_output, filter_per_worker, custom_cls, **kwargs,
        )  # fmt: skip
        seeds, of_seeds = self.input_data, {"input_id": input_id, "input_time": input_time}
        check_of_seeds(len(seeds.node), "seeds", time_window=self.seed_windows, **of_seeds)
        if input_id is not None:  # PyG leaves it out where all nodes are seeds
            self.input_id = seeds.input_id = input_id.cpu()

    def _prepare(self, index: Any, key: int) -> Prepared:
        windows = () if self.seed_windows is None else (self.seed_windows[index],)
        prepared: Prepared = self.node_sampler.prepare_nodes(self.input_data[index], *windows)
        return prepared

    def seed_rows(self) -> Tensor:
        """Seeds in order; see :class:`~pyg_graphzero.memory.source.BatchSource`."""
        seeds: Tensor = self.input_data.node
        return seeds

    def _label(self, batch: Data | HeteroData, metadata: Any) -> None:
        input_type = self.input_data.input_type
        seeds = batch if input_type is None else batch[input_type]
        seeds.input_id, seeds.seed_time = metadata[:2]
        seeds.batch_size = metadata[0].size(0)


class NeighborLoader(NodeLoader[Graph_co], torch_geometric.loader.NeighborLoader):
    """A mini-batch loader with neighbour sampling; see PyG's class of the same name.

    A subclass of PyG's ``NeighborLoader`` that takes its arguments and yields its batches. Sampling
    and feature gathering run in C++ without the GIL. ``torch.manual_seed`` (or ``generator=``)
    governs both shuffling and sampling; batches do not depend on ``num_workers`` or threads.

    Args:
        data: A ``Store``, its ``.data()``, its ``(feature_store, graph_store)``, or ``Data`` or
            ``HeteroData`` in memory.
        num_neighbors: Fan-out per hop: a list, a dict by edge type, or ``NumNeighbors``; -1 takes
            all neighbours.
        input_nodes: Seeds: None (all nodes), an index, a mask, a node type, or (type, one of them).
        input_time: Times of the seeds, one each; needs ``time_attr``.
        replace: Draw with replacement.
        subgraph_type: ``"directional"``, ``"bidirectional"`` or ``"induced"``.
        disjoint: Every seed grows a tree of its own, named by ``batch.batch``.
        temporal_strategy: ``"uniform"``, or ``"last"`` for the newest neighbours.
        time_attr: Node or edge attribute with times: nothing later than its seed is drawn.
        time_window: With ``time_attr``: nothing is drawn that is more than this earlier than its
            seed. A number in the units of the times, or a tensor with one for each seed.
        weight_attr: Edge attribute in proportion to which neighbours are drawn.
        transform: Called with every batch.
        transform_sampler_output: Called with every sampler output.
        is_sorted: Neighbourhoods are sorted by time already.
        filter_per_worker: Matters only with a sampler that is not ours; the engine gathers ahead.
        neighbor_sampler: A PyG ``BaseSampler`` to use instead.
        directed: Deprecated; False means ``subgraph_type="induced"``.
        device: Where batches are delivered: copied there while the last one trains, None leaves
            them in main memory.
        edge_ids: Batches have ``e_id``. Where it is not used, False spares a lookup for every
            edge, and reads where the ids do not fit in memory.
        first_aggregation: ``"mean"`` or ``"sum"``: neighbours' features are added up while they are
            gathered, for an accelerated model whose first layer does that; ``x`` has no rows of the
            last hop then. ``gz.nn.accelerate(model, loader=loader)`` sets it.
        options: How neighbours and seeds are drawn beyond that; see ``SamplingOptions``.
        **kwargs: ``input_id`` (what ``batch.input_id`` shows for each seed), ``custom_cls``, and
            the arguments of ``torch.utils.data.DataLoader``. A setting that is changed in the
            middle of an epoch applies to the next batch that is asked for, but for seeds,
            neighbours and rows of batches that workers have made already.

    Raises:
        ValueError: An argument that does not fit the graph.
        IndexError: A seed that is not a node.
        UnsupportedError: ``first_aggregation`` with what makes batches in another way.

    Example:
        >>> import pyg_graphzero as gz
        >>> data = gz.open(example_store).data()
        >>> loader = gz.loader.NeighborLoader(data, num_neighbors=[-1], batch_size=4)
        >>> next(iter(loader)).batch_size
        4
    """

    def __init__(
        self,
        data: Graph_co | Store | Sequence[Any],
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: Tensor | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Any = None,
        transform_sampler_output: Any = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        *,
        device: Any = None,
        edge_ids: bool = True,
        time_window: Any = None,
        first_aggregation: str | None = None,
        options: SamplingOptions | None = None,
        **kwargs: Any,
    ) -> None:
        if input_time is not None and time_attr is None:
            raise ValueError("input_time: found one without time_attr, expected both or neither")
        data = resolve(data)
        sampler = sampler_of(self, data, locals(), self._taken)
        super().__init__(
            data, sampler, input_nodes, input_time, transform, transform_sampler_output,
            filter_per_worker, device=device, edge_ids=edge_ids, options=options, **kwargs,
        )  # fmt: skip
        check_first_aggregation(first_aggregation, self)


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
        **kwargs: ``input_id`` (what ``batch[type].input_id`` shows for each seed), and the
            arguments of ``torch.utils.data.DataLoader``.

    Raises:
        TypeError: The graph is homogeneous.
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
        **kwargs: Any,
    ) -> None:
        data = resolve(data)
        super().__init__(
            data, HGTSampler(data, num_samples), input_nodes, None, transform,
            transform_sampler_output, filter_per_worker, device=device, edge_ids=edge_ids,
            **kwargs,
        )  # fmt: skip
        # Lightning makes loaders anew from attributes named as their arguments are.
        self.num_samples = num_samples
        self.is_sorted = is_sorted
