"""Stores of other origin: whatever names they hold, nothing outside them is read or touched.

And nothing waits: a FIFO where a file should be is refused like any other damage.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from store_files import edit_schema, not_opened

import pyg_graphzero as gz
from pyg_graphzero import FormatError
from pyg_graphzero.store.leftovers import remove_leftovers
from pyg_graphzero_cli import main

PRECIOUS = b"precious" * 1000


@pytest.fixture
def store(pristine, tmp_path):
    """A store beside which there is a file, and a folder with one."""
    (tmp_path / "outside").mkdir()
    for name in ("precious.gd", "outside/precious.gd", "outside/x.json", "outside/lock"):
        (tmp_path / name).write_bytes(PRECIOUS)
    return Path(shutil.copytree(pristine, tmp_path / "store"))


@pytest.fixture(autouse=True)
def _outside_stays(tmp_path):
    yield
    assert sorted(os.listdir(tmp_path / "outside")) == ["lock", "precious.gd", "x.json"]
    for path in tmp_path.rglob("*"):
        if "store" not in path.parts and path.is_file():
            assert path.read_bytes() == PRECIOUS


def leave_draft(store: Path) -> Path:
    """The draft of a column whose writer was killed."""
    opened = gz.open(store, "r+")
    opened.create_column("h", 2)
    (path,) = (store / "unpublished").iterdir()
    return path  # the handle was not closed, and is gone


def everything(store: Path) -> list[Callable[[], object]]:
    """Whatever follows the names in a store."""

    def edit(change: Callable[[gz.Store], object]) -> None:
        with gz.open(store, "r+") as opened:
            change(opened)

    def replace(opened: gz.Store) -> None:
        opened.feature_store[None, "z", None] = torch.zeros(50, 2)
        opened.feature_store.remove_tensor(None, "z", None)

    return [
        lambda: gz.open(store).info(),
        lambda: edit(replace),
        lambda: edit(lambda s: s.create_column("h", 2)),
        lambda: remove_leftovers(store),
    ]


def refused(store: Path) -> list[FormatError]:
    """The errors of what follows the names in a store; there must be one."""
    errors = []
    for call in everything(store):
        try:
            call()
        except FormatError as error:
            errors.append(error)
    assert errors
    return errors


@pytest.mark.parametrize("name", ["sub/precious.gd", "node", "unpublished", "lock", "node/x.gd"])
def test_symbolic_links(store, tmp_path, name):
    """Each of them leads to what there is outside, and is followed nowhere."""
    if name == "sub/precious.gd":
        raw = PRECIOUS[4088:4096][::-1].hex()

        def change(body):
            body["files"][name] = {"bytes": len(PRECIOUS), "header_hash": raw, "encoding": None}

        edit_schema(store, change)
        (store / "sub").symlink_to(tmp_path / "outside")
        link = store / "sub"
    else:
        link = store / name
        if link.is_dir():
            link.rename(store / "moved")
        else:
            link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / ("outside/lock" if name == "lock" else "outside"))
    for error in refused(store):
        assert error.path == str(link)
        assert "a symbolic link" in str(error)
    assert os.path.islink(link)


def test_links_where_documents_are_written(store, tmp_path):
    """They are replaced, not written through."""
    (store / "store.json.new").symlink_to(tmp_path / "precious.gd")
    with gz.open(store, "r+") as opened:
        opened.create_column("h", 3).discard()
        opened.feature_store.remove_tensor(None, "y", None)
    assert not os.path.lexists(store / "store.json.new")
    assert "y" not in gz.open(store).data()


def test_a_draft_that_is_a_link(store, tmp_path):
    """The next writer would remove it."""
    path = leave_draft(store)
    path.unlink()
    path.symlink_to(tmp_path / "precious.gd")
    for error in refused(store):
        assert error.path == str(path)
    assert gz.open(store).info()["unpublished"] == []


@pytest.mark.parametrize(
    "file", ["store.json", "lock", "node/x.gd", "edge/topology.gl", "draft"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["fifo", "device", "directory"])
def test_files_that_are_not_regular_are_refused(store, file, kind):
    """Opening a FIFO would wait for ever for a writer."""
    draft = leave_draft(store)
    file = str(draft.relative_to(store)) if file == "draft" else file
    (store / file).unlink()
    if kind == "fifo":
        os.mkfifo(store / file)
    elif kind == "device":
        if os.geteuid() != 0:
            pytest.skip("devices need root")
        os.mknod(store / file, 0o20666, os.makedev(1, 3))
    else:
        (store / file).mkdir()
    for error in refused(store):
        assert error.path == str(store / file)
        assert "expected a regular file" in str(error)


def test_an_adopted_fifo(store, tmp_path):
    """Adopted files lie outside by design: read, never written, and files all the same."""
    os.mkfifo(tmp_path / "fifo.npy")

    def adopt(body):
        body["node_types"][0]["attrs"]["a"] = "node/a.adopted"
        body["adopted"] = {
            "node/a.adopted": {
                "path": "../fifo.npy", "bytes": 400, "fingerprint": "0" * 16,
                "dtype": "int64", "shape": [50], "offset": 0, "row_stride": 8,
            }
        }  # fmt: skip
        body["flags"] = ["adopted_rows"]

    edit_schema(store, adopt)
    not_opened(store, r"fifo.npy: file: found a FIFO, expected a regular file")
    (tmp_path / "fifo.npy").unlink()


@pytest.mark.parametrize("name", ["lock", "store.json", "node/x.txt", "node/./x.gd"])
def test_files_that_are_no_columns(store, name):
    """The next change deletes columns that no type uses, never files that are no columns."""

    def change(body):
        body["files"][name] = {"bytes": 0, "header_hash": "", "encoding": None}

    edit_schema(store, change)
    with pytest.raises(FormatError, match="expected a file path inside the store"):
        gz.open(store, "r+")
    assert (store / "lock").exists()


@pytest.mark.parametrize("text", ["\ud800", "a\udcffb"])
def test_half_of_a_surrogate_pair(store, text, tmp_path):
    """No file system, no terminal and no UTF-8 has it."""
    with gz.open(store, "r+") as opened:
        before = (store / "store.json").read_bytes()
        with pytest.raises(gz.errors.UnsupportedError, match="half of a surrogate pair"):
            opened.feature_store[None, text, None] = torch.zeros(50)
        with pytest.raises(gz.errors.UnsupportedError, match="half of a surrogate pair"):
            opened.create_column(text, 2)
        assert (store / "store.json").read_bytes() == before
        opened.feature_store[None, "ü𝄞", None] = torch.zeros(50)
    for change in (
        lambda body: body["node_types"][0]["attrs"].update({text: "node/x.gd"}),
        lambda body: body["node_types"][0]["attrs"].update(x=f"node/{text}.gd"),
        lambda body: body.update(created_by=text),
        lambda body: body["files"].update({f"node/{text}.gd": {"bytes": 1, "header_hash": ""}}),
    ):
        other = Path(shutil.copytree(store, tmp_path / "store-copy"))
        edit_schema(other, change)
        done = CliRunner().invoke(main, ["verify", str(other)])
        assert done.exit_code == 1
        assert "half of a surrogate pair" in done.output
        shutil.rmtree(other)
