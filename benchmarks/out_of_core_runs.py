"""The runs of ``out_of_core.py``: on which graph, with what, and one of them from start to end."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import pyg_graphzero as gz
from pyg_graphzero.bench.cap import MemoryCap
from pyg_graphzero.bench.communities import CommunityGraph
from pyg_graphzero.bench.entrant import ENVIRONMENT
from pyg_graphzero.bench.page_cache import drop, resident_bytes, warm
from pyg_graphzero.bench.timeline import Timeline
from pyg_graphzero.util.disk import probe
from pyg_graphzero.util.workspace import parse_size

GROUPS = ("stock", "memmap", "graphbolt", "default", "ours", "train", "topology")
# Points of a timeline that are kept for the report.
_POINTS = 300
# A run begins cold when less than this share of its store is in the page cache.
_COLD = 0.02
_CHILD = Path(__file__).with_name("out_of_core_child.py")


@dataclass(frozen=True)
class Run:
    """One line of the table.

    Attributes:
        name: What the table calls it.
        group: One of ``GROUPS``.
        contestant: Name of its class.
        store: ``f32``, ``f16``, ``f32-opt`` or ``f16-opt``.
        limit: On its memory, bytes; None without.
        epochs: How many.
        seconds: An epoch is cut short after so long.
        batches: Of an epoch; 0 for all seeds.
        workers: ``num_workers``.
        train: With training.
        cold: Whether it begins with nothing of its store in the page cache; else with all of it.
        options: For its class.
    """

    name: str
    group: str
    contestant: str
    store: str
    limit: int | None
    epochs: int
    seconds: float
    batches: int
    workers: int = 0
    train: bool = False
    cold: bool = True
    options: dict[str, Any] = field(default_factory=dict)


def choose(args: argparse.Namespace, limit: int, small: int) -> list[Run]:
    """The runs that were asked for."""
    some = {"limit": limit, "epochs": 1, "seconds": args.seconds, "batches": args.batches}
    full = {**some, "epochs": args.epochs, "seconds": args.epoch_seconds}
    train = {**full, "batches": args.train_batches, "workers": 2, "train": True}
    cache = {"cache_bytes": parse_size(args.row_cache, "--row-cache")} if args.row_cache else {}
    budget = {"options": {"budget": limit}}
    # What a model and its training take comes on top of a budget, and is under the limit too.
    beside = {"options": {"budget": limit - parse_size(args.training_memory, "--training-memory")}}
    runs = [
        *(Run(f"stock, {w} workers", "stock", "stock", "f32", workers=w, **some) for w in (0, 2)),
        *(
            Run(
                f"memmap {advice}, {threads} threads", "memmap", "memmap", "f32",
                options={"advice": advice, "threads": threads}, **some,
            )
            for advice, threads in (("random", 4), ("random", 16), ("random", 64), ("sorted", 4))
        ),
        *(
            Run(
                f"graphbolt scheme, {store}", "graphbolt", "graphbolt", store, options=cache, **full
            )
            for store in ("f32", "f16")
        ),
        Run("no budget named, f32", "default", "ours", "f32", workers=2, **full),
        *(
            Run(f"ours, {store}, {w} workers", "ours", "ours", store, workers=w, **budget, **full)
            for store in ("f32", "f32-opt", "f16-opt")
            for w in (0, 2)
        ),
        Run(
            "training in RAM, f16", "train", "ours", "f16-opt", cold=False,
            **train | {"limit": None},
        ),
        Run("training, f16-opt", "train", "ours", "f16-opt", **beside, **train),
        Run(
            "topology out of core, f16-opt", "topology", "ours", "f16-opt", workers=2,
            options={"budget": small}, **full | {"limit": small},
        ),
    ]  # fmt: skip
    return [run for run in runs if run.group in args.only]


class Stores:
    """The graph as stores, each made when it is first wanted.

    Args:
        folder: Where.
        graph: Which.
        fanout: What optimised ones are optimised for.
        batch_size: Likewise.

    Raises:
        ValueError: The folder has the stores of another graph.

    Attributes:
        seconds: What making took, by name.
    """

    def __init__(
        self, folder: Path, graph: CommunityGraph, fanout: list[int], batch_size: int
    ) -> None:
        self.graph = graph
        self.seconds: dict[str, float] = {}
        self._folder = folder / "out-of-core"
        self._sampling = {"num_neighbors": fanout, "batch_size": batch_size}
        facts = json.dumps(dataclasses.asdict(graph) | self._sampling)
        mark = self._folder / "graph.json"
        if mark.exists() and mark.read_text() != facts:
            raise ValueError(
                f"{self._folder}: found the stores of {mark.read_text()}, expected {facts}; "
                "remove them, or name another --dir"
            )
        self._folder.mkdir(exist_ok=True)
        mark.write_text(facts)

    def path(self, name: str) -> Path:
        """A store: ``f32`` or ``f16``, and with ``-opt`` in the order of their use."""
        path = self._folder / name
        if path.exists():
            return path
        base, optimised = name.removesuffix("-opt"), name.endswith("-opt")
        source = self.path(base) if optimised else path
        start = time.perf_counter()
        if optimised:
            gz.optimize(source, path, seeds=self.graph.train_nodes(), **self._sampling)
        else:
            self.graph.write(path, encoding="float16" if base == "f16" else None)
        self.seconds[name] = time.perf_counter() - start
        print(f"made {name} in {self.seconds[name]:.0f} s", flush=True)
        return path

    def remove(self) -> None:
        """Deletes them all."""
        shutil.rmtree(self._folder)


def play(run: Run, stores: Stores, seeds: Tensor, args: argparse.Namespace) -> dict[str, Any]:
    """One run from start to end.

    Returns:
        Plain data, also of a run that failed: ``error`` then says how.
    """
    result: dict[str, Any] = {
        **dataclasses.asdict(run),
        "error": None,
        "at_most": None,
        "ready_seconds": None,
        "facts": {},
        "epochs": [],
        "batch_seconds": [],
        "timeline": [],
    }
    try:
        store = stores.path(run.store)
        files = [each for each in store.rglob("*") if each.is_file()]
        result["cache_before"] = begin(run, files, args.drop_caches)
    except Exception as error:  # one line of the table: hours of others are not lost for it
        return result | {"error": f"not begun: {type(error).__name__}: {error}"}
    disk = probe(store, refresh=True)
    result["disk"] = {"random_iops": disk.random_iops, "bytes_per_second": disk.bytes_per_second}
    result["disk"] |= {"depth": disk.depth, "doubt": disk.doubt}
    with ExitStack() as stack:
        cap = None if run.limit is None else stack.enter_context(MemoryCap(run.limit))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        file = folder / "seeds.pt"
        count = run.batches * args.batch_size or len(seeds)
        torch.save(seeds[:count].clone(), file)
        task = {
            "contestant": run.contestant,
            "store": str(store),
            "seeds": str(file),
            "fanout": args.fanout,
            "batch_size": args.batch_size,
            "epochs": run.epochs,
            "seconds": run.seconds,
            "memory": run.limit,
            "workers": run.workers,
            "train": run.train,
            "trim": args.trim,
            "seed": args.seed,
            "options": run.options,
        }
        environment = os.environ | ENVIRONMENT
        if args.stock_path and run.group == "stock":
            paths = (args.stock_path, environment.get("PYTHONPATH"))
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        follow(task, cap, environment, args.patience, result)
    return result


def begin(run: Run, files: list[Path], drop_caches: bool) -> dict[str, Any]:
    """Makes the page cache what a run is to find, and says what that is."""
    total = sum(file.stat().st_size for file in files)
    if run.cold:
        drop(files)
        if drop_caches:
            os.sync()
            Path("/proc/sys/vm/drop_caches").write_text("3")
    else:
        warm(files)
    share = resident_bytes(files) / total
    if run.cold and share > _COLD:
        raise RuntimeError(
            f"found {share:.0%} of the store in the page cache after dropping it, "
            f"expected at most {_COLD:.0%}; another process has it mapped"
        )
    how = "posix_fadvise" + (" and drop_caches" if drop_caches else "")
    return {"share": share, "by": how if run.cold else "read once"}


def follow(
    task: dict[str, Any],
    cap: MemoryCap | None,
    environment: dict[str, str],
    patience: float,
    result: dict[str, Any],
    child: Path = _CHILD,
) -> None:
    """Runs a contestant's process and puts down what it says and what is seen of it.

    Args:
        task: What it is told: plain data.
        cap: The limit on its memory, or None.
        environment: Its environment.
        patience: Seconds within which it has to say something.
        result: Where what it says is put down, see ``note``; and ``error``, ``at_most`` (batches a
            second, of one that was ready and delivered none), ``peak`` and ``timeline``.
        child: The script that is its process.
    """
    command = [sys.executable, "-W", "ignore", str(child)]
    process = subprocess.Popen(
        command if cap is None else cap.command(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,  # so that it can be ended together with its workers
    )
    assert process.stdin is not None
    assert process.stdout is not None
    impatient = threading.Event()

    def give_up() -> None:
        impatient.set()
        end(process)

    last = "it was started"
    try:
        with Timeline(process.pid, cap) as timeline:
            print(json.dumps(task), file=process.stdin, flush=True)
            while True:
                timer = threading.Timer(patience, give_up)
                timer.start()
                try:
                    line = process.stdout.readline()
                finally:
                    timer.cancel()
                if not line:
                    break
                event = json.loads(line)
                last = event["event"]
                note(event, result, timeline)
    finally:  # interrupted too: nobody is left behind, and the limit can be removed
        end(process)
        process.wait()
    killed = 0 if cap is None else cap.killed()
    if last not in ("done", "error"):
        why = f"it ended with exit code {process.returncode}"
        if impatient.is_set():
            why = f"nothing came for {patience:.0f} s"
            if last == "ready":
                result["at_most"] = 1 / patience
        elif killed:
            why = f"killed by the kernel: more memory than the limit of {cap and cap.limit:,} bytes"
        result["error"] = f"after {last}: {why}"
    result["peak"] = {
        "anon": timeline.peak("anon"),
        "anon_and_file": timeline.peak("anon", "file"),
        "anon_and_shmem": timeline.peak("anon", "shmem"),
        "charged": timeline.peak("charged"),
    }
    result["timeline"] = thinned(timeline.points)


def note(event: dict[str, Any], result: dict[str, Any], timeline: Timeline) -> None:
    """Puts one event of a contestant down."""
    now = timeline.points[-1]["seconds"] if timeline.points else 0.0
    if event["event"] == "ready":
        result |= {"ready_seconds": event["seconds"], "facts": event["facts"], "ready_at": now}
    elif event["event"] == "batch":
        result["batch_seconds"].append(event["seconds"])
        result["nodes"] = result.get("nodes", 0) + event["nodes"]
    elif event["event"] == "epoch":
        result["epochs"].append({k: v for k, v in event.items() if k != "event"} | {"at": now})
    elif event["event"] == "found":
        result["found"] = event["found"]
    elif event["event"] == "error":
        result["error"] = event["error"]


def end(process: subprocess.Popen[str]) -> None:
    """Ends a contestant with its workers, if it is still there."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def thinned(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most a few hundred of them: of several that follow each other the greatest."""
    step = -(-len(points) // _POINTS) or 1
    parts = (points[at : at + step] for at in range(0, len(points), step))
    return [max(part, key=lambda each: each["anon"] + each["file"]) for part in parts]
