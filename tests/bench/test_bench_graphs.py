"""The graphs that benchmarks make: of any size, the same again, and as skewed as they say."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import papers100m_graph
import papers100m_shape
import pytest
import torch
from papers100m_graph import MASKS, PapersGraph, write_ogb
from torch_geometric.data import Data, HeteroData

import pyg_graphzero as gz
from harness.child import Task
from harness.communities import CommunityGraph, check_rows, row_digits
from pyg_graphzero.bench.training import Trainer

needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
SMALL = CommunityGraph(20_000, num_features=8, num_communities=100)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, Path]:
    folder = tmp_path_factory.mktemp("communities")
    for encoding in (None, "float16"):
        SMALL.write(folder / str(encoding), encoding=encoding)
    return {encoding: folder / str(encoding) for encoding in (None, "float16")}


def test_communities_have_hubs_and_keep_to_themselves(stores):
    data = gz.open(stores[None]).data()
    src, dst = data.edge_index
    assert data.num_edges / SMALL.num_nodes == pytest.approx(SMALL.edges_per_node, rel=0.05)
    in_degree = dst.bincount(minlength=SMALL.num_nodes).sort(descending=True).values
    out_degree = src.bincount(minlength=SMALL.num_nodes).sort(descending=True).values
    # A power law: a hundredth of the nodes has several times its share, nobody has nearly all.
    assert in_degree[:200].sum() > 0.03 * data.num_edges
    assert in_degree[0] <= 0.001 * SMALL.num_nodes + 1
    assert out_degree[:2000].sum() > 0.25 * data.num_edges
    place = torch.from_numpy(SMALL.place_of).long()
    community = place // SMALL.community_size
    inside = (community[src] == community[dst]).float().mean()
    assert inside == pytest.approx(0.4, abs=0.02)
    assert torch.equal(data.y.long(), community % 172)


def test_ids_say_nothing_about_communities():
    places = SMALL.place_of.astype(np.float64)
    assert sorted(SMALL.id_of.tolist()) == list(range(SMALL.num_nodes))
    assert abs(np.corrcoef(places, np.arange(SMALL.num_nodes))[0, 1]) < 0.03
    assert abs(np.corrcoef(places[:-1], places[1:])[0, 1]) < 0.03


def test_training_seeds_lie_in_few_communities(stores):
    train = gz.open(stores[None]).data().train_idx
    assert torch.equal(train, SMALL.train_nodes())
    assert train.numel() == train.unique().numel() == 220
    places = SMALL.place_of[train.numpy()]
    assert np.unique(places // SMALL.community_size).tolist() == [0, 1, 2]


def test_a_graph_is_the_same_again_and_its_rows_say_whose_they_are(stores):
    one, half = (gz.open(path).data() for path in stores.values())
    assert torch.equal(one.edge_index, half.edge_index)
    assert torch.equal(one.x.half().float(), half.x)
    nodes = torch.tensor([0, 4095, 4096, 19_999])
    check_rows(nodes, one.x[nodes])
    check_rows(nodes, half.x[nodes].half())
    assert torch.equal(SMALL.features().read(4000, 5000), one.x[4000:5000])
    with pytest.raises(ValueError, match=r"x\[1\]: found .* those of node 7"):
        check_rows(torch.tensor([0, 7]), one.x[:2])
    other = CommunityGraph(20_000, num_features=8, num_communities=100, seed=1)
    assert not np.array_equal(other.id_of, SMALL.id_of)
    large = torch.tensor([2**31 - 1, 2**31 - 2, 2**22, 2048])
    assert torch.unique(row_digits(large).half(), dim=0).size(0) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_nodes": 150}, "num_nodes: found 150, expected at least two for each"),
        ({"num_nodes": 2**31}, "expected less than"),
        ({"num_features": 3}, "num_features: found 3"),
        ({"seed_share": 0.1}, "seed_share: found 0.1"),
    ],
)
def test_graphs_that_cannot_be(change, message):
    with pytest.raises(ValueError, match=message):
        CommunityGraph(**{"num_nodes": 1000, "num_communities": 100, **change})


@pytest.mark.parametrize("model", ["trimmed", "accelerated"])
def test_training_of_the_rows_that_are_needed_is_the_same_training(stores, model):
    data = gz.open(stores[None]).data()
    loader = gz.loader.NeighborLoader(data, [4, 3], input_nodes=data.train_idx, batch_size=64)
    outputs = []
    for each in ("stock", model):
        torch.manual_seed(0)
        trainer = Trainer(data, None, 2, 172, each)
        for batch in loader:
            trainer.step(batch)
        outputs.append(trainer._forward(batch)[: batch.batch_size])
    assert torch.allclose(outputs[0], outputs[1], atol=1e-4)
    assert len(outputs[1]) == batch.num_nodes if model == "stock" else batch.batch_size


@pytest.mark.parametrize(
    ("data", "model", "message"),
    [
        (HeteroData(), "trimmed", "model='trimmed': PyG cannot trim what to_hetero"),
        (Data(), "trim", "model='trim': expected one of stock, trimmed, accelerated"),
    ],
)
def test_models_that_cannot_be_trained(data, model, message):
    with pytest.raises(ValueError, match=message):
        Trainer(data, None, 2, 172, model)


# papers100M #######################################################################################

SCALE = 0.0003
GRAPH = PapersGraph.of(SCALE, directed=True)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("papers") / "store"
    GRAPH.write(path)
    return path


@pytest.fixture(scope="module")
def both_ways(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten times as many papers, cited and citing."""
    path = tmp_path_factory.mktemp("papers") / "both"
    PapersGraph.of(10 * SCALE).write(path, "int8")
    return path


def test_both_directions_are_the_default(both_ways):
    data, graph = gz.open(both_ways).data(), PapersGraph.of(10 * SCALE)
    src, dst = data.edge_index
    forth, back = (a * graph.num_nodes + b for a, b in ((src, dst), (dst, src)))
    assert torch.equal(forth.sort().values, back.sort().values)
    assert len(forth.unique()) == len(forth)
    # Small communities cite the same papers more than once.
    assert 0.7 < data.num_edges / (2 * graph.num_edges) < 1
    citing = torch.cat([part for chunk in graph.edges() for part in [torch.from_numpy(chunk.dst)]])
    assert len(citing) == graph.num_edges
    # The others cite nobody, and so do few of these.
    share = 1 - graph.citations.unreferencing
    assert 0.95 * share < len(citing.unique()) / graph.num_nodes < share
    field = round(graph.citations.field * graph.num_communities)
    community = torch.from_numpy(graph.place_of // graph.community_size)
    assert community[data.train_mask].max() < field
    between = (community[src] < field) != (community[dst] < field)
    assert between.double().mean() < 0.01


def test_what_training_touches_is_what_is_published_of_the_real_graph(both_ways):
    """Of one at scale 1, by what is drawn of this one: within a tenth."""
    task = Task("shape", str(both_ways), fanout=[10, 10, 10])
    data = gz.open(both_ways).data()
    found = papers100m_shape.at_scale(task, data, 10 * SCALE)
    published = papers100m_shape.PUBLISHED
    assert found.nodes == pytest.approx(published.nodes, rel=0.1)
    assert found.distinct == pytest.approx(published.distinct, rel=0.1)
    # Where communities are small, so are their hubs.
    assert found.hottest[0] == pytest.approx(published.hottest[0], rel=0.3)
    assert found.hottest[1:] == pytest.approx(published.hottest[1:], rel=0.1)


@needs_compiler
def test_shape_counts_what_is_sampled(both_ways):
    task = Task("shape", str(both_ways), fanout=[10, 10, 10], epochs=2)
    task.options["scale"] = 10 * SCALE
    found = papers100m_shape.shape(task, lambda event: None)
    for each in found["epochs"]:
        touched, missed = each["touched"], each["missed"]
        # As the extrapolation to its own scale says, which counts seeds one by one.
        assert touched["distinct"] == pytest.approx(0.31, rel=0.1)
        assert 50_000 < touched["nodes"] < 110_000
        assert list(touched["hottest"]) == sorted(touched["hottest"])
        assert missed["36%"] < missed["18%"] < 1 - touched["hottest"][1] + 0.5
    # What is kept from the first epoch is not read again where all of it has room.
    assert found["epochs"][1]["missed"]["36%"] < 0.25 * found["epochs"][0]["missed"]["36%"]


def test_counts_are_those_of_the_real_graph():
    whole = PapersGraph.of(1.0)
    assert (whole.num_nodes, whole.num_edges) == (111_059_956, 1_615_685_872)
    assert (whole.num_features, papers100m_graph.NUM_CLASSES) == (128, 172)
    # Every chunk has its share of the edges, whatever is drawn: they add up.
    rng = np.random.default_rng(0)
    begins = list(range(0, whole.num_nodes, 10_000_000))
    shares = [each * whole.num_edges // whole.num_nodes for each in [*begins, whole.num_nodes]]
    assert shares[0] == 0
    assert shares[-1] == whole.num_edges
    degree = whole._degrees(rng, whole.num_nodes - 50_000, whole.num_nodes)
    first = (whole.num_nodes - 50_000) * whole.num_edges // whole.num_nodes
    assert degree.sum() == whole.num_edges - first
    assert degree.min() >= 0


def test_a_store_has_exactly_the_scale(store):
    data = gz.open(store).data()
    assert data.num_nodes == round(SCALE * 111_059_956) == GRAPH.num_nodes
    assert data.num_edges == round(SCALE * 1_615_685_872) == GRAPH.num_edges
    for name, count in {"train": 1_207_179, "valid": 125_265, "test": 214_338}.items():
        nodes = data[MASKS[name]].nonzero().view(-1)
        assert len(nodes) == round(SCALE * count)
        assert nodes.tolist() == GRAPH.split[name].tolist()
    known = data.train_mask.int() + data.val_mask.int() + data.test_mask.int()
    assert known.max() == 1
    assert torch.equal(data.y >= 0, known.bool())
    assert data.y.max() < 172
    assert data.y[data.y >= 0].unique().numel() > 120


def test_degrees_are_skewed_and_edges_keep_to_communities(store):
    data = gz.open(store).data()
    src, dst = data.edge_index
    for ends in (src, dst):
        degree = ends.bincount(minlength=GRAPH.num_nodes).sort(descending=True).values
        assert degree[: GRAPH.num_nodes // 100].sum() > 0.05 * data.num_edges
        assert degree[-1] == 0
    community = torch.from_numpy(GRAPH.place_of // GRAPH.community_size)
    far = (community[src] - community[dst]).abs()
    assert (far == 0).float().mean() == pytest.approx(0.55, abs=0.03)
    near = ((far == 1) | (far == GRAPH.num_communities - 1)).float().mean()
    assert 0.05 < near < 0.15
    # Training nodes lie in few communities, and ids do not tell which.
    places = GRAPH.place_of[GRAPH.split["train"]]
    assert places.max() < round(GRAPH.seed_communities * GRAPH.num_communities) * (
        GRAPH.community_size
    )
    assert abs(np.corrcoef(GRAPH.place_of, np.arange(GRAPH.num_nodes))[0, 1]) < 0.03


def test_the_same_again_and_another_seed(store, tmp_path):
    GRAPH.write(tmp_path / "again")
    one, two = gz.open(store).data(), gz.open(tmp_path / "again").data()
    assert torch.equal(one.edge_index, two.edge_index)
    assert torch.equal(one.x, two.x)
    assert torch.equal(one.y, two.y)
    other = PapersGraph.of(SCALE, seed=1)
    assert not np.array_equal(other.split["train"], GRAPH.split["train"])
    rows = other.features().read(0, 5)
    assert not torch.allclose(rows, one.x[:5])
    # Rows depend on their node alone, not on the pieces they are made in.
    assert torch.equal(GRAPH.features().read(100, 200), one.x[100:200])
    assert torch.equal(torch.cat(list(GRAPH.features().slabs(7000))), one.x)


@pytest.mark.parametrize("scale", [0, 1.5, -1])
def test_scales_that_are_none(scale):
    with pytest.raises(ValueError, match=f"scale: found {scale}"):
        PapersGraph.of(scale)


@pytest.mark.parametrize("directed", [True, False])
def test_ogb_files_are_the_same_graph(directed, tmp_path):
    """As after download: read by the reader of the real one."""
    graph, root = PapersGraph.of(SCALE, directed=directed), tmp_path / "ogbn_papers100M"
    graph.write(tmp_path / "store")
    write_ogb(graph, root)
    with pytest.raises(FileExistsError):
        write_ogb(graph, root)
    options = {} if directed else {"undirected": True, "coalesce": "first", "edge_ids": False}
    summary = gz.convert(root, tmp_path / "read", progress=False, **options)
    assert "OGB directory" in summary.what
    ours, read = gz.open(tmp_path / "store").data(), gz.open(tmp_path / "read").data()
    assert torch.equal(ours.edge_index, read.edge_index)
    for name in ("x", "y", *MASKS.values()):
        assert ours[name].dtype == read[name].dtype
        assert torch.equal(ours[name], read[name]), name
    assert read.node_year.shape[0] == GRAPH.num_nodes
    labels = np.load(root / "raw" / "node-label.npz")["node_label"]
    assert labels.dtype == np.float32
    assert np.isnan(labels).mean() > 0.9
