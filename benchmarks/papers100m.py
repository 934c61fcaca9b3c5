"""papers100M from end to end on one machine: convert, optimize, train, infer; and how others fare.

    python benchmarks/papers100m.py --dir /on/the/disk --scale 0.01 --limit 2GB
    python benchmarks/papers100m.py --dir /on/the/disk --features int8 --limit 12GB 8GB
    python benchmarks/papers100m.py --dir /on/the/disk --data /datasets/ogbn_papers100M
    python benchmarks/papers100m.py --dir /on/the/disk --phases convert,shape --scale 0.1
    python benchmarks/papers100m.py --dir /on/the/disk --phases convert,graphbolt,load --scale 0.25
    python benchmarks/papers100m.py --dir /on/the/disk --phases load --cache-share 0 --limit 8GB 4GB

Without ``--data`` the graph is a synthetic one of the same shape (``papers100m_graph.py``), made as
it is converted: both directions of every citation, as PyG's example trains it, or one by
``--directed``. Every phase is a process under a limit on memory, page cache included, that begins
cold; ``convert`` and ``optimize`` run once, under the first limit, the others under each,
``shape`` (what an epoch touches, beside what is published) under none.
``graphbolt`` (its scheme, with a cache of ``--cache-share`` of the rows) and ``load`` (this
package's batches, without training) have a limit of their own: the topology, that cache, and
2 GB; after the scheme, this package has a budget of what that took. With a share of 0 ``load`` is
under each limit like others, which is its budget too; ``--order`` says what becomes of rows, and
every run begins without copies of them. Needs root, or a user for whom
``systemd-run --user --scope`` can limit memory; ``--limit none`` goes without. Writes a JSON,
and removes what it made unless told to ``--keep`` it.

Disk at scale 1: topology 13.4 GB (directed: 7.4), labels and masks 1.2 GB, features 14.2 GB in
int8, 28.4 GB in float16. Edges wait to be sorted in 26 GB beside the topology. Optimizing writes
all of a store a second time.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from papers100m_graph import MASKS, NUM_EDGES, NUM_FEATURES, NUM_NODES, PapersGraph
from papers100m_phases import ENCODINGS, PHASES, serve

from harness.child import Task, answer
from harness.record import limited_arguments, parser, record, write
from harness.report import Result, table
from harness.run import CHILD, Run, play_all
from pyg_graphzero.store.copies import remove_copies
from pyg_graphzero.util.sizes import parse_size

# Phases that are only done once: under the first limit, or under none.
ONCE = ("convert", "optimize", "shape")
UNLIMITED = ("shape",)
# Phases that only load, each under a limit that is made for GraphBolt's cache.
LOADING = ("graphbolt", "load")
_BESIDE_CACHE = 2 << 30
_SLOT_BYTES = 24  # of a cached row, besides its bytes
# Share of a limit that is the budget of phases without a model; the rest is for pages of files.
_SHARE = 0.75
ITEM_BYTES = {"float32": 4, "float16": 2, "int8": 1}
_EDGE_BYTES = 4
# Arguments that every phase is told as options.
_TOLD = ("scale", "directed", "features", "eval_nodes")


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    made = parser("papers100m", __doc__, json=False)
    limited_arguments(made, "2.5GB")
    made.set_defaults(fanout=[10, 10, 10], model="accelerated")
    made.add_argument("--phases", default="convert,optimize,train", help=", ".join(PHASES))
    made.add_argument("--scale", type=float, default=1.0, help="of the nodes and edges")
    made.add_argument("--directed", action="store_true", help="citations in one direction alone")
    made.add_argument("--data", type=Path, help="directory of ogbn_papers100M itself")
    made.add_argument("--features", choices=ENCODINGS, default="int8")
    made.add_argument("--limit", nargs="+", default=["12GB"], help="on memory; or none")
    made.add_argument("--hidden", type=int, default=256)
    made.add_argument("--batches", type=int, default=300, help="to train")
    made.add_argument("--seconds", type=float, default=3600, help="to train at most")
    made.add_argument("--workers", type=int, default=2)
    made.add_argument("--epochs", type=int, default=2, help="of shape, graphbolt and load")
    made.add_argument("--cache-share", type=float, nargs="+", default=[0.18], help="of the rows")
    made.add_argument("--order", nargs="+", default=["auto"], help="of rows, as gz.open has it")
    made.add_argument("--eval-nodes", type=int, default=2048, help="of the training curve")
    args = made.parse_args(argv)
    args.phases = args.phases.split(",")
    unknown = set(args.phases) - set(PHASES)
    if unknown:
        found = ", ".join(sorted(unknown))
        made.error(f"--phases: found {found}, expected some of {', '.join(PHASES)}")
    if "graphbolt" in args.phases and min(args.cache_share) <= 0:
        made.error("--cache-share: found 0, expected a share for graphbolt's cache")
    args.limit = [None if each == "none" else parse_size(each, "--limit") for each in args.limit]
    return args


def run_of(
    args: argparse.Namespace,
    phase: str,
    limit: int | None,
    share: float = 0.0,
    order: str = "auto",
) -> Run:
    """A phase under a limit; loading phases have one for each share of the rows in a cache.

    Raises:
        ValueError: The limit leaves nothing beside ``--training-memory``.
    """
    beside = parse_size(args.training_memory, "--training-memory")
    row_bytes, num_rows = NUM_FEATURES * ITEM_BYTES[args.features], round(args.scale * NUM_NODES)
    cached = int(share * num_rows)
    if phase in LOADING and share > 0:
        edges = args.scale * NUM_EDGES * (1 if args.directed else 2)
        # SIEVE knows by 4 bytes where each row is.
        limit = int(_EDGE_BYTES * edges + 12 * num_rows + cached * (row_bytes + _SLOT_BYTES))
        limit += _BESIDE_CACHE
    if limit is None or phase in LOADING:
        budget = limit
    elif phase in ("train", "infer"):
        budget = limit - beside
        if budget <= 0:
            raise ValueError(
                f"--limit: found {limit:,} bytes, expected more than {beside:,}, which are "
                "--training-memory"
            )
    else:
        budget = int(_SHARE * limit)
    folder = args.dir / "papers100m"
    options = {name: getattr(args, name) for name in _TOLD}
    options |= {
        "data": None if args.data is None else str(args.data),
        "cache_bytes": cached * row_bytes,
        "order": order,
    }
    task = Task(
        phase, str(folder / "store"), limit, budget, MASKS["train"], args.fanout, args.batch_size,
        workers=args.workers, epochs=args.epochs, batches=args.batches if phase == "train" else 0,
        seconds=args.seconds, hidden=0 if phase in LOADING else args.hidden, model=args.model,
        seed=args.seed, options=options,
    )  # fmt: skip
    name = f"{phase}, {'no limit' if limit is None else f'{limit / 1e9:.3g} GB'}"
    if phase in LOADING and share > 0:
        name += f" ({share:.0%} of the rows)"
    if order != "auto":
        name += f", order {order}"
    run = Run(name, phase, task)
    remove = partial(remove_copies, task.store)
    return dataclasses.replace(run, before=remove) if phase == "load" else run


def runs_of(args: argparse.Namespace) -> list[Run]:
    """Every phase in the order they are named, under each of its limits."""
    runs = []
    for phase in args.phases:
        if phase in LOADING:
            runs += [
                run_of(args, phase, limit, share, order)
                for share in args.cache_share
                for limit in ([None] if share > 0 else args.limit)
                for order in (args.order if phase == "load" else ["auto"])
            ]
        else:
            limits = [None] if phase in UNLIMITED else args.limit
            runs += [run_of(args, phase, each) for each in limits[: 1 if phase in ONCE else None]]
    return runs


def main(argv: list[str] | None = None) -> None:
    """Checks, runs the phases in the order they are named, and reports."""
    args = parse(argv)
    args.dir.mkdir(parents=True, exist_ok=True)
    folder = args.dir / "papers100m"
    runs = runs_of(args)
    if "convert" in args.phases and (folder / "store").exists():
        raise FileExistsError(17, "exists: name phases without convert, or remove it", str(folder))
    folder.mkdir(exist_ok=True)
    try:
        results = play_all(runs, Path(__file__), args.drop_caches, with_same_memory)
        graph = None if args.data else PapersGraph.of(args.scale, args.seed, args.directed)
        facts = graph and dataclasses.asdict(graph) | {"num_edges": graph.num_edges}
    finally:
        if not args.keep:
            shutil.rmtree(folder)
    write(args.out / f"{args.name}.json", record(args, argv, graph=facts, results=results))
    print(table("papers100m: every phase begins cold", results))


def with_same_memory(run: Run, results: Sequence[Result]) -> Run:
    """This package's batches within what GraphBolt's scheme took, pages of files included.

    Args:
        run: Any phase; all but ``load`` stay as they are.
        results: Results of the runs before it, perhaps the scheme's with the same cache.
    """
    for each in results:
        if (run.group, each["group"]) != ("load", "graphbolt") or each["error"]:
            continue
        if each["name"].removeprefix("graphbolt") == run.name.removeprefix("load"):
            taken = each["peak"]["anon_and_file"]
            return dataclasses.replace(run, task=dataclasses.replace(run.task, budget=taken))
    return run


if __name__ == "__main__":
    answer(serve) if sys.argv[1:] == [CHILD] else main()
