"""Layers computed hop by hop equal the model in memory on the whole graph."""

from __future__ import annotations

import copy
from functools import wraps
from itertools import pairwise

import chunks
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.nn import (
    APPNP,
    GAT,
    GCN,
    GIN,
    PNA,
    EdgeCNN,
    FAConv,
    GATConv,
    GatedGraphConv,
    GCN2Conv,
    GCNConv,
    GINConv,
    GraphConv,
    GraphNorm,
    GraphSAGE,
    HeteroConv,
    HGTConv,
    LayerNorm,
    LGConv,
    MFConv,
    PairNorm,
    SAGEConv,
    SGConv,
    SimpleConv,
    TAGConv,
    to_hetero,
)

import pyg_graphzero as gz
from graphs import homogeneous, random_edges, write_store
from pyg_graphzero.inference import fused
from pyg_graphzero.inference.fused import Fusion, adjacency
from pyg_graphzero.inference.hop import Hop, Inputs, is_grouped
from pyg_graphzero.inference.modules import Modules
from pyg_graphzero.inference.normalize import Normalization
from pyg_graphzero.inference.passes import LayerPass, Task, batch_edges
from pyg_graphzero.inference.stack import fingerprint, reachable, stack_of, tried_rows
from pyg_graphzero.inference.sweep import SweepLoader, sweep_bounds
from pyg_graphzero.nn.kinds import FUSED
from pyg_graphzero.sampling.hops import want_hops

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
    contents = store.contents
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
                    Task(layer, attr, normalization), data, node_type, names,
                    max_edges=max_edges, num_workers=num_workers,
                )  # fmt: skip
                if last and stack.keeps_all:
                    run._earlier = [InMemory(h[node_type]) for h in kept]
                found[node_type] = joined(list(run))
            kept.append(found)
    finally:
        modules.close()
    return kept[-1]


class InMemory:
    """Earlier activations, as ``RowFile`` has them on disk."""

    def __init__(self, rows):
        self.rows = rows

    def read(self, first, count):
        return self.rows[first : first + count]


def joined(parts):
    firsts = [first for first, _ in parts]
    assert firsts == sorted(firsts)
    return torch.cat([part for _, part in parts])


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    data = homogeneous(300, 2500)
    data.edge_weight = torch.rand(2500) + 0.1
    loops = torch.arange(20).expand(2, -1)
    data.edge_index = torch.cat([data.edge_index[:, :-30], loops, loops[:, :10]], 1)
    path = tmp_path_factory.mktemp("inference") / "store"
    return data, gz.open(write_store(data, path))


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


@chunks.both
@pytest.mark.parametrize("option", [{}, {"improved": True}, {"add_self_loops": False}])
def test_weights_of_edges(graph, option):
    data, store = graph
    model = GCN(8, 16, 2, 5, **option).eval()
    found = inferred(model, store, inputs=Inputs("x", edge_weight="edge_weight"))[None]
    with torch.no_grad():
        assert_equal(found, model(data.x, data.edge_index, edge_weight=data.edge_weight))


def test_attributes_of_edges(graph):
    data, store = graph
    model = GAT(8, 16, 2, 5, edge_dim=3).eval()
    found = inferred(model, store, inputs=Inputs("x", edge_attr="edge_attr"))[None]
    with torch.no_grad():
        assert_equal(found, model(data.x, data.edge_index, edge_attr=data.edge_attr))


@settings(max_examples=12)
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


@chunks.both
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
    return data, gz.open(path)


def full(data, layers, drop=("venue",)):
    x_dict = {k: v for k, v in data.x_dict.items() if k not in drop}
    edges = {k: v for k, v in data.edge_index_dict.items() if k[0] not in drop and k[2] not in drop}
    with torch.no_grad():
        for layer in layers:
            x_dict = layer(x_dict, edges)
    return x_dict


def test_heterogeneous_layers(typed):
    data, store = typed
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
    data, store = typed
    types = (["paper", "author"], [t for t in data.edge_types if "venue" not in t])
    conv = HGTConv({"paper": 8, "author": 5}, 16, types, heads=2)
    expected = full(data, [conv])
    found = inferred(None, store, [conv])
    for name, rows in expected.items():
        assert_equal(found[name], rows)


def nn(width):
    return torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.ReLU())


# Layers that are products of a matrix, and whether they take weights: by name, first the class.
PRODUCTS = {
    "SAGEConv": (lambda: SAGEConv(8, 5), False),
    "SAGEConv sum": (lambda: SAGEConv(8, 5, aggr="sum", project=True, normalize=True), False),
    "GraphConv": (lambda: GraphConv(8, 5), True),
    "GraphConv mean": (lambda: GraphConv(8, 5, aggr="mean"), True),
    "GINConv": (lambda: GINConv(nn(5)), False),
    "GCNConv": (lambda: GCNConv(8, 5), True),
    "GCNConv improved": (lambda: GCNConv(8, 5, improved=True), True),
    "GCNConv plain": (lambda: GCNConv(8, 5, normalize=False), True),
    "LGConv": (lambda: LGConv(), True),
    "GCN2Conv": (lambda: GCN2Conv(8, 0.1, 0.5, 1), True),
    "MFConv": (lambda: MFConv(8, 5, max_degree=6), False),
    "SimpleConv": (lambda: SimpleConv("mean", combine_root="cat"), True),
    "SimpleConv loops": (lambda: SimpleConv("sum", combine_root="self_loop"), False),
    "TAGConv": (lambda: TAGConv(8, 5, K=1, normalize=False), True),
    "APPNP": (lambda: APPNP(1, 0.2, normalize=False), True),
    "GatedGraphConv": (lambda: GatedGraphConv(9, 1), True),
}


@pytest.fixture
def products(monkeypatch):
    """The matrices that convolutions multiplied with."""
    made = []
    for kind in FUSED:
        multiply = kind.message_and_aggregate

        @wraps(multiply)  # PyG looks at its signature
        def seen(self, adj, *args, multiply=multiply, **kwargs):
            made.append(adj)
            return multiply(self, adj, *args, **kwargs)

        monkeypatch.setattr(kind, "message_and_aggregate", seen)
    return made


def test_every_kind_of_product_is_compared():
    assert {name.split()[0] for name in PRODUCTS} == {kind.__name__ for kind in FUSED}


@pytest.mark.parametrize(
    ("name", "is_weighted"),
    [(name, False) for name in PRODUCTS]
    + [(k, True) for k, (_, takes) in PRODUCTS.items() if takes],
)
def test_products_equal_the_whole_graph(graph, products, name, is_weighted):
    data, store = graph
    conv = PRODUCTS[name][0]().eval()
    weights = {"edge_weight": data.edge_weight} if is_weighted else {}
    inputs = Inputs("x", edge_weight="edge_weight" if is_weighted else None)

    def layer(x, edge_index, **weights):
        if isinstance(conv, GCN2Conv):
            return conv(x, x, edge_index, **weights)
        return conv(x, edge_index, **weights)

    with torch.no_grad():
        expected = layer(data.x, data.edge_index, **weights)
    assert not products
    found = inferred(None, store, [layer], inputs)[None]
    assert_equal(found, expected)
    assert len(products) > 3
    assert all(made.layout == torch.sparse_csr for made in products)
    products.clear()
    with torch.no_grad():
        layer(data.x, data.edge_index, **weights)
    assert not products  # the convolution is left as it was


def test_products_beside_an_accelerated_model(graph, products):
    want_hops()
    test_products_equal_the_whole_graph(graph, products, "SAGEConv", False)


def test_products_in_double_precision(graph, tmp_path, products):
    data = copy.copy(graph[0])
    data.x = data.x.double()
    store = gz.open(write_store(data, tmp_path / "store"))
    conv = GraphConv(8, 5).double()
    found = inferred(None, store, [conv], Inputs("x", edge_weight="edge_weight"))[None]
    with torch.no_grad():
        expected = conv(data.x, data.edge_index, data.edge_weight.double())
    assert torch.allclose(found, expected, atol=1e-12)
    assert products


@pytest.mark.parametrize("name", ["sage", "gcn", "layer"])
def test_products_have_no_rows_that_are_cut_off(graph, products, name):
    data, store = graph
    model = SAGEConv(8, 5) if name == "layer" else MODELS[name]().eval()
    layers = [model] if name == "layer" else None
    found = inferred(None if layers else model, store, layers)[None]
    counts = sweep_bounds(store.data(), None, 500).diff().tolist()
    assert [len(made) for made in products] == counts * (1 if layers else 3)
    with torch.no_grad():
        assert_equal(found, model(data.x, data.edge_index))


def test_products_of_typed_edges(typed, products):
    data, store = typed
    convs = hetero_layers([16])
    expected = full(data, convs)
    found = inferred(None, store, convs)
    assert_equal(found["paper"], expected["paper"])
    assert len({made.size(1) for made in products}) > 1  # papers, and authors


class Doubled(SAGEConv):
    def message(self, x_j):
        return 2 * x_j


def hooked():
    conv = SAGEConv(8, 5)
    conv.register_message_forward_hook(lambda module, inputs, out: 3 * out)
    return conv


def unfused():
    conv = SAGEConv(8, 5)
    conv.fuse = False
    return conv


def explained():
    conv = SAGEConv(8, 5)
    conv.explain = True
    conv.explain_message = lambda inputs, dim_size: 4 * inputs
    return conv


@pytest.mark.parametrize(
    "make",
    [
        lambda: Doubled(8, 5),
        hooked,
        unfused,
        explained,
        lambda: SAGEConv(8, 5, aggr="max"),
        lambda: SAGEConv(8, 5, aggr=["mean", "max"]),
        lambda: SAGEConv(8, 5, aggr="median"),
        lambda: GATConv(8, 5),
    ],
)
def test_what_is_no_product_goes_along_edges(graph, products, make, monkeypatch):
    data, store = graph
    monkeypatch.setattr(fused, "adjacency", None)
    conv = make().eval()
    with torch.no_grad():
        expected = conv(data.x, data.edge_index)
    assert_equal(inferred(None, store, [conv])[None], expected)
    assert not products


def test_products_of_edges_that_a_layer_makes_itself(graph, products):
    data, store = graph
    conv = GraphConv(8, 5)

    def layer(x, edge_index):
        edges = edge_index[:, x[edge_index[0], 0] > 0].flip(1)
        weights = (x[edges[0]] - x[edges[1]]).sum(1, keepdim=True)
        return conv(x, edges, weights)

    found = inferred(None, store, [layer])[None]
    with torch.no_grad():
        assert_equal(found, layer(data.x, data.edge_index))
    assert products


def test_a_size_that_a_layer_gives_itself_is_kept(graph, products):
    data = graph[0]
    conv = SAGEConv(8, 5, root_weight=False)
    modules = Modules()
    Fusion(None, stack_of(None, [conv], False, Inputs("x"))).teach(conv, modules)
    with torch.no_grad():
        assert conv((data.x, None), data.edge_index).shape == (300, 5)
        assert conv((data.x, None), data.edge_index, size=(300, 310)).shape == (310, 5)
    assert len(products) == 1
    modules.close()


@settings(max_examples=60)
@given(
    num_src=st.integers(1, 30),
    num_dst=st.integers(1, 30),
    num_edges=st.integers(1, 100),
    is_sorted=st.booleans(),
    is_weighted=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_adjacency(num_src, num_dst, num_edges, is_sorted, is_weighted, seed):
    torch.manual_seed(seed)
    edges = torch.stack(
        [torch.randint(num_src, (num_edges,)), torch.randint(num_dst, (num_edges,))]
    )
    if is_sorted:
        edges = edges[:, edges[1].argsort()]
    weight = torch.randint(-9, 9, (num_edges, 1)) if is_weighted else None
    x = torch.randn(num_src, 3)
    values = torch.ones(num_edges) if weight is None else weight.view(-1).float()
    expected = torch.zeros(num_dst, num_src).index_put_((edges[1], edges[0]), values, True)
    found = adjacency(edges, weight, x, num_dst)
    assert torch.equal(found.to_dense(), expected)
    counts = torch.bincount(edges[1], minlength=num_dst)
    assert torch.equal(found.crow_indices().diff(), counts)


def test_adjacency_of_what_is_no_matrix():
    edges, x = torch.tensor([[0, 2], [0, 1]]), torch.randn(3, 4)
    assert adjacency(edges, None, x, 2).shape == (2, 3)
    assert adjacency(edges, torch.ones(2), x.double(), 2).dtype == torch.float64
    refused = [
        (edges, None, x, 1),  # a destination that is not there
        (edges, None, x[:2], 2),  # a source
        (edges - 1, None, x, 2),
        (edges[:, :0], None, x, 2),
        (edges.float(), None, x, 2),
        (adjacency(edges, None, x, 2), None, x, 2),
        (edges, None, x[None], 2),
        (edges, None, x.half(), 2),
        (edges, None, x.long(), 2),
        (edges, torch.ones(2, 4), x, 2),
        (edges, torch.ones(2).double(), x, 2),
        (edges, torch.ones(2, requires_grad=True), x, 2),
        (edges, None, x.clone().requires_grad_(), 2),
    ]
    assert [adjacency(*given) for given in refused] == [None] * len(refused)
    with torch.autocast("cpu", torch.bfloat16):
        assert adjacency(edges, None, x, 2) is None
    with torch.no_grad():
        assert adjacency(edges, None, x.clone().requires_grad_(), 2) is not None


def test_added_loops_leave_edges_grouped(graph, products):
    data, store = graph
    conv = GCNConv(8, 5)
    edges = data.edge_index[:, data.edge_index[1].argsort(stable=True)]
    assert not is_grouped(data.edge_index[1])
    with torch.no_grad():
        expected = conv(data.x, data.edge_index)
    for ours in (edges, data.edge_index):
        hop = Hop(None, 300, 0, {None: data.x}, {None: ours}, rows={None: torch.arange(300)})
        normalization = Normalization(store.contents, Inputs("x"))
        normalization.hop = hop
        made, weights = normalization.weights_of(conv, ours, None, torch.float32)
        assert is_grouped(made[1]) == (ours is edges)
        with torch.no_grad():
            plain = GCNConv(8, 5, normalize=False)
            plain.load_state_dict(conv.state_dict())
            assert_equal(plain(data.x, made, weights), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("aggr", ["sum", "mean"])
def test_products_on_a_gpu(graph, products, aggr):
    data = graph[0]
    conv = GraphConv(8, 5, aggr=aggr)
    with torch.no_grad():
        expected = conv(data.x, data.edge_index, data.edge_weight)
        conv.cuda()
        modules = Modules()
        Fusion(None, stack_of(None, [conv], False, Inputs("x"))).teach(conv, modules)
        found = conv(data.x.cuda(), data.edge_index.cuda(), data.edge_weight.cuda())
        modules.close()
    assert_equal(found.cpu(), expected)
    assert products[0].is_cuda


@settings(max_examples=40)
@given(
    num_nodes=st.integers(1, 80),
    num_edges=st.integers(0, 300),
    max_edges=st.integers(1, 120),
    seed=st.integers(0, 1000),
)
def test_bounds(tmp_path_factory, num_nodes, num_edges, max_edges, seed):
    edges = random_edges(num_nodes, num_nodes, num_edges, seed)
    data = Data(x=torch.zeros(num_nodes, 1), edge_index=edges, num_nodes=num_nodes)
    disk = gz.open(write_store(data, tmp_path_factory.mktemp("bounds") / "store")).data()
    bounds = sweep_bounds(disk, None, max_edges).tolist()
    assert bounds[0] == 0
    assert bounds[-1] == num_nodes
    cost = np.bincount(edges[1], minlength=num_nodes) + 1
    for first, stop in pairwise(bounds):
        assert stop > first
        assert stop == first + 1 or cost[first:stop].sum() <= max_edges
        assert stop == num_nodes or cost[first : stop + 1].sum() > max_edges  # as long as may be


def test_a_sweep_has_every_edge_once(graph):
    data, store = graph
    disk = store.data()
    bounds = sweep_bounds(disk, None, 300)
    found, next_row = [], 0
    for batch in SweepLoader(disk, None, bounds, 2):
        assert batch.first_row == next_row
        next_row += batch.batch_size
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert "e_id" not in batch
        assert (batch.edge_index[1] < batch.batch_size).all()
        assert is_grouped(batch.edge_index[1])
        found.append(batch.n_id[batch.edge_index])
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
