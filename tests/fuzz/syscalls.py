"""Every call by which a store changes, failed once and killed once; and what must hold afterwards.

A store is changed in a forked process whose n-th such call below the store's folder fails (the disk
is full from then on, or has one error), or in which the process is killed before it. For every n:
the store opens, is what it was or what it was to become, and verifies; trying again succeeds; and
once it was opened for writing no file is left that nothing names.

    python tests/fuzz/syscalls.py [--thorough] [--only NAME …]

prints what was tried as JSON, and exits with 1 at the first of these that does not hold.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import gc
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "support"))

import preload
import torch
from store_files import make_store
from torch_geometric.nn import GraphSAGE

import pyg_graphzero as gz
from pyg_graphzero.memory import costs

NODES = 50  # of the store
# Exit status of the process that changes the store.
DONE, REFUSED, BROKEN = 0, 3, 4

faults = ctypes.CDLL(None)
if is_preloaded := hasattr(faults, "faults_struck"):
    faults.faults_struck.restype = ctypes.c_char_p


@dataclass(frozen=True)
class Fault:
    """The fault of a call: an error, once or from then on where space is needed; or a kill."""

    name: str
    error: int
    stays: bool = False


FULL = Fault("full disk", errno.ENOSPC, True)
KILL = Fault("kill", 0)
ALL = (FULL, KILL, Fault("I/O error", errno.EIO), KILL)


def put(path: Path, attr: str) -> None:
    with gz.open(path, "r+") as store:
        store.feature_store[None, attr, None] = torch.ones(NODES, 2)


def remove(path: Path) -> None:
    with gz.open(path, "r+") as store:
        if "x" in store.data():
            store.feature_store.remove_tensor(None, "x", None)


def write_column(path: Path) -> None:
    with gz.open(path, "r+") as store:
        if "h" in store.data():
            return
        column = store.create_column("h", 2)
        rows = torch.arange(2.0 * NODES).view(NODES, 2)
        for start in range(0, NODES, 25):
            column.write(start, rows[start : start + 25])
        column.publish()


def discard_column(path: Path) -> None:
    with gz.open(path, "r+") as store:
        column = store.create_column("h", 2)
        column.write(0, torch.ones(10, 2))
        column.discard()


def optimize(path: Path) -> None:
    gz.optimize(path, seeds="train_idx", num_neighbors=[2], batch_size=4, progress=False)


def convert(path: Path) -> None:
    edges, x = torch.arange(120).view(2, 60) % NODES, torch.ones(NODES, 3)
    gz.convert(edges, path, node_attrs={"x": x}, force=True, progress=False)


def infer(path: Path, layers: int) -> None:
    torch.manual_seed(0)
    model = GraphSAGE(7, 4, layers, 2)
    try:
        gz.inference.layerwise(model, path, num_workers=0, max_edges=80, progress=False)
    except ValueError as error:
        # It was complete when it was killed: nothing but the last process's end was missing.
        if "not taken" not in str(error) or (path / "unpublished").exists():
            raise


OPERATIONS: dict[str, Callable[[Path], None]] = {
    "put_tensor": lambda path: put(path, "z"),
    "put_tensor over another": lambda path: put(path, "x"),
    "remove_tensor": remove,
    "create_column": write_column,
    "create_column, discarded": discard_column,
    "convert": lambda path: convert(path.with_name("new")),
    "convert over another": convert,
    "optimize": optimize,
    "inference": lambda path: infer(path, 2),
    "inference, one layer": lambda path: infer(path, 1),
}


# These change a store in one step, and say of an error whether it came before or after.
EDITS = [name for name in OPERATIONS if name.startswith(("put", "remove"))]


def content(path: Path) -> str:
    """A store's data and number of copies, as one word; empty if there is no store."""
    if not path.exists():
        return ""
    with gz.open(path) as store:
        found: dict[str, Any] = {"copies": len(list(path.glob("orders/*/order.json")))}
        data = store.data()
        for key in sorted(data.keys()):
            value = data[key]
            raw = value.numpy().tobytes() if isinstance(value, torch.Tensor) else repr(value)
            found[key] = hashlib.sha256(raw if isinstance(raw, bytes) else raw.encode()).hexdigest()
    return json.dumps(found)


def strangers(folder: Path) -> list[str]:
    """Files below ``folder`` that no store in it names."""
    named: set[Path] = set()
    for path in (folder / "store", folder / "new"):
        if not path.exists():
            continue
        named |= {path / "store.json", path / "lock"}
        named |= {path / name for name in json.loads((path / "store.json").read_text())["files"]}
        named |= {file for copy in path.glob("orders/[!.]*") for file in copy.rglob("*")}
    return [str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p not in named]


class BrokenPromiseError(Exception):
    """Something does not hold after a fault."""


@dataclass
class Trial:
    """One operation on a copy of the store, struck at one call."""

    name: str
    pristine: Path
    folder: Path

    def __post_init__(self) -> None:
        self.run = OPERATIONS[self.name]
        self.path = self.folder / "store"
        self.changed = self.folder / ("new" if self.name == "convert" else "store")

    def begin(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        shutil.copytree(self.pristine, self.path)

    def attempt(self, at: int = 0, fault: Fault = FULL) -> tuple[int, dict[str, Any]]:
        """Runs it, to be killed in a process of its own: exit status, and what there is to say."""
        if fault is KILL:
            child = os.fork()
            if child == 0:
                os._exit(self._run(at, fault)[0])
            _, status = os.waitpid(child, 0)
            return os.waitstatus_to_exitcode(status), {}
        return self._run(at, fault)

    def _run(self, at: int, fault: Fault) -> tuple[int, dict[str, Any]]:
        status, said = DONE, ""
        faults.faults_arm(str(self.folder).encode(), ctypes.c_long(at), fault.error, fault.stays)
        try:
            self.run(self.path)
        except OSError as error:
            status, said = REFUSED, str(error)
        except BaseException:
            status, said = BROKEN, traceback.format_exc()
        calls = faults.faults_disarm()
        return status, {"calls": calls, "error": said, "struck": faults.faults_struck().decode()}

    def check(self, status: int, said: dict[str, Any], fault: Fault, old: str, new: str) -> None:
        """Checks the promises that must hold after an attempt."""

        def must(holds: bool, what: str) -> None:
            if not holds:
                raise BrokenPromiseError(what)

        if fault is KILL:
            must(status == -signal.SIGKILL, f"ended with {status}: {said}")
        else:
            must(status in (DONE, REFUSED), f"ended with {status}: {said.get('error')}")
        seen = content(self.changed)
        must(seen in (old, new), f"neither the old nor the new content: {seen}")
        must(status != DONE or seen == new, "said to be done, and is not")
        if self.name in EDITS and status == REFUSED:
            is_said = "the new content is in place" in said["error"]
            must(is_said == (seen == new), f"not told which content is there: {said}")
        for path in {self.path, self.changed}:
            if path.exists():
                report = gz.open(path).verify()
                must(report.ok, str(report))
        status, said = self.attempt()
        must(status == DONE, f"trying again ended with {status}: {said.get('error')}")
        must(content(self.changed) == new, "trying again did not help")
        gz.open(self.path, "r+").close()
        must(not strangers(self.folder), f"left: {strangers(self.folder)}")
        left = sorted(set(os.listdir(self.folder)) - {"store", "new"})
        must(not left, f"left: {left}")

    def each(self, choose: Callable[[int], tuple[Fault, ...]]) -> Iterator[tuple[int, Fault, str]]:
        """Tries every call with every fault that is chosen for it."""
        self.begin()
        old = content(self.changed)
        status, said = self.attempt()
        if status != DONE:
            raise BrokenPromiseError(f"{self.name} without a fault: {status} {said}")
        new = content(self.changed)
        for at in range(1, said["calls"] + 1):
            for fault in choose(at):
                self.begin()
                status, struck = self.attempt(at, fault)
                try:
                    self.check(status, struck, fault, old, new)
                except Exception as error:
                    call = struck.get("struck", "")
                    raise BrokenPromiseError(
                        f"{self.name}: {fault.name} at call {at} {call}: {error!r}"
                    ) from error
                yield at, fault, struck.get("struck", "")


def campaign(only: list[str], thorough: bool) -> dict[str, int]:
    """Tries operations; how many calls of each were struck."""
    torch.set_num_threads(1)
    costs.SMALL_ROW = 8  # rows are wide enough for a copy
    gc.freeze()  # inference collects garbage, and need not look at all that was imported
    shared = Path("/dev/shm")  # nothing waits for a disk there
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as name:
        pristine = Path(name) / "pristine"
        make_store(pristine)
        for operation in only or OPERATIONS:
            trial = Trial(operation, pristine, Path(name) / "trial")
            counts[operation] = sum(
                1 for _ in trial.each(lambda at: ALL[:3] if thorough else (ALL[at % len(ALL)],))
            )
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thorough", action="store_true", help="every kind of fault at every call")
    parser.add_argument("--only", nargs="*", default=[], choices=list(OPERATIONS))
    given = parser.parse_args()
    if is_preloaded:
        print(json.dumps(campaign(given.only, given.thorough)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        library = preload.compiled(Path(__file__).with_suffix(".cpp"), Path(folder))
        # One thread: the n-th call is then always the same.
        environment = os.environ | {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}
        return subprocess.run([sys.executable, *sys.argv], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
