"""Loaders under a budget that is too small for their store: their batches, and the reads they plan.

Each configuration runs in a process of its own (``main`` forks it), in which ``reads.c`` records
each pread(). Conditions that could make reads differ from run to run are fixed there:

- the budget leaves the same bytes: ``reads.c`` gives the process a constant size;
- the speed of the disk is one that the package remembers (``XDG_CACHE_HOME``);
- the pool of threads reads (``GRAPHZERO_READER``), for io_uring calls no function of C's;
- the consumer asks for a batch when all threads are at rest, so that no window of batches is cut
  short because the consumer was early;
- rows are not copied in another order (``row_cache=False``), for which the clock is asked.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import numpy as np
import preload
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

import pyg_graphzero as gz
from pyg_graphzero.loader import HGTLoader, LinkNeighborLoader, NeighborLoader
from pyg_graphzero.util.disk import DiskSpeed, probe
from replay.batches import CITES, REVERSE, WRITES, digest_of, edges, numbers

MB = 10**6
#: Kilobytes that the process is said to have taken.
TAKEN_KB = 200_000
#: The read of a header, when a file is opened: no loader plans it.
HEADER = ("0", "4096")
SPEED = DiskSpeed("", 75_000.0, 1.3e9, 128, True, 1 << 30)
# Polls in a row in which no thread may run before all are at rest, and seconds between them.
_POLLS, _PAUSE = 4, 0.002


def wide(seed: int, num_rows: int, width: int) -> Tensor:
    """Distinct rows, cheaply: one row of random numbers, times a number each."""
    return numbers(seed, num_rows, 1) * numbers(seed + 100, width)


def rows() -> Data:
    """Features of 61 MB; neighbours fit into the budgets below."""
    data = Data(x=wide(1, 40_000, 384), edge_index=edges(40_000, 40_000, 400_000, 2))
    data.time = numbers(3, 40_000).mul(50).long()
    return data


def neighbours() -> Data:
    """Neighbours of 48 MB; features fit."""
    data = Data(x=numbers(4, 20_000, 16), edge_index=edges(20_000, 20_000, 12_000_000, 5))
    data.time = numbers(6, 20_000).mul(50).long()
    return data


def types() -> HeteroData:
    """Features of 46 and 20 MB."""
    data = HeteroData()
    data["paper"].x = wide(7, 30_000, 384)
    data["author"].x = wide(8, 20_000, 256)
    data[CITES].edge_index = edges(30_000, 30_000, 300_000, 9)
    data[WRITES].edge_index = edges(20_000, 30_000, 200_000, 10)
    data[REVERSE].edge_index = data[WRITES].edge_index.flip(0)
    return data


def make_stores(root: Path) -> None:
    """Stores of all configurations below ``root``."""
    quiet: dict[str, Any] = {"progress": False}
    gz.convert(rows(), root / "rows", **quiet)
    gz.convert(rows(), root / "float16", features="float16", **quiet)
    gz.convert(neighbours(), root / "neighbours", edge_ids=False, **quiet)
    gz.convert(types(), root / "types", **quiet)


def nodes(**options: Any) -> Callable[[Any], Any]:
    seeds = torch.arange(0, 20_000, 50)
    fixed = {"input_nodes": seeds, "num_neighbors": [4, 3], "batch_size": 20, "shuffle": True}
    return lambda data: NeighborLoader(data, **(fixed | options))


def hgt(data: Any) -> Any:
    return HGTLoader(data, [20, 10], ("paper", torch.arange(0, 30_000, 100)), batch_size=20)


def links(data: Any) -> Any:
    ends = edges(40_000, 40_000, 150, 11)
    options: dict[str, Any] = {"edge_label_index": ends, "neg_sampling": "binary"}
    return LinkNeighborLoader(data, [3, 2], batch_size=15, shuffle=True, **options)


def walks(data: Any) -> Iterator[Data]:
    walker = gz.sampler.RandomWalker(data, reverse=True)
    for first in range(0, 2000, 500):
        yield Data(walks=walker.walk(torch.arange(first, first + 500), walk_length=5))


PAPERS = {"input_nodes": ("paper", torch.arange(0, 30_000, 100))}
TIMES = {"time_attr": "time", "disjoint": True}
#: By name: the store, megabytes that the budget leaves, the loader, and its epochs.
READS: dict[str, tuple[str, int, Callable[[Any], Any], int]] = {
    "rows": ("rows", 60, nodes(), 1),
    "rows, two epochs": ("rows", 60, nodes(), 2),
    "rows, two workers": ("rows", 60, nodes(num_workers=2), 1),
    "rows, little memory": ("rows", 42, nodes(), 1),
    "rows, temporal": ("rows", 60, nodes(**TIMES), 1),
    "rows, links": ("rows", 60, links, 1),
    "rows, float16": ("float16", 46, nodes(), 1),
    "neighbours": ("neighbours", 60, nodes(), 1),
    "neighbours, temporal": ("neighbours", 60, nodes(**TIMES), 1),
    "neighbours, walks": ("neighbours", 60, walks, 1),
    "types": ("types", 60, nodes(**PAPERS), 1),
    "types, hgt": ("types", 60, hgt, 1),
}


def others() -> set[str]:
    """States of all threads but this one, by the kernel's letters."""
    found = set()
    for task in os.listdir("/proc/self/task"):
        if int(task) == threading.get_native_id():
            continue
        try:
            found.add(Path(f"/proc/self/task/{task}/stat").read_text().rpartition(")")[2][1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def wait_for_rest() -> None:
    """Returns when no thread has anything to do: all that was asked for is done."""
    quiet = 0
    while quiet < _POLLS:
        time.sleep(_PAUSE)
        is_done = not any(t.name.startswith("graphzero") for t in threading.enumerate())
        quiet = quiet + 1 if is_done and others() <= {"S"} else 0


def paced(loader: Any) -> Iterator[Any]:
    """An epoch whose consumer is slow."""
    batches = iter(loader)
    while True:
        wait_for_rest()
        try:
            yield next(batches)
        except StopIteration:
            return


def play(name: str, stores: Path) -> dict[str, Any]:
    """Runs a configuration in this process, which has ``reads.c`` preloaded."""
    store, room, make, epochs = READS[name]
    log = Path(os.environ["READS_LOG"])
    remember_speed(stores / store)
    log.write_text("")  # to look for the speed is to read
    opened = gz.open(stores / store, memory=(TAKEN_KB << 10) + room * MB, row_cache=False)
    torch.manual_seed(1)
    loader = make(opened.data())
    batches = digest_of(batch for _ in range(epochs) for batch in paced(loader))
    return {"batches": batches, "reads": summed(log.read_text())}


def remember_speed(path: Path) -> None:
    """Leaves the speed of a disk where the package looks for it, in this process's cache."""
    device = probe(path, seconds=0.01).device
    name = "".join(c if c.isalnum() else "-" for c in device)
    file = Path(os.environ["XDG_CACHE_HOME"], "pyg_graphzero", f"disk-{name}.json")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(SPEED) | {"format": 2, "device": device}))
    found = probe(path)
    if not found.remembered or found.random_iops != SPEED.random_iops:
        raise RuntimeError(f"{file}: the speed of the disk is not remembered")


def replayed(names: list[str], stores: Path) -> dict[str, dict[str, Any]]:
    """Hash of the batches, and the distinct reads of each file, of each configuration."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "found.json")
        environment = os.environ | {
            "LD_PRELOAD": str(preload.compiled(Path(__file__).with_name("reads.c"), Path(folder))),
            "READS_ROOT": os.path.realpath(stores),
            "READS_LOG": str(Path(folder, "reads")),
            "READS_RSS": str(TAKEN_KB),
            "XDG_CACHE_HOME": folder,
            "GRAPHZERO_READER": "pool",
            "OMP_WAIT_POLICY": "passive",
        }
        command = [sys.executable, __file__, str(stores), str(out), *names]
        subprocess.run(command, env=environment, check=True)
        found: dict[str, dict[str, Any]] = json.loads(out.read_text())
        return found


def summed(log: str) -> dict[str, str]:
    """By file, how many distinct reads there are, their bytes, and a hash of their places."""
    by_file: dict[str, set[tuple[int, int]]] = {}
    for line in log.splitlines():
        offset, size, file = line.split("\t")
        if (offset, size) != HEADER:
            by_file.setdefault(file.partition("/")[2], set()).add((int(offset), int(size)))
    found = {}
    for file, reads in sorted(by_file.items()):
        places = np.array(sorted(reads), dtype="<i8")
        digest = hashlib.sha256(places.tobytes()).hexdigest()[:16]
        found[file] = f"{len(reads):,} reads, {places[:, 1].sum():,} bytes, {digest}"
    return found


def main(stores: Path, out: Path, names: list[str]) -> None:
    """Plays each configuration in a fork, which has torch imported and nothing of the others."""
    context = multiprocessing.get_context("fork")
    found = {}
    for name in names:
        with context.Pool(1) as pool:
            found[name] = pool.apply(play, (name, stores))
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
