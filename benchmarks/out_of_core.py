"""Training data that is four times as large as memory: who delivers how many batches a second.

    python benchmarks/out_of_core.py --dir /somewhere/on/the/disk
    python benchmarks/out_of_core.py --dir … --nodes 1000000 --batch-size 64 --only graphbolt ours
    python benchmarks/out_of_core.py --dir … --stock-path /site-packages/with/torch-sparse
    python benchmarks/out_of_core.py --dir … --grid                # hours; 10 GB of disk
    python benchmarks/out_of_core.py --dir … --line 12 --sizes 6000000x128 --encodings f32

Every contestant is a process under a limit on memory, page cache included, of a share of the
features' bytes, and starts cold. The graph is made first (``harness.communities``):
32 GB of disk for 20 million nodes. Needs root, or a user for whom ``systemd-run --user --scope``
can limit memory. Writes a JSON and a chart; ``docs/benchmarks.md`` says what is in them.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import shutil
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from papers100m_shape import epochs
from torch_geometric.data import Data

import pyg_graphzero as gz
from harness.cap import MemoryCap
from harness.child import Task, Tell, answer
from harness.communities import CommunityGraph, check_rows
from harness.grid import Compete, Point, compete, grid_table, least_budget, point_of, worse
from harness.peers import compete_alone
from harness.record import limited_arguments, parser, record, write
from harness.report import memory_chart, table
from harness.run import CHILD, Run, play_all
from pyg_graphzero import _core
from pyg_graphzero.bench.synthetic import NUM_CLASSES
from pyg_graphzero.bench.training import Trainer, graph_sage
from pyg_graphzero.store.copies import remove_copies
from pyg_graphzero.util.machine import machine
from pyg_graphzero.util.sizes import format_bytes, parse_size

GROUPS = ("stock", "memmap", "graphbolt", "ours", "later", "train")
SEEDS, HIDDEN = "train_idx", 128
_TOO_LITTLE = 10**8  # for any process with torch in it
# Encoding of the features, by the first part of a store's name.
ENCODINGS = {"f32": None, "f16": "float16", "i8": "int8"}
_SIZES = ["2000000x128", "6000000x128", "10000000x128", "2000000x512"]


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    made = parser("out_of_core", __doc__, json=False)
    limited_arguments(made, "200MB")
    made.set_defaults(model="accelerated")
    made.add_argument("--nodes", type=int, default=20_000_000)
    made.add_argument("--features", type=int, default=128)
    made.add_argument("--batches", type=int, default=0, help="of an epoch; 0: all seeds")
    made.add_argument("--epochs", type=int, default=3)
    made.add_argument("--seconds", type=float, default=180, help="for stock and memmap")
    made.add_argument("--epoch-seconds", type=float, default=600, help="an epoch of the others")
    made.add_argument(
        "--patience", type=float, default=600, help="seconds for one batch, and for getting ready"
    )
    made.add_argument("--cap", type=float, default=0.25, help="limit, as a share of the features")
    made.add_argument("--memory", help="limit, such as 2GB, instead of a share")
    made.add_argument("--row-cache", help="bytes of graphbolt's cache; what is left by default")
    made.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS))
    made.add_argument(
        "--encodings", nargs="+", choices=ENCODINGS, default=list(ENCODINGS), help="of features"
    )
    made.add_argument("--grid", action="store_true", help="a table of second epochs instead")
    made.add_argument("--line", type=int, help="as --grid, ours alone; how many budgets")
    made.add_argument("--sizes", nargs="+", default=_SIZES, help="of its graphs: NODESxFEATURES")
    made.add_argument("--fanouts", nargs="+", default=["15,10,5", "10,5"], help="of its batches")
    made.add_argument("--budgets", nargs="+", type=float, default=[0.15, 0.25, 0.5], help="--cap")
    return made.parse_args(argv)


# The child ########################################################################################


def serve(task: Task, tell: Tell) -> None:
    """One contestant: epochs of batches, each looked at or trained on."""
    torch.manual_seed(task.seed)
    trainer = None
    if task.hidden:
        layers, width = len(task.fanout), task.options["in_channels"]
        net = graph_sage(Data(), layers, NUM_CLASSES, task.hidden, width)
        trainer = Trainer(net, task.model)
    checked = False

    def step(batch: Any) -> None:
        nonlocal checked
        if not checked and not task.options.get("changes_rows"):
            check_rows(batch.n_id, batch.x)
        checked = True
        if trainer is not None:
            trainer.step(batch)

    compete_alone(task, tell, step)


# The parent #######################################################################################


def make(graph: CommunityGraph, path: Path, group: str = "") -> None:
    """A store of the graph, where it is not there yet, named by its encoding.

    Args:
        graph: The graph.
        path: The store.
        group: Group of the run: ``later`` reads copies of rows that an earlier run has made,
            others begin without.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        graph.write(path, encoding=ENCODINGS[path.name])
        print(f"made {path.name} in {time.perf_counter() - start:.0f} s", flush=True)
    elif group != "later":
        remove_copies(path)


def folder_of(args: argparse.Namespace, graph: CommunityGraph) -> Path:
    """Where the stores of a graph are."""
    return args.dir / f"out-of-core-{graph.num_nodes}x{graph.num_features}-{graph.seed}"


def choose(args: argparse.Namespace, graph: CommunityGraph, limit: int) -> list[Run]:
    """The runs that were asked for, under a limit on memory in bytes."""
    folder = folder_of(args, graph)
    some = {"epochs": 1, "seconds": args.seconds, "num_seeds": args.batches * args.batch_size}
    full = some | {"epochs": args.epochs, "seconds": args.epoch_seconds}
    beside = parse_size(args.training_memory, "--training-memory")
    cache = {"cache_bytes": parse_size(args.row_cache, "--row-cache")} if args.row_cache else {}
    runs = []

    def add(name: str, group: str, do: str, store: str, cold: bool = True, **more: Any) -> None:
        task = Task(
            do, str(folder / store), seeds=SEEDS, fanout=args.fanout,
            batch_size=args.batch_size, model=args.model, seed=args.seed, **{"limit": limit} | more,
        )  # fmt: skip
        path = args.stock_path if group == "stock" else None
        before = partial(make, graph, folder / store, group)
        if group in args.only and store in args.encodings:
            runs.append(Run(name, group, task, cold, args.patience, path, before))

    for workers in (0, 2):
        add(f"stock, {workers} workers", "stock", "stock", "f32", workers=workers, **some)
    add("memmap random, 64 threads", "memmap", "memmap", "f32", options={"threads": 64}, **some)
    for store in ("f32", "f16"):
        add(f"graphbolt scheme, {store}", "graphbolt", "graphbolt", store, options=cache, **full)
    full["workers"] = 2
    for store in ("f32", "f16"):
        add(f"ours, {store}", "ours", "ours", store, budget=limit, **full)
        add(f"ours, a later run, {store}", "later", "ours", store, budget=limit, **full)
    for store in ENCODINGS:
        for name, under, reduction in (
            ("in RAM", None, None),
            ("under the limit", limit, None),
            ("under the limit with first_aggregation", limit, "mean"),
        ):
            options = {
                "in_channels": args.features, "first_aggregation": reduction,
                "changes_rows": store == "i8" or reduction is not None,
            }  # fmt: skip
            if reduction is None or args.model == "accelerated":
                add(
                    f"training {name}, {store}", "train", "ours", store, cold=under is not None,
                    limit=under, budget=under and under - beside, options=options, hidden=HIDDEN,
                    **full,
                )  # fmt: skip
    return runs


def grid_points(args: argparse.Namespace) -> Iterator[Point]:
    """Points of the grid, or of lines of budgets; each store is removed after its own."""
    for size in args.sizes:
        nodes, features = map(int, size.split("x"))
        graph = CommunityGraph(nodes, num_features=features, seed=args.seed)
        for encoding in args.encodings:
            store = folder_of(args, graph) / encoding
            make(graph, store)
            alone = args.line or encoding == "i8"  # GraphBolt's scheme has no int8
            rivals = ("ours", "off") if alone else ("ours", "off", "scheme")
            for fanout in args.fanouts:
                task = Task(
                    "", str(store), seeds=SEEDS, fanout=[int(each) for each in fanout.split(",")],
                    batch_size=args.batch_size, workers=2, num_seeds=args.batches * args.batch_size,
                    epochs=2, seconds=args.epoch_seconds, seed=args.seed,
                    options={"changes_rows": encoding == "i8"},
                )  # fmt: skip
                play_one = partial(compete, task, Path(__file__), args.patience, args.drop_caches)
                for limit in limits(args, 4 * nodes * features, play_one):
                    at = {"graph": size, "fanout": fanout, "limit": limit}
                    runs = {name: play_one(name, limit) for name in rivals}
                    share = limit / (4 * nodes * features)
                    yield point_of(runs, **at, encoding=encoding, share=share)
            if not args.keep:
                shutil.rmtree(store)


def limits(args: argparse.Namespace, feature_bytes: int, play_one: Compete) -> list[int]:
    """Limits on memory: shares of the features; of a line, from the least that works to half."""
    if not args.line:
        return [int(share * feature_bytes) for share in args.budgets]
    least = least_budget(play_one("ours", _TOO_LITTLE)) or _TOO_LITTLE
    most = max(feature_bytes // 2, 2 * least)
    return [least + (most - least) * number // max(1, args.line - 1) for number in range(args.line)]


def lay_grid(args: argparse.Namespace, argv: list[str] | None) -> None:
    """Plays all points, and writes table and record after each."""
    points: list[Point] = []
    for point in grid_points(args):
        points.append(point)
        text = "\n".join([grid_table(args.name, points), *worse(points)])
        write(args.out / f"{args.name}.json", record(args, argv, points=points))
        (args.out / f"{args.name}.md").write_text(f"{text}\n")
    print(text)


def main(argv: list[str] | None = None) -> None:
    """Makes the graphs, lets everybody run, and reports."""
    args = parse(argv)
    if args.grid or args.line:
        lay_grid(args, argv)
        return
    graph = CommunityGraph(args.nodes, num_features=args.features, seed=args.seed)
    feature_bytes = 4 * args.nodes * args.features
    limit = parse_size(args.memory, "--memory") if args.memory else int(args.cap * feature_bytes)
    with MemoryCap(limit):  # before an hour's work: can it be done here?
        pass
    folder = folder_of(args, graph)
    try:
        make(graph, folder / "f32")
        facts = facts_of(args, folder / "f32")
        print(machine(), graph, facts, sep="\n", flush=True)
        results = play_all(choose(args, graph, limit), Path(__file__), args.drop_caches)
    finally:
        if not args.keep:
            shutil.rmtree(folder)
    facts |= dataclasses.asdict(graph)
    more = {"limit": limit, "feature_bytes": feature_bytes, "uring_refusal": _core.uring_refusal()}
    write(args.out / f"{args.name}.json", record(args, argv, graph=facts, results=results, **more))
    share = f"{limit / feature_bytes:.0%} of the features' bytes"
    print(table(f"out of core: limit {format_bytes(limit)} ({share}), cold", results))
    watched = [e for e in results if e["limit"] == limit and e["group"] not in ("stock", "memmap")]
    if watched := [each for each in watched if each["timeline"]]:
        memory_chart(watched, args.out / f"{args.name}_memory.png")


def facts_of(args: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Counts of a store's graph, and what an epoch touches of it."""
    with gz.open(path) as opened:
        info, data = opened.info()["edge_types"][0], opened.data()
        seeds = data[SEEDS]
        data.is_seed = torch.zeros(args.nodes, dtype=torch.bool).index_fill_(0, seeds, True)
        task = Task("", str(path), None, None, "is_seed", args.fanout, args.batch_size)
        touched = next(epochs(task, data, {}))["touched"]
        found = {name: info[name] for name in ("num_edges", "topology_bytes")}
        found |= {"seeds": len(seeds), "touched": touched}
    del opened, data, seeds
    gc.collect()  # what this process has mapped would not leave the page cache
    return found


if __name__ == "__main__":
    answer(serve) if sys.argv[1:] == [CHILD] else main()
