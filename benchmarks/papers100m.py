"""papers100M from end to end on one machine: convert, optimize, train, infer; and how others fare.

    python benchmarks/papers100m.py --dir /on/the/disk --scale 0.01 --limit 2GB
    python benchmarks/papers100m.py --dir /on/the/disk --features int8 --limit 12GB 8GB
    python benchmarks/papers100m.py --dir /on/the/disk --data /datasets/ogbn_papers100M
    python benchmarks/papers100m.py --dir /on/the/disk --phases accuracy

Without ``--data`` the graph is a synthetic one of the same shape (``papers100m_graph.py``), made as
it is converted. Every phase is a process under a limit on memory, page cache included, that begins
cold; ``convert``, ``optimize`` and ``graphzero`` run once, under the first limit, the others under
each. Needs root, or a user for whom ``systemd-run --user --scope`` can limit memory; ``--limit
none`` goes without. Writes a JSON and charts, and removes what it made unless told to ``--keep``
it.

Disk at scale 1: topology 6.5 GB, labels and masks 1.2 GB, features 14.2 GB in int8, 28.4 GB in
float16. Optimizing writes all of it a second time with numbers of edges, and sorts edges on the
way: 78 GB with int8; within 45 GB that is a scale of 0.5.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch
from papers100m_accuracy import compare
from papers100m_disk import check, listed, needs
from papers100m_graph import PapersGraph, write_ogb
from papers100m_report import charts, short, table
from papers100m_run import ONCE, make_task, play

from pyg_graphzero.bench.cap import MemoryCap
from pyg_graphzero.bench.entrant import ENVIRONMENT
from pyg_graphzero.util.machine import machine, storage
from pyg_graphzero.util.workspace import parse_size

PHASES = ("convert", "stock", "optimize", "train", "infer", "graphzero", "accuracy")


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", type=Path, required=True, help="where everything is made")
    parser.add_argument("--phases", default="convert,optimize,train", help=", ".join(PHASES))
    parser.add_argument("--scale", type=float, default=1.0, help="of the nodes and edges")
    parser.add_argument("--data", type=Path, help="directory of ogbn_papers100M itself")
    parser.add_argument("--layout", choices=("stream", "ogb"), default="stream")
    parser.add_argument("--features", choices=("float32", "float16", "int8"), default="int8")
    parser.add_argument("--limit", nargs="+", default=["12GB"], help="on memory; or none")
    parser.add_argument(
        "--training-memory",
        default="2.5GB",
        help="of the limit, what is left for the model and its batches (train, infer)",
    )
    parser.add_argument("--memory", help="budget of this package, instead of what is left then")
    parser.add_argument("--max-disk", default="45GB", help="refuse a run that takes more")
    parser.add_argument("--fanout", type=int, nargs="+", default=[15, 10, 5])
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--batches", type=int, default=300, help="to train")
    parser.add_argument("--seconds", type=float, default=3600, help="to train at most")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--eval-nodes", type=int, default=2048, help="of the training curve")
    parser.add_argument("--patience", type=float, default=600, help="seconds for stock's batches")
    parser.add_argument("--stock-workers", type=int, default=0)
    parser.add_argument("--stock-path", help="added to stock's PYTHONPATH, for torch-sparse")
    parser.add_argument("--graphzero-path", help="added to graphzero's PYTHONPATH")
    parser.add_argument("--graphzero-scale", type=float, default=0.01, help="of its graph")
    parser.add_argument("--accuracy-scale", type=float, default=0.01)
    parser.add_argument("--accuracy-epochs", type=int, default=8)
    parser.add_argument("--accuracy-fanout", type=int, nargs="+", default=[10, 5])
    parser.add_argument("--accuracy-hidden", type=int, default=128)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of accuracy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="leave the store for the next run")
    parser.add_argument(
        "--drop-caches",
        action=argparse.BooleanOptionalAction,
        default=os.geteuid() == 0,
        help="empty all of the machine's page cache before each phase",
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    parser.add_argument("--name", default="papers100m", help="of the JSON and the charts")
    args = parser.parse_args(argv)
    args.phases = args.phases.split(",")
    unknown = set(args.phases) - set(PHASES)
    if unknown:
        parser.error(f"--phases: found {', '.join(sorted(unknown))}, expected some of {PHASES}")
    args.limit = [None if each == "none" else parse_size(each, "--limit") for each in args.limit]
    return args


def main(argv: list[str] | None = None) -> None:
    """Checks, runs the phases in the order they are named, and reports."""
    args = parse(argv)
    args.dir.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    folder = args.dir / "papers100m"
    phases = [each for each in args.phases if each != "accuracy"]
    layout = "data" if args.data else args.layout
    wanted = needs(phases, args.scale, args.features, args.hidden, layout, args.graphzero_scale)
    if wanted:
        print(f"disk at most: {listed(wanted)}", flush=True)
        check(wanted, args.dir, parse_size(args.max_disk, "--max-disk"))
    for limit in args.limit:  # before an hour's work: can it be done here?
        for phase in phases:
            make_task(args, phase, limit)
        if limit is not None and phases:
            with MemoryCap(limit):
                pass
    if "convert" in phases and (folder / "store").exists():
        raise FileExistsError(17, "exists: name phases without convert, or remove it", str(folder))
    report: dict[str, Any] = {
        "schema": 1,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": command(args, argv),
        "machine": machine(),
        "storage": storage(args.dir),
        "environment": ENVIRONMENT,
        "settings": settings(args),
        "graph": None if args.data else facts(args),
        "disk_needed": wanted,
        "results": [],
    }
    try:
        run(args, folder, report)
    finally:
        if folder.exists() and not args.keep:
            shutil.rmtree(folder)
    args.out.joinpath(f"{args.name}.json").write_text(json.dumps(report, indent=1))
    print(table(report))
    if (left_out := charts(report, args.out, args.name)) is not None:
        print(left_out)


def run(args: argparse.Namespace, folder: Path, report: dict[str, Any]) -> None:
    """All phases, into the report."""
    folder.mkdir(exist_ok=True)
    if args.layout == "ogb" and "convert" in args.phases and not (folder / "ogb").exists():
        begin = time.perf_counter()
        write_ogb(PapersGraph.of(args.scale, args.seed), folder / "ogb")
        report["seconds_to_make_files"] = time.perf_counter() - begin
    for phase in args.phases:
        if phase == "accuracy":
            report["accuracy"] = compare(
                folder,
                args.accuracy_scale,
                args.seeds,
                args.accuracy_epochs,
                args.accuracy_hidden,
                args.accuracy_fanout,
                args.batch_size,
            )
            continue
        for limit in args.limit[:1] if phase in ONCE else args.limit:
            result = play(args, phase, limit)
            report["results"].append(result)
            print(short(result), flush=True)
        if phase == "convert" and args.layout == "ogb":
            shutil.rmtree(folder / "ogb")


def command(args: argparse.Namespace, argv: list[str] | None) -> str:
    """How it was called, without the names of this machine's folders."""
    given = sys.argv[1:] if argv is None else argv
    places = {
        str(value): f"<{name}>"
        for name, value in vars(args).items()
        if name in ("dir", "data", "out", "stock_path", "graphzero_path") and value is not None
    }
    words = [places.get(word, word) for word in given]
    return shlex.join(["python", "benchmarks/papers100m.py", *words])


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments, without folders."""
    left_out = ("dir", "data", "out", "stock_path", "graphzero_path")
    found = {name: value for name, value in vars(args).items() if name not in left_out}
    return found | {"threads": torch.get_num_threads()}


def facts(args: argparse.Namespace) -> dict[str, Any]:
    """The synthetic graph in numbers."""
    graph = PapersGraph.of(args.scale, args.seed)
    return {
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features,
        "num_communities": graph.num_communities,
        "scale": args.scale,
    }


if __name__ == "__main__":
    main()
