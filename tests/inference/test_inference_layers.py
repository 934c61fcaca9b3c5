"""Models computed sweep by sweep equal the model in memory on the whole graph."""

from __future__ import annotations

import copy
from itertools import count
from unittest.mock import patch

import chunks
import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GAT, GCN, GATConv, GCNConv, GraphConv, GraphSAGE, SAGEConv

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous, random_edges, write_store
from pyg_graphzero.inference import run
from pyg_graphzero.inference.reader import Inputs, reading
from pyg_graphzero.nn.rules import RULES

CPU = torch.device("cpu")
NAMES = count()


def inferred(model, path, sums=False, **options):
    """A model's results for all nodes: by node type, where there are types."""
    name = f"out{next(NAMES)}"
    options = {"max_edges": 500, "num_workers": 0, **options}
    can_sum = run.can_sum if sums else lambda *of: False
    with patch.object(run, "can_sum", can_sum):
        summary = gz.inference.layerwise(model, path, out=name, **options)
    data = gz.open(path).data()
    if None in summary.names:
        return data[name].clone()
    return {node_type: data[node_type][name].clone() for node_type in summary.names}


def whole(model, data, **options):
    """A model's results on the whole graph in memory."""
    with torch.no_grad():
        return model.eval()(data.x, data.edge_index, **options)


@pytest.fixture(scope="module")
def data():
    data = homogeneous(300, 2500)
    data.edge_weight = torch.rand(2500) + 0.1
    data.kind = torch.randint(0, 3, (2500,))
    loops = torch.arange(20).expand(2, -1)
    data.edge_index = torch.cat([data.edge_index[:, :-30], loops, loops[:, :10]], 1)
    return data


@pytest.fixture(scope="module")
def path(data, tmp_path_factory):
    return write_store(data, tmp_path_factory.mktemp("inference") / "store")


def assert_equal(found, expected):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, rows in expected.items():
            assert_equal(found[name], rows)
        return
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
    "gin": lambda **o: pyg.GIN(8, 16, 3, 5, **o),
    "pna": lambda **o: pyg.PNA(
        8, 16, 2, 5, aggregators=["mean", "max"], scalers=["identity", "amplification"],
        deg=IN_DEGREES, **o,
    ),
    "edge": lambda **o: pyg.EdgeCNN(8, 16, 2, 5, **o),
}  # fmt: skip


@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_models_of_pyg(data, path, name, sums):
    model = MODELS[name](dropout=0.5, norm="batch_norm")
    for _ in range(3):
        model(data.x, data.edge_index)  # running statistics
    state, before = copy.deepcopy(model.state_dict()), [vars(m).copy() for m in model.modules()]
    found = inferred(model, path, sums)
    assert all(torch.equal(a, state[k]) for k, a in model.state_dict().items())
    assert [vars(m) for m in model.modules()] == before
    assert_equal(found, whole(model, data))


@pytest.mark.parametrize("jk", ["last", "cat", "max", "lstm"])
@pytest.mark.parametrize("act_first", [False, True])
def test_jumping_knowledge(data, path, jk, act_first):
    model = GraphSAGE(8, 16, 3, 5, jk=jk, act_first=act_first, norm="layer_norm", act="elu",
                      norm_kwargs={"mode": "node"})  # fmt: skip
    assert_equal(inferred(model, path, act_first), whole(model, data))


OF_EDGES = {
    "GCN": (lambda: GCN(8, 16, 2, 5), "edge_weight", "edge_weight"),
    "GCN improved": (lambda: GCN(8, 16, 2, 5, improved=True), "edge_weight", "edge_weight"),
    "GCN no loops": (lambda: GCN(8, 16, 2, 5, add_self_loops=False), "edge_weight", "edge_weight"),
    "GAT": (lambda: GAT(8, 16, 2, 5, edge_dim=3), "edge_attr", "edge_attr"),
    "relations": (lambda: Model(
        lambda m, x, e, edge_attr: m.a(x, e, edge_attr).relu() + m.b(x, e, edge_attr),
        a=pyg.RGCNConv(8, 5, 3), b=pyg.RGCNConv(8, 5, 3, num_bases=2),
    ), "edge_attr", "kind"),
    "functions of weights": (lambda: Model(
        lambda m, x, e, edge_weight: m.a(x, e, edge_weight.sigmoid() * 2), a=GraphConv(8, 5)
    ), "edge_weight", "edge_weight"),
}  # fmt: skip


@chunks.both
@pytest.mark.parametrize("name", OF_EDGES)
def test_attributes_of_edges(data, path, name):
    make, argument, attr = OF_EDGES[name]
    model = make()
    found = inferred(model, path, **{argument: attr})
    assert_equal(found, whole(model, data, **{argument: data[attr]}))


@settings(max_examples=12)
@example(num_nodes=0, num_edges=0, seed=0, max_edges=9, name="sage")
@example(num_nodes=5, num_edges=0, seed=0, max_edges=9, name="gcn")
@example(num_nodes=1, num_edges=3, seed=0, max_edges=9, name="gcn")
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
    path = write_store(data, tmp_path_factory.mktemp("any") / "store")
    model = MODELS[name](jk="cat")
    assert_equal(inferred(model, path, max_edges=max_edges), whole(model, data))


# Models of one's own ------------------------------------------------------------------------------


class Model(torch.nn.Module):
    """A model of the modules given, and a forward pass of them."""

    def __init__(self, forward, **modules):
        super().__init__()
        self.steps = forward
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *args, **kwargs):
        return self.steps(self, *args, **kwargs)


def skip(m, x, edge_index):
    h = F.dropout(x, 0.5, m.training)
    h = m.a(h, edge_index).relu() + m.lin(x)
    return m.out(torch.cat([m.b(h, edge_index) + h, x], -1))


def residual(m, x, edge_index):
    x = x0 = m.lin(x).relu()
    for conv in (m.a, m.b, m.a):
        x = F.relu(conv(x, edge_index) + 0.5 * x + 0.1 * x0, inplace=True)
    return m.out(x)


def dense(m, x, edge_index):
    h = m.a(x, edge_index)
    h = torch.cat([x, h], 1)
    return m.b(h, edge_index).log_softmax(-1)


def side_by_side(m, x, edge_index):
    h = m.a(x, edge_index).tanh() * m.b(x, edge_index).sigmoid()
    return m.c(h, edge_index) + m.d(x, edge_index)


def gated(m, x, edge_index):
    one, other = m.a(x, edge_index).chunk(2, dim=-1)
    best = torch.stack([one, other.sigmoid()], 1).max(dim=1)
    h = best.values * (best.indices + 1)
    return m.cell(m.b(h, edge_index), h)


def in_place(m, x, edge_index):
    h = m.a(x, edge_index)
    kept = m.b(h, edge_index)
    h += 1
    h.mul_(m.scale.exp())
    return kept + m.b(h, edge_index)


def initial(m, x, edge_index):
    x = x0 = m.lin(x)
    for conv in (m.a, m.b):
        x = conv(x, x0, edge_index).relu()
    return m.c(x, x0, edge_index)


def jumps(m, x, edge_index):
    one = m.a(x, edge_index)
    other = m.b(one, edge_index)
    return m.jk([x, one, other])


def two_levels(m, x, edge_index):
    h = m.a(x, edge_index)
    return m.b((x, h), edge_index) + m.c((h, x), edge_index)


OWN = {
    "skip": lambda: Model(
        skip, a=SAGEConv(8, 6), b=GATConv(6, 6), lin=torch.nn.Linear(8, 6),
        out=torch.nn.Linear(14, 3),
    ),
    "residual": lambda: Model(
        residual, lin=torch.nn.Linear(8, 6), a=GCNConv(6, 6), b=SAGEConv(6, 6),
        out=torch.nn.Linear(6, 3),
    ),
    "dense": lambda: Model(dense, a=SAGEConv(8, 4), b=SAGEConv(12, 5)),
    "side by side": lambda: Model(
        side_by_side, a=SAGEConv(8, 6), b=GATConv(8, 6), c=GCNConv(6, 5), d=GraphConv(8, 5)
    ),
    "gated": lambda: Model(gated, a=SAGEConv(8, 12), b=GCNConv(6, 6), cell=torch.nn.GRUCell(6, 6)),
    "in place": lambda: scaled(),
    "initial": lambda: Model(
        initial, lin=torch.nn.Linear(8, 6), a=pyg.GCN2Conv(6, 0.1, 0.5, 1),
        b=pyg.FAConv(6, dropout=0.0), c=pyg.GCN2Conv(6, 0.1, shared_weights=False),
    ),
    "jumps": lambda: Model(
        jumps, a=SAGEConv(8, 8), b=pyg.GINConv(torch.nn.Linear(8, 8)),
        jk=pyg.JumpingKnowledge("max"),
    ),
    "two levels": lambda: Model(
        two_levels, a=SAGEConv(8, 6), b=SAGEConv((8, 6), 5), c=SAGEConv((6, 8), 5)
    ),
    "no convolution": lambda: Model(lambda m, x, e: m.lin(x), lin=torch.nn.Linear(8, 3)),
    "unchanged": lambda: Model(lambda m, x, e: x),
}  # fmt: skip


def scaled():
    model = Model(in_place, a=SAGEConv(8, 6), b=GraphConv(6, 6))
    model.scale = torch.nn.Parameter(torch.full((6,), 0.1))
    return model


@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize("name", OWN)
def test_models_of_ones_own(data, path, name, sums):
    model = OWN[name]()
    assert_equal(inferred(model, path, sums), whole(model, data))


def test_columns_that_a_model_takes(path):
    """Inference does a sweep for each level and a column for each value between levels."""

    def columns(name):
        summary = gz.inference.layerwise(OWN[name](), path, out=f"out{next(NAMES)}")
        return [(done.layer, done.name.count(",") + 1) for done in summary.layers]

    assert columns("skip") == [(1, 1), (2, 1)]  # the linear layer of x is applied on the way
    assert columns("residual") == [(0, 1), (1, 1), (2, 1), (3, 1)]  # once a node, not an edge
    assert columns("dense") == [(1, 1), (2, 1)]
    assert columns("in place") == [(1, 2), (2, 1)]


def test_numbers_of_categories(data, tmp_path):
    data = copy.copy(data)
    data.x = torch.randint(0, 9, (300,))
    path = write_store(data, tmp_path / "store")
    model = Model(
        lambda m, x, e: m.a(m.table(x), e), table=torch.nn.Embedding(9, 6), a=SAGEConv(6, 3)
    )
    assert_equal(inferred(model, path), whole(model, data))


def test_a_cache_of_another_graph_is_left_out_and_left_alone(data, path):
    conv = GCNConv(8, 5, cached=True)
    other = torch.randint(0, 10, (2, 30))
    conv(torch.randn(10, 8), other)
    cached = conv._cached_edge_index
    found = inferred(conv, path)
    assert conv._cached_edge_index is cached
    assert conv.cached
    assert conv.normalize
    plain = GCNConv(8, 5)
    plain.load_state_dict(conv.state_dict())
    assert_equal(found, whole(plain, data))


NORM = torch.nn.BatchNorm1d(16, track_running_stats=False)
LOOPED = [SAGEConv(8, 4)]


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (pyg.SGConv(8, 4, K=2), r"SGConv: found SGConv .*\(it may look further than one hop"),
        (pyg.TAGConv(8, 4, K=3), "found TAGConv .*, or weights edges by degrees"),
        (SAGEConv(8, 4, flow="target_to_source"), "found SAGEConv .*flow='target_to_"),
        (GraphSAGE(9, 4, 2), r"GraphSAGE: tried on rows \[\d+, 8\] with edges among them"),
        (GraphSAGE(8, 16, 2, norm=pyg.GraphNorm(16)), r"norms\.0: found GraphNorm, which depends"),
        (GraphSAGE(8, 16, 2, norm=pyg.PairNorm()), "found PairNorm, which depends on all nodes"),
        (GraphSAGE(8, 16, 2, norm=pyg.LayerNorm(16)), "found LayerNorm, which depends on all"),
        (GraphSAGE(8, 16, 2, norm=NORM), "found BatchNorm1d, which depends on all nodes"),
        (Model(lambda m, x, e: x - x.mean(0)), r"found mean\(\) of all rows"),
        (Model(lambda m, x, e: x[e[0]]), r"found __getitem__\(\) of all rows, or of edges"),
        (Model(lambda m, x, e: x[:10]), r"found __getitem__\(\) of all rows"),
        (Model(lambda m, x, e: x.new_zeros(x.size(0))), r"found size\(\) of all rows"),
        (Model(lambda m, x, e: x[:1000, :2]), r"found __getitem__\(\) of all rows"),
        (Model(lambda m, x, e: None), "found NoneType as a result"),
        (Model(lambda m, x, e: (x, x)), "found tuple as a result"),
        (Model(lambda m, x, e: x.sum()), r"found sum\(\) of all rows"),
        (Model(lambda m, x, e: m.a(x, e.flip(0)), a=SAGEConv(8, 4)), r"found flip\(\) of all rows"),
        (Model(lambda m, x, e: LOOPED[0](x, e)), "found SAGEConv that is none of its modules"),
        (Model(lambda m, x, e: m.a((x, None), e), a=SAGEConv(8, 4, root_weight=False)),
         "a: found SAGEConv that needs all nodes at once .rows of its input are not known"),
        (Model(lambda m, x, e: m.a(x, e, return_attention_weights=True)[0], a=GATConv(8, 4)),
         "needs all nodes at once"),
    ],
)  # fmt: skip
def test_models_that_cannot_be_computed_so(path, model, match):
    before = [vars(module).copy() for module in model.modules()]
    with pytest.raises(ValueError, match=match):
        inferred(model, path)
    assert [vars(module) for module in model.modules()] == before


@pytest.mark.parametrize("make", [SAGEConv, GCNConv, GATConv])
def test_steps_that_do_not_stand_for_the_model_are_found(path, monkeypatch, make):
    model = Model(lambda m, x, e: m.a(x, e).flip(0), a=make(8, 4))
    monkeypatch.setitem(RULES, torch.Tensor.flip, RULES[torch.Tensor.relu])  # a wrong rule
    with pytest.raises(gz.UnsupportedError, match="found other rows when the steps"):
        inferred(model, path)
    column = Model(lambda m, x, e: m.a(x, e).flip(1), a=model.a)
    inferred(column, path)


def test_weights_that_a_model_makes_itself(path):
    model = Model(lambda m, x, e, edge_weight: m.a(x, e, edge_weight * 2), a=GCNConv(8, 4))
    with pytest.raises(gz.UnsupportedError, match="found GCNConv and weights that the model made"):
        inferred(model, path, edge_weight="edge_weight")
    assert model.a.normalize


def test_models_that_are_none(path, typed):
    with pytest.raises(TypeError, match="model: found str, expected a torch"):
        inferred("sage", path)
    with pytest.raises(
        gz.UnsupportedError, match="found a RecursiveScriptModule, expected the mod"
    ):
        inferred(torch.jit.script(torch.nn.Linear(8, 4)), path)
    with pytest.raises(ValueError, match="edge_weight='edge_weight': GraphSAGE takes none"):
        inferred(MODELS["sage"](), path, edge_weight="edge_weight")
    with pytest.raises(gz.UnsupportedError, match="over a heterogeneous store"):
        inferred(MODELS["sage"](), typed[1])


# Types --------------------------------------------------------------------------------------------


def convs_of(width):
    return pyg.HeteroConv(
        {
            ("paper", "cites", "paper"): GCNConv(-1, width),
            ("author", "writes", "paper"): SAGEConv((-1, -1), width),
            ("paper", "rev_writes", "author"): GATConv((-1, -1), width, add_self_loops=False),
        }
    )


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    data = heterogeneous()
    data["author"].x = data["author"].x.float()
    path = tmp_path_factory.mktemp("inference") / "typed"
    return data, write_store(data, path)


def whole_typed(data, model, drop=("venue",), **options):
    x_dict = {k: v for k, v in data.x_dict.items() if k not in drop}
    edges = {k: v for k, v in data.edge_index_dict.items() if k[0] not in drop and k[2] not in drop}
    with torch.no_grad():
        return model.eval()(x_dict, edges, **options)


def stacked(m, x_dict, edges):
    first = {k: v.relu() for k, v in m.a(x_dict, edges).items()}
    return {k: v + first[k] for k, v in m.b(first, edges).items()}


TYPES = (["paper", "author"], [*convs_of(1).convs.keys()])
TYPED = {
    "layers": lambda: Model(stacked, a=convs_of(6), b=convs_of(6)),
    "one type": lambda: Model(
        lambda m, x, e: m.lin(stacked(m, x, e)["paper"]),
        a=convs_of(6), b=convs_of(6), lin=torch.nn.Linear(6, 3),
    ),
    "to_hetero": lambda: pyg.to_hetero(GraphSAGE((-1, -1), 8, 2, 4), TYPES),
    "HGT": lambda: Model(
        lambda m, x, e: m.a(x, e), a=pyg.HGTConv({"paper": 8, "author": 5}, 16, TYPES, heads=2)
    ),
    "two layers of HGT": lambda: Model(
        lambda m, x, e: m.b(m.a(x, e), e),
        a=pyg.HGTConv({"paper": 8, "author": 5}, 16, TYPES, heads=2), b=pyg.HGTConv(16, 6, TYPES),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPED)
def test_models_of_types(typed, name):
    data, path = typed
    model = TYPED[name]()
    found = inferred(model, path, max_edges=150)  # and parameters are made
    expected = whole_typed(data, model)
    assert_equal(found, {"paper": expected} if name == "one type" else expected)


@pytest.mark.parametrize("case", ["weights", "no edges, and types that pass through"])
def test_types_of_edges(tmp_path, case):
    data = HeteroData()
    data["a"].x, data["b"].x, data["c"].x = (torch.randn(n, 6) for n in (40, 30, 9))
    data["a", "to", "b"].edge_index = random_edges(40, 30, 200)
    data["b", "back", "a"].edge_index = random_edges(30, 40, 100 if case == "weights" else 0, 1)
    for edges in data.edge_stores:
        edges.w = torch.rand(edges.num_edges)
    path = write_store(data, tmp_path / "store")
    if case == "weights":
        model = pyg.HeteroConv({name: GraphConv((6, 6), 4) for name in data.edge_types})
        given = {"edge_weight": "w"}, {"edge_weight_dict": data.collect("w")}
    else:
        conv = pyg.HeteroConv({name: SAGEConv((6, 6), 6) for name in data.edge_types})
        model = Model(lambda m, x, e: x | m.a(x | m.a(x, e), e), a=conv)
        given = {}, {}
    found = inferred(model, path, max_edges=20, **given[0])
    assert_equal(found, whole_typed(data, model, (), **given[1]))


# Convolutions -------------------------------------------------------------------------------------


def nn(width):
    return torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.ReLU())


# Convolutions, and whether they take weights.
CONVS = {
    "SAGEConv sum": (lambda: SAGEConv(8, 5, aggr="sum", project=True, normalize=True), False),
    "SAGEConv two": (lambda: SAGEConv(8, 5, aggr=["mean", "max"]), False),
    "GraphConv mean": (lambda: GraphConv(8, 5, aggr="mean"), True),
    "GCNConv plain": (lambda: GCNConv(8, 5, normalize=False), True),
    "GCNConv max": (lambda: GCNConv(8, 5, aggr="max"), True),
    "LGConv": (lambda: pyg.LGConv(), True),
    "MFConv": (lambda: pyg.MFConv(8, 5, max_degree=6), False),
    "SimpleConv": (lambda: pyg.SimpleConv("mean", combine_root="cat"), True),
    "SimpleConv loops": (lambda: pyg.SimpleConv("sum", combine_root="self_loop"), False),
    "TransformerConv": (lambda: pyg.TransformerConv(8, 5, heads=2, beta=True), False),
    "ResGatedGraphConv": (lambda: pyg.ResGatedGraphConv(8, 5), False),
    "of one's own": (lambda: Doubled(8, 5), False),
    "hooked": (lambda: hooked(), False),
}


class Doubled(SAGEConv):
    def message(self, x_j):
        return 2 * x_j


def hooked():
    conv = SAGEConv(8, 5)
    conv.register_message_forward_hook(lambda module, inputs, out: 3 * out)
    conv.register_forward_hook(lambda module, inputs, out: out + 1)
    return conv


@pytest.mark.parametrize(
    ("name", "is_weighted"),
    [(name, False) for name in CONVS] + [(k, True) for k, (_, takes) in CONVS.items() if takes],
)
def test_convolutions(data, path, name, is_weighted):
    conv = CONVS[name][0]()
    weights = {"edge_weight": data.edge_weight} if is_weighted else {}
    expected = whole(conv, data, **weights)
    found = inferred(conv, path, edge_weight="edge_weight" if is_weighted else None)
    assert_equal(found, expected)
    assert_equal(whole(conv, data, **weights), expected)  # the convolution is left as it was


def test_double_precision(data, tmp_path):
    data = copy.copy(data)
    data.x = data.x.double()
    path = write_store(data, tmp_path / "store")
    conv = GraphConv(8, 5).double()
    found = inferred(conv, path, edge_weight="edge_weight")
    expected = whole(conv, data, edge_weight=data.edge_weight.double())
    assert torch.allclose(found, expected, atol=1e-12)


def test_fingerprints():
    row = torch.Size([8]), torch.float32
    inputs = Inputs({"x": "x"}, {"x": {None: row}}, [None])

    def of(model, head=None, **about):
        with torch.no_grad(), reading(model, inputs, head, CPU) as found:
            return found.fingerprint(about)

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
        of(conv),
        of(Model(lambda m, x, e: m.a(x, e), a=conv)),
        of(Model(lambda m, x, e: m.a(x, e).relu(), a=conv)),
        of(Model(lambda m, x, e: m.a(x, e) * 2, a=conv)),
        of(Model(lambda m, x, e: m.a(x, e) * 3, a=conv)),
        of(Model(lambda m, x, e: m.a(x, e) + torch.arange(4), a=conv)),
        of(Model(lambda m, x, e: m.a(x, e) + torch.arange(4) * 2, a=conv)),
    ]
    assert len(set(seen)) == len(seen)
