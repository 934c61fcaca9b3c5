"""PyG's FeatureStore and GraphStore over a store, read and written."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, EdgeAttr, FeatureStore, GraphStore, TensorAttr

import pyg_graphzero as gz

EDGE = ("author", "writes", "paper")


def test_they_are_pyg_stores(homo):
    store = homo[1]
    assert isinstance(store.feature_store, FeatureStore)
    assert isinstance(store.graph_store, GraphStore)


@pytest.mark.parametrize(
    "index",
    [
        None,
        3,
        slice(2, 9, 2),
        torch.tensor([5, 0, 5]),
        torch.tensor([5, 0], dtype=torch.int32),
        np.array([7, 1]),
        torch.arange(300) % 3 == 0,
        np.arange(300) % 2 == 0,
    ],
    ids=["none", "int", "slice", "tensor", "int32", "array", "mask", "array mask"],
)
def test_every_kind_of_index(data, store, index):
    got = store.feature_store.get_tensor(group_name=None, attr_name="x", index=index)
    want = data.x if index is None else data.x[index]
    assert torch.equal(got, want)
    assert store.feature_store.get_tensor_size(TensorAttr(None, "x", index)) == tuple(want.shape)


def test_edge_attributes_are_numbered_by_original_edge_id(hetero):
    data, store = hetero
    attr = data[EDGE].edge_attr
    fs = store.feature_store
    assert torch.equal(fs.get_tensor(EDGE, "edge_attr", None), attr)
    assert torch.equal(fs.get_tensor(EDGE, "edge_attr", torch.tensor([9, 2])), attr[[9, 2]])
    assert torch.equal(fs.get_tensor(EDGE, "edge_attr", 4), attr[4])
    assert torch.equal(fs.get_tensor(EDGE, "edge_attr", slice(3, 8)), attr[3:8])


def test_views(hetero):
    data, store = hetero
    fs = store.feature_store
    assert torch.equal(fs["paper", "x", None], data["paper"].x)
    assert torch.equal(fs["paper"].x[torch.tensor([1, 2])], data["paper"].x[[1, 2]])
    assert torch.equal(fs["paper"]["y"][:4], data["paper"].y[:4])
    view = fs.view("paper")
    view.attr_name = "y"
    assert torch.equal(view(), data["paper"].y)
    assert torch.equal(fs["paper", "x", np.array([3, 1])], data["paper"].x[[3, 1]])


def test_multi_get_and_fresh_attrs(hetero):
    data, store = hetero
    fs = store.feature_store
    attrs = fs.get_all_tensor_attrs()
    names = {(a.group_name, a.attr_name) for a in attrs}
    assert names == {("paper", "x"), ("paper", "y"), ("paper", "train_mask"), ("author", "x")}
    for attr in attrs:
        attr.index = torch.tensor([1])
    assert not any(a.is_set("index") for a in fs.get_all_tensor_attrs())
    for attr, tensor in zip(attrs, fs.multi_get_tensor(attrs), strict=True):
        assert torch.equal(tensor, data[attr.group_name][attr.attr_name][[1]])
    arrays = fs.multi_get_tensor([TensorAttr("paper", "x", np.array([0]))], convert_type=True)
    assert isinstance(arrays[0], np.ndarray)


def test_missing_is_a_key_error(hetero):
    fs, gs = hetero[1].feature_store, hetero[1].graph_store
    with pytest.raises(KeyError, match=r"attribute 'z' of 'paper': expected one of \['train_mask'"):
        fs.get_tensor("paper", "z", None)
    with pytest.raises(KeyError, match=r"node type 'nobody': expected one of \['paper'"):
        fs.get_tensor("nobody", "x", None)
    assert fs.get_tensor_size("paper", "z") is None
    with pytest.raises(KeyError, match=r"'edge_index' for .* not found"):
        gs.get_edge_index(("a", "b", "c"), "csc")
    with pytest.raises(IndexError, match=r"index\[1\]: found row 200, expected 0 <= row < 200"):
        fs.get_tensor("paper", "x", torch.tensor([0, 200]))
    with pytest.raises(IndexError, match=r"mask: found shape \[3\], expected \[200\]"):
        fs.get_tensor("paper", "x", torch.tensor([True, False, True]))
    with pytest.raises(TypeError, match=r"index: found torch.float32"):
        fs.get_tensor("paper", "x", torch.tensor([0.5]))


def test_layouts(data, store):
    gs = store.graph_store
    assert gs.get_all_edge_attrs()[0].size == (300, 300)
    row, col, perm = gs.coo()
    assert perm is None
    assert torch.equal(torch.stack([row, col]), data.edge_index)
    row, colptr, perm = gs.csc()
    assert torch.equal(row, data.edge_index[0, perm])
    assert torch.equal(torch.repeat_interleave(torch.arange(300), colptr.diff()),
                       data.edge_index[1, perm])  # fmt: skip
    rowptr, col, perm = gs.csr()
    assert torch.equal(col, data.edge_index[1, perm])
    assert torch.equal(torch.repeat_interleave(torch.arange(300), rowptr.diff()),
                       data.edge_index[0, perm])  # fmt: skip
    for layout in ("coo", "csc", "csr"):
        a, b = gs.get_edge_index(EdgeAttr(None, layout))
        assert a.dtype == b.dtype == torch.int64


def test_layouts_of_types(hetero):
    data, store = hetero
    rows, colptrs, perms = store.graph_store.csc()
    assert set(rows) == set(data.edge_types)
    for name in data.edge_types:
        perm = slice(None) if perms[name] is None else perms[name]
        assert torch.equal(rows[name], data[name].edge_index[0, perm])
        assert colptrs[name].numel() == data[name[2]].num_nodes + 1
    row, col = store.graph_store[EdgeAttr(EDGE, "coo")]
    assert torch.equal(torch.stack([row, col]), data[EDGE].edge_index)


def test_writing_needs_a_store_opened_for_it(homo):
    store = homo[1]
    message = r"open for reading; use gz.open\(path, mode='r\+'\)"
    with pytest.raises(gz.ReadOnlyStoreError, match=message):
        store.feature_store.put_tensor(torch.zeros(300), None, "z", None)
    with pytest.raises(PermissionError, match=message):
        store.feature_store.remove_tensor(None, "x", None)


def test_put_update_remove(data, store):
    reader = store.data()
    with gz.open(store.path, mode="r+") as writable:
        fs = writable.feature_store
        assert fs.put_tensor(torch.arange(300.0), group_name=None, attr_name="z", index=None)
        fs[None, "w", None] = np.ones((300, 2), np.float32)
        assert fs.update_tensor(data.y + 1, None, "y", None)
        assert fs.put_tensor(data.edge_attr[:, 0], (None, None), "w0", None)
        with pytest.raises(ValueError, match="expected 300 rows"):
            fs.put_tensor(torch.zeros(3), None, "bad", None)
        with pytest.raises(BlockingIOError):
            gz.open(store.path, mode="r+")
    again = gz.open(store.path)
    d = again.data()
    assert torch.equal(d.z, torch.arange(300.0))
    assert torch.equal(d.w, torch.ones(300, 2))
    assert torch.equal(d.y, data.y + 1)
    assert torch.equal(d.w0, data.edge_attr[:, 0])
    assert again.verify().ok
    assert torch.equal(reader.y, data.y)  # what was opened before stays as it was
    with gz.open(store.path, mode="r+") as writable:
        assert writable.feature_store.remove_tensor(None, "z", None)
        del writable.feature_store[None, "w", None]
        with pytest.raises(KeyError):
            writable.feature_store.remove_tensor(None, "z", None)
    assert "z" not in gz.open(store.path).data()
    assert not list(store.path.rglob("z*.gd"))


def test_refused_changes(data, store):
    with gz.open(store.path, mode="r+") as writable:
        fs, gs = writable.feature_store, writable.graph_store
        for change in (fs.update_tensor, fs.put_tensor):
            with pytest.raises(gz.UnsupportedError, match="found an index set"):
                change(torch.arange(300), None, "train_idx", None)
            with pytest.raises(gz.UnsupportedError, match=r"found an index.*create_column\(\)"):
                change(torch.zeros(8), None, "x", 3)
        with pytest.raises(gz.UnsupportedError, match="found an index set"):
            fs.remove_tensor(None, "train_idx", None)
        with pytest.raises(ValueError, match="expected 300 rows"):
            fs.update_tensor(torch.zeros(4, 8), None, "x", None)
        with pytest.raises(KeyError, match="attribute 'nothing'"):
            fs.update_tensor(torch.zeros(300), None, "nothing", None)
        for edit in (lambda *at: gs.put_edge_index(data.edge_index, *at), gs.remove_edge_index):
            with pytest.raises(gz.UnsupportedError, match=r"expected those that conversion wrote"):
                edit(None, "csc")
    again = gz.open(store.path)
    assert torch.equal(again.data().x, data.x)
    assert torch.equal(again.data().edge_index, data.edge_index)
    assert again.verify().ok


@pytest.mark.parametrize("layout", ["csr", "coo", "csc"])
def test_a_stored_conversion_changes_nothing(hetero, layout):
    data, store = hetero
    with gz.open(store.path, mode="r+") as writable:
        want = getattr(writable.graph_store, layout)()
        got = getattr(writable.graph_store, layout)(store=True)
        for a, b in zip(want, got, strict=True):
            for name in data.edge_types:
                same = a[name] is b[name] is None or torch.equal(a[name], b[name])
                assert same, (layout, name)
    again = gz.open(store.path).data()
    for name in data.edge_types:
        assert torch.equal(again[name].edge_index, data[name].edge_index)
    assert torch.equal(again[EDGE].edge_attr, data[EDGE].edge_attr)


def test_counts_of_all_types_and_of_one(hetero, homo):
    store = hetero[1]
    assert (store.num_nodes, type(store.num_nodes)) == (327, int)
    assert f"num_nodes={store.num_nodes}, num_edges={store.num_edges})" in repr(store)
    assert store.num_edges_of(EDGE) == hetero[0][EDGE].num_edges < store.num_edges
    assert homo[1].num_nodes == homo[1].num_nodes_of(None) == 300
    for name in (None, "x"):
        with pytest.raises(KeyError, match=f"node type {name!r}"):
            store.num_nodes_of(name)
    with pytest.raises(ValueError, match="mode: found 'w'"):
        gz.open(store.path, mode="w")


def test_functions_of_a_path(data, store):
    found = gz.info(store.path)
    assert found == store.info()
    assert found["node_types"][0]["num_nodes"] == data.num_nodes
    assert gz.verify(str(store.path)) == gz.verify(store) == store.verify()
    with pytest.raises(FileNotFoundError):
        gz.info(store.path / "none")
    for argument, call in (
        ("path", gz.open), ("path", gz.verify), ("store", gz.doctor), ("store", gz.report),
        ("path", lambda data: gz.optimize(data, seeds=[0], num_neighbors=[1])),
        ("store", lambda data: gz.inference.layerwise(torch.nn.Identity(), data)),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=f"^{argument}: found DiskData, expected a path, or a"):
            call(store.data())


def test_data_repr_builds_nothing(homo):
    d = homo[1].data()
    assert repr(d).startswith("DiskData(x=[300, 8]")
    assert "edge_index=[2, 3000]" in repr(d)
    assert d.num_edges == 3000
    assert not d._store._mapping.raw("edge_index").is_built


def test_notebooks_show_tables(hetero, tmp_path):
    store = hetero[1]
    shown = store._repr_html_()
    rows = re.findall("<tr>.*?</tr>", shown)
    assert len(rows) == len(str(store.info()).splitlines())
    cells = [re.findall(">([^<>]+)</td>", row) for row in rows]
    assert ["paper", "200 nodes"] in cells
    assert ["x", "float32[8], 12.0 KiB"] in cells
    assert any(row[0] == "author → writes → paper" for row in cells)
    data = Data(x=torch.zeros(3, 2), edge_index=torch.tensor([[0], [1]]))
    gz.convert(data, tmp_path / "<b>", progress=False)
    with gz.open(tmp_path / "<b>") as odd:
        assert "/&lt;b&gt;" in odd._repr_html_()
        assert "<b>" not in odd._repr_html_()
    assert "closed" in odd._repr_html_()
    loader = gz.loader.NeighborLoader(data, [2], batch_size=2)
    for _ in loader:
        pass
    shown = loader.stats()._repr_html_()
    assert "2 batches in" in shown
    assert re.search(r">consumer</td><td[^>]*>prepare .*, train [\d.e-]+ s \(\d+%\)</td>", shown)
