"""Dataset objects of PyG and of the ``ogb`` package as graphs."""

from __future__ import annotations

from typing import Any

from torch_geometric.data import Data, Dataset, HeteroData

from pyg_graphzero.conversion.ogb import add_split
from pyg_graphzero.conversion.pyg import pyg_spec
from pyg_graphzero.conversion.sources import Inputs, Labels
from pyg_graphzero.conversion.spec import GraphSpec
from pyg_graphzero.errors import InputError


def is_dataset(value: Any) -> bool:
    """Whether this is a dataset that holds graphs: PyG's class, or what acts as ``ogb``'s does."""
    has_split = hasattr(value, "get_idx_split") or hasattr(value, "get_edge_split")
    return isinstance(value, Dataset) or (has_split and hasattr(value, "__getitem__"))


def object_spec(dataset: Any, inputs: Inputs) -> GraphSpec:
    """The graph of a dataset, transformed as the dataset does.

    The split of an ``ogb`` dataset becomes masks, and labels become classes ``[num_nodes]`` with
    -1 where there is none; pairs of nodes to predict links for become attributes of the graph.

    Raises:
        InputError: It holds more than one graph, or none of PyG's.
    """
    name = f"<{type(dataset).__name__}>"
    if len(dataset) != 1:
        raise InputError(name, "dataset", f"{len(dataset)} graphs", "one, which a store holds")
    data = dataset[0]
    if not isinstance(data, Data | HeteroData):
        expected = "a Data, as ogb's datasets for PyG have; or pass the dataset's directory"
        raise InputError(name, "graph", type(data).__name__, expected)
    spec = pyg_spec(data, inputs)
    for method in ("get_edge_split", "get_idx_split"):
        if hasattr(dataset, method):
            add_split(spec, getattr(dataset, method)(), name)
    has_classes = "classification" in str(getattr(dataset, "task_type", ""))
    if hasattr(dataset, "get_idx_split") and has_classes:
        for node in spec.nodes.values():
            if "y" in node.attrs:
                node.attrs["y"] = Labels(node.attrs["y"])
    return spec
