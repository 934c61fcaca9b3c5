"""The order in which files must reach the disk; and stores after a power failure at any instant.

A process that is killed leaves what it wrote in the page cache, so that no test that kills sees
whether anything was synced. Here one process works, all it does to its files is recorded, and what
a disk may hold at many instants of it is opened.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path

import pytest
import torch
from power_loss import Disk, Event, File, Folder, read_record, record, write_out

import pyg_graphzero as gz
from graphs import homogeneous
from pyg_graphzero import _core

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="preloads a library")

CUTS = 6  # of each step, beside those at renames; more would only take longer
ROWS, WIDTH = 300, 1000  # three blocks and more, pages that are not all of one row

WORK = """
import sys
from pathlib import Path

import torch
from torch_geometric.nn import GraphSAGE

import pyg_graphzero as gz
from graphs import homogeneous

root = Path(sys.argv[1])
path = root / "store"
torch.manual_seed(0)


def mark(name):
    try:
        open(f"/recorder/{name}")
    except FileNotFoundError:
        pass


def rows(seed):
    return torch.full((300, 1000), seed) + torch.arange(300)[:, None]


data = homogeneous(300, 2500)
data.wide = torch.arange(6000.0).view(300, 20)
mark("convert")
gz.convert(data, path, progress=False)
mark("replace")
gz.convert(data, path, progress=False, force=True, features="float16")
with gz.open(path, mode="r+") as store:
    mark("put_tensor")
    features = store.feature_store
    features.put_tensor(torch.arange(300), None, "age", None)
    mark("put_tensor_again")
    features.put_tensor(torch.arange(300) * 2, None, "age", None)
    mark("remove_tensor")
    features.remove_tensor(None, "age", None)
    mark("create_csr")
    store.create_csr()
    mark("create_column")
    column = store.create_column("h", 1000, dtype=torch.int64)
    column.write(100, rows(1000)[100:])
    column.write(0, rows(1000)[:150])
    mark("publish")
    column.publish()
    mark("discard")
    other = store.create_column("other", 3, dtype=torch.int64)
    other.write(0, torch.ones(300, 3, dtype=torch.int64))
    other.discard()
mark("infer")
gz.inference.layerwise(GraphSAGE(8, 4, 2, 3), path, out="z", max_edges=600, progress=False)
mark("optimize")
gz.optimize(path, seeds=torch.arange(50), num_neighbors=[3, 3], batch_size=20)
mark("end")
"""


@pytest.fixture(scope="module")
def events(built_once):
    support = str(Path(__file__).parents[1] / "support")
    script = f"import sys\nsys.path.insert(0, {support!r})\n{WORK}"
    return read_record(built_once("recorded", lambda folder: record(script, folder)) / "record")


def steps_of(events: list[Event]) -> dict[str, list[Event]]:
    """Events of a process between two marks, by the first one's name."""
    steps: dict[str, list[Event]] = {}
    for event in events:
        if event.kind == "mark":
            steps[event.path] = []
        elif steps:
            steps[[*steps][-1]].append(event)
    return steps


def root_of(events: list[Event]) -> str:
    path = next(event.path for event in events if event.path.endswith(tuple("0123456789abcdef")))
    return path.split("/watched/")[0] + "/watched"


def is_lasting(path: str) -> bool:
    """Whether it is part of a store; not a lock, a draft, or what is being built beside a store."""
    passing = (".partial-", ".scratch-", "unpublished")
    return not path.endswith("lock") and not any(part in path for part in passing)


def walk(events: list[Event]) -> Iterator[tuple[str, Disk, Event]]:
    """Every event with its step, and the disk before it."""
    disk, step = Disk(root_of(events)), ""
    for event in events:
        yield step, disk, event
        if event.kind == "mark":
            step = event.path
        else:
            disk.apply(event)


def unsynced(disk: Disk, node: File | Folder | None) -> list[str]:
    return [name for name, found in disk.files(node) if found.pending and is_lasting(name)]


def test_files_are_synced_before_they_get_a_name(events):
    """Names are given by renames: of a document, of a whole store. No other order is safe."""
    seen = 0
    for step, disk, event in walk(events):
        if event.kind in ("rename", "exchange") and is_lasting(event.other):
            seen += 1
            assert unsynced(disk, disk.find(event.path)) == [], (step, event.path)
    assert seen >= 11


def test_files_of_a_document_are_synced_before_it_replaces_another(events):
    """``store.json`` names files, in folders: their bytes and their names are safe before."""
    for step, disk, event in walk(events):
        if event.kind != "rename" or not event.other.endswith("/store.json"):
            continue
        store = disk.find(event.other.removesuffix("/store.json"))
        fresh = disk.find(event.path)
        assert isinstance(store, Folder)
        assert isinstance(fresh, File)
        for name in json.loads(fresh.content())["files"]:
            folder, file = name.split("/")
            lies_in = store.names()[folder]
            assert isinstance(lies_in, Folder)
            assert lies_in.pending == [], (step, folder)
            assert lies_in.names()[file].pending == [], (step, name)


def test_everything_is_synced_at_the_end_of_each_step(events):
    """When a call returns, what it has done lasts. Files may come back that it removed."""
    for step, disk, event in walk(events):
        if event.kind != "mark" or step == "":
            continue
        for name, node in disk.files():
            if not is_lasting(name):
                continue
            if isinstance(node, File):
                assert node.pending == [], (step, name)
            else:
                kept = node.names()
                lost = [n for n in kept if kept[n] is not node.synced.get(n) and is_lasting(n)]
                assert lost in ([], ["orders"]), (step, name)  # training makes copies anew


def is_row(offset: int) -> bool:
    """Whether a write there is one of rows; the table of checksums and the header are none."""
    return 4096 <= offset < 4096 + ROWS * WIDTH * 8


def test_rows_are_synced_before_the_header_that_says_they_are_there(events):
    """A draft with a header is a layer that a run has finished."""
    headers = 0
    for step, disk, event in walk(events):
        if event.kind == "write" and "--h." in event.path and event.offset == 0:
            draft = disk.find(event.path)
            assert isinstance(draft, File)
            assert [at for at, data in draft.pending if data is not None and is_row(at)] == [], step
            headers += 1
    assert headers == 1


def fingerprint(path: Path) -> str | None:
    """Digest of a store's data; None where there is no store."""
    if not path.exists():
        return None
    with gz.open(path) as store:
        report = store.verify()
        assert report.ok, report.bad
        data = store.data()
        digest = hashlib.sha256()
        for name in sorted(data.keys()):
            value = data[name]
            # A run that is under way has columns of its own, with a dot in their names.
            if isinstance(value, torch.Tensor) and "." not in name:
                digest.update(name.encode() + value.contiguous().numpy().tobytes())
        return digest.hexdigest()


def cuts_of(events: list[Event]) -> list[int]:
    """Before each rename and after it, and some others."""
    count = len(events)
    steps = {round(i * count / CUTS) for i in range(CUTS + 1)}
    for i, event in enumerate(events):
        if event.kind in ("rename", "exchange"):
            steps |= {i, i + 1}
    return sorted(steps)


def disks_of(events: list[Event], name: str, folder: Path) -> Iterator[Path]:
    """Directories that may be left of a step that the power ended."""
    disk, seen = Disk(root_of(events)), set[str]()
    for step, done in steps_of(events).items():
        cuts = set(cuts_of(done)) if step == name else set()
        for i, event in enumerate([*done, None]):
            for seed in (None, 0, 1, 2 + i) if i in cuts else ():
                left = disk.remains(seed)
                digest = hashlib.sha256(repr(list(left)).encode())
                for content in left.values():
                    digest.update(content or b"")
                if digest.hexdigest() not in seen:
                    yield write_out(left, folder / str(len(seen)))
                    shutil.rmtree(folder / str(len(seen)))
                seen.add(digest.hexdigest())
            if event is not None:
                disk.apply(event)


STEPS = re.findall(r'mark\("(\w+)"\)', WORK)[:-1]


@pytest.fixture(scope="module")
def states(events, tmp_path_factory):
    """Fingerprints of the store before and after each step, by the step's name."""
    folder = tmp_path_factory.mktemp("states")
    disk, found = Disk(root_of(events)), list[str | None]()
    steps = steps_of(events)
    for step, done in steps.items():
        left = write_out(disk.remains(None), folder / step)
        found.append(fingerprint(left / "store"))
        for event in done:
            disk.apply(event)
    return dict(zip(steps, pairwise(found), strict=False))


@pytest.mark.parametrize("step", STEPS)
def test_the_store_is_old_or_new(events, states, step, tmp_path):
    if step == "replace" and _core.system != "linux":
        pytest.skip("needs Linux: directories are exchanged in one step")
    found = set()
    for left in disks_of(events, step, tmp_path):
        found.add(fingerprint(left / "store"))
    assert found == set(states[step])


def test_inference_goes_on_after_the_power_failed(events, tmp_path):
    from torch_geometric.nn import GraphSAGE

    found = []
    for number, left in enumerate(disks_of(events, "infer", tmp_path)):
        path = left / "store"
        with gz.open(path) as store:
            is_done = "z" in store.data()
        if not is_done and number % 8:
            continue
        if not is_done:
            torch.manual_seed(0)
            model = GraphSAGE(8, 4, 2, 3)
            gz.inference.layerwise(model, path, out="z", max_edges=600, progress=False)
        with gz.open(path) as store:
            assert store.verify().ok
            found.append(store.data().z.clone())
    assert len(found) > 5
    for z in found[1:]:
        assert torch.equal(z, found[0])


def publish(store: gz.Store) -> None:
    column = store.create_column("h", 1)
    column.write(0, torch.ones(30, 1))
    column.publish()


CHANGES = {
    "publish": publish,
    "put": lambda store: store.feature_store.put_tensor(torch.arange(30), None, "age", None),
    "replace": lambda store: store.feature_store.put_tensor(torch.zeros(30, 2), None, "x", None),
    "remove": lambda store: store.feature_store.remove_tensor(None, "x", None),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_sync_that_fails_says_which_content_is_there(name, tmp_path, monkeypatch):
    """Until ``store.json`` is replaced the old one; then the new one, and the old files."""
    pristine = tmp_path / "pristine"
    gz.convert(homogeneous(30, 90), pristine, progress=False)
    old, left = fingerprint(pristine), 0

    def failing(sync):
        def synced(what):
            nonlocal left
            left -= 1
            if left == 0:
                raise OSError(errno.EIO, "Input/output error")
            sync(what)

        return synced

    monkeypatch.setattr(_core, "sync_directory", failing(_core.sync_directory))
    monkeypatch.setattr(os, "fsync", failing(os.fsync))
    found = []
    for at in count(1):
        path = shutil.copytree(pristine, tmp_path / str(at))
        with gz.open(path, mode="r+") as store:
            left = at
            try:
                CHANGES[name](store)
            except OSError as error:
                found.append(("the new content is in place" in str(error), fingerprint(path)))
            else:
                break
        if found[-1][0]:
            shutil.copy(pristine / "store.json", path)  # as a power failure may
            assert fingerprint(path) == old
    new = fingerprint(path)
    assert new != old
    assert found == [(False, old)] * (len(found) - 1) + [(True, new)]
    assert len(found) > 2
