"""A directory of the Illinois Graph Benchmark to a specification: ``small``, ``medium`` … ``full``.

``processed/`` has a folder per node type (``paper/node_feat.npy``, ``node_label_19.npy``) and per
relation (``paper__cites__paper/edge_index.npy``, ``[E, 2]``). Of the two largest sizes some `.npy`
files are float32 without any header. ``docs/convert.md`` says where the layout is described.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyg_graphzero.conversion.arrays import only_rows
from pyg_graphzero.conversion.npz import open_npy
from pyg_graphzero.conversion.plan import NodeType
from pyg_graphzero.conversion.sources import Labels
from pyg_graphzero.conversion.spec import EdgeSpec, GraphSpec, NodeSpec
from pyg_graphzero.conversion.tensors import open_raw
from pyg_graphzero.store.rows import RangeRows, Rows

LOOKED_FOR = "processed/paper__cites__paper/edge_index.npy"
_MAGIC = b"\x93NUMPY"
_WIDTH = 1024  # of the features
_LABELS = {"node_label_19": ("y", 19), "node_label_2K": ("y_2K", 2983)}
# Papers with a label come first, and in the full size not all have one.
_LABELED = {269_346_174: 227_130_858}


def is_igb(path: Path) -> bool:
    """Whether a directory has this layout."""
    return (path / LOOKED_FOR).exists()


def igb_spec(path: Path) -> GraphSpec:
    """The graph in such a directory; of papers alone it is homogeneous.

    The masks are those of the benchmark's own loader: of the labelled papers the first 60% are for
    training, the next 20% for validation and the rest for testing.

    Raises:
        InputError: A file is damaged.
    """
    relations = sorted(file.parent for file in path.glob("processed/*__*__*/edge_index.npy"))
    is_hetero = len(relations) > 1
    nodes: dict[NodeType, NodeSpec] = {}
    for file in sorted(path.glob("processed/*/node_feat.npy")):
        x = _open(file, f"float32[{_WIDTH}]")
        attrs: dict[str, Any] = {"x": x}
        for stem, (attr, num_classes) in _LABELS.items():
            labels = file.with_name(f"{stem}.npy")
            if labels.exists():
                attrs[attr] = Labels(_open(labels, "float32"), num_classes)
        if len(attrs) > 1:
            attrs |= _masks(len(x))
        name = file.parent.name if is_hetero else None
        nodes[name] = NodeSpec(num_nodes=len(x), ids="dense", attrs=attrs)
    edges = []
    for folder in relations:
        head, relation, tail = folder.name.split("__")
        edge_type = (head, relation, tail) if is_hetero else None
        edges.append(EdgeSpec(edge_type, folder / "edge_index.npy", edge_layout="Ex2"))
    return GraphSpec(nodes, edges, path, what="IGB directory")


def _open(path: Path, layout: str) -> Rows:
    with open(path, "rb") as file:
        is_npy = file.read(len(_MAGIC)) == _MAGIC
    return only_rows(open_npy(path), path) if is_npy else open_raw(path, layout)


def _masks(num_nodes: int) -> dict[str, Rows]:
    labeled = _LABELED.get(num_nodes, num_nodes)
    train, val = int(labeled * 0.6), int(labeled * 0.2)
    return {
        "train_mask": RangeRows(num_nodes, 0, train),
        "val_mask": RangeRows(num_nodes, train, train + val),
        "test_mask": RangeRows(num_nodes, train + val, labeled),
    }
