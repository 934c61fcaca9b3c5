"""The graphs that benchmarks make: of any size, the same again, and as skewed as they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import papers100m_shape
import pytest
import torch
from papers100m_graph import PapersGraph

import pyg_graphzero as gz
from harness.child import Task
from harness.communities import CommunityGraph, check_rows, row_digits
from pyg_graphzero.bench.training import Trainer, graph_sage

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
        trainer = Trainer(graph_sage(data, 2, 172), each)
        for batch in loader:
            trainer.step(batch)
        outputs.append(trainer.forward(batch)[: batch.batch_size])
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


def test_papers_that_are_cited_in_one_direction(tmp_path):
    graph = PapersGraph.of(SCALE, directed=True)
    graph.write(tmp_path / "store")
    data = gz.open(tmp_path / "store").data()
    assert data.num_edges == graph.num_edges
    assert torch.equal(data.x, graph.features().read(0, graph.num_nodes))
    assert int((data.y >= 0).sum()) == sum(map(len, graph.split.values()))
