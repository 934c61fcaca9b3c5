"""Node2Vec on WordNet: link prediction from embeddings by random walks over a store.

    python examples/node2vec.py

A tenth of the pairs of related synsets is left out of the graph; told apart from random pairs by
the product of their embeddings, they give the AUC. PyG's own ``Node2Vec`` is trained beside it on
the same edges, where pyg-lib is installed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import Node2Vec as StockNode2Vec

import pyg_graphzero as gz
from wordnet import load_graph

Model = Any  # either of the two


def split(edge_index: Tensor) -> tuple[Tensor, Tensor]:
    """Edges to walk along, in both directions, and pairs that were left out."""
    pairs = edge_index[:, edge_index[0] < edge_index[1]]
    order = torch.randperm(pairs.size(1), generator=torch.Generator().manual_seed(0))
    held, kept = pairs[:, order].split([len(order) // 10, len(order) - len(order) // 10], dim=1)
    return torch.cat([kept, kept.flip(0)], dim=1), held


def area(model: Model, held: Tensor) -> float:
    """AUC of pairs that were left out, against as many random ones."""
    generator = torch.Generator().manual_seed(0)
    others = torch.randint(model.num_nodes, held.shape, generator=generator)
    z = model().detach()
    true, false = ((z[a] * z[b]).sum(1) for a, b in (held, others))
    below = torch.searchsorted(false.sort().values, true)
    return float(below.double().mean()) / false.numel()


def train(model: Model, epochs: int, batch_size: int, seed: int) -> float:
    """Trains from a seed's start; returns seconds of an epoch."""
    torch.manual_seed(seed)
    model.reset_parameters()
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)
    loader = model.loader(batch_size=batch_size, shuffle=True)
    begin = time.perf_counter()
    for _ in range(epochs):
        for positive, negative in loader:
            optimizer.zero_grad()
            model.loss(positive, negative).backward()
            optimizer.step()
    return (time.perf_counter() - begin) / epochs


def main() -> None:
    """Runs the example."""
    parser = argparse.ArgumentParser(description="Node2Vec on WordNet.")
    parser.add_argument("--store", type=Path, default=Path("wordnet_links"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--skip-stock", action="store_true", help="without PyG's own")
    parser.add_argument("--quick", action="store_true", help="one epoch of short walks")
    args = parser.parse_args()
    length, context = (8, 4) if args.quick else (20, 10)
    size: dict[str, Any] = {"walk_length": length, "context_size": context, "walks_per_node": 2}
    epochs = 1 if args.quick else args.epochs

    data = load_graph(num_features=1)
    edges, held = split(data.edge_index)
    gz.convert(edges, args.store, num_nodes=data.num_nodes, force=True, progress=False)
    store = gz.open(args.store)
    models: dict[str, Model] = {
        "pyg_graphzero": gz.nn.Node2Vec(store, embedding_dim=64, sparse=True, **size)
    }
    try:
        if not args.skip_stock:
            models["stock PyG"] = StockNode2Vec(
                edges, 64, num_nodes=data.num_nodes, sparse=True, **size
            )
    except ImportError as error:
        print(f"stock PyG: left out ({error}): pip install pyg-lib")
    for name, model in models.items():
        for seed in args.seeds:
            seconds = train(model, epochs, 256, seed)
            print(
                f"{name} Node2Vec  seed {seed}  AUC {area(model, held):.4f}  {seconds:.1f} s/epoch"
            )


if __name__ == "__main__":
    main()
