"""Dataset objects of PyG and of the ``ogb`` package: one graph, with its split and labels."""

from __future__ import annotations

import copy
import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, Dataset, HeteroData

from pyg_graphzero.conversion.ogb import SPLITS, num_classes, read_split, split_pairs
from pyg_graphzero.errors import InputError
from pyg_graphzero.util.reading import reading


def is_dataset(value: Any) -> bool:
    """Whether this is a dataset that holds graphs: PyG's class, or what acts as ``ogb``'s does."""
    has_split = hasattr(value, "get_idx_split") or hasattr(value, "get_edge_split")
    return isinstance(value, Dataset) or (has_split and hasattr(value, "__getitem__"))


def dataset_graph(dataset: Any) -> Data | HeteroData:
    """The graph of a dataset, transformed as the dataset does.

    Of an ``ogb`` dataset the split becomes masks, and labels become classes ``[num_nodes]`` with
    -1 where there is none; pairs of nodes to predict links for become attributes of the graph.

    Raises:
        InputError: It holds more than one graph, or a label is no class of it.
    """
    name = f"<{type(dataset).__name__}>"
    if len(dataset) != 1:
        raise InputError(name, "dataset", f"{len(dataset)} graphs", "one, which a store holds")
    data = copy.copy(dataset[0])
    if not isinstance(data, Data | HeteroData):
        expected = "a Data, as ogb's datasets for PyG have; or pass the dataset's directory"
        raise InputError(name, "graph", type(data).__name__, expected)
    if hasattr(dataset, "get_edge_split"):
        _add_split(data, dataset.get_edge_split(), name)
    if not hasattr(dataset, "get_idx_split"):
        return data
    _add_split(data, dataset.get_idx_split(), name)
    classes = getattr(dataset, "num_classes", None)
    if "classification" in str(getattr(dataset, "task_type", "")):
        for store in data.node_stores:
            if "y" in store:
                store["y"] = _classes(store["y"], classes, name)
    return data


def processed_graph(root: Path, data: Data | HeteroData) -> Data | HeteroData:
    """A graph that ``ogb`` processed, with the split that lies beside it, and labels as classes.

    Args:
        root: The directory of the dataset, which may have no ``split``.
        data: What its processed file holds.

    Raises:
        InputError: The split is damaged, or of other nodes.
    """
    split = read_split(root)
    if split is None or not split.parts:
        return data
    data = copy.copy(data)
    _add_split(data, split.parts, str(split.folder))
    for store in data.node_stores:
        if "y" in store and _is_whole(store["y"]):
            store["y"] = _classes(store["y"], num_classes(root), f"{root}: processed")
    return data


def _add_split(data: Data | HeteroData, split: Mapping[str, Any], name: str) -> None:
    """Masks of the nodes of a split; pairs of nodes as attributes of the graph."""
    for part, attr in SPLITS.items():
        found = split.get(part)
        if found is None:
            continue
        kinds = data.node_types if isinstance(data, HeteroData) else []
        by_type = found if isinstance(found, Mapping) else {None: found}
        if isinstance(found, Mapping) and not found.keys() <= set(kinds):
            for key, value in split_pairs(part, found)[0].items():
                data[key] = value
            continue
        for kind, ids in by_type.items():
            store = data if kind is None else data[kind]
            mask = torch.zeros(store.num_nodes, dtype=torch.bool)
            rows = torch.as_tensor(_numbers(ids) if isinstance(ids, Path) else ids)
            bad = (rows < 0) | (rows >= len(mask))
            if bool(bad.any()):
                expected = f"a node of 0…{len(mask) - 1}"
                raise InputError(name, part, int(rows[bad][0]), expected)
            mask[rows] = True
            store[attr] = mask


def _numbers(path: Path) -> np.ndarray:
    """The ids in a gzipped file of a line each."""
    with reading(path, "file", "a gzipped file of integers"), gzip.open(path, "rt") as lines:
        return np.loadtxt(lines, dtype=np.int64, ndmin=1)


def _is_whole(labels: Tensor) -> bool:
    """Whether labels are classes in whatever dtype; values of a regression are not."""
    if not isinstance(labels, Tensor):
        return False
    if not labels.is_floating_point():
        return labels.dtype != torch.bool
    known = labels[~labels.isnan()]
    return bool((known == known.round()).all())


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
