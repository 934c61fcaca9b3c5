"""Directories of datasets, one file of which is damaged, and specifications in a file.

The other files are whole: a conversion must take from them exactly the values that were written.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import layouts
import numpy as np
from input_kinds import Graph, Input, inside

_CLASSES = 19
# Words in the names of files that say what is in the others.
_WHAT_IS_WHAT = ("meta", "dict", "list", "seeds")


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

    def read() -> Graph:
        name = damaged.name
        if damaged.suffix in (".yaml", ".npz") or any(word in name for word in _WHAT_IS_WHAT):
            return Graph()  # nothing to hold the store against
        found = _known(graph, is_hetero)
        papers = found.nodes["paper" if is_hetero else None]
        if write is layouts.graphbolt:  # labels of the split's papers only
            del papers["y"]
        if write is layouts.igb:  # it has a split of its own
            for mask in layouts.PARTS.values():
                del papers[mask]
        if name.startswith(("edge.csv", "edge_index")) or damaged.parent.name == "edges":
            found.edges.clear()
        if damaged.parent.name not in ("author", "institution", "mapping"):
            papers.pop(_attr_of(damaged), None)
        return found

    repack = {damaged: inside(damaged)} if damaged.suffix in (".gz", ".npz") else {}
    return Input(root, [damaged], read, {}, repack)


def specification(rng: random.Random, directory: Path) -> Input:
    """A specification of a graph's parts, in JSON or TOML."""
    (directory / "ratings.csv").write_text(
        "user,movie,stars\n" + "".join(f"u{n % 9},{n % 7},{n % 5}\n" for n in range(30))
    )
    np.save(directory / "genres.npy", np.zeros((7, 2), np.float32))
    edge = {"type": ["user", "rates", "movie"], "file": "ratings.csv", "src": "user"}
    edge |= {"dst": "movie", "attrs": {"edge_weight": "stars"}, "header": True}
    movie = {"num_nodes": 7, "ids": "dense", "attrs": {"x": "genres.npy"}}
    path, value = directory / "graph.json", {"nodes": {"movie": movie}, "edges": [edge]}
    text = json.dumps(value)
    if rng.random() < 0.5:  # tables in a line
        path = path.with_suffix(".toml")
        lines = (f"{key} = {json.dumps(part)}" for key, part in value.items())
        text = "\n".join(lines).replace('": ', '" = ')
    path.write_text(text)
    return Input(path, [path], Graph)
