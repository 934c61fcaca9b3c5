"""One PyG training script, with either neighbour loader.

    python examples/swap_loader.py --loader stock
    python examples/swap_loader.py --loader graphzero
    python examples/swap_loader.py --loader both --seeds 0 1 2
    python examples/swap_loader.py --loader graphzero --accelerate

The runs differ in ``load_stock`` and ``load_graphzero``: the import, and where data comes from.
Everything below them is ordinary PyG and runs with both, but for the one line that ``--accelerate``
asks for, which has an effect on this package's batches. ``both`` prints the difference of the mean
test accuracies. The stock loader needs pyg-lib or torch-sparse; without them stock PyG trains the
model on the whole graph at once, for as long as this package took. ``make demo`` is ``both``. A
linear classifier on features averaged over two hops reaches 0.861.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
import torch_geometric.typing
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import BatchNorm, SAGEConv
from torch_geometric.utils import to_torch_csr_tensor

from wordnet import load_graph, train_epochs

STORE = Path(__file__).resolve().parent / "out" / "wordnet_swap"
LINEAR_BASELINE = 0.861
# Seconds on the whole graph, where stock PyG trains alone.
ALONE = 60.0


def load_stock(args: argparse.Namespace) -> tuple[type, Data]:
    """Stock PyG: the graph in memory."""
    from torch_geometric.loader import NeighborLoader

    return NeighborLoader, load_graph(args.num_features)


def load_graphzero(args: argparse.Namespace) -> tuple[type, Data]:
    """pyg_graphzero: the graph on disk."""
    import pyg_graphzero as gz
    from pyg_graphzero.loader import NeighborLoader

    # A script of one's own converts once, beforehand, and only opens here.
    args.store.parent.mkdir(parents=True, exist_ok=True)
    gz.convert(load_graph(args.num_features), args.store, force=True)
    return NeighborLoader, gz.open(args.store).data()


class SAGE(torch.nn.Module):
    """Two GraphSAGE layers."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = SAGEConv(in_channels, hidden_channels)
        self.norm = BatchNorm(hidden_channels)
        self.conv2 = SAGEConv(hidden_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits of the nodes of the batch."""
        x = self.norm(self.conv1(x, edge_index)).relu()
        x = F.dropout(x, p=0.3, training=self.training)
        return self.conv2(x, edge_index)


def build_model(data: Data, seed: int) -> SAGE:
    """The model; the same seed gives the same first weights."""
    torch.manual_seed(seed)
    return SAGE(data.x.size(1), 128, int(data.y.max()) + 1)


def train_and_test(loader_class: type, data: Data, args: argparse.Namespace, seed: int) -> float:
    """One training from scratch; returns the test accuracy after the last epoch."""
    model = build_model(data, seed)
    train_loader = loader_class(
        data,
        num_neighbors=[8, 5],
        batch_size=512,
        input_nodes=data.train_mask,
        shuffle=True,
    )
    # Every neighbour: what is left of the noise comes from training alone.
    test_loader = loader_class(
        data, num_neighbors=[-1, -1], batch_size=2048, input_nodes=data.test_mask
    )
    if args.accelerate:
        from pyg_graphzero.nn import accelerate

        accelerate(model, norms="trimmed")  # BatchNorm sees the rows that are needed, no others

    def loss_of(batch: Data) -> Tensor:
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        return F.cross_entropy(out, batch.y[: batch.batch_size])

    for line in train_epochs(model, train_loader, args.epochs, loss_of):
        print(line, flush=True)
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for batch in test_loader:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            correct += int((out.argmax(dim=1) == batch.y[: batch.batch_size]).sum())
            total += batch.batch_size
    return correct / total


def train_whole_graph(data: Data, seconds: float, seed: int) -> float:
    """Trains on the whole graph at once, which needs no sampler; returns the test accuracy."""
    model = build_model(data, seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse ")
        # PyG multiplies by a sparse matrix in half the time it takes to gather and scatter.
        adj_t = to_torch_csr_tensor(data.edge_index.flip(0), size=(data.num_nodes, data.num_nodes))
    optimizer = torch.optim.Adam(model.parameters())
    started, done = time.perf_counter(), 0.0
    while done < 1:
        optimizer.param_groups[0]["lr"] = 0.01 * (1 + math.cos(math.pi * done))
        optimizer.zero_grad()
        logits = model(data.x, adj_t)
        F.cross_entropy(logits[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
        done = (time.perf_counter() - started) / seconds
    model.eval()
    with torch.no_grad():
        correct = model(data.x, adj_t).argmax(dim=1) == data.y
    return float(correct[data.test_mask].float().mean())


LOADERS = {"graphzero": load_graphzero, "stock": load_stock}


def run(name: str, train: Callable[[int], float], args: argparse.Namespace) -> list[float]:
    """Trains once for each seed and prints what comes out."""
    accuracies = []
    for seed in args.seeds:
        started = time.perf_counter()
        accuracies.append(train(seed))
        seconds = time.perf_counter() - started
        print(
            f"{name}  seed {seed}  test accuracy {accuracies[-1]:.4f}  {seconds:.1f} s", flush=True
        )
    if len(accuracies) > 1:
        print(
            f"{name}: test accuracy {statistics.mean(accuracies):.4f} "
            f"± {statistics.stdev(accuracies):.4f} over {len(accuracies)} seeds",
            flush=True,
        )
    return accuracies


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The same PyG script with either loader.")
    parser.add_argument("--loader", choices=[*LOADERS, "both"], default="graphzero")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--num-features", type=int, default=512)
    parser.add_argument("--store", type=Path, default=STORE, help="where the store is written")
    parser.add_argument("--accelerate", action="store_true", help="compute rows of the seeds alone")
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")
    args = parser.parse_args()
    if args.quick:
        args.epochs, args.num_features = 1, 64
    return args


def main() -> None:
    args = parse_args()
    accuracies: dict[str, list[float]] = {}
    seconds = ALONE * len(args.seeds)
    for name in list(LOADERS) if args.loader == "both" else [args.loader]:
        loader_class, data = LOADERS[name](args)
        train = partial(train_and_test, loader_class, data, args)
        if name == "stock" and not (
            torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE
        ):
            name = "stock, whole graph"
            print(
                "stock: PyG's own NeighborLoader samples with pyg-lib or torch-sparse, and neither "
                f"is installed. It trains on the whole graph, {seconds / len(args.seeds):.0f} s a "
                "seed: its accuracy still rises then. To compare loaders, install pyg-lib by "
                "https://pytorch-geometric.readthedocs.io/en/latest/install/installation.html or, "
                "compiling for a while:\n"
                "  pip install --no-build-isolation torch-scatter torch-sparse",
                flush=True,
            )
            train = partial(train_whole_graph, data, seconds / len(args.seeds))
        started = time.perf_counter()
        accuracies[name] = run(name, train, args)
        seconds = time.perf_counter() - started
    means = {name: statistics.mean(values) for name, values in accuracies.items()}
    if len(means) == 2:
        ours, stock = means
        difference = 100 * (means[ours] - means[stock])
        print(f"difference of the means ({ours} - {stock}): {difference:+.2f} points")
    print(f"linear model on 2-hop means, for comparison: {LINEAR_BASELINE:.3f}")
    if not args.quick and means.get("graphzero", 1) <= LINEAR_BASELINE:
        sys.exit("The test accuracy is below that of the linear model.")


if __name__ == "__main__":
    main()
