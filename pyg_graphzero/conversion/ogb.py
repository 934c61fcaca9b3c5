"""A dataset directory of the Open Graph Benchmark to a specification: ``ogbn_arxiv`` and its like.

``raw/`` holds the graph, as gzipped CSV (one matrix per file, no header) or as `.npz`, and
``split/NAME/`` the ids of the training, validation and test nodes. A graph of several types has a
folder per node type and per relation, ``raw/relations/HEAD___RELATION___TAIL``, or archives with a
member for each. ``docs/convert.md`` says where the layout is described.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pyg_graphzero.conversion.array_files import open_npz
from pyg_graphzero.conversion.arrays import Reference
from pyg_graphzero.conversion.plan import EdgeType, NodeType
from pyg_graphzero.conversion.pyg import load_safely
from pyg_graphzero.conversion.sources import Labels, mask
from pyg_graphzero.conversion.spec import EdgeSpec, GraphSpec, NodeSpec, edge_type_of
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.rows import no_spool
from pyg_graphzero.util.reading import reading

# The package knows and the directory does not: whether one direction of each edge stands for both.
_ONE_WAY = ("products", "proteins", "ogbl_ppa", "ogbl_collab", "ogbl_ddi")
SIGNS = (
    "raw/edge.csv.gz",
    "raw/data.npz",
    "raw/triplet-type-list.csv.gz",
    "raw/num-node-dict.csv.gz",
    "raw/edge_index_dict.npz",
)
SPLITS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
_NAMES = {"node_feat": "x", "edge_feat": "edge_attr", "species": "node_species"}


def ogb_spec(path: Path) -> GraphSpec:
    """The graph in such a directory.

    Raises:
        InputError: A file that belongs to the layout is missing or damaged, or there are several
            graphs or splits.
    """
    raw = path / "raw"
    name = _dataset_name(path)
    is_hetero = not ((raw / "edge.csv.gz").exists() or (raw / "data.npz").exists())
    is_binary = any((raw / each).exists() for each in ("data.npz", "edge_index_dict.npz"))
    read = _read_npz if is_binary else _read_hetero_csv if is_hetero else _read_csv
    nodes, edges = read(raw)
    for node in nodes.values():
        if "y" in node.attrs:
            node.attrs["y"] = Labels(node.attrs["y"])
    spec = GraphSpec(nodes, edges, path)
    folder, parts = _read_split(path)
    is_taken = add_split(spec, parts, str(folder)) and bool(parts)
    told = f"split {folder.name!r}" if folder is not None and is_taken else "no split"
    spec.what = f"OGB directory, {'binary' if is_binary else 'CSV'} files, {told}"
    if folder is not None and not parts:
        found = ", ".join(sorted(each.name for each in folder.iterdir())[:8]) or "nothing"
        spec.notes.append(f"{folder}: not taken, being no ids of nodes: {found}")
    if name in _ONE_WAY:
        for edge in edges:
            edge.undirected = True
        full = name.replace("_", "-") if name.startswith("ogbl") else f"ogbn-{name}"
        spec.notes.append(f"{full} has one direction of each edge; the other is added")
    return spec


def _dataset_name(path: Path) -> str:
    name = path.absolute().name.lower().replace("-", "_").removeprefix("ogbn_")
    for suffix in ("_pyg", "_dgl", "_bin"):
        name = name.removesuffix(suffix)
    name = "ogbl_ppa" if name.startswith("ppassoc") else name
    return "proteins" if name.startswith("proteinfunc") else name


def _read_csv(raw: Path) -> tuple[dict[NodeType, NodeSpec], list[EdgeSpec]]:
    num_nodes = _one(raw / "num-node-list.csv.gz")
    return {None: _node(num_nodes, _matrices(raw, ("node", "species")))}, [_csv_edges(None, raw)]


def _read_hetero_csv(raw: Path) -> tuple[dict[NodeType, NodeSpec], list[EdgeSpec]]:
    lines = _lines(raw / "num-node-dict.csv.gz")
    nodes: dict[NodeType, NodeSpec] = {}
    for node_type, count in zip(lines[0], lines[1] if len(lines) == 2 else [], strict=True):
        attrs = _matrices(raw / "node-feat" / node_type, ("node",))
        attrs |= _matrices(raw / "node-label" / node_type, ("node",))
        nodes[node_type] = _node(int(count), attrs)
    listed = raw / "triplet-type-list.csv.gz"
    if listed.exists():
        triplets = _lines(listed)
    else:
        triplets = [each.name.split("___") for each in sorted((raw / "relations").iterdir())]
    folders = {"___".join(triplet): triplet for triplet in triplets}
    return nodes, [
        _csv_edges(edge_type_of(triplet, "relation", raw / name), raw / "relations" / name)
        for name, triplet in folders.items()
    ]


def _read_npz(raw: Path) -> tuple[dict[NodeType, NodeSpec], list[EdgeSpec]]:
    # Archives have a member for each node type or relation, or, of one type, for each attribute.
    counts: dict[str, dict[str, int]] = {"num_nodes": {}, "num_edges": {}}
    attrs: dict[str, dict[str, Any]] = {}  # by node type or relation
    for path in sorted(raw.glob("*.npz")):
        members = open_npz(path, no_spool)
        for member in members:
            is_shared = path.name == "data.npz" or path.stem == member.replace("_", "-")
            owner, stem = ("", member) if is_shared else (member, path.stem.replace("-", "_"))
            attr = stem.removesuffix("_dict").removesuffix("_list")
            if attr in counts:
                counts[attr][owner] = _only(path, members, member)
            else:
                is_flat = attr not in ("node_feat", "edge_feat", "edge_index")
                attrs.setdefault(owner, {})[attr] = Reference((path,), member, is_flat=is_flat)
    nodes: dict[NodeType, NodeSpec] = {}
    for name, count in counts["num_nodes"].items():
        own = attrs.get(name, {})
        nodes[name or None] = _node(count, {k: v for k, v in own.items() if k.startswith("node_")})
    edges = []
    for name, count in counts["num_edges"].items():
        own = {_attr(k): v for k, v in attrs.get(name, {}).items() if k.startswith("edge_")}
        edge = EdgeSpec(file=own.pop("edge_index"), attrs=own, num_edges=count, edge_layout="2xE")
        if name:
            edge.type = edge_type_of(name.split("___"), "relation", raw)
        edges.append(edge)
    return nodes, edges


def _node(num_nodes: int, attrs: Mapping[str, Any]) -> NodeSpec:
    named = {_attr(name): source for name, source in attrs.items()}
    if "node_label" in named:
        named["y"] = named.pop("node_label")
    return NodeSpec(num_nodes=num_nodes, ids="dense", attrs=named)


def _csv_edges(edge_type: EdgeType, folder: Path) -> EdgeSpec:
    attrs = _matrices(folder, ("edge",))
    attrs.pop("edge", None)
    counted = folder / "num-edge-list.csv.gz"
    return EdgeSpec(
        type=edge_type,
        file=folder / "edge.csv.gz",
        delimiter=",",
        header=False,
        attrs={_attr(name): source for name, source in attrs.items()},
        num_edges=_one(counted) if counted.exists() else None,
    )


def _matrices(folder: Path, prefixes: tuple[str, ...]) -> dict[str, Reference]:
    """Files of one matrix each: ``node-feat.csv.gz`` as ``node_feat``."""
    found = {each.name.removesuffix(".csv.gz"): each for each in sorted(folder.glob("*.csv.gz"))}
    return {
        name.replace("-", "_"): Reference((each,), is_bare=True)
        for name, each in found.items()
        if name.startswith(prefixes)
    }


def _attr(name: str) -> str:
    return _NAMES.get(name, name)


def _read_split(path: Path) -> tuple[Path | None, dict[str, Any]]:
    """The folder of a dataset's split, and its parts; ``None`` if there is no such folder.

    Parts go by ``"train"``, ``"valid"`` and ``"test"``: ids of nodes (an array, or a file of them),
    or these by node type.

    Raises:
        InputError: There are several, or a file is damaged.
    """
    roots = [root for root in (path / "split", path / "raw" / "split") if root.is_dir()]
    folders = sorted(each for each in roots[0].iterdir() if each.is_dir()) if roots else []
    if not folders:
        return None, {}
    if len(folders) > 1:
        found = ", ".join(each.name for each in folders)
        raise InputError(roots[0], "splits", found, "one split", "Move the others elsewhere.")
    folder = folders[0]
    if (folder / "split_dict.pt").exists():
        value = load_safely(folder / "split_dict.pt")
        if not isinstance(value, Mapping) or not value.keys() & SPLITS.keys():
            found = ", ".join(map(str, value)) if isinstance(value, Mapping) else "no mapping"
            raise InputError(folder / "split_dict.pt", "members", found, "train, valid and test")
        return folder, {part: value[part] for part in SPLITS if part in value}
    parts: dict[str, Any] = {}
    for part in SPLITS:
        if (folder / f"{part}.csv.gz").exists():
            parts[part] = folder / f"{part}.csv.gz"
        else:
            files = sorted(folder.glob(f"*/{part}.csv.gz"))
            parts |= {part: {file.parent.name: file for file in files}} if files else {}
    return folder, parts


def add_split(spec: GraphSpec, parts: Mapping[str, Any], where: str) -> bool:
    """Has the nodes of each part be a mask, and notes parts that are none; whether all are."""
    left = [part for part in SPLITS if not _add_part(spec, part, parts.get(part, {}))]
    if left:
        spec.notes.append(f"{where}: not taken, being no ids of nodes: {', '.join(left)}")
    return not left


def _add_part(spec: GraphSpec, part: str, found: Any) -> bool:
    """Has the nodes of a part be a mask; whether they are nodes, not pairs of such."""
    by_type = found if isinstance(found, Mapping) else {None: found}
    if not by_type.keys() <= spec.nodes.keys():
        return False
    for node_type, ids in by_type.items():
        source = Reference((ids,), is_bare=True) if isinstance(ids, Path) else ids
        spec.nodes[node_type].attrs[SPLITS[part]] = mask(source)
    return True


def _lines(path: Path) -> list[list[str]]:
    """A small CSV file."""
    with reading(path, "file", "a gzipped CSV file"):
        text = gzip.decompress(path.read_bytes()).decode()
    return [line.split(",") for line in text.split()]


def _one(path: Path) -> int:
    """The only number in a file of numbers per graph."""
    lines = _lines(path)
    if len(lines) != 1 or not lines[0][0].isdecimal():
        raise InputError(path, "graphs", f"{len(lines)}", "one number, of one graph")
    return int(lines[0][0])


def _only(path: Path, members: Mapping[str, Any], name: str) -> int:
    if name not in members:
        raise InputError(path, "members", ", ".join(members), f"a member {name!r}")
    value = members[name]()
    counts = value.reshape(-1) if isinstance(value, np.ndarray) else value.read(0, len(value))
    if len(counts) != 1:
        raise InputError(path, f"member {name!r}", f"{len(counts)} graphs", "one graph")
    return int(counts[0])
