"""Publication: a store is there whole or not at all, whatever happens to its writer."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from full_disk import largest_file
from store_files import make_store

import pyg_graphzero as gz
from pyg_graphzero import _core
from pyg_graphzero.store.csc import EdgeChunk
from pyg_graphzero.store.writer import StoreWriter
from pyg_graphzero.util.locks import LOCK_FILE


def write_until(path: Path, limit_at: str, limit: int) -> None:
    """Writes 2 MB of column, topology and schema; from ``limit_at`` on, files are limited."""
    edges = torch.arange(100_000)
    chunk = EdgeChunk(edges % 1000, edges % 7)
    with StoreWriter(path, is_hetero=False) as writer:
        writer.add_node_type(None, 1000)
        with largest_file(limit if limit_at == "column" else 1 << 30):
            writer.add_node_attr(None, "x", torch.ones(1000, 500))
        with largest_file(limit if limit_at == "topology" else 1 << 30):
            writer.add_edge_type(None, [chunk])
        with largest_file(limit if limit_at == "schema" else 1 << 30):
            writer.finish()


@pytest.mark.parametrize(
    ("limit_at", "limit", "file"),
    [
        ("column", 0, "node/x.gd"),
        ("column", 4096, "node/x.gd"),
        ("column", 1_500_000, "node/x.gd"),
        ("column", 2_002_944, "node/x.gd"),  # only the checksum table does not fit
        ("topology", 5000, "edge/topology.gl"),
        ("topology", 300_000, "edge/topology.gl"),
        ("schema", 0, "store.json"),
        ("schema", 100, "store.json"),
    ],
)
def test_disk_full(tmp_path, limit_at, limit, file):
    with pytest.raises(OSError) as caught:
        write_until(tmp_path / "store", limit_at, limit)
    assert caught.value.errno == errno.EFBIG
    assert str(caught.value.filename).endswith(file)
    assert "cannot write" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_exception_inside(tmp_path):
    def interrupted():
        with StoreWriter(tmp_path / "store", is_hetero=False) as writer:
            writer.add_node_type(None, 5)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.listdir(tmp_path) == []


def test_a_target_that_appears_meanwhile(tmp_path):
    with StoreWriter(tmp_path / "store", is_hetero=False) as writer:
        writer.add_node_type(None, 5)
        make_store(tmp_path / "store")
        with pytest.raises(FileExistsError) as caught:
            writer.finish()
        assert caught.value.filename == str(tmp_path / "store")
    assert os.listdir(tmp_path) == ["store"]
    assert gz.open(tmp_path / "store").num_nodes == 50


def test_overwriting_does_not_harm_readers(tmp_path):
    path = make_store(tmp_path / "store", value=1.0)
    store = gz.open(path)
    data = store.data()
    loader = gz.loader.NeighborLoader(data, [3], batch_size=50)
    unmapped = gz.open(path)
    make_store(path, force=True, value=2.0)
    assert torch.equal(data.x, torch.ones(50, 7))
    assert torch.equal(next(iter(loader)).x, torch.ones(next(iter(loader)).num_nodes, 7))
    assert torch.equal(unmapped.data().x, torch.ones(50, 7))
    assert data.edge_index.shape == (2, 200)
    assert torch.equal(gz.open(path).data().x, torch.full((50, 7), 2.0))
    assert os.listdir(tmp_path) == ["store"]


def test_writers_of_one_name_do_not_delete_each_other(tmp_path):
    with StoreWriter(tmp_path / "store", is_hetero=False) as slow:
        slow.add_node_type(None, 3)
        slow.add_node_attr(None, "x", torch.ones(3))
        with StoreWriter(tmp_path / "store", is_hetero=False) as fast:
            fast.add_node_type(None, 4)
        slow.finish()
    assert gz.open(tmp_path / "store").data().x.tolist() == [1, 1, 1]
    assert os.listdir(tmp_path) == ["store"]


def test_the_lock_is_held_until_the_store_is_in_place(tmp_path, monkeypatch):
    """Another writer that starts in the last moment must not take the scratch for abandoned."""
    publish = _core.publish_directory

    def racing(scratch, target, replace):
        with StoreWriter(target, is_hetero=False):
            assert Path(scratch, "store.json").exists()
        publish(scratch, target, replace)

    monkeypatch.setattr(_core, "publish_directory", racing)
    make_store(tmp_path / "store")
    assert gz.open(tmp_path / "store").verify().ok


def test_only_abandoned_scratch_of_the_same_store_is_removed(tmp_path):
    """A name with wildcards is no pattern; a store that a publication set aside is no scratch."""
    kept, left = [".a.partial-0a", "[a].replaced", ".[a]2.partial-0c"], ".[a].partial-0"
    for name in (*kept, f"{left}b", f"{left}d"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ("x.gd" if name == f"{left}d" else LOCK_FILE)).write_text("")
    make_store(tmp_path / "[a]")
    assert sorted(os.listdir(tmp_path)) == sorted([*kept, "[a]"])


class TestArguments:
    @pytest.fixture
    def writer(self, tmp_path):
        with StoreWriter(tmp_path / "store", is_hetero=False) as writer:
            writer.add_node_type(None, 3)
            yield writer

    def test_arrays_of_any_layout(self, writer, tmp_path):
        frozen = np.arange(3.0)
        frozen.flags.writeable = False
        given = [np.array([1, 2, 3], ">i4"), frozen]
        given += [torch.arange(6).view(2, 3).t(), torch.tensor([1 + 2j, 0, 0]).conj()]
        given.append(torch.ones(3, requires_grad=True))
        for number, values in enumerate(given):
            writer.add_node_attr(None, f"a{number}", values)
        writer.finish()
        data = gz.open(tmp_path / "store").data()
        assert [data[f"a{k}"].tolist() for k in range(len(given))] == [
            each.tolist() for each in given
        ]

    def test_string_ids(self, writer, tmp_path):
        part = pa.array(["a", "bc", "d", "", "ef"], pa.large_string()).slice(1, 3)
        writer.add_node_ids(None, part)
        writer.finish()
        assert list(gz.open(tmp_path / "store").ids()) == ["bc", "d", ""]

    def test_string_ids_of_no_node(self, tmp_path):
        with StoreWriter(tmp_path / "store", is_hetero=False) as writer:
            writer.add_node_type(None, 0)
            writer.add_node_ids(None, [])
            writer.finish()
        assert list(gz.open(tmp_path / "store").ids()) == []

    def test_names_that_are_no_file_names(self, writer, tmp_path):
        names = ["a/b", "a_b", "../up", "", "ü" * 300, "a.b", ".", "con:"]
        for i, name in enumerate(names):
            writer.add_node_attr(None, name, torch.full((3,), i))
        writer.finish()
        store = gz.open(tmp_path / "store")
        fs = store.feature_store
        assert [int(fs[None, name, None][0]) for name in names] == list(range(len(names)))
        assert sorted(os.listdir(tmp_path)) == ["store"]
