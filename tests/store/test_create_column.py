"""Columns that join a store row by row: in any order of writes, killed, published."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import chunks
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from full_disk import largest_file
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous, write_store
from pyg_graphzero.loader import NeighborLoader
from pyg_graphzero_cli import main

N = 300  # nodes of homogeneous()


@pytest.fixture
def path(tmp_path):
    return write_store(homogeneous(), tmp_path / "store")


def table(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def leftovers(path: Path) -> list[str]:
    return sorted(os.listdir(path / "unpublished")) if (path / "unpublished").exists() else []


def leave(path: Path, name: str = "h", *shape: int) -> Path:
    """The draft of a writer that was killed."""
    with gz.open(path, "r+") as store:
        column = store.create_column(name, shape)
        column.write(0, table(200, *shape))
        (draft,) = (path / "unpublished").iterdir()
        kept = draft.read_bytes()
    (path / "unpublished").mkdir(exist_ok=True)
    draft.write_bytes(kept)
    return draft


# Written and read ################################################################################


@chunks.both
def test_an_attribute_like_any_other(path):
    h = table(N, 6)
    before = gz.open(path)
    with gz.open(path, "r+") as store:
        column = store.create_column("h", 6)
        assert (column.shape, column.dtype, column.num_rows) == ((6,), torch.float32, N)
        for start in range(0, N, 70):
            column.write(start, h[start : start + 70])
        assert "h" not in gz.open(path).data()
        column.publish()
        assert torch.equal(store.data().h, h)
        assert leftovers(path) == []
    assert "h" not in before.data()
    with gz.open(path) as store:
        assert store.verify().ok
        assert torch.equal(store.feature_store.get_tensor(None, "h", index=None), h)
        batch = next(iter(NeighborLoader(store, [4], batch_size=50)))
        assert torch.equal(batch.h, h[batch.n_id])
        assert store.info()["node_types"][0]["attrs"]["h"]["shape"] == [N, 6]
        assert store.info()["unpublished"] == []
    with gz.open(path, "r+") as store:
        store.feature_store.remove_tensor(None, "h", None)
        assert "h" not in store.data()
        assert not (path / "node/h.gd").exists()
        store.create_column("h", 6).discard()


@pytest.mark.parametrize("shape", [(), (5,), (125,), (2, 3), (0,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("num_nodes", [N, 0])
def test_shapes_and_dtypes(tmp_path, shape, dtype, num_nodes):
    rows = (10 * table(num_nodes, *shape)).to(dtype)
    path = write_store(Data(num_nodes=num_nodes), tmp_path / "s")
    with gz.open(path, "r+") as store:
        column = store.create_column("h", shape, dtype=dtype)
        begin = num_nodes // 3
        column.write(begin, rows[begin:].numpy() if dtype != torch.bfloat16 else rows[begin:])
        column.write(0, rows[:begin])
        column.publish()
    with gz.open(path) as store:
        assert torch.equal(store.data().h, rows)
        assert store.verify().ok


@chunks.both
@pytest.mark.parametrize("encoding", ["float16", "bfloat16"])
def test_encodings(path, encoding):
    half = getattr(torch, encoding)
    h = table(N, 4)
    h[7] = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e38])
    with gz.open(path, "r+") as store:
        column = store.create_column("h", 4, encoding=encoding)
        column.write(0, h[:200])
        column.put_tensor(h[200:].to(half), index=slice(200, N))
        column.publish()
        found = store.info()["node_types"][0]["attrs"]["h"]
        assert found["encoding"] == {"encoding": encoding}
    found = gz.open(path).data().h
    assert found.dtype == torch.float32
    expected = h.to(half).float()
    if encoding == "float16":  # the largest in its range, as conversion has it
        expected[7, 3] = torch.finfo(half).max
    assert torch.equal(found.nan_to_num(1.5), expected.nan_to_num(1.5))


@chunks.both
def test_rows_by_every_kind_of_index(path):
    h = table(N, 3)
    with gz.open(path, "r+") as store:
        column = store.create_column("h", 3)
        column.write(0, h[:100])
        rest = 100 + torch.randperm(200)
        some, mask = rest[:50], torch.zeros(N, dtype=torch.bool)
        mask[rest[50:]] = True
        column.put_tensor(torch.zeros(50, 3), index=some)
        column.put_tensor(h[some], index=some.numpy())
        column.put_tensor(h[mask].flip(0).numpy()[::-1], index=mask)
        column.put_tensor(h[10:30], index=slice(10, 30))
        twice = torch.cat([h[[5, 9]] + 1, h[[5, 9]]])
        column.put_tensor(twice, index=torch.tensor([5, 9, 5, 9]))  # the last row of a node counts
        column.publish()
        other = store.create_column("all", 3)
        other.put_tensor(h)
        other.publish()
        by_slices = store.create_column("by slices", 3)
        by_slices.put_tensor(h[1::2], index=slice(1, None, 2))
        features = store.feature_store
        features.put_tensor(h[::4], group_name=None, attr_name="by slices", index=slice(0, None, 4))
        odd = torch.arange(2, N, 4)
        features.put_tensor(h[odd].flip(0), None, "by slices", slice(N - 2, None, -4))
        assert "by slices" not in store.data()
        store.drafts[None, "by slices"].publish()
    data = gz.open(path).data()
    for name in ("h", "all", "by slices"):
        assert torch.equal(data[name], h)
    assert gz.open(path).verify().ok


def test_columns_of_node_types(tmp_path):
    path = write_store(heterogeneous(), tmp_path / "s")
    with gz.open(path, "r+") as store:
        columns = {t: store.create_column("h", 2, node_type=t) for t in ("paper", "author")}
        for name, column in columns.items():
            column.write(0, table(store.num_nodes_of(name), 2))
        assert len(store.info()["unpublished"]) == 2
        for column in columns.values():
            column.publish()
        with pytest.raises(gz.MissingAttributeError, match="node type 'book'"):
            store.create_column("h", 2, node_type="book")
    data = gz.open(path).data()
    assert torch.equal(data["author"].h, table(120, 2))
    assert torch.equal(data["paper"].h, table(200, 2))


# Any order of writes #############################################################################

WIDE = 2000  # 8000 bytes a row: a block of checksums ends inside of row 131


@st.composite
def steps(draw):
    kinds = st.sampled_from(["write", "write", "on", "put", "publish"])
    found = []
    for kind in draw(st.lists(kinds, min_size=1, max_size=12)):
        start = draw(st.integers(0, N - 1))
        found.append((kind, start, draw(st.integers(1, N - start)), draw(st.integers(0, 99))))
    return found


@settings(max_examples=25)
@given(steps=steps(), padded=st.booleans())
def test_any_order_of_writes(tmp_path_factory, steps, padded):
    path = write_store(Data(num_nodes=N), tmp_path_factory.mktemp("any") / "s")
    width, dtype = (1999, torch.int16) if padded else (WIDE, torch.int32)  # 4 KB, or not padded
    expected = torch.zeros(N, width, dtype=dtype)
    written = np.zeros(N, bool)
    at = 0
    store = gz.open(path, "r+")
    column = store.create_column("h", width, dtype=dtype)
    for kind, start, count, value in steps:
        rows = (torch.arange(count * width).view(count, width) % 9973 + value).to(dtype)
        if kind == "put":
            places = torch.randperm(N, generator=torch.Generator().manual_seed(value))[:count]
            column.put_tensor(rows, index=places)
            expected[places], written[places] = rows, True
        elif kind in ("write", "on"):
            if kind == "on":  # goes on where the last one ended
                start, count = at % N, min(count, N - at % N)
            column.write(start, rows[:count])
            expected[start : start + count], written[start : start + count] = rows[:count], True
            at = start + count
        elif not written.all():
            missing = int(np.argmin(written))
            with pytest.raises(ValueError, match=f"found nothing in rows {missing} to "):
                column.publish()
    missing = torch.from_numpy((~written).nonzero()[0])
    if len(missing):
        with pytest.raises(ValueError, match=f"found nothing in rows {int(missing[0])} to "):
            column.publish()
        column.put_tensor(expected[missing], index=missing)
    column.publish()
    assert torch.equal(store.data().h, expected)
    store.close()
    report = gz.open(path).verify()
    assert report.ok, str(report)


# Left behind #####################################################################################


def test_an_unpublished_column_goes_with_its_handle(path):
    with gz.open(path, "r+") as store:
        column = store.create_column("h", 3)
        assert len(leftovers(path)) == 1
        column.discard()
        assert leftovers(path) == []
        with pytest.raises(gz.ClosedStoreError, match="column 'h': was discarded"):
            column.write(0, table(2, 3))
        store.create_column("h", 3).write(0, table(2, 3))
        store.feature_store.put_tensor(torch.arange(N), None, "z", None)
        assert len(leftovers(path)) == 1
    assert leftovers(path) == []
    gz.open(path, "r+").close()
    assert not (path / "unpublished").exists()
    assert [p.name for p in (path / "node").glob("h*")] == []


def test_a_draft_of_the_dead_is_listed_and_replaced(path):
    draft = leave(path, "h", 2)
    rows = draft.read_bytes()
    draft.unlink()
    other = leave(path, "g", 2)
    draft.write_bytes(rows)
    with gz.open(path) as store:
        found = store.info()["unpublished"]
        names = [f"unpublished/{draft.name}", f"unpublished/{other.name}"]
        assert sorted(c["file"] for c in found) == sorted(names)
        assert all(c["bytes"] > 0 for c in found)
        assert store.verify().ok
        assert "h" not in store.data()
    shown = CliRunner().invoke(main, ["info", str(path)]).output
    assert f"not published: unpublished/{draft.name}, " in shown
    as_json = json.loads(CliRunner().invoke(main, ["info", str(path), "--json"]).output)
    assert as_json["unpublished"] == found
    with gz.open(path, "r+") as store:
        store.feature_store.put_tensor(torch.arange(N), None, "z", None)
        assert len(leftovers(path)) == 2
        column = store.create_column("h", 3)
        column.write(0, table(N, 3))
        column.publish()
        assert leftovers(path) == [other.name]
        assert torch.equal(store.data().h, table(N, 3))


def test_clean_removes_drafts_and_orphans_where_nothing_writes(path):
    draft = leave(path, "h", 2)
    (path / "unpublished/notes.txt").write_text("mine")
    with gz.open(path, "r+"):
        orphan = path / "node/z.gd"
        orphan.write_bytes(b"of a writer that may live")
        failed = CliRunner().invoke(main, ["clean", str(path)])
        assert (failed.exit_code, draft.exists(), orphan.exists()) == (2, True, True)
        assert "open for writing" in failed.output
    assert gz.verify(path).ok
    cleaned = CliRunner().invoke(main, ["clean", str(path)]).output
    assert f"{path}: 2 removed, " in cleaned
    assert leftovers(path) == ["notes.txt"]
    assert not orphan.exists()
    again = CliRunner().invoke(main, ["clean", str(path)]).output
    assert again == f"{path}: 0 removed, 0 bytes\n"


# Refused #########################################################################################


@pytest.mark.parametrize(
    ("name", "width", "options", "words"),
    [
        ("x", 2, {}, r"found an attribute 'x', .*remove_tensor"),
        ("train_idx", 2, {}, "found an index set 'train_idx'"),
        *(("h", width, {}, "width: found") for width in (-1, 1.5, "3", True, (2, -1))),
        ("h", 2, {"encoding": "int8"}, r"encoding: found 'int8'.*convert\(features=\)"),
        ("h", 2, {"encoding": "float16", "dtype": torch.int64}, "int64 with encoding='float16'"),
        ("h", 2, {"dtype": torch.quint8}, r"dtype: found torch\.quint8"),
        ("h", 2, {"dtype": "float32"}, "dtype: found 'float32', expected torch's bool"),
    ],
)
def test_wrong_columns_are_refused_at_creation(path, name, width, options, words):
    with gz.open(path, "r+") as store, pytest.raises(ValueError, match=words):
        store.create_column(name, width, **options)
    assert leftovers(path) == []


def test_stores_that_take_no_columns(path):
    with pytest.raises(gz.ReadOnlyStoreError, match="mode='r\\+'"):
        gz.open(path).create_column("h", 2)
    store = gz.open(path, "r+")
    store.close()
    with pytest.raises(gz.ClosedStoreError):
        store.create_column("h", 2)


ONES = torch.ones(5, 2)


@pytest.mark.parametrize(
    ("rows", "at", "error", "words"),
    [
        *((rows, 0, ValueError, r"shape: found .*, expected \[n, 2\]")
          for rows in (ONES.view(2, 5), ONES[:, 0], torch.tensor(1.0), ONES[:, :, None])),
        (ONES.double(), 0, ValueError, r"found torch\.float64, expected torch\.float32"),
        ([[1.0, 2.0]], 0, TypeError, "found list"),
        *((ONES, at, IndexError, f"found rows {at} to .* 0 <= row < 300")
          for at in (-1, N - 4, 10**30)),
        (ONES[:2], [0, N], IndexError, r"index\[1\]: found row 300, expected 0 <= row < 300"),
        (ONES[:2], [0, 1, 2], ValueError, "found 2 rows for 3 nodes"),
        (ONES[:2], None, ValueError, "found 2 rows for 300 nodes"),
    ],
)  # fmt: skip
def test_rows_that_are_refused(path, rows, at, error, words):
    with gz.open(path, "r+") as store:
        column = store.create_column("h", 2)
        index = torch.tensor(at) if isinstance(at, list) else None
        is_put = at is None or index is not None
        with pytest.raises(error, match=words):
            column.put_tensor(rows, index=index) if is_put else column.write(at, rows)
        with pytest.raises(ValueError, match=r"found nothing in rows 0 to 300, "):
            column.publish()


def test_handles_that_ended(path):
    store = gz.open(path, "r+")
    first = store.create_column("h", 2)
    first.write(0, table(N, 2))
    second = store.create_column("h", 2)
    with pytest.raises(gz.ClosedStoreError, match="by another handle"):
        first.publish()
    assert "ended" in repr(first)
    second.write(0, table(N, 2))
    second.publish()
    with pytest.raises(gz.ClosedStoreError, match="was published"):
        second.discard()
    third = store.create_column("g", 2)
    store.close()
    for call in (third.publish, third.discard):
        with pytest.raises(gz.ClosedStoreError, match="the store was closed"):
            call()


def test_a_full_disk(path):
    h = table(N, 5000)  # 20 KB a row, 6 MB
    with gz.open(path, "r+") as store:
        with largest_file(1 << 20), pytest.raises(OSError) as caught:
            store.create_column("h", 5000)
        assert Path(str(caught.value.filename)).parent == path / "unpublished"
        assert leftovers(path) == []
        column = store.create_column("h", 5000)
        column.write(0, h[:100])
        with largest_file(3 << 20):
            with pytest.raises(OSError) as caught:
                column.write(100, h[100:200])
            assert Path(str(caught.value.filename)).parent == path / "unpublished"
        column.write(200, h[200:])
        with pytest.raises(ValueError, match=r"found nothing in rows 100 to 200, "):
            column.publish()
        assert gz.open(path).verify().ok
        column.write(100, h[100:200])
        with largest_file(1000), pytest.raises(OSError):
            column.publish()
        with pytest.raises(ValueError, match=r"found nothing in rows 0 to 300, "):
            column.publish()  # the device may have lost any of them
        column.write(0, h)
        column.publish()
        assert torch.equal(store.data().h, h)
        assert store.verify().ok


def test_a_publication_that_fails_can_be_repeated(path):
    """The draft is where it was, and the store what it was."""
    with gz.open(path, "r+") as store:
        column = store.create_column("h", 2)
        column.write(0, table(N, 2))
        before = {p.name for p in (path / "node").iterdir()}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "replace", refuse)
            with pytest.raises(OSError, match="full"):
                column.publish()
        assert "h" not in store.data()
        assert {p.name for p in (path / "node").iterdir()} == before
        assert len(leftovers(path)) == 1
        column.write(5, torch.ones(1, 2))
        column.publish()
        assert store.data().h[5].tolist() == [1.0, 1.0]
        assert store.verify().ok


def refuse(*paths: object) -> None:
    raise OSError(errno.ENOSPC, "full", str(paths[0]))


# Left by the dead ################################################################################


def test_files_of_a_dead_writer_are_swept(path):
    """A dead writer's files are removed; files of other origin stay."""
    leave(path, "h", 2)
    named = {p for p in path.rglob("*") if p.is_file()}
    left = ["node/z.gd", "edge/topology-2.gl", "node-a/x.gd", "graph/g.gd", "store.json.new"]
    kept = ["node/z.npy", "node/notes.txt", "mine/x.gd", "x.gd", "node/sub/x.gd", "nodes/x.gd",
            "unpublished/notes.txt"]  # fmt: skip
    for name in [*left, *kept]:
        (path / name).parent.mkdir(exist_ok=True, parents=True)
        (path / name).write_bytes(b"bytes")
    (path / "node/link.gd").symlink_to(path / "mine/x.gd")
    with gz.open(path, "r+") as store:
        assert len(store.info()["unpublished"]) == 1
    here = {p for p in path.rglob("*") if p.is_file() and not p.is_symlink()}
    assert here == named | {path / name for name in kept}
    assert (path / "node/link.gd").is_symlink()
