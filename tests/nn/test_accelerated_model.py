"""An accelerated model is the object that it was, with all that was changed of it."""

from __future__ import annotations

import copy
import io
import pickle

import chunks
import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from accelerated import (
    DATA,
    NUM_NODES,
    SEEDS,
    WIDTH,
    Skips,
    Stack,
    TypedPair,
    compare,
    graph,
    hops,
    loader,
    papers,
    plain,
    stock,
    weighted,
)
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import SAGEConv

import pyg_graphzero as gz
from pyg_graphzero.nn.accelerate import Forward
from pyg_graphzero.sampling.hops import SampledEdgeIndex, want_hops

pytestmark = [pytest.mark.usefixtures("doubles"), chunks.both]


def test_it_is_the_same_model():
    model = pyg.GraphSAGE(WIDTH, 16, 2, 7)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert gz.nn.accelerate(model) is model
    gz.nn.accelerate(model)
    batch = next(iter(loader()))
    out = plain(model, batch)
    assert list(model.state_dict()) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    # what knows no hops goes all the way
    assert plain(model, DATA).size(0) == NUM_NODES
    torch.testing.assert_close(plain(model, stock(batch))[:SEEDS], out)
    # copies, pickles
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert isinstance(other.forward, Forward)
        assert other.forward.module is other
        torch.testing.assert_close(plain(other, batch), out)
    saved = io.BytesIO()
    torch.save(batch, saved)
    saved.seek(0)
    again = torch.load(saved, weights_only=False)
    assert type(again.edge_index) is torch.Tensor


def test_lazy_layers_are_made_by_the_first_batch():
    model = pyg.GraphSAGE(-1, 16, 2, 7)
    fast = gz.nn.accelerate(copy.deepcopy(model))
    batches = iter(loader())
    batch = next(batches)
    torch.manual_seed(1)
    expected = plain(model, stock(batch))
    torch.manual_seed(1)
    torch.testing.assert_close(plain(fast, batch), expected)
    assert plain(fast, next(batches)).size(0) == SEEDS


CALLS = {
    "trim_to_layer": lambda model, batch: model(
        batch.x, batch.edge_index, num_sampled_nodes_per_hop=batch.num_sampled_nodes,
        num_sampled_edges_per_hop=batch.num_sampled_edges,
    ),
    "checkpoint": lambda model, batch: checkpoint(
        model, batch.x.requires_grad_(), batch.edge_index, use_reentrant=False
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls_in_company(name):
    compare(pyg.GraphSAGE(WIDTH, 16, 3, 7), CALLS[name])


class Checkpointed(Stack):
    def forward(self, x, edge_index):
        x = checkpoint(self.first, x, edge_index, use_reentrant=False)
        return self.second(x, edge_index)


def test_checkpointing_within_the_model():
    fast = compare(Checkpointed(SAGEConv), plain)
    assert "the whole of it" in gz.nn.explain(fast).as_it_is


@pytest.mark.parametrize("kind", [pyg.GraphSAGE, pyg.GCN, pyg.GIN, pyg.GAT, pyg.EdgeCNN])
def test_autocast(kind):
    model = kind(WIDTH, 16, 3, 7).float()
    fast = gz.nn.accelerate(copy.deepcopy(model))
    batch = next(iter(loader(graph(torch.float32))))
    with torch.autocast("cpu", torch.bfloat16):
        expected, out = plain(model, stock(batch))[:SEEDS], plain(fast, batch)
    torch.testing.assert_close(out, expected, rtol=0.1, atol=0.1)
    for net, found in ((model, expected), (fast, out)):
        found.float().square().sum().backward()
        assert all(parameter.grad is not None for parameter in net.parameters())
    # without it, the same model is exact again; and doubles are never rounded
    torch.testing.assert_close(plain(fast, batch), plain(model, stock(batch))[:SEEDS])
    batch = next(iter(loader()))
    with torch.autocast("cpu", torch.bfloat16):
        expected, out = plain(model.double(), stock(batch))[:SEEDS], plain(fast.double(), batch)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_refuses_no_model_by_chance(dtype):
    for seed in range(12):
        torch.manual_seed(seed)
        fast = gz.nn.accelerate(pyg.GCN(WIDTH, 64, 3, 7).to(dtype))
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.float32):
            plain(fast, next(iter(loader(graph(dtype)))))
        assert hops(fast) == [2, 1, 0]
        assert all(parameter.dtype == dtype for parameter in fast.parameters())


def test_autocast_makes_halves_fit():
    layers = [(SAGEConv(WIDTH, 16), "x, edge_index -> x"), torch.Tensor.bfloat16, nn.Linear(16, 7)]
    fast = gz.nn.accelerate(pyg.Sequential("x, edge_index", layers).float())
    with torch.autocast("cpu", torch.bfloat16):
        plain(fast, next(iter(loader(graph(torch.float32)))))
    assert hops(fast) == [0]


def test_autocast_of_typed_attention():
    data = papers(dtype=torch.float32)
    model = TypedPair().float()
    fast = gz.nn.accelerate(copy.deepcopy(model))
    batch = next(iter(loader(data, (3, 2), input_nodes="paper")))
    found = []
    for net, given in ((model, stock(batch)), (fast, batch)):
        with torch.autocast("cpu", torch.bfloat16):
            out = net(given.x_dict, given.edge_index_dict)[:SEEDS]
        out.float().square().sum().backward()
        found.append((out, net.first.kqv_lin.lins["author"].weight.grad))
    assert fast.forward.num_stock == 0
    (expected, its_grad), (out, grad) = found
    torch.testing.assert_close(out, expected, rtol=0.1, atol=0.1)
    assert float((grad - its_grad).abs().max()) < 0.1 * float(its_grad.abs().max())


class Residual(nn.Module):
    """Uses values again after their activation, in place, and passes arguments by name."""

    def __init__(self):
        super().__init__()
        self.first, self.second = SAGEConv(WIDTH, 16), SAGEConv(16, 7)
        self.mix, self.last = nn.Linear(16, 16, bias=False), nn.Linear(7, 7)

    def forward(self, x, edge_index):
        """Rows of all nodes."""
        hidden = self.first(x, edge_index)
        hidden = F.relu(input=hidden) + torch.relu(self.mix(hidden)) - hidden.relu()
        hidden += F.dropout(hidden, p=0.0, training=True)
        hidden = F.relu(F.dropout(hidden, training=False), inplace=True)
        last = self.second(hidden, edge_index)
        one = F.linear(last, self.last.weight[0]).unsqueeze(-1)
        return one + F.linear(last, self.last.weight, bias=self.last.bias)


def test_functions_that_are_computed_in_another_way():
    fast = compare(Residual(), plain)
    assert "runs as it is" not in str(gz.nn.explain(fast))


def test_gradients_of_gradients():
    model = pyg.GraphSAGE(WIDTH, 16, 2, 7)
    fast = gz.nn.accelerate(copy.deepcopy(model))
    batch = next(iter(loader()))
    found = []
    for net, given in ((model, stock(batch)), (fast, batch)):
        out = plain(net, given)[:SEEDS].square().sum()
        grads = torch.autograd.grad(out, list(net.parameters()), create_graph=True)
        squares = sum(grad.square().sum() for grad in grads)
        found.append(torch.autograd.grad(squares, list(net.parameters())))
    for ours, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_compiled_models_run_uncompiled_and_traced_ones_as_they_are():
    model = pyg.GraphSAGE(WIDTH, 16, 2, 7)
    fast = torch.compile(gz.nn.accelerate(copy.deepcopy(model)))
    batch = next(iter(loader()))
    expected = plain(model, stock(batch))
    torch.testing.assert_close(plain(fast, batch), expected[:SEEDS])
    traced = torch.jit.trace(gz.nn.accelerate(model), (batch.x, batch.edge_index))
    torch.testing.assert_close(traced(batch.x, batch.edge_index), expected)


def test_edges_keep_their_hops_wherever_they_go():
    assert type(next(iter(loader())).edge_index) is torch.Tensor
    want_hops()
    edges = next(iter(loader())).edge_index
    assert isinstance(edges, SampledEdgeIndex)
    assert not edges._is_view()  # code that torch compiled cannot keep views of a subclass
    for moved in (edges.to("cpu", copy=True), edges.clone(), edges.contiguous(), edges.detach(),
                  copy.deepcopy(edges), edges.share_memory_()):  # fmt: skip
        assert isinstance(moved, SampledEdgeIndex)
        assert moved.hops is edges.hops
    for other in (edges[:, :2], edges + 1, edges.to(torch.int32), edges.flip(0), edges[0]):
        assert type(other) is torch.Tensor


@pytest.mark.parametrize(
    ("given", "options", "error", "said"),
    [
        ("model", {}, TypeError, "found str"),
        (nn.Linear(2, 2), {"norms": "some"}, ValueError, "expected 'whole' or 'trimmed'"),
        (nn.Linear(2, 2), {"local": nn.Linear}, TypeError, "local: found <class .*Linear.*a tuple"),
        (nn.Linear(2, 2), {"local": ("MyConv",)}, TypeError, "found .'MyConv',., expected a tuple"),
        (torch.jit.script(nn.Linear(2, 2)), {}, gz.UnsupportedError, "the module it was made from"),
    ],
)
def test_other_models_and_options_are_refused(given, options, error, said):
    with pytest.raises(error, match=said):
        gz.nn.accelerate(given, **options)


def test_a_model_without_convolutions_is_told_so():
    class Listed(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = [SAGEConv(WIDTH, 7)]

        def forward(self, x, edge_index):
            return self.convs[0](x, edge_index)

    found = r"found no convolution of PyG \(MessagePassing\) in {}, .*ModuleList are"
    with pytest.warns(UserWarning, match=found.format("Linear")) as told:
        linear = gz.nn.accelerate(nn.Linear(WIDTH, 7))
    batch = next(iter(loader()))
    assert told[0].filename == __file__
    assert linear(batch.x).size(0) == batch.num_nodes
    with pytest.raises(ValueError, match=r"has seen no batch of .* whose edge_index"):
        gz.nn.explain(linear)
    with pytest.warns(UserWarning, match=found.format("Listed")):
        listed = gz.nn.accelerate(Listed())
    expected = listed.convs[0](batch.x, stock(batch).edge_index)[:SEEDS]
    torch.testing.assert_close(plain(listed, batch)[:SEEDS], expected)
    assert str(gz.nn.explain(listed)).startswith("no convolution of PyG in it\nlooks at all rows")


def test_explaining_needs_an_accelerated_model():
    with pytest.raises(ValueError, match="was not accelerated"):
        gz.nn.explain(nn.Linear(2, 2))


# ---- what a user, or PyG, has changed of a model --------------------------------------------


def test_convolutions_divided_by_channels():
    model = Stack(lambda i, o: pyg.GCNConv(i, o, normalize=False))
    model.first.decomposed_layers = 2
    fast = compare(model, plain, count=2)
    assert "propagate" in vars(fast.first)  # as it was


def test_weights_written_to_between_two_layers_are_seen():
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = pyg.GCNConv(WIDTH, 16), pyg.GCNConv(16, 16)

        def forward(self, x, edge_index, edge_weight):
            weight = edge_weight.clone()
            x = self.first(x, edge_index, weight).relu()
            weight.mul_(torch.linspace(0.1, 2, 10).repeat(len(weight) // 10 + 1)[: len(weight)])
            return self.second(x, edge_index, weight)

    assert hops(compare(Writes(), weighted)) == [1, 0]


@pytest.mark.parametrize("norms", ["whole", "trimmed"])
def test_outputs_whose_number_differs_run_as_they_are(norms):
    class Two(Stack):
        calls = 0

        def forward(self, x, edge_index):
            self.calls += 1
            out = super().forward(x, edge_index)
            return (out, out) if self.calls == 3 else (out,)

    fast = gz.nn.accelerate(Two(SAGEConv), norms=norms)
    found = [plain(fast, batch) for batch, _ in zip(loader(), range(4), strict=False)]
    assert [len(out) for out in found] == [1, 1, 2, 1]
    assert "same for every batch" in gz.nn.explain(fast).as_it_is


def test_looking_at_all_nodes_is_found_though_norms_are_trimmed():
    class Lstm(Skips):
        def __init__(self):
            super().__init__(nn.BatchNorm1d)
            self.convs[2] = SAGEConv(16, 16, aggr="lstm")

    fast = gz.nn.accelerate(Lstm(), norms="trimmed")
    plain(fast, next(iter(loader())))
    assert "outputs are others" in gz.nn.explain(fast).as_it_is


def test_compiled_first_is_refused():
    with pytest.raises(gz.UnsupportedError, match="the module it was made from"):
        gz.nn.accelerate(torch.compile(Stack(SAGEConv)))
