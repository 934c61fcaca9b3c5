r"""The whole training loop: sampling, features and steps, for each way to have them.

    python benchmarks/loop.py --dgl PYTHON
    python benchmarks/loop.py --undirected --ways accelerated --batches 4
    python benchmarks/loop.py --features int8 --sums none mean --ways accelerated --workers 0
    python benchmarks/loop.py --device cuda --models sage gcn gat --loaders ours stock \
        --ways load stock trimmed accelerated --workers 1 4 16 --batches 50

Every round is an epoch over the same seeds, in turn. A model is computed as PyG has it (``stock``),
``trimmed`` by PyG's ``trim_to_layer``, or by ``nn.accelerate``; ``load`` computes nothing. Batches
come from this package's loader, over a graph in memory or a store (``--features``), with a first
aggregation or not (``--sums``); or from stock PyG's, if it has a sampler. ``GraphBolt`` is DGL's
sampler, features and layers, in an environment of its own that has ``dgl==2.1.0``. CPU time of a
batch without workers is seen apart from that of a step; the GPU's idle share is what of an epoch no
kernel of a step ran in. With one contestant the peak of its memory is taken.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch_geometric.loader
from torch_geometric.data import Data
from torch_geometric.loader import PrefetchLoader
from torch_geometric.nn import GAT, GCN, GraphSAGE
from torch_geometric.utils import index_sort
from torch_geometric.utils.sparse import index2ptr

import pyg_graphzero as gz
from harness.record import (
    by_dgl,
    in_turns,
    medians,
    parser,
    record,
    show,
    step_arguments,
    step_graph,
    write,
)
from harness.timeline import with_peak
from pyg_graphzero.bench.contestants import StockPyG
from pyg_graphzero.bench.synthetic import NUM_CLASSES
from pyg_graphzero.bench.training import MODELS as WAYS
from pyg_graphzero.bench.training import Trainer
from pyg_graphzero.util.machine import machine

MODELS: dict[str, Callable[..., torch.nn.Module]] = {
    "sage": GraphSAGE, "gcn": GCN, "gat": partial(GAT, heads=4),
}  # fmt: skip
LOADERS = ("ours", "stock")
# Encoding of the features in a store; "memory" has the graph there, and no store.
FEATURES = {"memory": None, "float32": None, "float16": "float16", "int8": "int8"}
# Ways and models that take sums in place of the rows of the last hop.
WITH_SUMS = (("load", ""), ("accelerated", "sage"))


def main(argv: list[str] | None = None) -> None:
    """Runs the comparison."""
    made = parser("loop", __doc__)
    step_arguments(made, rounds=3)
    made.add_argument("--batches", type=int, default=12, help="of an epoch")
    made.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    made.add_argument("--models", nargs="+", choices=MODELS, default=["sage"])
    made.add_argument("--ways", nargs="+", choices=["load", *WAYS], default=["stock", WAYS[-1]])
    made.add_argument("--loaders", nargs="+", choices=LOADERS, default=["ours"])
    made.add_argument("--features", choices=FEATURES, default="memory")
    made.add_argument("--sums", nargs="+", choices=["none", "mean"], default=["none"])
    made.add_argument("--device", default="cpu", help="or cuda")
    args = made.parse_args(argv)
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        made.error("--device: found no GPU, expected one that torch can use")
    data = step_graph(args, args.dim)
    seeds = torch.randperm(args.nodes)[: args.batches * args.batch_size]
    gpu = torch.cuda.get_device_name() if device.type == "cuda" else "no GPU"
    print(f"{machine()}, {gpu}")
    with tempfile.TemporaryDirectory() as folder:
        works: dict[str, Callable[[], Any]] = {}
        for name, loader in loaders(data, seeds, Path(folder), args, device):
            for way in args.ways:
                for model in args.models if way != "load" else [""]:
                    if "stock" in name and StockPyG.cannot_train(way) is not None:
                        continue
                    if "mean" in name and (way, model) not in WITH_SUMS:
                        continue
                    step = stepper(model, way, device, args) if model else None
                    label = ", ".join(filter(None, (way, model, name)))
                    works[label] = partial(epoch, loader, step, device)
        if args.dgl is not None:
            works["GraphBolt"] = _graphbolt(data, seeds, Path(folder), args)
        del data
        rounds, peak = with_peak(lambda: in_turns(works, args.rounds))
    results = {name: medians(found, args.batches) for name, found in rounds.items()}
    print(show("a batch", results))
    if len(works) == 1:
        print(f"peak of anonymous memory {peak / 1e9:.3f} GB")
    write(args.json, record(args, argv, gpu=gpu, results=results, peak_bytes=peak))


def loaders(
    data: Data, seeds: torch.Tensor, folder: Path, args: argparse.Namespace, device: torch.device
) -> Iterator[tuple[str, Iterable[Any]]]:
    """Loaders by name: whose, how many workers, and what is summed."""
    graph: Any = data
    if args.features != "memory":
        gz.convert(data, folder / "store", features=FEATURES[args.features], progress=False)
        graph = gz.open(folder / "store").data()
    for kind in args.loaders:
        if kind == "stock" and StockPyG.missing() is not None:
            continue
        for workers in args.workers:
            given = {
                "num_neighbors": args.fanout, "input_nodes": seeds, "shuffle": True,
                "batch_size": args.batch_size, "num_workers": workers,
                "persistent_workers": workers > 0,
            }  # fmt: skip
            name = f"{kind}, {workers} workers"
            if kind == "stock":
                stock = torch_geometric.loader.NeighborLoader(data, **given)
                yield name, PrefetchLoader(stock, device)
                continue
            given["edge_ids"] = False
            for sums in args.sums:
                given["first_aggregation"] = None if sums == "none" else sums
                own = gz.loader.NeighborLoader(graph, **given, device=device)
                yield name + f", {sums}" * (sums != "none"), own


def stepper(
    model: str, way: str, device: torch.device, args: argparse.Namespace
) -> Callable[[Data], object]:
    """A model's training on one batch, in one of ``WAYS``."""
    torch.manual_seed(0)
    depth = len(args.fanout)
    net = MODELS[model](args.dim, args.hidden, depth, NUM_CLASSES, dropout=args.dropout)
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=args.autocast)
    return Trainer(net.to(device), way, autocast=autocast).step


def epoch(
    loader: Iterable[Data], step: Callable[[Data], object] | None, device: torch.device
) -> dict[str, float]:
    """One epoch: nodes and bytes of its batches, CPU time, how long the device had work."""
    found = dict.fromkeys(("nodes", "bytes", "load_cpu", "step_cpu", "busy"), 0.0)
    events: list[tuple[Any, Any]] = []
    used = time.process_time()
    for batch in loader:
        begun, now = time.perf_counter(), time.process_time()
        found["load_cpu"] += now - used
        found["nodes"] += batch.num_nodes
        found["bytes"] += sum(map(_num_bytes, batch.to_dict().values()))
        if step is not None:
            on_gpu = device.type == "cuda"
            begin = _event() if on_gpu else None
            step(batch)
            if on_gpu:
                events.append((begin, _event()))
            else:
                found["busy"] += time.perf_counter() - begun
        used = time.process_time()
        found["step_cpu"] += used - now
    if events:
        torch.cuda.synchronize()
        found["busy"] = sum(begin.elapsed_time(end) for begin, end in events) / 1e3
    return found


def _event() -> Any:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _num_bytes(value: Any) -> int:
    """Bytes of an attribute of a batch, those of its sums included."""
    sums = getattr(value, "sums", None) or {}
    return (value.nbytes if torch.is_tensor(value) else 0) + sum(s.nbytes for s in sums.values())


def _graphbolt(
    data: Any, seeds: torch.Tensor, folder: Path, args: argparse.Namespace
) -> Callable[[], dict[str, float]]:
    dst, order = index_sort(data.edge_index[1], max_value=args.nodes)
    return by_dgl(
        args,
        "GraphSAGE",
        1,
        folder / "graph.npz",
        indptr=index2ptr(dst, args.nodes),
        indices=data.edge_index[0][order],
        x=data.x,
        y=data.y,
        seeds=seeds,
        batch_size=args.batch_size,
        fanout=args.fanout,
    )


if __name__ == "__main__":
    main()
