"""Directories with a folder for each node type and relation in ``processed/``: MAG240M and IGB.

MAG240M has ``author___writes___paper/edge_index.npy`` ``[2, E]`` and the like; ``meta.pt`` has the
numbers of nodes and classes, ``split_dict.pt`` the papers of each split. The Illinois Graph
Benchmark, ``small`` to ``full``, has ``paper__cites__paper/edge_index.npy`` ``[E, 2]``; of the two
largest sizes some files are float32 without any header. ``docs/convert.md`` says where both are
described.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.conversion.array_files import open_npy
from pyg_graphzero.conversion.arrays import as_table, only_rows
from pyg_graphzero.conversion.ogb import SPLITS
from pyg_graphzero.conversion.plan import NodeType
from pyg_graphzero.conversion.pyg import load_safely
from pyg_graphzero.conversion.sources import Labels, mask
from pyg_graphzero.conversion.spec import EdgeSpec, GraphSpec, NodeSpec, edge_type_of
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.rows import FileRows, MadeRows, Rows

# Edges of all relations, by what stands between the words of a relation.
RELATIONS = "processed/*{0}*{0}*/edge_index.npy"
_MAGIC = b"\x93NUMPY"
_WIDTH = 1024  # of IGB's features
_LABELS = {"node_label_19": "y", "node_label_2K": "y_2K"}
# Papers of IGB with a label come first, and in the full size not all have one.
_LABELED = {269_346_174: 227_130_858}


def mag240m_spec(path: Path) -> GraphSpec:
    """The graph in a directory of MAG240M.

    Raises:
        InputError: ``meta.pt`` or ``split_dict.pt`` holds something else than it should.
    """
    meta = _mapping(path / "meta.pt")
    meta.pop("num_classes", None)
    nodes: dict[NodeType, NodeSpec] = {}
    for kind, count in meta.items():
        folder = path / "processed" / kind
        files = {"x": folder / "node_feat.npy", "year": folder / "node_year.npy"}
        attrs: dict[str, Any] = {attr: file for attr, file in files.items() if file.exists()}
        if (folder / "node_label.npy").exists():
            attrs["y"] = Labels(folder / "node_label.npy")
        nodes[kind] = NodeSpec(num_nodes=int(count), ids="dense", attrs=attrs)
    split = path / "split_dict.pt"
    for part, ids in (_mapping(split) if split.exists() else {}).items():
        whole = part.removesuffix("-whole")
        name = SPLITS.get(whole, f"{whole.replace('-', '_')}_mask")
        nodes["paper"].attrs[name] = mask(as_table(ids, part, split))
    return GraphSpec(nodes, _edges(path, "___", "2xE"), path, what="MAG240M directory")


def igb_spec(path: Path) -> GraphSpec:
    """The graph in a directory of IGB; of papers alone it is homogeneous.

    The masks are those of the benchmark's own loader: of the labelled papers the first 60% are for
    training, the next 20% for validation and the rest for testing.

    Raises:
        InputError: A file is damaged.
    """
    edges = _edges(path, "__", "Ex2")
    if len(edges) == 1:
        edges[0].type = None
    nodes: dict[NodeType, NodeSpec] = {}
    for file in sorted(path.glob("processed/*/node_feat.npy")):
        x = _open(file, _WIDTH)
        attrs: dict[str, Any] = {"x": x}
        for stem, attr in _LABELS.items():
            labels = file.with_name(f"{stem}.npy")
            if labels.exists():
                attrs[attr] = Labels(_open(labels))
        if len(attrs) > 1:
            attrs |= _masks(len(x))
        name = file.parent.name if len(edges) > 1 else None
        nodes[name] = NodeSpec(num_nodes=len(x), ids="dense", attrs=attrs)
    return GraphSpec(nodes, edges, path, what="IGB directory")


def _edges(path: Path, mark: str, layout: str) -> list[EdgeSpec]:
    edges = []
    for file in sorted(path.glob(RELATIONS.format(mark))):
        edge_type = edge_type_of(file.parent.name.split(mark), "relation", file)
        edges.append(EdgeSpec(edge_type, file, edge_layout=layout))
    return edges


def _mapping(path: Path) -> dict[str, Any]:
    value = load_safely(path)
    if not isinstance(value, dict):
        raise InputError(path, "file", type(value).__name__, "a dict")
    return dict(value)


def _open(path: Path, width: int = 1) -> Rows:
    with open(path, "rb") as file:
        if file.read(len(_MAGIC)) == _MAGIC:
            return only_rows(open_npy(path), path)
    count, rest = divmod(path.stat().st_size, 4 * width)
    if rest:
        raise InputError(path, "file", f"{path.stat().st_size} bytes", f"a multiple of {4 * width}")
    shape = (count, width) if width > 1 else (count,)
    return FileRows(path, 0, shape, torch.float32, sys.byteorder == "big")


def _masks(num_nodes: int) -> dict[str, Rows]:
    labeled = _LABELED.get(num_nodes, num_nodes)
    train, val = int(labeled * 0.6), int(labeled * 0.2)
    ends = {"train_mask": (0, train), "val_mask": (train, train + val)}
    ends["test_mask"] = (train + val, labeled)
    shape, kind = (num_nodes,), torch.bool
    return {name: MadeRows(shape, kind, partial(_between, *each)) for name, each in ends.items()}


def _between(first: int, last: int, begin: int, end: int) -> Tensor:
    """Which of the rows from ``begin`` on are those from ``first`` to ``last``."""
    rows = torch.arange(begin, end)
    return (rows >= first) & (rows < last)
