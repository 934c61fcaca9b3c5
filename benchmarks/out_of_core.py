"""Training data that is four times as large as memory: who delivers how many batches a second.

    python benchmarks/out_of_core.py --dir /somewhere/on/the/disk
    python benchmarks/out_of_core.py --dir … --nodes 1000000 --batch-size 64 --only graphbolt ours
    python benchmarks/out_of_core.py --dir … --stock-path /site-packages/with/torch-sparse

Every contestant is a process under a limit on memory, page cache included, of a share of the
features' bytes, and starts cold. The graph is made first (``pyg_graphzero.bench.communities``):
32 GB of disk for 20 million nodes. Needs root, or a user for whom ``systemd-run --user --scope``
can limit memory. Writes a JSON and three charts; ``docs/benchmarks.md`` says what is in them.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import shlex
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from out_of_core_report import charts, summary, table
from out_of_core_runs import GROUPS, Run, Stores, choose, play
from torch import Tensor
from torch_geometric.sampler import NodeSamplerInput

import pyg_graphzero as gz
from pyg_graphzero import _core
from pyg_graphzero.bench.cap import MemoryCap
from pyg_graphzero.bench.communities import CommunityGraph
from pyg_graphzero.bench.entrant import ENVIRONMENT
from pyg_graphzero.sampling.sampler import NeighborSampler
from pyg_graphzero.util.machine import machine, storage
from pyg_graphzero.util.workspace import parse_size

_SHARES = (0.01, 0.05, 0.1, 0.19, 0.25, 0.4)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, required=True, help="where the graphs are made")
    parser.add_argument("--nodes", type=int, default=20_000_000)
    parser.add_argument("--edges-per-node", type=float, default=6.0)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--fanout", type=int, nargs="+", default=[15, 10, 5])
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=0, help="of an epoch; 0: all seeds")
    parser.add_argument("--train-batches", type=int, default=60, help="of an epoch with training")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=180, help="for stock and memmap")
    parser.add_argument("--epoch-seconds", type=float, default=600, help="an epoch of the others")
    parser.add_argument(
        "--patience", type=float, default=600, help="seconds for one batch, and for getting ready"
    )
    parser.add_argument("--cap", type=float, default=0.25, help="limit, as a share of the features")
    parser.add_argument("--memory", help="limit, such as 2GB, instead of a share")
    parser.add_argument(
        "--training-memory", default="1GB", help="of the limit, what training takes for itself"
    )
    parser.add_argument(
        "--trim",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="layers leave out what no seed hears of (trim_to_layer): less memory and time",
    )
    parser.add_argument("--row-cache", help="bytes of graphbolt's cache; what is left by default")
    parser.add_argument(
        "--topology-memory", help="limit for topology out of core; 3/4 of the topology by default"
    )
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--repeat", type=int, default=1, help="runs of everything, in turn")
    parser.add_argument("--keep", action="store_true", help="leave the graphs for the next run")
    parser.add_argument(
        "--drop-caches",
        action=argparse.BooleanOptionalAction,
        default=os.geteuid() == 0,
        help="empty all of the machine's page cache before each run, not the stores' files alone",
    )
    parser.add_argument("--stock-path", help="added to PYTHONPATH of stock PyG, for torch-sparse")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    return parser.parse_args()


def access(store: gz.Store, fanout: list[int], chunks: Iterable[Tensor]) -> dict[str, Any]:
    """What an epoch wants: rows of a batch, and the share that the most wanted rows take."""
    sampler, num_nodes = NeighborSampler(store.data(), fanout), store.num_nodes()
    count = torch.zeros(num_nodes, dtype=torch.int32)
    batches = edges = 0
    for chunk in chunks:
        out = sampler.sample_from_nodes(NodeSamplerInput(None, chunk))
        count[out.node] += 1
        batches += 1
        edges += len(out.row)
    total = int(count.sum())
    hottest = count.sort(descending=True).values.cumsum(0)
    return {
        "batches": batches,
        "nodes_per_batch": total / batches,
        "edges_per_batch": edges / batches,
        "footprint": total / batches / num_nodes,
        "touched": float((count > 0).float().mean()),
        "hottest": {str(s): int(hottest[int(s * num_nodes) - 1]) / total for s in _SHARES},
    }


def main() -> None:
    """Makes the graphs, lets everybody run, and reports."""
    args = parse()
    graph = CommunityGraph(args.nodes, args.edges_per_node, args.features, seed=args.seed)
    feature_bytes = 4 * args.nodes * args.features
    limit = parse_size(args.memory, "--memory") if args.memory else int(args.cap * feature_bytes)
    with MemoryCap(limit) as cap:  # before an hour's work: can it be done here?
        means = cap.means
    args.dir.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    stores = Stores(args.dir, graph, args.fanout, args.batch_size)
    try:
        report = measure(args, stores, limit)
    finally:
        if not args.keep:
            stores.remove()
    report |= {"limit": limit, "means": means, "feature_bytes": feature_bytes}
    args.out.joinpath("out_of_core.json").write_text(json.dumps(report, indent=1))
    print(table(report))
    print(*summary(report), sep="\n")
    if (left_out := charts(report, args.out)) is not None:
        print(left_out)


def measure(args: argparse.Namespace, stores: Stores, limit: int) -> dict[str, Any]:
    """Everything but the table."""
    graph = stores.graph
    store = stores.path("f32")
    seeds = graph.train_nodes()
    seeds = seeds[torch.randperm(len(seeds), generator=torch.Generator().manual_seed(args.seed))]
    with gz.open(store) as opened:
        wanted = access(opened, args.fanout, seeds.split(args.batch_size))
        info = opened.info()["edge_types"][0]
    del opened
    gc.collect()  # what this process has mapped would not leave the page cache
    print(f"{machine()}")
    print(f"{graph}: {info['num_edges']:,} edges, {len(seeds):,} seeds")
    print(f"a batch: {wanted['nodes_per_batch']:,.0f} rows, {wanted['footprint']:.2%} of all")
    shares = ", ".join(f"{float(s):.0%}: {v:.0%}" for s, v in wanted["hottest"].items())
    print(f"accesses that the hottest rows take: {shares}; touched at all {wanted['touched']:.0%}")
    topology = info["topology_bytes"]
    small = parse_size(args.topology_memory or f"{topology * 3 // 4}", "--topology-memory")
    runs = choose(args, limit, small)
    results = []
    for number in range(args.repeat):
        for run in runs:
            result = play(run, stores, seeds, args)
            results.append(result | {"repeat": number})
            print(short(run, result), flush=True)
    return {
        "schema": 1,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": shlex.join(["python", *sys.argv]),
        "machine": machine(),
        "storage": storage(store),
        "uring_refusal": _core.uring_refusal(),
        "environment": ENVIRONMENT,
        "graph": {
            **dataclasses.asdict(graph),
            "num_edges": info["num_edges"],
            "topology_bytes": topology,
            "seeds": len(seeds),
            "accesses": wanted,
            "seconds_to_make": stores.seconds,
        },
        "settings": {
            "fanout": args.fanout,
            "batch_size": args.batch_size,
            "batches": args.batches,
            "train_batches": args.train_batches,
            "epochs": args.epochs,
            "patience": args.patience,
            "cap": args.cap,
            "training_memory": args.training_memory,
            "trim": args.trim,
            "drop_caches": args.drop_caches,
            "threads": torch.get_num_threads(),
        },
        "results": results,
    }


def short(run: Run, result: dict[str, Any]) -> str:
    """A line as soon as it is known."""
    if result["error"]:
        return f"{run.name}: {result['error']}"
    epochs = ", ".join(f"{e['batches']} in {e['seconds']:.1f} s" for e in result["epochs"])
    return f"{run.name}: ready after {result['ready_seconds']:.1f} s; batches: {epochs}"


if __name__ == "__main__":
    main()
