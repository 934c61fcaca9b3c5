"""Conversion: edges a second, memory against the budget, and another converter in the same run.

    python benchmarks/convert.py --edges 50000000 --memory 4GB
    python benchmarks/convert.py --edges 1000000000 --memory 4GB --only stream --repeat 1
    python benchmarks/convert.py --only csv --graphzero /path/to/its/python

Every conversion is a process of its own, which this one watches: peak memory is VmHWM of
/proc/PID/status, seen from outside, and the peaks of RssAnon and RssFile are sampled. Times are of
``convert`` itself, without imports; medians of ``--repeat`` runs, kinds alternating. Inputs are
made with a fixed seed and lie in the page cache. ``stream`` is a synthetic stream of edges that is
never on disk or in memory as a whole; making it takes time too. ``--graphzero`` names a Python that
has the graphzero package, whose converter then reads the same CSV.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

CHUNK = 1 << 20
KINDS = ("npy", "stream", "csv", "features")
THEIRS = """
import sys, time, graphzero
begin = time.perf_counter()
graphzero.convert_csv_to_gl(sys.argv[1], sys.argv[2], directed=True)
print(time.perf_counter() - begin, time.process_time())
"""


def edges_of(num_nodes: int, num_edges: int, first: int) -> np.ndarray:
    """``int64 [2, n]``: edges ``first`` … of a graph with skewed in-degrees."""
    n = min(CHUNK, num_edges - first)
    rng = np.random.default_rng(first)
    dst = (rng.random(n) ** 3 * num_nodes).astype(np.int64)
    # Neighbouring ids are no neighbours in degree.
    return np.stack([rng.integers(0, num_nodes, n), dst * 7_368_787 % num_nodes])


def make_inputs(folder: Path, kinds: list[str], num_nodes: int, num_edges: int) -> None:
    """The files that conversions read."""
    if "npy" in kinds or "features" in kinds:
        edges = np.lib.format.open_memmap(
            folder / "edges.npy", mode="w+", dtype=np.int64, shape=(2, num_edges)
        )
        for first in range(0, num_edges, CHUNK):
            part = edges_of(num_nodes, num_edges, first)
            edges[:, first : first + part.shape[1]] = part
        del edges
    if "csv" in kinds:
        with (folder / "edges.csv").open("w") as file:
            file.write("src,dst\n")
            for first in range(0, num_edges, CHUNK):
                for src, dst in edges_of(num_nodes, num_edges, first).T.tolist():
                    file.write(f"{src},{dst}\n")
    if "features" in kinds:
        rows = np.lib.format.open_memmap(
            folder / "x.npy", mode="w+", dtype=np.float32, shape=(num_nodes, 128)
        )
        rng = np.random.default_rng(0)
        for first in range(0, num_nodes, 1 << 16):
            rows[first : first + (1 << 16)] = rng.random((1, 128))
        del rows


def convert(kind: str, folder: Path, num_nodes: int, num_edges: int, memory: str) -> None:
    """One conversion, in this process; prints wall and CPU seconds."""
    import pyg_graphzero as gz
    from pyg_graphzero.convert.plan import EdgePlan, GraphPlan, NodePlan
    from pyg_graphzero.convert.storage import Storage
    from pyg_graphzero.convert.write import write_plan
    from pyg_graphzero.store.csc import EdgeChunk
    from pyg_graphzero.util.progress import Progress
    from pyg_graphzero.util.workspace import Workspace

    def stream() -> Iterator[EdgeChunk]:
        for first in range(0, num_edges, CHUNK):
            yield EdgeChunk(*edges_of(num_nodes, num_edges, first))

    out = folder / "store"
    begin, cpu = time.perf_counter(), time.process_time()
    if kind == "stream":
        plan = GraphPlan(False, {None: NodePlan(num_nodes)}, {None: EdgePlan(stream, num_edges)})
        with Workspace(out, memory) as workspace:
            write_plan(
                plan,
                out,
                storage=Storage(None, False),
                force=False,
                progress=Progress(False),
                workspace=workspace,
            )
    elif kind == "features":
        attrs = {"x": folder / "x.npy"}
        gz.convert(folder / "edges.npy", out, node_attrs=attrs, memory=memory, progress=False)
    else:
        suffix = "npy" if kind == "npy" else "csv"
        gz.convert(
            folder / f"edges.{suffix}",
            out,
            num_nodes=num_nodes,
            ids="dense",
            memory=memory,
            progress=False,
        )
    print(time.perf_counter() - begin, time.process_time() - cpu)


def watch(command: list[str]) -> dict[str, Any]:
    """Runs a process that prints its seconds; adds the memory it was seen to take."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peaks = {"VmHWM": 0, "RssAnon": 0, "RssFile": 0}
    while child.poll() is None:
        try:
            lines = Path(f"/proc/{child.pid}/status").read_text().splitlines()
        except OSError:
            break
        for line in lines:
            name, _, value = line.partition(":")
            if name in peaks:
                peaks[name] = max(peaks[name], int(value.split()[0]) << 10)
        time.sleep(0.02)
    assert child.stdout is not None
    output = child.stdout.read()
    if child.wait() != 0:
        raise SystemExit(f"{command}: exit code {child.returncode}\n{output}")
    wall, cpu = map(float, output.split()[-2:])
    return {"seconds": wall, "cpu_seconds": cpu, **peaks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--edges", type=int, default=20_000_000)
    parser.add_argument("--nodes", type=int, default=0, help="edges / 15 by default")
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--graphzero", help="a Python with the graphzero package")
    parser.add_argument("--folder", help="where files go; a temporary directory by default")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    args = parser.parse_args()
    num_nodes = args.nodes or max(1, args.edges // 15)
    if args.run:
        return convert(args.run, Path(args.folder), num_nodes, args.edges, args.memory)

    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder, runs = Path(name), {kind: [] for kind in args.only}
        make_inputs(folder, args.only, num_nodes, args.edges)
        if args.graphzero and "csv" in args.only:
            runs["csv by graphzero"] = []
        for _ in range(args.repeat):
            for kind, results in runs.items():
                out = folder / "store"
                if kind == "csv by graphzero":
                    files = [str(folder / "edges.csv"), str(out)]
                    command = [args.graphzero, "-c", THEIRS, *files]
                else:
                    command = [sys.executable, __file__, "--run", kind, "--folder", str(folder)]
                    command += ["--edges", str(args.edges), "--nodes", str(num_nodes)]
                    command += ["--memory", args.memory]
                results.append(watch(command))
                if out.is_dir():
                    shutil.rmtree(out)
                else:
                    out.unlink(missing_ok=True)
        table = {kind: summarise(results, args.edges) for kind, results in runs.items()}
    print(json.dumps({"cores": os.cpu_count(), **vars(args), "nodes": num_nodes, "runs": table}))


def summarise(results: list[dict[str, Any]], num_edges: int) -> dict[str, Any]:
    """Medians of times, the largest peaks."""
    seconds = statistics.median(r["seconds"] for r in results)
    cpu = statistics.median(r["cpu_seconds"] for r in results)
    peaks = {name: max(r[name] for r in results) for name in ("VmHWM", "RssAnon", "RssFile")}
    return {
        "million_edges_per_second": round(num_edges / seconds / 1e6, 2),
        "cpu_ns_per_edge": round(cpu / num_edges * 1e9, 1),
        "seconds": round(seconds, 2),
        **{f"{name}_MB": round(value / 1e6) for name, value in peaks.items()},
    }


if __name__ == "__main__":
    main()
