"""float32 attributes in fewer bytes: every code, what is lost, and where decoded rows show."""

from __future__ import annotations

import copy
import json
import os
import pickle
import shutil
import struct
from pathlib import Path

import chunks
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from store_files import not_opened, overwrite, reseal, set_field
from torch import Tensor
from torch_geometric.data import Data, HeteroData

import pyg_graphzero as gz
from pyg_graphzero import InputError, _core
from pyg_graphzero.store.columns import (
    EncodedRows,
    column_rows,
    decoded,
    gather,
    view_column,
    write_column,
)
from pyg_graphzero.store.encoding import ENCODINGS, ColumnEncoder, EncodingLoss
from pyg_graphzero.store.rows import ArrayRows
from pyg_graphzero.store.verify import verify
from pyg_graphzero_cli import main

HALVES = ["float16", "bfloat16"]


def encode(path: Path, x: Tensor, encoding: str) -> tuple[EncodedRows, EncodingLoss]:
    """``x`` written with an encoding and opened again."""
    path.unlink(missing_ok=True)
    encoder = ColumnEncoder(ArrayRows(x), encoding, "x")
    write_column(path, encoder)
    column = _core.Column.open(str(path))
    rows = column_rows(column, view_column(column))
    assert isinstance(rows, EncodedRows)
    return rows, encoder.loss()


def reference(rows: EncodedRows) -> Tensor:
    """Decoded rows, computed by torch."""
    if rows.stored.dtype != torch.int8:
        return rows.stored.float()
    assert rows.scale is not None
    assert rows.zero_point is not None
    shape = rows.shape[1:]
    return rows.stored.float() * rows.scale.view(shape) + rows.zero_point.view(shape)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """NaNs in the same places, and all else equal bit by bit."""
    bits = (each[~b.isnan()].view(torch.int32) for each in (a, b))
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(*bits)


@chunks.both
class TestDecoding:
    @pytest.mark.parametrize("encoding", HALVES)
    @pytest.mark.parametrize("width", [1, 7, 8, 16, 64])
    def test_every_half(self, encoding, width):
        """All 65,536 patterns: numbers, denormals, infinities, NaNs; odd widths, too."""
        patterns = torch.arange(65536 // width * width).to(torch.int32)
        stored = patterns.to(torch.int16).view(ENCODINGS[encoding]).view(-1, width)
        found = gather(EncodedRows(stored), torch.arange(len(stored)))
        assert same_bits(found, stored.float())

    def test_every_int8(self):
        stored = torch.arange(-128, 128).to(torch.int8).repeat(9, 1).t()
        scale = torch.tensor([1, 0, 1e-45, 1e-38, 3.7e-3, 0.1, 1e4, 1e36, -2.0])
        zero_point = torch.tensor([0, 5, 0, 1e-40, -0.2, 12.7, 1e9, 1e38, 3.0])
        rows = EncodedRows(stored.contiguous(), scale, zero_point)
        assert same_bits(gather(rows, torch.arange(256)), stored.float() * scale + zero_point)

    @pytest.mark.parametrize("encoding", ENCODINGS)
    @pytest.mark.parametrize("shape", [(5,), (5, 0), (0, 3), (5, 2, 3), (5, 1)])
    def test_shapes(self, tmp_path, encoding, shape):
        rows, loss = encode(tmp_path / "x.gd", torch.randn(shape), encoding)
        assert rows.shape == shape
        assert same_bits(rows[:], reference(rows))
        assert loss.values == rows.stored.numel()
        if len(rows.stored):
            assert same_bits(rows[-2], reference(rows)[-2])
            assert same_bits(rows[1:-1:2], reference(rows)[1:-1:2])
        with pytest.raises(IndexError, match="row"):
            gather(rows, torch.tensor([len(rows.stored)]))


@pytest.mark.parametrize("encoding", HALVES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_halves_are_rounded_as_torch_does(tmp_path, encoding, dtype):
    bits = torch.randint(-(2**31), 2**31, (4000, 25), dtype=torch.int64).to(torch.int32)
    x = bits.view(torch.float32).to(dtype)
    x[0, :6] = torch.tensor([65504.0, 65519.9, 65520.0, -1e30, 2**-24, 2**-25])
    x[1, :2] = torch.tensor([1e300, -1e300])  # beyond float32, where it is float64
    rows, loss = encode(tmp_path / "x.gd", x, encoding)
    half = ENCODINGS[encoding]
    expected = x.to(half)
    beyond = expected.isinf() & ~x.isinf()
    largest = torch.tensor(torch.finfo(half).max, dtype=half)
    expected = torch.where(beyond, largest.copysign(expected), expected).float()
    assert same_bits(rows[:], expected)
    assert loss.clipped == int(beyond.sum())
    assert loss.values == int(x.isfinite().sum())


class TestInt8:
    def test_error_is_half_a_step(self, tmp_path):
        x = torch.rand(3000, 40) * torch.logspace(-30, 30, 40)
        x[:, ::2] -= x[:, ::2].mean(0)
        rows, loss = encode(tmp_path / "x.gd", x, "int8")
        assert rows.scale is not None
        step = rows.scale.double()
        # Beside half a step: float32 cannot say every value of the lattice.
        allowed = step * 0.51 + x.abs().amax(0) * 2.0**-22
        error = (rows[:].double() - x).abs()
        assert bool((error.amax(0) <= allowed).all())
        assert loss.clipped == 0
        assert loss.max_abs_error == pytest.approx(float(error.max()))
        assert loss.rmse == pytest.approx(float(error.square().mean().sqrt()))
        relative = error.square().mean(0) / x.double().var(0, unbiased=False)
        assert loss.relative_rmse == pytest.approx(float(relative.mean().sqrt()), rel=1e-6)
        assert loss.worst_column == int(relative.argmax())

    def test_constant_columns_and_zeros_are_exact(self, tmp_path):
        x = torch.stack(
            [
                torch.full((500,), 3.3),
                torch.zeros(500),
                torch.full((500,), -1e-42),
                torch.full((500,), 3e38),
                (torch.arange(500) % 50 == 0).float(),
                torch.relu(torch.randn(500)),
                -torch.relu(torch.randn(500) - 1) * 1e-38,
            ],
            dim=1,
        )
        rows, loss = encode(tmp_path / "x.gd", x, "int8")
        found = rows[:]
        assert torch.equal(found[:, :4], x[:, :4])
        assert bool((found[x == 0] == 0).all())
        assert torch.allclose(found[:, 4], x[:, 4])
        assert loss.clipped == 0
        assert loss.worst_column in (4, 5, 6)

    @pytest.mark.parametrize("centre", [0.0, 2000.0, -5e6])
    @pytest.mark.parametrize("outlier", [1e4, 1e9, -3e37])
    def test_outliers_do_not_take_the_resolution(self, tmp_path, centre, outlier):
        x = torch.randn(20_000, 2) * 3 + centre
        x[777, 0] += outlier
        rows, loss = encode(tmp_path / "x.gd", x, "int8")
        error = (rows[:] - x).abs()
        error[777, 0] = 0
        ulp = abs(centre) * 2.0**-22
        spoiled, clean = error.mean(0).tolist()
        assert spoiled == pytest.approx(clean, rel=0.6)
        assert error.max() < 1.5 + ulp
        assert 1 <= loss.clipped < 100
        assert loss.max_abs_error > abs(outlier) * 0.9

    @pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
    def test_values_that_are_not_finite(self, tmp_path, bad):
        x = torch.zeros(30_000, 64)
        x[29_000, 63] = bad
        x[29_001, 0] = torch.nan
        with pytest.raises(InputError) as caught:
            encode(tmp_path / "x.gd", x, "int8")
        assert str(caught.value) == (
            f"x: row 29000: found {bad}, expected a finite number. "
            "float16 and bfloat16 keep such values."
        )
        assert not (tmp_path / "x.gd").exists()


# Stores


@pytest.fixture(scope="module")
def graph():
    generator = torch.Generator().manual_seed(3)
    return Data(
        x=torch.randn(400, 37, generator=generator),
        y=torch.arange(400),
        edge_index=torch.randint(400, (2, 3000), generator=generator),
    )


@pytest.fixture(scope="module", params=list(ENCODINGS))
def encoded(request, graph, tmp_path_factory):
    """The encoding, a store with it, and what its ``x`` decodes to."""
    path = tmp_path_factory.mktemp("encoded") / "store"
    gz.convert(graph, path, features=request.param)
    store = gz.open(path)
    rows = store.contents.rows(store.contents.node_type(None).attrs["x"])
    assert isinstance(rows, EncodedRows)
    x = reference(rows)
    assert (x - graph.x).abs().max() < 0.05
    return request.param, path, x


class TestStore:
    def test_data(self, encoded, graph):
        _, path, x = encoded
        data = gz.open(path).data()
        assert repr(data) == repr(gz.open(path).data())
        assert "x=[400, 37]" in repr(data)
        assert data.num_features == data.num_node_features == 37
        assert data.num_nodes == 400
        assert data.x.dtype == torch.float32
        assert same_bits(data.x, x)
        assert data.x is data.x
        assert torch.equal(data.y, graph.y)

    def test_loader_gathers_without_building(self, encoded):
        _, path, x = encoded
        data = gz.open(path).data()
        for workers in (0, 2):
            loader = gz.loader.NeighborLoader(data, [4, 4], batch_size=64, num_workers=workers)
            for batch in loader:
                assert same_bits(batch.x, x[batch.n_id])
        for batch in gz.loader.LinkNeighborLoader(data, [2], batch_size=500):
            assert same_bits(batch.x, x[batch.n_id])
        for batch in gz.loader.ShaDowKHopSampler(data, 2, 3, torch.arange(20)):
            assert batch.x.dtype == torch.float32
        assert not data._store._mapping.raw("x").is_built

    def test_changes_by_scripts_are_loaded(self, encoded):
        _, path, x = encoded

        def batch_of(data):
            loader = gz.loader.NeighborLoader(data, [3], batch_size=400)
            return next(iter(loader))

        data = gz.open(path).data()
        data.x[5] = 100.0
        changed = pickle.loads(pickle.dumps(data))
        for each in (data, copy.copy(data), changed):
            assert (batch_of(each).x[5] == 100).all()
            assert same_bits(batch_of(each).x[6], x[6])
        data.x = data.x[:, :2]
        assert batch_of(data).x.shape == (400, 2)
        del data.x
        assert "x" not in batch_of(data)
        fresh = gz.open(path).data()
        _ = fresh.x  # used, not changed
        assert len(pickle.dumps(fresh)) < 2000

    def test_feature_store(self, encoded):
        _, path, x = encoded
        store, name = gz.open(path).feature_store, {"group_name": None, "attr_name": "x"}
        mask = torch.arange(400) % 3 == 0
        whole = slice(None)
        for index in (torch.tensor([3, 1, 3]), np.array([7, 2]), mask, slice(5, 90, 7), whole, -3):
            assert same_bits(store.get_tensor(**name, index=index), x[index])
        assert same_bits(store.get_tensor(**name, index=None), x)
        assert store.get_tensor_size(**name) == (400, 37)
        assert [attr.attr_name for attr in store.get_all_tensor_attrs()] == ["x", "y"]

    def test_put_tensor_is_stored_as_it_is(self, encoded, tmp_path):
        _, path, x = encoded
        copied = Path(shutil.copytree(path, tmp_path / "copy"))
        store = gz.open(copied, "r+")
        expected = x + 1 / 3
        store.feature_store.put_tensor(expected, group_name=None, attr_name="x", index=None)
        assert torch.equal(gz.open(copied).data().x, expected)
        attrs = gz.open(copied).info()["node_types"][0]["attrs"]
        assert "encoding" not in attrs["x"]
        assert gz.open(copied).verify().ok
        store.feature_store.remove_tensor(group_name=None, attr_name="x", index=None)
        assert "x" not in gz.open(copied).data()

    def test_info_and_summary(self, encoded, graph, tmp_path):
        encoding, path, x = encoded
        summary = gz.convert(graph, tmp_path / "again", features={"x": encoding})
        assert f"x: float32[37] as {encoding}: max error " in str(summary)
        shown = json.loads(json.dumps(summary.to_dict()))["info"]["node_types"][0]["attrs"]["x"]
        column = gz.open(path).info()["node_types"][0]["attrs"]["x"]
        assert (column["dtype"], column["shape"]) == ("float32", [400, 37])
        assert column["encoding"] == shown["encoding"]
        loss = EncodingLoss(**column["encoding"])
        assert column["bytes"] == (path / "node/x.gd").stat().st_size < 37 * 400 * 4
        assert loss.rmse == pytest.approx(float((x - graph.x).double().square().mean().sqrt()))
        shown = CliRunner().invoke(main, ["info", str(path)]).output
        assert f"x: float32[37] as {encoding}, " in shown


class TestOptions:
    def test_by_type(self, tmp_path):
        data = HeteroData()
        data["paper"].x, data["author"].x = torch.randn(20, 4), torch.randn(30, 4)
        data["paper"].extra = torch.randn(20, 2)
        data["author", "writes", "paper"].edge_index = torch.randint(20, (2, 50))
        features = {"x": "int8", "paper.x": "bfloat16", "extra": "float16"}
        summary = gz.convert(data, tmp_path / "s", features=features)
        attrs = {t["name"]: t["attrs"] for t in summary.info["node_types"]}
        assert attrs["paper"]["x"]["encoding"]["encoding"] == "bfloat16"
        assert attrs["paper"]["extra"]["encoding"]["encoding"] == "float16"
        assert attrs["author"]["x"]["encoding"]["encoding"] == "int8"
        disk = gz.open(tmp_path / "s").data()
        loader = gz.loader.NeighborLoader(disk, [3], input_nodes="paper", batch_size=20)
        batch = next(iter(loader))
        for name in ("paper", "author"):
            assert torch.equal(batch[name].x, disk[name].x[batch[name].n_id])
            assert torch.allclose(disk[name].x, data[name].x, atol=0.05)

    def test_names_that_are_not_there(self, graph, tmp_path):
        for features in ({"z": "int8"}, {"edge_attr": "int8"}, {"paper.x": "int8"}):
            with pytest.raises(ValueError, match=r"which is no attribute. There are: x, y"):
                gz.convert(graph, tmp_path / "s", features=features)
        with pytest.raises(ValueError, match="features='int4': expected one of float16"):
            gz.convert(graph, tmp_path / "s", features="int4")
        with pytest.raises(InputError, match="node attribute 'y': dtype: found int64"):
            gz.convert(graph, tmp_path / "s", features={"y": "int8"})
        assert not (tmp_path / "s").exists()


class TestDamage:
    """The sections and fields of an encoding, forged behind valid hashes."""

    @pytest.fixture
    def store(self, tmp_path):
        gz.convert(Data(x=torch.randn(50, 7)), tmp_path / "store", features="int8")
        return tmp_path / "store"

    @pytest.mark.parametrize("field", ["scale_offset", "zero_point_offset"])
    @pytest.mark.parametrize("value", [0, 1, 4096, 2**31, 2**63, 2**64 - 4096, 2**64 - 1])
    def test_offsets(self, store, field, value):
        set_field(store / "node/x.gd", field, value)
        reseal(store)
        right = {"scale_offset": 8192, "zero_point_offset": 12288}[field]
        not_opened(store, f"x.gd: {field}: found {value}, expected {right}")

    def test_a_file_without_room_for_the_sections(self, store):
        raw = (store / "node/x.gd").read_bytes()
        (store / "node/x.gd").write_bytes(raw[:8192] + raw[-8:])
        for name, value in (("file_bytes", 8200), ("checksums_offset", 8192)):
            set_field(store / "node/x.gd", name, value)
        reseal(store)
        not_opened(store, "scale_offset: found 8192, expected 28 bytes in fro")

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
    @pytest.mark.parametrize("section", ["scale_offset", "zero_point_offset"])
    def test_scales_that_are_no_numbers(self, store, section, value):
        at = {"scale_offset": 8192, "zero_point_offset": 12288}[section]
        overwrite(store / "node/x.gd", at + 12, struct.pack("<f", value))
        not_opened(store, f"{section}, item 3: found -?[a-z]+, expected a fin")
        assert [line.split(":")[1] for line in verify(store).bad] == [
            " block 0 (offset 4096, 12288 bytes)"
        ]


def test_cut_short_while_open(tmp_path, graph):
    """Decoding reads mapped pages as copying does: a cut is an error, no crash."""
    wide = graph.x.repeat(20, 10)
    rows, _ = encode(tmp_path / "x.gd", wide, "int8")
    write_column(tmp_path / "plain.gd", wide)
    plain = view_column(_core.Column.open(str(tmp_path / "plain.gd")))
    for table, name in ((rows, "x.gd"), (plain, "plain.gd")):
        os.truncate(tmp_path / name, 8192)
        for threads in (1, 4):
            with pytest.raises(OSError, match="was truncated") as caught:
                gather(table, torch.arange(len(wide)), threads)
            assert caught.value.filename == str(tmp_path / name)
    with pytest.raises(OSError, match="was truncated"):
        decoded(rows)
