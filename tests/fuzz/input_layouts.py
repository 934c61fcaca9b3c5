"""Directories of datasets, one file of which is damaged, and specifications in a file.

The other files are whole: a conversion must take from them exactly the values that were written.
From the damaged one it must take the values that NumPy or gzip read there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import layouts
import numpy as np
import torch
from input_kinds import Graph, Input, Triplet, cells, inside

_CLASSES = 19


def _read(path: Path) -> Any:
    """One array of a file."""
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False)
    if path.suffix == ".pt":
        return torch.load(path, weights_only=True).numpy()
    rows = cells(path, ",")
    is_integer = all(cell.lstrip("-").isdecimal() for row in rows for cell in row)
    table = np.array([[(int if is_integer else float)(cell) for cell in row] for row in rows])
    return table[:, 0] if table.shape[1] == 1 else table


def _known(graph: layouts.Graph, is_hetero: bool) -> Graph:
    """The whole graph."""
    found = Graph()
    for triplet, edges in graph.edges.items():
        found.edges[triplet if is_hetero else None] = (*edges.tolist(), {})
    papers = {"x": graph.x["paper"], "y": graph.y, **graph.masks}
    found.nodes["paper" if is_hetero else None] = papers
    return found


def _attr_of(path: Path) -> str | None:
    """The attribute of papers that a file holds."""
    name = path.name.split(".")[0].replace("-", "_")
    if name in layouts.PARTS:
        return layouts.PARTS[name]
    return {"node_feat": "x", "feat": "x", "node_label": "y", "node_label_19": "y"}.get(name)


def layout(rng: random.Random, directory: Path) -> Input:
    """A directory as OGB, MAG240M, IGB or GraphBolt have it."""
    writers: list[tuple[Callable[..., Path], bool]] = [
        *[(layouts.ogb_csv, False), (layouts.ogb_npz, False), (layouts.ogb_hetero_csv, True)],
        *[(layouts.ogb_hetero_npz, True), (layouts.mag240m, True), (layouts.igb, True)],
        *[(layouts.igb, False), (layouts.graphbolt, True), (layouts.graphbolt, False)],
    ]
    write, is_hetero = rng.choice(writers)
    seed = rng.randrange(1 << 16)
    make = layouts.academic if is_hetero else layouts.citations
    graph = make(num_classes=_CLASSES, seed=seed)
    if write is layouts.igb:
        graph.y[:] = abs(graph.y)
    root = directory / "dataset"
    options: dict[str, Any] = {}
    if write is layouts.graphbolt:
        options["edge_format"] = rng.choice(["csv", "numpy"])
    write(root, graph, **options)
    files = sorted(file for file in root.rglob("*") if file.is_file() and file.stat().st_size)
    damaged = rng.choice(files)
    is_igb = write is layouts.igb

    def read() -> Graph:
        found = _known(graph, is_hetero)
        papers = found.nodes["paper" if is_hetero else None]
        if write is layouts.graphbolt:  # labels of the split's papers only
            del papers["y"]
        if is_igb:  # it has a split of its own
            for name in layouts.PARTS.values():
                del papers[name]
        attr = _attr_of(damaged)
        if damaged.suffix in (".yaml", ".npz") or damaged.name in ("meta.pt", "split_dict.pt"):
            return Graph()  # says what is what: nothing to hold the store against
        if "dict" in damaged.name or "list" in damaged.name or "seeds" in damaged.name:
            return Graph()
        if damaged.parent.name in ("author", "institution", "mapping"):
            return found
        if attr in layouts.PARTS.values():
            ids = _read(damaged)
            papers[attr] = np.isin(np.arange(len(graph.y)), ids)
            if attr in papers and ((ids < 0) | (ids >= len(graph.y))).any():
                raise ValueError("ids")
        elif attr == "y":
            papers["y"] = _labels(_read(damaged))
        elif attr == "x":
            papers["x"] = _read(damaged)
        elif damaged.name.startswith(("edge.csv", "edge_index")) or damaged.parent.name == "edges":
            triplet = _triplet(damaged, graph) if is_hetero else None
            table = _read(damaged)
            src, dst = table if damaged.suffix == ".npy" and not is_igb else table.T
            found.edges[triplet] = (src.tolist(), dst.tolist(), {})
        return found

    repack = {damaged: inside(damaged)} if damaged.suffix in (".gz", ".npz") else {}
    return Input(root, [damaged], read, {}, repack)


def _labels(values: np.ndarray) -> np.ndarray:
    return np.nan_to_num(values, nan=-1).astype(np.int64)


def _triplet(path: Path, graph: layouts.Graph) -> Triplet:
    for triplet in graph.edges:
        if any(sign.join(triplet) in str(path) for sign in ("___", "__", "_")):
            return triplet
    raise AssertionError(path)


def specification(rng: random.Random, directory: Path) -> Input:
    """A specification of a graph's parts, in JSON or TOML."""
    (directory / "ratings.csv").write_text(
        "user,movie,stars\n" + "".join(f"u{n % 9},{n % 7},{n % 5}\n" for n in range(30))
    )
    np.save(directory / "genres.npy", np.zeros((7, 2), np.float32))
    edge = {"type": ["user", "rates", "movie"], "file": "ratings.csv", "src": "user"}
    edge |= {"dst": "movie", "attrs": {"edge_weight": "stars"}, "header": True}
    movie = {"num_nodes": 7, "ids": "dense", "attrs": {"x": "genres.npy"}}
    path = directory / f"graph{rng.choice(['.json', '.toml'])}"
    if path.suffix == ".json":
        path.write_text(json.dumps({"nodes": {"movie": movie}, "edges": [edge]}))
    else:
        lines = ["[nodes.movie]", "num_nodes = 7", 'ids = "dense"', 'attrs = { x = "genres.npy" }']
        lines += ["[[edges]]", 'type = ["user", "rates", "movie"]', 'file = "ratings.csv"']
        lines += ['src = "user"', 'dst = "movie"', "header = true"]
        lines += ['attrs = { edge_weight = "stars" }']
        path.write_text("\n".join(lines) + "\n")
    return Input(path, [path], Graph)
