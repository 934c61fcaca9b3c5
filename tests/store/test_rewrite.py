"""``gz.optimize`` as a program: what it takes, what it refuses, what is left when it is killed."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import chunks
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from store_files import edit_schema
from torch_geometric.data import Data

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous, random_edges, write_store
from pyg_graphzero import _core
from pyg_graphzero.loader import NeighborLoader
from pyg_graphzero.store import rewrite
from pyg_graphzero.store.columns import write_column
from pyg_graphzero.store.csc import EdgeChunk
from pyg_graphzero.store.encoding import ColumnEncoder
from pyg_graphzero.store.rewrite import Order, reordered, slot_ranges
from pyg_graphzero.store.rows import ArrayRows
from pyg_graphzero.store.schema import SCHEMA_FILE
from pyg_graphzero.store.writer import StoreWriter
from pyg_graphzero.tune.optimize import choose_seeds
from pyg_graphzero.util.system import rss
from pyg_graphzero.util.workspace import MIN_ROOM, Workspace
from pyg_graphzero_cli import main

ORDER = {"seeds": "train_idx", "num_neighbors": [5, 3], "batch_size": 16, "progress": False}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_store(homogeneous(), tmp_path / "store")


def content(path: Path) -> dict:
    with gz.open(path) as opened:
        assert opened.verify().ok, str(opened.verify())
        return {
            k: v.clone() if torch.is_tensor(v) else v for k, v in opened.data().to_dict().items()
        }


def same(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(
        torch.equal(a[k], b[k]) if torch.is_tensor(a[k]) else a[k] == b[k] for k in a
    )


def is_ordered(path: Path) -> bool:
    return (path / "node" / "order.gd").exists()


# Places ##########################################################################################


@chunks.both
def test_in_place(store: Path) -> None:
    before = content(store)
    opened = gz.open(store).data()  # goes on with the old files
    summary = gz.optimize(store, **ORDER)
    assert same(content(store), before)
    assert torch.equal(opened.x, before["x"])
    assert is_ordered(store)
    assert os.listdir(store.parent) == ["store"]
    assert summary.path == store
    assert summary.num_bytes == sum(f.stat().st_size for f in store.rglob("*") if f.is_file())
    assert summary.hottest[""][0] > 0.1


def test_again_for_other_seeds(store: Path) -> None:
    before = content(store)
    gz.optimize(store, **ORDER)
    first = gz.open(store).contents.view("node/order.gd").tolist()
    gz.optimize(store, **(ORDER | {"seeds": torch.arange(250, 300)}))
    assert same(content(store), before)
    with gz.open(store) as opened:
        second = opened.contents.view("node/order.gd").tolist()
        assert second != first
        assert sorted(second[:50]) != list(range(50))
        assert opened.info()["optimized"]["seeds"] == "50 nodes"
        torch.manual_seed(1)
        batch = next(iter(NeighborLoader(opened, [-1], input_nodes=[5], batch_size=1)))
    assert torch.equal(batch.x, before["x"][batch.n_id])


def test_another_store(store: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    gz.optimize(store, new, **ORDER)
    assert not is_ordered(store)
    assert same(content(new), content(store))
    with pytest.raises(FileExistsError, match="force replaces it"):
        gz.optimize(store, new, **ORDER)
    gz.optimize(store, new, force=True, **ORDER)
    gz.optimize(new, tmp_path / "store", force=True, **ORDER)
    assert same(content(store), content(new))
    assert sorted(os.listdir(tmp_path)) == ["new", "store"]


def test_convert_takes_what_was_optimized(store: Path, tmp_path: Path) -> None:
    before = content(store)
    gz.optimize(store, **ORDER)
    gz.convert(gz.open(store).data(), tmp_path / "plain", progress=False)
    assert gz.open(tmp_path / "plain").info()["format_version"] == 1
    assert same(content(tmp_path / "plain"), before)


def test_a_store_in_use_is_not_replaced(store: Path, tmp_path: Path) -> None:
    with gz.open(store, "r+"):
        with pytest.raises(BlockingIOError):
            gz.optimize(store, **ORDER)
        gz.optimize(store, tmp_path / "new", **ORDER)
    gz.optimize(store, **ORDER)


# What is in it ###################################################################################


@chunks.both
def test_types_that_are_not_sampled_stay(tmp_path: Path) -> None:
    data = heterogeneous()
    old = write_store(data, tmp_path / "old")
    # Venues lead nowhere, and nobody asks for authors in no hop.
    gz.optimize(old, tmp_path / "new", seeds=("venue", None), num_neighbors=[-1], batch_size=3)
    info = {t["name"]: t for t in gz.open(tmp_path / "new").info()["node_types"]}
    assert [info[name]["is_ordered"] for name in ("paper", "author")] == [True, False]
    raw = "edge-author--writes--paper/edge_attr.gd"
    assert gz.open(tmp_path / "new").verify().ok
    assert (tmp_path / "new" / raw).exists()
    before, after = (gz.open(tmp_path / name).data() for name in ("old", "new"))
    for name in data.edge_types:
        assert torch.equal(before[name].edge_index, after[name].edge_index)


def encoded_store(path: Path) -> torch.Tensor:
    x = torch.randn(300, 7, generator=torch.Generator().manual_seed(3))
    with StoreWriter(path, is_hetero=False) as writer:
        writer.add_node_type(None, 300)
        for encoding in ("float16", "bfloat16", "int8"):
            writer.add_node_attr(None, encoding, x, encoding=encoding)
        writer.add_node_attr(None, "brain", x.to(torch.bfloat16))
        writer.add_node_attr(None, "nothing", torch.empty(300, 0))
        writer.add_node_ids(None, [f"node {i}" for i in range(300)])
        writer.add_index_set(None, "train_idx", torch.arange(0, 300, 5))
        src, dst = random_edges(300, 300, 2000)
        columns = {"edge_id": torch.arange(2000), "half": torch.randn(2000, 2).half()}
        writer.add_edge_type(None, [EdgeChunk(src, dst, columns)])
        codes = torch.randn(2000, 3, generator=torch.Generator().manual_seed(4))
        record = writer._schema.edge_type(None)
        record.attrs["coded"] = writer._files.column(
            "edge", "coded", ColumnEncoder(ArrayRows(codes), "int8", "coded")
        )
        writer.add_graph_attr("scale", torch.tensor(0.5))
        writer.add_graph_attr("title", "a graph")
        writer.finish()
    return x


@chunks.both
def test_codes_are_kept(tmp_path: Path) -> None:
    encoded_store(tmp_path / "old")
    gz.optimize(tmp_path / "old", tmp_path / "new", **ORDER)
    before, after = content(tmp_path / "old"), content(tmp_path / "new")
    assert same(before, after)
    old, new = gz.open(tmp_path / "old"), gz.open(tmp_path / "new")
    infos = [store.info() for store in (old, new)]
    for name in ("float16", "bfloat16", "int8"):
        encodings = [info["node_types"][0]["attrs"][name]["encoding"] for info in infos]
        assert encodings[0] == encodings[1]
    order = new.contents.order(None).long()
    for file in ("node/int8.gd", "node/float16.gd"):
        assert torch.equal(new.contents.view(file), old.contents.view(file)[order])
    assert new.contents.column(new.contents.edge_type(None).attrs["coded"]).encoding
    assert list(new.ids()) == list(old.ids())
    assert new.lookup(["node 7"]).tolist() == [7]
    kept = [gz.open(store.path, keep_half=True).data() for store in (old, new)]
    assert kept[1].float16.dtype == torch.float16
    assert torch.equal(kept[0].float16, kept[1].float16)
    torch.manual_seed(2)
    batch = next(iter(NeighborLoader(new, [5], batch_size=300, num_workers=2)))
    assert torch.equal(batch.int8, before["int8"][batch.n_id])


def test_adopted_rows_become_the_stores_own(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((300, 9), dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    edges = random_edges(300, 300, 2000).numpy()
    gz.convert(edges, tmp_path / "s", node_attrs={"x": tmp_path / "x.npy"}, adopt=True)
    gz.optimize(tmp_path / "s", seeds=[1, 2, 3], num_neighbors=[5, 5])
    (tmp_path / "x.npy").unlink()
    assert content(tmp_path / "s")["x"].tolist() == x.tolist()
    assert "adopted" not in gz.open(tmp_path / "s").info()["node_types"][0]["attrs"]["x"]


@chunks.both
def test_time_order_stays(tmp_path: Path) -> None:
    data = homogeneous()
    data.time = torch.arange(300).flip(0)
    gz.convert(data, tmp_path / "s", time_attr="time")
    gz.optimize(tmp_path / "s", **ORDER)
    with gz.open(tmp_path / "s") as store:
        assert store.contents.edge_type(None).time_order == "time"
        indptr, indices = store.contents.csc(None)
        times = store.contents.view("node/time.gd")[indices.long()]
        inside = torch.ones(times.numel() - 1, dtype=torch.bool)
        inside[indptr[(indptr > 0) & (indptr < times.numel())] - 1] = False
        assert (times.diff()[inside] >= 0).all()


def test_a_graph_without_edges(tmp_path: Path) -> None:
    path = write_store(Data(x=torch.arange(5.0).view(5, 1)), tmp_path / "s")
    gz.optimize(path, seeds=[3], num_neighbors=[2])
    assert gz.open(path).contents.order(None).tolist() == [3, 0, 1, 2, 4]
    assert gz.open(path).data().x.view(-1).tolist() == [0, 1, 2, 3, 4]


# Changing it #####################################################################################


@chunks.both
def test_columns_join_in_the_users_order(store: Path) -> None:
    gz.optimize(store, **ORDER)
    z, w = torch.arange(600.0).view(300, 2), torch.arange(3000)
    with gz.open(store, "r+") as opened:
        features = opened.feature_store
        features.put_tensor(z.t().contiguous().t(), group_name=None, attr_name="z", index=None)
        features.put_tensor(w, group_name=(None, None), attr_name="w", index=None)
        some = torch.tensor([5, 9])
        features.put_tensor(torch.ones(2, 2), group_name=None, attr_name="z", index=some)
        with pytest.raises(ValueError, match="expected 300 rows"):
            features.put_tensor(z[:5], group_name=None, attr_name="short", index=None)
    z[[5, 9]] = 1
    data = gz.open(store).data()
    assert torch.equal(data.z, z)
    assert torch.equal(data.w, w)
    batch = next(iter(NeighborLoader(gz.open(store), [4], batch_size=300)))
    assert torch.equal(batch.z, z[batch.n_id])
    assert torch.equal(batch.w, batch.e_id)


@chunks.both
@pytest.mark.parametrize("layout", ["coo", "csc", "csr"])
def test_edges_join_by_node(store: Path, layout: str) -> None:
    gz.optimize(store, **ORDER)
    ring = torch.stack([torch.arange(300), (torch.arange(300) + 1) % 300])
    pointers = torch.arange(301)
    given = {"coo": tuple(ring), "csc": ((pointers[:300] - 1) % 300, pointers),
             "csr": (pointers, ring[1])}[layout]  # fmt: skip
    with gz.open(store, "r+") as opened:
        opened.graph_store.put_edge_index(
            given, edge_type=None, layout=layout, is_sorted=layout == "csc"
        )
    with gz.open(store) as opened:
        assert opened.verify().ok
        found = opened.data().edge_index
        assert set(map(tuple, found.t().tolist())) == set(map(tuple, ring.t().tolist()))
        batch = next(iter(NeighborLoader(opened, [1], input_nodes=[7], batch_size=1)))
        assert batch.n_id.tolist() == [7, 6]


def test_all_rows_that_do_not_fit(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gz.optimize(store, **ORDER)
    with gz.open(store) as opened:
        monkeypatch.setattr("pyg_graphzero.store.contents.free_memory", lambda: 1000)
        with pytest.raises(gz.DoesNotFitError) as caught:
            _ = opened.data().x
        assert isinstance(caught.value, MemoryError)
        assert str(caught.value) == (
            f"{store}: attribute 'x': found 1,000 bytes of memory free, expected 9,600 for all "
            "rows in the order of nodes, which is not theirs on disk; read some: "
            "store.feature_store.get_tensor(attr_name='x', index=nodes)"
        )
        some = opened.feature_store.get_tensor(None, "x", index=torch.tensor([3]))
        assert torch.equal(some, homogeneous().x[[3]])
        batch = next(iter(NeighborLoader(opened, [2], batch_size=4)))
        assert torch.equal(batch.x, homogeneous().x[batch.n_id])


def test_the_number_of_nodes_is_fixed(store: Path) -> None:
    gz.optimize(store, **ORDER)
    data = gz.open(store).data()
    data.num_nodes = 301
    with pytest.raises(ValueError, match="num_nodes of None: found 301, expected 300"):
        NeighborLoader(data, [2])


# Seeds ###########################################################################################


def seeds_of(path: Path, **options) -> tuple[str, list[int]]:
    chosen = choose_seeds(gz.open(path).data(), **options)
    return chosen.name, chosen.nodes.tolist()


def test_seeds_by_name_file_and_value(store: Path, tmp_path: Path) -> None:
    data = homogeneous()
    index, mask = data.train_idx.tolist(), data.train_mask.nonzero().view(-1).tolist()
    assert seeds_of(store, seeds="train_idx") == ("train_idx", index)
    assert seeds_of(store, seeds="train_mask") == ("train_mask", mask)
    both = "train_idx, train_mask"
    assert seeds_of(store, seeds=both) == (both, sorted({*index, *mask}))
    np.save(tmp_path / "a.npy", np.array([4, 2]))
    torch.save(torch.tensor([4, 2]), tmp_path / "a.pt")
    (tmp_path / "a.txt").write_text("4\n2\n")
    for name in ("a.npy", "a.pt", "a.txt"):
        assert seeds_of(store, seeds=tmp_path / name) == (str(tmp_path / name), [4, 2])
    assert seeds_of(store, seeds=[4, 2]) == ("2 nodes", [4, 2])
    assert seeds_of(store, seeds=data.train_mask)[1] == mask
    assert seeds_of(store, seeds=None)[1] == list(range(300))
    gz.optimize(store, **ORDER)
    assert seeds_of(store, seeds="train_mask")[1] == mask


def test_seeds_of_a_type(tmp_path: Path) -> None:
    data = heterogeneous()
    data["author"].train_mask = torch.arange(120) < 3
    path = write_store(data, tmp_path / "s")
    mask = data["paper"].train_mask.nonzero().view(-1).tolist()
    assert seeds_of(path, seeds="train_mask", input_type="author")[1] == [0, 1, 2]
    assert seeds_of(path, seeds=("paper", data["paper"].train_mask))[1] == mask
    assert seeds_of(path, seeds=[7], input_type="paper")[1] == [7]
    for options, message in (
        ({"seeds": "train_mask"}, "found in ['paper', 'author'], expected an input_type"),
        ({"seeds": "train_mask", "input_type": "x"}, "input_type: found 'x', expected one of"),
    ):
        with pytest.raises(ValueError, match=message.replace("[", r"\[")):
            seeds_of(path, **options)
    (tmp_path / "ids").write_text("1")
    with pytest.raises(ValueError, match="found a file, expected an input_type"):
        seeds_of(path, seeds=tmp_path / "ids")
    assert seeds_of(path, seeds=tmp_path / "ids", input_type="paper")[1] == [1]


def test_refusals(store: Path, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("one\n")
    for change, error, message in (
        ({"seeds": "test_idx"}, ValueError, "no such index set, mask or file; there are: "),
        ({"seeds": tmp_path / "words"}, ValueError, "words: found no node ids"),
        ({"seeds": []}, ValueError, "seeds: found none in what was given"),
        ({"seeds": [300]}, IndexError, "found node 300"),
        ({"num_neighbors": [-2]}, ValueError, "found -2"),
        ({"batch_size": 0}, ValueError, "positive integer value, but got batch_size=0"),
        ({"epochs": 0.0}, ValueError, "epochs: found 0.0"),
        ({"memory": 1000}, ValueError, "expected .*MB or more"),
    ):
        with pytest.raises(error, match=message):
            gz.optimize(store, **(ORDER | change))
    with pytest.raises(FileNotFoundError):
        gz.optimize(tmp_path / "none", **ORDER)
    assert not is_ordered(store)
    assert sorted(os.listdir(tmp_path)) == ["store", "words"]


def test_too_little_memory_for_tables(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("pyg_graphzero.tune.optimize")  # gz.optimize is the function
    monkeypatch.setattr(module, "rank_bytes", lambda num_nodes: num_nodes << 20)
    with pytest.raises(ValueError, match="needed for tables with an entry for every node"):
        gz.optimize(store, memory=rss() + MIN_ROOM + (16 << 20), **ORDER)


# Kernels #########################################################################################


@pytest.mark.parametrize("items", [1, 125])
@pytest.mark.parametrize("most", [1, 7, 300, 1000])
def test_rows_through_a_file(tmp_path: Path, items: int, most: int) -> None:
    x = torch.randint(0, 256, (300, items), dtype=torch.uint8)
    write_column(tmp_path / "x.gd", x.float())
    column = _core.Column.open(str(tmp_path / "x.gd"))
    order = Order.of(torch.randperm(300).to(torch.int32))
    with Workspace(tmp_path / "out") as space:
        raw = rewrite.raw_rows(column)
        how = column.row_bytes, order.order, order.ranks, most, 11, space
        parts = rewrite.through_file(raw, *how)
        found = torch.cat(list(parts)).view(torch.float32)
        assert torch.equal(found, x[order.order.long()].float())
        direct = torch.cat(list(reordered(column, order, space))).view(torch.float32)
        assert torch.equal(direct, found)
    assert [p.name for p in tmp_path.iterdir()] == ["x.gd"]


@pytest.mark.parametrize("kept", [0, 1, 200, 300])
@pytest.mark.parametrize("most", [1, 7, 300])
def test_some_rows_through_a_file(tmp_path: Path, kept: int, most: int) -> None:
    x = torch.arange(300, dtype=torch.float64)
    write_column(tmp_path / "x.gd", x)
    order = torch.randperm(300)[:kept].to(torch.int32)
    places = _core.RowOrder(order.numpy(), 300)

    def ranks(begin: int, end: int) -> torch.Tensor:
        return places.ranks(torch.arange(begin, end).numpy())

    with Workspace(tmp_path / "out") as space:
        raw = rewrite.raw_rows(_core.Column.open(str(tmp_path / "x.gd")))
        parts = list(rewrite.through_file(raw, 8, order, ranks, most, 11, space))
    assert [p for part in parts for p in part.view(torch.float64).view(-1)] == order.tolist()


def test_slots_in_small_pieces(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    indptr, indices = gz.open(store).contents.csc(None)
    for size in (1, 7, 10_000):
        monkeypatch.setattr(rewrite, "_SLAB_ROWS", size)
        parts = list(slot_ranges(_core.Topology.open(str(store / "edge/topology.gl"))))
        assert [s for slots, *_ in parts for s in slots] == list(range(3000))
        assert torch.equal(torch.cat([src for _, src, _ in parts]), indices.long())
        expected = torch.arange(300).repeat_interleave(indptr.diff())
        assert torch.equal(torch.cat([dst for *_, dst in parts]), expected)


@pytest.mark.parametrize(
    ("offset", "value", "part"),
    [(4096, 5, "indptr"), (4096 + 8 * 300, 1, "indptr"), (8192, 2**31, "indices")],
)
def test_a_damaged_topology(store: Path, offset: int, value: int, part: str) -> None:
    with (store / "edge/topology.gl").open("r+b") as file:
        file.seek(offset)
        file.write(value.to_bytes(4 if part == "indices" else 8, "little"))
    with pytest.raises(gz.FormatError, match=f"topology.gl: {part}: .*graphzero verify"):
        list(slot_ranges(_core.Topology.open(str(store / "edge/topology.gl"))))


# Verify, info, command line ######################################################################


@chunks.both
def test_verify_holds_order_against_rank(store: Path) -> None:
    gz.optimize(store, **ORDER)
    order = torch.from_numpy(np.fromfile(store / "node/order.gd", np.int32, 300, offset=4096))
    for changed, found in ((order.roll(1), int(order[-1])), (order - 1, int(order[0]) - 1)):
        with gz.open(store, "r+") as opened:
            opened.handle.editor.store.node_type(None).order = opened.handle.editor.files.column(
                "node", "other", changed
            )
            opened.handle.editor.commit()
        report = gz.open(store).verify()
        assert len(report.bad) == 1
        assert f"row 0: found {found}, expected a node whose rank is 0" in report.bad[0]
        result = CliRunner().invoke(main, ["verify", str(store)])
        assert result.exit_code == 1


@chunks.both
def test_verify_names_a_row_far_into_an_order(store: Path) -> None:
    gz.optimize(store, **ORDER)
    with gz.open(store, "r+") as opened:
        changed = opened.nodes_in_order().to(torch.int32)
        changed[[277, 280]] = changed[[280, 277]]
        opened.handle.editor.store.node_type(None).order = opened.handle.editor.files.column(
            "node", "other", changed
        )
        opened.handle.editor.commit()
    (line,) = gz.open(store).verify().bad
    assert f"row 277: found {changed[277]}, expected a node whose rank is 277" in line


def test_schema_with_half_an_order(store: Path) -> None:
    gz.optimize(store, **ORDER)

    def drop(body: dict) -> None:
        body["node_types"][0]["rank"] = None

    edit_schema(store, drop)
    with pytest.raises(gz.FormatError, match=r"order, rank: found 'node/order\.gd' and None"):
        gz.open(store)


def test_the_command_line(store: Path, tmp_path: Path) -> None:
    def run(*arguments: object):
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    options = ("--seeds", "train_idx", "--num-neighbors", "5,3", "--batch-size", 16)
    result = run("optimize", store, "-o", tmp_path / "new", *options, "--epochs", 1, "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.output)
    assert summary["num_batches"] == 4
    assert summary["path"] == str(tmp_path / "new")
    assert is_ordered(tmp_path / "new")
    again = run("optimize", store, *options, "--memory", "100GB", "--no-progress")
    assert again.output.startswith(f"{store}: ordered for train_idx, 8 batches counted, ")
    shown = run("info", store).output
    assert "format 2" in shown
    assert "optimized for train_idx (50 seeds), fan-out [5,3], batch size 16, 2.0 epochs" in shown
    assert "optimized" not in run("info", write_store(homogeneous(), tmp_path / "plain")).output
    missing = run("optimize", store, "--seeds", "none", "--num-neighbors", "5")
    assert missing.exit_code == 2
    assert missing.output.count("\n") == 1


# Memory and kills ################################################################################

CHILD = """
import sys
import pyg_graphzero as gz
from pyg_graphzero.util.workspace import MIN_ROOM
from pyg_graphzero.util.system import rss
print("ready", flush=True)
room = rss() + MIN_ROOM + int(sys.argv[2])
gz.optimize(sys.argv[1], seeds="train_idx", num_neighbors=[5, 3], memory=room, progress=False)
high = next(l for l in open("/proc/self/status") if l.startswith("VmHWM"))
print(room, int(high.split()[1]) << 10)
"""


def large_store(path: Path) -> None:
    """Rows and edges of some 200 MB: beyond the least that optimize may be given."""
    generator = torch.Generator().manual_seed(0)
    data = Data(
        x=torch.arange(400_000.0).view(-1, 1).expand(-1, 100).contiguous(),
        edge_index=torch.randint(0, 400_000, (2, 3_000_000), generator=generator),
        train_idx=torch.arange(0, 400_000, 40),
        num_nodes=400_000,
    )
    gz.convert(data, path, progress=False)


@pytest.mark.long
def test_memory_and_kills(tmp_path: Path) -> None:
    folder = tmp_path / "stores"
    folder.mkdir()
    path = folder / "s"
    large_store(path)
    command = [sys.executable, "-c", CHILD, str(path), str(32 << 20)]
    kept = 0
    for delay in (0, 0.1, 0.4):  # the first long before it can be done, however fast the machine
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        child.stdout.readline()
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        with gz.open(path) as store:
            assert (path / SCHEMA_FILE).exists()
            assert store.data().x[123_456, 0] == 123_456
            kept += not store.info()["node_types"][0]["is_ordered"]
    assert kept > 0
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    room, high = map(int, done.stdout.split()[-2:])
    assert high <= 1.1 * room
    assert os.listdir(folder) == ["s"]
    with gz.open(path) as store:
        assert store.verify().ok
        some = torch.randint(0, 400_000, (1000,))
        assert torch.equal(
            store.feature_store.get_tensor(None, "x", index=some)[:, 7], some.float()
        )


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "out-of-core.md"
    section = page.read_text().split("\n## Order\n")[1].split("\n## ")[0]
    (python,) = re.findall(r"```python\n(.*?)```", section, re.S)
    (shell,) = re.findall(r"```bash\n(.*?)```", section, re.S)
    write_store(homogeneous(), tmp_path / "my_graph")
    monkeypatch.chdir(tmp_path)
    exec(compile(python, str(page), "exec"), {})
    assert shell.startswith("graphzero ")
    assert CliRunner().invoke(main, shell.split()[1:]).exit_code == 0
    assert is_ordered(tmp_path / "my_graph")
