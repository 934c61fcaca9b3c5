"""Walks over neighbours that do not fit in memory, beside the same walks over a memory map.

    python benchmarks/walks_out_of_core.py --dir /somewhere/on/the/disk

A graph of communities, like citations, is written once. Then each contestant walks for some
seconds, in a process whose control group may hold a quarter of the neighbours' bytes, and begins
cold. This package walks within that budget. The others walk over the mapped file, which happens
where the budget exceeds the file, with one thread for each core and with many more. The table
compares steps a second, the median of the calls in the second half.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from pathlib import Path

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
    made = parser("walks_out_of_core", __doc__)
    folder_arguments(made)
    made.add_argument("--nodes", type=int, default=24_000_000)
    made.add_argument("--walks", type=int, default=600_000, help="of a call of ours")
    made.add_argument("--map-walks", type=int, default=5_000, help="of a call over a map")
    made.add_argument("--walk-length", type=int, default=20, help="steps")
    made.add_argument("--map-threads", type=int, nargs="+", default=[os.cpu_count() or 1, 64])
    made.add_argument("--seconds", type=float, default=60, help="no call begins later")
    made.add_argument("--memory", help="limit, such as 2GB; a quarter of the neighbours by default")
    args = made.parse_args(argv)
    path = args.dir / f"walks-{args.nodes}"
    args.dir.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        CommunityGraph(args.nodes, edges_per_node=40, num_features=4).write(path)
    neighbours = sum(file.stat().st_size for file in path.rglob("*.gl"))
    limit = parse_size(args.memory, "--memory") if args.memory else neighbours // 4
    returned = 8 * args.walks * (args.walk_length + 1)  # on top of a budget
    contestants = [("ours", args.walks, 0, limit - returned)]
    contestants += [(f"map, {n} threads", args.map_walks, n, _MAPPED) for n in args.map_threads]
    runs = []
    for name, walks, threads, budget in contestants:
        options = {"walks": walks, "walk_length": args.walk_length}
        task = Task("walk", str(path), limit, budget, workers=threads, seconds=args.seconds,
                    options=options)  # fmt: skip
        runs.append(Run(name, name, task))
    try:
        results = play_all(runs, Path(__file__), args.drop_caches)
    finally:
        if not args.keep:
            shutil.rmtree(path)
    found = {"neighbours_bytes": neighbours, "limit": limit, "results": results}
    write(args.json, record(args, argv, **found))
    print(machine())
    print(table(f"{format_bytes(neighbours)} in {format_bytes(limit)}", results))


if __name__ == "__main__":
    answer(serve) if sys.argv[1:] == [CHILD] else main()
