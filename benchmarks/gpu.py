"""Loading, delivery and training on a GPU, beside stock PyG where it has a sampler.

    python benchmarks/gpu.py --json gpu.json
    python benchmarks/gpu.py --nodes 5000000 --edges 73000000 --models sage --threads 1 4 16

Epochs of ``--batches``, in turn, medians of ``--rounds``:

- ``load``: every batch is delivered to the GPU, nothing is computed; by 1 to 16 threads.
- ``train``: GraphSAGE, GCN and GAT as they are, trimmed by PyG's ``trim_to_layer``, and by
  ``gz.nn.accelerate``, over this package's batches; stock PyG's with ``PrefetchLoader``.

A row has batches a second, the bytes of a batch that were copied, and the GPU's idle share: what of
a training epoch no kernel ran in, from CUDA events around every step. ``--device cpu`` tries the
script where there is no GPU.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.loader
from torch_geometric.data import Data
from torch_geometric.loader import PrefetchLoader
from torch_geometric.nn import GAT, GCN, GraphSAGE

import pyg_graphzero as gz
from harness.record import OUT, in_turns, medians, parser, record, sampling_arguments, write
from pyg_graphzero.bench.contestants import StockPyG
from pyg_graphzero.bench.synthetic import power_law
from pyg_graphzero.bench.training import MODELS as WAYS
from pyg_graphzero.util.machine import machine

NUM_CLASSES = 172
MODELS: dict[str, Callable[[int, int], torch.nn.Module]] = {
    "sage": lambda width, layers: GraphSAGE(width, 256, layers, NUM_CLASSES),
    "gcn": lambda width, layers: GCN(width, 256, layers, NUM_CLASSES),
    "gat": lambda width, layers: GAT(width, 256, layers, NUM_CLASSES, heads=4),
}


class Step:
    """Trains a model on one batch.

    Args:
        model: A network of PyG's ``BasicGNN``.
        way: One of ``WAYS``.
        device: Where.
    """

    def __init__(self, model: torch.nn.Module, way: str, device: torch.device) -> None:
        self.model = model.to(device)
        if way == "accelerated":
            gz.nn.accelerate(self.model)
        self._is_trimmed = way == "trimmed"
        self._optimizer = torch.optim.Adam(self.model.parameters())

    def __call__(self, batch: Data) -> None:
        """Forward, backward, update."""
        hops = {
            "num_sampled_nodes_per_hop": batch.num_sampled_nodes,
            "num_sampled_edges_per_hop": batch.num_sampled_edges,
        }
        self._optimizer.zero_grad(set_to_none=True)
        out = self.model(batch.x, batch.edge_index, **(hops if self._is_trimmed else {}))
        size = batch.batch_size
        F.cross_entropy(out[:size], batch.y[:size]).backward()
        self._optimizer.step()


class Timer:
    """For how long the device had work."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._spans: list[tuple[Any, Any]] = []

    def mark(self) -> Any:
        """A moment in the device's work."""
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def add(self, begin: Any, end: Any) -> None:
        """Work between two moments."""
        self._spans.append((begin, end))

    def seconds(self) -> float:
        """All of it, once it is done."""
        if not self._on_gpu:
            return sum(end - begin for begin, end in self._spans)
        torch.cuda.synchronize()
        return sum(begin.elapsed_time(end) for begin, end in self._spans) / 1e3


def epoch(loader: Iterable[Data], step: Step | None, device: torch.device) -> dict[str, float]:
    """One epoch: how many batches, of how many bytes, and for how long the device had work."""
    timer, count, size = Timer(device), 0, 0
    for batch in loader:
        count += 1
        size += sum(value.nbytes for value in batch.to_dict().values() if torch.is_tensor(value))
        if step is not None:
            begin = timer.mark()
            step(batch)
            timer.add(begin, timer.mark())
    return {"batches": count, "bytes": size, "busy": timer.seconds()}


def loaders(
    data: Data, disk: Data, seeds: torch.Tensor, args: argparse.Namespace, device: torch.device
) -> Iterator[tuple[str, int, Iterable[Data]]]:
    """Contestants: name, threads or processes, loader."""
    common = {
        "num_neighbors": args.fanout,
        "input_nodes": seeds,
        "batch_size": args.batch_size,
        "shuffle": True,
    }
    for workers in args.threads:
        keep = {"num_workers": workers, "persistent_workers": True}
        yield "graphzero", workers, gz.loader.NeighborLoader(disk, device=device, **common, **keep)
        pinned = gz.loader.NeighborLoader(disk, **common, **keep, pin_memory=device.type == "cuda")
        yield "graphzero + PrefetchLoader", workers, PrefetchLoader(pinned, device)
        if StockPyG.missing() is None:
            stock = torch_geometric.loader.NeighborLoader(data, **common, **keep)
            yield "stock + PrefetchLoader", workers, PrefetchLoader(stock, device)


def main(argv: list[str] | None = None) -> None:
    """Runs the comparison."""
    made = parser("gpu", __doc__)
    sampling_arguments(made, 1_000_000, 15_000_000, [15, 10, 5], 1024)
    made.add_argument("--dim", type=int, default=128)
    made.add_argument("--batches", type=int, default=50)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    made.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    made.add_argument("--device", default="cuda")
    made.add_argument("--dir", type=Path, default=OUT)
    args = made.parse_args(argv)
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("benchmarks/gpu.py: found no GPU, expected one that torch can use")

    data = power_law(args.nodes, args.edges, args.dim)
    args.dir.mkdir(parents=True, exist_ok=True)
    gz.convert(data, args.dir / "gpu", force=True, progress=False)
    disk = gz.open(args.dir / "gpu").data()
    seeds = torch.randperm(args.nodes)[: args.batches * args.batch_size]
    works: dict[str, Callable[[], dict[str, float]]] = {}
    for name, workers, loader in loaders(data, disk, seeds, args, device):
        works[f"load: {name}, {workers}"] = partial(epoch, loader, None, device)
        if workers != max(args.threads) or "+" in name.removeprefix("stock +"):
            continue
        for model in args.models:
            for way in WAYS:
                if name.startswith("stock") and StockPyG.cannot_train(way) is not None:
                    continue
                step = Step(MODELS[model](args.dim, len(args.fanout)), way, device)
                works[f"train: {name}, {model}, {way}"] = partial(epoch, loader, step, device)
    gpu = torch.cuda.get_device_name() if device.type == "cuda" else "no GPU"
    print(f"{machine()}, {gpu}")
    print(f"{'':46} {'batches/s':>10} {'MB/batch':>9} {'GPU idle':>9}", flush=True)
    rows: dict[str, dict[str, Any]] = {}
    # The round that warms up starts workers.
    for name, runs in in_turns(works, args.rounds).items():
        found = medians(runs)
        busy = statistics.median(run["busy"] / run["seconds"] for run in runs)
        rows[name] = {
            "batches_per_second": found["batches"] / found["seconds"],
            "bytes_per_batch": found["bytes"] / found["batches"],
            "idle_share": 1 - busy if name.startswith("train") else None,
        }
        shown = f"{1 - busy:9.0%}" if name.startswith("train") else f"{'':9}"
        print(
            f"{name:46} {rows[name]['batches_per_second']:10.1f} "
            f"{rows[name]['bytes_per_batch'] / 1e6:9.1f} {shown}"
        )
    write(args.json, record(args, argv, gpu=gpu, rows=rows))


if __name__ == "__main__":
    main()
