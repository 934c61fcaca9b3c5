"""``gz.inference.layerwise``: output for every node, as a column, resumable, within a budget."""

from __future__ import annotations

import logging
import shutil
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from budgets import budget_beside
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GraphSAGE, HeteroConv, SAGEConv, Sequential

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous, write_store
from pyg_graphzero.inference.passes import Pass
from pyg_graphzero.store.column_writer import Column
from pyg_graphzero.store.editor import StoreEditor
from pyg_graphzero.store.opened import RowFile
from spawned import EXACT_MALLOC, spawn

MB = 10**6


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    data = homogeneous(300, 2500)
    data.edge_weight = torch.rand(2500) + 0.1
    return data, write_store(data, tmp_path_factory.mktemp("inference") / "store")


@pytest.fixture
def data(stores):
    return copy(stores[0])


@pytest.fixture
def path(stores, tmp_path):
    return Path(shutil.copytree(stores[1], tmp_path / "store"))


def output(model, data, **options):
    with torch.no_grad():
        return model.eval()(data.x, data.edge_index, **options)


def column(path, name="out"):
    with gz.open(path) as store:
        return store.data()[name].clone()


def left_behind(path):
    """Columns that a finished run must not leave."""
    store = gz.open(path)
    attrs = [a for t in store.contents.schema.node_types for a in t.attrs if "." in a]
    return attrs + [found["file"] for found in store.info()["unpublished"]]


def assert_equal(found, expected, tolerance=1e-4):
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    ("encoding", "tolerance"), [(None, 1e-4), ("float16", 5e-3), ("bfloat16", 5e-2)]
)
def test_every_node_has_its_output(data, path, encoding, tolerance):
    model = GraphSAGE(8, 33, 3, 5, dropout=0.3, norm="batch_norm", jk="cat")  # padded rows
    summary = gz.inference.layerwise(model, path, max_edges=400, encoding=encoding)
    assert model.training
    assert_equal(column(path), output(model, data), tolerance)
    assert not left_behind(path)
    assert [(done.layer, done.num_rows) for done in summary.layers] == [(n, 300) for n in (1, 2, 3)]
    assert all(done.edges == 2500 for done in summary.layers)
    assert summary.written_bytes == 300 * ((2 if encoding else 4) * (33 + 33) + 4 * 5)
    assert summary.peak_memory > 0
    assert summary.name == "out"
    assert str(summary).count("\n") == 3
    assert gz.open(path).verify().ok


def test_weights_of_edges_and_a_head(data, path):
    model = GCN(8, 16, 2, 5)
    gz.inference.layerwise(
        model, path, edge_weight="edge_weight", out="label", head=lambda h: h.argmax(-1),
        num_workers=0,
    )  # fmt: skip
    expected = output(model, data, edge_weight=data.edge_weight).argmax(-1)
    assert column(path, "label").dtype == torch.int64
    assert torch.equal(column(path, "label"), expected)


def test_a_file_that_ends_before_its_rows_is_refused(tmp_path):
    contents = gz.open(write_store(homogeneous(), tmp_path / "store")).contents
    rows = RowFile(contents, contents.node_type(None).attrs["x"])
    with pytest.raises(OSError, match="found its end at row 290"):
        rows.read(290, 10**6)


@pytest.fixture
def typed(tmp_path):
    data = heterogeneous()
    data["author"].x = data["author"].x.float()
    path = write_store(data, tmp_path / "typed")
    kept = data.edge_type_subgraph([t for t in data.edge_types if "venue" not in t])
    layers = [HeteroConv({t: SAGEConv((-1, -1), 6) for t in kept.edge_types}) for _ in range(2)]
    model = Sequential("x, edges", [(layer, "x, edges -> x") for layer in layers])
    with torch.no_grad():
        return path, model, model(kept.x_dict, kept.edge_index_dict)


def test_heterogeneous(typed):
    path, model, expected = typed
    summary = gz.inference.layerwise(model, path, max_edges=100)
    data = gz.open(path).data()
    for node_type, rows in expected.items():
        assert_equal(data[node_type].out, rows)
    assert "out" not in data["venue"]
    assert len(summary.layers) == 4
    assert "'out' of 'paper'" in str(summary)
    assert not left_behind(path)


def test_only_what_is_wanted_is_computed(typed):
    path, model, expected = typed
    summary = gz.inference.layerwise(model, path, out={"author": "h"})
    computed = [(done.layer, done.node_type) for done in summary.layers]
    assert sorted(computed) == [(1, "author"), (1, "paper"), (2, "author")]
    data = gz.open(path).data()
    assert_equal(data["author"].h, expected["author"])
    assert "h" not in data["paper"]


def test_stores_that_are_open(data, path):
    model = GraphSAGE(8, 16, 2, 5)
    reading = gz.open(path, memory="3GB")
    gz.inference.layerwise(model, reading, out="a")
    assert "a" not in reading.data()  # it keeps what it opened
    with gz.open(path, "r+") as writing:
        gz.inference.layerwise(model, writing, out="b")
        assert_equal(writing.data().b, output(model, data))
        assert not writing.closed
    assert torch.equal(column(path, "a"), column(path, "b"))
    with gz.open(path, "r+"), pytest.raises(BlockingIOError):
        gz.inference.layerwise(model, path, out="c")


@pytest.mark.parametrize(
    ("error", "words", "options"),
    [
        (ValueError, "found an attribute 'x', expected a name that is", {"out": "x"}),
        (KeyError, "input_attr='z': found in no node type, expected .*x", {"input_attr": "z"}),
        (KeyError, "edge_attr='z': found in no edge type", {"edge_attr": "z"}),
        (ValueError, "encoding='int8': expected 'float16', 'bfloat16'", {"encoding": "int8"}),
        (ValueError, "max_edges: found 0, expected 1 or more", {"max_edges": 0}),
        (ValueError, "num_workers: found -1, expected 0 or more", {"num_workers": -1}),
        (gz.UnsupportedError, r"GAT: found sum\(\) of all rows", {"head": lambda h: h.sum()}),
        (ValueError, "out: found node type 'venue', expected some of", {"out": {"venue": "h"}}),
        (ValueError, "out: found no names", {"out": {}}),
    ],
)
def test_arguments_that_do_not_fit(path, typed, error, words, options):
    path, model = typed[:2] if words.startswith("out:") else (path, GAT(8, 16, 2, 5))
    with pytest.raises(error, match=words):
        gz.inference.layerwise(model, path, **options)
    assert not left_behind(path)


class StoppedError(Exception):
    pass


@contextmanager
def stopping(after):
    """After a number of writes each one fails."""
    write, left = Column.write, [after]

    def written(column, *rows):
        left[0] -= 1
        if left[0] < 0:
            raise StoppedError
        write(column, *rows)

    with patch.object(Column, "write", written), pytest.raises(StoppedError):
        yield


# Writes until the third of three layers, of eight batches each, is half done.
HALF = 8 + 8 + 4


def test_a_run_that_failed_goes_on(data, path, caplog):
    model, before = GraphSAGE(8, 16, 3, 5), sorted(gz.open(path).data().keys())
    with stopping(HALF):
        gz.inference.layerwise(model, path, max_edges=40, num_workers=0)
    assert len(left_behind(path)) == 1  # the first layer is removed, and the third is not done
    for mode in ("r", "r+"):  # its leftovers are no attributes
        with gz.open(path, mode) as store:
            assert sorted(store.data().keys()) == before
    summary = gz.inference.layerwise(model, path, max_edges=50)
    first, second, last = summary.layers
    assert first.verdict == second.verdict == "done before"
    assert first.edges == second.edges == 0
    assert last.edges == 2500  # a layer is done again from its beginning
    assert_equal(column(path), output(model, data))
    assert not left_behind(path)
    assert sorted(gz.open(path).data().keys()) == sorted([*before, "out"])
    assert not caplog.records


@pytest.mark.parametrize("change", ["weights", "input"])
def test_another_model_begins_anew_and_says_so(data, path, caplog, change):
    model = GraphSAGE(8, 16, 3, 5)
    with stopping(HALF):
        gz.inference.layerwise(model, path, max_edges=40, num_workers=0)
    old = set(left_behind(path))
    if change == "weights":
        with torch.no_grad():
            model.convs[0].lin_l.weight *= 2
    if change == "input":
        data.x = data.x + 1
        with gz.open(path, "r+") as store:
            store.feature_store.update_tensor(data.x, group_name=None, attr_name="x", index=None)
    with caplog.at_level(logging.WARNING, "pyg_graphzero"):
        summary = gz.inference.layerwise(model, path)
    told = [r.getMessage() for r in caplog.records if "begins anew" in r.getMessage()]
    assert len(told) == len(old)
    assert all(done.edges == 2500 for done in summary.layers)
    assert_equal(column(path), output(model, data))
    assert not left_behind(path)


@pytest.mark.long
def test_a_run_that_failed_goes_on_between_types(typed):
    path, model, expected = typed
    for writes in (1, 2):
        with stopping(writes):
            gz.inference.layerwise(model, path, num_workers=0)
        assert left_behind(path)
    summary = gz.inference.layerwise(model, path, num_workers=0)
    assert [each.verdict == "done before" for each in summary.layers] == [True] * 3 + [False]
    data = gz.open(path).data()
    for node_type, rows in expected.items():
        assert_equal(data[node_type].out, rows)
    assert not left_behind(path)


class KilledError(BaseException):
    pass


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("instant", ["before", "after"])
def test_killed_around_publishing(data, path, monkeypatch, layers, instant):
    """A run that ended before `store.json` was written, or before anything else was removed."""
    model = GraphSAGE(8, 16, layers, 5)
    commit = StoreEditor.commit

    def killed(editor):
        if instant == "after":
            commit(editor)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(StoreEditor, "commit", killed)
        with pytest.raises(KilledError):
            gz.inference.layerwise(model, path)
    assert ("out" in gz.open(path).data()) == (instant == "after")
    assert len(left_behind(path)) == (layers if instant == "before" else layers - 1)
    if instant == "before":
        summary = gz.inference.layerwise(model, path)
        assert all(done.verdict == "done before" for done in summary.layers)
    assert_equal(column(path), output(model, data))
    with pytest.raises(ValueError, match="not taken"):
        gz.inference.layerwise(model, path)
    assert not left_behind(path)
    assert not (path / "unpublished").exists()


def test_all_types_come_out_at_once(typed, monkeypatch):
    """Also those of a single layer, which has nothing in between."""
    path, model, _ = typed
    commits = []
    commit = StoreEditor.commit
    monkeypatch.setattr(StoreEditor, "commit", lambda e: (commits.append(1), commit(e)))
    gz.inference.layerwise(model[0], path)
    assert len(commits) == 1
    data = gz.open(path).data()
    assert sum("out" in data[t] for t in data.node_types) > 1


def test_a_bar_on_standard_error(path, capsys, monkeypatch):
    from pyg_graphzero.util import progress

    monkeypatch.setattr(progress, "_DELAY_SECONDS", 0.0)
    model = GraphSAGE(8, 16, 2, 5)
    gz.inference.layerwise(model, path, out="a", progress=False)
    assert not capsys.readouterr().err
    gz.inference.layerwise(model, path, out="b", progress=True, max_edges=100)
    shown = capsys.readouterr().err
    assert "layer 1/2" in shown
    assert "layer 2/2" in shown


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A store of 95 MB: more than the budget below leaves for it."""
    n = 90_000
    generator = torch.Generator().manual_seed(1)
    src = (torch.rand(300_000, generator=generator) ** 3 * n).long()
    dst = torch.randint(n, (300_000,), generator=generator)
    data = Data(x=torch.randn(n, 256, generator=generator), edge_index=torch.stack([src, dst]))
    path = tmp_path_factory.mktemp("inference") / "wide"
    gz.convert(data, path)
    model = GAT(256, 4, 1, 4)
    return model, path, output(model, data)


def keep_within_budgets(rank, model, path, expected):
    """Runs in a process of its own, since malloc of this one has freed memory to give away."""
    steps, found, begin = [], [], Pass.__init__

    def noted(step, *args):
        steps.append(step)
        begin(step, *args)

    with patch.object(Pass, "__init__", noted):
        for extra in (500 * MB, 65 * MB, 100 * MB):  # first all that libraries take once
            memory = budget_beside(extra)
            with gz.open(path, memory=memory) as store:
                summary = gz.inference.layerwise(
                    model, store, out=f"out{extra}", max_edges=4000, num_workers=1
                )
            # Messages of a batch are the model's, not the loader's.
            assert summary.peak_memory <= 1.1 * memory
            assert_equal(column(path, f"out{extra}"), expected)
            found.append(steps[-1].stats)
    _, few, many = found
    assert 0 < many.rows == few.rows
    assert many.useful_bytes < 0.9 * few.useful_bytes
    assert many.reads < 0.5 * few.reads
    for stats in (few, many):
        assert 0 < stats.useful_bytes < (stats.rows - stats.hits) * 1024  # batches share reads


@pytest.mark.long
def test_more_memory_means_fewer_reads(wide, monkeypatch):
    monkeypatch.setenv(*EXACT_MALLOC)
    spawn(keep_within_budgets, wide, 1)
