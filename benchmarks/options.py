"""Reads saved by the sampling options, and their cost in accuracy, on real graphs.

    python benchmarks/options.py
    python benchmarks/options.py --data DIR   # and tolokers.npz, coauthor_physics.npz, if there

Trains the GraphSAGE of `examples/wordnet_sage.py` with every option, from several seeds; all that
differs is the options of the training loader. Counts nodes and edges over a whole epoch. Scores are
test accuracies, or the area under the ROC curve where there are two classes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from torch_geometric.data import Data

import pyg_graphzero as gz
from harness.real_graphs import arguments, graphs, scores, training_loader
from harness.record import parser, record, write

OPTIONS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "labor": {"method": "labor"},
    "labor, layers": {"method": "labor", "layer_dependency": True},
    "labor, 16 batches": {"method": "labor", "batch_dependency": 16},
    "labor, layers, 64 batches": {
        "method": "labor",
        "layer_dependency": True,
        "batch_dependency": 64,
    },
}

EPOCHS = {"wordnet": 2, "tolokers": 10, "coauthor physics": 2}


def count(data: Data, args: argparse.Namespace, options: dict[str, Any]) -> dict[str, float]:
    """Nodes and edges per batch of an epoch, nodes per window, and CPU time per batch."""
    torch.manual_seed(0)
    only_edges = Data(
        edge_index=data.edge_index, num_nodes=data.num_nodes, train_mask=data.train_mask
    )
    loader = training_loader(only_edges, args, options)
    nodes, edges, seconds = [], [], []
    begun = time.process_time()
    for batch in loader:
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
    """Counts, trains, and prints a table."""
    made = parser("options", __doc__)
    arguments(made, hidden=32, fanout=[10, 5])
    made.add_argument("--epochs", type=int, help="by graph, if not given")
    made.add_argument("--window", type=int, default=16, help="batches whose reads go together")
    args = made.parse_args(argv)
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for name, data in graphs(args.graphs, args.data):
        print(
            f"{name}: {data.num_nodes:,} nodes, {data.num_edges:,} edges, "
            f"{int(data.train_mask.sum()):,} seeds\n{'':26} nodes/batch  per window  edges/batch  "
            "   CPU ms  test score: mean, each seed"
        )
        for option, fields in OPTIONS.items():
            options = {"options": gz.SamplingOptions(**fields)}
            row: dict[str, Any] = {"graph": name, "option": option, "arguments": fields}
            row |= count(data, args, options)
            epochs = args.epochs or EPOCHS[name]
            row |= scores(data, args, options, epochs)
            rows.append(row)
            print(
                f"{option:26} {row['nodes_per_batch']:11,.0f} {row['nodes_per_window']:11,.0f} "
                f"{row['edges_per_batch']:12,.0f} {row['cpu_ms']:10.2f}  {row['mean']:.4f}   "
                f"{' '.join(f'{one:.4f}' for one in row['scores'])}",
                flush=True,
            )
            write(args.json, record(args, argv, rows=rows))


if __name__ == "__main__":
    main()
