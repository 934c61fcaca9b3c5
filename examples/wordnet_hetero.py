"""A heterogeneous GraphSAGE on WordNet's words and synsets, from a store on disk.

    python examples/wordnet_hetero.py

Words and synsets are two node types; each relation between synsets (hypernym, part, ...) is an edge
type, and so is "word means synset", each with its reverse. The model gives every edge type weights
of its own with ``HeteroConv`` and predicts the topic of the synsets. Nothing in it knows about the
disk: the store's ``data()`` is handed to the loader where a ``HeteroData`` would be. Its code needs
no change for ``gz.nn.accelerate``, which has it compute rows for the seeds of a batch alone.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import BatchNorm, HeteroConv, Linear, SAGEConv
from torch_geometric.typing import EdgeType, NodeType

import pyg_graphzero as gz
from wordnet import load_hetero_graph, train_epochs

STORE = Path(__file__).resolve().parent / "out" / "wordnet_hetero"


class HeteroSAGE(torch.nn.Module):
    """GraphSAGE with one set of weights for each edge type.

    Args:
        in_channels: Width of ``x`` by node type.
        edge_types: The edge types to pass messages along.
        hidden_channels: Width of the hidden rows of all node types.
        out_channels: Number of classes.
        target: The node type to predict.
    """

    def __init__(
        self,
        in_channels: dict[NodeType, int],
        edge_types: list[EdgeType],
        hidden_channels: int,
        out_channels: int,
        target: NodeType,
    ) -> None:
        super().__init__()
        self.target = target
        self.encoders = torch.nn.ModuleDict(
            {name: Linear(width, hidden_channels) for name, width in in_channels.items()}
        )
        self.convs, self.roots, self.norms = (torch.nn.ModuleList() for _ in range(3))
        for _ in range(2):
            width = hidden_channels
            # The row of the node itself gets one weight for each node type, not each edge type.
            convs = {t: SAGEConv((width, width), width, root_weight=False) for t in edge_types}
            self.convs.append(HeteroConv(convs, aggr="sum"))
            self.roots.append(
                torch.nn.ModuleDict({name: Linear(width, width) for name in in_channels})
            )
            self.norms.append(torch.nn.ModuleDict({name: BatchNorm(width) for name in in_channels}))
        self.classifier = Linear(hidden_channels, out_channels)

    def forward(
        self, x_dict: dict[NodeType, Tensor], edge_index_dict: dict[EdgeType, Tensor]
    ) -> Tensor:
        """Logits of all nodes of the target type."""
        hidden = {name: self.encoders[name](x) for name, x in x_dict.items()}
        layers: Any = zip(self.convs, self.roots, self.norms, strict=True)
        for conv, roots, norms in layers:
            messages = conv(hidden, edge_index_dict)
            hidden = {
                name: F.dropout(
                    norms[name](roots[name](x) + messages.get(name, 0)).relu(),
                    p=0.3,
                    training=self.training,
                )
                for name, x in hidden.items()
            }
        return self.classifier(hidden[self.target])


@torch.no_grad()
def evaluate(model: HeteroSAGE, loader: NeighborLoader) -> float:
    """Share of the loader's synsets whose topic is predicted right."""
    model.eval()
    correct = total = 0
    for batch in loader:
        size = batch["synset"].batch_size
        out = model(batch.x_dict, batch.edge_index_dict)[:size]
        correct += int((out.argmax(dim=1) == batch["synset"].y[:size]).sum())
        total += size
    return correct / total


def train(data: HeteroData, args: argparse.Namespace) -> float:
    """Trains, prints the accuracy of each epoch, and returns the last test accuracy."""
    torch.manual_seed(args.seed)
    synset = data["synset"]

    def loader(mask: Tensor, batch_size: int, shuffle: bool = False) -> NeighborLoader:
        return gz.loader.NeighborLoader(
            data,
            num_neighbors=args.fanout,
            input_nodes=("synset", mask),
            batch_size=batch_size,
            shuffle=shuffle,
            num_workers=args.workers,
        )

    train_loader = loader(synset.train_mask, args.batch_size, shuffle=True)
    val_loader, test_loader = loader(synset.val_mask, 2048), loader(synset.test_mask, 2048)
    model = HeteroSAGE(
        in_channels={name: data[name].x.size(1) for name in data.node_types},
        edge_types=data.edge_types,
        hidden_channels=args.hidden,
        out_channels=int(synset.y.max()) + 1,
        target="synset",
    )
    # BatchNorms see the rows that are needed, and no others, which takes a word: "trimmed".
    gz.nn.accelerate(model, norms="trimmed")

    def loss_of(batch: HeteroData) -> Tensor:
        size = batch["synset"].batch_size
        out = model(batch.x_dict, batch.edge_index_dict)[:size]
        return F.cross_entropy(out, batch["synset"].y[:size])

    accuracy = 0.0
    for line in train_epochs(model, train_loader, args.epochs, loss_of):
        accuracy = evaluate(model, test_loader)
        print(f"{line}  val {evaluate(model, val_loader):.4f}  test {accuracy:.4f}", flush=True)
    return accuracy


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Heterogeneous GraphSAGE on WordNet, from disk.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--fanout", type=int, nargs=2, default=[4, 3], help="by edge type")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--workers", type=int, default=0, help="loader workers")
    parser.add_argument("--store", type=Path, default=STORE, help="where the store is written")
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")
    args = parser.parse_args()
    if args.quick:
        args.epochs, args.hidden = 1, 32
    return args


def main() -> None:
    args = parse_args()
    started = time.perf_counter()
    print("Reading WordNet ...", flush=True)
    small = {"num_features": 64, "min_pairs": 20_000} if args.quick else {}
    data = load_hetero_graph(**small)
    for name in data.node_types:
        print(f"  {data[name].num_nodes:>9,} nodes  {name}")
    for edge_type in data.edge_types:
        print(f"  {data[edge_type].num_edges:>9,} edges  {' '.join(edge_type)}")

    args.store.parent.mkdir(parents=True, exist_ok=True)
    gz.convert(data, args.store, force=True)
    store = gz.open(args.store)
    print(f"\nFrom disk ({args.store}):", flush=True)
    accuracy = train(store.data(), args)
    print(f"\nTest accuracy {accuracy:.4f}, {time.perf_counter() - started:.0f} s in all.")


if __name__ == "__main__":
    main()
