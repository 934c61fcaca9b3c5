"""Models that compute what seeds need: the same outputs and gradients as before."""

from __future__ import annotations

import chunks
import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from accelerated import (
    DATA,
    NUM_NODES,
    PAPERS,
    SEEDS,
    WAYS,
    WIDTH,
    Skips,
    Stack,
    compare,
    hetero_batches,
    hops,
    initialized,
    loader,
    papers,
    plain,
    typed,
    weighted,
    with_attr,
)
from torch import nn
from torch_geometric.nn import SAGEConv

import pyg_graphzero as gz

pytestmark = [pytest.mark.usefixtures("doubles"), chunks.both]

DEGREES = torch.tensor([3, 5, 8, 4])
BASIC = {
    "GraphSAGE": (pyg.GraphSAGE, {}, plain),
    "GraphSAGE max": (pyg.GraphSAGE, {"aggr": "max"}, plain),
    "GraphSAGE cat": (pyg.GraphSAGE, {"jk": "cat"}, plain),
    "GraphSAGE max jk": (pyg.GraphSAGE, {"jk": "max"}, plain),
    "GraphSAGE lstm jk": (pyg.GraphSAGE, {"jk": "lstm"}, plain),
    "GraphSAGE last": (pyg.GraphSAGE, {"jk": "last"}, plain),
    "GraphSAGE act_first": (pyg.GraphSAGE, {"act_first": True, "norm": "layer_norm",
                                           "norm_kwargs": {"mode": "node"}}, plain),
    "GraphSAGE project": (pyg.GraphSAGE, {"project": True, "normalize": True}, plain),
    "GCN": (pyg.GCN, {}, plain),
    "GCN weights": (pyg.GCN, {}, weighted),
    "GCN improved": (pyg.GCN, {"improved": True}, weighted),
    "GCN without loops": (pyg.GCN, {"add_self_loops": False}, weighted),
    "GCN as given": (pyg.GCN, {"normalize": False}, weighted),
    "GIN": (pyg.GIN, {}, plain),
    "GIN eps": (pyg.GIN, {"train_eps": True}, plain),
    "GAT": (pyg.GAT, {"heads": 2}, plain),
    "GAT residual": (pyg.GAT, {"heads": 4, "residual": True}, plain),
    "GAT edges": (pyg.GAT, {"edge_dim": 5}, with_attr),
    "GATv2": (pyg.GAT, {"v2": True, "heads": 2}, plain),
    "GATv2 edges": (pyg.GAT, {"v2": True, "edge_dim": 5}, with_attr),
    "PNA": (pyg.PNA, {"aggregators": ["mean", "max", "std"], "scalers": ["identity", "linear"],
                      "deg": DEGREES}, plain),
    "EdgeCNN": (pyg.EdgeCNN, {}, plain),
}  # fmt: skip


@pytest.mark.parametrize("name", BASIC)
def test_basic_models(name):
    kind, options, call = BASIC[name]
    fast = compare(kind(WIDTH, 16, 3, 7, **options), call)
    assert fast.forward.num_stock == 0
    assert hops(fast) == [2, 1, 0]


@pytest.mark.parametrize("num_layers", [2, 4])
@pytest.mark.parametrize("kind", [pyg.GraphSAGE, pyg.GCN, pyg.GAT])
def test_more_or_fewer_layers_than_hops(kind, num_layers):
    fast = compare(kind(WIDTH, 16, num_layers, 7), plain)
    assert hops(fast) == list(range(num_layers))[::-1]


def of(*names):
    return lambda model, batch: model(batch.x, batch.edge_index, *(batch[name] for name in names))


def mlp(ins, outs):
    return nn.Sequential(nn.Linear(ins, outs), nn.ReLU(), nn.Linear(outs, outs))


TRIMMED = {
    "RGCNConv": (lambda i, o: pyg.RGCNConv(i, o, 4), of("edge_type")),
    "RGCNConv sums": (lambda i, o: pyg.RGCNConv(i, o, 4, aggr="add"), of("edge_type")),
    "RGCNConv bases": (lambda i, o: pyg.RGCNConv(i, o, 4, num_bases=2), of("edge_type")),
    "RGCNConv blocks": (lambda i, o: pyg.RGCNConv(i, o, 4, num_blocks=4, aggr="add"),
                        of("edge_type")),
    "FastRGCNConv": (lambda i, o: pyg.FastRGCNConv(i, o, 4, num_bases=2), of("edge_type")),
    "RGATConv": (lambda i, o: pyg.RGATConv(i, o, 4), of("edge_type")),
    "GINEConv": (lambda i, o: pyg.GINEConv(mlp(i, o), edge_dim=5), of("edge_attr")),
    "ResGatedGraphConv": (pyg.ResGatedGraphConv, of()),
    "MFConv": (pyg.MFConv, of()),
    "FeaStConv": (pyg.FeaStConv, of()),
    "LEConv": (pyg.LEConv, of()),
    "ClusterGCNConv": (pyg.ClusterGCNConv, of()),
    "GeneralConv": (pyg.GeneralConv, of()),
    "NNConv": (lambda i, o: pyg.NNConv(i, o, nn.Linear(5, i * o)), of("edge_attr")),
    "GENConv": (lambda i, o: pyg.GENConv(i, o, norm="layer"), of()),
    "FiLMConv": (pyg.FiLMConv, of()),
    "TransformerConv": (lambda i, o: pyg.TransformerConv(i, o // 2, heads=2), of()),
    "TransformerConv beta": (lambda i, o: pyg.TransformerConv(i, o, beta=True), of()),
    "TransformerConv edges": (lambda i, o: pyg.TransformerConv(i, o, edge_dim=5), of("edge_attr")),
    "GATConv mean": (lambda i, o: pyg.GATConv(i, o, heads=3, concat=False), of()),
    "GATv2Conv shared": (lambda i, o: pyg.GATv2Conv(i, o, share_weights=True), of()),
    "SAGEConv sets": (lambda i, o: SAGEConv(i, o, aggr=["mean", "max"]), of()),
    "SAGEConv alone": (lambda i, o: SAGEConv(i, o, root_weight=False), of()),
    "GraphConv": (lambda i, o: pyg.GraphConv(i, o, aggr="mean"), of("edge_weight")),
    "EdgeConv": (lambda i, o: pyg.EdgeConv(mlp(2 * i, o)), of()),
}  # fmt: skip


@pytest.mark.parametrize("name", TRIMMED)
def test_convolutions_that_are_trimmed(name):
    make, call = TRIMMED[name]
    fast = compare(Stack(make), call)
    assert hops(fast) == [1, 0]


WHOLE = {
    "TAGConv": (lambda i, o: pyg.TAGConv(i, o, K=2), of(), "further"),
    "SGConv": (lambda i, o: pyg.SGConv(i, o, K=2), of(), "further"),
    "ChebConv": (lambda i, o: pyg.ChebConv(i, o, 2), of(), "degrees"),
    "ARMAConv": (pyg.ARMAConv, of(), "degrees"),
    "LGConv": (lambda i, o: pyg.Sequential("x, e", [(pyg.LGConv(), "x, e -> x"),
                                                    nn.Linear(i, o)]), of(), "degrees"),
    "EGConv": (lambda i, o: pyg.EGConv(i, o, num_heads=2), of(), "degrees"),
    "GINConv": (lambda i, o: pyg.GINConv(nn.Sequential(nn.Linear(i, o), nn.BatchNorm1d(o))), of(),
                "BatchNorm1d"),
    "GATConv cached": (lambda i, o: pyg.GCNConv(i, o, cached=False, flow="target_to_source"), of(),
                       "flow"),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_convolutions_that_need_the_whole_batch(name):
    make, call, reason = WHOLE[name]
    fast = compare(Stack(make), call)
    assert hops(fast) == [None, None]
    assert reason in str(gz.nn.explain(fast))


def test_an_aggregation_over_the_whole_batch_is_found_by_trying_it():
    """Neighbourhoods are padded to the largest of a batch, and the padding is looked at."""
    fast = compare(Stack(lambda i, o: SAGEConv(i, o, aggr="lstm")), of(), count=1)
    assert "outputs are others" in gz.nn.explain(fast).as_it_is
    assert fast.forward.num_stock == 1


class Sines(pyg.MessagePassing):
    """A convolution of a user's own."""

    def __init__(self, ins, outs):
        super().__init__(aggr="add")
        self.lin = nn.Linear(ins, outs)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.lin(x))

    def message(self, x_j):
        return x_j.sin()


def test_own_convolutions_are_trimmed_on_request():
    fast = compare(Stack(Sines), of())
    assert hops(fast) == [None, None]
    assert "local=(Sines,)" in str(gz.nn.explain(fast))
    fast = compare(Stack(Sines), of(), local=(Sines,))
    assert hops(fast) == [1, 0]


def test_skip_connections_are_trimmed_with_the_layers():
    fast = compare(Skips(nn.LayerNorm), plain)
    assert hops(fast) == [2, 1, 0]
    assert gz.nn.explain(fast).whole == []


def test_norms_over_the_batch_are_trimmed_on_request_alone():
    fast = compare(Skips(nn.BatchNorm1d), plain)
    assert hops(fast) == [None, None, None]
    assert "norms='trimmed'" in str(gz.nn.explain(fast))
    assert hops(compare(Skips(nn.BatchNorm1d).eval(), plain)) == [2, 1, 0]
    fast = gz.nn.accelerate(Skips(nn.BatchNorm1d), norms="trimmed")
    batch = next(iter(loader()))
    mean = fast.norms[0].running_mean.clone()
    assert plain(fast, batch).shape == (SEEDS, 16)
    assert hops(fast) == [2, 1, 0]
    rows = sum(batch.num_sampled_nodes[:3])
    first = fast.convs[0].forward.module
    edges = batch.edge_index.plain()[:, : sum(batch.num_sampled_edges)]
    seen = (type(first).forward(first, batch.x, edges) + fast.lins[0](batch.x))[:rows]
    torch.testing.assert_close(fast.norms[0].running_mean, 0.9 * mean + 0.1 * seen.mean(0))


@pytest.mark.parametrize("norm", [pyg.GraphNorm, pyg.PairNorm, pyg.InstanceNorm])
def test_norms_over_all_nodes_are_left_whole(norm):
    make = norm if norm is not pyg.PairNorm else lambda width: pyg.PairNorm()
    fast = compare(Skips(make), plain)
    assert hops(fast) == [None, None, 0] or hops(fast) == [None, None, None]


class Takes(nn.Module):
    """Models take what they like."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.embedding = kind, nn.Embedding(NUM_NODES, WIDTH)
        self.net = Stack(SAGEConv)

    def forward(self, *given):
        if self.kind == "batch":
            (batch,) = given
            return self.net(batch.x, batch.edge_index)[: batch.batch_size]
        if self.kind == "numbers":
            n_id, edge_index = given
            return self.net(self.embedding(n_id), edge_index)
        if self.kind == "size":
            x, edge_index = given
            return self.net(x / x.size(0), edge_index) / x.size(0)
        if self.kind == "middle":
            x, edge_index = given
            x = self.net.first(x, edge_index)
            return self.net.second(x - x.mean(0), edge_index)
        x, edge_index, pairs = given
        z = self.net(x, edge_index)
        return (z[pairs[0]] * z[pairs[1]]).sum(-1)


TAKES = {
    "batch": (lambda model, batch: model(batch), [1, 0]),
    "numbers": (lambda model, batch: model(batch.n_id, batch.edge_index), [1, 0]),
    "size": (plain, [1, 0]),
    "middle": (plain, [None, 0]),
}


@pytest.mark.parametrize("kind", TAKES)
def test_models_take_what_they_like(kind):
    call, expected = TAKES[kind]
    assert hops(compare(Takes(kind), call)) == expected


LINKS = {"edge_label_index": DATA.edge_index[:, :200], "neg_sampling_ratio": 1.0}


def links(**options):
    options = {**LINKS, **options}
    return gz.loader.LinkNeighborLoader(DATA, [4, 3], batch_size=SEEDS, **options)


def test_link_prediction_within_the_model():
    fast = compare(
        Takes("pairs"),
        lambda model, batch: model(batch.x, batch.edge_index, batch.edge_label_index),
        links(),
        seeds=None,
    )
    assert hops(fast) == [1, 0]


@pytest.mark.parametrize("negatives", ["binary", "triplet"])
def test_link_prediction_beside_the_model(negatives):
    def call(model, batch):
        z = plain(model, batch)
        if negatives == "binary":
            src, dst = batch.edge_label_index
        else:
            src, dst = batch.src_index, batch.dst_pos_index
        return (z[src] * z[dst]).sum(-1)

    fast = compare(
        Stack(SAGEConv), call, links(neg_sampling=negatives, neg_sampling_ratio=None), seeds=None
    )
    assert hops(fast) == [1, 0]


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_ways_to_sample(options):
    fast = compare(pyg.GCN(WIDTH, 16, 3, 7), weighted, loader(**options))
    assert fast.forward.num_stock <= 2  # as many nodes as edges: it cannot be told which is which


@pytest.mark.parametrize("kind", ["induced", "bidirectional"])
def test_batches_without_hops_run_as_they_are(kind):
    batches = loader(subgraph_type=kind)
    fast = compare(pyg.GraphSAGE(WIDTH, 16, 3, 7), plain, batches)
    batch = next(iter(batches))
    assert plain(fast, batch).size(0) == batch.num_nodes
    with pytest.raises(ValueError, match="induced"):
        gz.nn.explain(fast)


def test_a_store_on_disk(tmp_path):
    gz.convert(DATA, tmp_path / "store")
    with gz.open(tmp_path / "store") as store:
        fast = compare(pyg.GAT(WIDTH, 16, 3, 7, heads=2), plain, loader(store.data()))
    assert hops(fast) == [2, 1, 0]


def test_inference_by_layers_is_what_it_was(tmp_path):
    gz.convert(DATA, tmp_path / "store")
    model = pyg.GAT(WIDTH, 16, 2, 7, heads=2).eval()
    expected = model(DATA.x, DATA.edge_index)
    gz.nn.accelerate(model)
    gz.inference.layerwise(model, tmp_path / "store")
    with gz.open(tmp_path / "store") as store:
        rows = store.feature_store.get_tensor(group_name=None, attr_name="out", index=None)
        torch.testing.assert_close(rows, expected.detach())


# ---- heterogeneous --------------------------------------------------------------------------


def of_papers(model, batch):
    return typed(model, batch)["paper"]


class Typed(nn.Module):
    """The model of PyG's ``hetero_conv_dblp.py`` and ``hgt_dblp.py``."""

    def __init__(self, make, num_layers=3):
        super().__init__()
        self.lins = nn.ModuleDict({name: pyg.Linear(-1, 16) for name in PAPERS.node_types})
        self.convs = nn.ModuleList([make() for _ in range(num_layers)])
        self.lin = nn.Linear(16, 5)

    def forward(self, x_dict, edge_index_dict):
        x_dict = {name: self.lins[name](x).relu_() for name, x in x_dict.items()}
        for conv in self.convs:
            x_dict = conv(x_dict, edge_index_dict)
            x_dict = {name: F.leaky_relu(x) for name, x in x_dict.items()}
        return self.lin(x_dict["paper"])


def by_type(make, **options):
    return lambda: pyg.HeteroConv({name: make() for name in PAPERS.edge_types}, **options)


HETERO = {
    "SAGE": by_type(lambda: SAGEConv((-1, -1), 16)),
    "SAGE mean": by_type(lambda: SAGEConv((-1, -1), 16), aggr="mean"),
    "SAGE max": by_type(lambda: SAGEConv((-1, -1), 16), aggr="max"),
    "GAT": by_type(lambda: pyg.GATConv((-1, -1), 8, heads=2, add_self_loops=False)),
    "GraphConv": by_type(lambda: pyg.GraphConv((-1, -1), 16)),
    "HGT": lambda: pyg.HGTConv(16, 16, PAPERS.metadata(), 2),
    "HGT one head": lambda: pyg.HGTConv(16, 16, PAPERS.metadata()),
}


@pytest.mark.parametrize("name", HETERO)
def test_heterogeneous_models(name):
    fast = compare(initialized(Typed(HETERO[name]), typed), typed, hetero_batches())
    assert fast.forward.num_stock == 0
    assert set(hops(fast)) == {2, 1, 0}


@pytest.mark.parametrize("kind", [pyg.GraphSAGE, pyg.GAT])
def test_to_hetero(kind):
    options = {"add_self_loops": False} if kind is pyg.GAT else {}
    model = pyg.to_hetero(kind((-1, -1), 16, 3, 5, **options), PAPERS.metadata())
    fast = compare(initialized(model, typed), of_papers, hetero_batches())
    assert fast.forward.num_stock == 0
    assert set(hops(fast)) == {2, 1, 0}


def test_attention_of_dictionaries_that_are_not_the_batchs():
    """One model takes another type's edges under a batch's name, and one has hooks."""

    class Renames(Typed):
        def forward(self, x_dict, edge_index_dict):
            edges = dict(edge_index_dict)
            edges["paper", "cites", "paper"] = edge_index_dict["author", "writes", "paper"] % 20
            return super().forward(x_dict, edges)

    model = initialized(Renames(HETERO["HGT"]), typed)
    compare(model, typed, hetero_batches())
    model = initialized(Typed(HETERO["HGT"]), typed)
    for conv in model.convs:
        conv.register_propagate_forward_hook(lambda conv, args, out: 2 * out)
    fast = compare(model, typed, hetero_batches())
    assert "convs.0 has a hook" in gz.nn.explain(fast).as_it_is


def test_types_that_a_batch_lacks():
    data = papers()
    data["author", "writes", "paper"].edge_index = torch.empty(2, 0, dtype=torch.int64)
    batches = loader(data, (3, 2, 2), input_nodes="paper")
    fast = compare(initialized(Typed(HETERO["SAGE"]), typed), typed, batches)
    assert set(hops(fast)) == {2, 1, 0}
