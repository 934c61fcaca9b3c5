"""Conversions, and the hash of each file of the store that they write.

The version of the package stands in ``store.json``, and the checksum of that file covers it. Both
are masked; everything else depends on neither time, machine nor place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from layouts import academic, igb
from torch_geometric.data import Data, HeteroData

import pyg_graphzero as gz
from replay.batches import edges, heterogeneous, homogeneous, numbers, timed

#: Fields of ``store.json`` that are left out of its hash.
MASKED = ("created_by", "checksum")
Source = Callable[[Path], dict[str, Any]]


def table() -> dict[str, np.ndarray]:
    """A column for each attribute of 3,000 edges among sparse ids."""
    src, dst = edges(400, 400, 3000, 20).numpy() * 7 + 3
    weight = numbers(21, 3000).numpy()
    return {"src": src, "dst": dst, "weight": weight, "time": (weight * 50).astype(np.int64)}


def csv(folder: Path) -> dict[str, Any]:
    columns = table()
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    file = folder / "edges.csv"
    file.write_text("\n".join([",".join(columns), *(",".join(map(repr, r)) for r in rows)]) + "\n")
    return {"source": file, "edge_attrs": ["weight", "time"]}


def words(folder: Path) -> dict[str, Any]:
    """Ids that are words."""
    file = folder / "words.tsv"
    pairs = zip(*(table()[name].tolist() for name in ("src", "dst")), strict=True)
    file.write_text("\n".join(f"n{a}\tn{b}" for a, b in pairs) + "\n")
    return {"source": file, "header": False}


def numpy(folder: Path) -> dict[str, Any]:
    np.save(folder / "edges.npy", edges(400, 400, 3000, 22).numpy())
    np.save(folder / "x.npy", numbers(23, 400, 6).numpy())
    return {"source": folder / "edges.npy", "node_attrs": {"x": folder / "x.npy"}}


def parquet(folder: Path) -> dict[str, Any]:
    pq.write_table(pa.table(table()), folder / "edges.parquet", row_group_size=700)
    return {"source": folder / "edges.parquet", "edge_attrs": ["weight", "time"]}


def dataset(folder: Path) -> dict[str, Any]:
    return {"source": igb(folder / "igb", academic(19))}


def graph(**options: Any) -> Source:
    return lambda folder: {"source": homogeneous(), **options}


def types(**options: Any) -> Source:
    return lambda folder: {"source": timed(), **options}


def bipartite(folder: Path) -> dict[str, Any]:
    """Two node types, with edges in one direction that get a reverse type."""
    data = HeteroData()
    data["user"].x, data["item"].x = numbers(28, 300, 4), numbers(29, 200, 3)
    data["user", "buys", "item"].edge_index = torch.stack(
        [edges(300, 300, 1500, 30)[0], edges(200, 200, 1500, 31)[1]]
    )
    return {"source": data, "undirected": True}


def mixed(folder: Path) -> dict[str, Any]:
    """Attributes of many dtypes and shapes, and a set of nodes."""
    steps = torch.arange(400)
    data = Data(edge_index=edges(400, 400, 2000, 24), num_nodes=400, title="mixed", scale=0.5)
    data.x = numbers(25, 400, 125)  # rows of 500 bytes
    data.half = numbers(26, 400, 2, 3).half()
    data.y = (steps % 7).to(torch.uint8)
    data.train_mask = steps % 3 == 0
    data.train_idx = steps.flip(0)[::5].clone()
    data.edge_attr = numbers(27, 2000, 3).double()
    return {"source": data}


#: Arguments of ``gz.convert`` by the name of the store.
STORES: dict[str, Source] = {
    "csv": csv,
    "csv, words": words,
    "numpy": numpy,
    "parquet": parquet,
    "igb": dataset,
    "data": graph(),
    "data, mixed": mixed,
    "data, undirected": graph(undirected=True),
    "data, coalesced": graph(coalesce="sum", self_loops="remove"),
    "data, without edge ids": graph(edge_ids=False, skip=["edge_attr", "weight"]),
    "data, float16": graph(features="float16"),
    "data, bfloat16": graph(features="bfloat16"),
    "data, int8": graph(features="int8"),
    "data, time-sorted": graph(time_attr="time"),
    "data, both directions": graph(both_directions=True),
    "types": lambda folder: {"source": heterogeneous()},
    "types, undirected": bipartite,
    "types, time-sorted": types(time_attr="time"),
    "types, both directions": types(both_directions=True),
}


def replayed(name: str, folder: Path) -> dict[str, str]:
    """Hashes of a store's files, by their path in it."""
    source, store = folder / name, folder / f"{name} store"
    source.mkdir()
    options = STORES[name](source)
    gz.convert(options.pop("source"), store, progress=False, **options)
    files = sorted(file for file in store.rglob("*") if file.is_file())
    return {str(file.relative_to(store)): digest(file) for file in files}


def digest(file: Path) -> str:
    """Hash of a file's bytes, without the masked fields."""
    content = file.read_bytes()
    if file.name == "store.json":
        masked = tuple(json.dumps(name).encode() for name in MASKED)
        lines = content.splitlines()
        content = b"\n".join(line for line in lines if not line.strip().startswith(masked))
    return hashlib.sha256(content).hexdigest()[:16]
