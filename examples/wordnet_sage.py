"""Train a PyG GraphSAGE on WordNet, the graph on disk, and compare with stock PyG in memory.

    python examples/wordnet_sage.py

It converts Open English WordNet (98,786 synsets, 41 topics) into a store under ``examples/out``,
opens it from disk, trains a 3-layer GraphSAGE from it, accelerated by ``gz.nn.accelerate``, prints
the accuracy of every epoch, and then trains the same model with stock PyG from the same graph in
memory: from batches where stock PyG has a sampler, otherwise on the whole graph at once for as long
as the batches took (``--stock-steps 100``: until it is as accurate). A linear classifier on
features averaged over two hops reaches 0.861.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
import torch_geometric.typing
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader as StockNeighborLoader
from torch_geometric.nn import GraphSAGE
from torch_geometric.utils import to_torch_csr_tensor
from tqdm import tqdm

import pyg_graphzero as gz
from wordnet import load_graph, train_epochs

STORE = Path(__file__).resolve().parent / "out" / "wordnet"
LINEAR_BASELINE = 0.861

# Wide enough to take nearly every neighbour: most synsets have fewer than five.
EVAL_FANOUT = [25, 15, 10]

Forward = Callable[[GraphSAGE, Data], Tensor]


def build_model(data: Data, args: argparse.Namespace) -> GraphSAGE:
    """The model of both runs; the same seed gives the same first weights."""
    torch.manual_seed(args.seed)
    return GraphSAGE(
        in_channels=data.x.size(1),
        hidden_channels=args.hidden,
        num_layers=len(args.fanout),
        out_channels=int(data.y.max()) + 1,
        dropout=0.3,
        norm="batch",
    )


def accelerated(model: GraphSAGE) -> GraphSAGE:
    """Makes the layers of ``model`` compute only the rows that later layers need.

    Its BatchNorms see fewer rows by that, which changes their statistics and takes a word:
    ``norms="trimmed"``. PyG's ``trim_to_layer`` changes them too, where it leaves out a hop less.
    """
    return gz.nn.accelerate(model, norms="trimmed")


def forward(model: GraphSAGE, batch: Data) -> Tensor:
    """Logits of the seeds, which come first."""
    return model(batch.x, batch.edge_index)[: batch.batch_size]


def stock_forward(model: GraphSAGE, batch: Data) -> Tensor:
    """Logits of the seeds, trimmed by PyG where the loader counts by hop (not by torch-sparse)."""
    out = model(
        batch.x,
        batch.edge_index,
        num_sampled_nodes_per_hop=getattr(batch, "num_sampled_nodes", None),
        num_sampled_edges_per_hop=getattr(batch, "num_sampled_edges", None),
    )
    return out[: batch.batch_size]


@torch.no_grad()
def evaluate(model: GraphSAGE, loader: StockNeighborLoader, forward: Forward) -> float:
    """Share of the loader's seeds whose class is predicted right."""
    model.eval()
    correct = total = 0
    for batch in loader:
        correct += int((forward(model, batch).argmax(dim=1) == batch.y[: batch.batch_size]).sum())
        total += batch.batch_size
    return correct / total


def train_mini_batch(
    model: GraphSAGE,
    forward: Forward,
    loader_class: Callable[..., StockNeighborLoader],
    data: Data,
    args: argparse.Namespace,
) -> float:
    """Trains from batches of either loader and returns the test accuracy.

    The accuracy of the epoch with the best validation accuracy counts.
    """

    def loader(mask: Tensor, fanout: list[int], **options: object) -> StockNeighborLoader:
        return loader_class(
            data, num_neighbors=fanout, input_nodes=mask, num_workers=args.workers, **options
        )

    eval_fanout = EVAL_FANOUT[: len(args.fanout)]
    train = loader(data.train_mask, args.fanout, batch_size=args.batch_size, shuffle=True)
    val = loader(data.val_mask, eval_fanout, batch_size=2048)
    test = loader(data.test_mask, eval_fanout, batch_size=2048)

    def loss_of(batch: Data) -> Tensor:
        return F.cross_entropy(forward(model, batch), batch.y[: batch.batch_size])

    best_val = best_test = 0.0
    for line in train_epochs(model, train, args.epochs, loss_of):
        val_accuracy, test_accuracy = (evaluate(model, loader, forward) for loader in (val, test))
        if val_accuracy >= best_val:
            best_val, best_test = val_accuracy, test_accuracy
        print(f"{line}  val {val_accuracy:.4f}  test {test_accuracy:.4f}", flush=True)
    return best_test


def train_full_batch(data: Data, args: argparse.Namespace, seconds: float) -> tuple[float, int]:
    """Trains the same model on the whole graph at once, which needs no sampler.

    Args:
        data: The graph.
        args: The arguments; ``stock_steps``, unless 0, is the number of steps.
        seconds: Time limit where ``stock_steps`` is 0.

    Returns:
        The test accuracy, and the number of steps.
    """
    model = build_model(data, args)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse ")
        # PyG multiplies by a sparse matrix in half the time it takes to gather and scatter.
        adj_t = to_torch_csr_tensor(data.edge_index.flip(0), size=(data.num_nodes, data.num_nodes))
    optimizer = torch.optim.Adam(model.parameters())
    started, steps, done = time.perf_counter(), 0, 0.0
    bar = tqdm(desc="full batch", unit="step", leave=False, disable=None)
    while done < 1:
        optimizer.param_groups[0]["lr"] = 0.01 * (1 + math.cos(math.pi * done))
        optimizer.zero_grad()
        logits = model(data.x, adj_t)
        F.cross_entropy(logits[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
        steps += 1
        spent = (time.perf_counter() - started) / seconds
        done = steps / args.stock_steps if args.stock_steps else spent
        bar.update()
    bar.close()
    model.eval()
    with torch.no_grad():
        correct = model(data.x, adj_t).argmax(dim=1) == data.y
    return float(correct[data.test_mask].float().mean()), steps


def stock_sampler() -> str | None:
    """The library that stock PyG samples with, or None where neither is installed."""
    if torch_geometric.typing.WITH_PYG_LIB:
        return "pyg-lib"
    return "torch-sparse" if torch_geometric.typing.WITH_TORCH_SPARSE else None


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="GraphSAGE on WordNet, from disk.")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--fanout", type=int, nargs="+", default=[5, 5, 5])
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--workers", type=int, default=0, help="loader workers")
    parser.add_argument("--store", type=Path, default=STORE, help="where the store is written")
    parser.add_argument("--skip-stock", action="store_true", help="leave out the comparison")
    parser.add_argument(
        "--stock-steps",
        type=int,
        default=0,
        help="of stock PyG on the whole graph; 0: as many as fit into the time of our training",
    )
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")
    args = parser.parse_args()
    if len(args.fanout) > len(EVAL_FANOUT):
        parser.error(f"--fanout takes at most {len(EVAL_FANOUT)} numbers")
    if args.quick:
        args.epochs, args.hidden, args.fanout, args.stock_steps = 1, 32, [3, 3], 2
    return args


def main() -> None:
    args = parse_args()
    started = time.perf_counter()
    print("Reading WordNet ...", flush=True)
    data = load_graph(num_features=64 if args.quick else 512)
    print(
        f"{data.num_nodes:,} synsets, {data.num_edges:,} edges, {data.x.size(1)} features, "
        f"{int(data.y.max()) + 1} topics"
    )

    args.store.parent.mkdir(parents=True, exist_ok=True)
    gz.convert(data, args.store, force=True)
    store = gz.open(args.store)
    print(f"\npyg_graphzero, from disk ({args.store}):", flush=True)
    model = accelerated(build_model(data, args))
    began = time.perf_counter()
    accuracy = train_mini_batch(model, forward, gz.loader.NeighborLoader, store.data(), args)
    seconds = time.perf_counter() - began
    results = [("pyg_graphzero NeighborLoader, from disk", accuracy)]
    if not args.skip_stock:
        sampler = stock_sampler()
        if sampler is not None:
            print(f"\nStock PyG NeighborLoader with {sampler}, in memory:", flush=True)
            accuracy_of_stock = train_mini_batch(
                build_model(data, args), stock_forward, StockNeighborLoader, data, args
            )
            results.append((f"stock PyG NeighborLoader ({sampler}), in memory", accuracy_of_stock))
        else:
            as_long = (
                f"{args.stock_steps} steps" if args.stock_steps else f"as long, {seconds:.0f} s"
            )
            print(
                "\nStock PyG's NeighborLoader needs pyg-lib or torch-sparse, and neither is "
                "installed.\nStock PyG trains the same model on the whole graph at once instead, "
                f"in memory, for {as_long}.",
                flush=True,
            )
            accuracy_of_stock, steps = train_full_batch(data, args, seconds)
            name = f"stock PyG, {steps} steps on the whole graph, in memory"
            results.append((name, accuracy_of_stock))

    print(f"\nTest accuracy, the same {len(args.fanout)}-layer GraphSAGE:")
    for name, value in results:
        print(f"  {name:<50} {value:.4f}")
    print(f"  {'linear model on 2-hop means, for comparison':<50} {LINEAR_BASELINE:.4f}")
    print(f"{time.perf_counter() - started:.0f} s in all.")
    if not args.quick and accuracy <= LINEAR_BASELINE:
        sys.exit("The test accuracy is below that of the linear model.")


if __name__ == "__main__":
    main()
