"""Random models, and what users do with these: accelerated against stock, output, gradient, state.

A model is drawn from a grammar (convolutions, norms, residuals, adapters, state of its own, Python
branches), then trained and changed in a random sequence. After each batch both have the same rows
of the seeds, the same gradients (missing ones too), buffers and kept rows, to 1e-8.
"""

from __future__ import annotations

import contextlib
import copy
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "support"))

import torch
import torch_geometric.nn as pyg
from accelerated import SEEDS, WIDTH, Adapted, Halves, loader
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

import pyg_graphzero as gz

HIDDEN = 8
_batches: list[Any] = []


def setup(directory: Path) -> None:
    """Makes the batches."""
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    gz.nn.accelerate(pyg.GCN(2, 2, 1))  # so that batches know their hops
    for fanout in ((4, 3, 3), (3, 2)):
        _batches.extend(
            batch for batch, _ in zip(loader(num_neighbors=fanout), range(3), strict=False)
        )


def mlp(ins: int, outs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(ins, outs), nn.ReLU(), nn.Linear(outs, outs))


CONVS: dict[str, Callable[[int, int], nn.Module]] = {
    "SAGE": pyg.SAGEConv,
    "SAGE max": lambda i, o: pyg.SAGEConv(i, o, aggr="max"),
    "SAGE project": lambda i, o: pyg.SAGEConv(i, o, project=True, normalize=True),
    "GCN": pyg.GCNConv,
    "GIN": lambda i, o: pyg.GINConv(mlp(i, o), train_eps=True),
    "GraphConv": lambda i, o: pyg.GraphConv(i, o, aggr="mean"),
    "MF": lambda i, o: pyg.MFConv(i, o, max_degree=3),
    "GAT": lambda i, o: pyg.GATConv(i, o // 2, heads=2, residual=True),
    "GATv2": lambda i, o: pyg.GATv2Conv(i, o, share_weights=True),
    "Transformer": lambda i, o: pyg.TransformerConv(i, o, beta=True),
    "SuperGAT": pyg.SuperGATConv,
    "Edge": lambda i, o: pyg.EdgeConv(mlp(2 * i, o)),
    "TAG": lambda i, o: pyg.TAGConv(i, o, K=2),
    "LE": pyg.LEConv,
}
NORMS: dict[str, Callable[[], nn.Module]] = {
    "none": nn.Identity,
    "layer": lambda: nn.LayerNorm(HIDDEN),
    "batch": lambda: nn.BatchNorm1d(HIDDEN),
    "graph": lambda: pyg.GraphNorm(HIDDEN),
}


class Model(nn.Module):
    """A model of the grammar."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        depth = draw.randint(1, 3)
        self.names = [draw.choice([*CONVS]) for _ in range(depth)]
        widths = [WIDTH, *[HIDDEN] * depth]
        self.convs = nn.ModuleList(
            CONVS[n](i, HIDDEN) for n, i in zip(self.names, widths, strict=False)
        )
        self.norms = nn.ModuleList(NORMS[draw.choice([*NORMS])]() for _ in range(depth))
        self.residuals = nn.ModuleList(
            nn.Linear(i, HIDDEN) if draw.random() < 0.3 else nn.Identity() for i in widths[:-1]
        )
        self.between = [draw.choice(BETWEEN) for _ in range(depth)]
        self.end = draw.choice(("last", "cat", "max", "pick", "dict"))
        self.jk = pyg.JumpingKnowledge(self.end) if self.end in ("cat", "max") else None
        self.picked = draw.choice(([0, 3, 1], [0, 3, 1], [-1], [SEEDS]))
        self.turns = draw.choice((0, 0, 0, 3))
        self.register_buffer("run", torch.zeros(HIDDEN))
        self.calls, self.sizes, self.kept = 0, [], None

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        self.calls += 1
        rows, found = x, []
        for conv, norm, residual, between in zip(
            self.convs, self.norms, self.residuals, self.between, strict=True
        ):
            made = norm(conv(rows, edge_index))
            if isinstance(residual, nn.Linear):
                made = made + residual(rows)
            rows = self._between(between, made)
            found.append(rows)
        if self.turns and self.calls % self.turns == 0:
            rows = rows.sin()
        if self.jk is not None:
            return self.jk(found)
        if self.end == "pick":
            return rows[torch.tensor(self.picked)]
        return {"rows": rows} if self.end == "dict" else rows

    def _between(self, kind: str, rows: Tensor) -> Tensor:
        if kind == "keep":
            self.kept = rows.detach()
        elif kind == "running":
            self.run = 0.9 * self.run + rows.detach().mean(0)
            return rows - self.run
        elif kind == "count":
            self.sizes.append(len(rows))
        elif kind == "centred":
            return rows - rows.mean(0)
        elif kind == "function":
            return Halves.apply(rows, False)
        elif kind == "function by rows":
            return Halves.apply(rows, True)
        elif kind == "in place":
            return rows.relu_() + 1
        elif kind == "written":
            rows = rows.clone()
            rows[:, 0] = 1
        return rows.tanh()


BETWEEN = (
    "plain", "plain", "plain", "plain", "keep", "running", "count", "centred", "function",
    "function by rows", "in place", "written",
)  # fmt: skip


def lins(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """Linear layers of convolutions that are as they were, by the module that has them."""
    return [
        (conv, name)
        for conv in model.convs
        for name, lin in conv.named_children()
        if type(lin) in (nn.Linear, pyg.Linear) and "weight" in lin._parameters
    ]


def relayer(model: Model, draw: random.Random) -> None:
    """Makes one layer an adapter's, pruned, or parametrized."""
    places = lins(model)
    if not places:
        return
    conv, name = draw.choice(places)
    lin = getattr(conv, name)
    way = draw.choice(("adapt", "prune", "parametrize"))
    if way == "adapt":
        setattr(conv, name, Adapted(lin))
    elif way == "prune":
        prune.l1_unstructured(lin, "weight", 0.3)
    else:
        parametrizations.weight_norm(lin)


def hook(model: Model, draw: random.Random) -> None:
    conv = draw.choice([*model.convs])
    which = draw.choice(("forward", "propagate_forward", "aggregate_forward"))
    getattr(conv, f"register_{which}_hook")(lambda module, args, out: out * 1.5)


def replace_layer(model: Model, draw: random.Random) -> None:
    at = draw.randrange(len(model.convs))
    ins = WIDTH if at == 0 else HIDDEN
    model.convs[at] = CONVS[draw.choice([*CONVS])](ins, HIDDEN)


def own_message(model: Model, draw: random.Random) -> None:
    conv = draw.choice([*model.convs])
    if isinstance(conv, pyg.SAGEConv):
        conv.message = lambda x_j: x_j.cos()


def set_flow(model: Model, draw: random.Random) -> None:
    draw.choice([*model.convs]).flow = "target_to_source"


def set_aggregation(model: Model, draw: random.Random) -> None:
    conv = draw.choice([*model.convs])
    if isinstance(conv, pyg.SAGEConv):
        conv.aggr_module = pyg.MaxAggregation()


def load(model: Model, draw: random.Random) -> None:
    state = {name: value * 0.5 for name, value in model.state_dict().items()}
    with contextlib.suppress(RuntimeError):  # PyG's layers have no keys of pruned weights
        model.load_state_dict(state)


CHANGES = (
    relayer, relayer, relayer, hook, replace_layer, own_message, set_flow,
    set_aggregation, load, lambda m, d: m.eval(), lambda m, d: m.train(), lambda m, d: None,
)  # fmt: skip


def change(model: Model, fast: Model, draw: random.Random) -> None:
    """One change of both."""
    does, seed = draw.choice(CHANGES), draw.random()
    for each in (model, fast):
        torch.manual_seed(int(seed * 1e6))
        does(each, random.Random(seed))


def called(model: Model, x: Tensor, edges: Tensor) -> Tensor:
    """Rows of the seeds."""
    torch.manual_seed(1)
    random.seed(1)
    out = model(x, edges)
    rows: Tensor = out["rows"] if isinstance(out, dict) else out
    return rows[:SEEDS]


class StockError(Exception):
    """The stock model cannot be trained, such as by a write in place to what a gradient needs."""


def train(model: Model, fast: Model, batch: Any, edges: Tensor) -> None:
    """A step of both.

    Raises:
        StockError: The stock model raises.
    """
    found = []
    for each, given in ((model, edges.as_subclass(Tensor)), (fast, edges)):
        each.zero_grad(set_to_none=True)
        try:
            out = called(each, batch.x, given)
            if out.requires_grad:
                (out * torch.arange(1.0, out.numel() + 1).sin().view_as(out)).sum().backward()
        except RuntimeError as error:
            if each is model:
                raise StockError from error
            raise
        found.append(out)
    same(found[1], found[0], "output")
    for (name, one), other in zip(model.named_parameters(), fast.parameters(), strict=True):
        same(other.grad, one.grad, f"gradient of {name}")
    with torch.no_grad():
        for each in (model, fast):
            for parameter in each.parameters():
                if parameter.grad is not None:
                    parameter -= 0.01 * parameter.grad.clamp(-1, 1)


def predict(model: Model, fast: Model, batch: Any, edges: Tensor, way: Any) -> None:
    with way():
        expected = called(model, batch.x, edges.as_subclass(Tensor))
        same(called(fast, batch.x, edges), expected, "prediction")


def same(found: Any, expected: Any, what: str) -> None:
    scale = 1.0
    if isinstance(expected, Tensor) and expected.numel():
        scale = max(scale, float(expected.abs().max()))
    torch.testing.assert_close(
        found, expected, rtol=1e-8, atol=1e-8 * scale, equal_nan=True,
        msg=lambda said: f"{what}: {said}",
    )  # fmt: skip


def case(seed: int, directory: Path) -> str | None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    model = Model(draw)
    for _ in range(draw.choice((0, 0, 1, 2))):
        relayer(model, draw)
    fast = gz.nn.accelerate(copied(model))
    print(f"{model.names} {model.between} {model.end}", file=sys.stderr)
    for _ in range(draw.randint(2, 7)):
        batch = draw.choice(_batches)
        edges = batch.edge_index
        if draw.random() < 0.1:
            edges = edges.clone()
            edges[0, draw.randrange(edges.size(1))] = 0
        does = draw.choice(("train", "train", "train", "predict", "inference"))
        if does == "train":
            try:
                train(model, fast, batch, edges)
            except StockError:
                return None
        else:
            way = torch.no_grad if does == "predict" else torch.inference_mode
            predict(model, fast, batch, edges, way)
        same(fast.calls, model.calls, "calls")
        same(fast.sizes, model.sizes, "sizes")
        same(fast.kept, model.kept, "kept rows")
        for (name, one), other in zip(model.named_buffers(), fast.buffers(), strict=True):
            same(other, one, name)
        if draw.random() < 0.5:
            change(model, fast, draw)
    return None


def copied(model: Model) -> Model:
    """A copy, of layers too whose weights were computed."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, Tensor) and value.grad_fn is not None:
                memo[id(value)] = value.detach().clone()
    return copy.deepcopy(model, memo)
