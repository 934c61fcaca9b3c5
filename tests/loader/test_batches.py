"""Batches are what they were, to the bit: hashes of those of many configurations.

What draws, and in which order, is no interface, but a change of it is a decision, never an
accident. Whoever decides so writes the file anew, and says why in the commit::

    python tests/loader/test_batches.py
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling

import pyg_graphzero as gz
from fuzz.paging import paged
from pyg_graphzero.loader import HGTLoader, LinkNeighborLoader, NeighborLoader, ShaDowKHopSampler
from pyg_graphzero.sampling.neighbor import NeighborSampler

HASHES = Path(__file__).with_name("batch_hashes.json")
CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")
Found = Iterator[Any]


def numbers(seed: int, *shape: int) -> Tensor:
    """The same with any version of anything: in [0, 1), ``float32``."""
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
    data["paper", "rev_writes", "author"].edge_index = data[WRITES].edge_index.flip(0)
    return data


def nodes(**options: Any) -> Callable[[Any], Found]:
    options = {"num_neighbors": [4, 3], "batch_size": 60, "shuffle": True} | options
    return lambda data: NeighborLoader(data, **options)


def links(**options: Any) -> Callable[[Any], Found]:
    options = {"num_neighbors": [3, 2], "batch_size": 500, "shuffle": True} | options
    return lambda data: LinkNeighborLoader(data, **options)


def backward(data: Any) -> NeighborSampler:
    return NeighborSampler(data, [4, 3], sample_direction="backward")


PAPERS = {"input_nodes": ("paper", None)}
TIMES = {"time_attr": "time", "disjoint": True}
#: By name: the store, and the loader over it.
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
    "labor": ("plain", nodes(method="labor")),
    "labor, layers": ("plain", nodes(method="labor", layer_dependency=True)),
    "dependent batches": ("plain", nodes(method="labor", batch_dependency=4)),
    "links": ("plain", links()),
    "links, binary": ("plain", links(neg_sampling="binary")),
    "links, triplets": ("plain", links(neg_sampling=NegativeSampling("triplet", 2))),
    "shadow": ("plain", lambda data: ShaDowKHopSampler(data, 2, 3, batch_size=80)),
    "optimized": ("optimized", nodes()),
    "optimized, links": ("optimized", links(neg_sampling="binary")),
    "int8": ("int8", nodes()),
    "types": ("types", nodes(**PAPERS)),
    "types, disjoint": ("types", nodes(**PAPERS, disjoint=True)),
    "types, induced": ("types", nodes(**PAPERS, subgraph_type="induced")),
    "types, links": ("types", links(edge_label_index=WRITES, neg_sampling="binary")),
    "types, hgt": ("types", lambda data: HGTLoader(data, [20, 10], ("paper", None), batch_size=70)),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_stores(tmp_path_factory.mktemp("stores"))


def make_stores(root: Path) -> dict[str, Path]:
    paths = {name: root / name for name in ("plain", "optimized", "int8", "types")}
    quiet: dict[str, Any] = {"progress": False}
    gz.convert(homogeneous(), paths["plain"], **quiet)
    gz.convert(homogeneous(), paths["int8"], features="int8", **quiet)
    gz.convert(heterogeneous(), paths["types"], **quiet)
    torch.manual_seed(0)
    seeds = torch.arange(0, 400, 3)
    gz.optimize(paths["plain"], paths["optimized"], seeds=seeds, num_neighbors=[4, 3], **quiet)
    return paths


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from leaves(value[key], f"{name}/{key}")
    else:
        yield name, value


def digest(name: str, stores: dict[str, Path]) -> str:
    """Of an epoch: every member of every batch, its name, dtype, shape and bytes."""
    store, make = CONFIGURATIONS[name]
    torch.manual_seed(1)
    found = hashlib.sha256()
    for batch in make(gz.open(stores[store]).data()):
        for member, value in leaves(batch.to_dict()):
            if isinstance(value, Tensor):
                found.update(f"{member} {value.dtype} {list(value.shape)}\n".encode())
                found.update(value.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
            else:
                found.update(f"{member} {value}\n".encode())
    return found.hexdigest()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_batches_are_what_they_were(stores, name):
    known = json.loads(HASHES.read_text())
    assert known.keys() == CONFIGURATIONS.keys()
    assert digest(name, stores) == known[name]


@pytest.mark.parametrize("name", ["uniform", "temporal", "optimized", "int8", "types", "links"])
def test_they_are_the_same_from_disk(stores, name):
    with paged():
        assert digest(name, stores) == json.loads(HASHES.read_text())[name]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        made = make_stores(Path(folder))
        known = {name: digest(name, made) for name in CONFIGURATIONS}
    HASHES.write_text(json.dumps(known, indent=1) + "\n")
