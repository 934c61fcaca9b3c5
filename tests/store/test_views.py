"""``store.data().x`` is the file: no copy, no way to change it, and it outlives everything else."""

from __future__ import annotations

import gc
import os
import pickle
import re
import shutil
from pathlib import Path

import pytest
import torch
from store_files import make_store
from torch import Tensor
from torch_geometric.data import Data

import pyg_graphzero as gz
from graphs import write_store
from pyg_graphzero import _core
from pyg_graphzero.store.columns import DTYPES, gather, view_column, write_column
from pyg_graphzero.store.writer import StoreWriter

MB = 1 << 20


def anonymous_memory() -> int:
    """Bytes of RAM this process holds that no file backs."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) * 1024


def mapped_file(tensor: Tensor) -> str:
    """The file whose mapping a tensor's memory lies in."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        if begin <= tensor.data_ptr() < end:
            return line.split(maxsplit=5)[5]
    raise AssertionError("the tensor's memory is not mapped")


LARGE_ROWS = 400_000  # of 512 bytes: 200 MB


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("memory") / "store"
    with StoreWriter(path, is_hetero=False) as writer:
        writer.add_node_type(None, LARGE_ROWS)
        writer.add_node_attr(None, "x", torch.ones(1).expand(LARGE_ROWS, 128))
        writer.finish()
    yield path
    shutil.rmtree(path)  # pytest would keep three of them


@pytest.fixture
def path(tmp_path):
    return make_store(tmp_path / "store", value=4.0)


class TestMemory:
    def test_anonymous_memory_does_not_grow(self, large):
        gz.open(large).data()  # whatever is allocated once
        before = anonymous_memory()
        store = gz.open(large)
        x = store.data().x
        assert mapped_file(x) == str(large / "node/x.gd")
        assert anonymous_memory() - before < 4 * MB
        views = x[1000:-1000], x[:, 5], x[777], x[torch.arange(0, LARGE_ROWS, 1000)]
        assert [len(each) for each in views] == [LARGE_ROWS - 2000, LARGE_ROWS, 128, 400]
        assert float(x.sum()) == LARGE_ROWS * 128  # reads all of it
        assert anonymous_memory() - before < 4 * MB


class TestLifetime:
    def test_outlives_the_store(self, path):
        store = gz.open(path)
        data = store.data()
        x, y, part, bits = data.x, data.y, data.x[10:20, 2:], data.x.view(torch.int32)
        indptr = store.graph_store.csc()[1]
        store.close()
        del store, data
        gc.collect()
        assert torch.equal(x, torch.full((50, 7), 4.0))
        assert y.tolist() == list(range(50))
        del x
        gc.collect()
        assert torch.equal(part, torch.full((10, 5), 4.0))
        assert int(bits[0, 0]) == 0x40800000
        assert int(indptr[-1]) == 200

    def test_outlives_the_file(self, path):
        x = gz.open(path).data().x
        for file in sorted(path.rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
        path.rmdir()
        gc.collect()
        assert torch.equal(x, torch.full((50, 7), 4.0))

    def test_the_mapping_goes_when_the_last_view_does(self, path):
        def maps():
            gc.collect()
            return Path("/proc/self/maps").read_text().count(str(path))

        assert maps() == 0
        store = gz.open(path)
        part = store.data().x[5]
        store.close()
        del store
        assert maps() == 1
        assert float(part[0]) == 4
        del part
        assert maps() == 0

    def test_a_closed_store_says_so(self, path):
        store = gz.open(path)
        features, graph = store.feature_store, store.graph_store
        store.close()
        store.close()
        assert store.closed
        assert repr(store) == f"Store({str(path)!r}, closed)"
        words = f"{path}: the store was closed; open it again"
        for use in (
            store.data,
            store.info,
            store.verify,
            lambda: store.num_nodes,
            lambda: store.num_edges,
            store.ids,
            lambda: store.lookup(["n1"]),
            lambda: store.node_types,
            lambda: store.edge_types,
            lambda: store.is_hetero,
            features.get_all_tensor_attrs,
            lambda: features[None, "x", None],
            graph.get_all_edge_attrs,
            graph.csc,
            lambda: gz.loader.NeighborLoader(store, [2]),
        ):
            with pytest.raises(gz.ClosedStoreError) as caught:
                use()
            assert str(caught.value) == words
        assert isinstance(caught.value, ValueError)


class TestWrites:
    def test_the_file_never_changes(self, path):
        before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
        data = gz.open(path).data()
        data.x[3] = 7
        data.x.mul_(2)
        data.y.zero_()
        data.train_idx += 1
        data.x.view(torch.int32)[5, 5] = 1
        data.x.numpy()[6] = -1
        assert data.x[3].tolist() == [14.0] * 7
        del data
        gc.collect()
        assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before
        assert gz.open(path).data().x[3].tolist() == [4.0] * 7

    def test_topology_views_cannot_change_sampling(self, path):
        store = gz.open(path)
        indices, indptr = store.graph_store.csc()[:2]
        sampler = gz.sampler.NeighborSampler(store.data(), [-1])
        indices.zero_()
        indptr.fill_(-1)
        loader = gz.loader.NeighborLoader(store, [-1], batch_size=50, neighbor_sampler=sampler)
        assert next(iter(loader)).num_edges == 200


class TestPickle:
    @pytest.fixture
    def path(self, tmp_path):
        ends = torch.arange(20_000)
        x = torch.arange(320_000.0).view(20_000, 16)
        data = Data(x=x, edge_index=torch.stack([ends, ends % 100]))
        return write_store(data, tmp_path / "store")

    def test_by_path(self, path):
        store = gz.open(path)
        data = store.data()
        for value in (store, data, store.feature_store, store.graph_store):
            assert len(pickle.dumps(value)) < 2000
        again = pickle.loads(pickle.dumps(data))
        assert mapped_file(again.x) == str(path / "node/x.gd")
        assert torch.equal(again.x, data.x)
        assert torch.equal(again.edge_index, data.edge_index)
        assert pickle.loads(pickle.dumps(store)).num_nodes == 20_000
        features = pickle.loads(pickle.dumps(store.feature_store))
        assert torch.equal(features[None, "x", 3], data.x[3])
        assert int(pickle.loads(pickle.dumps(store.graph_store)).csc()[1][-1]) == 20_000

    def test_a_store_that_is_gone(self, path):
        text = pickle.dumps(gz.open(path).data())
        os.rename(path, path.with_name("moved"))
        with pytest.raises(FileNotFoundError) as caught:
            pickle.loads(text)
        assert caught.value.filename == str(path)


SHAPES = [(5,), (0, 3), (4, 0), (2, 3, 4), (3, 63)]


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())
@pytest.mark.parametrize("shape", [(), *SHAPES], ids=str)
def test_round_trip(tmp_path, dtype, shape):
    """Every dtype and shape comes back bit by bit: NaN payloads, denormals, negative zeros."""
    generator = torch.Generator().manual_seed(len(shape))
    raw = torch.randint(0, 256, (*shape, dtype.itemsize), generator=generator, dtype=torch.uint8)
    if dtype == torch.bool:
        raw = raw % 2
    value = raw.view(dtype).view(shape)
    write_column(tmp_path / "c.gd", value)
    view = view_column(_core.Column.open(str(tmp_path / "c.gd")))
    assert (view.dtype, view.shape) == (dtype, value.shape)

    def bits(tensor):
        flat = tensor.contiguous().view(-1)
        return flat.view(torch.uint8) if tensor.numel() else torch.empty(0, dtype=torch.uint8)

    assert torch.equal(bits(view), bits(value))
    if shape and shape[0]:
        rows = torch.arange(shape[0] - 1, -1, -1)
        taken = gather(view, rows)
        assert taken.is_contiguous()
        assert torch.equal(bits(taken), raw.flip(0).view(-1))
