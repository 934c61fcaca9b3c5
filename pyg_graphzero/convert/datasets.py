"""Dataset objects of PyG and of the ``ogb`` package: one graph, with its split and labels."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, Dataset, HeteroData

from ..errors import InputError
from .ogb import SPLITS

_NAMES = {"node_feat": "x", "edge_feat": "edge_attr"}


def is_dataset(value: Any) -> bool:
    """Whether this is a dataset that holds graphs: PyG's class, or what acts as ``ogb``'s does."""
    return isinstance(value, Dataset) or (
        hasattr(value, "get_idx_split") and hasattr(value, "__getitem__")
    )


def dataset_graph(dataset: Any) -> Data | HeteroData:
    """The graph of a dataset, transformed as the dataset does.

    Of an ``ogb`` dataset the split becomes masks, and labels become classes ``[num_nodes]`` with
    -1 where there is none.

    Raises:
        InputError: It holds more than one graph, or a label is no class of it.
    """
    name = f"<{type(dataset).__name__}>"
    if len(dataset) != 1:
        raise InputError(name, "dataset", f"{len(dataset)} graphs", "one, which a store holds")
    item = dataset[0]
    data = _from_ogb(*item) if isinstance(item, tuple) else copy.copy(item)
    if not hasattr(dataset, "get_idx_split"):
        return data
    split = dataset.get_idx_split()
    for part, attr in SPLITS.items():
        found = split.get(part)
        for kind, ids in found.items() if isinstance(found, Mapping) else [(None, found)]:
            store = data if kind is None else data[kind]
            mask = torch.zeros(store.num_nodes, dtype=torch.bool)
            mask[torch.as_tensor(ids)] = True
            store[attr] = mask
    classes = getattr(dataset, "num_classes", None)
    if "classification" in str(getattr(dataset, "task_type", "")):
        for store in data.node_stores:
            if "y" in store:
                store["y"] = _classes(store["y"], classes, name)
    return data


def _classes(labels: Tensor, count: int | None, name: str) -> Tensor:
    if labels.is_floating_point():
        labels = labels.nan_to_num(nan=-1.0)
    labels = labels.long()
    if labels.dim() == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    bad = (labels < -1) | (labels >= count if count is not None else False)
    if bool(bad.any()):
        row = int(bad.nonzero()[0, 0])
        expected = f"a class of 0…{count - 1}" if count is not None else "a class of 0 or more"
        raise InputError(name, f"y[{row}]", labels[bad][0].item(), f"{expected}, or NaN for none")
    return labels


def _from_ogb(graph: Mapping[str, Any], labels: Any) -> Data | HeteroData:
    """The graph and labels that ``ogb``'s datasets for no library in particular hold."""
    if "edge_index" not in graph:
        return _from_ogb_hetero(graph, labels)
    data = Data()
    for name, value in graph.items():
        if value is not None and name != "num_nodes":
            data[_NAMES.get(name, name)] = torch.as_tensor(value)
    data.num_nodes = int(graph["num_nodes"])
    data.y = torch.as_tensor(labels)
    return data


def _from_ogb_hetero(graph: Mapping[str, Any], labels: Mapping[str, Any]) -> HeteroData:
    data = HeteroData()
    for kind, count in graph["num_nodes_dict"].items():
        data[kind].num_nodes = int(count)
    for name, values in graph.items():
        attr = name.removesuffix("_dict")
        if attr != "num_nodes":
            for kind, value in (values or {}).items():
                data[kind][_NAMES.get(attr, attr)] = torch.as_tensor(value)
    for kind, value in labels.items():
        data[kind].y = torch.as_tensor(value)
    return data
