"""Steps of PyG's example scripts with data and loaders, on small graphs with a known answer."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GraphSAGE, SAGEConv, to_hetero
from torch_geometric.utils import trim_to_layer

import pyg_graphzero as gz
from graphs import write_store
from pyg_graphzero.loader import LinkNeighborLoader, NeighborLoader

CLASSES = 4


def linked_by_class(
    of_src: Tensor, of_dst: Tensor, num_edges: int, generator: torch.Generator
) -> Tensor:
    """Random edges, nine in ten of them between nodes of one class."""
    src = torch.randint(0, len(of_src), (20 * num_edges,), generator=generator)
    dst = torch.randint(0, len(of_dst), (20 * num_edges,), generator=generator)
    keep = of_src[src] == of_dst[dst]
    keep |= torch.rand(len(keep), generator=generator) < 0.1 / (CLASSES - 1)
    return torch.stack([src, dst])[:, keep][:, :num_edges]


def noisy(of: Tensor, channels: int, noise: float, generator: torch.Generator) -> Tensor:
    """Features that hint at a class: a node's own are not enough, its neighbours' mean is."""
    centers = torch.eye(CLASSES, channels)
    return centers[of] + noise * torch.randn(len(of), channels, generator=generator)


def planted(num_nodes: int = 600) -> Data:
    generator = torch.Generator().manual_seed(5)
    y = torch.randint(0, CLASSES, (num_nodes,), generator=generator)
    split = torch.rand(num_nodes, generator=generator)
    return Data(
        x=noisy(y, 16, 0.7, generator),
        y=y,
        edge_index=linked_by_class(y, y, 8 * num_nodes, generator),
        train_mask=split < 0.6,
        val_mask=(split >= 0.6) & (split < 0.8),
        test_mask=split >= 0.8,
    )


def planted_mag() -> HeteroData:
    """Papers, authors and institutions; half of the papers have no label (NaN), as in MAG240M."""
    generator = torch.Generator().manual_seed(6)
    of = {
        name: torch.randint(0, CLASSES, (count,), generator=generator)
        for name, count in (("paper", 500), ("author", 300), ("institution", 20))
    }
    data = HeteroData()
    for name, noise in (("paper", 0.7), ("author", 0.4), ("institution", 0.3)):
        data[name].x = noisy(of[name], 16, noise, generator).half()
    split = torch.rand(500, generator=generator)
    y = of["paper"].float()
    y[split >= 0.9] = float("nan")
    data["paper"].y = y
    data["paper"].train_mask = split < 0.6
    data["paper"].val_mask = (split >= 0.6) & (split < 0.9)
    for name, count in (
        (("author", "writes", "paper"), 3000),
        (("author", "affiliated_with", "institution"), 600),
        (("paper", "cites", "paper"), 3000),
    ):
        edges = linked_by_class(of[name[0]], of[name[2]], count, generator)
        data[name].edge_index = edges
        if name[0] != name[2]:
            data[name[2], f"rev_{name[1]}", name[0]].edge_index = edges.flip(0)
    return data


@pytest.fixture(scope="module")
def planted_store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Data, Path]:
    data = planted()
    return data, write_store(data, tmp_path_factory.mktemp("planted") / "store")


@pytest.fixture(scope="module")
def mag_store(tmp_path_factory: pytest.TempPathFactory) -> tuple[HeteroData, Path]:
    data = planted_mag()
    return data, write_store(data, tmp_path_factory.mktemp("mag") / "store")


@pytest.fixture(autouse=True)
def _one_thread():
    # These models are so small that threads would mostly wait for each other.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class SAGE(torch.nn.Module):
    def __init__(self, channels: list[int]) -> None:
        super().__init__()
        pairs = itertools.pairwise(channels)
        self.convs = torch.nn.ModuleList(SAGEConv(a, b) for a, b in pairs)

    def forward(self, x, edge_index):
        for i, conv in enumerate(self.convs):
            x = conv(x, edge_index)
            x = x.relu() if i + 1 < len(self.convs) else x
        return x


# Every script runs unchanged, and with ``accelerate``, the one line that makes it faster.
@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.long)], autouse=True)
def _accelerated(request, monkeypatch):
    if request.param:
        as_it_is = fit
        monkeypatch.setitem(
            globals(), "fit", lambda model, *a, **k: as_it_is(gz.nn.accelerate(model), *a, **k)
        )


def accuracy(out: Tensor, y: Tensor) -> float:
    return float((out.argmax(-1) == y).float().mean())


def fit(model, loader, step, epochs: int, lr: float = 0.01) -> list[float]:
    """Trains; ``step`` is a batch's loss. Returns the mean loss of every epoch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            loss = step(batch)
            loss.backward()
            optimizer.step()
            total += float(loss.detach())
        losses.append(total / len(loader))
    return losses


@pytest.mark.parametrize("workers", [0, 2])
def test_reddit(planted_store, workers):
    """Train on batches; infer all nodes, a layer at a time, with a loader bare of features."""
    memory, path = planted_store
    data = gz.open(path).data()
    data = data.to("cpu", "x", "y")
    assert data.num_features == data.num_node_features == 16
    kwargs = {"batch_size": 128, "num_workers": workers, "persistent_workers": workers > 0}
    train_loader = NeighborLoader(
        data, input_nodes=data.train_mask, num_neighbors=[10, 5], shuffle=True, **kwargs
    )
    subgraph_loader = NeighborLoader(
        copy.copy(data), input_nodes=None, num_neighbors=[-1], shuffle=False, **kwargs
    )
    # Features are looked up outside the batch, so none should travel with it.
    del subgraph_loader.data.x, subgraph_loader.data.y
    subgraph_loader.data.num_nodes = data.num_nodes
    subgraph_loader.data.n_id = torch.arange(data.num_nodes)
    assert "x" in data
    assert "x" not in subgraph_loader.data

    model = SAGE([16, 32, CLASSES])

    def step(batch):
        assert batch.batch_size <= 128
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        return F.cross_entropy(out, batch.y[: batch.batch_size])

    losses = fit(model, train_loader, step, epochs=4 if workers else 10)
    assert losses[-1] < losses[0]

    model.eval()
    with torch.no_grad():
        x_all = data.x
        for i, conv in enumerate(model.convs):
            xs = []
            for batch in subgraph_loader:
                assert "x" not in batch
                assert "y" not in batch
                x = conv(x_all[batch.n_id], batch.edge_index)[: batch.batch_size]
                xs.append(x.relu() if i == 0 else x)
            x_all = torch.cat(xs)
        want = model(memory.x, memory.edge_index)
    assert torch.allclose(x_all, want, atol=1e-4)
    assert accuracy(x_all[data.test_mask], data.y[data.test_mask]) > (0.7 if workers else 0.85)


def test_to_hetero_mag(mag_store):
    """A lazily sized homogeneous model made heterogeneous by ``metadata()``."""
    memory, path = mag_store
    data = gz.open(path).data().to("cpu", "x", "y")
    assert data.metadata() == memory.metadata()
    for node_type in data.node_types:
        data[node_type].x = data[node_type].x.float()
        assert data[node_type].num_features == 16
    kwargs = {"num_neighbors": [10, 10], "batch_size": 128}
    train_loader = NeighborLoader(
        data, input_nodes=("paper", data["paper"].train_mask), shuffle=True, **kwargs
    )
    val_loader = NeighborLoader(data, input_nodes=("paper", data["paper"].val_mask), **kwargs)
    model = to_hetero(GraphSAGE((-1, -1), 32, 2, CLASSES), data.metadata(), aggr="sum")
    with torch.no_grad():  # sizes the lazy modules
        batch = next(iter(train_loader)).to("cpu", "edge_index")
        model(batch.x_dict, batch.edge_index_dict)

    def forward(batch):
        seeds = batch["paper"].batch_size
        out = model(batch.x_dict, batch.edge_index_dict)["paper"][:seeds]
        return out, batch["paper"].y[:seeds].long()

    fit(model, train_loader, lambda b: F.cross_entropy(*forward(b)), epochs=6)
    model.eval()
    with torch.no_grad():
        assert sum(accuracy(*forward(b)) for b in val_loader) / len(val_loader) > 0.85


def planted_ratings() -> HeteroData:
    """Users rate films of their own taste highly; features are the nodes' identities."""
    generator = torch.Generator().manual_seed(7)
    users = torch.randint(0, CLASSES, (80,), generator=generator)
    movies = torch.randint(0, CLASSES, (40,), generator=generator)
    data = HeteroData()
    data["user"].num_nodes = 80
    data["movie"].x = noisy(movies, 8, 0.3, generator)
    edges = linked_by_class(users, movies, 1500, generator)
    data["user", "rates", "movie"].edge_index = edges
    data["user", "rates", "movie"].edge_label = torch.randint(0, 5, (1500,), generator=generator)
    data["user", "rates", "movie"].time = torch.randint(0, 1000, (1500,), generator=generator)
    data["movie", "rev_rates", "user"].edge_index = edges.flip(0)
    for attr in ("edge_label", "time"):
        data["movie", "rev_rates", "user"][attr] = data["user", "rates", "movie"][attr]
    return data


def test_temporal_link_pred(tmp_path):
    """Links of the future from links of the past: no sampled edge is as new as its seed."""
    memory = planted_ratings()
    data = gz.open(write_store(memory, tmp_path / "store")).data()
    data["user"].x = torch.eye(data["user"].num_nodes)
    del data["user"].num_nodes
    del data["movie", "rev_rates", "user"].edge_label  # else labels leak
    assert "edge_label" not in data["movie", "rev_rates", "user"]

    rates = data["user", "rates", "movie"]
    order = rates.time.argsort()
    train, test = order[:1100], order[1100:]
    kwargs = {
        "num_neighbors": [8, 4],
        "batch_size": 256,
        "time_attr": "time",
        "temporal_strategy": "last",
        "neg_sampling": {"mode": "binary", "amount": 2},
    }

    def make(index, **more):
        return LinkNeighborLoader(
            data,
            edge_label_index=(("user", "movie"), rates.edge_index[:, index]),
            edge_label_time=rates.time[index] - 1,  # only strictly earlier edges
            **kwargs,
            **more,
        )

    encoder = to_hetero(SAGE([(-1, -1), 32, 16]), data.metadata(), aggr="sum")

    def forward(batch):
        links = batch["user", "movie"]
        z = encoder(batch.x_dict, batch.edge_index_dict)
        src, dst = links.edge_label_index
        return (z["user"][src] * z["movie"][dst]).sum(-1), (links.edge_label > 0).float()

    train_loader = make(train, shuffle=True)
    for batch in train_loader:
        links = batch["user", "movie"]
        assert links.edge_label.numel() == 3 * links.input_id.numel()
        assert "edge_label" not in batch["movie", "user"]
        # Every seed's tree is named by ``batch``; no edge of it is later than the seed's time.
        for name in data.edge_types:
            tree = batch[name[2]].batch[batch[name].edge_index[1]]
            assert (batch[name].time <= links.edge_label_time[tree]).all()
    fit(encoder, train_loader, lambda b: F.binary_cross_entropy_with_logits(*forward(b)), epochs=8)
    encoder.eval()
    with torch.no_grad():
        scores, labels = zip(*(forward(b) for b in make(test)), strict=True)
    scores, labels = torch.cat(scores), torch.cat(labels)
    # Area under the ROC curve: how often a true link scores above a random pair. One pair in four
    # of those is of one taste too, and cannot be told from a link.
    above = scores[labels == 1][:, None] > scores[labels == 0][None]
    assert above.float().mean() > 0.7


def test_hierarchical_sampling_heterogeneous(mag_store):
    _, path = mag_store
    data = gz.open(path).data()
    loader = NeighborLoader(
        data, [5, 3], input_nodes=("paper", data["paper"].train_mask), batch_size=64
    )
    torch.manual_seed(0)
    convs = torch.nn.ModuleList(
        to_hetero(SAGE([width, 8]), data.metadata()) for width in ((-1, -1), 8)
    ).eval()

    def run(batch, trim: bool):
        x, edge_index = {k: v.float() for k, v in batch.x_dict.items()}, batch.edge_index_dict
        for i, conv in enumerate(convs):
            if trim:
                x, edge_index, _ = trim_to_layer(
                    i, batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict, x, edge_index
                )
            x = conv(x, edge_index)
        return x["paper"][: batch["paper"].batch_size]

    with torch.no_grad():
        for batch in loader:
            assert torch.allclose(run(batch, True), run(batch, False), atol=1e-4)
