"""GraphSAINT's samplers, against the definition: what is drawn how often, and what makes up."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.loader
from scipy.stats import chisquare
from torch_geometric.data import Data
from torch_geometric.utils import degree, subgraph

import pyg_graphzero as gz
from graphs import check_rows
from pyg_graphzero.loader import (
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
)

SAMPLERS = {
    "node": lambda data, **k: GraphSAINTNodeSampler(data, 20, **k),
    "edge": lambda data, **k: GraphSAINTEdgeSampler(data, 15, **k),
    "walk": lambda data, **k: GraphSAINTRandomWalkSampler(data, 8, 3, **k),
}
STOCK = {
    "node": torch_geometric.loader.GraphSAINTNodeSampler,
    "edge": torch_geometric.loader.GraphSAINTEdgeSampler,
    "walk": torch_geometric.loader.GraphSAINTRandomWalkSampler,
}


@pytest.fixture
def with_csr(data, store):
    store.close()
    with gz.open(store.path, mode="r+") as writable:
        writable.create_csr()
    return data, gz.open(store.path)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("source", ["memory", "store"])
@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_batch_is_the_subgraph_of_its_nodes(with_csr, kind, source, workers):
    data, store = with_csr
    given = data if source == "memory" else store
    loader = SAMPLERS[kind](given, num_steps=5, sample_coverage=3, num_workers=workers)
    assert isinstance(loader, STOCK[kind])
    assert len(loader) == 5
    batches = list(loader)
    assert len(batches) == 5
    for batch in batches:
        assert torch.equal(batch.n_id, batch.n_id.unique())
        check_rows(batch, data)
        _, _, mask = subgraph(batch.n_id, data.edge_index, num_nodes=300, return_edge_mask=True)
        assert sorted(batch.e_id.tolist()) == mask.nonzero().view(-1).tolist()
        assert torch.equal(batch.node_norm, loader.node_norm[batch.n_id])
        assert torch.equal(batch.edge_norm, loader.edge_norm[batch.e_id])
    assert not torch.equal(batches[0].n_id, batches[1].n_id)


def drawn(loader, rounds):
    """How often each node is in what is drawn."""
    generator = torch.Generator().manual_seed(7)
    return torch.stack([loader.draw(generator).view(-1) for _ in range(rounds)])


def fits(found, expected):
    assert found[expected == 0].sum() == 0
    found, expected = found[expected > 0].double(), expected[expected > 0].double()
    expected = expected * found.sum() / expected.sum()
    assert chisquare(found.tolist(), expected.tolist()).pvalue > 1e-4


@pytest.mark.parametrize("source", ["memory", "store"])
def test_nodes_are_drawn_by_out_degree(data, store, source):
    loader = GraphSAINTNodeSampler(data if source == "memory" else store, 20)
    nodes = drawn(loader, 2000)
    fits(torch.bincount(nodes.view(-1), minlength=300), degree(data.edge_index[0], 300))


@pytest.mark.parametrize("source", ["memory", "store"])
def test_edges_are_drawn_by_degrees(with_csr, source):
    data, store = with_csr
    loader = GraphSAINTEdgeSampler(data if source == "memory" else store, 40)
    generator = torch.Generator().manual_seed(3)
    row, col = data.edge_index
    pairs = torch.cat([loader.draw(generator).sort(dim=1).values for _ in range(2000)])
    weight = 1 / degree(row, 300)[row] + 1 / degree(col, 300)[col]
    want, found = torch.zeros(300 * 300), torch.zeros(300 * 300)
    ends = torch.stack([row, col]).sort(dim=0).values
    want.scatter_add_(0, ends[0] * 300 + ends[1], weight)
    found += torch.bincount(pairs[:, 0] * 300 + pairs[:, 1], minlength=300 * 300)
    fits(found, want)


def test_walks_go_along_edges_from_any_node(data):
    walks = GraphSAINTRandomWalkSampler(data, 50, 2).draw(torch.Generator().manual_seed(1))
    assert walks.shape == (50, 3)
    pairs = {tuple(pair) for pair in data.edge_index.t().tolist()}
    ends = set(range(300)) - set(data.edge_index[0].tolist())
    for a, b in zip(walks[:, :-1].flatten().tolist(), walks[:, 1:].flatten().tolist(), strict=True):
        assert (a, b) in pairs or (a == b and a in ends)
    start = drawn(GraphSAINTRandomWalkSampler(data, 100, 1), 300).view(-1, 2)[:, 0]
    fits(torch.bincount(start, minlength=300), torch.ones(300))


@pytest.mark.parametrize("source", ["memory", "store"])
def test_norms_are_pygs_of_what_was_drawn(data, store, source):
    """Counted batch by batch; a third of the nodes are never drawn, and no edge of theirs seen."""
    drawn = []

    class Known(GraphSAINTNodeSampler):
        def draw(self, generator):
            drawn.append(torch.randint(200, (40,), generator=generator))
            return drawn[-1]

    loader = Known(data if source == "memory" else store, 40, sample_coverage=3)
    nodes, edges = torch.zeros(300), torch.zeros(data.num_edges)
    for batch in drawn:
        there = torch.zeros(300)
        there[batch] = 1
        nodes += there
        edges += there[data.edge_index].prod(0)
    edge_norm = (nodes[data.edge_index[1]] / edges).clamp_(0, 1e4)
    edge_norm[edge_norm.isnan()] = 0.1
    nodes[nodes == 0] = 0.1
    assert torch.equal(loader.edge_norm, edge_norm)
    assert torch.allclose(loader.node_norm, len(drawn) / nodes / 300)
    assert {0.1, 1e4} < set(edge_norm.double().round(decimals=3).tolist())


def test_norms_are_kept(data, store, tmp_path):
    first = GraphSAINTNodeSampler(store, 20, sample_coverage=2, save_dir=str(tmp_path))
    (file,) = tmp_path.glob("gz_graphsaintnodesampler_2.pt")
    again = GraphSAINTNodeSampler(data, 20, sample_coverage=2, save_dir=str(file.parent))
    assert torch.equal(first.edge_norm, again.edge_norm)
    assert torch.equal(first.node_norm, again.node_norm)


def test_bad_input(data, store, hetero):
    with pytest.raises(TypeError, match="found a heterogeneous graph, expected a homogeneous one"):
        GraphSAINTNodeSampler(hetero[1], 3)
    with pytest.raises(gz.errors.UnsupportedError, match="create_csr"):
        GraphSAINTRandomWalkSampler(store, 3, 2)
    with pytest.raises(gz.errors.UnsupportedError, match="create_csr"):
        GraphSAINTEdgeSampler(store, 3)
    with pytest.raises(ValueError, match="walk_length: found 0, expected 1 or more"):
        GraphSAINTRandomWalkSampler(data, 3, 0)
    with pytest.raises(ValueError, match="batch_size: found 0, expected 1 or more"):
        GraphSAINTNodeSampler(data, 0)
    with pytest.raises(ValueError, match="data: found no edges"):
        GraphSAINTNodeSampler(Data(edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=3), 2)
    data.node_norm = torch.ones(300)
    with pytest.raises(ValueError, match=r"data\.node_norm: found one"):
        GraphSAINTNodeSampler(data, 3)
