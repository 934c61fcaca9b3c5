"""One phase of ``papers100m.py`` under one limit, from start to end."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from out_of_core_runs import follow
from papers100m_task import Task

from pyg_graphzero.bench.cap import MemoryCap
from pyg_graphzero.bench.entrant import ENVIRONMENT
from pyg_graphzero.bench.page_cache import drop
from pyg_graphzero.util.workspace import parse_size

_CHILD = Path(__file__).with_name("papers100m_child.py")
# Phases that are only done once, under the first limit.
ONCE = ("convert", "optimize", "graphzero")
# Of a limit, what phases without a model are told to stay within; the rest is for pages of files.
_SHARE = 0.75
_LONG = 24 * 3600.0


def make_task(args: argparse.Namespace, phase: str, limit: int | None) -> Task:
    """What the process of a phase is told."""
    beside = parse_size(args.training_memory, "--training-memory")
    if args.memory:
        budget: int | None = parse_size(args.memory, "--memory")
    elif limit is None:
        budget = None
    elif phase in ("train", "infer"):
        budget = limit - beside
        if budget <= 0:
            raise ValueError(
                f"--limit: found {limit:,} bytes, expected more than {beside:,}, which are "
                "--training-memory"
            )
    else:
        budget = int(_SHARE * limit)
    work = args.dir / "papers100m"
    data = args.data or (work / "ogb" if args.layout == "ogb" else None)
    return Task(
        phase=phase,
        store=str(work / "store"),
        work=str(work / "work"),
        data=None if data is None else str(data),
        scale=args.scale,
        seed=args.seed,
        features=args.features,
        limit=limit,
        budget=budget,
        fanout=args.fanout,
        batch_size=args.batch_size,
        hidden=args.hidden,
        batches=args.batches,
        seconds=args.patience if phase in ("stock", "graphzero") else args.seconds,
        workers=args.workers,
        options={
            "eval_nodes": args.eval_nodes,
            "stock_workers": args.stock_workers,
            "scale": args.graphzero_scale,
        },
    )


def play(args: argparse.Namespace, phase: str, limit: int | None) -> dict[str, Any]:
    """Runs a phase cold and puts down what it says and what is seen of it.

    Returns:
        Plain data, also of a phase that failed: ``error`` then says how.
    """
    task = make_task(args, phase, limit)
    result: dict[str, Any] = {
        "phase": phase,
        "limit": limit,
        "budget": task.budget,
        "error": None,
        "at_most": None,
        "ready_seconds": None,
        "facts": {},
        "found": {},
        "epochs": [],
        "batch_seconds": [],
        "timeline": [],
    }
    work = Path(task.work)
    work.mkdir(parents=True, exist_ok=True)
    drop(each for each in Path(task.store).rglob("*") if each.is_file())
    if args.drop_caches:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
    environment = os.environ | ENVIRONMENT
    more = {"stock": args.stock_path, "graphzero": args.graphzero_path}.get(phase)
    if more:
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, (more, environment.get("PYTHONPATH")))
        )
    patience = args.patience if phase == "stock" else _LONG
    with ExitStack() as stack:
        cap = None if limit is None else stack.enter_context(MemoryCap(limit))
        result["means"] = None if cap is None else cap.means
        follow(dataclasses.asdict(task), cap, environment, patience, result, _CHILD)
    tidy(work)
    return result


def tidy(work: Path) -> None:
    """Removes what a phase leaves that no other one needs."""
    for each in work.iterdir():
        if each.name != "model.pt":
            shutil.rmtree(each) if each.is_dir() else each.unlink()
