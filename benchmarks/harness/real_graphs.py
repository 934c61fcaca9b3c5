"""Real graphs that ``accuracy.py`` trains on, and the training.

WordNet comes with the examples; the others are files that `--data DIR` names.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from pyg_graphzero.loader import NeighborLoader
from pyg_graphzero.nn import accelerate

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from wordnet_sage import build_model, forward

from wordnet import load_graph, random_split

NAMES = ("wordnet", "tolokers", "coauthor physics")


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
    return NeighborLoader(
        data,
        args.fanout,
        input_nodes=data.train_mask,
        batch_size=args.batch_size,
        shuffle=True,
        **options,
    )


@torch.no_grad()
def score(model: torch.nn.Module, loader: Any) -> float:
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
        args.seed = seed
        model = build_model(data, args)
        if norms is not None:
            accelerate(model, norms=norms)
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
        test = NeighborLoader(
            data, [25] * len(args.fanout), input_nodes=data.test_mask, batch_size=2048
        )
        found.append(score(model, test))
    return {"scores": found, "mean": statistics.mean(found)}
