"""Lightning's data modules: PyG's, with our sampler and our loaders.

PyG's ``LightningNodeData`` and ``LightningLinkData`` have ``LightningData`` make the sampler, and
``dataloader`` the loaders. Here a class between those two makes our sampler.
"""

from __future__ import annotations

from typing import Any

from torch_geometric.data.lightning import datamodule

from pyg_graphzero.loader.links import LinkLoader
from pyg_graphzero.loader.nodes import NodeLoader
from pyg_graphzero.sampling.graph import resolve
from pyg_graphzero.sampling.neighbor import NeighborSampler


class _OwnSampler(datamodule.LightningData):
    """Stands behind PyG's classes, in front of ``LightningData``, whose arguments it takes."""

    def __init__(self, data: Any, loader: str, graph_sampler: Any, **kwargs: Any) -> None:
        data, options = resolve(data), kwargs.pop("options", None)
        if graph_sampler is None and loader in ("neighbor", "link_neighbor"):
            own, kwargs = datamodule.split_kwargs(kwargs, NeighborSampler)
            graph_sampler = NeighborSampler(data, **own, options=options and options.of_neighbors)
        super().__init__(data=data, loader=loader, graph_sampler=graph_sampler, **kwargs)
        if options is not None:
            self.loader_kwargs["options"] = self.eval_loader_kwargs["options"] = options


class LightningNodeData(datamodule.LightningNodeData, _OwnSampler):
    """A Lightning data module of seed nodes; see PyG's class of the same name.

    A subclass of PyG's ``LightningNodeData`` that takes its arguments. Its sampler is a
    ``gz.sampler.NeighborSampler`` unless ``node_sampler`` is given, and its loaders are
    ``gz.loader.NodeLoader``.

    Args:
        data: A ``Store``, its ``.data()``, or ``Data`` or ``HeteroData`` in memory.
        *args: Arguments of PyG's class, in its order.
        **kwargs: Arguments of PyG's class; those of ``gz.sampler.NeighborSampler``
            (``num_neighbors`` …); those of ``gz.loader.NodeLoader``, ``device``, ``edge_ids`` and
            ``options`` among them.

    Raises:
        ModuleNotFoundError: Lightning is not installed.
        ValueError: An argument that does not fit the graph.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> data = gz.open(example_store).data()
        >>> module = gz.loader.LightningNodeData(
        ...     data, torch.tensor([1, 2]), num_neighbors=[-1], batch_size=2, pin_memory=False
        ... )
        >>> next(iter(module.train_dataloader())).batch_size
        2
    """

    def __init__(self, data: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(resolve(data), *args, **kwargs)

    def dataloader(
        self, input_nodes: Any, input_time: Any = None, input_id: Any = None, **kwargs: Any
    ) -> Any:
        """A loader of some seeds, as PyG's class asks for it."""
        seeds = {"input_nodes": input_nodes, "input_time": input_time, "input_id": input_id}
        if self.loader == "full":
            return super().dataloader(**seeds, **kwargs)
        return NodeLoader(self.data, **seeds, **kwargs)


class LightningLinkData(datamodule.LightningLinkData, _OwnSampler):
    """A Lightning data module of seed edges; see PyG's class of the same name.

    A subclass of PyG's ``LightningLinkData`` that takes its arguments. Its sampler is a
    ``gz.sampler.NeighborSampler`` unless ``link_sampler`` is given, and its loaders are
    ``gz.loader.LinkLoader``.

    Args:
        data: A ``Store``, its ``.data()``, its ``(feature_store, graph_store)``, or ``Data`` or
            ``HeteroData`` in memory.
        **kwargs: Arguments of PyG's class; those of ``gz.sampler.NeighborSampler``
            (``num_neighbors`` …); those of ``gz.loader.LinkLoader`` (``neg_sampling`` …),
            ``device``, ``edge_ids`` and ``options`` among them.

    Raises:
        ModuleNotFoundError: Lightning is not installed.
        ValueError: An argument that does not fit the graph.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> data = gz.open(example_store).data()
        >>> edges = torch.tensor([[0, 1], [1, 2]])
        >>> module = gz.loader.LightningLinkData(
        ...     data, edges, num_neighbors=[-1], batch_size=2, pin_memory=False
        ... )
        >>> next(iter(module.train_dataloader())).edge_label_index.shape
        torch.Size([2, 2])
    """

    def dataloader(
        self, input_edges: Any, input_labels: Any = None, input_time: Any = None,
        input_id: Any = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """A loader of some seeds, as PyG's class asks for it."""
        if self.loader == "full":
            return super().dataloader(input_edges, input_labels, input_time, input_id, **kwargs)
        return LinkLoader(
            self.data, edge_label_index=input_edges, edge_label=input_labels,
            edge_label_time=input_time, input_id=input_id, **kwargs,
        )  # fmt: skip
