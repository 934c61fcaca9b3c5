"""The stores that are damaged: small ones, of every kind there is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous
from pyg_graphzero.store.csc import EdgeChunk
from pyg_graphzero.store.writer import StoreWriter

NODES, EDGES = 90, 500
WIDE = 1 << 33


def _graph() -> Data:
    data = homogeneous(NODES, EDGES)
    generator = torch.Generator().manual_seed(7)
    data.z = torch.randn(NODES, 5, generator=generator)
    data.w = torch.randn(NODES, 3, generator=generator)
    data.time = torch.randint(0, 30, (NODES,), generator=generator)
    data.weight = torch.rand(EDGES, generator=generator)
    return data


def _types() -> HeteroData:
    data = heterogeneous()
    generator = torch.Generator().manual_seed(8)
    for store in data.node_stores:
        store.time = torch.randint(0, 30, (store.num_nodes,), generator=generator)
    for store in data.edge_stores:
        store.weight = torch.rand(store.num_edges, generator=generator)
    data["paper"].train_idx = torch.randperm(200, generator=generator)[:40]
    return data


def _write(data: Data | HeteroData, store: Path, **options: object) -> None:
    gz.convert(data, store, progress=False, **options)


def plain(store: Path) -> None:
    _write(_graph(), store)


def encoded(store: Path) -> None:
    _write(_graph(), store, features={"x": "int8", "z": "float16", "w": "bfloat16"})


def timed(store: Path) -> None:
    _write(_graph(), store, time_attr="time")


def adopted(store: Path) -> None:
    """``x`` in an `.npy` and ``z`` in a `.pt` beside the store."""
    data = _graph()
    np.save(store.parent / "x.npy", data.x.numpy())
    torch.save({"z": data.z}, store.parent / "z.pt")
    sources = {"x": str(store.parent / "x.npy"), "z": f"{store.parent / 'z.pt'}:z"}
    rest = {name: data[name].numpy() for name in ("y", "w", "time", "train_mask", "train_idx")}
    gz.convert(
        data.edge_index.numpy(),
        store,
        num_nodes=NODES,
        node_attrs=sources | rest,
        edge_attrs={name: data[name].numpy() for name in ("edge_attr", "weight")},
        adopt=True,
        progress=False,
    )


def strings(store: Path) -> None:
    """Ids that are text, some of them longer than others."""
    data = _graph()
    with StoreWriter(store, is_hetero=False) as writer:
        writer.add_node_type(None, NODES)
        for name in ("x", "y", "z", "w", "time", "train_mask"):
            writer.add_node_attr(None, name, data[name])
        writer.add_index_set(None, "train_idx", data.train_idx)
        writer.add_node_ids(None, [f"n{'é' * (i % 4)}{i}" for i in range(NODES)])
        columns = {name: data[name] for name in ("edge_attr", "weight")}
        writer.add_edge_type(None, [EdgeChunk(*data.edge_index, columns)])
        writer.add_graph_attr("scale", torch.tensor(0.5))
        writer.add_graph_attr("title", "a title")
        writer.finish()


def types(store: Path) -> None:
    _write(_types(), store, time_attr="time")


def encoded_types(store: Path) -> None:
    _write(_types(), store, features={"paper.x": "bfloat16"}, both_directions=True)


def wide(store: Path) -> None:
    """Sources whose ids need 64 bits; the type has nothing but its edges."""
    data = _types()
    generator = torch.Generator().manual_seed(9)
    src = torch.randint(WIDE, (600,), generator=generator)
    with StoreWriter(store, is_hetero=True) as writer:
        writer.add_node_type("paper", 200)
        writer.add_node_type("author", WIDE)
        for name in ("x", "y", "time", "train_mask"):
            writer.add_node_attr("paper", name, data["paper"][name])
        writer.add_index_set("paper", "train_idx", data["paper"].train_idx)
        for edge_type in (("paper", "cites", "paper"), ("author", "writes", "paper")):
            edges = data[edge_type]
            ends = edges.edge_index if edge_type[0] == "paper" else (src, edges.edge_index[1])
            writer.add_edge_type(edge_type, [EdgeChunk(*ends, {"weight": edges.weight})])
        writer.finish()


HOMOGENEOUS: dict[str, Callable[[Path], None]] = {
    f.__name__: f for f in (plain, encoded, timed, adopted, strings)
}
HETEROGENEOUS: dict[str, Callable[[Path], None]] = {
    f.__name__: f for f in (types, encoded_types, wide)
}
BASES = HOMOGENEOUS | HETEROGENEOUS


def make_all(directory: Path) -> None:
    """Makes each as ``directory/NAME/store``, all of them or none."""
    if directory.exists():
        return
    fresh = directory.with_name(f"{directory.name}.fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    for name, make in BASES.items():
        (fresh / name).mkdir(parents=True)
        make(fresh / name / "store")
    fresh.rename(directory)
