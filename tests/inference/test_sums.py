"""Layers by sums over neighbours: the engine against a definition, passes against the graph."""

from __future__ import annotations

import shutil
from unittest.mock import patch

import pytest
import torch
from budgets import budget_beside
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GIN, GraphConv, GraphSAGE, SAGEConv

import pyg_graphzero as gz
from graphs import homogeneous, random_edges
from pyg_graphzero import _core
from pyg_graphzero.inference.sums import SummedPass
from spawned import EXACT_MALLOC, spawn

MB = 10**6


def column_of(store, name="x"):
    return store.contents.column(store.contents.schema.node_type(None).attrs[name])


def engine(store, first, last, chunk_rows=1 << 20, threads=0, column=None):
    made = _core.NeighborSums(
        store.contents.topology(None), column or column_of(store), True,
        chunk_rows, 1 << 20, 1000, threads,
    )  # fmt: skip
    made.begin(first, last)
    return made


def coded_stores(folder, num_nodes, num_edges):
    """Stores of one graph, by how its features are stored; and those features."""
    data = homogeneous(num_nodes, num_edges)
    data.x = torch.randn(num_nodes, 21)  # no multiple of a vector
    found = {}
    for code in ("float32", "float16", "bfloat16", "int8"):
        features = None if code == "float32" else {"x": code}
        gz.convert(data, folder / code, features=features, progress=False)
        with gz.open(folder / code) as store:
            found[code] = folder / code, store.data().x[:].clone()
    return data, found


@pytest.fixture(scope="module")
def coded(tmp_path_factory):
    return coded_stores(tmp_path_factory.mktemp("sums"), 300, 2500)


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """For room for one sum at a time: a pass for each node."""
    return coded_stores(tmp_path_factory.mktemp("few"), 60, 500)


def test_runs_and_columns_that_do_not_fit_are_refused(coded, few):
    with gz.open(coded[1]["float32"][0]) as store, gz.open(few[1]["float32"][0]) as other:
        for first, last in ((0, 301), (-1, 5), (5, 4)):
            with pytest.raises(ValueError, match="expected a run"):
                engine(store, first, last)
        with pytest.raises(ValueError, match="expected a column of its sources"):
            engine(store, 0, 300, column=column_of(other))
        with pytest.raises(ValueError, match=r"y\.gd: found int64, expected float32"):
            engine(store, 0, 300, column=column_of(store, "y"))


@pytest.mark.parametrize("where", ["indices", "indptr"])
def test_a_damaged_topology(coded, tmp_path, where):
    path = shutil.copytree(coded[1]["float32"][0], tmp_path / "store")
    topology = gz.open(path).contents.topology(None)
    at = topology.indices_offset + topology.index_bytes * 1700
    if where == "indptr":
        at = topology.indptr_offset + 8 * 100
    with open(topology.path, "r+b") as file:
        file.seek(at)
        file.write(b"\x7f" * (8 if where == "indptr" else topology.index_bytes))
    with pytest.raises(gz.FormatError, match=rf"topology\.gl.*{where}"):
        engine(gz.open(path), 0, 300)


# Passes -----------------------------------------------------------------------------------------


@pytest.fixture
def passes(monkeypatch):
    """Counts the passes by sums."""
    made = []
    init = SummedPass.__init__

    def counted(self, *args, **kwargs):
        made.append(self)
        init(self, *args, **kwargs)

    monkeypatch.setattr(SummedPass, "__init__", counted)
    return made


class Weighted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GraphConv(21, 8)

    def forward(self, x, edge_index, edge_attr):
        return self.conv(x, edge_index, edge_attr[:, 0].exp())


class Skipping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = SAGEConv(21, 9), SAGEConv(9, 9)
        self.lin, self.last = torch.nn.Linear(21, 9), torch.nn.Linear(9, 4)

    def forward(self, x, edge_index):
        h = self.first(x, edge_index).relu() + self.lin(x)
        return self.last(self.second(h, edge_index) + h)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (GraphSAGE(21, 8, 2, 4), 2),
        (GraphSAGE(21, 8, 2, 4, aggr="sum"), 2),
        (GraphSAGE(21, 8, 2, 4, aggr="max"), 0),
        (GraphSAGE(21, 8, 2, 4, project=True), 0),
        (GIN(21, 8, 2, 4), 2),
        (GCN(21, 8, 2, 4), 0),  # weights of edges
        (GAT(21, 8, 2, 4), 0),
        (SAGEConv(21, 8), 1),
        (GraphConv(21, 8), 1),
        (Weighted(), 0),
        (Skipping(), 2),
        (type("Own", (SAGEConv,), {})(21, 8), 0),
    ],
)
def test_layers_that_are_sums(coded, tmp_path, passes, model, expected):
    path = shutil.copytree(coded[1]["int8"][0], tmp_path / "store")
    edge_attr = "edge_attr" if isinstance(model, Weighted) else None
    gz.inference.layerwise(model, path, edge_attr=edge_attr)
    assert len(passes) == expected


@pytest.mark.parametrize("room", [1, 3000])
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("sage", "float32"),
        ("sage", "int8"),
        ("sum", "bfloat16"),
        ("gin", "float16"),
        ("cat", "int8"),
        ("skip", "float16"),
    ],
)
def test_models(coded, few, tmp_path, monkeypatch, passes, kind, code, room):
    data, stores = few if room == 1 else coded
    path, x = shutil.copytree(stores[code][0], tmp_path / "store"), stores[code][1]
    torch.manual_seed(3)
    model = {
        "sage": lambda: GraphSAGE(21, 9, 3, 4, norm="batch_norm"),
        "sum": lambda: GraphSAGE(21, 9, 3, 4, aggr="sum", normalize=True),
        "gin": lambda: GIN(21, 9, 3, 4),
        "cat": lambda: GraphSAGE(21, 9, 3, 4, jk="cat"),
        "skip": Skipping,
    }[kind]()
    divide = SummedPass.divide

    def small(self, *args):
        divide(self, *args)
        self._room, self._chunk_rows = room, 64

    monkeypatch.setattr(SummedPass, "divide", small)
    summary = gz.inference.layerwise(model, path, max_edges=37)
    assert len(passes) == len(summary.layers)
    assert all(done.edges == data.num_edges for done in summary.layers)
    with torch.no_grad():
        expected = model.eval()(x, data.edge_index)
    with gz.open(path) as store:
        assert torch.allclose(store.data().out[:], expected, atol=1e-4, rtol=1e-4)


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A store of 150 MB."""
    n = 70_000
    edges = random_edges(n, n, 900_000, 5)
    data = Data(x=torch.randn(n, 512), edge_index=edges)
    path = tmp_path_factory.mktemp("sums") / "wide"
    gz.convert(data, path, progress=False)
    with torch.no_grad():
        model = GraphSAGE(512, 4, 1, 4).eval()
        return model, path, model(data.x, edges)


def swept(model, path, memory):
    """The output, its summary, and how many blocks there were."""
    sum_up, blocks = SummedPass._sums, []

    def counted(*run):
        blocks.append(run)
        return sum_up(*run)

    name = f"out{memory}"
    with patch.object(SummedPass, "_sums", counted), gz.open(path, memory=memory) as store:
        summary = gz.inference.layerwise(model, store, out=name)
    return gz.open(path).data()[name].clone(), summary, len(blocks)


def keep_within_budgets(rank, model, path, expected):
    """Runs in a process of its own: memory freed by other tests may go back while it measures."""
    swept(model, path, budget_beside(500 * MB))  # what libraries take once
    for extra, least, most_blocks in ((60, 8, 40), (150, 2, 4), (400, 1, 1)):
        memory = budget_beside(extra * MB)
        found, summary, blocks = swept(model, path, memory)
        assert torch.allclose(found, expected, atol=1e-4)
        most = summary.peak_memory
        assert 0 < most <= memory, f"{most / MB:.0f} of {memory / MB:.0f} MB"
        assert least <= blocks <= most_blocks
        # The column once for each block, or less: what the last ones' few edges need of it.
        of_edges = 2 * (900_000 * 4 + 70_000 * 8)
        read = summary.read_bytes - of_edges
        assert 0.5 * blocks < read / (70_000 * 2048) < blocks + 0.1


@pytest.mark.long
def test_within_a_budget(wide, monkeypatch):
    monkeypatch.setenv(*EXACT_MALLOC)
    spawn(keep_within_budgets, wide, 1)


def test_too_little_memory_says_how_much(coded, tmp_path, monkeypatch):
    path = shutil.copytree(coded[1]["int8"][0], tmp_path / "store")
    init = SummedPass.__init__

    def cramped(step, task, contents, *more):
        contents.memory = budget_beside(MB)
        init(step, task, contents, *more)

    monkeypatch.setattr(SummedPass, "__init__", cramped)
    with pytest.raises(gz.MemoryBudgetError, match="MB or more to add up neighbours"):
        gz.inference.layerwise(SAGEConv(21, 4), path)
