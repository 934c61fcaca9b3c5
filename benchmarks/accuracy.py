"""Accuracy of one model on real graphs: features encoded, models computed, seeds sampled otherwise.

    python benchmarks/accuracy.py
    python benchmarks/accuracy.py --features float32 --models stock accelerated norms-trimmed
    python benchmarks/accuracy.py --features float32 --options uniform labor
    python benchmarks/accuracy.py --data DIR  # and tolokers.npz, coauthor_physics.npz, if there

Trains a GraphSAGE with BatchNorm, from the same seeds, from stores that differ in
``features=`` alone; as PyG computes it, where that is asked for; by training loaders that differ in
their options alone, whose nodes, edges and CPU time are counted over an epoch without features.
Scores are test accuracies, or the area under the ROC curve where there are two classes.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE
from torch_geometric.utils import to_undirected

import pyg_graphzero as gz
from harness.record import parser, record, write

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from wordnet import load_graph, random_split

NAMES = ("wordnet", "tolokers", "coauthor physics")
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


def graphs(names: list[str], directory: Path | None) -> Iterator[tuple[str, Data]]:
    """The graphs in ``names``: WordNet, and each of the others whose file is in the directory."""
    if "wordnet" in names:
        yield "wordnet", load_graph()
    if directory is None:
        return
    if "tolokers" in names and (directory / "tolokers.npz").exists():
        with np.load(directory / "tolokers.npz", allow_pickle=False) as arrays:
            x = torch.from_numpy(arrays["node_features"])
            data = Data(
                x=(x - x.mean(0)) / x.std(0).clamp(min=1e-6),
                y=torch.from_numpy(arrays["node_labels"]),
                edge_index=to_undirected(torch.from_numpy(arrays["edges"]).t()),
            )
            for name in ("train", "val", "test"):
                data[f"{name}_mask"] = torch.from_numpy(arrays[f"{name}_masks"][0])
        yield "tolokers", data
    if "coauthor physics" in names and (directory / "coauthor_physics.npz").exists():
        with np.load(directory / "coauthor_physics.npz", allow_pickle=False) as arrays:
            num_nodes = len(arrays["label"])
            # 8,415 sparse columns, added up in 128.
            x = torch.zeros(num_nodes, 128)
            rows = np.repeat(np.arange(num_nodes), np.diff(arrays["feat_indptr"]))
            columns = torch.from_numpy(arrays["feat_indices"].astype(np.int64)) * 2654435761 % 128
            values = torch.from_numpy(arrays["feat_data"])
            x.index_put_((torch.from_numpy(rows), columns), values, accumulate=True)
            dst = np.repeat(np.arange(num_nodes), np.diff(arrays["adj_indptr"]))
            edge_index = torch.from_numpy(np.stack([arrays["adj_indices"].astype(np.int64), dst]))
            y = torch.from_numpy(arrays["label"].astype(np.int64))
            data = Data(x=x, y=y, edge_index=edge_index)
            data.train_mask, data.val_mask, data.test_mask = random_split(num_nodes)
        yield "coauthor physics", data


def training_loader(data: Data, args: argparse.Namespace, options: dict[str, Any]) -> Any:
    """Shuffled batches of the training seeds."""
    return gz.loader.NeighborLoader(
        data,
        args.fanout,
        input_nodes=data.train_mask,
        batch_size=args.batch_size,
        shuffle=True,
        **options,
    )


def build_model(data: Data, args: argparse.Namespace, seed: int) -> GraphSAGE:
    """The model; the same seed gives the same first weights."""
    torch.manual_seed(seed)
    widths = data.x.size(1), args.hidden, len(args.fanout), int(data.y.max()) + 1
    return GraphSAGE(*widths, dropout=0.3, norm="batch")


def forward(model: GraphSAGE, batch: Data) -> Tensor:
    """Logits of the seeds, which come first."""
    return model(batch.x, batch.edge_index)[: batch.batch_size]


@torch.no_grad()
def score(model: GraphSAGE, loader: Any) -> float:
    """Accuracy at the seeds, or the area under the ROC curve where there are two classes."""
    model.eval()
    logits, labels = [], []
    for batch in loader:
        logits.append(forward(model, batch))
        labels.append(batch.y[: batch.batch_size])
    out, y = torch.cat(logits), torch.cat(labels)
    if out.size(1) > 2:
        return float((out.argmax(1) == y).double().mean())
    ranks = (out[:, 1] - out[:, 0]).argsort().argsort().double() + 1
    positive = int(y.sum())
    negative = y.numel() - positive
    return float((ranks[y == 1].sum() - positive * (positive + 1) / 2) / (positive * negative))


def scores(
    data: Data,
    args: argparse.Namespace,
    options: dict[str, Any],
    epochs: int,
    norms: str | None,
) -> dict[str, Any]:
    """``scores`` after the last epoch by seed, and their ``mean``; all are evaluated alike.

    Args:
        data: The graph.
        args: Arguments of ``accuracy.py``.
        options: Further arguments of the training loader.
        epochs: Number of epochs.
        norms: Argument of ``gz.nn.accelerate``; None leaves the model as it is.
    """
    found = []
    for seed in args.seeds:
        model = build_model(data, args, seed)
        if norms is not None:
            gz.nn.accelerate(model, norms=norms)
        loader = training_loader(data, args, options)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
        for _ in range(epochs):
            model.train()
            for batch in loader:
                optimizer.zero_grad()
                F.cross_entropy(forward(model, batch), batch.y[: batch.batch_size]).backward()
                optimizer.step()
                schedule.step()
        torch.manual_seed(0)
        test = gz.loader.NeighborLoader(
            data, [25] * len(args.fanout), input_nodes=data.test_mask, batch_size=2048
        )
        found.append(score(model, test))
    return {"scores": found, "mean": statistics.mean(found)}


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
                    print(row, flush=True)
                    write(args.json, record(args, argv, rows=rows))


if __name__ == "__main__":
    main()
