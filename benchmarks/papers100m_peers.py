"""The phases of ``papers100m.py`` that are others': stock PyG over memory maps, and GraphZero 0.2.

Stock PyG reads the rows and the topology that the store has, through ``np.memmap``; rows of int8
are decoded after its loader, as a script would. GraphZero takes the graph in its own way, as text.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from events import Tell
from out_of_core_task import StoreFiles
from papers100m_graph import MASKS, NUM_CLASSES, PapersGraph
from papers100m_task import Pace, Task
from torch import Tensor
from torch_geometric.data import Data

from pyg_graphzero.bench.training import Trainer
from pyg_graphzero.util.machine import version

_COPIED = 1 << 24  # neighbours at once


def stock(task: Task, tell: Tell) -> dict[str, Any]:
    """PyG's own loader over maps, and the same training; as many batches as time allows."""
    import torch_geometric.loader
    from torch_sparse import SparseTensor  # type: ignore[import-not-found]

    torch.manual_seed(task.seed)
    begin = time.perf_counter()
    files = StoreFiles(Path(task.store))
    indptr, indices = files.contents.csc(None)
    n = files.num_nodes
    # An adjacency in the order that PyG samples by; its sampler knows 64-bit neighbours alone.
    adj_t = SparseTensor(
        rowptr=indptr,
        col=as_map(indices, Path(task.work) / "neighbors.bin"),
        sparse_sizes=(n, n),
        is_sorted=True,
        trust_data=True,
    )
    mask = files.contents.view(files.contents.node_type(None).attrs[MASKS["train"]])
    data = Data(x=torch.from_numpy(files.memmap()), y=files.y, adj_t=adj_t, num_nodes=n)
    workers = task.options.get("stock_workers", 0)
    loader = torch_geometric.loader.NeighborLoader(
        data,
        num_neighbors=task.fanout,
        batch_size=task.batch_size,
        input_nodes=mask.nonzero().view(-1),
        shuffle=True,
        num_workers=workers,
    )
    # torch-sparse does not tell which nodes are of which hop: nothing can be trimmed.
    trainer = Trainer(Data(), None, len(task.fanout), NUM_CLASSES, False, task.hidden)
    seconds = time.perf_counter() - begin
    facts = {name: version(name) for name in ("torch_sparse", "pyg_lib")}
    tell({"event": "ready", "seconds": seconds, "facts": facts})
    pace = Pace(task, tell)
    for batch in loader:
        batch.x = decoded(files, batch.x)
        batch.edge_index = torch.stack(batch.adj_t.coo()[1::-1])
        loss = trainer.step(batch)
        if not pace.batch(batch.num_nodes, batch.edge_index.shape[1], loss=loss):
            break
    found = {"batches": pace.batches, "seconds": pace.elapsed, "workers": workers}
    return found | {"epoch_batches": len(loader), "ready_seconds": seconds}


def as_map(indices: Tensor, path: Path) -> Tensor:
    """Neighbours in 64 bits over a memory map, written a piece at a time."""
    if indices.dtype == torch.int64:
        return indices
    with path.open("wb") as file:
        for part in indices.split(_COPIED):
            file.write(part.to(torch.int64).numpy().data)
    return torch.from_numpy(np.memmap(path, np.int64, mode="r+", shape=(len(indices),)))


def decoded(files: StoreFiles, rows: Tensor) -> Tensor:
    """Rows as they were before they were encoded, in ``float32``."""
    rows = rows.float()
    if files.dtype != torch.int8:
        return rows
    scale, zero_point = (torch.tensor(each) for each in (files.x.scale, files.x.zero_point))
    return rows.mul_(scale).add_(zero_point)


def graphzero(task: Task, tell: Tell) -> dict[str, Any]:
    """The package ``graphzero``: text to its files, and hops and rows of batches out of them.

    What is known so far is told after each step: the last words of a process that dies.
    """
    import graphzero as peer  # type: ignore[import-not-found]

    found: dict[str, Any] = {"version": version("graphzero"), "scale": task.options["scale"]}
    graph = PapersGraph.of(task.options["scale"], task.seed)
    found |= {"num_nodes": graph.num_nodes, "num_edges": graph.num_edges, "steps": {}}
    work = Path(task.work)
    edges, features = work / "edges.csv", work / "features.csv"

    def step(name: str, do: Any) -> Any:
        begin = time.perf_counter()
        tell({"event": "found", "found": found | {"failed_in": name}})
        value = do()
        found["steps"][name] = time.perf_counter() - begin
        tell({"event": "found", "found": found})
        return value

    step("write edges.csv", lambda: write_edges(graph, edges))
    step("write features.csv", lambda: write_features(graph, features))
    found["text_bytes"] = edges.stat().st_size + features.stat().st_size
    topology, rows = str(work / "graph.gl"), str(work / "rows.gd")
    step("convert_csv_to_gl", lambda: peer.convert_csv_to_gl(str(edges), topology, True))
    kind = peer.DataType.FLOAT32
    step("convert_csv_to_gd", lambda: peer.convert_csv_to_gd(str(features), rows, kind))
    opened = step("Graph", lambda: peer.Graph(topology))
    store = step("FeatureStore", lambda: peer.FeatureStore(rows))
    found["opened"] = {"num_nodes": opened.num_nodes, "num_edges": opened.num_edges}
    found["opened"]["rows"] = store.num_nodes
    found["is_right"] = check_peer(opened, store, graph)
    tell({"event": "found", "found": found})
    tell({"event": "ready", "seconds": sum(found["steps"].values()), "facts": {}})
    pace = Pace(task, tell)
    seeds = graph.split["train"]
    rng = np.random.default_rng(task.seed)
    rng.shuffle(seeds)
    table = store.get_tensor()
    for at in range(0, len(seeds), task.batch_size):
        frontier = seeds[at : at + task.batch_size]
        nodes, num_edges = [frontier], 0
        for fanout in task.fanout:
            # It samples one hop, and neither numbers nodes anew nor leaves out those it had.
            drawn = opened.batch_random_fanout(frontier.astype(np.uint64), fanout)
            num_edges += drawn.size
            frontier = np.setdiff1d(drawn, np.concatenate(nodes))
            nodes.append(frontier)
        every = np.concatenate(nodes)
        if not pace.batch(len(every), num_edges, checksum=float(table[every].sum())):
            break
    return found | {"batches": pace.batches, "seconds": pace.elapsed}


def check_peer(opened: Any, store: Any, graph: PapersGraph) -> dict[str, Any]:
    """Whether what it gives is in the graph: neighbours of a node that has few, rows of some."""
    chunk = next(graph.edges())
    degree = np.bincount(chunk.dst)
    few = int(np.flatnonzero((degree > 0) & (degree < 8))[0])
    true = set(chunk.src[chunk.dst == few].tolist())
    drawn = set(opened.batch_random_fanout(np.array([few], np.uint64), 15)[0].tolist())
    rows = graph.features().read(0, 100).numpy()
    same = bool(np.allclose(store.get_tensor()[:100], rows, atol=1e-4))
    return {
        "node": few,
        "neighbors": sorted(true),
        "drawn_15": sorted(drawn),
        "drawn_are_neighbors": drawn <= true,
        "rows": same,
    }


def write_edges(graph: PapersGraph, path: Path) -> None:
    """Text with the destination first, so that the neighbours it samples are in-neighbours."""
    import pyarrow as pa
    from pyarrow import csv

    schema = pa.schema([("src", pa.int32()), ("dst", pa.int32())])
    with csv.CSVWriter(path, schema) as writer:
        for chunk in graph.edges():
            arrays = [pa.array(chunk.dst), pa.array(chunk.src)]
            writer.write(pa.record_batch(arrays, schema=schema))


def write_features(graph: PapersGraph, path: Path) -> None:
    """Text with the node first."""
    import pyarrow as pa
    from pyarrow import csv

    names = ["node", *(f"f{i}" for i in range(graph.num_features))]
    kinds = [pa.int64(), *[pa.float32()] * graph.num_features]
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    begin = 0
    with csv.CSVWriter(path, schema, write_options=csv.WriteOptions(include_header=False)) as file:
        for slab in graph.features().slabs():
            columns = [pa.array(column) for column in slab.numpy().T]
            nodes = pa.array(np.arange(begin, begin + len(slab)))
            file.write(pa.record_batch([nodes, *columns], schema=schema))
            begin += len(slab)
