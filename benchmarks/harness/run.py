"""A run of a benchmark: a child process under a limit on memory, begun cold, and what it did."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.cap import MemoryCap
from harness.child import Task
from harness.page_cache import drop, resident_bytes
from harness.report import short
from harness.timeline import timeline
from pyg_graphzero.bench.entrant import ENVIRONMENT
from pyg_graphzero.bench.process import warm
from pyg_graphzero.util.disk import probe

# Points of a timeline that are kept.
_POINTS = 300
# A run begins cold when less than this share of its store is in the page cache.
_COLD = 0.02
# How a scenario is told that it is the child.
CHILD = "--child"


@dataclass(frozen=True)
class Run:
    """One line of the table.

    Attributes:
        name: Name in the table.
        group: Name shared by the runs that are chosen together.
        task: Task of its process.
        cold: Whether it begins with nothing of its store in the page cache; else with all of it.
        patience: Seconds within which the process has to tell an event.
        path: Directory added to the PYTHONPATH of its process.
        before: Called before the process starts; makes the files it needs.
    """

    name: str
    group: str
    task: Task
    cold: bool = True
    patience: float = 24 * 3600.0
    path: str | None = None
    before: Callable[[], object] = lambda: None


def play(run: Run, scenario: Path, drop_caches: bool) -> dict[str, Any]:
    """One run from start to end.

    Args:
        run: Which.
        scenario: The script that is its process; it is given ``CHILD``.
        drop_caches: Whether a cold run finds the whole machine's page cache empty.

    Returns:
        Plain data, also of a run that failed: ``error`` then says how.
    """
    task = run.task
    result: dict[str, Any] = {
        "name": run.name,
        "group": run.group,
        "do": task.do,
        "store": Path(task.store).name,
        **{name: getattr(task, name) for name in ("limit", "budget", "workers")},
        "error": None,
        "at_most": None,
        "ready_seconds": None,
        "facts": {},
        "found": {},
        "epochs": [],
        "batch_seconds": [],
        "timeline": [],
    }
    try:
        run.before()
        files = [each for each in Path(task.store).rglob("*") if each.is_file()]
        result["cache_before"] = begin(files, run.cold, drop_caches)
    except Exception as error:  # one line of the table: hours of others are not lost for it
        return result | {"error": f"not begun: {type(error).__name__}: {error}"}
    if files:
        disk = probe(task.store, refresh=True)
        speed = {name: getattr(disk, name) for name in ("random_iops", "bytes_per_second")}
        result["disk"] = speed | {"depth": disk.depth, "doubt": disk.doubt}
    with ExitStack() as stack:
        cap = None if task.limit is None else stack.enter_context(MemoryCap(task.limit))
        environment = os.environ | ENVIRONMENT
        if run.path:
            paths = (run.path, environment.get("PYTHONPATH"))
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        follow([str(scenario), CHILD], task, cap, environment, run.patience, result)
    return result


def play_all(
    runs: list[Run],
    scenario: Path,
    drop_caches: bool,
    adapt: Callable[[Run, list[dict[str, Any]]], Run] = lambda run, results: run,
) -> list[dict[str, Any]]:
    """Runs in their order, each of which says how it ended; see ``play``.

    Args:
        runs: All of them.
        scenario: The script that is their process.
        drop_caches: Whether a cold run finds the whole machine's page cache empty.
        adapt: Given a run and the results of those before it, returns the run that is played.

    Raises:
        CapError: A limit cannot be had here. Nothing was begun.
    """
    for limit in {run.task.limit for run in runs if run.task.limit is not None}:
        with MemoryCap(limit):
            pass
    results: list[dict[str, Any]] = []
    for run in runs:
        results.append(play(adapt(run, results), scenario, drop_caches))
        print(short(results[-1]), flush=True)
    return results


def begin(files: list[Path], cold: bool, drop_caches: bool) -> dict[str, Any]:
    """Makes the page cache what a run is to find, and says what that is."""
    if cold:
        drop(files)
        if drop_caches:
            os.sync()
            Path("/proc/sys/vm/drop_caches").write_text("3")
    else:
        warm(files)
    share = resident_bytes(files) / max(1, sum(file.stat().st_size for file in files))
    if cold and share > _COLD:
        raise RuntimeError(
            f"found {share:.0%} of the store in the page cache after dropping it, "
            f"expected at most {_COLD:.0%}; another process has it mapped"
        )
    how = "posix_fadvise" + (" and drop_caches" if drop_caches else "")
    return {"share": share, "by": how if cold else "read once"}


def follow(
    script: list[str],
    task: Task,
    cap: MemoryCap | None,
    environment: dict[str, str],
    patience: float,
    result: dict[str, Any],
) -> None:
    """Runs a child and records its events and its memory.

    Args:
        script: The child, a script and its arguments.
        task: Task of the child.
        cap: The limit on its memory, or None.
        environment: Its environment.
        patience: Seconds within which it has to tell an event.
        result: Gets the events, see ``note``; and ``error``, ``at_most`` (batches a second, if the
            child was ready and delivered none), ``peak`` and ``timeline``.
    """
    command = [sys.executable, "-W", "ignore", *script]
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
        with timeline(process.pid) as watch:
            print(json.dumps(dataclasses.asdict(task)), file=process.stdin, flush=True)
            while line := within(patience, give_up, process.stdout.readline):
                event = json.loads(line)
                last = event.pop("event")
                note(last, event, result)
    finally:  # interrupted too: no process is left behind, and the limit can be removed
        end(process)
        process.communicate()
    if last not in ("done", "error"):
        why = f"it ended with exit code {process.returncode}"
        if impatient.is_set():
            why = f"nothing came for {patience:.0f} s"
            if last == "ready":
                result["at_most"] = 1 / patience
        elif cap is not None and cap.killed():
            why = f"killed by the kernel: more memory than the limit of {cap.limit:,} bytes"
        result["error"] = f"after {last}: {why}"
    result["peak"] = {"anon_and_file": watch.peak("anon", "file"), "anon": watch.peak("anon")}
    result["timeline"] = thinned([each for each in watch.points if each])


def within(seconds: float, otherwise: Callable[[], None], call: Callable[[], str]) -> str:
    """Returns the call's result; calls ``otherwise`` meanwhile if it takes too long."""
    timer = threading.Timer(seconds, otherwise)
    timer.start()
    try:
        return call()
    finally:
        timer.cancel()


def note(kind: str, event: dict[str, Any], result: dict[str, Any]) -> None:
    """Puts one event of a child down."""
    if kind == "ready":
        result |= {"ready_seconds": event["seconds"], "facts": event["facts"]}
    elif kind == "batch":
        result["batch_seconds"].append(event["seconds"])
        result["nodes"] = result.get("nodes", 0) + event["nodes"]
    elif kind == "epoch":
        result["epochs"].append(event)
    else:  # "found" and "error"; "done" has nothing
        result |= event


def end(process: subprocess.Popen[str]) -> None:
    """Ends a child with its workers, if it is still there."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def thinned(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most a few hundred of them: of several that follow each other the greatest."""
    step = -(-len(points) // _POINTS) or 1
    parts = (points[at : at + step] for at in range(0, len(points), step))
    return [max(part, key=lambda each: each["anon"] + each["file"]) for part in parts]
