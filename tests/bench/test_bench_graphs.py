"""The graphs that benchmarks make: of any size, the same again, and as skewed as they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import papers100m_shape
import pytest
import torch
from papers100m_graph import MASKS, PapersGraph, write_ogb

import pyg_graphzero as gz
from harness.child import Task
from harness.communities import CommunityGraph, check_rows, row_digits
from pyg_graphzero.bench.training import Trainer

SMALL = CommunityGraph(20_000, num_features=8, num_communities=100)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, Path]:
    folder = tmp_path_factory.mktemp("communities")
    for encoding in (None, "float16"):
        SMALL.write(folder / str(encoding), encoding=encoding)
    return {encoding: folder / str(encoding) for encoding in (None, "float16")}


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


# papers100M #######################################################################################

SCALE = 0.0003


@pytest.fixture(scope="module")
def both_ways(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten times as many papers, cited and citing."""
    path = tmp_path_factory.mktemp("papers") / "both"
    PapersGraph.of(10 * SCALE).write(path, "int8")
    return path


def test_training_reads_as_many_rows_as_published_of_the_real_graph(both_ways):
    """The estimate for scale 1, from draws on a smaller graph, is within a tenth."""
    task = Task("shape", str(both_ways), fanout=[10, 10, 10])
    data = gz.open(both_ways).data()
    found = papers100m_shape.at_scale(task, data, 10 * SCALE)
    published = papers100m_shape.PUBLISHED
    assert found.nodes == pytest.approx(published.nodes, rel=0.1)
    assert found.distinct == pytest.approx(published.distinct, rel=0.1)
    # Where communities are small, so are their hubs.
    assert found.hottest[0] == pytest.approx(published.hottest[0], rel=0.3)
    assert found.hottest[1:] == pytest.approx(published.hottest[1:], rel=0.1)


@pytest.mark.parametrize("directed", [True, False])
def test_ogb_files_are_the_same_graph(directed, tmp_path):
    """Conversion reads the files as it reads the downloaded dataset."""
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
    assert read.node_year.shape[0] == graph.num_nodes
    labels = np.load(root / "raw" / "node-label.npz")["node_label"]
    assert labels.dtype == np.float32
    assert np.isnan(labels).mean() > 0.9
