"""The whole training loop in memory: sampling, features and steps, for each way to have them.

    python benchmarks/loop.py --dgl PYTHON
    python benchmarks/loop.py --undirected --batches 4

Every round is an epoch over the same seeds, in turn. ``stock model`` is PyG's GraphSAGE as it is,
behind this package's loader; ``accelerated`` the same after ``nn.accelerate``, without workers and
with them; ``GraphBolt`` is DGL's sampler, features and layers, in an environment of its own that
has ``dgl==2.1.0``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE
from torch_geometric.utils import index_sort
from torch_geometric.utils.sparse import index2ptr

import pyg_graphzero as gz
from harness.asked import Asked
from harness.record import (
    in_turns,
    medians,
    parser,
    record,
    step_arguments,
    step_graph,
    training_arguments,
    write,
)
from pyg_graphzero.bench.synthetic import NUM_CLASSES
from pyg_graphzero.util.machine import machine


def main(argv: list[str] | None = None) -> None:
    """Runs the comparison."""
    made = parser("loop", __doc__)
    step_arguments(made)
    training_arguments(made)
    made.add_argument("--batches", type=int, default=12, help="of an epoch")
    made.add_argument("--workers", type=int, default=2)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--dgl", help="a Python that has DGL")
    made.add_argument("--no-stock", action="store_true", help="leave the stock model out")
    args = made.parse_args(argv)
    data = step_graph(args, args.dim)
    seeds = torch.randperm(args.nodes)[: args.batches * args.batch_size]
    print(f"{machine()}")
    with tempfile.TemporaryDirectory() as folder:
        works: dict[str, Callable[[], Any]] = {
            "accelerated": _ours(data, seeds, args, True, 0),
            f"accelerated, {args.workers} workers": _ours(data, seeds, args, True, args.workers),
        }
        if not args.no_stock:
            works["stock model"] = _ours(data, seeds, args, False, args.workers)
        if args.dgl is not None:
            works["GraphBolt"] = _graphbolt(data, seeds, Path(folder), args)
        del data
        rounds = in_turns(works, args.rounds)
    results = {name: medians(found, args.batches) for name, found in rounds.items()}
    print(f"{'':24} {'s a batch':>9} {'CPU s':>6} {'nodes':>9}")
    for name, each in results.items():
        print(f"{name:24} {each['seconds']:9.3f} {each['cpu_seconds']:6.2f} {each['nodes']:9,.0f}")
    write(args.json, record(args, argv, results=results))


def _ours(
    data: Any, seeds: torch.Tensor, args: argparse.Namespace, is_accelerated: bool, workers: int
) -> Callable[[], dict[str, int]]:
    depth = len(args.fanout)
    model = GraphSAGE(args.dim, args.hidden, depth, NUM_CLASSES, dropout=args.dropout)
    if is_accelerated:
        gz.nn.accelerate(model)
    loader = gz.loader.NeighborLoader(
        data,
        args.fanout,
        input_nodes=seeds,
        batch_size=args.batch_size,
        shuffle=True,
        edge_ids=False,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    optimizer = torch.optim.Adam(model.parameters())

    def epoch() -> dict[str, int]:
        nodes = 0
        for batch in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=args.autocast):
                out = model(batch.x, batch.edge_index)[: batch.batch_size]
                loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            nodes += batch.num_nodes
        return {"nodes": nodes}

    return epoch


def _graphbolt(
    data: Any, seeds: torch.Tensor, folder: Path, args: argparse.Namespace
) -> Callable[[], dict[str, float]]:
    dst, order = index_sort(data.edge_index[1], max_value=args.nodes)
    arrays = {
        "indptr": index2ptr(dst, args.nodes),
        "indices": data.edge_index[0][order],
        "x": data.x,
        "y": data.y,
        "seeds": seeds,
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array.numpy())
    settings = {name: getattr(args, name) for name in ("fanout", "batch_size", "dropout")}
    settings["widths"] = [args.dim, *[args.hidden] * (len(args.fanout) - 1), NUM_CLASSES]
    (folder / "settings.json").write_text(json.dumps(settings))
    script = Path(__file__).parent / "harness" / "dgl_loop.py"
    ask = Asked([args.dgl, script, folder])
    return lambda: json.loads(ask())


if __name__ == "__main__":
    main()
