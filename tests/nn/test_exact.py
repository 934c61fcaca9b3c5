"""Accelerated models in unusual company: adapters, hooks, state of their own, changes on the way.

Each test has a model that a shortcut would get wrong, or an accelerated model did once.
"""

from __future__ import annotations

import copy
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from accelerated import (
    DATA,
    SEEDS,
    WIDTH,
    Adapted,
    Halves,
    Skips,
    Stack,
    TypedPair,
    agree,
    compare,
    hetero_batches,
    hops,
    initialized,
    loader,
    plain,
    stock,
    typed,
)
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch_geometric import seed_everything
from torch_geometric.explain import Explainer, GNNExplainer, ModelConfig

import pyg_graphzero as gz
from pyg_graphzero.nn.state import LARGE
from pyg_graphzero.sampling.hops import known_hops

pytestmark = pytest.mark.usefixtures("doubles")


def as_it_is(model):
    """Why a model runs as it is; an empty string where it does not."""
    return gz.nn.explain(model).as_it_is or ""


def both(model, **options):
    """A model and an accelerated copy."""
    return model, gz.nn.accelerate(copy.deepcopy(model), **options)


# ---- layers that do more than multiply --------------------------------------------------------


LINEAR = {
    "SAGE": (pyg.SAGEConv, ("lin_l", "lin_r")),
    "GCN": (pyg.GCNConv, ("lin",)),
    "GAT": (pyg.GATConv, ("lin",)),
    "GATv2": (pyg.GATv2Conv, ("lin_l", "lin_r")),
    "Transformer": (pyg.TransformerConv, ("lin_key", "lin_query", "lin_value", "lin_skip")),
    "GraphConv": (pyg.GraphConv, ("lin_rel", "lin_root")),
}


@pytest.mark.parametrize("is_zero", [True, False])
@pytest.mark.parametrize("name", LINEAR)
def test_adapters_have_gradients(name, is_zero):
    make, lins = LINEAR[name]
    model = Stack(make, width=40)  # wider than its inputs: sums would come first
    for conv in (model.first, model.second):
        for lin in lins:
            setattr(conv, lin, Adapted(getattr(conv, lin), is_zero))
    fast = compare(model, plain, count=1)
    assert hops(fast) == [1, 0]
    assert all(p.grad is not None for n, p in fast.named_parameters() if n.endswith("up"))


def with_old_weight_norm(lin):
    with pytest.warns(FutureWarning, match="weight_norm"):
        torch.nn.utils.weight_norm(lin)


class Halved(nn.Module):
    def forward(self, weight):
        return weight / 2


REWEIGHTED = {
    "prune": lambda lin: prune.l1_unstructured(lin, "weight", 0.3),
    "old weight_norm": with_old_weight_norm,
    "old spectral_norm": torch.nn.utils.spectral_norm,
    "weight_norm": parametrizations.weight_norm,
    "parametrization": lambda lin: parametrize.register_parametrization(lin, "weight", Halved()),
}


@pytest.mark.parametrize("way", REWEIGHTED)
@pytest.mark.parametrize("name", LINEAR)
def test_weights_that_are_made_anew(name, way):
    """Trained a step, a layer's weight is another."""
    make, lins = LINEAR[name]
    models = [Stack(make), Stack(make)]
    for model in models:
        for lin in lins:
            REWEIGHTED[way](getattr(model.first, lin))
    with torch.no_grad():
        for kind in ("parameters", "buffers"):
            for one, other in zip(*(getattr(each, kind)() for each in models), strict=True):
                other.copy_(one)
    model, fast = models[0], gz.nn.accelerate(models[1])
    batches = iter(loader())
    for _ in range(3):
        agree(model, fast, next(batches))
        with torch.no_grad():
            for each in (model, fast):
                for parameter in each.parameters():
                    parameter -= 0.1 * parameter.grad
    assert hops(fast) == [1, 0]


def test_layers_that_are_no_product_are_not_exchanged_with_sums():
    def mlp(lin):
        return nn.Sequential(lin, nn.Tanh(), nn.Linear(40, 40))

    for make in (pyg.GCNConv, pyg.GATConv):
        model = Stack(make, width=40)
        model.first.lin = mlp(model.first.lin)
        compare(model, plain, count=1)
    model = Stack(pyg.GATConv, width=40)
    model.first.lin = nn.Linear(WIDTH, 40)  # with a bias, that PyG's has not
    compare(model, plain, count=1)


def test_layers_of_types_that_do_more_than_multiply():
    for name in ("kqv_lin", "k_rel"):
        model = initialized(TypedPair(), typed)
        lin = getattr(model.first, name)
        lin = lin.lins["author"] if name == "kqv_lin" else lin
        parametrize.register_parametrization(lin, "weight", Halved())
        assert hops(compare(model, typed, hetero_batches(), count=1))[0] is None


def test_gradients_that_are_zero_are_not_missing():
    """Adam moves a parameter whose gradient is zero, and not one that has none."""
    fast = compare(initialized(TypedPair(), typed), typed, hetero_batches())
    assert fast.forward.num_stock == 0


# ---- learning changes nothing -----------------------------------------------------------------


class Remembers(nn.Module):
    """State in all places that a module may have some."""

    def __init__(self):
        super().__init__()
        self.net = Stack(pyg.SAGEConv)
        self.register_buffer("run", torch.zeros(16))
        self.register_buffer("seen", torch.zeros(()))
        self.mean, self.calls, self.sizes, self.table = None, 0, [], {"most": 0}

    def forward(self, x, edge_index):
        self.calls += 1
        self.sizes.append(len(x))
        self.table["most"] = max(self.table["most"], len(x))
        self.seen += 1
        hidden = self.net.first(x, edge_index)
        self.run = 0.9 * self.run + 0.1 * hidden.detach().mean(0)
        if self.mean is None:
            self.mean = hidden.detach().mean(0)
        return self.net.second(hidden - self.mean - self.run, edge_index)


def test_learning_changes_nothing_of_the_model():
    model, fast = both(Remembers())
    state = torch.get_rng_state()
    for number, batch in zip(range(1, 4), loader(), strict=False):
        torch.set_rng_state(state)
        agree(model, fast, batch)
        assert fast.calls == model.calls == number
        assert fast.sizes == model.sizes
        assert fast.table == model.table
        for name in ("run", "seen", "mean"):
            torch.testing.assert_close(getattr(fast, name), getattr(model, name))
        assert torch.equal(torch.get_rng_state(), state)


def test_norms_count_each_batch_once():
    """The fifth batch takes another way, and is run a second time, as it is."""

    class Turns(Skips):
        calls = 0

        def forward(self, x, edge_index):
            self.calls += 1
            torch.rand(3)
            if self.calls == 5:
                self.turned.append(self.calls)
            out = super().forward(x, edge_index)
            return out.sin() if self.calls == 5 else out

    model = Turns(nn.BatchNorm1d)
    model.turned = []
    model, fast = both(model, norms="whole")
    torch.manual_seed(0)
    for batch, _ in zip(loader(), range(6), strict=False):
        agree(model, fast, batch)
    state = torch.get_rng_state()
    torch.manual_seed(0)
    torch.rand(2 * 6, 3)
    assert torch.equal(torch.get_rng_state(), state)
    assert "same for every batch" in as_it_is(fast)
    assert fast.forward.num_stock == 1 + 1
    assert fast.calls == 6
    assert fast.turned == model.turned == [5]
    assert int(fast.norms[0].num_batches_tracked) == 6
    torch.testing.assert_close(fast.norms[0].running_mean, model.norms[0].running_mean)


def test_caches_of_a_convolution_are_of_the_batch():
    model, fast = both(Stack(lambda i, o: pyg.GCNConv(i, o, cached=True)))
    batch = next(iter(loader()))
    agree(model, fast, batch)
    assert "cached" in str(gz.nn.explain(fast))
    agree(model, fast, batch)


def test_a_model_that_cannot_be_copied_runs_as_it_is():
    model = gz.nn.accelerate(Stack(pyg.SAGEConv))
    model.lock = threading.Lock()
    batch = next(iter(loader()))
    assert len(plain(model, batch)) == batch.num_nodes
    assert "cannot be copied" in as_it_is(model)


def test_a_large_table_is_shared_and_not_written_to():
    class Table(nn.Module):
        def __init__(self, is_written):
            super().__init__()
            self.net, self.is_written = Stack(pyg.SAGEConv), is_written
            self.table = torch.zeros(LARGE // 8 // WIDTH + 1, WIDTH)

        def forward(self, x, edge_index):
            if self.is_written:
                self.table[: len(x)] = x
            return self.net(x + self.table[: len(x)], edge_index)

    for is_written in (False, True):
        model, fast = both(Table(is_written))
        batch, table = next(iter(loader())), fast.table
        agree(model, fast, batch)
        assert ("writes to its own parameters" in as_it_is(fast)) == is_written
        assert fast.table is table
        assert torch.equal(table, model.table)


def test_weights_written_to_in_a_forward_pass():
    class Clips(Stack):
        def forward(self, x, edge_index):
            with torch.no_grad():
                self.first.lin_l.weight.mul_(0.5)
            return super().forward(x, edge_index)

    class ClipsData(Stack):
        def forward(self, x, edge_index):
            self.first.lin_l.weight.data.mul_(0.5)
            return super().forward(x, edge_index)

    for kind in (Clips, ClipsData):
        model, fast = both(kind(pyg.SAGEConv))
        agree(model, fast, next(iter(loader())))
        torch.testing.assert_close(fast.first.lin_l.weight, model.first.lin_l.weight)


# ---- rows that leave by another door ----------------------------------------------------------


@dataclass
class Scored:
    """A result of a kind that is not looked into."""

    out: torch.Tensor
    scores: torch.Tensor


class Keeps(nn.Module):
    """Keeps rows where a caller may read them later."""

    def __init__(self, where):
        super().__init__()
        self.net, self.where, self.found, self.inner = Stack(pyg.SAGEConv), where, [], None

    def forward(self, x, edge_index):
        hidden = self.net.first(x, edge_index).relu()
        if self.where == "attribute":
            self.inner = hidden
        elif self.where == "list":
            self.found[:] = [hidden]
        elif self.where == "view":
            self.inner = hidden[:, :3]
        elif self.where == "array":
            self.inner = hidden.detach().numpy()
        out = self.net.second(hidden, edge_index)
        if self.where == "dataclass":
            return Scored(out, (hidden[edge_index[0]] * hidden[edge_index[1]]).sum(-1))
        return out


@pytest.mark.parametrize("where", ["attribute", "list", "view", "array"])
def test_rows_kept_elsewhere_are_those_of_all_nodes(where):
    model, fast = both(Keeps(where))
    batch = next(iter(loader()))
    agree(model, fast, batch)
    kept, expected = (each.found[0] if where == "list" else each.inner for each in (fast, model))
    torch.testing.assert_close(torch.as_tensor(kept), torch.as_tensor(expected))
    assert hops(fast) == [None, 0]
    assert str(gz.nn.explain(fast)).count("relu, whose result is kept" if where != "array" else
                                          "numpy") == 1  # fmt: skip


def test_results_in_containers_of_the_users_own():
    model, fast = both(Keeps("dataclass"))
    batch = next(iter(loader()))
    expected, found = model(batch.x, stock(batch).edge_index), fast(batch.x, batch.edge_index)
    torch.testing.assert_close(found.scores, expected.scores)
    torch.testing.assert_close(found.out, expected.out)


def test_losses_that_a_convolution_keeps():
    model, fast = both(Stack(pyg.SuperGATConv))
    batch = next(iter(loader()))
    found = []
    for each, given in ((model, stock(batch)), (fast, batch)):
        seed_everything(2)
        plain(each, given)
        found.append(each.first.get_attention_loss())
    torch.testing.assert_close(found[1], found[0])
    assert "it keeps what it computes" in str(gz.nn.explain(fast))
    model, fast = model.eval(), fast.eval()
    agree(model, fast, batch)
    assert hops(fast) == [1, 0]


def test_rows_written_into_the_arguments():
    """The model writes into its argument, as PyG's ``bipartite_sage.py`` does."""

    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(6, 8)
            self.net = pyg.SAGEConv((8, 8), 16)

        def forward(self, x_dict, edge_index_dict):
            x_dict["paper"] = self.lin(x_dict["paper"])
            edges = edge_index_dict["paper", "cites", "paper"]
            return self.net(x_dict["paper"], edges)

    model, fast = both(Writes())
    batch = next(iter(hetero_batches()))
    expected, found = dict(batch.x_dict), dict(batch.x_dict)
    out = model(expected, stock(batch).edge_index_dict)[:SEEDS]
    torch.testing.assert_close(fast(found, batch.edge_index_dict), out)
    torch.testing.assert_close(found["paper"], expected["paper"])
    assert hops(fast) == [0]


def test_arguments_written_to_in_place():
    class Adds(Stack):
        def forward(self, x, edge_index):
            return super().forward(x.add_(1), edge_index)

    model, fast = both(Adds(pyg.SAGEConv))
    batch = next(iter(loader()))
    given = batch.x.clone()
    expected = model(given, stock(batch).edge_index)[:SEEDS]
    torch.testing.assert_close(fast(batch.x, batch.edge_index)[:SEEDS], expected)
    assert torch.equal(batch.x, given)
    assert "writes to its arguments" in as_it_is(fast)


@pytest.mark.parametrize("by_rows", [False, True])
def test_functions_with_gradients_of_their_own(by_rows):
    class Between(Stack):
        def forward(self, x, edge_index):
            hidden = Halves.apply(self.first(x, edge_index), by_rows)
            return self.second(hidden, edge_index)

    fast = compare(Between(pyg.SAGEConv), plain, count=1)
    assert ("gradients are others" in as_it_is(fast)) == by_rows


def test_hooks_see_what_they_always_saw():
    model, fast = both(Stack(pyg.SAGEConv))
    seen = {}
    for name, each in (("model", model), ("fast", fast)):
        seen[name] = found = []
        each.first.lin_l.register_forward_hook(lambda m, a, out, found=found: found.append(out))
        each.second.register_full_backward_hook(
            lambda m, grad, out, found=found: found.append(out[0])
        )
    agree(model, fast, next(iter(loader())))
    assert "first.lin_l has a hook" in as_it_is(fast)
    assert len(seen["fast"]) == len(seen["model"]) == 2
    for one, other in zip(*seen.values(), strict=True):
        torch.testing.assert_close(other, one)


def test_hooks_of_all_modules():
    model, fast = both(Stack(pyg.SAGEConv))
    batch = next(iter(loader()))
    rows = []
    handle = nn.modules.module.register_module_forward_hook(lambda m, a, out: rows.append(len(out)))
    try:
        plain(fast, batch)
    finally:
        handle.remove()
    assert set(rows) == {batch.num_nodes}
    agree(model, fast, batch)
    assert hops(fast) == [1, 0]


@pytest.mark.parametrize(
    ("index", "is_trimmed"), [([0, 5, 3], True), ([-1], False), ([100], False), ([0, SEEDS], False)]
)
@pytest.mark.parametrize("way", ["getitem", "index_select"])
def test_rows_picked_by_number(index, is_trimmed, way):
    class Picks(Stack):
        def forward(self, x, edge_index, index):
            out = super().forward(x, edge_index)
            return out[index] if way == "getitem" else out.index_select(0, index)

    if way == "index_select" and index == [-1]:
        index = [120]
    model, fast = both(Picks(pyg.SAGEConv))
    batch, index = next(iter(loader())), torch.tensor(index)
    expected = model(batch.x, stock(batch).edge_index, index)
    torch.testing.assert_close(fast(batch.x, batch.edge_index, index), expected)
    assert (as_it_is(fast) == "") == is_trimmed


def test_arguments_of_functions_that_change():
    class Sliced(Stack):
        def forward(self, x, edge_index, k, dim):
            return super().forward(x, edge_index).softmax(dim)[:k]

    for first, then in (((20, 1), (-20, 1)), ((20, 1), (20, 0))):
        model, fast = both(Sliced(pyg.SAGEConv))
        batch = next(iter(loader()))
        for k, dim in (first, then):
            expected = model(batch.x, stock(batch).edge_index, k, dim)
            found = fast(batch.x, batch.edge_index, k, dim)
            torch.testing.assert_close(found[:SEEDS], expected[:SEEDS])
        assert "same for every batch" in as_it_is(fast)


def test_rows_that_change_places():
    """From its third call on, the model calls its functions in the same order on other rows."""

    class Swaps(nn.Module):
        def __init__(self):
            super().__init__()
            self.near, self.far = Stack(pyg.SAGEConv), Stack(pyg.SAGEConv)
            self.last, self.calls = pyg.SAGEConv(16, 7), 0

        def forward(self, x, edge_index):
            self.calls += 1
            one, other = self.near.first(x, edge_index), self.far.first(x, edge_index)
            one, other = (one, other) if self.calls < 3 else (other, one)
            return self.last(one.relu(), edge_index) + other.tanh()[:, :7]

    compare(Swaps(), plain, count=4)


# ---- changes on the way -----------------------------------------------------------------------


def doubled(module, args, out):
    return 2 * out


class LinearTwice(pyg.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def replaced(conv):
    lin = LinearTwice(16, 16, bias=False)
    lin.load_state_dict(conv.lin_r.state_dict())
    conv.lin_r = lin


def own_forward(conv):
    conv.forward = types.MethodType(lambda self, *a, **k: type(self).forward(self, *a, **k).sin(),
                                    conv)  # fmt: skip


CHANGES = {
    "propagate hook": (pyg.SAGEConv, lambda c: c.register_propagate_forward_hook(doubled)),
    "message hook": (pyg.SAGEConv, lambda c: c.register_message_forward_hook(doubled)),
    "aggregate hook": (pyg.GraphConv, lambda c: c.register_aggregate_forward_hook(doubled)),
    "edge_update hook": (pyg.GATConv, lambda c: c.register_edge_update_forward_hook(doubled)),
    "message": (pyg.SAGEConv, lambda c: setattr(c, "message", lambda x_j: x_j.sin())),
    "aggr_module": (pyg.SAGEConv, lambda c: setattr(c, "aggr_module", pyg.MaxAggregation())),
    "hook of a layer": (pyg.GATConv, lambda c: c.lin.register_forward_hook(doubled)),
    "layer": (pyg.SAGEConv, replaced),
    "flow": (pyg.GCNConv, lambda c: setattr(c, "flow", "target_to_source")),
    "normalize": (pyg.SAGEConv, lambda c: setattr(c, "normalize", True)),
    "forward": (pyg.SAGEConv, own_forward),
    "prune": (pyg.GATConv, lambda c: prune.l1_unstructured(c.lin, "weight", 0.5)),
}


@pytest.mark.parametrize(
    ("name", "is_late"),  # pruned weights cannot be copied before they were used
    [(name, late) for name in CHANGES for late in (False, True) if late or name != "prune"],
)
def test_changes_before_and_after_the_first_batch(name, is_late):
    make, change = CHANGES[name]
    model = Stack(make)
    if not is_late:
        change(model.second)
    model, fast = both(model)
    batches = iter(loader())
    agree(model, fast, next(batches))
    if is_late:
        for each in (model, fast):
            change(each.second)
    elif name.endswith(" hook"):
        assert "second has a hook, doubled" in as_it_is(fast)
    elif name == "message":
        assert "second has a message of its own" in as_it_is(fast)
    agree(model, fast, next(batches))
    agree(model, fast, next(batches))


def test_a_forward_of_one_object_is_kept():
    def closed(state):
        model = Stack(pyg.SAGEConv)
        model.load_state_dict(state)
        conv = model.first
        conv.forward = lambda x, edges: type(conv).forward(conv, x, edges).sin()
        model.forward = lambda x, edges: model.second(conv(x, edges), edges).cos()
        return model

    state = Stack(pyg.SAGEConv).state_dict()
    model, fast = closed(state), gz.nn.accelerate(closed(state))
    agree(model, fast, next(iter(loader())))
    assert "first has a forward of its own" in as_it_is(fast)


def test_a_model_that_is_changed_for_ever_runs_as_it_is():
    class Counts(pyg.SAGEConv):
        calls = 0

        def forward(self, x, edge_index):
            self.calls += 1
            return super().forward(x, edge_index)

    model, fast = both(Stack(Counts), local=(Counts,))
    batches = [batch for batch, _ in zip(loader(), range(4), strict=False)]
    for number in range(70):
        agree(model, fast, batches[number % 4])
    assert fast.forward.num_stock == 70 - 64


def test_a_model_that_fails_on_a_small_graph_runs_as_it_is():
    class Fails(Stack):
        def forward(self, x, edge_index):
            if len(x) < 200:
                raise MemoryError
            return super().forward(x, edge_index)

    _, fast = both(Fails(pyg.SAGEConv))
    batch = next(iter(loader()))
    assert len(plain(fast, batch)) == batch.num_nodes
    assert "MemoryError" in as_it_is(fast)


# ---- edges that were written to ---------------------------------------------------------------

WRITES = {
    "item": lambda ei: ei.__setitem__((1, torch.tensor([3, 40])), ei[1, torch.tensor([40, 3])]),
    "row view": lambda ei: ei[0].copy_(ei[0].flip(0)),
    "in place": lambda ei: ei.fill_(2),
    "array": lambda ei: ei.numpy().__setitem__((0, slice(None)), 1),
    "data": lambda ei: ei.data[0].fill_(3),
}


@pytest.mark.parametrize("copied", [True, False])
@pytest.mark.parametrize("way", WRITES)
@pytest.mark.parametrize("make", [pyg.GCNConv, pyg.GATConv])
def test_edges_that_were_written_to_have_no_hops(make, way, copied):
    model, fast = both(Stack(make))
    batch = next(iter(loader()))
    agree(model, fast, batch)  # loops and bounds are kept with the edges
    edges = batch.edge_index.clone() if copied else batch.edge_index
    WRITES[way](edges)
    expected = model(batch.x, edges.plain())
    torch.testing.assert_close(fast(batch.x, edges), expected)
    assert known_hops(edges) is None
    assert known_hops(edges.clone()) is None
    if copied:
        agree(model, fast, batch)


def test_edges_written_to_within_the_model():
    class Drops(Stack):
        def forward(self, x, edge_index):
            hidden = self.first(x, edge_index)
            edge_index[0, ::2] = 0
            return self.second(hidden, edge_index)

    model, fast = both(Drops(pyg.SAGEConv))
    for batch, _ in zip(loader(), range(2), strict=False):
        edges, own = batch.edge_index.plain().clone(), batch.edge_index
        expected = model(batch.x, edges)[:SEEDS]
        torch.testing.assert_close(fast(batch.x, own)[:SEEDS], expected)
        assert torch.equal(own, edges)


def test_batches_of_inference_mode():
    """They are trimmed; and a batch that was predicted on is trained on next."""
    for make in (pyg.SAGEConv, pyg.GCNConv, pyg.GATConv):
        model, fast = both(Stack(make))
        batches = iter(loader())
        batch = next(batches)
        with torch.inference_mode():
            torch.testing.assert_close(plain(fast, batch), plain(model, stock(batch))[:SEEDS])
            fresh = next(batches)
            torch.testing.assert_close(plain(fast, fresh), plain(model, stock(fresh))[:SEEDS])
        assert hops(fast) == [1, 0]
        agree(model, fast, batch)


# ---- threads, transforms, explanations --------------------------------------------------------


@pytest.mark.parametrize("make", [
    lambda i, o: pyg.GINConv(nn.Linear(i, o)), pyg.GraphConv, pyg.MFConv, pyg.SAGEConv,
])  # fmt: skip
def test_four_threads(make):
    model, fast = both(Stack(make))
    batches = [batch for batch, _ in zip(loader(), range(4), strict=False)]
    expected = [plain(model, stock(batch))[:SEEDS].detach() for batch in batches]

    def run(number):
        torch.set_default_dtype(torch.float64)
        for turn in range(12):
            at = (number + turn) % 4
            torch.testing.assert_close(plain(fast, batches[at]).detach(), expected[at])

    with ThreadPoolExecutor(4) as pool:
        assert len([*pool.map(run, range(4))]) == 4
    assert all("propagate" not in vars(conv) for conv in (fast.first, fast.second))


def test_derivatives_forward_and_functions_of_functions():
    model, fast = both(Stack(pyg.SAGEConv))
    batch = next(iter(loader()))
    tangent = torch.ones_like(batch.x)
    found = []
    for each, edges in ((model, stock(batch).edge_index), (fast, batch.edge_index)):
        out, along = torch.func.jvp(lambda x, e=each, i=edges: e(x, i), (batch.x,), (tangent,))
        grad = torch.func.grad(lambda x, e=each, i=edges: e(x, i)[:SEEDS].sum())(batch.x)
        found.append((out[:SEEDS], along[:SEEDS], grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one)


def test_explainers():
    config = ModelConfig(mode="regression", task_level="node", return_type="raw")
    model, fast = both(Stack(pyg.SAGEConv))
    batch = next(iter(loader()))
    plain(fast, batch)
    found = []
    for each, edges in ((model, stock(batch).edge_index), (fast, batch.edge_index)):
        torch.manual_seed(3)
        explainer = Explainer(
            each, GNNExplainer(epochs=3), explanation_type="model", model_config=config,
            node_mask_type="attributes", edge_mask_type="object",
        )  # fmt: skip
        found.append(explainer(batch.x, edges, index=2))
    torch.testing.assert_close(found[1].node_mask, found[0].node_mask)
    torch.testing.assert_close(found[1].edge_mask, found[0].edge_mask)
    agree(model, fast, batch)
    assert hops(fast) == [1, 0]


def test_a_model_over_data_of_its_own_is_learned_without_a_copy_of_it():
    class Holds(Stack):
        def __init__(self):
            super().__init__(pyg.SAGEConv)
            self.data = Uncopied(x=DATA.x)

        def forward(self, x, edge_index):
            return super().forward(x + self.data.x.mean(), edge_index)

    model, fast = Holds(), gz.nn.accelerate(Holds())
    fast.load_state_dict(model.state_dict())
    agree(model, fast, next(iter(loader())))
    assert hops(fast) == [1, 0]


class Uncopied(type(DATA)):
    def __deepcopy__(self, memo):
        raise AssertionError("copied")


def test_compare_knows_a_difference():
    with pytest.raises(AssertionError):
        compare(Stack(pyg.SAGEConv), lambda model, batch: F.dropout(plain(model, batch)))


def test_one_of_several_edge_types_was_written_to():
    model, fast = both(initialized(TypedPair(), typed))
    batches = iter(hetero_batches())
    batch = next(batches)
    batch["author", "at", "place"].edge_index[0, :3] = 0
    expected = typed(model, stock(batch))
    torch.testing.assert_close(typed(fast, batch), expected)
    agree(model, fast, next(batches), typed)
    assert fast.forward.num_stock == 0


def test_explaining_after_a_layer_went():
    model = gz.nn.accelerate(pyg.GraphSAGE(WIDTH, 16, 3, 7))
    plain(model, next(iter(loader())))
    del model.convs[2]
    assert hops(model) == [2, 1, 0]
