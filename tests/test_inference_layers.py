"""Layers computed hop by hop equal the model in memory on the whole graph."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.nn import (
    GAT,
    GCN,
    GIN,
    PNA,
    EdgeCNN,
    FAConv,
    GATConv,
    GCN2Conv,
    GCNConv,
    GraphConv,
    GraphNorm,
    GraphSAGE,
    HeteroConv,
    HGTConv,
    LayerNorm,
    LGConv,
    PairNorm,
    SAGEConv,
    SGConv,
    TAGConv,
    to_hetero,
)

import pyg_graphzero as gz
from graphs import homogeneous, random_edges, write_store
from pyg_graphzero.inference.fused import FUSED, Fusion, adjacency
from pyg_graphzero.inference.hop import Inputs
from pyg_graphzero.inference.modules import Modules
from pyg_graphzero.inference.normalize import Normalization
from pyg_graphzero.inference.passes import LayerPass, batch_edges
from pyg_graphzero.inference.stack import fingerprint, reachable, stack_of, tried_rows
from pyg_graphzero.loader.sweep import SweepLoader, sweep_bounds

CPU = torch.device("cpu")


def rows_of(store, inputs):
    """Shape and dtype of a row of what goes in, by type: of nodes, then of edges."""
    data = store.data()
    nodes = {}
    for node_type in store.node_types:
        kept = data if node_type is None else data[node_type]
        if inputs.attr in kept:
            value = kept[inputs.attr]
            nodes[node_type] = (value.shape[1:], value.dtype)
    values = {}
    for option in ("edge_weight", "edge_attr"):
        attr = getattr(inputs, option)
        for name in store.edge_types if attr is not None else []:
            kept = data if name is None else data[name]
            if attr in kept:
                values.setdefault(option, {})[name] = (kept[attr].shape[1:], kept[attr].dtype)
    return nodes, values


def inferred(model, store, layers=None, inputs=None, max_edges=500, num_workers=0):
    """Every layer over all nodes, activations in memory: rows by node type, in the user's order."""
    inputs = inputs or Inputs("x")
    contents = store._contents
    stack = stack_of(model, layers, store.is_hetero, inputs)
    modules = Modules()
    normalization = Normalization(contents, inputs)
    try:
        nodes, values = rows_of(store, inputs)
        rows = tried_rows(stack, store.edge_types, nodes, values, modules, CPU)
        fusion = Fusion(normalization, stack)
        for module in list(modules):
            normalization.teach(module, modules)
            fusion.teach(module, modules)
        kept = []
        for number, layer in enumerate(stack.layers):
            last = number == len(stack.layers) - 1
            attr = Inputs(inputs.attr if number == 0 else "h", inputs.edge_weight, inputs.edge_attr)
            found = {}
            for node_type in rows[number + 1]:
                data = store.data()
                if number > 0:
                    for name, value in kept[-1].items():
                        (data if name is None else data[name]).h = value
                names = reachable(store.edge_types, node_type, rows[number])
                run = LayerPass(
                    layer, data, node_type, names, attr, max_edges=max_edges,
                    normalization=normalization, num_workers=num_workers,
                )  # fmt: skip
                if last and stack.keeps_all:
                    run._earlier = [InMemory(h[node_type], contents, node_type) for h in kept]
                found[node_type] = in_users_order(list(run), contents, node_type)
            kept.append(found)
    finally:
        modules.close()
    return kept[-1]


class InMemory:
    """Earlier activations, as ``RowFile`` has them on disk."""

    def __init__(self, rows, contents, node_type):
        order = contents.order(node_type)
        self.rows = rows if order is None else rows[order.long()]

    def read(self, first, count):
        return self.rows[first : first + count]


def in_users_order(parts, contents, node_type):
    firsts = [first for first, _ in parts]
    assert firsts == sorted(firsts)
    rows = torch.cat([part for _, part in parts])
    rank = contents.rank(node_type)
    return rows if rank is None else rows[rank.long()]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    data = homogeneous(300, 2500)
    data.edge_weight = torch.rand(2500) + 0.1
    loops = torch.arange(20).expand(2, -1)
    data.edge_index = torch.cat([data.edge_index[:, :-30], loops, loops[:, :10]], 1)
    path = tmp_path_factory.mktemp("inference") / "store"
    return data, gz.open(write_store(data, path))


@pytest.fixture(scope="module")
def optimized(graph, tmp_path_factory):
    data, store = graph
    path = tmp_path_factory.mktemp("inference") / "optimized"
    gz.optimize(store.path, path, seeds=torch.arange(50), num_neighbors=[3, 3], batch_size=20)
    return data, gz.open(path)


def assert_equal(found, expected):
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, atol=1e-4, rtol=1e-4)


IN_DEGREES = torch.tensor([0, 3, 5, 8, 2, 1])
MODELS = {
    "sage": lambda **o: GraphSAGE(8, 16, 3, 5, **o),
    "sage-project": lambda **o: GraphSAGE(8, 16, 2, 5, project=True, aggr="max", **o),
    "gcn": lambda **o: GCN(8, 16, 3, 5, **o),
    "gcn-improved": lambda **o: GCN(8, 16, 2, 5, improved=True, **o),
    "gcn-no-loops": lambda **o: GCN(8, 16, 2, 5, add_self_loops=False, **o),
    "gcn-plain": lambda **o: GCN(8, 16, 2, 5, normalize=False, **o),
    "gat": lambda **o: GAT(8, 16, 3, 5, heads=2, **o),
    "gatv2": lambda **o: GAT(8, 16, 2, 5, v2=True, heads=2, **o),
    "gin": lambda **o: GIN(8, 16, 3, 5, **o),
    "pna": lambda **o: PNA(
        8, 16, 2, 5, aggregators=["mean", "max"], scalers=["identity", "amplification"],
        deg=IN_DEGREES, **o,
    ),
    "edge": lambda **o: EdgeCNN(8, 16, 2, 5, **o),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_models_of_pyg(graph, name):
    data, store = graph
    model = MODELS[name](dropout=0.5, norm="batch_norm")
    for _ in range(3):
        model(data.x, data.edge_index)  # running statistics
    state = copy.deepcopy(model.state_dict())
    found = inferred(model, store)[None]
    assert model.training
    assert model.convs[0].training
    assert all(torch.equal(a, state[k]) for k, a in model.state_dict().items())
    with torch.no_grad():
        expected = model.eval()(data.x, data.edge_index)
    assert_equal(found, expected)


@pytest.mark.parametrize("jk", ["last", "cat", "max", "lstm"])
@pytest.mark.parametrize("act_first", [False, True])
def test_jumping_knowledge(graph, jk, act_first):
    data, store = graph
    model = GraphSAGE(8, 16, 3, 5, jk=jk, act_first=act_first, norm="layer_norm", act="elu",
                      norm_kwargs={"mode": "node"})  # fmt: skip
    with torch.no_grad():
        assert_equal(inferred(model, store)[None], model.eval()(data.x, data.edge_index))


@pytest.mark.parametrize("name", ["sage", "gcn", "gat"])
def test_an_optimized_store(optimized, name):
    data, store = optimized
    model = MODELS[name](jk="cat").eval()
    with torch.no_grad():
        assert_equal(inferred(model, store)[None], model(data.x, data.edge_index))


@pytest.mark.parametrize("option", [{}, {"improved": True}, {"add_self_loops": False}])
@pytest.mark.parametrize("kind", ["graph", "optimized"])
def test_weights_of_edges(request, kind, option):
    data, store = request.getfixturevalue(kind)
    model = GCN(8, 16, 2, 5, **option).eval()
    found = inferred(model, store, inputs=Inputs("x", edge_weight="edge_weight"))[None]
    with torch.no_grad():
        assert_equal(found, model(data.x, data.edge_index, edge_weight=data.edge_weight))


@pytest.mark.parametrize("kind", ["graph", "optimized"])
def test_attributes_of_edges(request, kind):
    data, store = request.getfixturevalue(kind)
    model = GAT(8, 16, 2, 5, edge_dim=3).eval()
    found = inferred(model, store, inputs=Inputs("x", edge_attr="edge_attr"))[None]
    with torch.no_grad():
        assert_equal(found, model(data.x, data.edge_index, edge_attr=data.edge_attr))


@settings(max_examples=12, deadline=None)
@given(
    num_nodes=st.integers(1, 60),
    num_edges=st.integers(0, 300),
    seed=st.integers(0, 1000),
    max_edges=st.integers(1, 200),
    name=st.sampled_from(["sage", "gcn", "gat"]),
)
def test_any_graph(tmp_path_factory, num_nodes, num_edges, seed, max_edges, name):
    data = Data(
        x=torch.randn(num_nodes, 8),
        edge_index=random_edges(num_nodes, num_nodes, num_edges, seed),
        num_nodes=num_nodes,
    )
    store = gz.open(write_store(data, tmp_path_factory.mktemp("any") / "store"))
    model = MODELS[name]().eval()
    with torch.no_grad():
        expected = model(data.x, data.edge_index)
    assert_equal(inferred(model, store, max_edges=max_edges)[None], expected)


def test_callables(graph):
    data, store = graph
    first, second = SAGEConv(8, 16), GCNConv(16, 5)
    drop = torch.nn.Dropout(0.9)
    layers = [
        lambda x, edge_index: drop(first(x, edge_index).relu()),
        lambda x, edge_index: F.log_softmax(second(x, edge_index), -1),
    ]
    found = inferred(None, store, layers)[None]
    assert drop.training
    assert second.normalize
    with torch.no_grad():
        x = first(data.x, data.edge_index).relu()
        assert_equal(found, F.log_softmax(second(x, data.edge_index), -1))


def test_convolutions_that_normalise(graph):
    data, store = graph
    light, second, adaptive = LGConv(), GCN2Conv(8, 0.1, 0.5, 1), FAConv(8, dropout=0.0)
    layers = [light, lambda x, e: second(x, x, e), lambda x, e: adaptive(x, x, e)]
    found = inferred(None, store, layers)[None]
    with torch.no_grad():
        expected = data.x
        for layer in layers:
            expected = layer(expected, data.edge_index)
    assert_equal(found, expected)


def test_a_cache_of_another_graph_is_left_out_and_left_alone(graph):
    data, store = graph
    conv = GCNConv(8, 5, cached=True)
    other = torch.randint(0, 10, (2, 30))
    conv(torch.randn(10, 8), other)
    cached = conv._cached_edge_index
    found = inferred(None, store, [conv])[None]
    assert conv._cached_edge_index is cached
    assert conv.cached
    plain = GCNConv(8, 5)
    plain.load_state_dict(conv.state_dict())
    with torch.no_grad():
        assert_equal(found, plain(data.x, data.edge_index))


@pytest.mark.parametrize(
    ("layer", "match"),
    [
        (SGConv(8, 4, K=2), r"layers\[0\]: found SGConv, which looks 2 hops far"),
        (SGConv(8, 4, K=1), "found SGConv, which normalises by degrees"),
        (TAGConv(8, 4, K=3), "found TAGConv, which looks 3 hops"),
        (SAGEConv(8, 4, flow="target_to_source"), "found SAGEConv with flow='target_to_source'"),
        (torch.nn.Linear(9, 2), r"found TypeError: .*; expected rows of the destination"),
        (lambda x, e: None, "found nothing|found rows for none of the node types"),
        (lambda x, e: x[:1], "expected a tensor with a row for each"),
    ],
)
def test_layers_that_cannot_be_computed_so(graph, layer, match):
    _, store = graph
    with pytest.raises(ValueError, match=match):
        inferred(None, store, [layer])


@pytest.mark.parametrize(
    "norm",
    [GraphNorm(16), PairNorm(), LayerNorm(16), torch.nn.BatchNorm1d(16, track_running_stats=False)],
)
def test_norms_over_all_nodes(graph, norm):
    _, store = graph
    conv = SAGEConv(8, 16)
    name = type(norm).__name__
    with pytest.raises(gz.UnsupportedError, match=f"found {name}, which depends on all nodes"):
        inferred(None, store, [lambda x, e: norm(conv(x, e))])
    assert conv.training
    assert norm.training


def test_edges_that_a_layer_makes_itself(graph):
    _, store = graph
    conv = GCNConv(8, 4)
    with pytest.raises(gz.UnsupportedError, match="GCNConv: found edges that a layer made itself"):
        inferred(None, store, [lambda x, e: conv(x, e.flip(0))])
    with pytest.raises(gz.UnsupportedError, match="found weights that a layer made itself"):
        inferred(None, store, [lambda x, e: conv(x, e, torch.ones(e.size(1)))])
    assert conv.normalize


def test_models_and_layers_that_are_neither(graph, hetero):
    _, store = graph
    with pytest.raises(TypeError, match="model: found Linear, expected a BasicGNN"):
        inferred(torch.nn.Linear(8, 4), store)
    with pytest.raises(TypeError, match="found str, expected a torch"):
        inferred("sage", store)
    with pytest.raises(ValueError, match="expected a list of callables"):
        inferred(None, store, [3])
    with pytest.raises(ValueError, match="edge_weight='edge_weight': GraphSAGE takes none"):
        inferred(MODELS["sage"](), store, inputs=Inputs("x", edge_weight="edge_weight"))
    with pytest.raises(gz.UnsupportedError, match="over a heterogeneous store"):
        inferred(MODELS["sage"](), hetero[1])
    with pytest.raises(TypeError, match="to_hetero is not taken"):
        inferred(torch.nn.Linear(8, 4), hetero[1])


def hetero_layers(widths):
    layers = []
    for width in widths:
        layers.append(
            HeteroConv(
                {
                    ("paper", "cites", "paper"): GCNConv(-1, width),
                    ("author", "writes", "paper"): SAGEConv((-1, -1), width),
                    ("paper", "rev_writes", "author"): GATConv(
                        (-1, -1), width, add_self_loops=False
                    ),
                }
            )
        )
    return layers


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    from graphs import heterogeneous

    data = heterogeneous()
    data["author"].x = data["author"].x.float()
    path = tmp_path_factory.mktemp("inference") / "typed"
    write_store(data, path)
    optimized = tmp_path_factory.mktemp("inference") / "typed-optimized"
    gz.optimize(path, optimized, seeds=("paper", torch.arange(50)), num_neighbors=[3, 3],
                batch_size=20)  # fmt: skip
    return data, gz.open(path), gz.open(optimized)


def full(data, layers, drop=("venue",)):
    x_dict = {k: v for k, v in data.x_dict.items() if k not in drop}
    edges = {k: v for k, v in data.edge_index_dict.items() if k[0] not in drop and k[2] not in drop}
    with torch.no_grad():
        for layer in layers:
            x_dict = layer(x_dict, edges)
    return x_dict


@pytest.mark.parametrize("number", [1, 2])
def test_heterogeneous_layers(typed, number):
    data, store = typed[0], typed[number]
    convs = hetero_layers([16, 6])
    layers = [
        lambda x, e: {k: v.relu() for k, v in convs[0](x, e).items()},
        convs[1],
    ]
    expected = full(data, layers)
    found = inferred(None, store, layers, max_edges=150)
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        assert_equal(found[name], rows)


def test_attributes_of_typed_edges(tmp_path):
    from torch_geometric.data import HeteroData

    data = HeteroData()
    data["a"].x, data["b"].x = torch.randn(40, 6), torch.randn(30, 6)
    data["a", "to", "b"].edge_index = random_edges(40, 30, 200)
    data["a", "to", "b"].w = torch.rand(200)
    data["b", "back", "a"].edge_index = random_edges(30, 40, 100, 1)
    data["b", "back", "a"].w = torch.rand(100)
    store = gz.open(write_store(data, tmp_path / "store"))
    conv = HeteroConv(
        {name: GraphConv((6, 6), 4) for name in (("a", "to", "b"), ("b", "back", "a"))}
    )
    found = inferred(None, store, [conv], Inputs("x", edge_weight="w"))
    with torch.no_grad():
        expected = conv(data.x_dict, data.edge_index_dict, edge_weight_dict=data.collect("w"))
    for name, rows in expected.items():
        assert_equal(found[name], rows)


def test_a_type_of_edges_without_edges_and_types_that_pass_through(tmp_path):
    from torch_geometric.data import HeteroData

    data = HeteroData()
    data["a"].x, data["b"].x, data["c"].x = (torch.randn(n, 6) for n in (40, 30, 9))
    data["a", "to", "b"].edge_index = random_edges(40, 30, 200)
    data["b", "back", "a"].edge_index = torch.empty(2, 0, dtype=torch.int64)
    store = gz.open(write_store(data, tmp_path / "store"))
    conv = HeteroConv(
        {name: SAGEConv((6, 6), 6) for name in (("a", "to", "b"), ("b", "back", "a"))}
    )
    layers = [lambda x, e: x | conv(x, e)] * 2
    expected = full(data, layers, ())
    found = inferred(None, store, layers, max_edges=20)
    assert found.keys() == expected.keys() == {"a", "b", "c"}
    for name, rows in expected.items():
        assert_equal(found[name], rows)


def test_models_of_to_hetero_are_refused(typed):
    types = (["paper", "author"], [t for t in typed[0].edge_types if "venue" not in t])
    model = to_hetero(GraphSAGE((-1, -1), 8, 1, 4), types)
    with pytest.raises(gz.UnsupportedError, match=r"layers\[0\]: found a GraphModule such as"):
        inferred(None, typed[1], [model])


def test_hgt(typed):
    data, store = typed[0], typed[1]
    types = (["paper", "author"], [t for t in data.edge_types if "venue" not in t])
    conv = HGTConv({"paper": 8, "author": 5}, 16, types, heads=2)
    expected = full(data, [conv])
    found = inferred(None, store, [conv])
    for name, rows in expected.items():
        assert_equal(found[name], rows)


@settings(max_examples=40, deadline=None)
@given(
    num_nodes=st.integers(1, 80),
    num_edges=st.integers(0, 300),
    max_edges=st.integers(1, 120),
    start=st.integers(0, 80),
    seed=st.integers(0, 1000),
)
def test_bounds(tmp_path_factory, num_nodes, num_edges, max_edges, start, seed):
    edges = random_edges(num_nodes, num_nodes, num_edges, seed)
    data = Data(x=torch.zeros(num_nodes, 1), edge_index=edges, num_nodes=num_nodes)
    disk = gz.open(write_store(data, tmp_path_factory.mktemp("bounds") / "store")).data()
    start = min(start, num_nodes)
    bounds = sweep_bounds(disk, None, max_edges, start).tolist()
    assert bounds[0] == start
    assert bounds[-1] == num_nodes
    cost = np.bincount(edges[1], minlength=num_nodes) + 1
    for first, stop in pairwise(bounds):
        assert stop > first
        assert stop == first + 1 or cost[first:stop].sum() <= max_edges
        assert stop == num_nodes or cost[first : stop + 1].sum() > max_edges  # as long as may be


def test_a_sweep_has_every_edge_once(optimized):
    data, store = optimized
    disk = store.data()
    bounds = sweep_bounds(disk, None, 300)
    order = store._contents.order(None).long()
    found, next_row = [], 0
    for batch in SweepLoader(disk, None, bounds, 2):
        assert batch.first_row == next_row
        next_row += batch.batch_size
        assert torch.equal(batch.x, data.x[order[batch.n_id]])
        assert "e_id" not in batch
        assert (batch.edge_index[1] < batch.batch_size).all()
        found.append(order[batch.n_id[batch.edge_index]])
    assert next_row == 300
    mine = torch.cat(found, 1)
    pairs = sorted(zip(*mine.tolist(), strict=True))
    assert pairs == sorted(zip(*data.edge_index.tolist(), strict=True))


def test_batches_are_smaller_in_a_small_budget():
    assert batch_edges(10**12, 1024) == 1 << 18
    assert batch_edges(10**9, 1024) < 1 << 15
    assert batch_edges(1, 1024) == 1 << 12


def test_fingerprints():
    def of(model, layers=None, head=None, **about):
        inputs = Inputs("x")
        stack = stack_of(model, layers, False, inputs, head)
        modules = Modules()
        tried_rows(stack, [None], {None: (torch.Size([8]), torch.float32)}, {}, modules, CPU)
        made = fingerprint(stack, modules, about)
        modules.close()
        return made

    model = MODELS["gat"]()
    assert of(model) == of(copy.deepcopy(model)) == of(model.eval())
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.convs[1].bias[0] += 1
    slope = copy.deepcopy(model)
    slope.convs[0].negative_slope = 0.3
    conv = SAGEConv(8, 4)
    seen = [
        of(model),
        of(other),
        of(slope),
        of(model, a=1),
        of(model, head=lambda h: h.argmax(-1)),
        of(model, head=lambda h: h.argmin(-1)),
        of(None, [conv]),
        of(None, [lambda x, e: conv(x, e)]),
        of(None, [lambda x, e: conv(x, e).relu()]),
    ]
    assert len(set(seen)) == len(seen)
