"""Feature files that a store refers to: read in place, checked at every open, never touched."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from store_files import edit_schema, not_opened

import pyg_graphzero as gz
from pyg_graphzero import FormatError, InputError
from pyg_graphzero.store.verify import verify
from pyg_graphzero_cli import main

N, WIDTH = 300, 37
EDGES = np.random.default_rng(0).integers(0, N, (2, 2000))


@pytest.fixture
def x():
    return np.random.default_rng(1).normal(size=(N, WIDTH)).astype(np.float32)


def save(folder: Path, x: np.ndarray, kind: str) -> str:
    """``x`` in a file of some kind, as the source that names it."""
    if kind == "npy":
        np.save(folder / "x.npy", x)
        return str(folder / "x.npy")
    np.savez(folder / "x.npz", other=np.arange(3), odd=np.arange(3, dtype=np.int8), x=x)
    return f"{folder / 'x.npz'}:x"


@pytest.fixture(params=["npy", "npz"])
def adopted(request, tmp_path, x):
    """A store and the file it has adopted ``x`` from."""
    source = save(tmp_path, x, request.param)
    gz.convert(EDGES, tmp_path / "store", node_attrs={"x": source}, adopt=True)
    return tmp_path / "store", Path(source.split(":")[0])


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class TestReading:
    def test_nothing_is_copied(self, adopted, x):
        store, file = adopted
        assert not list(store.glob("node*/x*"))
        data = gz.open(store).data()
        assert data.x.dtype == torch.float32
        assert np.array_equal(data.x.numpy(), x)
        before = digest(file)
        data.x[3] = 7.0  # this process's copy
        assert digest(file) == before
        assert np.array_equal(gz.open(store).data().x.numpy(), x)

    def test_loaders_and_stores(self, adopted, x):
        store = gz.open(adopted[0])
        table = torch.from_numpy(x)
        for workers in (0, 2):
            for batch in gz.loader.NeighborLoader(
                store.data(), [3, 3], batch_size=50, num_workers=workers
            ):
                assert torch.equal(batch.x, table[batch.n_id])
        index = torch.tensor([5, 5, 0])
        for each in (store, pickle.loads(pickle.dumps(store))):
            found = each.feature_store.get_tensor(group_name=None, attr_name="x", index=index)
            assert torch.equal(found, table[index])

    def test_info_and_verify_say_so(self, adopted):
        store, file = adopted
        column = gz.open(store).info()["node_types"][0]["attrs"]["x"]
        assert column == {
            "shape": [N, WIDTH],
            "dtype": "float32",
            "bytes": 0,
            "adopted": str(file.resolve()),
            "adopted_bytes": N * WIDTH * 4,
        }
        report = gz.open(store).verify()
        assert report.ok
        assert report.adopted == [str(file.resolve())]
        assert str(report).endswith(f"{file.resolve()}: adopted, size and fingerprint checked")
        shown = CliRunner().invoke(main, ["info", str(store)]).output
        assert f"x: float32[37], 43.4 KiB adopted from {file.resolve()}" in shown

    @pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float16", "float64", "uint16"])
    @pytest.mark.parametrize("shape", [(N,), (N, 2, 3), (N, 0)])
    def test_any_dtype_and_shape(self, tmp_path, dtype, shape):
        values = np.random.default_rng(2).integers(0, 2, shape).astype(dtype)
        np.save(tmp_path / "z.npy", values)
        source = {"z": tmp_path / "z.npy"}
        gz.convert(EDGES, tmp_path / "s", node_attrs=source, adopt=True, num_nodes=N)
        assert np.array_equal(gz.open(tmp_path / "s").data().z.numpy(), values)


class TestChanges:
    @pytest.mark.parametrize("change", [None, -1, 1, 4096])
    def test_gone_or_of_another_size(self, adopted, change):
        store, file = adopted
        size = file.stat().st_size
        if change is None:
            file.unlink()
            words = f"file: found nothing, expected the {size} bytes that {store} has adopted"
        else:
            os.truncate(file, size + change)
            words = f"file size: found {size + change} bytes, expected {size} bytes, as when it"
        with pytest.raises(FormatError) as caught:
            gz.open(store)
        assert str(caught.value).startswith(f"{file.resolve()}: {words}")
        assert verify(store).bad == [str(caught.value)]

    @pytest.mark.parametrize("row", [0, N - 1, None])
    def test_other_rows_or_another_dtype(self, adopted, x, row):
        store, file = adopted
        x = x.copy() if row is not None else x.view(np.int32)
        if row is not None:
            x[row] += 1
        save(file.parent, x, file.suffix[1:])
        not_opened(store, "header, first and last rows: found fingerprint .* convert again")

    def test_cut_short_while_open(self, adopted):
        store, file = adopted
        loader = gz.loader.NeighborLoader(gz.open(store).data(), [3], batch_size=100)
        os.truncate(file, 4096)
        with pytest.raises(OSError, match="was truncated"):
            list(loader)


class TestPlaces:
    @pytest.mark.parametrize("name", ["a/raw/x.npy", "x.npy"])
    def test_moved(self, tmp_path, x, name):
        """A store beside its file goes with it; elsewhere, it knows the whole path."""
        (tmp_path / "a/raw").mkdir(parents=True)
        np.save(tmp_path / name, x)
        gz.convert(EDGES, tmp_path / "a/store", node_attrs={"x": tmp_path / name}, adopt=True)
        (tmp_path / "a").rename(tmp_path / "b")
        assert np.array_equal(gz.open(tmp_path / "b/store").data().x.numpy(), x)
        (tmp_path / "link").symlink_to(tmp_path / "b/store")
        assert np.array_equal(gz.open(tmp_path / "link").data().x.numpy(), x)
        body = json.loads((tmp_path / "b/store/store.json").read_text())
        path = "../raw/x.npy" if "raw" in name else str((tmp_path / "x.npy").resolve())
        assert body["adopted"]["node/x.adopted"]["path"] == path


class TestOwnership:
    def test_replacing_and_removing_leave_the_file(self, adopted, x):
        store, file = adopted
        before = digest(file)
        copied = shutil.copytree(store, store.parent / "copy")
        features = gz.open(copied, "r+").feature_store
        expected = x + 1
        features.put_tensor(expected, group_name=None, attr_name="x", index=None)
        assert np.array_equal(gz.open(copied).data().x.numpy(), expected)
        body = json.loads((Path(copied) / "store.json").read_text())
        assert (body["flags"], body["adopted"]) == ([], {})
        gz.open(store, "r+").feature_store.remove_tensor(group_name=None, attr_name="x", index=None)
        assert "x" not in gz.open(store).data()
        gz.convert(EDGES, store, force=True)
        assert digest(file) == before

    def test_a_store_does_not_adopt_from_itself(self, adopted):
        store, _ = adopted
        np.save(store / "mine.npy", np.zeros((N, 2)))
        with pytest.raises(InputError, match="a file in the output"):
            gz.convert(EDGES, store, node_attrs={"x": store / "mine.npy"}, adopt=True, force=True)


class TestWhatIsAdopted:
    @pytest.mark.parametrize("kind", ["fortran.npy", "swapped.npy", "deflated.npz:x"])
    def test_other_layouts_are_copied(self, tmp_path, x, kind):
        np.save(tmp_path / "fortran.npy", np.asfortranarray(x))
        np.save(tmp_path / "swapped.npy", x.astype(">f4"))
        np.savez_compressed(tmp_path / "deflated.npz", x=x)
        source = {"x": f"{tmp_path}/{kind}"}
        summary = gz.convert(EDGES, tmp_path / "s", node_attrs=source, adopt=True)
        assert "adopted" not in str(summary)
        assert np.array_equal(gz.open(tmp_path / "s").data().x.numpy(), x)

    def test_values_that_lie_in_no_file(self, tmp_path, x):
        np.save(tmp_path / "x.npy", x)
        attrs = {"x": tmp_path / "x.npy", "y": np.arange(N), "train_idx": np.arange(9)}
        summary = gz.convert(EDGES, tmp_path / "s", node_attrs=attrs, adopt=True)
        columns = summary.info["node_types"][0]["attrs"]
        assert [name for name, column in columns.items() if "adopted" in column] == ["x"]
        assert f"B adopted from {tmp_path / 'x.npy'}" in str(summary)

    def test_options(self, tmp_path, x):
        np.save(tmp_path / "x.npy", x)
        attrs = {"x": tmp_path / "x.npy", "z": tmp_path / "x.npy"}
        # Attributes that are encoded are written.
        summary = gz.convert(EDGES, tmp_path / "s", node_attrs=attrs, adopt=True, features="int8")
        columns = summary.info["node_types"][0]["attrs"]
        assert "encoding" in columns["x"]
        assert "adopted" in columns["z"]


class TestDamage:
    """``store.json`` that contradicts itself behind a valid checksum."""

    @pytest.fixture
    def store(self, tmp_path, x):
        np.save(tmp_path / "x.npy", x)
        gz.convert(EDGES, tmp_path / "s", node_attrs={"x": tmp_path / "x.npy"}, adopt=True)
        return tmp_path / "s"

    @pytest.mark.parametrize(
        ("member", "value", "words"),
        [
            ("path", 5, r"adopted\['node/x.adopted'\].path: found 5, expected a file path"),
            ("path", "", r"adopted\['node/x.adopted'\].path: found"),
            ("path", "../a\0b.npy", r"adopted\['node/x.adopted'\].path: found"),
            ("bytes", -1, r"bytes: found -1, expected a count"),
            ("bytes", 10, "x.npy: file size: found 44528 bytes, expected 10 bytes"),
            ("dtype", "float33", r"dtype: found 'float33', expected one of bool, "),
            ("dtype", "float64", r"x.npy: row_stride: found 148, expected at least row_bytes"),
            ("shape", [N, "a"], "shape: found .*, expected at most 8 counts"),
            ("shape", [N, 2**62], r"x.npy: shape: found \d+ x \d+ bytes, expected a size below"),
            ("shape", [2**62, 1], r"x.npy: shape: found .* expected a size below"),
            ("shape", [N + 1, WIDTH], "x.npy: file size: found 44528 bytes, expected 44676 or"),
            ("shape", [N - 1, WIDTH], "x.npy: header, first and last rows: found fingerprint"),
            ("shape", [1] * 9, "shape: found .*, expected at most 8 counts"),
            ("offset", 2**62, "x.npy: file size: found 44528 bytes, expected"),
            ("offset", 2**63 - 1, r"x.npy: data_bytes: found .* expected a size below 2\^63"),
            ("row_stride", 150, "x.npy: row_stride: found 150, expected at least"),
            ("row_stride", 2**62, "x.npy: .*: found .* expected a size below"),
            ("fingerprint", "0", "expected 0, as when"),
        ],
    )  # fmt: skip
    def test_records(self, store, member, value, words):
        def change(body):
            body["adopted"]["node/x.adopted"][member] = value

        edit_schema(store, change)
        not_opened(store, words)

    def test_rows_that_are_not_there(self, store):
        edit_schema(store, lambda body: body.update(adopted={}, flags=[]))
        not_opened(store, r"files: found no entry for 'node/x.adopted'")

    def test_a_directory(self, store):
        def change(body):
            body["adopted"]["node/x.adopted"]["path"] = ".."

        edit_schema(store, change)
        with pytest.raises((FormatError, IsADirectoryError)):
            gz.open(store)
