"""Whom people will trust, from what was said of them lately: links with times and a window.

    curl -O https://snap.stanford.edu/data/soc-sign-bitcoinotc.csv.gz
    python examples/temporal.py soc-sign-bitcoinotc.csv.gz

Members of Bitcoin OTC rate each other from -10 to 10. A rating that is to be given is told apart,
good or bad, by those that both members had received before, and by those that their raters had: of
all times, or of a window. No rating of the same moment or a later one is looked at, and the last
ratings in time are for testing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import MLP, GINEConv

import pyg_graphzero as gz

DAY = 24 * 3600.0
# Share of the ratings, the earliest ones, to train on; the others are for testing.
TRAIN = 0.8


class Model(torch.nn.Module):
    """Members are what is said of them: they have no features."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.start = torch.nn.Parameter(torch.zeros(channels))
        self.convs = torch.nn.ModuleList(
            GINEConv(MLP([channels, channels, channels], norm=None), edge_dim=2) for _ in range(2)
        )
        self.tell = MLP([2 * channels, channels, 1], norm=None)

    def forward(self, batch: Data) -> Tensor:
        """A logit for each seed rating: high where the rating is likely to be good."""
        trees = batch.batch[batch.edge_index[1]]
        age = (batch.edge_label_time[trees] - batch.time) / (365 * DAY)
        said = torch.stack([batch.rating / 10, torch.exp(-age)], dim=1).float()
        h = self.start.expand(batch.num_nodes, -1)
        for conv in self.convs:
            h = conv(h, batch.edge_index, said).relu()
        return self.tell(h[batch.edge_label_index].transpose(0, 1).flatten(1)).view(-1)


def loaders(data: Data, days: float | None, batch_size: int) -> list[gz.loader.LinkNeighborLoader]:
    """Batches of earlier ratings, shuffled, and of later ones."""
    order = data.time.argsort()
    count = int(TRAIN * order.numel())
    return [
        gz.loader.LinkNeighborLoader(
            data,
            num_neighbors=[10, 5],
            edge_label_index=data.edge_index[:, part],
            edge_label=(data.rating[part] > 0).float(),
            edge_label_time=data.time[part],
            time_attr="time",
            temporal_strategy="last",
            time_window=None if days is None else days * DAY,
            options=gz.SamplingOptions(strictly_earlier=True),  # nor of the same moment
            batch_size=batch_size,
            shuffle=shuffle,
        )
        for part, shuffle in ((order[:count], True), (order[count:], False))
    ]


def area(scores: Tensor, labels: Tensor) -> float:
    """AUC: how often a good rating scores above a bad one."""
    bad = scores[labels == 0].sort().values
    below = torch.searchsorted(bad, scores[labels == 1])
    return float(below.double().mean()) / bad.numel()


def run(data: Data, days: float | None, epochs: int, seed: int) -> float:
    """Trains with a window and returns the AUC of later ratings."""
    torch.manual_seed(seed)
    train, test = loaders(data, days, 512)
    model = Model(32)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(epochs):
        for batch in train:
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(batch), batch.edge_label).backward()
            optimizer.step()
    with torch.no_grad():
        found = [(model(batch), batch.edge_label) for batch in test]
    scores, labels = (torch.cat(part) for part in zip(*found, strict=True))
    return area(scores, labels)


def main() -> None:
    """Runs the example."""
    parser = argparse.ArgumentParser(description="Ratings in time, from those of a window.")
    parser.add_argument("ratings", type=Path, help="soc-sign-bitcoinotc.csv[.gz]")
    parser.add_argument("--store", type=Path, default=Path("bitcoin_otc"))
    parser.add_argument("--windows", type=float, nargs="+", default=[30, 180], help="days")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two epochs")
    args = parser.parse_args()

    columns = {"rating": "2", "time": "3"}
    gz.convert(args.ratings, args.store, edge_attrs=columns, force=True, progress=False)
    data = gz.open(args.store).data()
    print(f"{data.num_nodes:,} members, {data.num_edges:,} ratings")
    for days in (*args.windows, None):
        name = "all times" if days is None else f"{days:g} days"
        for seed in args.seeds:
            found = run(data, days, 2 if args.quick else args.epochs, seed)
            print(f"window of {name}  seed {seed}  AUC {found:.4f}", flush=True)


if __name__ == "__main__":
    main()
