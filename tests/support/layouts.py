"""Small graphs on disk in the layouts in which the well-known datasets come.

Each writer takes the graph it is to write, so that a test holds the store against that graph. File
names, shapes, dtypes and headers are those of the originals; where they are described is said in
`docs/convert.md`.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

Triplet = tuple[str, str, str]
PARTS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}


@dataclass
class Graph:
    """The graph of a layout; one node type is called ``paper``, and has labels and a split.

    Attributes:
        num_nodes: Number of nodes by node type.
        edges: ``int64 [2, E]`` by relation.
        x: Features by node type.
        y: Labels of papers, -1 where there is none.
        year: Years of papers.
        split: Ids of papers: ``train``, ``valid``, ``test``.
    """

    num_nodes: dict[str, int]
    edges: dict[Triplet, np.ndarray]
    x: dict[str, np.ndarray]
    y: np.ndarray
    year: np.ndarray
    split: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def masks(self) -> dict[str, np.ndarray]:
        """The split as PyG's datasets have it."""
        result = {}
        for part, ids in self.split.items():
            result[PARTS[part]] = np.isin(np.arange(self.num_nodes["paper"]), ids)
        return result


def citations(num_classes: int = 40, width: int = 4, seed: int = 0) -> Graph:
    """Papers that cite papers; the last one has no edges."""
    rng = np.random.default_rng(seed)
    edges = {("paper", "cites", "paper"): rng.integers(0, 29, (2, 90))}
    return _papers({"paper": 30}, edges, num_classes, width, rng)


def academic(num_classes: int = 153, width: int = 4, seed: int = 0) -> Graph:
    """Papers, their authors and their institutions."""
    rng = np.random.default_rng(seed)

    def ends(num_src: int, num_dst: int) -> np.ndarray:
        return np.stack([rng.integers(0, num_src, 50), rng.integers(0, num_dst, 50)])

    edges = {
        ("author", "affiliated_with", "institution"): ends(20, 5),
        ("author", "writes", "paper"): ends(20, 30),
        ("paper", "cites", "paper"): ends(30, 30),
    }
    return _papers({"author": 20, "institution": 5, "paper": 30}, edges, num_classes, width, rng)


def _papers(
    num_nodes: dict[str, int],
    edges: dict[Triplet, np.ndarray],
    num_classes: int,
    width: int,
    rng: np.random.Generator,
) -> Graph:
    order = rng.permutation(30)
    split = {"train": order[:12], "valid": order[12:18], "test": order[18:25]}
    y = rng.integers(0, num_classes, 30)
    x = {"paper": rng.random((30, width), dtype=np.float32)}
    return Graph(num_nodes, edges, x, y, rng.integers(1990, 2020, 30), split)


def write_csv(path: Path, values: Any, header: str = "") -> None:
    """A gzipped CSV matrix, as pandas writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = np.atleast_2d(np.asarray(values).T).T.tolist()
    lines = [header] * bool(header) + [",".join(map(repr, row)).replace("'", "") for row in rows]
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))


def write_npy(path: Path, values: Any) -> None:
    """A `.npy` file, and the folder it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, values)


def ogb_csv(root: Path, graph: Graph) -> Path:
    """ogbn-arxiv and ogbn-products, as they are after download: ``raw/*.csv.gz``."""
    raw = root / "raw"
    (edges,) = graph.edges.values()
    write_csv(raw / "edge.csv.gz", edges.T)
    write_csv(raw / "num-node-list.csv.gz", [graph.num_nodes["paper"]])
    write_csv(raw / "num-edge-list.csv.gz", [edges.shape[1]])
    write_csv(raw / "node-feat.csv.gz", graph.x["paper"])
    write_csv(raw / "node-label.csv.gz", graph.y)
    write_csv(raw / "node_year.csv.gz", graph.year)
    _ogb_rest(root, graph, Path())
    return root


def ogb_npz(root: Path, graph: Graph, deflated: bool = False) -> Path:
    """ogbn-papers100M: ``raw/data.npz`` and ``raw/node-label.npz``, NaN without a label."""
    raw = root / "raw"
    raw.mkdir(parents=True)
    (edges,) = graph.edges.values()
    (np.savez_compressed if deflated else np.savez)(
        raw / "data.npz",
        edge_index=edges,
        node_feat=graph.x["paper"],
        node_year=graph.year.reshape(-1, 1),
        num_nodes_list=np.array([graph.num_nodes["paper"]]),
        num_edges_list=np.array([edges.shape[1]]),
    )
    labels = np.where(graph.y < 0, np.nan, graph.y).astype(np.float32).reshape(-1, 1)
    np.savez_compressed(raw / "node-label.npz", node_label=labels)
    _ogb_rest(root, graph, Path())
    return root


def ogb_hetero_csv(root: Path, graph: Graph) -> Path:
    """ogbn-mag: ``raw/relations/A___b___C``, ``raw/node-feat/TYPE``, ``raw/node-label/TYPE``."""
    raw = root / "raw"
    types = sorted(graph.num_nodes)
    write_csv(
        raw / "num-node-dict.csv.gz", [[graph.num_nodes[kind] for kind in types]], ",".join(types)
    )
    write_csv(raw / "triplet-type-list.csv.gz", [list(triplet) for triplet in graph.edges])
    write_csv(
        raw / "nodetype-has-label.csv.gz", [[kind == "paper" for kind in types]], ",".join(types)
    )
    for triplet, edges in graph.edges.items():
        folder = raw / "relations" / "___".join(triplet)
        write_csv(folder / "edge.csv.gz", edges.T)
        write_csv(folder / "num-edge-list.csv.gz", [edges.shape[1]])
        write_csv(folder / "edge_reltype.csv.gz", np.zeros((edges.shape[1], 1), dtype=int))
    write_csv(raw / "node-feat" / "paper" / "node-feat.csv.gz", graph.x["paper"])
    write_csv(raw / "node-feat" / "paper" / "node_year.csv.gz", graph.year)
    write_csv(raw / "node-label" / "paper" / "node-label.csv.gz", graph.y)
    split = root / "split" / "time"
    write_csv(
        split / "nodetype-has-split.csv.gz", [[kind == "paper" for kind in types]], ",".join(types)
    )
    _ogb_rest(root, graph, Path("paper"))
    return root


def ogb_hetero_npz(root: Path, graph: Graph) -> Path:
    """A graph of several types in archives: ``raw/edge_index_dict.npz`` and its like."""
    raw = root / "raw"
    raw.mkdir(parents=True)
    edges = {"___".join(triplet): ends for triplet, ends in graph.edges.items()}
    counts = {kind: np.array([count]) for kind, count in graph.num_nodes.items()}
    np.savez_compressed(raw / "num_nodes_dict.npz", **counts)
    np.savez_compressed(
        raw / "num_edges_dict.npz",
        **{name: np.array([ends.shape[1]]) for name, ends in edges.items()},
    )
    np.savez_compressed(raw / "edge_index_dict.npz", **edges)
    np.savez_compressed(raw / "node_feat.npz", **graph.x)
    np.savez_compressed(raw / "node_year.npz", paper=graph.year.reshape(-1, 1))
    np.savez_compressed(raw / "node-label.npz", paper=graph.y.reshape(-1, 1))
    _ogb_rest(root, graph, Path("paper"))
    return root


def _ogb_rest(root: Path, graph: Graph, kind: Path) -> None:
    """Writes the files of every OGB layout: split, mapping, release, an empty ``processed``."""
    for part, ids in graph.split.items():
        write_csv(root / "split" / "time" / kind / f"{part}.csv.gz", ids)
    write_csv(root / "mapping" / "nodeidx2paperid.csv.gz", [[0, 9657784]], "node idx,paper id")
    (root / "processed").mkdir()
    (root / "RELEASE_v1.txt").touch()


def mag240m(root: Path, graph: Graph) -> Path:
    """MAG240M: half-precision features, labels as float32 with NaN, ``meta.pt``."""
    processed = root / "processed"
    write_npy(processed / "paper" / "node_feat.npy", graph.x["paper"].astype(np.float16))
    labels = np.where(graph.y < 0, np.nan, graph.y).astype(np.float32)
    write_npy(processed / "paper" / "node_label.npy", labels)
    write_npy(processed / "paper" / "node_year.npy", graph.year.astype(np.int32))
    for triplet, edges in graph.edges.items():
        write_npy(processed / "___".join(triplet) / "edge_index.npy", edges)
    torch.save({**graph.num_nodes, "num_classes": 153}, root / "meta.pt")
    torch.save(graph.split, root / "split_dict.pt")
    (root / "RELEASE_v1.txt").touch()
    return root


def igb(root: Path, graph: Graph, headerless: bool = False) -> Path:
    """IGB: ``processed/paper__cites__paper/edge_index.npy`` ``[E, 2]``; float32 labels."""
    processed = root / "processed"
    for triplet, edges in graph.edges.items():
        write_npy(processed / "__".join(triplet) / "edge_index.npy", edges.T.astype(np.int32))
    for kind, count in graph.num_nodes.items():
        x = graph.x.get(kind, np.zeros((count, 1024), dtype=np.float32))
        write_npy(processed / kind / "node_feat.npy", x)
    labels = graph.y.astype(np.float32)
    for name in ("node_label_19", "node_label_2K"):
        write_npy(processed / "paper" / f"{name}.npy", labels)
    if headerless:  # as np.memmap writes the largest ones
        for name, values in (("node_feat", graph.x["paper"]), ("node_label_19", labels)):
            (processed / "paper" / f"{name}.npy").write_bytes(values.tobytes())
    return root


def graphbolt(root: Path, graph: Graph, edge_format: str = "csv") -> Path:
    """GraphBolt's ``OnDiskDataset``: ``metadata.yaml``, edges as CSV without header or `.npy`."""
    is_hetero = len(graph.edges) > 1
    lines = ["dataset_name: toy", "graph:", "  nodes:"]
    for kind, count in graph.num_nodes.items():
        lines.append(f"    - num: {count}")
        lines += [f"      type: {kind}"] * is_hetero
    lines.append("  edges:")
    for triplet, edges in graph.edges.items():
        path = Path("edges") / f"{'_'.join(triplet)}.{'csv' if edge_format == 'csv' else 'npy'}"
        if edge_format == "csv":
            (root / "edges").mkdir(parents=True, exist_ok=True)
            text = "".join(f"{src},{dst}\n" for src, dst in edges.T)
            (root / path).write_text(text)
        else:
            write_npy(root / path, edges)
        lines.append(f"    - format: {edge_format}")
        lines += [f"      type: {':'.join(triplet)}"] * is_hetero
        lines.append(f"      path: {path}")
    write_npy(root / "data" / "feat.npy", graph.x["paper"])
    torch.save(torch.from_numpy(graph.year), root / "data" / "year.pt")
    lines.append("feature_data:")
    for name, form, suffix in (("feat", "numpy", "npy"), ("year", "torch", "pt")):
        lines += ["  - domain: node", f"    name: {name}", f"    format: {form}"]
        lines += ["    type: paper"] * is_hetero
        lines += ["    in_memory: false", f"    path: data/{name}.{suffix}"]
    lines += ["tasks:", "  - name: node_classification", "    num_classes: 40"]
    names = {"train": "train_set", "valid": "validation_set", "test": "test_set"}
    for part, ids in graph.split.items():
        write_npy(root / "set" / f"{part}_seeds.npy", ids)
        write_npy(root / "set" / f"{part}_labels.npy", graph.y[ids])
        lines += [f"    {names[part]}:", "      - data:"]
        for data in ("seeds", "labels"):
            lines += [f"          - name: {data}", "            format: numpy"]
            lines.append(f"            path: set/{part}_{data}.npy")
        lines += ["        type: paper"] * is_hetero
    (root / "metadata.yaml").write_text("\n".join(lines) + "\n")
    return root
