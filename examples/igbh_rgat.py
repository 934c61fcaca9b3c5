"""MLPerf's R-GAT in PyG, trained from disk on a graph of the shape of IGB-heterogeneous.

    python examples/igbh_rgat.py --size tiny
    python examples/igbh_rgat.py --size small --batches 10 --memory 8GB
    python examples/igbh_rgat.py --store MY_IGBH     # converted from the dataset itself

Three layers of relational GAT, 512 numbers, 4 heads, fan-out 15, 10, 5 of each relation; six types
of nodes, their relations and the reverse ones; 1024 features of a node, stored as int8. A graph
with as many nodes and edges as published is generated and streams into a store; the dataset itself
is converted by ``graphzero convert DIR -o MY_IGBH --undirected --features int8``. The model is that
of MLPerf's training reference (graphlearn-for-pytorch, ``examples/igbh/rgnn.py``), and knows
nothing about disks; ``gz.nn.accelerate`` has it compute what the seeds of a batch need.

Counts are those of the dataset (Khatua et al. 2023, arXiv 2302.13522: 547,306,935 nodes and
5,812,005,639 edges in full, without journals and conferences). Edges to these are not among the
published counts: here every other paper is in a journal, and one in ten at a conference. Citations
are random, with hubs, half of them within a class; nothing is said about accuracy on the dataset.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATConv, HeteroConv
from torch_geometric.typing import EdgeType

import pyg_graphzero as gz
from pyg_graphzero.store.rows import Rows
from ranks import MemoryPeak

OUT = Path(__file__).resolve().parent / "out"
WIDTH = 1024
SIZES = ("tiny", "small", "full")
# Counts in graphs of these sizes.
NODES = {
    "paper": (100_000, 1_000_000, 269_346_174),
    "author": (357_041, 1_926_066, 277_220_883),
    "institute": (8_738, 14_751, 26_918),
    "fos": (84_220, 190_449, 712_960),
    "journal": (8_101, 15_277, 49_052),
    "conference": (398, 1_215, 4_547),
}
EDGES = {
    "cites": (447_416, 12_070_502, 3_996_442_004),
    "written_by": (471_443, 4_553_516, 716_761_549),
    "topic": (718_445, 7_234_122, 1_050_280_600),
    "affiliated_to": (325_410, 1_630_476, 48_521_486),
}
RELATIONS = [
    ("paper", "cites", "paper"), ("paper", "written_by", "author"), ("paper", "topic", "fos"),
    ("author", "affiliated_to", "institute"), ("paper", "published", "journal"),
    ("paper", "venue", "conference"),
]  # fmt: skip
_CHUNK_EDGES = 1 << 20
# Odd primes: which rows of a table make up a node's features, and where hubs lie.
_TABLES, _STRIDE = (1021, 1019), 1_000_003


# Graph ------------------------------------------------------------------------------------------


class Features(Rows):
    """Features of a node type, made when they are read.

    A node's are the sum of a row of each of two tables of noise, and of its class's centroid.
    """

    def __init__(self, num_nodes: int, tables: list[Tensor]) -> None:
        super().__init__((num_nodes, WIDTH), torch.float32)
        self.tables = tables

    def read(self, begin: int, end: int) -> Tensor:
        """Rows ``begin … end - 1``."""
        ids = torch.arange(begin, end)
        return torch.stack([table[ids % len(table)] for table in self.tables]).sum(0)


def edges(num_src: int, num_dst: int, count: int, seed: int, classes: int) -> Any:
    """Random edges in batches, as a reader of Arrow; the same ones for each seed."""

    def batches() -> Iterator[Any]:
        generator = torch.Generator().manual_seed(seed)
        for first in range(0, count, _CHUNK_EDGES):
            n = min(_CHUNK_EDGES, count - first)
            src = torch.randint(num_src, (n,), generator=generator)
            rank = torch.rand(n, generator=generator, dtype=torch.float64).pow_(2)
            dst = rank.mul_(num_dst).long().mul_(_STRIDE) % num_dst
            if classes:
                own = dst - dst % classes + src % classes
                is_own = (torch.rand(n, generator=generator) < 0.5) & (own < num_dst)
                dst = torch.where(is_own, own, dst)
            yield pa.RecordBatch.from_pydict({"src": src.numpy(), "dst": dst.numpy()})

    schema = pa.schema({"src": pa.int64(), "dst": pa.int64()})
    return pa.RecordBatchReader.from_batches(schema, batches())


def specification(size: str, classes: int, scale: float) -> dict[str, Any]:
    """The graph as ``gz.convert`` takes it; nothing is made until it is read."""
    column = SIZES.index(size)
    nodes = {name: max(32, round(scale * each[column])) for name, each in NODES.items()}
    counts = {name: max(64, round(scale * each[column])) for name, each in EDGES.items()}
    counts |= {"published": nodes["paper"] // 2, "venue": nodes["paper"] // 10}
    generator = torch.Generator().manual_seed(0)
    noise = [torch.randn(rows, WIDTH, generator=generator) for rows in _TABLES]
    centroids = 0.5 * torch.randn(classes, WIDTH, generator=generator)
    spec: dict[str, Any] = {"nodes": {}, "edges": []}
    for name, n in nodes.items():
        tables = [*noise, centroids] if name == "paper" else noise
        attrs: dict[str, Any] = {"x": Features(n, tables)}
        if name == "paper":
            attrs["y"] = torch.arange(n) % classes
            attrs["train_mask"] = torch.rand(n, generator=generator) < 0.6
        spec["nodes"][name] = {"num_nodes": n, "ids": "dense", "attrs": attrs}
    for number, (src, name, dst) in enumerate(RELATIONS):
        of_class = classes if src == dst else 0
        file = edges(nodes[src], nodes[dst], counts[name], number, of_class)
        edge = {"type": (src, name, dst), "file": file, "undirected": True}
        spec["edges"].append(edge | ({"self_loops": "add"} if src == dst else {}))
    return spec


# Model ------------------------------------------------------------------------------------------


class RGAT(torch.nn.Module):
    """A GAT for each relation, added up by node type; logits of one node type."""

    def __init__(self, edge_types: list[EdgeType], args: argparse.Namespace) -> None:
        super().__init__()
        width, heads = args.hidden, args.heads
        self.convs = torch.nn.ModuleList(
            HeteroConv(
                {
                    edge_type: GATConv(before, width // heads, heads=heads, add_self_loops=False)
                    for edge_type in edge_types
                }
            )
            for before in (WIDTH, width, width)
        )
        self.dropout = torch.nn.Dropout(0.2)
        self.lin = torch.nn.Linear(width, args.classes)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[EdgeType, Tensor]) -> Tensor:
        """Logits of the papers."""
        for number, conv in enumerate(self.convs):
            x_dict = conv(x_dict, edge_index_dict)
            if number < len(self.convs) - 1:
                x_dict = {name: self.dropout(F.leaky_relu(x)) for name, x in x_dict.items()}
        return self.lin(x_dict["paper"])


def train(store: gz.Store, args: argparse.Namespace) -> None:
    """Trains some batches, and says what they took."""
    torch.manual_seed(0)
    data, peak = store.data(), MemoryPeak()
    loader = gz.loader.NeighborLoader(
        data,
        num_neighbors=args.fanout,
        input_nodes=("paper", data["paper"].train_mask),
        batch_size=args.batch_size,
        shuffle=True,
    )
    model = RGAT(data.edge_types, args)
    if not args.stock:
        gz.nn.accelerate(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    num_seeds = int(data["paper"].train_mask.sum())
    label = "y_2K" if args.classes > 19 and "y_2K" in data["paper"] else "y"
    started = (0.0, 0.0)
    nodes = edges = seeds = batches = 0
    loss = torch.zeros(())
    for number, batch in enumerate(islice(loader, args.batches and args.batches + 2)):
        size = batch["paper"].batch_size
        out = model(batch.x_dict, batch.edge_index_dict)[:size]
        loss = F.cross_entropy(out, batch["paper"][label][:size].long())
        peak.look()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        nodes, edges, seeds = nodes + batch.num_nodes, edges + batch.num_edges, seeds + size
        batches += 1
        if number == 1:  # until then the model is learned, and memory is divided
            started = time.perf_counter(), time.process_time()
            nodes = edges = seeds = batches = 0
    if started[0] == 0 or batches == 0:
        sys.exit("found fewer than three batches, expected some to measure")
    seconds, core_seconds = time.perf_counter() - started[0], time.process_time() - started[1]
    print(
        f"{batches} batches of {args.batch_size}: {nodes // batches:,} nodes and "
        f"{edges // batches:,} edges each, loss {float(loss.detach()):.3f}\n"
        f"{seconds:.1f} s, {core_seconds:.1f} core-seconds, {seeds / seconds:.1f} samples/s, "
        f"{peak.anon / 1e9:.2f} GB of memory and {peak.file / 1e9:.2f} GB of mapped files at most\n"
        f"an epoch of {num_seeds:,} seeds by these: {num_seeds / seeds * seconds:,.0f} s"
    )
    if not args.stock:
        print(gz.nn.explain(model))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="R-GAT on a graph of the shape of IGBH.")
    parser.add_argument("--size", choices=["tiny", "small", "twentieth"], default="tiny")
    parser.add_argument("--batches", type=int, help="batches to measure; an epoch by default")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--fanout", type=int, nargs=3, default=[15, 10, 5])
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--classes", type=int, default=2983, help="19 or 2983")
    parser.add_argument("--memory", help="budget of the process, such as 8GB")
    parser.add_argument("--stock", action="store_true", help="the model as it is")
    parser.add_argument("--store", type=Path, help="a store; made where there is none")
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")
    args = parser.parse_args()
    args.scale = 0.05 if args.size == "twentieth" else 1.0
    if args.quick:
        args.scale, args.hidden, args.classes, args.batches = 0.005, 32, 19, 4
        args.batch_size = 32
    args.store = args.store or OUT / f"igbh_{args.size}"
    return args


def main() -> None:
    args = parse_args()
    if not args.store.exists():
        args.store.parent.mkdir(parents=True, exist_ok=True)
        size = "full" if args.size == "twentieth" else args.size
        spec = specification(size, args.classes, args.scale)
        started = time.perf_counter()
        gz.convert(spec, args.store, features="int8", edge_ids=False, memory=args.memory)
        print(f"converted in {time.perf_counter() - started:.0f} s", flush=True)
    # Some batches alone are not worth finding out which rows an epoch uses.
    row_cache = "auto" if args.batches is None else False
    store = gz.open(args.store, memory=args.memory, row_cache=row_cache)
    num_bytes = sum(file.stat().st_size for file in args.store.rglob("*") if file.is_file())
    print(f"{store}: {num_bytes / 1e9:.2f} GB", flush=True)
    train(store, args)


if __name__ == "__main__":
    main()
