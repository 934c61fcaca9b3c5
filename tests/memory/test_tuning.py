"""What is found out behind an epoch: it fails, it is given up, it outlives nobody."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

from tuned import ROOM, assert_same, epoch, tuned
from tuned import training as begun

from pyg_graphzero.memory import tuning
from pyg_graphzero.memory.pager import pager_of
from pyg_graphzero.memory.tuning import Task, Tuning


def training(path):
    return begun(path, order="off")


def pager(loader):
    return pager_of(loader.graph_sampler.graph.contents)


def test_a_fault_is_told_once_and_changes_nothing(skewed, monkeypatch, caplog):
    begun, begin = [], Tuning.begin

    def counted(task, orders):
        begun.append(task.loader)
        return begin(task, orders)

    def broken(*args):
        raise RuntimeError("a fault")

    expected = epoch(training(skewed))[0]
    monkeypatch.setattr(Tuning, "begin", counted)
    monkeypatch.setattr(tuning, "choose_plan", broken)
    loader = training(skewed)
    with caplog.at_level(logging.WARNING, "pyg_graphzero"):
        for _ in range(3):
            assert_same(epoch(loader)[0], expected)
            tuned(loader)
    assert caplog.text.count("memory is used as before") == 1
    assert begun == [loader]
    # What the thread took is given back.
    assert pager(loader).memory_plan.baseline == pager(loader)._baseline


def test_batches_that_leave_no_room_for_it_end_it(skewed, monkeypatch):
    waiting = threading.Event()

    def forever(*args, each, **options):
        waiting.set()
        while True:
            each()

    expected, loader = epoch(training(skewed))[0], training(skewed)
    monkeypatch.setattr(tuning, "profile", forever)  # of this loader alone: its thread is ended
    next(iter(loader))
    assert waiting.wait(60)
    thread = pager(loader).tuning.thread
    monkeypatch.setattr(Task, "has_room", lambda task, beside: False)
    pager(loader).files = None  # as if others began, whose batches are larger
    assert_same(epoch(loader)[0], expected)
    assert not thread.is_alive()
    assert pager(loader).tuning is None


def test_a_process_that_ends_meanwhile(skewed):
    code = f"""
import pyg_graphzero as gz
from pyg_graphzero.memory import tuning
from pyg_graphzero.util.system import private_rss

def forever(*args, each, **options):
    print("begun", flush=True)
    while True:
        each()

tuning.profile = forever
data = gz.open({str(skewed)!r}, memory=private_rss() + {ROOM}, order="off").data()
loader = gz.loader.NeighborLoader(data, [8, 4], input_nodes=data.train_mask, batch_size=128)
print(next(iter(loader)).num_nodes > 128)
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert found.returncode == 0, found.stderr
    assert set(found.stdout.split()) == {"begun", "True"}
