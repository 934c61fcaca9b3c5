"""Models to accelerate, and batches on which they are compared with what they were."""

from __future__ import annotations

import copy
from itertools import islice

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import SAGEConv

import pyg_graphzero as gz
from pyg_graphzero.sampling.hops import SampledEdgeIndex

NUM_NODES, NUM_EDGES, WIDTH, SEEDS = 300, 2400, 12, 16


def graph(dtype=torch.float64):
    random = torch.Generator().manual_seed(3)
    edge_index = torch.randint(NUM_NODES - 20, (2, NUM_EDGES), generator=random)  # 20 isolated
    edge_index[:, 1::7] = edge_index[:, ::7][:, : edge_index[:, 1::7].size(1)]  # parallel edges
    edge_index[0, 5::50] = edge_index[1, 5::50]  # loops
    weight = torch.rand(NUM_EDGES, generator=random, dtype=dtype)
    weight[::9] = 0
    return Data(
        x=torch.randn(NUM_NODES, WIDTH, generator=random, dtype=dtype),
        edge_index=edge_index,
        edge_type=torch.randint(4, (NUM_EDGES,), generator=random),
        edge_weight=weight,
        edge_attr=torch.randn(NUM_EDGES, 5, generator=random, dtype=dtype),
        time=torch.randint(100, (NUM_NODES,), generator=random),
    )


DATA = graph()


def papers(make=torch.randn, dtype=torch.float64):
    random = torch.Generator().manual_seed(7)
    counts = {"paper": 200, "author": 150, "place": 40}
    data = HeteroData()
    for number, (name, count) in enumerate(counts.items()):
        data[name].x = make(count, 6 + 2 * number, generator=random, dtype=dtype)
    for src, name, dst, edges in (
        ("paper", "cites", "paper", 1200),
        ("author", "writes", "paper", 600),
        ("paper", "by", "author", 600),
        ("author", "at", "place", 160),
        ("place", "of", "author", 160),
    ):
        data[src, name, dst].edge_index = torch.stack(
            [torch.randint(counts[end], (edges,), generator=random) for end in (src, dst)]
        )
    return data


PAPERS = papers()


def small_integers(*size, generator, dtype=torch.float32):
    """Features whose sums are exact in any order."""
    return torch.randint(-9, 9, size, generator=generator).to(dtype)


def loader(data=DATA, num_neighbors=(4, 3, 3), **options):
    options = {"batch_size": SEEDS, "shuffle": True, **options}
    return gz.loader.NeighborLoader(
        data, list(num_neighbors), generator=torch.Generator().manual_seed(5), **options
    )


def stock(batch):
    """A copy of the batch with plain edges, without what the loader knows of them."""
    out = copy.copy(batch)
    for store in out.stores:
        if isinstance(store.get("edge_index"), SampledEdgeIndex):
            store["edge_index"] = store["edge_index"].plain()
    return out


def plain(model, batch):
    return model(batch.x, batch.edge_index)


def agree(model, fast, given, call=plain, seeds=SEEDS, error=1e-10):
    """Asserts equal outputs of the seeds, and an equal gradient, or none, of every parameter.

    ``given`` is a batch, or that of each of the two.
    """
    found = []
    pair = given if isinstance(given, tuple) else (stock(given), given)
    for each, batch in zip((model, fast), pair, strict=True):
        each.zero_grad(set_to_none=True)
        out = call(each, batch)
        out = out if seeds is None else out[: min(seeds, batch_size(batch))]
        scale = torch.arange(1, out.numel() + 1, dtype=out.dtype).view_as(out)
        (out * scale.sin()).sum().backward()
        found.append([out, *(p.grad for p in each.parameters())])
    for expected, ours in zip(*found, strict=True):
        assert (expected is None) == (ours is None)
        if ours is not None:
            torch.testing.assert_close(ours, expected, rtol=error, atol=error)


def compare(model, call, batches=None, seeds=SEEDS, count=3, **options):
    """Trains both on batches; returns the accelerated one."""
    fast = gz.nn.accelerate(copy.deepcopy(model), **options)
    batches = list(islice(loader() if batches is None else batches, count))
    assert batches
    for batch in batches:
        agree(model, fast, batch, call, seeds)
    return fast


def batch_size(batch):
    if isinstance(batch, HeteroData):
        return batch["paper"].batch_size
    return getattr(batch, "batch_size", NUM_NODES)


def hops(model):
    return [layer.hops for layer in gz.nn.explain(model).layers]


def weighted(model, batch):
    return model(batch.x, batch.edge_index, edge_weight=batch.edge_weight)


def with_attr(model, batch):
    return model(batch.x, batch.edge_index, edge_attr=batch.edge_attr)


def typed(model, batch):
    return model(batch.x_dict, batch.edge_index_dict)


def hetero_batches(**options):
    return loader(PAPERS, (3, 2, 2), input_nodes="paper", **options)


def initialized(model, call):
    with torch.no_grad():
        call(model, stock(next(iter(hetero_batches()))))
    return model


class Stack(nn.Module):
    """Two convolutions of a kind."""

    def __init__(self, make, width=16):
        super().__init__()
        self.first, self.second = make(WIDTH, width), make(width, width)

    def forward(self, x, edge_index, *rest):
        return self.second(self.first(x, edge_index, *rest).relu(), edge_index, *rest)


class Skips(nn.Module):
    """Residuals, norms and all layers' rows at the end, as in PyG's examples."""

    def __init__(self, norm):
        super().__init__()
        ins = (WIDTH, 16, 16)
        self.convs = nn.ModuleList([SAGEConv(ins[0], 16), pyg.GATConv(16, 16), SAGEConv(16, 16)])
        self.lins = nn.ModuleList([nn.Linear(i, 16) for i in ins])
        self.norms = nn.ModuleList([norm(16) for _ in ins])

    def forward(self, x, edge_index):
        xs = []
        for conv, lin, norm in zip(self.convs, self.lins, self.norms, strict=True):
            x = F.dropout(F.relu(norm(conv(x, edge_index) + lin(x))), 0.0, self.training)
            xs.append(x)
        return torch.cat(xs, -1).view(-1, 3, 16).max(dim=1).values


class Adapted(nn.Module):
    """A low-rank adapter that shows the weight of what it adapts, and begins as nothing."""

    def __init__(self, lin, is_zero=True):
        super().__init__()
        outs, ins = lin.weight.shape
        self.lin = lin
        self.down = nn.Parameter(torch.randn(2, ins))
        self.up = nn.Parameter((torch.zeros if is_zero else torch.randn)(outs, 2))

    weight = property(lambda self: self.lin.weight)
    bias = property(lambda self: self.lin.bias)

    def forward(self, x):
        return self.lin(x) + x @ self.down.t() @ self.up.t()


class Halves(torch.autograd.Function):
    """A gradient of its own, by the number of rows or not."""

    @staticmethod
    def forward(ctx, rows, by_rows):
        ctx.by_rows = by_rows
        return rows.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad / (len(grad) if ctx.by_rows else 2), None


class TypedPair(nn.Module):
    """Two layers of HGT over papers, authors and places."""

    def __init__(self):
        super().__init__()
        widths = {name: x.size(1) for name, x in PAPERS.x_dict.items()}
        self.first = pyg.HGTConv(widths, 16, PAPERS.metadata(), 2)
        self.second = pyg.HGTConv(16, 16, PAPERS.metadata(), 2)

    def forward(self, x_dict, edge_index_dict):
        """Rows of papers."""
        return self.second(self.first(x_dict, edge_index_dict), edge_index_dict)["paper"]


WAYS = [
    {},
    {"disjoint": True},
    {"replace": True},
    {"weight_attr": "edge_weight"},
    {"time_attr": "time", "input_time": torch.full((NUM_NODES,), 60)},
    {"options": gz.SamplingOptions(method="labor")},
    {"num_neighbors": (-1, 0, 2)},
    {"num_neighbors": (0, 0, 0)},
    {"num_neighbors": (-1,)},
    {"input_nodes": torch.tensor([1, 1, 290, 5, 290, 1]), "batch_size": 6},
    {"input_nodes": torch.tensor([299]), "batch_size": 1},
    {"num_workers": 2},
]
