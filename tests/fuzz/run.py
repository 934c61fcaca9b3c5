"""Runs a campaign: cases made from numbers, in processes that may die.

    python tests/fuzz/run.py stores 12345             one case
    python tests/fuzz/run.py stores 0:10000 --jobs 2  many
    python tests/fuzz/run.py stores 12345 --keep here leaves its files in ./here

A campaign is a module beside this one with

- ``case(seed, directory) -> str | None``: everything it does follows from ``seed``; ``directory``
  is empty and its own. It returns, or raises a documented error (see ``outcome``), or returns the
  name of one that it has seen. Anything else is a violation: another exception, the death of the
  process, a case that does not end, or that takes memory out of proportion.
- optionally ``setup(directory)``: makes what all cases share, unless it is there already. Called
  in every process before its first case.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import importlib
import importlib.util
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

HERE = Path(__file__).parent
FORK = multiprocessing.get_context("fork")
MiB = 1 << 20
# Bytes that a case may add to its process's memory, and bytes that kill the process at once.
GROWTH = 256 * MiB
RUNAWAY = 4096 * MiB
# Cases of a process before it is replaced, which bounds the leaks that add up in it.
CASES_PER_PROCESS = 5000


@dataclass
class Result:
    """Counts, errors and violations of a campaign."""

    cases: int = 0
    clean: int = 0
    seconds: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)
    violations: list[dict[str, Any]] = field(default_factory=list)

    def add(self, reply: dict[str, Any], notes: list[str]) -> None:
        self.cases += 1
        if "kind" in reply:
            self.violations.append(reply | {"notes": notes})
        elif reply["error"] is None:
            self.clean += 1
        else:
            self.errors[reply["error"]] += 1

    def __str__(self) -> str:
        errors = ", ".join(f"{name} {count:,}" for name, count in self.errors.most_common())
        return (
            f"{self.cases:,} cases in {self.seconds:,.0f} s: {self.clean:,} clean, "
            f"{sum(self.errors.values()):,} refused ({errors or 'none'}), "
            f"{len(self.violations):,} violations"
        )


def load_engine(core: Path) -> None:
    """Has the package use another build of the engine, such as one with a sanitizer."""
    import torch  # noqa: F401 - its OpenMP runtime first

    spec = importlib.util.spec_from_file_location("pyg_graphzero._core", core)
    module = importlib.util.module_from_spec(spec)
    sys.modules["pyg_graphzero._core"] = module
    spec.loader.exec_module(module)


def peak() -> int:
    """Most bytes that this process had in memory since the last :func:`forget_peak`."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def forget_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def run_case(campaign: ModuleType, seed: int, directory: Path) -> dict[str, Any]:
    """Runs one case in this process; what it answered, or how it went wrong."""
    from outcome import is_documented

    directory.mkdir(parents=True)
    before = forget_peak()
    try:
        reply: dict[str, Any] = {"error": campaign.case(seed, directory)}
    except Exception as error:
        if is_documented(error, directory):
            reply = {"error": type(error).__name__}
        else:
            lines = traceback.format_exception(error)
            reply = {"kind": signature(error), "detail": "".join(lines)}
    grown = peak() - before
    if "kind" not in reply and grown > GROWTH:
        reply = {"kind": "memory", "detail": f"took {grown // MiB:,} MiB"}
    return reply | {"seed": seed}


def signature(error: BaseException) -> str:
    """Where an error comes from, to tell those of one cause from others."""
    places = [
        f"{Path(frame.filename).name}:{frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if "pyg_graphzero" in frame.filename or str(HERE) in frame.filename
    ]
    if isinstance(error, AssertionError):
        text = re.sub(r"\d+", "N", str(error).splitlines()[0] if str(error) else "")
        return f"{places[-1] if places else ''} {text[:80]}"
    return f"{type(error).__name__} in {places[-1] if places else '?'}"


class Worker:
    """A process that runs cases, one at a time."""

    pipes: ClassVar[set[Connection]] = set()  # to all of them

    def __init__(self, campaign: ModuleType, root: Path, keeps: bool = False) -> None:
        self.root = root
        self.stderr = root / f"stderr-{time.monotonic_ns()}"
        self.stderr.touch()
        self.cases = 0
        self.pipe, theirs = FORK.Pipe()
        Worker.pipes.add(self.pipe)
        self.process = FORK.Process(
            target=_serve, args=(theirs, campaign, root, self.stderr, keeps)
        )
        self.process.start()
        theirs.close()

    def ask(self, seed: int) -> None:
        self.seed, self.begun, self.notes = seed, time.monotonic(), list[str]()
        self.cases += 1
        self.pipe.send(seed)

    def reply(self) -> dict[str, Any] | str | None:
        """The outcome of the case, or a note; None when the process is dead."""
        with contextlib.suppress(EOFError, OSError):
            return self.pipe.recv()
        return None

    def resident(self) -> int:
        try:
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return 0
        return pages * resource.getpagesize()

    def stop(self) -> str:
        """Ends it if it has not ended; what killed it."""
        Worker.pipes.remove(self.pipe)
        self.pipe.close()
        self.process.join()
        self.said = self.stderr.read_text(errors="replace")[-6000:]
        self.stderr.unlink()
        status = self.process.exitcode or 0
        return signal.Signals(-status).name if status < 0 else f"exit status {status}"

    def kill(self, number: int) -> None:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            self.process.kill()


def _serve(asked: Connection, campaign: ModuleType, root: Path, stderr: Path, keeps: bool) -> None:
    from outcome import notes_to

    for pipe in Worker.pipes:  # those of the others too, or these would not see theirs close
        pipe.close()
    os.setsid()  # what a case starts dies with it
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    out = os.open(stderr, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(out, stream)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):
        faulthandler.enable()  # a sanitizer says more
    notes_to(lambda text: asked.send(text[:2000]))
    if hasattr(campaign, "setup"):
        campaign.setup(root / "shared")
    gc.collect()
    gc.freeze()
    with contextlib.suppress(EOFError):
        while True:
            seed = asked.recv()
            directory = root / f"case-{seed}"
            reply = run_case(campaign, seed, directory)
            if seed % 16 == 0:
                gc.collect()
            if not keeps:
                shutil.rmtree(directory, ignore_errors=True)
            asked.send(reply)


def set_up(campaign: ModuleType, root: Path) -> None:
    """Makes what the cases share, in a process of its own: a fork of threads is none."""
    worker = Worker(campaign, root)
    how = worker.stop()
    if how != "exit status 0":
        raise RuntimeError(f"setup: {how}\n{worker.said}")


def run(
    campaign: ModuleType, root: Path, seeds: Iterator[int], jobs: int, limit: float, keeps: bool
) -> Result:
    """Hands out numbers to processes, and starts another where one died."""
    result, begun = Result(), time.monotonic()
    workers: list[Worker] = []

    def go_on(worker: Worker | None = None) -> None:
        """A process does the next case; another one where it died, or has done many."""
        seed = next(seeds, None)
        if worker is not None and (seed is None or worker.cases >= CASES_PER_PROCESS):
            workers.remove(worker)
            worker.stop()
            worker = None
        if seed is not None:
            if worker is None:
                worker = Worker(campaign, root, keeps)
                workers.append(worker)
            worker.ask(seed)

    def finish(worker: Worker, reply: dict[str, Any]) -> None:
        result.add(reply, worker.notes)
        result.seconds = time.monotonic() - begun
        if "kind" in reply:
            print(f"{reply['seed']}: {reply['kind']}", flush=True)
        elif result.cases % 1000 == 0:
            print(result, flush=True)

    def bury(worker: Worker, why: str = "") -> None:
        workers.remove(worker)
        how = worker.stop()
        shutil.rmtree(root / f"case-{worker.seed}", ignore_errors=True)
        kind = why or crash_kind(how, worker.said)
        finish(worker, {"seed": worker.seed, "kind": kind, "detail": worker.said})
        go_on()

    try:
        for _ in range(jobs):
            go_on()
        while workers:
            ready = wait([worker.pipe for worker in workers], 0.5)
            for worker in list(workers):
                if worker.pipe in ready:
                    reply = worker.reply()
                    if reply is None:
                        bury(worker)
                    elif isinstance(reply, str):
                        worker.notes.append(reply)
                    else:
                        finish(worker, reply)
                        go_on(worker)
                elif worker.resident() > RUNAWAY:
                    worker.kill(signal.SIGKILL)
                    bury(worker, "memory")
                elif time.monotonic() - worker.begun > limit:
                    worker.kill(signal.SIGUSR1)  # faulthandler shows where its threads are
                    time.sleep(0.5)
                    worker.kill(signal.SIGKILL)
                    bury(worker, "hang")
    finally:
        for worker in workers:
            worker.kill(signal.SIGKILL)
            worker.stop()
    return result


def crash_kind(how: str, said: str) -> str:
    """A name for a death, with the innermost line of ours that is known of it."""
    found = re.search(r"ERROR: AddressSanitizer: (\S+)", said)
    how = f"{how} {found[1]}" if found else how
    frames = re.findall(r'File "[^"]*?(pyg_graphzero|fuzz)/([^"]+)", line \d+ in (\w+)', said)
    return f"{how} in {frames[0][1]}:{frames[0][2]}" if frames else how


def show(result: Result, name: str) -> None:
    """Prints what went wrong, each kind with how to see it again."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for violation in sorted(result.violations, key=lambda each: each["seed"]):
        kinds.setdefault(violation["kind"], []).append(violation)
    for kind, found in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"\nVIOLATION {kind}: {len(found)} of {result.cases} cases")
        for line in found[0]["notes"]:
            print(f"    {line}")
        print("    " + found[0]["detail"].strip().replace("\n", "\n    "))
        for violation in found[:5]:
            print(f"  python tests/fuzz/run.py {name} {violation['seed']}")
    print(result)


def parse_seeds(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end)) if end else range(int(first), int(first) + 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("campaign")
    parser.add_argument("seeds", type=parse_seeds, help="one number, or first:end")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one case")
    parser.add_argument("--core", type=Path, help="another build of the engine")
    parser.add_argument("--keep", type=Path, help="leave the files of cases here")
    parser.add_argument("--json", type=Path, help="write the counts and violations here")
    args = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    sys.path[1:1] = [str(HERE.parent / "support")]  # what the other tests use
    if args.core is not None:
        load_engine(args.core)
    campaign = importlib.import_module(args.campaign)
    if args.keep is not None:
        root = args.keep.absolute()
        root.mkdir(parents=True, exist_ok=True)
    else:
        fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        root = Path(tempfile.mkdtemp(prefix="gz-fuzz-", dir=fast))
    try:
        set_up(campaign, root)
        keeps, jobs = args.keep is not None, min(args.jobs, len(args.seeds))
        result = run(campaign, root, iter(args.seeds), jobs, args.limit, keeps)
        show(result, args.campaign)
    finally:
        if args.keep is None:
            shutil.rmtree(root, ignore_errors=True)
    if args.json is not None:
        document = {"campaign": args.campaign, "seeds": str(args.seeds), **vars(result)}
        args.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(main())
