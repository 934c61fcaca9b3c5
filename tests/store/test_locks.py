"""Two writers of one store: the second is told, and neither's work goes to where it is lost."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from store_files import make_store
from systems import needs_linux

import pyg_graphzero as gz
from pyg_graphzero import _core
from pyg_graphzero.errors import StoreInUseError, StoreReplacedError
from pyg_graphzero.store.csc import EdgeChunk
from pyg_graphzero.store.writer import StoreWriter
from pyg_graphzero.util.locks import LOCK_FILE, StoreLock

RING = np.array([[0, 1, 2], [1, 2, 0]])


@pytest.fixture
def path(tmp_path):
    return make_store(tmp_path / "store")


@needs_linux("/proc tells who holds a lock")
def test_converting_over_a_store_that_is_being_changed(path, tmp_path):
    with gz.open(path, "r+") as store:
        column = store.create_column("h", 2)
        for replace in (
            lambda: gz.convert(RING, path, force=True),
            lambda: make_store(path, force=True),
        ):
            with pytest.raises(StoreInUseError, match="open for writing in this process") as caught:
                replace()
            assert isinstance(caught.value, BlockingIOError)
            assert caught.value.filename == str(path / LOCK_FILE)
        column.write(0, torch.ones(50, 2))
        column.publish()
        store.feature_store[None, "z", None] = torch.arange(50)
    data = gz.open(path).data()
    assert data.num_nodes == 50
    assert data.h.sum() == 100
    assert data.z.tolist() == list(range(50))
    assert gz.open(path).verify().ok
    gz.convert(RING, path, force=True)
    assert gz.open(path).num_nodes == 3
    assert os.listdir(tmp_path) == ["store"]


def test_changing_a_store_that_is_being_replaced(path):
    with StoreWriter(path, is_hetero=False, force=True) as writer:
        writer.add_node_type(None, 5)
        with pytest.raises(StoreInUseError):
            gz.open(path, "r+")
        assert gz.open(path).num_nodes == 50
        writer.finish()
    with gz.open(path, "r+") as store:
        assert store.num_nodes == 5
    with pytest.raises(IndexError), StoreWriter(path, is_hetero=False, force=True) as writer:
        raise IndexError
    gz.open(path, "r+").close()


@needs_linux("/proc tells who holds a lock")
def test_errors_name_the_process_that_holds_the_lock(path):
    script = (
        "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, 2); print(flush=True); input()"
    )
    command = [sys.executable, "-c", script, str(path / LOCK_FILE)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "\n"
    with pytest.raises(StoreInUseError, match=rf"by process {other.pid} \(.*python.*\)"):
        gz.convert(RING, path, force=True)
    other.communicate("\n")
    gz.open(path, "r+").close()


@needs_linux("/proc tells who holds a lock")
def test_a_store_that_appears_while_it_is_written(path, tmp_path):
    """``force`` replaces it, but not while another handle changes it."""
    shutil.rmtree(path)
    with StoreWriter(path, is_hetero=False, force=True) as writer:
        writer.add_node_type(None, 5)
        make_store(path)
        with gz.open(path, "r+") as store:
            with pytest.raises(StoreInUseError):
                writer.finish()
            store.feature_store[None, "z", None] = torch.arange(50)
    assert gz.open(path).data().z.numel() == 50
    assert os.listdir(tmp_path) == ["store"]
    with StoreWriter(tmp_path / "new", is_hetero=False, force=True) as writer:
        writer.add_node_type(None, 5)
        make_store(tmp_path / "new")
        writer.finish()
    assert gz.open(tmp_path / "new").num_nodes == 5
    assert sorted(os.listdir(tmp_path)) == ["new", "store"]


def test_a_directory_that_appears_and_is_no_store_is_kept(tmp_path):
    with StoreWriter(tmp_path / "photos", is_hetero=False, force=True) as writer:
        writer.add_node_type(None, 5)
        (tmp_path / "photos").mkdir()
        (tmp_path / "photos/cat.jpg").write_bytes(b"meow")
        with pytest.raises(FileNotFoundError, match="not a store"):
            writer.finish()
    assert os.listdir(tmp_path / "photos") == ["cat.jpg"]


def replace_behind(path: Path) -> Path:
    """Puts another store at ``path`` without taking a lock."""
    path.rename(path.with_name("moved"))
    return make_store(path, value=7.0)


@pytest.mark.parametrize("change", ["put", "remove", "create", "publish"])
def test_a_store_that_was_replaced_behind_its_editor(path, change):
    store = gz.open(path, "r+")
    column = store.create_column("h", 1)
    column.write(0, torch.ones(50, 1))
    before = {p: p.read_bytes() for p in replace_behind(path).rglob("*") if p.is_file()}
    changes = {
        "put": lambda: store.feature_store.put_tensor(
            torch.zeros(50), group_name=None, attr_name="z", index=None
        ),
        "remove": lambda: store.feature_store.remove_tensor(None, "y", None),
        "create": lambda: store.create_column("g", 1),
        "publish": lambda: column.publish(),
    }
    with pytest.raises(StoreReplacedError, match="moved, deleted or replaced") as caught:
        changes[change]()
    assert (caught.value.errno, caught.value.filename) == (errno.ESTALE, str(path))
    assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before
    assert "ended" not in repr(column)
    gz.open(path, "r+").close()  # whoever holds the other one
    store.close()


def test_a_store_that_is_replaced_between_open_and_lock(path, monkeypatch):
    """The lock is then on a file of no store, and is asked for again."""
    acquire, calls = _core.LockFile.acquire, []

    class Racing:
        @staticmethod
        def acquire(name):
            lock = acquire(name)
            calls.append(name)
            if len(calls) == 1:
                replace_behind(path)
            return lock

    monkeypatch.setattr(_core, "LockFile", Racing)
    with StoreLock(path) as lock:
        assert calls.count(str(path / LOCK_FILE)) == 2
        assert lock.is_in_place()
    assert not lock.is_in_place()


def test_a_handle_that_failed_keeps_no_lock(path):
    """Whoever keeps the exception keeps the frames, and what is in them."""
    with pytest.raises(ValueError, match="expected a size such as 4GB") as kept:
        gz.open(path, "r+", memory="much")
    store = gz.open(path, "r+")
    with pytest.raises(ValueError, match="expected 50 rows") as also_kept:
        store.feature_store[None, "z", None] = torch.zeros(3)
    store.close()
    gz.open(path, "r+").close()
    del kept, also_kept


def test_a_dropped_handle_keeps_no_lock(path):
    """Not even until the garbage collector comes by, which is not asked to meanwhile."""
    gc.disable()
    try:
        gz.open(path, "r+").feature_store.remove_tensor(None, "y", None)
        gz.convert(RING, path, force=True)
        gz.open(path, "r+").create_column("h", 1).discard()
        gz.open(path, "r+").close()
    finally:
        gc.enable()


def test_a_link_to_a_store_stays_one(path, tmp_path):
    (tmp_path / "links").mkdir()
    link = tmp_path / "links/latest"
    link.symlink_to(path)
    gz.convert(RING, link, force=True)
    assert link.is_symlink()
    assert gz.open(path).num_nodes == 3
    with gz.open(link, "r+") as store:
        assert store.path == path
        link.unlink()
        link.symlink_to(make_store(tmp_path / "other"))  # it leads elsewhere from now on
        store.feature_store[None, "z", None] = torch.arange(3)
    assert gz.open(path).data().z.tolist() == [0, 1, 2]
    assert "z" not in gz.open(link).data()
    assert sorted(os.listdir(tmp_path)) == ["links", "other", "store"]
    assert os.listdir(tmp_path / "links") == ["latest"]


def test_a_link_to_what_is_not_there_yet(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "store")
    with StoreWriter(tmp_path / "link", is_hetero=False) as writer:
        writer.add_node_type(None, 3)
        writer.add_edge_type(None, [EdgeChunk(torch.arange(3), torch.arange(3))])
        writer.finish()
    assert (tmp_path / "link").is_symlink()
    assert gz.open(tmp_path / "store").num_edges == 3
