"""Delivery to a GPU against stock PyG with workers and ``PrefetchLoader``. Needs an NVIDIA GPU.

    python benchmarks/gpu.py --nodes 5000000 --edges 73000000 --dim 128 --workers 0 2 8

Two epochs each, alternating, medians: loading alone (every batch is delivered, nothing computed),
and training a 3-layer GraphSAGE. The GPU's idle share is what of a training epoch no kernel ran in,
from CUDA events around every step.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.loader
from torch_geometric.data import Data
from torch_geometric.loader import PrefetchLoader
from torch_geometric.nn import GraphSAGE

import pyg_graphzero as gz
from harness.record import OUT, in_turns, parser, record, sampling_arguments, write
from pyg_graphzero.bench.contestants import StockPyG
from pyg_graphzero.bench.synthetic import power_law
from pyg_graphzero.util.machine import machine

NUM_CLASSES = 172


def train(loader: Iterable[Data], model: torch.nn.Module, optimizer: Any) -> tuple[int, float]:
    """One epoch; how many steps, and for how many seconds the GPU had work."""
    events = []
    for batch in loader:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        optimizer.zero_grad(set_to_none=True)
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
        optimizer.step()
        end.record()
        events.append((begin, end))
    torch.cuda.synchronize()
    return len(events), sum(begin.elapsed_time(end) for begin, end in events) / 1e3


def load(loader: Iterable[Data]) -> tuple[int, float]:
    """One epoch of delivery; how many batches, and nothing computed."""
    count = sum(1 for _ in loader)
    torch.cuda.synchronize()
    return count, 0.0


def contestants(
    data: Data, disk: Data, seeds: torch.Tensor, args: argparse.Namespace
) -> dict[str, Iterable[Data]]:
    """The loaders by name."""
    common = {
        "num_neighbors": args.fanout,
        "input_nodes": seeds,
        "batch_size": args.batch_size,
        "shuffle": True,
    }
    rows: dict[str, Iterable[Data]] = {}
    for workers in args.workers:
        keep = {"num_workers": workers, "persistent_workers": workers > 0}
        rows[f"graphzero, {workers} workers"] = gz.loader.NeighborLoader(
            disk, device="cuda", **common, **keep
        )
        if StockPyG.missing() is None:
            stock = torch_geometric.loader.NeighborLoader(data, **common, **keep)
            rows[f"stock + PrefetchLoader, {workers} workers"] = PrefetchLoader(stock, "cuda")
    return rows


def main(argv: list[str] | None = None) -> None:
    """Runs the comparison."""
    made = parser("gpu", __doc__)
    sampling_arguments(made, 1_000_000, 15_000_000, [15, 10, 5], 1024)
    made.add_argument("--dim", type=int, default=128)
    made.add_argument("--batches", type=int, default=50)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    made.add_argument("--dir", type=Path, default=OUT)
    args = made.parse_args(argv)
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks/gpu.py: found no GPU, expected one that torch can use")

    data = power_law(args.nodes, args.edges, args.dim)
    gz.convert(data, args.dir / "gpu", force=True)
    disk = gz.open(args.dir / "gpu").data()
    seeds = torch.randperm(args.nodes)[: args.batches * args.batch_size]
    model = GraphSAGE(args.dim, 256, len(args.fanout), NUM_CLASSES).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    work: dict[str, Callable[[Any], tuple[int, float]]] = {
        "load": load,
        "train": lambda loader: train(loader, model, optimizer),
    }

    loaders = contestants(data, disk, seeds, args)
    works = {
        f"{what}: {name}": lambda loader=loader, epoch=epoch: epoch(loader)
        for name, loader in loaders.items()
        for what, epoch in work.items()
    }
    # The round that warms up starts workers.
    times = {
        name: [(run["seconds"] / run["value"][0], 1 - run["value"][1] / run["seconds"])
               for run in runs]
        for name, runs in in_turns(works, args.rounds).items()
    }  # fmt: skip

    gpu = torch.cuda.get_device_name()
    print(f"{machine()}, {gpu}")
    print(f"{'':46} {'batches/s':>10} {'GPU idle':>9}")
    for name, runs in times.items():
        seconds, idle = (statistics.median(values) for values in zip(*runs, strict=True))
        shown = f"{idle:9.0%}" if name.startswith("train") else f"{'':9}"
        print(f"{name:46} {1 / seconds:10.1f} {shown}")
    write(args.json, record(args, argv, gpu=gpu, seconds_per_batch_and_idle_share=times))


if __name__ == "__main__":
    main()
