"""Training data that is four times as large as memory: who delivers how many batches a second.

    python benchmarks/out_of_core.py --dir /somewhere/on/the/disk
    python benchmarks/out_of_core.py --dir … --nodes 1000000 --batch-size 64 --only graphbolt ours
    python benchmarks/out_of_core.py --dir … --stock-path /site-packages/with/torch-sparse

Every contestant is a process under a limit on memory, page cache included, of a share of the
features' bytes, and starts cold. The graph is made first (``pyg_graphzero.bench.communities``):
32 GB of disk for 20 million nodes. Needs root, or a user for whom ``systemd-run --user --scope``
can limit memory. Writes a JSON and charts; ``docs/benchmarks.md`` says what is in them.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import NodeSamplerInput

import pyg_graphzero as gz
from harness.child import Task, Tell, answer, deliver
from harness.peers import Contestant, GraphBolt, Ours, Stock, TunedMemmap
from harness.record import limited_arguments, parser, record, write
from harness.report import (
    Result,
    charts,
    number,
    rate,
    reading,
    short,
    speed,
    table,
    whole_epochs,
)
from harness.run import CHILD, Run, play
from pyg_graphzero import _core
from pyg_graphzero.bench.cap import MemoryCap
from pyg_graphzero.bench.communities import CommunityGraph, check_rows
from pyg_graphzero.bench.synthetic import NUM_CLASSES
from pyg_graphzero.bench.training import Trainer
from pyg_graphzero.errors import MemoryBudgetError
from pyg_graphzero.sampling.neighbor import NeighborSampler
from pyg_graphzero.store.copies import remove_copies
from pyg_graphzero.util.machine import machine
from pyg_graphzero.util.sizes import format_bytes
from pyg_graphzero.util.workspace import parse_size

GROUPS = ("stock", "memmap", "graphbolt", "default", "ours", "later", "optimized", "train")
GROUPS += ("topology",)
CONTESTANTS: dict[str, type[Contestant]] = {
    "stock": Stock,
    "ours": Ours,
    "memmap": TunedMemmap,
    "graphbolt": GraphBolt,
}
SEEDS, HIDDEN = "train_idx", 128
# What rows of features are stored as, by the first part of a store's name.
ENCODINGS = {"f32": None, "f16": "float16", "i8": "int8"}
_SHARES = (0.01, 0.05, 0.1, 0.19, 0.25, 0.4)
_COLUMNS = ["batches/s", "first", "last", "of batches", "hits", "reads/batch", "MB/batch"]
_COLUMNS += ["reads: time/ideal", "anon+file", "charged"]


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    made = parser("out_of_core", __doc__, json=False)
    limited_arguments(made, "200MB")
    made.set_defaults(model="accelerated")
    made.add_argument("--nodes", type=int, default=20_000_000)
    made.add_argument("--edges-per-node", type=float, default=6.0)
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
    made.add_argument(
        "--topology-memory", help="limit for topology out of core; 3/4 of the topology by default"
    )
    made.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS))
    made.add_argument(
        "--encodings", nargs="+", choices=ENCODINGS, default=list(ENCODINGS), help="of features"
    )
    made.add_argument("--repeat", type=int, default=1, help="runs of everything, in turn")
    return made.parse_args(argv)


# The child ########################################################################################


def serve(task: Task, tell: Tell) -> None:
    """One contestant: epochs of batches, each looked at or trained on."""
    torch.manual_seed(task.seed)
    start = time.perf_counter()
    contestant = CONTESTANTS[task.do](task)
    trainer = None
    if task.hidden:
        trainer = Trainer(
            Data(), None, len(task.fanout), NUM_CLASSES, task.model, task.hidden,
            task.options["in_channels"],
        )  # fmt: skip
    took = time.perf_counter() - start
    tell({"event": "ready", "seconds": took, "facts": contestant.facts()})
    checked = False

    def step(batch: Any) -> None:
        nonlocal checked
        if not checked and not task.options.get("changes_rows"):
            check_rows(batch.n_id, batch.x)
        checked = True
        if trainer is not None:
            trainer.step(contestant.trainable(batch))

    deliver(task, tell, contestant.epoch, step, contestant.counts)


# The parent #######################################################################################


class Stores:
    """The graph as stores, each made when it is first wanted.

    Args:
        folder: Where.
        graph: Which.
        sampling: Arguments of ``gz.optimize``: how the loaders sample.

    Raises:
        ValueError: The folder has the stores of another graph.

    Attributes:
        folder: Where they are.
        seconds: What making took, by name.
    """

    def __init__(self, folder: Path, graph: CommunityGraph, sampling: dict[str, Any]) -> None:
        self.folder = folder / "out-of-core"
        self.seconds: dict[str, float] = {}
        self._graph, self._sampling = graph, sampling
        facts = json.dumps(dataclasses.asdict(graph) | sampling)
        mark = self.folder / "graph.json"
        if mark.exists() and mark.read_text() != facts:
            raise ValueError(
                f"{self.folder}: found the stores of {mark.read_text()}, expected {facts}; "
                "remove them, or name another --dir"
            )
        self.folder.mkdir(exist_ok=True)
        mark.write_text(facts)

    def make(self, name: str, group: str = "") -> Path:
        """A store: one of ``ENCODINGS``.

        Args:
            name: Which.
            group: Of the run: ``later`` reads copies of rows that an earlier run has made,
                ``optimized`` and ``topology`` one that is made here, others begin without.
        """
        path = self.folder / name
        if not path.exists():
            self._timed(name, lambda: self._graph.write(path, encoding=ENCODINGS[name]))
        elif group != "later":
            remove_copies(path)
        if group in ("optimized", "topology"):
            self._timed(
                f"the copy of {name}", lambda: gz.optimize(path, seeds=SEEDS, **self._sampling)
            )
        return path

    def _timed(self, name: str, make: Callable[[], object]) -> None:
        start = time.perf_counter()
        make()
        self.seconds[name] = time.perf_counter() - start
        print(f"made {name} in {self.seconds[name]:.0f} s", flush=True)


def choose(args: argparse.Namespace, stores: Stores, limit: int, small: int) -> list[Run]:
    """The runs that were asked for.

    Args:
        args: The arguments.
        stores: Where stores come from.
        limit: On memory, bytes.
        small: The limit for topology out of core.
    """
    some = {"epochs": 1, "seconds": args.seconds, "num_seeds": args.batches * args.batch_size}
    full = {**some, "epochs": args.epochs, "seconds": args.epoch_seconds}
    ours = {**full, "workers": 2}
    train = {**ours, "hidden": HIDDEN}
    cache = {"cache_bytes": parse_size(args.row_cache, "--row-cache")} if args.row_cache else {}

    def run(name: str, group: str, do: str, store: str, cold: bool = True, **more: Any) -> Run:
        task = Task(
            do, str(stores.folder / store), seeds=SEEDS, fanout=args.fanout,
            batch_size=args.batch_size, model=args.model, seed=args.seed, **{"limit": limit} | more,
        )  # fmt: skip
        path = args.stock_path if group == "stock" else None

        def make() -> Path:
            return stores.make(store, group)

        return Run(name, group, task, cold, args.patience, path, make)

    runs = [
        *(run(f"stock, {w} workers", "stock", "stock", "f32", workers=w, **some) for w in (0, 2)),
        *(
            run(
                f"memmap {advice}, {threads} threads", "memmap", "memmap", "f32",
                options={"advice": advice, "threads": threads}, **some,
            )
            for advice, threads in (("random", 4), ("random", 16), ("random", 64), ("sorted", 4))
        ),
        *(
            run(
                f"graphbolt scheme, {store}", "graphbolt", "graphbolt", store, options=cache, **full
            )
            for store in ("f32", "f16")
        ),
        run("no budget named, f32", "default", "ours", "f32", **ours),
        *(
            run(f"{name}, {store}", group, "ours", store, budget=limit, **ours)
            for store in ("f32", "f16")
            for name, group in (
                ("ours", "ours"),
                ("ours, a later run", "later"),
                ("ours, optimized", "optimized"),
            )
        ),
        *(
            run(
                f"training {name}, {store}", "train", "ours", store, cold=under is not None,
                limit=under, budget=under and left_for_loader(args, under),
                options={
                    "in_channels": args.features, "ahead": ahead,
                    "changes_rows": store == "i8" or ahead is not None,
                },
                **train,
            )
            for store in ENCODINGS
            for name, under, ahead in (
                ("in RAM", None, None),
                ("under the limit", limit, None),
                ("under the limit with ahead", limit, "mean"),
            )
            if ahead is None or args.model == "accelerated"
        ),
        run(
            "topology out of core, f16", "topology", "ours", "f16",
            limit=small, budget=small, **ours,
        ),
    ]  # fmt: skip
    return [
        run
        for run in runs
        if run.group in args.only and Path(run.task.store).name in args.encodings
    ]


def left_for_loader(args: argparse.Namespace, limit: int) -> int:
    """Of the limit: what a model and its training take comes on top of a budget."""
    return limit - parse_size(args.training_memory, "--training-memory")


def check_training(args: argparse.Namespace, store: Path, limit: int) -> None:
    """Refuses a training that has no room under the limit, before anybody waits for it.

    Raises:
        MemoryBudgetError: Says how much is left, and how much a loader needs.
    """
    left = left_for_loader(args, limit)
    try:
        gz.doctor(
            store, memory=left, seeds=SEEDS, num_neighbors=args.fanout,
            batch_size=args.batch_size, seconds=0.1,
        )  # fmt: skip
    except MemoryBudgetError as error:
        raise MemoryBudgetError(
            f"--training-memory {args.training_memory} of a limit of {format_bytes(limit)} leaves "
            f"the loader too little: {error}; lower it, raise --memory, or leave train out of "
            "--only"
        ) from error


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


def main(argv: list[str] | None = None) -> None:
    """Makes the graphs, lets everybody run, and reports."""
    args = parse(argv)
    graph = CommunityGraph(args.nodes, args.edges_per_node, args.features, seed=args.seed)
    feature_bytes = 4 * args.nodes * args.features
    limit = parse_size(args.memory, "--memory") if args.memory else int(args.cap * feature_bytes)
    with MemoryCap(limit):  # before an hour's work: can it be done here?
        pass
    args.dir.mkdir(parents=True, exist_ok=True)
    sampling = {"num_neighbors": args.fanout, "batch_size": args.batch_size}
    stores = Stores(args.dir, graph, sampling)
    try:
        report = measure(args, argv, stores, graph, limit)
    finally:
        if not args.keep:
            shutil.rmtree(stores.folder)
    report |= {"limit": limit, "feature_bytes": feature_bytes}
    write(args.out / f"{args.name}.json", report)
    results = report["results"]
    title = (
        f"out of core: limit {format_bytes(limit)} ({limit / feature_bytes:.0%} of the features' "
        f"bytes); cold start; batches/s with the time to warm up in it"
    )
    print(table(title, results, _COLUMNS))
    print(*(f"{name}: {value}" for name, value in targets(results).items()), sep="\n")
    watched = [e for e in results if e["limit"] == limit and e["group"] not in ("stock", "memmap")]
    print(charts(results, [[e for e in watched if e["timeline"]]], args.out, args.name))


def measure(
    args: argparse.Namespace,
    argv: list[str] | None,
    stores: Stores,
    graph: CommunityGraph,
    limit: int,
) -> dict[str, Any]:
    """Everything but the table."""
    seeds = graph.train_nodes()
    with gz.open(stores.make("f32")) as opened:
        order = torch.randperm(len(seeds), generator=torch.Generator().manual_seed(args.seed))
        wanted = access(opened, args.fanout, seeds[order].split(args.batch_size))
        info = opened.info()["edge_types"][0]
    del opened
    gc.collect()  # what this process has mapped would not leave the page cache
    print(f"{machine()}")
    print(f"{graph}: {info['num_edges']:,} edges, {len(seeds):,} seeds")
    print(f"a batch: {wanted['nodes_per_batch']:,.0f} rows, {wanted['footprint']:.2%} of all")
    shares = ", ".join(f"{float(s):.0%}: {v:.0%}" for s, v in wanted["hottest"].items())
    print(f"accesses that the hottest rows take: {shares}; touched at all {wanted['touched']:.0%}")
    topology = info["topology_bytes"]
    if "train" in args.only:
        check_training(args, stores.make("f32"), limit)
    small = parse_size(args.topology_memory or f"{topology * 3 // 4}", "--topology-memory")
    runs = choose(args, stores, limit, small)
    results = []
    for repeat in range(args.repeat):
        for run in runs:
            result = play(run, Path(__file__), args.drop_caches)
            results.append(result | {"repeat": repeat})
            print(short(result), flush=True)
    facts = {"num_edges": info["num_edges"], "topology_bytes": topology, "seeds": len(seeds)}
    facts |= {"accesses": wanted, "seconds_to_make": stores.seconds}
    return record(
        args,
        argv,
        uring_refusal=_core.uring_refusal(),
        graph=dataclasses.asdict(graph) | facts,
        results=results,
    )


def targets(results: list[Result]) -> dict[str, str]:
    """What is to be compared with what, as far as there are figures for it."""
    found: dict[str, str] = {}

    def best(start: str) -> tuple[float, Result] | None:
        rates = [(r, each) for each in results if each["name"].startswith(start)
                 if (r := speed(each))]  # fmt: skip
        return max(rates, key=lambda pair: pair[0], default=None)

    for title, ours, theirs in (
        ("against stock PyG over np.memmap", "ours, f32", "stock"),
        ("against the tuned memmap", "ours, f32", "memmap"),
        ("against the GraphBolt scheme, float32", "ours, f32", "graphbolt scheme, f32"),
        ("against the GraphBolt scheme, float16", "ours, f16", "graphbolt scheme, f16"),
    ):
        a, b = best(ours), best(theirs)
        if a and b:
            more = "" if b[1]["batch_seconds"] else "more than "
            line = f"{more}{number(a[0] / b[0])}× ({a[1]['name']} / {b[1]['name']})"
            steady = rate(a[1], -1), rate(b[1], -1)
            if len(whole_epochs(b[1])) > 1 and steady[0] and steady[1]:
                line += f"; last epoch {number(steady[0] / steady[1])}×"
            found[title] = line
    for each in results:
        if not each["name"].startswith(("ours", "training under", "topology")):
            continue
        if (read := reading(each)) is not None:
            found[f"{each['name']}: time in reads against the ideal"] = f"{read['ratio']:.2f}×"
        first, third = rate(each, 0), rate(each, 2)
        if first and third:
            found[f"{each['name']}: first epoch against the third"] = f"{third / first:.2f}×"
        if each["limit"] and each["timeline"]:
            share = each["peak"]["anon_and_file"] / each["limit"]
            found[f"{each['name']}: RssAnon + resident pages of the limit"] = f"{share:.0%}"
    for store in ENCODINGS:
        ram, capped = (best(f"training {name}, {store}") for name in ("in RAM", "under the limit"))
        if not ram or not capped:
            continue
        last = rate(ram[1], -1), rate(capped[1], -1)
        found[f"training, {store}: time under the limit against in RAM"] = (
            f"{ram[0] / capped[0]:.2f}×"
            + (f", last epoch {last[0] / last[1]:.2f}×" if last[0] and last[1] else "")
        )
    return found


if __name__ == "__main__":
    answer(serve) if sys.argv[1:] == [CHILD] else main()
