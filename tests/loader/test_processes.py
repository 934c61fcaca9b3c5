"""Workers and processes: interruption, loaders given up half-way, and what they leave behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import pythons
import torch

import pyg_graphzero as gz
from pyg_graphzero.loader import LinkNeighborLoader, NeighborLoader, ShaDowKHopSampler
from pyg_graphzero.util.system import usable_cores
from spawned import forked

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")


def processes_of_session(session: int) -> list[int]:
    """Processes still alive in a session; those that are only waited for do not count."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(entry.name))
    return found


def children() -> list[int]:
    return [process.pid for process in multiprocessing.active_children()]


def tasks() -> int:
    """Threads of this process, those of the engine among them."""
    for thread in threading.enumerate():
        if thread.name == "graphzero-load":  # reads files, and ends with these
            thread.join()
    return len(os.listdir("/proc/self/task"))


def settles(measure, target) -> bool:
    """Whether a measurement gets to its target: processes take a moment to go."""
    end = time.monotonic() + 30
    while measure() != target:
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def epochs(path: Path, workers: int, kind: type, sampling: Any) -> None:
    """Epochs until Ctrl-C, in a session of its own, as a shell would start it."""
    os.setsid()
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    loader = kind(gz.open(path).data(), [20, 20], batch_size=32, num_workers=workers)
    try:
        while True:
            for _ in loader:
                sampling.set()
    except KeyboardInterrupt:
        sys.exit(130)


@pytest.mark.parametrize(
    ("workers", "kind"), [(0, NeighborLoader), (2, NeighborLoader), (0, LinkNeighborLoader)]
)
def test_ctrl_c_in_the_middle_of_an_epoch(homo, workers, kind):
    sampling = forked().Event()
    process = forked().Process(target=epochs, args=(homo[1].path, workers, kind, sampling))
    process.start()
    try:
        assert sampling.wait(60)
        time.sleep(0.2)
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole group
        process.join(30)
        assert process.exitcode == 130
    finally:
        process.kill()
    assert settles(lambda: processes_of_session(process.pid), [])


@pytest.mark.parametrize("kind", [NeighborLoader, LinkNeighborLoader])
def test_no_python_runs_where_the_bindings_would_lose_a_ctrl_c(data, store, kind, monkeypatch):
    loaders = [kind(graph, [5, 3], batch_size=8) for graph in (store.data(), data)]

    calls = []
    dlpack = torch.Tensor.__dlpack__

    def counted(*args, **kwargs):
        calls.append(args)
        return dlpack(*args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "__dlpack__", counted)
    for loader in loaders:
        batch = loader([1, 2, 3])
        assert torch.equal(batch.x, data.x[batch.n_id])
    assert not calls


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
@pytest.mark.long
def test_exit_with_an_unfinished_iterator(homo, workers, persistent):
    code = """
        import sys, warnings
        import pyg_graphzero as gz
        warnings.simplefilter("error", ResourceWarning)
        loader = gz.loader.NeighborLoader(
            gz.open(sys.argv[1]).data(), [5], batch_size=8, num_workers=int(sys.argv[2]),
            persistent_workers=sys.argv[3] == "True",
        )
        iterator = iter(loader)
        print(next(iterator).batch_size)
    """
    done = pythons.run(code, homo[1].path, workers, persistent, threads=1)
    assert (done.returncode, done.stdout, done.stderr) == (0, "8\n", "")


def test_no_process_is_started_and_threads_end_with_the_epoch(homo):
    loader = NeighborLoader(homo[1], [5], batch_size=10, num_workers=3)
    list(loader)  # what torch starts at its first use is there from now on
    before = tasks()
    iterator = iter(loader)
    next(iterator)
    assert tasks() - before == 3
    assert children() == []
    list(iterator)
    assert settles(tasks, before)


@pytest.mark.parametrize("kind", [NeighborLoader, LinkNeighborLoader])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("per_worker", [True, False])
def test_a_loader_dropped_half_way_leaves_no_worker(store, kind, persistent, per_worker):
    """No process, thread, open file or map of the store stays, without a wait for the collector."""

    def use() -> None:
        loader = kind(
            gz.open(store.path), [5], batch_size=8, num_workers=2,
            persistent_workers=persistent, filter_per_worker=per_worker,
        )  # fmt: skip
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)

    def maps() -> int:
        return Path("/proc/self/maps").read_text().count(str(store.path))

    def left() -> tuple[int, int, int]:
        gc.collect()  # multiprocessing's own queues
        return threading.active_count(), len(os.listdir("/proc/self/fd")), maps()

    def no_more_left() -> bool:
        return all(now <= then for now, then in zip(left(), before, strict=True))

    use()
    assert settles(children, [])
    before = left()
    gc.disable()  # workers end when the last reference to them goes
    try:
        for _ in range(3):
            use()
            assert settles(children, [])
    finally:
        gc.enable()
    assert settles(no_more_left, True), (left(), before)


def test_threads_are_no_processes_to_warn_of(homo, recwarn):
    """Torch warns of more worker processes than cores, when a loader is made and used."""
    data = homo[1].data()
    many = {"num_workers": usable_cores() + 1, "batch_size": 50}
    for loader in (
        NeighborLoader(data, [2], **many),
        LinkNeighborLoader(data, [2], **many),
        ShaDowKHopSampler(data, 1, 2, **many),
    ):
        next(iter(loader))
    assert not recwarn.list

    class Own(NeighborLoader):
        def collate_fn(self, index):
            return super().collate_fn(index)

    with pytest.warns(UserWarning, match="This DataLoader will create"):
        Own(data, [2], **many)  # its workers are processes


def test_the_loader_lives_as_long_as_its_iterator(store):
    iterator = iter(NeighborLoader(store.data(), [5], batch_size=100, num_workers=1))
    gc.collect()
    assert len(list(iterator)) == 3
    iterator = iter(NeighborLoader(store.data(), [5], batch_size=100, filter_per_worker=False))
    assert len(list(iterator)) == 3
