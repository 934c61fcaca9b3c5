"""Loading and training, the first aggregation taken by the loader or not: in turns, by encoding.

    python benchmarks/first_aggregation.py
    python benchmarks/first_aggregation.py --features int8 --memory 1GB   # rows are read from disk

GraphSAGE, accelerated. Batches are made in line, so that what the loader costs and what a step
costs are seen apart; with ``--memory`` they are made by the engine's threads. With one contestant
(``--features float32 --only mean``) the peak of its memory is taken.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

import pyg_graphzero as gz
from harness.record import (
    in_turns,
    medians,
    parser,
    record,
    step_arguments,
    step_graph,
    write,
)
from harness.timeline import with_peak
from pyg_graphzero.bench.process import Clock
from pyg_graphzero.bench.synthetic import NUM_CLASSES
from pyg_graphzero.util.machine import machine

FEATURES = ("float32", "float16", "int8")
REDUCTIONS = {"none": None, "mean": "mean"}


def main(argv: list[str] | None = None) -> None:
    """Measures every encoding with and without."""
    made = parser("first_aggregation", __doc__)
    step_arguments(made)
    made.add_argument("--features", nargs="+", choices=FEATURES, default=["float32", "int8"])
    made.add_argument("--only", nargs="+", choices=REDUCTIONS, default=list(REDUCTIONS))
    made.add_argument("--memory", help="the store's budget; by default all is mapped")
    made.add_argument("--batches", type=int, default=5, help="in a round")
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--data", type=Path, help="where stores are kept, for the next run too")
    args = made.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        root = args.data or Path(folder)
        _make_stores(root, args)
        print(machine())
        works = {
            f"{features}, {name}": _rounds(root / features, REDUCTIONS[name], args)
            for features in args.features
            for name in args.only
        }
        found, peak = with_peak(lambda: in_turns(works, args.rounds))
    results = {name: medians(rounds) for name, rounds in found.items()}
    for name, each in results.items():
        print(f"{name:14} " + ", ".join(f"{key} {value:,.4g}" for key, value in each.items()))
    if len(works) == 1:
        print(f"peak of anonymous memory {peak / 1e9:.3f} GB")
    write(args.json, record(args, argv, results=results, peak_bytes=peak))


def _make_stores(root: Path, args: argparse.Namespace) -> None:
    missing = [name for name in args.features if not (root / name).exists()]
    if not missing:
        return
    data = step_graph(args, args.dim)
    root.mkdir(parents=True, exist_ok=True)
    for name in missing:
        gz.convert(data, root / name, features=None if name == "float32" else name, progress=False)


def _rounds(
    path: Path, reduction: str | None, args: argparse.Namespace
) -> Callable[[], dict[str, float]]:
    """Loads some batches and trains on each: means of a batch."""
    store = gz.open(path) if args.memory is None else gz.open(path, memory=args.memory)
    data = store.data()
    options: dict[str, Any] = {} if args.memory is None else {"num_workers": 1}
    loader = gz.loader.NeighborLoader(
        data, args.fanout, input_nodes=data.train_mask, batch_size=args.batch_size, shuffle=True,
        edge_ids=False, first_aggregation=reduction,
        generator=torch.Generator().manual_seed(0), **options,
    )  # fmt: skip
    torch.manual_seed(0)
    model = gz.nn.accelerate(GraphSAGE(args.dim, args.hidden, len(args.fanout), NUM_CLASSES))
    optimizer = torch.optim.Adam(model.parameters())
    batches = iter(loader)

    def work() -> dict[str, float]:
        nonlocal batches
        total = dict.fromkeys(("load_s", "load_cpu_s", "step_s", "step_cpu_s", "batch_MB"), 0.0)
        for _ in range(args.batches):
            with Clock() as clock:
                batch = next(batches, None)
                if batch is None:
                    batches = iter(loader)
                    batch = next(batches)
            total["load_s"] += clock.seconds
            total["load_cpu_s"] += clock.cpu_seconds
            with Clock() as clock:
                optimizer.zero_grad()
                out = model(batch.x, batch.edge_index)
                F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
                optimizer.step()
            total["step_s"] += clock.seconds
            total["step_cpu_s"] += clock.cpu_seconds
            sums = batch.x.sums[None].nbytes if reduction is not None else 0
            total["batch_MB"] += (batch.x.nbytes + sums) / 1e6
        return {key: value / args.batches for key, value in total.items()}

    return work


if __name__ == "__main__":
    main()
