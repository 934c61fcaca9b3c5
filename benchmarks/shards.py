"""Bytes received by ranks that train over a store in shards, beside ranks that have it whole.

    python benchmarks/shards.py --dir /on/the/disk --scale 0.1 --ranks 1 2 4 --limit 3.6GB
    python benchmarks/shards.py --dir /on/the/disk --by ranges ldg metis --batch-size 128

The graph is that of ``papers100m.py``; it and its shards are made in ``--dir`` where they are not
there yet, and stay. Each rank is a process under ``--limit`` divided by the number of ranks, page
cache included (``none``: without), and trains GraphSAGE on as many nodes, of its own as far as it
has them. ``store`` is the whole store on each. Bytes are those that a rank receives, of the last
epoch and of the first. ``fetch`` is the exchange of a window's rows, all of them other ranks',
without training, ``gloo`` its ``all_to_all_single`` of as many bytes, in turn; medians.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from papers100m_graph import NUM_CLASSES, NUM_FEATURES, PapersGraph
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GraphSAGE

import pyg_graphzero as gz
from harness.cap import MemoryCap
from harness.record import parser, record, show, write
from pyg_graphzero.bench.training import Trainer
from pyg_graphzero.loader.cluster import ClusterData
from pyg_graphzero.util.sizes import folder_bytes, parse_size
from pyg_graphzero.util.system import private_rss

_WINDOW, _ROUNDS = 4, 15  # batches, and windows that are fetched without training
_MOST_FETCHED = 100_000  # rows of such a window, which the budget has room for


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    made = parser("shards", __doc__)
    made.add_argument("--dir", type=Path, required=True, help="where the graph and shards lie")
    made.add_argument("--scale", type=float, default=0.01, help="of papers100M")
    made.add_argument("--ranks", type=int, nargs="+", default=[2])
    made.add_argument("--by", nargs="+", default=["store", "ranges"], help="ldg, metis, too")
    made.add_argument("--limit", default="none", help="on the memory of one rank")
    made.add_argument("--memory", help="budget of each rank, as gz.open_shards has it")
    made.add_argument("--fanout", type=int, nargs="+", default=[10, 10, 10])
    made.add_argument("--batch-size", type=int, default=1024)
    made.add_argument("--batches", type=int, default=20, help="of an epoch, at most")
    made.add_argument("--epochs", type=int, default=2)
    made.add_argument("--hidden", type=int, default=32)
    made.add_argument("--rank", help=argparse.SUPPRESS)
    return made.parse_args(argv)


def prepare(args: argparse.Namespace, ranks: int, by: str) -> Path:
    """The store, or its shards; made where they are not there."""
    whole = args.dir / "store"
    if not whole.exists():
        PapersGraph.of(args.scale).write(whole, "int8", "5GB")
    path = whole if by == "store" else args.dir / f"{by}-{ranks}"
    if not path.exists():
        assigned: Any = None if by == "ranges" else by
        if by == "metis":
            with gz.open(whole) as store:
                assigned = ClusterData(store, ranks).cluster
        print(gz.shard(whole, path, ranks, by=assigned, memory="4GB", progress=False), flush=True)
    return path


def play(args: argparse.Namespace, words: list[str], ranks: int, by: str) -> list[dict[str, Any]]:
    """Has all ranks train; what each has found."""
    path = prepare(args, ranks, by)
    place = args.dir.absolute() / f"ranks-{time.monotonic_ns()}"
    limit = 0 if args.limit == "none" else parse_size(args.limit, "--limit") // ranks
    with ExitStack() as stack:
        caps = [stack.enter_context(MemoryCap(limit)) for _ in range(ranks if limit else 0)]
        started = []
        for rank in range(ranks):
            task = {"rank": rank, "ranks": ranks, "path": str(path), "place": str(place)}
            command = [sys.executable, __file__, *words, "--rank", json.dumps(task)]
            command = caps[rank].command(command) if caps else command
            started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        found = [each.communicate()[0] for each in started]
        place.unlink(missing_ok=True)
    if any(each.returncode for each in started):
        raise SystemExit(f"{by}, {ranks} ranks: {[each.returncode for each in started]}")
    return [json.loads(each.splitlines()[-1]) for each in found]


def train(args: argparse.Namespace, rank: int, ranks: int, path: str, place: str) -> dict[str, Any]:
    """One rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=ranks)
    is_whole = not (Path(path) / "shards.json").exists()
    store = (gz.open if is_whole else gz.open_shards)(path, memory=args.memory)
    data = store.data()
    seeds = data.train_mask.nonzero().view(-1)
    if isinstance(store, gz.ShardedStore):
        own = seeds[torch.isin(seeds, torch.as_tensor(store.nodes()))]
        seeds = torch.cat(store.gather(own)).tensor_split(ranks)[rank]
    else:
        seeds = seeds[rank::ranks]
    for name in data.keys():  # noqa: SIM118 - a Data is not its keys
        if name not in ("x", "y", "edge_index", "num_nodes"):
            del data[name]
    torch.manual_seed(0)
    model = GraphSAGE(data.num_features, args.hidden, len(args.fanout), NUM_CLASSES)
    trainer = Trainer(DistributedDataParallel(gz.nn.accelerate(model)))
    torch.manual_seed(rank + 1)
    options = {"batch_size": args.batch_size, "num_workers": 1, "edge_ids": False}
    loader = gz.loader.NeighborLoader(data, args.fanout, seeds, shuffle=True, **options)
    steps = torch.tensor(min(len(loader), args.batches))
    dist.all_reduce(steps, dist.ReduceOp.MIN)
    epochs = []
    for _ in range(args.epochs):
        before, cpu, anon = exchanged(store), time.process_time(), 0
        nodes = edges = 0
        for _, batch in zip(range(int(steps)), loader, strict=False):
            trainer.step(batch)
            nodes, edges = nodes + batch.num_nodes, edges + batch.num_edges
            anon = max(anon, private_rss())
        stats = loader.stats()
        epochs.append(
            {name: value - before[name] for name, value in exchanged(store).items()}
            | {"batches": int(steps), "nodes": nodes, "edges": edges, "anon": anon}
            | {"wait": stats.wait, "elapsed": stats.elapsed, "cpu": time.process_time() - cpu}
        )
    found = {"epochs": epochs, "disk": disk(store), "fetch": 0.0, "gloo": 0.0}
    if isinstance(store, gz.ShardedStore) and ranks > 1:
        del loader, batch  # their memory is the window's now
        count = torch.tensor(min(_MOST_FETCHED, _WINDOW * epochs[-1]["nodes"] // int(steps)))
        dist.all_reduce(count, dist.ReduceOp.MIN)
        found |= fetch(store, int(count), ranks)
    del trainer
    store.close()
    dist.barrier()
    dist.destroy_process_group()
    return found


def exchanged(store: gz.Store) -> dict[str, Any]:
    """Bytes, exchanges and seconds until now."""
    return dict(vars(store.exchanged)) if isinstance(store, gz.ShardedStore) else {"received": 0}


def fetch(store: gz.ShardedStore, count: int, ranks: int) -> dict[str, float]:
    """Bytes a second that a rank receives, of windows of random rows and of gloo alone."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    own = torch.as_tensor(store.nodes())
    seconds: dict[str, list[float]] = {"fetch": [], "gloo": []}
    for _ in range(_ROUNDS):
        numbers = torch.randint(store.num_nodes, (2 * count,), generator=generator).unique()
        numbers = numbers[~torch.isin(numbers, own)][:count]
        sizes = [count * NUM_FEATURES // (ranks - 1)] * ranks
        sizes[dist.get_rank()] = 0
        dist.barrier()
        begin = time.perf_counter()
        store._exchange.fetch({("node", None): numbers}, {})  # past the rows that are kept
        seconds["fetch"].append((time.perf_counter() - begin) / len(numbers))
        sent, found = (torch.ones(sum(sizes), dtype=torch.uint8) for _ in range(2))
        dist.barrier()
        begin = time.perf_counter()
        dist.all_to_all_single(found, sent, sizes, sizes)
        seconds["gloo"].append((time.perf_counter() - begin) / count)
    return {name: NUM_FEATURES / median(each) for name, each in seconds.items()}


def disk(store: gz.Store) -> int:
    """Bytes of the files that a rank needs."""
    places = [store.path, *([store.part] if isinstance(store, gz.ShardedStore) else [])]
    return sum(map(folder_bytes, places))


def figures(found: list[dict[str, Any]]) -> dict[str, float]:
    """Figures of the last epoch, bytes and seconds: means over ranks; the most memory and disk."""

    def mean(name: str, epoch: int = -1) -> float:
        of_ranks = [each["epochs"][epoch] for each in found]
        return sum(each.get(name, 0) / each["batches"] for each in of_ranks) / len(found)

    return {
        "disk": max(each["disk"] for each in found),
        "anon": max(epoch["anon"] for each in found for epoch in each["epochs"]),
        "received/batch": mean("received"),
        "at first": mean("received", 0),
        "kept/batch": NUM_FEATURES * mean("kept"),
        "exchanges/batch": mean("exchanges"),
        "waits": mean("wait") / mean("elapsed"),
        "CPU s/batch": mean("cpu"),
        "fetch, B/s": sum(each["fetch"] for each in found) / len(found),
        "gloo, B/s": sum(each["gloo"] for each in found) / len(found),
    }


def main(argv: list[str] | None = None) -> None:
    words = sys.argv[1:] if argv is None else argv
    args = parse(words)
    if args.rank is not None:
        print(json.dumps(train(args, **json.loads(args.rank))), flush=True)
        return
    args.dir.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[str, float]] = {}
    runs: list[dict[str, Any]] = []
    for ranks in args.ranks:
        for by in args.by:
            found = play(args, words, ranks, by)
            runs.append({"ranks": ranks, "by": by, "found": found})
            rows[f"{ranks} ranks, {by}"] = figures(found)
            print(rows, flush=True)
    print(show("shards", rows))
    write(args.json, record(args, words, runs=runs))


if __name__ == "__main__":
    main()
