"""Tables that stand for files, packed topologies and dictionaries: the same batches, more room."""

import shutil
from dataclasses import replace

import pytest
import torch
from budgets import budget_beside
from torch_geometric.data import Data
from tuned import residence_of

import pyg_graphzero as gz
from pyg_graphzero import _core
from pyg_graphzero.memory.needs import Needs, files_of
from pyg_graphzero.memory.tables import Tables
from pyg_graphzero.store.columns import row_table

NUM_NODES = 300_000
MB = 10**6


@pytest.fixture(scope="module")
def graph():
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(-1, 40, (NUM_NODES,), generator=generator)
    return Data(
        x=torch.randn(NUM_NODES, 64, generator=generator),
        edge_index=torch.randint(NUM_NODES, (2, NUM_NODES), generator=generator),
        y=y,
        train_mask=y > 30,
        score=torch.where(y < 0, torch.nan, y.float()),
        year=torch.arange(NUM_NODES) % 300,
    )


@pytest.fixture(scope="module")
def path(graph, tmp_path_factory):
    path = tmp_path_factory.mktemp("dictionaries") / "store"
    gz.convert(graph, path, progress=False)
    return path


def loader_over(path, budget=40 * MB):
    data = gz.open(path, memory=budget_beside(budget)).data()
    return gz.loader.NeighborLoader(data, [4], torch.arange(3000), batch_size=100)


def test_batches_are_those_of_the_graph(graph, path):
    loader = loader_over(path)
    for batch in loader:
        for key in ("x", "y", "train_mask", "score", "year"):
            expected = graph[key][batch.n_id]
            assert batch[key].dtype == expected.dtype
            assert torch.equal(batch[key].nan_to_num(-7), expected.nan_to_num(-7)), key
    files = residence_of(loader)
    sizes = {name.rpartition("/")[2]: size for name, size in files.plan.held.items()}
    assert sizes["indptr 0"] < 0.3 * 8 * NUM_NODES
    assert sizes["topology.gl"] < 0.65 * 4 * NUM_NODES  # 19 or 20 bits, not 32
    assert files.packed[None].packed is not None
    assert files.packed[None].bounds is not None
    assert sizes["y.gd"] == NUM_NODES + 8
    assert sizes["score.gd"] == NUM_NODES + 8
    assert sizes["year.gd"] == 8 * NUM_NODES  # more than 256 of them
    assert sizes["train_mask.gd"] == NUM_NODES  # too small to be worth it


def test_writes_to_a_column_are_seen(path):
    loader = loader_over(path)
    first = next(iter(loader))
    assert not bool((first.y == 77).any())
    loader.data.y[:] = 77
    loader.data.x[:3000] = 7.0  # rows that are read
    for batch in loader:
        assert bool((batch.y == 77).all())
        assert bool((batch.x[: batch.batch_size] == 7.0).all())
        assert torch.equal(batch.x, loader.data.x[batch.n_id])


def test_nothing_is_made_where_all_fits(path):
    loader = loader_over(path, 2000 * MB)
    next(iter(loader))
    assert residence_of(loader).plan.is_whole
    assert residence_of(loader).packed == {}
    assert loader.graph_sampler.graph.contents.keeper.tables.dictionaries == {}


def test_tables_are_made_once(path):
    loader = loader_over(path)
    next(iter(loader))
    tables = loader.graph_sampler.graph.contents.keeper.tables
    packed, dictionaries = dict(tables.packed), dict(tables.dictionaries)
    first = residence_of(loader)
    loader = gz.loader.NeighborLoader(loader.data, [4], torch.arange(9000), batch_size=100)
    next(iter(loader))
    later = residence_of(loader)
    assert later is not first
    assert later.packed[None] == packed[None]
    assert all(tables.dictionaries[name] is made for name, made in dictionaries.items())
    graph = loader.graph_sampler.graph
    assert tables.pack(graph, later.needs, {}) == tables.packed == {}  # none is held: given up


def test_a_column_cut_short_is_an_error_that_names_it(path, tmp_path):
    contents = loader_over(path).graph_sampler.graph.contents
    file = next(f for f in files_of(loader_over(path)) if f.name.endswith("y.gd"))
    column = contents.column(file.name)
    target = tmp_path / "y.gd"
    shutil.copyfile(column.path, target)
    short = _core.Column.open(str(target))
    rows = row_table(short.view()[0].view(torch.int64))
    with open(target, "r+b") as cut:
        cut.truncate(1 << 20)
    with pytest.raises(OSError, match=r"y\.gd"):
        _core.Dictionary.of(rows)


def test_tables_larger_than_the_column_are_not_kept(tmp_path):
    bytes_ = torch.arange(2 << 20).remainder(256).to(torch.uint8)
    data = Data(x=torch.zeros(2 << 20, 1), b=bytes_, edge_index=torch.zeros(2, 1).long())
    gz.convert(data, tmp_path / "store", progress=False)
    loader = loader_over(tmp_path / "store")
    needs = Needs(tuple(files_of(loader)))
    sized = Tables().sizes(loader.graph_sampler.graph.contents, needs).files
    assert {f.name.rpartition("/")[2]: f.is_packed for f in sized}["b.gd"] is False


def test_pages_that_many_processes_share_are_less(path):
    loader = loader_over(path)
    (y,) = (file for file in files_of(loader) if file.name.endswith("y.gd"))
    contents = loader.graph_sampler.graph.contents
    for processes, is_packed in ((1, True), (7, True), (8, False)):  # 2.4 MB, or 0.3
        (sized,) = Tables().sizes(contents, Needs((replace(y, processes=processes),))).files
        assert sized.is_packed == is_packed


def test_doctor_counts_them(path):
    memory = budget_beside(40 * MB)
    found = gz.doctor(path, num_neighbors=[4], batch_size=100, memory=memory, seconds=0.2)
    assert found.memory_plan.held["node/y.gd"] == NUM_NODES + 8


def test_dictionaries_are_no_ids_and_no_sums():
    made = _core.Dictionary.of(row_table(torch.zeros(10)))
    plan = _core.GatherPlan(1)
    with pytest.raises(ValueError, match="ids: found a dictionary, expected rows"):
        plan.add_lookup(0, made.rows())
    with pytest.raises(ValueError, match="table: found a dictionary, expected rows"):
        plan.add_sum(0, made.rows(), 0, 0)
