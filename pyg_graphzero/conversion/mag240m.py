"""MAG240M's directory to a specification.

``processed/`` has a folder per node type (``paper/node_feat.npy`` …) and per relation
(``author___writes___paper/edge_index.npy``); ``meta.pt`` the numbers of nodes and classes, and
``split_dict.pt`` the papers of each split. ``docs/convert.md`` says where it is described.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyg_graphzero.conversion.arrays import as_table
from pyg_graphzero.conversion.ogb import SPLITS
from pyg_graphzero.conversion.plan import NodeType
from pyg_graphzero.conversion.pyg import load_safely
from pyg_graphzero.conversion.sources import Labels, mask
from pyg_graphzero.conversion.spec import EdgeSpec, GraphSpec, NodeSpec
from pyg_graphzero.errors import InputError

LOOKED_FOR = "meta.pt beside processed/HEAD___RELATION___TAIL"
_ATTRS = {"node_feat": "x", "node_label": "y", "node_year": "year"}


def is_mag240m(path: Path) -> bool:
    """Whether a directory has this layout."""
    return (path / "meta.pt").exists() and any(path.glob("processed/*___*___*/edge_index.npy"))


def mag240m_spec(path: Path) -> GraphSpec:
    """The graph in such a directory.

    Raises:
        InputError: ``meta.pt`` or ``split_dict.pt`` holds something else than it should.
    """
    meta = _mapping(path / "meta.pt")
    num_classes = meta.pop("num_classes", None)
    nodes: dict[NodeType, NodeSpec] = {}
    for node_type, count in meta.items():
        attrs: dict[str, Any] = {
            attr: file
            for stem, attr in _ATTRS.items()
            if (file := path / "processed" / node_type / f"{stem}.npy").exists()
        }
        if "y" in attrs:
            attrs["y"] = Labels(attrs["y"], num_classes)
        nodes[node_type] = NodeSpec(num_nodes=int(count), ids="dense", attrs=attrs)
    edges = []
    for file in sorted(path.glob("processed/*___*___*/edge_index.npy")):
        head, relation, tail = file.parent.name.split("___")
        edges.append(EdgeSpec((head, relation, tail), file, edge_layout="2xE"))
    split = path / "split_dict.pt"
    for part, ids in (_mapping(split) if split.exists() else {}).items():
        whole = part.removesuffix("-whole")
        name = SPLITS.get(whole, f"{whole.replace('-', '_')}_mask")
        nodes["paper"].attrs[name] = mask(as_table(ids, part, split))
    return GraphSpec(nodes, edges, path, what="MAG240M directory")


def _mapping(path: Path) -> dict[str, Any]:
    value = load_safely(path)
    if not isinstance(value, dict):
        raise InputError(path, "file", type(value).__name__, "a dict")
    return dict(value)
