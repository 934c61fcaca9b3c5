"""Conversion: edges a second, and memory against the budget.

    python benchmarks/convert.py --edges 50000000 --memory 4GB
    python benchmarks/convert.py --edges 1000000000 --memory 4GB --only stream --repeat 1

Every conversion is a process of its own; peaks of memory are seen from outside. Times are of
``convert`` itself, without imports; medians of ``--repeat`` runs, kinds alternating. Inputs are
made with a fixed seed and lie in the page cache. ``stream`` is a synthetic stream of edges that is
never on disk or in memory as a whole; making it takes time too. ``papers100m.py`` has a phase that
converts text by another package.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import pyg_graphzero as gz
from harness.child import Task, Tell, answer
from harness.record import parser, record, write
from harness.run import CHILD, Run, play
from pyg_graphzero.bench.process import Clock
from pyg_graphzero.convert.plan import EdgePlan, GraphPlan, NodePlan
from pyg_graphzero.convert.storage import Storage
from pyg_graphzero.convert.write import write_plan
from pyg_graphzero.store.csc import EdgeChunk
from pyg_graphzero.util.progress import Progress
from pyg_graphzero.util.workspace import Workspace, parse_size

CHUNK = 1 << 20
KINDS = ("npy", "stream", "csv", "features")


def edges_of(num_nodes: int, num_edges: int) -> Iterator[tuple[int, np.ndarray]]:
    """``int64 [2, n]`` and its first edge, part by part, of a graph with skewed in-degrees."""
    for first in range(0, num_edges, CHUNK):
        n = min(CHUNK, num_edges - first)
        rng = np.random.default_rng(first)
        dst = (rng.random(n) ** 3 * num_nodes).astype(np.int64)
        # Neighbouring ids are no neighbours in degree.
        yield first, np.stack([rng.integers(0, num_nodes, n), dst * 7_368_787 % num_nodes])


def make_inputs(folder: Path, kinds: list[str], num_nodes: int, num_edges: int) -> None:
    """The files that conversions read."""
    if "npy" in kinds or "features" in kinds:
        shape = (2, num_edges)
        edges = np.lib.format.open_memmap(folder / "edges.npy", "w+", np.int64, shape)
        for first, part in edges_of(num_nodes, num_edges):
            edges[:, first : first + part.shape[1]] = part
    if "csv" in kinds:
        with (folder / "edges.csv").open("w") as file:
            file.write("src,dst\n")
            for _, part in edges_of(num_nodes, num_edges):
                file.writelines(f"{src},{dst}\n" for src, dst in part.T.tolist())
    if "features" in kinds:
        rows = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (num_nodes, 128))
        rows[:] = np.random.default_rng(0).random((1, 128))


def serve(task: Task, tell: Tell) -> None:
    """One conversion."""
    num_nodes, num_edges = task.options["nodes"], task.options["edges"]
    out = Path(task.store)
    given: dict[str, Any] = {"memory": task.budget, "progress": False}

    def stream() -> Iterator[EdgeChunk]:
        return (EdgeChunk(*part) for _, part in edges_of(num_nodes, num_edges))

    with Clock() as clock:
        if task.do == "stream":
            edges = {None: EdgePlan(stream, num_edges)}
            plan, storage = (
                GraphPlan(False, {None: NodePlan(num_nodes)}, edges),
                Storage(None, False),
            )
            with Workspace(out, task.budget) as workspace:
                quiet = Progress(False)
                write_plan(
                    plan, out, storage=storage, force=False, progress=quiet, workspace=workspace
                )
        elif task.do == "features":
            attrs = {"x": out.parent / "x.npy"}
            gz.convert(out.parent / "edges.npy", out, node_attrs=attrs, **given)
        else:
            source = out.parent / f"edges.{task.do}"
            gz.convert(source, out, num_nodes=num_nodes, ids="dense", **given)
    tell({"event": "found", "found": {"seconds": clock.seconds, "cpu": clock.cpu_seconds}})


def main(argv: list[str] | None = None) -> None:
    """Converts everything in turn."""
    made = parser("convert", __doc__)
    made.add_argument("--edges", type=int, default=20_000_000)
    made.add_argument("--nodes", type=int, default=0, help="edges / 15 by default")
    made.add_argument("--memory", default="4GB")
    made.add_argument("--repeat", type=int, default=3)
    made.add_argument("--only", nargs="*", choices=KINDS, default=list(KINDS))
    made.add_argument("--dir", type=Path, help="where files go; a temporary directory by default")
    args = made.parse_args(argv)
    nodes = args.nodes or max(1, args.edges // 15)
    results: dict[str, list[dict[str, Any]]] = {kind: [] for kind in args.only}
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        out = Path(name) / "store"
        make_inputs(out.parent, args.only, nodes, args.edges)
        budget, options = parse_size(args.memory, "--memory"), {"nodes": nodes, "edges": args.edges}
        for _ in range(args.repeat):
            for kind in args.only:
                task = Task(kind, str(out), budget=budget, options=options)
                found = play(Run(kind, kind, task), Path(__file__), drop_caches=False)
                if found["error"]:
                    raise SystemExit(f"{kind}: {found['error']}")
                results[kind].append(found)
                shutil.rmtree(out)
    table = {kind: summarise(found, args.edges) for kind, found in results.items()}
    for kind, row in table.items():
        print(f"{kind:9}" + ", ".join(f"{name} {value:.4g}" for name, value in row.items()))
    write(args.json, record(args, argv, cache="warm", kinds=table))


def summarise(results: list[dict[str, Any]], num_edges: int) -> dict[str, float]:
    """Medians of times, the largest peaks."""
    seconds, cpu = (
        statistics.median(each["found"][per] for each in results) for per in ("seconds", "cpu")
    )
    peaks = {kind: max(each["peak"][kind] for each in results) for kind in results[0]["peak"]}
    found = {"million_edges_per_second": num_edges / seconds / 1e6, "seconds": seconds}
    found |= {"cpu_ns_per_edge": cpu / num_edges * 1e9}
    return found | {f"{kind}_MB": value / 1e6 for kind, value in peaks.items()}


if __name__ == "__main__":
    answer(serve) if sys.argv[1:] == [CHILD] else main()
