"""Accuracy of one model on real graphs: features encoded, models computed, seeds sampled otherwise.

    python benchmarks/accuracy.py
    python benchmarks/accuracy.py --features float32 --models stock accelerated norms-trimmed
    python benchmarks/accuracy.py --features float32 --options uniform labor
    python benchmarks/accuracy.py --data DIR  # and tolokers.npz, coauthor_physics.npz, if there

Trains the GraphSAGE of `examples/wordnet_sage.py`, from the same seeds, from stores that differ in
``features=`` alone; as PyG computes it, where that is asked for; by training loaders that differ in
their options alone, whose nodes, edges and CPU time are counted over an epoch without features.
Scores are test accuracies, or the area under the ROC curve where there are two classes.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch_geometric.data import Data

import pyg_graphzero as gz
from harness.real_graphs import NAMES, graphs, scores, training_loader
from harness.record import parser, record, write

ENCODINGS = {"float32": None, "float16": "float16", "bfloat16": "bfloat16", "int8": "int8"}
# Value of ``norms`` in ``gz.nn.accelerate``, by model; None trains the model without it.
MODELS = {"stock": None, "accelerated": "whole", "norms-trimmed": "trimmed"}
OPTIONS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "labor": {"method": "labor"},
    "layers": {"method": "labor", "layer_dependency": True},
    "batches-16": {"method": "labor", "batch_dependency": 16},
    "both-64": {"method": "labor", "layer_dependency": True, "batch_dependency": 64},
}
EPOCHS = {"wordnet": 6, "tolokers": 20, "coauthor physics": 6}


def count(data: Data, args: argparse.Namespace, options: dict[str, Any]) -> dict[str, float]:
    """Nodes and edges per batch of an epoch, nodes per window, and CPU time per batch."""
    torch.manual_seed(0)
    only_edges = Data(
        edge_index=data.edge_index, num_nodes=data.num_nodes, train_mask=data.train_mask
    )
    nodes, edges, seconds = [], [], []
    begun = time.process_time()
    for batch in training_loader(only_edges, args, options):
        seconds.append(time.process_time() - begun)
        nodes.append(batch.n_id)
        edges.append(batch.num_edges)
        begun = time.process_time()
    # Whole windows, or one where the graph has fewer batches.
    starts = range(0, max(1, len(nodes) - args.window + 1), args.window)
    windows = [torch.cat(nodes[at : at + args.window]).unique() for at in starts]
    return {
        "nodes_per_batch": statistics.mean(map(len, nodes)),
        "edges_per_batch": statistics.mean(edges),
        "nodes_per_window": statistics.mean(map(len, windows)),
        "cpu_ms": 1e3 * statistics.median(seconds),
    }


def main(argv: list[str] | None = None) -> None:
    """Trains everything and prints a table."""
    made = parser("accuracy", __doc__)
    made.add_argument("--data", type=Path, help="directory with more graphs")
    made.add_argument("--graphs", nargs="+", default=list(NAMES), choices=NAMES)
    made.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    made.add_argument("--hidden", type=int, default=64)
    made.add_argument("--fanout", type=int, nargs="+", default=[5, 5])
    made.add_argument("--batch-size", type=int, default=512)
    made.add_argument("--features", nargs="+", choices=ENCODINGS, default=list(ENCODINGS))
    made.add_argument("--models", nargs="+", choices=MODELS, default=["accelerated"])
    made.add_argument("--options", nargs="+", choices=OPTIONS, default=["uniform"])
    made.add_argument("--epochs", type=int, help="by graph, if not given")
    made.add_argument("--window", type=int, default=16, help="batches whose reads go together")
    args = made.parse_args(argv)
    rows: list[dict[str, Any]] = []
    for name, data in graphs(args.graphs, args.data):
        # Counts of words are small integers, which every encoding would keep as they are.
        if name == "coauthor physics" and args.features != ["float32"]:
            data.x = F.normalize(data.x)
        print(f"{name}: {data.num_nodes:,} nodes, {data.x.size(1)} features")
        print("features, MB, relative RMSE; model; options, nodes a batch and a window, CPU ms")
        for encoding in args.features:
            with tempfile.TemporaryDirectory() as folder:
                store = Path(folder) / "store"
                summary = gz.convert(data, store, features=ENCODINGS[encoding], progress=False)
                column = summary.info["node_types"][0]["attrs"]["x"]
                disk = gz.open(store).data()
                epochs = args.epochs or EPOCHS[name]
                for model, option in itertools.product(args.models, args.options):
                    options = {"options": gz.SamplingOptions(**OPTIONS[option])}
                    row: dict[str, Any] = {
                        "graph": name,
                        "epochs": epochs,
                        "features": encoding,
                        "model": model,
                        "option": option,
                        "bytes": column["bytes"],
                        "relative_rmse": column.get("encoding", {}).get("relative_rmse", 0.0),
                        **count(disk, args, options),
                        **scores(disk, args, options, epochs, MODELS[model]),
                    }
                    rows.append(row)
                    print(
                        f"{encoding:9} {row['bytes'] / 1e6:6.1f} {row['relative_rmse']:6.2%}  "
                        f"{model:13} {option:10} {row['nodes_per_batch']:8,.0f} "
                        f"{row['nodes_per_window']:8,.0f} {row['cpu_ms']:6.2f}  "
                        f"{' '.join(f'{score:.4f}' for score in row['scores'])}  {row['mean']:.4f}",
                        flush=True,
                    )
                    write(args.json, record(args, argv, rows=rows))


if __name__ == "__main__":
    main()
