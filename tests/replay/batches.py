"""Configurations of loaders, and the hash of the batches that each of them delivers.

The hash covers each member of each batch to the bit. Draws, and their order, are no interface; a
change of them is a decision all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling

import pyg_graphzero as gz
from pyg_graphzero.loader import (
    ClusterData,
    ClusterLoader,
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
    HGTLoader,
    LinkNeighborLoader,
    NeighborLoader,
    RandomNodeLoader,
    ShaDowKHopSampler,
)
from pyg_graphzero.loader import NeighborSampler as AdjsLoader
from pyg_graphzero.sampling.neighbor import NeighborSampler

CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")
REVERSE = ("paper", "rev_writes", "author")
Found = Iterable[Any]
Make = Callable[[Any], Found]


def numbers(seed: int, *shape: int) -> Tensor:
    """Numbers in [0, 1), ``float32``, that depend on no version of a library."""
    return torch.from_numpy(np.random.RandomState(seed).rand(*shape)).float()


def edges(num_src: int, num_dst: int, num_edges: int, seed: int) -> Tensor:
    src, dst = numbers(seed, 2, num_edges)
    return torch.stack([src.pow(2).mul(num_src).long(), dst.pow(3).mul(num_dst).long()])


def homogeneous() -> Data:
    return Data(
        x=numbers(1, 400, 9),
        time=numbers(2, 400).mul(50).long(),
        edge_index=edges(400, 400, 5000, 3),
        edge_attr=numbers(4, 5000, 2),
        weight=numbers(5, 5000),
    )


def heterogeneous() -> HeteroData:
    data = HeteroData()
    data["paper"].x = numbers(6, 300, 5)
    data["author"].x = numbers(7, 150, 3)
    data[CITES].edge_index = edges(300, 300, 2000, 8)
    data[WRITES].edge_index = edges(150, 300, 1200, 9)
    data[REVERSE].edge_index = data[WRITES].edge_index.flip(0)
    return data


def timed() -> HeteroData:
    """The typed graph with a time for each node, and a weight for each edge."""
    data = heterogeneous()
    for name, seed in (("paper", 10), ("author", 11)):
        data[name].time = numbers(seed, data[name].x.size(0)).mul(50).long()
    for seed, name in enumerate(data.edge_types, 12):
        data[name].weight = numbers(seed, data[name].edge_index.size(1))
    return data


def nodes(**options: Any) -> Make:
    options = {"num_neighbors": [4, 3], "batch_size": 60, "shuffle": True} | options
    return lambda data: NeighborLoader(data, **options)


def links(**options: Any) -> Make:
    options = {"num_neighbors": [3, 2], "batch_size": 500, "shuffle": True} | options
    return lambda data: LinkNeighborLoader(data, **options)


def backward(data: Any) -> NeighborSampler:
    return NeighborSampler(data, [4, 3], sample_direction="backward")


def walks(*metapath: Any, **options: Any) -> Make:
    """Random walks from each node."""
    names = {"metapath": list(metapath)} if metapath else {}

    def walk(data: Any) -> Found:
        found = gz.sampler.random_walk(data, None, 6, **names, **options)
        return [Data(walks=part) for part in (found if isinstance(found, tuple) else (found,))]

    return walk


def resumed(make: Make) -> Make:
    """Two batches of a loader; the others are another one's that is given its state."""

    def run(data: Any) -> Found:
        loader: Any = make(data)
        batches = iter(loader)
        yield from (next(batches) for _ in range(2))
        torch.manual_seed(999)  # the state has all randomness
        other: Any = make(data)
        other.load_state_dict(loader.state_dict())
        yield from other

    return run


def interrupted(make: Callable[..., Make], error: type[BaseException]) -> Make:
    """A transform raises an exception at the third batch, once, and the epoch goes on."""

    def run(data: Any) -> Found:
        seen = 0

        def transform(batch: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == 3:
                raise error
            return batch

        batches = iter(make(transform=transform)(data))
        while True:
            try:
                yield next(batches)
            except StopIteration:
                return
            except error:
                continue

    return run


def clusters(data: Any) -> Found:
    return ClusterLoader(ClusterData(data, 10, partition="ranges"), batch_size=2, shuffle=True)


def adjs(data: Any) -> Found:
    for size, n_id, layers in AdjsLoader(data, [4, 3], batch_size=60, shuffle=True):
        edges_of = {f"edges {i}": torch.cat([a.edge_index, a.e_id[None]]) for i, a in
                    enumerate(layers)}  # fmt: skip
        yield Data(size=size, n_id=n_id, **edges_of)


def shadow(data: Any) -> Found:
    return ShaDowKHopSampler(data, 2, 3, batch_size=80, shuffle=True)


PAPERS = {"input_nodes": ("paper", None)}
TIMES = {"time_attr": "time", "disjoint": True}
LINK_TIMES = numbers(16, 5000).mul(50).long()
#: By name: the store, and the loader over it.
LABOR = gz.SamplingOptions(method="labor")
CONFIGURATIONS: dict[str, tuple[str, Callable[[Any], Found]]] = {
    "uniform": ("plain", nodes()),
    "all neighbours": ("plain", nodes(num_neighbors=[-1])),
    "with replacement": ("plain", nodes(replace=True)),
    "disjoint": ("plain", nodes(disjoint=True)),
    "induced": ("plain", nodes(subgraph_type="induced")),
    "bidirectional": ("plain", nodes(subgraph_type="bidirectional")),
    "backward": ("plain", lambda data: nodes(neighbor_sampler=backward(data))(data)),
    "temporal": ("plain", nodes(**TIMES)),
    "temporal, the last": ("plain", nodes(**TIMES, temporal_strategy="last")),
    "weighted": ("plain", nodes(weight_attr="weight")),
    "weighted, with replacement": ("plain", nodes(weight_attr="weight", replace=True)),
    "labor": ("plain", nodes(options=LABOR)),
    "labor, layers": ("plain", nodes(options=replace(LABOR, layer_dependency=True))),
    "dependent batches": ("plain", nodes(options=replace(LABOR, batch_dependency=4))),
    "links": ("plain", links()),
    "links, binary": ("plain", links(neg_sampling="binary")),
    "links, triplets": ("plain", links(neg_sampling=NegativeSampling("triplet", 2))),
    "shadow": ("plain", lambda data: ShaDowKHopSampler(data, 2, 3, batch_size=80)),
    "int8": ("int8", nodes()),
    "types": ("types", nodes(**PAPERS)),
    "types, disjoint": ("types", nodes(**PAPERS, disjoint=True)),
    "types, induced": ("types", nodes(**PAPERS, subgraph_type="induced")),
    "types, links": ("types", links(edge_label_index=WRITES, neg_sampling="binary")),
    "types, hgt": ("types", lambda data: HGTLoader(data, [20, 10], ("paper", None), batch_size=70)),
    "workers": ("plain", nodes(num_workers=2)),
    "workers, links": ("plain", links(neg_sampling="binary", num_workers=2)),
    "workers, types": ("types", nodes(**PAPERS, num_workers=2)),
    "resumed": ("plain", resumed(nodes())),
    "resumed, workers": ("plain", resumed(nodes(num_workers=2))),
    "resumed, links": ("plain", resumed(links(neg_sampling="binary"))),
    "resumed, types": ("types", resumed(nodes(**PAPERS))),
    "resumed, shadow": ("plain", resumed(shadow)),
    "interrupted": ("plain", interrupted(nodes, KeyboardInterrupt)),
    "interrupted, workers": (
        "plain",
        interrupted(partial(nodes, num_workers=2), KeyboardInterrupt),
    ),
    "interrupted, types": ("types", interrupted(partial(nodes, **PAPERS), KeyboardInterrupt)),
    "interrupted, links": ("plain", interrupted(links, KeyboardInterrupt)),
    "error in a transform": ("plain", interrupted(nodes, ValueError)),
    "error in a transform, workers": (
        "plain",
        interrupted(partial(nodes, num_workers=2), ValueError),
    ),
    "links, temporal": (
        "plain",
        links(**TIMES, edge_label=LINK_TIMES, edge_label_time=LINK_TIMES),
    ),
    "timed types": ("timed", nodes(**PAPERS, **TIMES)),
    "timed types, the last": ("timed", nodes(**PAPERS, **TIMES, temporal_strategy="last")),
    "timed types, weighted": ("timed", nodes(**PAPERS, weight_attr="weight")),
    "types, labor": ("types", nodes(**PAPERS, options=LABOR)),
    "types, bidirectional": ("types", nodes(**PAPERS, subgraph_type="bidirectional")),
    "types, triplets": (
        "types",
        links(edge_label_index=WRITES, neg_sampling=NegativeSampling("triplet", 2)),
    ),
    "adjs": ("plain", adjs),
    "clusters": ("plain", clusters),
    "random nodes": ("plain", lambda data: RandomNodeLoader(data, 8, shuffle=True)),
    "random nodes, types": ("types", lambda data: RandomNodeLoader(data, 8, shuffle=True)),
    "saint, nodes": ("both ways", lambda data: GraphSAINTNodeSampler(data, 50, 4)),
    "saint, edges": ("both ways", lambda data: GraphSAINTEdgeSampler(data, 50, 4)),
    "saint, walks": ("both ways", lambda data: GraphSAINTRandomWalkSampler(data, 30, 3, 4)),
    "walks": ("both ways", walks()),
    "walks, against edges": ("plain", walks(reverse=True, return_edge_ids=True)),
    "walks, node2vec": ("both ways", walks(p=0.5, q=2.0)),
    "walks, restart": ("both ways", walks(restart=0.2, on_end="stay")),
    "walks, weighted": ("both ways", walks(weight_attr="weight")),
    "walks, types": ("types", walks(WRITES, REVERSE, reverse=True)),
}
#: Configurations that `make test` compares; `make replay` has the others, too.
QUICK = list(CONFIGURATIONS)[:24]
STORES = ("plain", "int8", "types", "timed", "both ways")


def make_stores(root: Path) -> dict[str, Path]:
    """A store by each name, below ``root``."""
    paths = {name: root / name for name in STORES}
    quiet: dict[str, Any] = {"progress": False}
    gz.convert(homogeneous(), paths["plain"], **quiet)
    gz.convert(homogeneous(), paths["int8"], features="int8", **quiet)
    gz.convert(heterogeneous(), paths["types"], **quiet)
    gz.convert(timed(), paths["timed"], **quiet)
    gz.convert(homogeneous(), paths["both ways"], both_directions=True, **quiet)
    return paths


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from leaves(value[key], f"{name}/{key}")
    else:
        yield name, value


def digest_of(batches: Iterable[Any]) -> str:
    """Hash of every member of every batch: its name, dtype, shape and bytes."""
    found = hashlib.sha256()
    for batch in batches:
        for member, value in leaves(batch.to_dict()):
            if isinstance(value, Tensor):
                found.update(f"{member} {value.dtype} {list(value.shape)}\n".encode())
                found.update(value.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
            else:
                found.update(f"{member} {value}\n".encode())
    return found.hexdigest()


def replayed(name: str, stores: dict[str, Path]) -> str:
    """Hash of a configuration's epoch."""
    store, make = CONFIGURATIONS[name]
    torch.manual_seed(1)
    return digest_of(make(gz.open(stores[store]).data()))
