"""One PyG training script, with either neighbour loader.

    python examples/swap_loader.py --loader stock
    python examples/swap_loader.py --loader graphzero
    python examples/swap_loader.py --loader both --seeds 0 1 2
    python examples/swap_loader.py --loader graphzero --accelerate

The runs differ in ``load_stock`` and ``load_graphzero``: the import, and where data comes from.
Everything below them is ordinary PyG and runs with both, but for the one line that ``--accelerate``
asks for, which has an effect on this package's batches. ``both`` prints the difference of the mean
test accuracies. The stock loader needs pyg-lib or torch-sparse; without them it is left out.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F
import torch_geometric.typing
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import BatchNorm, SAGEConv
from tqdm import tqdm

from wordnet import load_graph

STORE = Path(__file__).resolve().parent / "out" / "wordnet_swap"


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


def train_and_test(loader_class: type, data: Data, seed: int, args: argparse.Namespace) -> float:
    """One training from scratch; returns the test accuracy after the last epoch."""
    torch.manual_seed(seed)
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
    model = SAGE(data.x.size(1), 128, int(data.y.max()) + 1)
    if args.accelerate:
        from pyg_graphzero.nn import accelerate

        accelerate(model, norms="trimmed")  # BatchNorm sees the rows that are needed, no others
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, args.epochs * len(train_loader)
    )

    model.train()
    for epoch in range(1, args.epochs + 1):
        bar = tqdm(
            train_loader,
            desc=f"epoch {epoch}/{args.epochs}",
            unit="batch",
            leave=False,
            disable=None,
        )
        for batch in bar:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            schedule.step()

    model.eval()
    correct = total = 0
    with torch.no_grad():
        for batch in test_loader:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            correct += int((out.argmax(dim=1) == batch.y[: batch.batch_size]).sum())
            total += batch.batch_size
    return correct / total


LOADERS = {"stock": load_stock, "graphzero": load_graphzero}


def run(name: str, args: argparse.Namespace) -> list[float]:
    """Trains once for each seed with one of the loaders and prints what comes out."""
    loader_class, data = LOADERS[name](args)
    accuracies = []
    for seed in args.seeds:
        started = time.perf_counter()
        accuracies.append(train_and_test(loader_class, data, seed, args))
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
    names = list(LOADERS) if args.loader == "both" else [args.loader]
    if "stock" in names and not (
        torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE
    ):
        print(
            "stock: left out. PyG's own NeighborLoader samples with pyg-lib or torch-sparse, and "
            "neither is installed. To compare, install one of them, either pyg-lib by "
            "https://pytorch-geometric.readthedocs.io/en/latest/install/installation.html or, "
            "compiling for a while:\n"
            "  pip install --no-build-isolation torch-scatter torch-sparse"
        )
        names.remove("stock")
    accuracies = {name: run(name, args) for name in names}
    if len(accuracies) == 2:
        means = {name: statistics.mean(values) for name, values in accuracies.items()}
        difference = 100 * (means["graphzero"] - means["stock"])
        print(f"difference of the means (graphzero - stock): {difference:+.2f} points")


if __name__ == "__main__":
    main()
