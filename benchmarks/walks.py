"""Random walks: steps a second, beside pyg-lib and GraphZero 0.2.

    python benchmarks/walks.py --graphzero-path SITE_PACKAGES

The graph is that of ``graphzero bench`` with every edge both ways, so that no walk ends. This
package walks over it in memory and over a store in the page cache; pyg-lib (which has no p and q)
and torch-cluster, where they are installed, over the same CSR; GraphZero 0.2, where it is told
where to find it, over its own file of the same edges, in a process of its own. They take turns,
``--threads`` each.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

import pyg_graphzero as gz
from harness.record import in_turns, parser, record, sampling_arguments, show, write
from pyg_graphzero.bench.synthetic import power_law
from pyg_graphzero.util.machine import machine

# Walks twice, and prints the seconds of the second time.
_GRAPHZERO = """
import sys, time, graphzero, numpy
graph = graphzero.Graph(sys.argv[1])
start = numpy.fromfile(sys.argv[2], numpy.int64).tolist()
length, p, q = int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5])
for _ in range(2):
    begun = time.perf_counter()
    if p == q == 1:
        graph.batch_random_walk_uniform(start, length)
    else:
        graph.batch_random_walk(start, length, p, q)
print(time.perf_counter() - begun)
"""


def graphzero(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Figures of GraphZero's walks, in a process of their own."""
    said = subprocess.check_output(command, env=os.environ | environment, text=True)
    return {"seconds": float(said)}


def write_graphzero(path: Path, rowptr: Tensor, col: Tensor) -> None:
    """The CSR as a file of GraphZero 0.2."""
    sizes = 8 * rowptr.numel(), 8 * col.numel()
    at = 64 + -(-sizes[0] // 64) * 64
    header = struct.pack("<8s7Q", b"graphlit", *sizes, 64, at, rowptr.numel() - 1, col.numel(), 0)
    with path.open("wb") as file:
        file.write(header)
        file.write(rowptr.numpy().tobytes())
        file.write(bytes(at - file.tell()))
        file.write(col.numpy().tobytes())


def main(argv: list[str] | None = None) -> None:
    """Runs the comparison."""
    made = parser("walks", __doc__)
    sampling_arguments(made, 1_000_000, 10_000_000, [], 100_000, rounds=5, dim=0)
    made.add_argument("--walk-length", type=int, default=20, help="steps")
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--graphzero-path", help="where GraphZero 0.2 is installed")
    args = made.parse_args(argv)
    torch.set_num_threads(args.threads)
    for name in ("pyg_lib", "torch_cluster"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)

    edge_index = power_law(args.nodes, args.edges, 0).edge_index
    edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    start = torch.randperm(args.nodes)[: args.batch_size]
    length = args.walk_length
    environment = {"PYTHONPATH": args.graphzero_path, "OMP_NUM_THREADS": str(args.threads)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        gz.convert(edge_index, path / "store", num_nodes=args.nodes, both_directions=True,
                   progress=False)  # fmt: skip
        store = gz.open(path / "store")
        rowptr, col, _ = store.graph_store.csr()
        write_graphzero(path / "graph.gl", rowptr, col)
        start.numpy().tofile(path / "start")
        data = Data(edge_index=edge_index, num_nodes=args.nodes)
        works: dict[str, Callable[[], Any]] = {}
        operators = {"pyg-lib": torch.ops.pyg, "torch-cluster": torch.ops.torch_cluster}
        for p, q in ((1.0, 1.0), (0.5, 2.0)):
            kind = "uniform" if p == q == 1 else f"p={p}, q={q}"
            for name, source in (("in memory", data), ("store", store)):
                walker = gz.sampler.RandomWalker(source, p, q)
                works[f"{kind}: ours, {name}"] = partial(walker.walk, start, length)
            for name, ops in operators.items():
                if hasattr(ops, "random_walk") and (p == q == 1 or name != "pyg-lib"):
                    walk = partial(ops.random_walk, rowptr, col, start, length, p, q)
                    works[f"{kind}: {name}"] = walk
            if args.graphzero_path:
                command = [sys.executable, "-c", _GRAPHZERO, path / "graph.gl", path / "start"]
                words = [str(word) for word in (*command, length + 1, p, q)]
                works[f"{kind}: GraphZero 0.2"] = partial(graphzero, words, environment)
        runs = in_turns(works, args.rounds)
        store.close()
    steps = start.numel() * length
    rates = {name: [steps / each["seconds"] for each in found] for name, found in runs.items()}
    print(f"{machine()}")
    medians = {name: {"steps/s": statistics.median(rate)} for name, rate in rates.items()}
    print(show(f"{args.threads} threads", medians))
    write(args.json, record(args, argv, steps_per_second=rates))


if __name__ == "__main__":
    main()
