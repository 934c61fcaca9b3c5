"""What features in fewer bytes cost in accuracy, on the synthetic graph at a small scale.

Every encoding trains the same GraphSAGE with the same seeds, and is looked at on all test nodes.
What a model learns from a node's own features alone is told beside it, and what guessing gives.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import torch
from papers100m_graph import MASKS, NUM_CLASSES, PapersGraph
from torch_geometric.data import Data

import pyg_graphzero as gz
from pyg_graphzero.bench.training import Trainer

ENCODINGS = ("float32", "float16", "int8")


def compare(
    folder: Path,
    scale: float,
    seeds: list[int],
    epochs: int,
    hidden: int,
    fanout: list[int],
    batch_size: int,
) -> list[dict[str, Any]]:
    """Trains everything.

    Args:
        folder: Where the graphs are made and removed again.
        scale: Of the graph.
        seeds: Of training; the graph is the same.
        epochs: Of each.
        hidden: Width of the model.
        fanout: Neighbours per hop.
        batch_size: Seeds per batch.

    Returns:
        For each encoding, and for ``own features`` (no neighbours), the test accuracies.
    """
    graph = PapersGraph.of(scale)
    rows = []
    for features in ENCODINGS:
        path = folder / features
        graph.write(path, None if features == "float32" else features)
        with gz.open(path) as store:
            data = store.data()
            scores = [test(data, s, epochs, hidden, fanout, batch_size) for s in seeds]
            rows.append(row(features, scores))
            if features == "float32":
                alone = [test(data, s, epochs, hidden, [], batch_size) for s in seeds]
                rows.append(row("float32, own features", alone))
    labels = graph.labels()[torch.from_numpy(graph.split["test"])]
    often = float(labels.bincount().max()) / len(labels)
    return [*rows, row("the most frequent class", [often])]


def row(features: str, scores: list[float]) -> dict[str, Any]:
    """A line of the table."""
    return {"features": features, "test_accuracy": scores, "mean": statistics.mean(scores)}


def test(
    data: Any, seed: int, epochs: int, hidden: int, fanout: list[int], batch_size: int
) -> float:
    """Accuracy on the test nodes after training; without fan-out, of nodes on their own."""
    torch.manual_seed(seed)

    def loader(mask: str, shuffle: bool) -> Any:
        return gz.loader.NeighborLoader(
            data,
            fanout or [0],
            input_nodes=data[mask],
            batch_size=batch_size,
            shuffle=shuffle,
            num_workers=1,
            edge_ids=False,
        )

    trainer = Trainer(
        Data(), None, max(1, len(fanout)), NUM_CLASSES, bool(fanout), hidden, dropout=0.5
    )
    batches = loader(MASKS["train"], True)
    for _ in range(epochs):
        for batch in batches:
            trainer.step(batch)
    return trainer.accuracy(loader(MASKS["test"], False))
