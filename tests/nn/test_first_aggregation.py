"""The first aggregation, taken by the loader: what a model makes of it is what it made before."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
import torch_geometric.nn as pyg
from accelerated import (
    NUM_NODES,
    SEEDS,
    WAYS,
    WIDTH,
    agree,
    graph,
    papers,
    small_integers,
    stock,
    typed,
)
from accelerated import loader as sampled
from paging import paged
from torch import nn
from torch_geometric.data import Data

import pyg_graphzero as gz
from pyg_graphzero.memory.needs import batch_size
from pyg_graphzero.memory.usage import trial_batch
from pyg_graphzero.sampling.hops import SampledEdgeIndex
from pyg_graphzero.sampling.inner_rows import InnerRows

DATA = graph(torch.float32)
DATA.x = small_integers(NUM_NODES, WIDTH, generator=torch.Generator().manual_seed(4))
DATA.y = torch.randint(7, (NUM_NODES,), generator=torch.Generator().manual_seed(4))
PAPERS = papers(small_integers, torch.float32)


def loader(data=DATA, **options):
    return sampled(data, **options)


def pairs(count=4, first_aggregation="mean", **options):
    """Batches without and with first sums, of the same seeds and neighbours."""
    plain, fast = loader(**options), loader(first_aggregation=first_aggregation, **options)
    return [pair for pair, _ in zip(zip(plain, fast, strict=True), range(count), strict=False)]


def expected_sums(batch, inner, reduction):
    """By hand."""
    src, dst = batch.edge_index.as_subclass(torch.Tensor)
    sums = torch.zeros(inner, batch.x.size(1)).index_add_(0, dst, batch.x[src])
    degree = torch.bincount(dst, minlength=inner)[:inner].clamp(min=1)
    return sums / degree.unsqueeze(1) if reduction == "mean" else sums


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("options", WAYS, ids=str)
def test_batches(options, reduction):
    for plain, batch in pairs(first_aggregation=reduction, **options):
        inner = sum(batch.num_sampled_nodes[:-1])
        assert isinstance(batch.x, InnerRows)
        assert batch.x.shape == (inner, WIDTH)
        assert batch.num_nodes == plain.num_nodes
        assert batch.x.reduction == reduction
        assert torch.equal(batch.x.rows, plain.x[:inner])
        assert torch.equal(batch.x.sums[None], expected_sums(plain, inner, reduction))
        assert isinstance(batch.edge_index, SampledEdgeIndex)
        assert torch.equal(batch.edge_index.plain(), plain.edge_index)
        for key in ("n_id", "e_id", "y", "input_id"):
            assert torch.equal(batch[key], plain[key])


def test_budgets_count_what_is_delivered():
    """Rows of inner nodes and their sums; not those of the last hop."""
    data = Data(x=torch.randn(5000, 64), edge_index=torch.randint(5000, (2, 100_000)))
    options = {"data": data, "num_neighbors": [4, 10], "input_nodes": torch.arange(64)}
    sizes = []
    for reduction in (None, "mean"):
        batches = loader(first_aggregation=reduction, **options)
        sizes.append(batch_size(batches, trial_batch(batches)).whole)
    plain, fast = pairs(1, **options)[0]
    ids = [plain.edge_index, plain.n_id, plain.e_id]
    delivered = [[plain.x, *ids], [fast.x.rows, *fast.x.sums.values(), *ids]]
    for size, arrays in zip(sizes, delivered, strict=True):
        assert sum(each.nbytes for each in arrays) == pytest.approx(size / 1.15, rel=0.15)
    assert sizes[1] < 0.7 * sizes[0]


@pytest.mark.parametrize("encoding", [None, "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("is_paged", [False, True])
def test_stores(tmp_path, encoding, is_paged):
    data = Data(x=torch.randn(NUM_NODES, 40), edge_index=DATA.edge_index)
    gz.convert(data, tmp_path / "store", features=encoding)
    with paged(is_paged), gz.open(tmp_path / "store") as store:
        for plain, batch in pairs(data=store.data(), num_workers=2):
            inner = sum(batch.num_sampled_nodes[:-1])
            assert torch.equal(batch.x.rows, plain.x[:inner])
            torch.testing.assert_close(
                batch.x.sums[None], expected_sums(plain, inner, "mean"), rtol=1e-5, atol=1e-5
            )


def trained(model, pair, error=1e-5):
    """The model in float64, which with first sums has the outputs and gradients that PyG has."""
    fast = gz.nn.accelerate(copy.deepcopy(model.double()))
    agree(model, fast, (stock(pair[0]), pair[1]), wide, error=error)
    return fast


def wide(model, batch):
    return model(batch.x.to(torch.float64), batch.edge_index)


class Skip(nn.Module):
    """Uses features of inner nodes besides."""

    def __init__(self):
        super().__init__()
        self.first, self.second = pyg.SAGEConv(WIDTH, 16), pyg.SAGEConv(16, 16)
        self.skip = nn.Linear(WIDTH, 16)

    def forward(self, x, edge_index):
        h = self.first(x, edge_index).relu() + self.skip(x)
        return self.second(h, edge_index)


MODELS = {
    "SAGE": ("mean", pyg.GraphSAGE, {}),
    "SAGE sum": ("sum", pyg.GraphSAGE, {"aggr": "sum", "jk": "cat"}),
    "SAGE two layers": ("mean", pyg.GraphSAGE, {"num_layers": 2, "normalize": True}),
    "SAGE without root": ("mean", pyg.GraphSAGE, {"root_weight": False}),
    "GIN": ("sum", pyg.GIN, {}),
    "GIN eps": ("sum", pyg.GIN, {"train_eps": True}),
}


@pytest.mark.parametrize("negatives", [None, "binary", "triplet"])
def test_links(negatives):
    def batches(**options):
        return gz.loader.LinkNeighborLoader(
            DATA, [4, 3], neg_sampling=negatives, batch_size=8, shuffle=True,
            generator=torch.Generator().manual_seed(5), **options,
        )  # fmt: skip

    model = pyg.GraphSAGE(WIDTH, 16, 2)
    fast = gz.nn.accelerate(copy.deepcopy(model))
    both = zip(batches(), batches(first_aggregation="mean"), range(3), strict=False)
    for plain, batch, _ in both:
        out = fast(batch.x, batch.edge_index)
        expected = model(plain.x, plain.edge_index.as_subclass(torch.Tensor))
        torch.testing.assert_close(out, expected[: len(out)], rtol=1e-4, atol=1e-4)
        assert len(out) == batch.num_sampled_nodes[0]
    assert "added up by the loader" in str(gz.nn.explain(fast))


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    reduction, kind, options = MODELS[name]
    options = {"num_layers": 3, **options}
    model = kind(WIDTH, 16, out_channels=7, **options)
    for pair in pairs(first_aggregation=reduction):
        fast = trained(model, pair, 1e-10 if reduction == "sum" else 1e-5)  # means are of float32
    assert fast.forward.num_stock == 0
    assert [layer.hops for layer in gz.nn.explain(fast).layers][-1] == 0
    assert "added up by the loader" in str(gz.nn.explain(fast))


def test_inner_rows_may_be_used_besides():
    for pair in pairs(num_neighbors=(4, 3)):
        fast = trained(Skip(), pair)
    assert str(gz.nn.explain(fast)).count("added up by the loader") == 1


def test_an_epoch_is_the_same_to_the_bit():
    """Means that the engine adds up are those that the model's first layer would."""
    losses = []
    for reduction in (None, "mean"):
        torch.manual_seed(0)
        model = gz.nn.accelerate(pyg.GraphSAGE(WIDTH, 16, 3, 7))
        optimizer = torch.optim.Adam(model.parameters())
        for batch in loader(first_aggregation=reduction):
            out = model(batch.x, batch.edge_index)
            loss = nn.functional.cross_entropy(out, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    half = len(losses) // 2
    assert losses[:half] == losses[half:]


class Dropped(Skip):
    num_layers = 2

    def forward(self, x, edge_index):
        return super().forward(nn.functional.dropout(x, 0.5, self.training), edge_index)


class Rectified(Skip):
    num_layers = 2

    def forward(self, x, edge_index):
        return super().forward(x.relu_(), edge_index)


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.GraphConv(WIDTH, 16)
        self.num_layers = 1

    def forward(self, x, edge_index):
        weight = torch.full((edge_index.size(1),), 0.5, dtype=self.conv.lin_rel.weight.dtype)
        return self.conv(x, edge_index, weight)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: pyg.GAT(WIDTH, 16, 3, 7), r"convs.0 looks at rows of the last hop \(trimmed; att"),
        (lambda: pyg.GCN(WIDTH, 16, 3, 7), r"convs.0 looks at rows of the last hop"),
        (lambda: pyg.GIN(WIDTH, 16, 3, 7),
         "convs.0 takes the sum of its neighbours, first_aggregation='sum'"),
        (lambda: pyg.GraphSAGE(WIDTH, 16, 3, 7, aggr="max"), "convs.0 looks at rows of the last"),
        (lambda: pyg.GraphSAGE(WIDTH, 16, 3, 7, project=True), "convs.0 looks at rows of the last"),
        (lambda: pyg.GraphSAGE(WIDTH, 16, 4, 7),
         "convs.0 makes rows of the last hop: batches need"),
        (Dropped, "dropout looks at rows of the last hop"),
        (Rectified, "it writes to its arguments"),
        (Weighted, "conv looks at rows of the last hop"),
    ],
)  # fmt: skip
def test_models_that_need_rows_of_the_last_hop_say_so(make, words):
    model = gz.nn.accelerate(make())
    hops = (4, 3, 3)[: model.num_layers]
    batch = next(iter(loader(first_aggregation="mean", num_neighbors=hops)))
    for _ in range(2):
        with pytest.raises(gz.UnsupportedError, match=words):
            model(batch.x, batch.edge_index)
    assert str(gz.nn.explain(model)).startswith("does not run with first_aggregation: ")
    other = next(iter(loader(num_neighbors=hops)))
    assert model(other.x, other.edge_index).size(0) in (SEEDS, other.num_nodes)


def test_rows_of_inner_hops_are_rows_as_any_other():
    """A model of fewer layers than hops may do with them what it likes."""
    for make in (Weighted, lambda: pyg.GAT(WIDTH, 16, 2, 7)):
        for pair in pairs(1, first_aggregation="sum"):
            fast = trained(make(), pair)
        assert "added up" not in str(gz.nn.explain(fast))


@pytest.mark.parametrize("kind", [pyg.GraphSAGE, pyg.GCN, pyg.GAT])
def test_a_model_as_pyg_has_it_does_not_run(kind):
    batch = next(iter(loader(first_aggregation="mean")))
    with pytest.raises(
        gz.UnsupportedError, match=r"first_aggregation='mean'.*expected a model from gz.nn.acc"
    ):
        kind(WIDTH, 16, 3, 7)(batch.x, batch.edge_index)


def test_lazy_layers_want_a_whole_batch_first():
    model = gz.nn.accelerate(pyg.GraphSAGE(-1, 16, 3, 7))
    plain, batch = pairs(1)[0]
    with pytest.raises(gz.UnsupportedError, match=r"a batch loaded with first_aggregation"):
        model(batch.x, batch.edge_index)
    with torch.no_grad():
        model(plain.x, plain.edge_index)
    assert model(batch.x, batch.edge_index).size(0) == SEEDS


def test_features_can_be_moved_copied_and_saved():
    batch = next(iter(loader(first_aggregation="mean")))
    x = batch.x
    for moved in (x.to("cpu", copy=True), x.clone(), x.contiguous(), x.detach(), copy.deepcopy(x),
                  x.share_memory_(), pickle.loads(pickle.dumps(x)), batch.to("cpu").x,
                  copy.copy(batch).x):  # fmt: skip
        assert isinstance(moved, InnerRows)
        assert torch.equal(moved.rows, x.rows)
        assert torch.equal(moved.sums[None], x.sums[None])
    half = x.to(torch.float16)
    assert half.dtype == half.sums[None].dtype == torch.float16
    assert len(x) == x.size(0) == x.rows.size(0)
    assert "InnerRows" in repr(x) or "tensor" in repr(x)
    assert batch.num_features == WIDTH
    file = io.BytesIO()
    torch.save(batch, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert torch.equal(again.x.sums[None], x.sums[None])
    for use in (lambda: x[:3], lambda: x + 1, lambda: x @ x.rows.t(), lambda: x.sum(),
                lambda: x.numpy(), lambda: torch.cat([x, x]), lambda: x.tolist()):  # fmt: skip
        with pytest.raises(gz.UnsupportedError, match="loaded with first_aggregation="):
            use()


def test_data_and_samplers_that_cannot_be_aggregated_are_refused(tmp_path):
    trained = Data(x=nn.Parameter(torch.randn(NUM_NODES, 4)), edge_index=DATA.edge_index)
    double = Data(x=DATA.x.double(), edge_index=DATA.edge_index)
    for data, words in (
        (trained, "x that is trained"),
        (double, r"x of torch.float64 \[300, 12\]"),
        (Data(num_nodes=NUM_NODES, edge_index=DATA.edge_index), "no x"),
    ):
        with pytest.raises(gz.UnsupportedError, match=words):
            next(iter(loader(data, first_aggregation="mean")))
    with pytest.raises(ValueError, match="first_aggregation: found 'max', expected one of"):
        loader(first_aggregation="max")
    backward = gz.sampler.NeighborSampler(DATA, [2], sample_direction="backward")
    for options, words in (
        ({"subgraph_type": "induced"}, "subgraph_type='induced'"),
        ({"subgraph_type": "bidirectional"}, "subgraph_type='bidirectional'"),
        ({"transform_sampler_output": lambda out: out}, "transform_sampler_output"),
        ({"neighbor_sampler": backward}, "sample_direction='backward'"),
    ):
        with pytest.raises(gz.UnsupportedError, match=words):
            loader(first_aggregation="mean", **options)


def test_batches_that_a_loader_is_asked_for_by_seeds():
    batches = loader(first_aggregation="mean", filter_per_worker=True, shuffle=False)
    batch = batches.collate_fn([3, 5, 8])
    plain = loader(shuffle=False)
    inner = sum(batch.num_sampled_nodes[:-1])
    full = DATA.x[batch.n_id]
    assert torch.equal(batch.x.rows, full[:inner])
    batch.x = full
    assert torch.equal(next(iter(plain)).x[:3], DATA.x[:3])  # the other loader is not changed by it


class Typed(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(
            pyg.HeteroConv({
                name: pyg.SAGEConv(
                    (PAPERS[name[0]].num_features, PAPERS[name[2]].num_features)
                    if layer == 0 else (16, 16), 16,
                )
                for name in PAPERS.edge_types
            })
            for layer in range(3)
        )  # fmt: skip

    def forward(self, x_dict, edge_index_dict):
        for conv in self.convs:
            x_dict = {name: x.relu() for name, x in conv(x_dict, edge_index_dict).items()}
        return x_dict["paper"]


def test_heterogeneous_models():
    model = Typed()
    fast = gz.nn.accelerate(copy.deepcopy(model))
    for plain, batch in pairs(data=PAPERS, input_nodes="paper", num_neighbors=(3, 2, 2)):
        agree(model, fast, (stock(plain), batch), typed, error=1e-4)
        assert batch["author"].num_nodes == plain["author"].num_nodes
    assert str(gz.nn.explain(fast)).count("added up by the loader") == len(PAPERS.edge_types)


SUITED = {
    "mean": (lambda: pyg.GraphSAGE(WIDTH, 16, 3, 7), {}, "mean"),
    "sum": (lambda: pyg.GIN(WIDTH, 16, 3, 7), {}, "sum"),
    "attention": (lambda: pyg.GAT(WIDTH, 16, 3, 7), {}, None),
    "more layers than hops": (lambda: pyg.GraphSAGE(WIDTH, 16, 4, 7), {}, None),
    "features that are trained": (
        lambda: pyg.GraphSAGE(WIDTH, 16, 3, 7),
        {"data": Data(x=nn.Parameter(DATA.x), edge_index=DATA.edge_index)},
        None,
    ),
    "induced": (lambda: pyg.GraphSAGE(WIDTH, 16, 3, 7), {"subgraph_type": "induced"}, None),
}


@pytest.mark.parametrize("name", SUITED)
def test_accelerate_sets_what_suits_the_model(name):
    make, options, expected = SUITED[name]
    batches, model = loader(**options), make().train()
    state, weights = torch.get_rng_state(), copy.deepcopy(model.state_dict())
    assert gz.nn.accelerate(model, loader=batches) is model
    assert batches.first_aggregation == expected
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    batch = next(iter(batches))
    assert isinstance(batch.x, InnerRows) == (expected is not None)
    assert model(batch.x, batch.edge_index).size(0) in (SEEDS, batch.num_nodes)
    if expected is not None:
        assert "added up by the loader" in str(gz.nn.explain(model))


def test_accelerate_knows_types_links_and_stores(tmp_path):
    batches = loader(PAPERS, input_nodes="paper")
    gz.nn.accelerate(Typed(), loader=batches)
    assert batches.first_aggregation == "mean"
    gz.convert(DATA, tmp_path / "store", features="int8", progress=False)
    with gz.open(tmp_path / "store") as store, paged():
        links = gz.loader.LinkNeighborLoader(store, [4, 3], neg_sampling="binary", batch_size=8)
        model = gz.nn.accelerate(pyg.GraphSAGE(WIDTH, 16, 2), loader=links)
        assert links.first_aggregation == "mean"
        assert store.memory_plan is None  # the first epoch makes it
        batch = next(iter(links))
        assert len(model(batch.x, batch.edge_index)) == batch.num_sampled_nodes[0]


def test_accelerate_takes_loaders_of_this_package():
    torchs = torch.utils.data.DataLoader([DATA])
    with pytest.raises(TypeError, match=r"loader: found torch\..*, expected one of gz.loader"):
        gz.nn.accelerate(pyg.GraphSAGE(WIDTH, 16, 1), loader=torchs)


def test_it_may_be_set_between_batches():
    batches = loader()
    epoch = iter(batches)
    assert not isinstance(next(epoch).x, InnerRows)
    batches.first_aggregation = "sum"
    batch = next(epoch)
    assert batch.x.reduction == "sum"
    batches.first_aggregation = None
    assert not isinstance(next(epoch).x, InnerRows)
    batches.first_aggregation = "max"
    with pytest.raises(ValueError, match="first_aggregation: found 'max'"):
        next(epoch)
