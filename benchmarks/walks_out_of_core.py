"""Walks over neighbours that do not fit in memory, beside the same walks over a memory map.

    python benchmarks/walks_out_of_core.py --dir /somewhere/on/the/disk

A graph of communities, like citations, is written once. Then each contestant walks for some
seconds, in a process whose control group may hold a quarter of the neighbours' bytes, and begins
cold. This package walks within that budget. The others walk over the mapped file, which happens
where the budget exceeds the file, with one thread for each core and with many more. The table
compares steps a second, the median of the calls in the second half.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

import pyg_graphzero as gz
from harness.child import Task, Tell, answer
from harness.communities import CommunityGraph
from harness.record import folder_arguments, parser, record, write
from harness.report import table
from harness.run import CHILD, Run, play_all
from pyg_graphzero.util.machine import machine
from pyg_graphzero.util.sizes import format_bytes, parse_size

# A budget in which any file fits: it is mapped.
_MAPPED = 1 << 50


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The arguments."""
    made = parser("walks_out_of_core", __doc__)
    folder_arguments(made)
    made.add_argument("--nodes", type=int, default=24_000_000)
    made.add_argument("--edges-per-node", type=float, default=40.0)
    made.add_argument("--walks", type=int, default=600_000, help="of a call of ours")
    made.add_argument("--map-walks", type=int, default=5_000, help="of a call over a map")
    made.add_argument("--walk-length", type=int, default=20, help="steps")
    made.add_argument("--map-threads", type=int, nargs="+", default=[os.cpu_count() or 1, 64])
    made.add_argument("--seconds", type=float, default=60, help="no call begins later")
    made.add_argument("--cap", type=float, default=0.25, help="limit, as a share of the neighbours")
    made.add_argument("--memory", help="limit, such as 2GB, instead of a share")
    return made.parse_args(argv)


def serve(task: Task, tell: Tell) -> None:
    """One contestant: walks against edges, which need no second copy of them."""
    begin = time.perf_counter()
    count, length = task.options["walks"], task.options["walk_length"]
    if task.workers:
        torch.set_num_threads(task.workers)
    store = gz.open(task.store, memory=task.budget)
    walker = gz.sampler.RandomWalker(store, reverse=True)
    tell({"event": "ready", "seconds": time.perf_counter() - begin, "facts": {}})
    generator = torch.Generator().manual_seed(task.seed)
    rates, first = [], time.perf_counter()
    while time.perf_counter() < first + task.seconds:
        start = torch.randint(store.num_nodes, (count,), generator=generator)
        begin = time.perf_counter()
        walks = walker.walk(start, length, generator=generator)
        rates.append(int((walks[:, 1:] >= 0).sum()) / (time.perf_counter() - begin))
    steady = statistics.median(rates[len(rates) // 2 :])
    tell({"event": "found", "found": {"steps_per_second": steady, "calls": len(rates)}})


def main(argv: list[str] | None = None) -> None:
    """Makes the graph, lets everybody walk, and reports."""
    args = parse(argv)
    path = args.dir / f"walks-{args.nodes}-{args.edges_per_node:g}"
    args.dir.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        CommunityGraph(args.nodes, args.edges_per_node, num_features=4).write(path)
    try:
        report = measure(args, path)
    finally:
        if not args.keep:
            shutil.rmtree(path)
    write(args.json, record(args, argv, **report))
    print(machine())
    title = f"{format_bytes(report['neighbours_bytes'])} in {format_bytes(report['limit'])}"
    print(table(title, report["results"]))


def measure(args: argparse.Namespace, path: Path) -> dict[str, Any]:
    """All runs."""
    neighbours = sum(file.stat().st_size for file in path.rglob("*.gl"))
    limit = parse_size(args.memory, "--memory") if args.memory else int(args.cap * neighbours)
    returned = 8 * args.walks * (args.walk_length + 1)  # on top of a budget
    runs = [("ours", args.walks, 0, limit - returned)]
    runs += [(f"map, {n} threads", args.map_walks, n, _MAPPED) for n in args.map_threads]
    made = []
    for name, walks, threads, budget in runs:
        options = {"walks": walks, "walk_length": args.walk_length}
        task = Task("walk", str(path), limit, budget, workers=threads, seconds=args.seconds,
                    options=options)  # fmt: skip
        made.append(Run(name, name, task))
    results = play_all(made, Path(__file__), args.drop_caches)
    return {"neighbours_bytes": neighbours, "limit": limit, "results": results}


if __name__ == "__main__":
    answer(serve) if sys.argv[1:] == [CHILD] else main()
