"""The graph a run is on, as a store, and the seeds that every contestant gets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.bench.settings import Settings
from pyg_graphzero.bench.synthetic import power_law, power_law_hetero
from pyg_graphzero.conversion import convert
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.sampling.graph import graph_of
from pyg_graphzero.store.columns import gather
from pyg_graphzero.store.schema import SCHEMA_FILE, EdgeType

_SYNTHETIC = "synthetic:"


def prepare(spec: str, made: Path) -> Path:
    """Makes sure there is a store of a graph.

    Args:
        spec: A store, or ``synthetic:NODES,EDGES,DIM[,EDGE_TYPES]``.
        made: Where stores are made, and found again by the next run.

    Returns:
        The store.

    Raises:
        ValueError: It is none of these, or a number in it is not one.
    """
    if (Path(spec) / SCHEMA_FILE).exists():
        return Path(spec)
    sizes = _sizes(spec)
    store = made / "-".join(["synthetic", *map(str, sizes)])
    if not (store / SCHEMA_FILE).exists():
        made.mkdir(parents=True, exist_ok=True)
        convert((power_law if len(sizes) == 3 else power_law_hetero)(*sizes), store)
    return store


def _sizes(spec: str) -> list[int]:
    begin, _, numbers = spec.partition(_SYNTHETIC)
    parts = numbers.split(",")
    if begin or len(parts) not in (3, 4) or not all(part.strip().isdecimal() for part in parts):
        raise ValueError(
            f"data: found {spec!r}, expected a store, or synthetic:NODES,EDGES,DIM[,EDGE_TYPES], "
            "as in synthetic:1000000,15000000,128"
        )
    sizes = [int(part) for part in parts]
    if min(sizes[0], sizes[-1] if len(sizes) == 4 else 1) < 1:
        raise ValueError(f"data: found {spec!r}, expected at least one node and one edge type")
    return sizes


@dataclass(frozen=True)
class Seeds:
    """Seeds that every contestant starts from.

    Attributes:
        node_type: Type of the seed nodes; None in a homogeneous graph.
        nodes: ``int64 [batches * batch_size]``, fewer where the graph has fewer.
        edge_type: Type of the seed edges.
        edges: ``int64 [2, batches * batch_size // 4]``.
        num_classes: Classes of the seed nodes; None where not all have a label from 0 on, or where
            some nodes of the graph have no features.
    """

    node_type: str | None
    nodes: Tensor
    edge_type: EdgeType | None
    edges: Tensor
    num_classes: int | None


def draw_seeds(store: Store, settings: Settings) -> Seeds:
    """Random nodes of a type that has labels, or else just edges, and edges that lead to it.

    Raises:
        ValueError: The graph has no edges.
    """
    data = store.data()
    graph = graph_of(data)
    with_edges = [name for name in graph.edge_types if store.num_edges_of(name)]
    if not with_edges:
        raise ValueError(f"{store.path}: found no edges, expected some to sample")
    # Stable: among types with labels, and among those without, the store's order decides.
    edge_type = min(with_edges, key=lambda name: "y" not in _columns(data, _target(name)))
    node_type = _target(edge_type)
    # Not the stream a synthetic graph was drawn from: its first numbers say which nodes are hubs.
    generator = torch.Generator().manual_seed(settings.seed + 1)
    count = settings.batches * settings.batch_size
    nodes = torch.randperm(graph.node_types[node_type], generator=generator)[:count]
    indptr, indices = graph.csc(edge_type)
    slots = torch.randint(len(indices), (max(1, count // 4),), generator=generator)
    ends = torch.searchsorted(indptr, slots, right=True) - 1
    edges = torch.stack([gather(indices, slots).to(torch.int64), ends])
    featured = all("x" in _columns(data, name) for name in graph.node_types)
    num_classes = _num_classes(_columns(data, node_type)) if featured else None
    return Seeds(node_type, nodes, edge_type, edges, num_classes)


def _target(edge_type: EdgeType | None) -> str | None:
    return None if edge_type is None else edge_type[2]


def _columns(data: Any, node_type: str | None) -> Any:
    return data if node_type is None else data[node_type]


def _num_classes(columns: Any) -> int | None:
    if "y" not in columns:
        return None
    y = columns["y"]
    if y.dtype.is_floating_point or y.dtype.is_complex or y.numel() != y.size(0):
        return None
    lowest, highest = map(int, y.aminmax())
    return highest + 1 if lowest >= 0 else None
