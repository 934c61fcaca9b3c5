"""``gz.optimize``: training reads by a copy of the rows that it uses, from its first epoch on."""

from __future__ import annotations

import errno
import importlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import chunks
import numpy as np
import pytest
import torch
from budgets import budget_beside
from commands import graphzero
from paging import paged
from pythons import run
from torch_geometric.data import Data

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous, write_store
from pyg_graphzero.memory import making
from pyg_graphzero.memory.needs import needs_of
from pyg_graphzero.tune.seeds import choose_seeds
from replay.batches import digest_of

SAMPLED: dict[str, Any] = {"num_neighbors": [5, 3], "batch_size": 16}
OPTIMIZE = SAMPLED | {"seeds": "train_idx", "progress": False}


def graph() -> Data:
    """Rows wide enough for a copy, in any encoding."""
    data = homogeneous()
    data.x = torch.randn(300, 80)
    data.time = torch.randint(0, 50, (300,))
    return data


@pytest.fixture
def store(tmp_path):
    return write_store(graph(), tmp_path / "store")


def epoch(path: Path, out_of_core: bool = True, row_cache: Any = "auto", **options: Any) -> Any:
    """Hash of an epoch's batches, and whether rows were read from a copy."""
    with paged(out_of_core):
        data = gz.open(path, row_cache=row_cache).data()
        if "input_nodes" not in options:
            options["input_nodes"] = data.train_idx
        torch.manual_seed(3)
        loader = gz.loader.NeighborLoader(data, shuffle=True, **SAMPLED | options)
        return digest_of(loader), loader.stats().reordered


def copies(path: Path) -> list[str]:
    folder = path / "orders"
    return sorted(os.listdir(folder)) if folder.exists() else []


@pytest.mark.parametrize("features", ["float32", "float16", "int8"])
def test_the_first_epoch_reads_by_the_copy(tmp_path, features):
    path = tmp_path / "store"
    gz.convert(graph(), path, features=None if features == "float32" else features, progress=False)
    expected = epoch(path, out_of_core=False)[0]
    assert epoch(path) == (expected, False)
    summary = gz.optimize(path, **OPTIMIZE)
    assert epoch(path) == (expected, True)
    assert epoch(path, input_nodes=gz.open(path).data().train_idx.flip(0))[1]
    assert epoch(path, row_cache=False) == (expected, False)
    assert summary.path.parent == path / "orders"
    assert list(gz.info(path)["copies"]) == [str(summary.path)]
    width = 80 * {"float32": 4, "float16": 2, "int8": 1}[features]
    neighbours = summary.num_bytes - width * summary.used[""]
    assert 0 < neighbours <= (path / "edge" / "topology.gl").stat().st_size
    assert gz.verify(path).ok
    assert epoch(path, out_of_core=False) == (expected, False)


def test_rows_of_several_types(tmp_path):
    data = heterogeneous()
    for name in ("paper", "author"):
        data[name].x = torch.randn(data[name].num_nodes, 80)
    path = write_store(data, tmp_path / "store")
    with pytest.raises(ValueError, match="found no node with such rows in any batch"):
        gz.optimize(path, **OPTIMIZE | {"seeds": ("venue", [0]), "num_neighbors": [0]})
    options = {"input_nodes": ("paper", data["paper"].train_mask)}
    expected = epoch(path, out_of_core=False, **options)[0]
    summary = gz.optimize(path, **OPTIMIZE | {"seeds": "train_mask"})
    assert {name for name in summary.used if summary.used[name]} == {"paper", "author"}
    parts = json.loads((summary.path / "order.json").read_text())["parts"]
    assert {part["name"] for part in parts if part["lists"] is None} == {"paper", "author"}
    assert epoch(path, **options) == (expected, True)


def test_a_copy_that_a_loader_removes_meanwhile(store, monkeypatch):
    def remove(folder: Any, key: str) -> int:
        shutil.rmtree(folder.path / key)
        raise FileNotFoundError(folder.path / key)

    first = gz.optimize(store, **OPTIMIZE)
    monkeypatch.setattr("pyg_graphzero.store.copies.CopyFolder.remove", remove)
    assert gz.optimize(store, **OPTIMIZE).path == first.path
    assert copies(store) == [first.path.name]


CHANGES: list[dict[str, Any]] = [
    {"num_neighbors": [5, 4]},
    {"batch_size": 8},
    {"replace": True},
    {"time_attr": "time"},
    {"subgraph_type": "induced", "num_neighbors": [2]},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_loaders_that_sample_in_another_way_do_not_find_it(store, change):
    gz.optimize(store, **OPTIMIZE | change)
    assert epoch(store)[1] is False
    assert epoch(store, **change)[1] is True
    gz.optimize(store, **OPTIMIZE)
    assert epoch(store)[1] is True
    assert len(copies(store)) == 2
    assert epoch(store, input_nodes=torch.arange(50))[1] is False


@pytest.mark.parametrize("changes", [1, 2])
def test_rows_that_were_changed_are_not_read_from_it(store, changes):
    """Not even where the new file has the name that the old one had."""
    gz.optimize(store, **OPTIMIZE)
    with gz.open(store, mode="r+") as opened:
        for _ in range(changes):
            opened.feature_store.put_tensor(torch.randn(300, 80), None, "x", None)
    assert (store / "node/x.gd").exists() == (changes == 2)
    assert epoch(store) == (epoch(store, out_of_core=False)[0], False)


def test_other_edges_have_another(store):
    """Where the batch that is looked at first is the same, but not those after it."""

    def first_batch() -> torch.Tensor:
        data = gz.open(store).data()
        loader = gz.loader.NeighborLoader(data, [5], data.train_idx, batch_size=16)
        return needs_of(loader).trial[0]

    first = first_batch()
    gz.optimize(store, **OPTIMIZE | {"num_neighbors": [5]})
    data = gz.open(store).data().clone()
    src, dst = (ends.clone() for ends in data.edge_index)
    elsewhere = ~torch.isin(dst, first)
    src[elsewhere] = src[elsewhere].flip(0)
    data.edge_index = torch.stack([src, dst])
    gz.convert(data, store.with_name("other"), progress=False)
    (store / "orders").rename(store.with_name("other") / "orders")
    store = store.with_name("other")
    assert torch.equal(first_batch(), first)
    assert epoch(store, num_neighbors=[5])[1] is False


def test_again_replaces_it_under_a_loader_that_reads_it(store):
    expected = epoch(store, out_of_core=False)
    first = gz.optimize(store, **OPTIMIZE)
    before = (first.path / "order.json").stat().st_mtime_ns
    with paged():
        data = gz.open(store).data()
        torch.manual_seed(3)
        loader = gz.loader.NeighborLoader(data, input_nodes=data.train_idx, shuffle=True, **SAMPLED)
        batches = iter(loader)
        found = [next(batches)]
        assert gz.optimize(store, **OPTIMIZE).path == first.path
        found += batches
    assert loader.stats().reordered
    assert (digest_of(found), False) == expected
    assert (first.path / "order.json").stat().st_mtime_ns != before
    assert copies(store) == [first.path.name]


@chunks.both
def test_the_summary_counts_what_batches_use(store):
    """All neighbours of all seeds at once: each node that is used is so once in every batch."""
    options: dict[str, Any] = {"num_neighbors": [-1], "batch_size": 50}
    summary = gz.optimize(store, **OPTIMIZE | options)
    (batch,) = gz.loader.NeighborLoader(gz.open(store), input_nodes=graph().train_idx, **options)
    used = batch.num_nodes
    assert summary.used == {"": used}
    rows = np.fromfile(summary.path / "0/rows.gd", np.int32, used, offset=4096)
    assert sorted(rows) == sorted(batch.n_id.tolist())


def test_the_copy_of_a_store_that_cannot_be_written_to(store, in_cache):
    expected = epoch(store)[0]
    assert in_cache in gz.optimize(store, **OPTIMIZE).path.parents
    assert in_cache in gz.optimize(store, **OPTIMIZE).path.parents
    assert epoch(store) == (expected, True)
    assert copies(store) == []
    assert graphzero("clean", store).output.startswith(f"{store}: 1 removed")
    assert epoch(store) == (expected, False)


def test_nowhere_to_write_to(store, monkeypatch):
    monkeypatch.setattr(making, "is_writable", lambda folder: False)
    with pytest.raises(PermissionError, match="Neither the store nor a cache can be written"):
        gz.optimize(store, **OPTIMIZE)


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("name", "value"), [("copies._FREE_SHARE", 1.0), ("copy_writer.write_parts", full)]
)
def test_no_room_on_disk(store, monkeypatch, name, value):
    """Found out before, or when all but the document is written."""
    monkeypatch.setattr(f"pyg_graphzero.store.{name}", value)
    with pytest.raises(OSError, match="No space") as caught:
        gz.optimize(store, **OPTIMIZE)
    assert caught.value.errno == errno.ENOSPC
    assert copies(store) == []
    assert os.listdir(store.parent) == ["store"]
    assert epoch(store)[1] is False


def test_refusals(store, tmp_path):
    (tmp_path / "words").write_text("one\n")
    for change, error, message in (
        ({"seeds": "test_idx"}, ValueError, "no such index set, mask or file; there are: "),
        ({"seeds": tmp_path / "words"}, ValueError, "words: file: found .*, expected numbers"),
        ({"seeds": []}, ValueError, "seeds: found none in what was given"),
        ({"seeds": [300]}, IndexError, "found node 300"),
        ({"num_neighbors": [-2]}, ValueError, "found -2"),
        ({"batch_size": 0}, ValueError, "positive integer value, but got batch_size=0"),
        ({"memory": 1000}, gz.MemoryBudgetError, "expected .*MB or more"),
        ({"epochs": 2}, TypeError, "unexpected keyword argument 'epochs'"),
    ):
        with pytest.raises(error, match=message):
            gz.optimize(store, **(OPTIMIZE | change))
    with pytest.raises(FileNotFoundError):
        gz.optimize(tmp_path / "none", **OPTIMIZE)
    narrow = write_store(homogeneous(), tmp_path / "narrow")
    message = "narrow: found no attribute of nodes with rows of more than 64 bytes, expected one"
    with pytest.raises(ValueError, match=message):
        gz.optimize(narrow, **OPTIMIZE)
    assert copies(store) == []
    assert sorted(os.listdir(tmp_path)) == ["narrow", "store", "words"]


def test_too_little_memory_for_tables(store, monkeypatch):
    module = importlib.import_module("pyg_graphzero.tune.optimize")  # gz.optimize is the function
    monkeypatch.setattr(module, "making_bytes", lambda graph, lists: 300 << 20)
    with pytest.raises(gz.MemoryBudgetError, match="for tables with an entry for every node"):
        gz.optimize(store, memory=budget_beside(100 << 20), **OPTIMIZE)


def test_neighbours_that_do_not_fit_are_read_for_one_epoch(store, monkeypatch):
    whole = gz.optimize(store, **OPTIMIZE)
    module = importlib.import_module("pyg_graphzero.tune.optimize")
    monkeypatch.setattr(module, "sampling_bytes", lambda needs: 1 << 60)
    summary = gz.optimize(store, **OPTIMIZE)
    assert (whole.path, whole.num_batches) == (summary.path, 2 * summary.num_batches)
    assert 0 < summary.used[""] <= whole.used[""]
    assert epoch(store) == (epoch(store, out_of_core=False)[0], True)
    with pytest.raises(gz.MemoryBudgetError, match="all neighbours, which method='labor' looks"):
        gz.optimize(store, **OPTIMIZE, options=gz.SamplingOptions(method="labor"))


def test_the_command_line(store):
    options = ("--seeds", "train_idx", "--num-neighbors", "5,3", "--batch-size", 16)
    summary = json.loads(graphzero("optimize", store, *options, "--json").output)
    assert summary["num_batches"] == 8
    assert Path(summary["path"]).parent == store / "orders"
    assert epoch(store)[1] is True
    again = graphzero("optimize", store, *options, "--memory", "100GB", "--no-progress").output
    assert again.startswith(f"{summary['path']}: ")
    assert " in the order of their use by train_idx, 8 batches counted, " in again
    size = sum(file.stat().st_size for file in (store / "orders").rglob("*.*"))
    (store / "orders" / ".abandoned.partial-00").mkdir()
    assert graphzero("clean", store).output == f"{store}: 1 removed, {size:,} bytes\n"
    assert not (store / "orders").exists()
    assert graphzero("clean", store).output == f"{store}: 0 removed, 0 bytes\n"
    graphzero("clean", store / "node", code=2)
    for arguments in (("--seeds", "none", "--num-neighbors", "5"), (*options, "-o", "other")):
        refused = graphzero("optimize", store, *arguments, code=2)
    assert "No such option" in refused.output
    wrong = "--seeds", "train_idx", "--num-neighbors", "5;3"
    refused = graphzero("optimize", store, *wrong, code=2)
    assert "found '5;3', expected values with commas between them" in refused.output


# Seeds ###########################################################################################


def seeds_of(path: Path, **options: Any) -> tuple[str, list[int]]:
    chosen = choose_seeds(gz.open(path).data(), **options)
    return chosen.name, chosen.nodes.tolist()


def test_seeds_by_name_file_and_value(store, tmp_path):
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


def test_seeds_of_a_type(tmp_path):
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


# Memory and kills ################################################################################

CHILD = """
import sys
import torch
import pyg_graphzero as gz
from pyg_graphzero.util.system import private_rss
room = private_rss() + (200 << 20)
seeds = torch.arange(0, 400_000, 40)
gz.optimize(sys.argv[1], seeds=seeds, num_neighbors=[5, 3], memory=room, progress=False)
high = next(l for l in open("/proc/self/status") if l.startswith("VmHWM"))
print(room, int(high.split()[1]) << 10)
"""


@pytest.mark.long
def test_memory(tmp_path):
    """Rows of 160 MB, most of which are used: more than there is room for."""
    edges = torch.randint(0, 400_000, (2, 3_000_000))
    path = write_store(Data(x=torch.ones(400_000, 100), edge_index=edges), tmp_path / "store")
    done = run(CHILD, path)
    assert done.stderr == ""
    room, high = map(int, done.stdout.split())
    assert high <= 1.1 * room
    assert gz.verify(path).ok
