"""The comparison itself: case by case, contestants in processes of their own, rounds in turn."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyg_graphzero.bench.contestants import CONTESTANTS
from pyg_graphzero.bench.data import Seeds, draw_seeds
from pyg_graphzero.bench.entrant import ENVIRONMENT, Entrant
from pyg_graphzero.bench.process import Watch, memory, warm
from pyg_graphzero.bench.settings import Settings
from pyg_graphzero.bench.workloads import WORKLOADS, Task
from pyg_graphzero.pyg.stores import open as open_store
from pyg_graphzero.store.schema import SCHEMA_FILE
from pyg_graphzero.util.machine import machine, storage

SCHEMA_VERSION = 2


def left_out() -> list[str]:
    """Contestants that cannot take part here, a line each."""
    reasons = {name: each.missing() for name, each in CONTESTANTS.items()}
    return [f"{name} left out: {why}" for name, why in reasons.items() if why]


def run(settings: Settings, path: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Runs a comparison.

    Args:
        settings: The choices of the run.
        path: The store.
        say: Told what happens next.

    Returns:
        The report, plain data; ``docs/benchmarks.md`` has its fields.

    Raises:
        BenchError: A contestant failed.
        ValueError: The graph has no edges.
    """
    with open_store(path) as store:
        info = store.info()
        seeds = draw_seeds(store, settings)
    names = [name for name, each in CONTESTANTS.items() if each.missing() is None]
    notes = left_out()
    results: list[dict[str, Any]] = []
    for case in settings.cases():
        missing = WORKLOADS[case.workload].missing(seeds, case.model)
        if missing is not None:
            notes.append(f"{case} left out: {missing}")
            continue
        reasons = {name: CONTESTANTS[name].cannot_train(case.model) for name in names}
        notes += [f"{case} by {name} left out: {why}" for name, why in reasons.items() if why]
        playing = [name for name in names if reasons[name] is None]
        say(str(case))
        results += _play([Task(name, case, settings, path, seeds) for name in playing])
    # Reports are shown to others, for whom a path would mean nothing.
    is_store = path == Path(settings.data)
    return {
        "schema": SCHEMA_VERSION,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(),
        "storage": storage(path / SCHEMA_FILE),
        "graph": _graph(info, seeds),
        "settings": asdict(replace(settings, data=path.name) if is_store else settings),
        "environment": ENVIRONMENT,
        "contestants": {
            name: {"title": each.title(), "place": each.place} for name, each in CONTESTANTS.items()
        },
        "results": results,
        "notes": list(dict.fromkeys(notes)),
    }


def _graph(info: dict[str, Any], seeds: Seeds) -> dict[str, Any]:
    return {
        "num_nodes": sum(each["num_nodes"] for each in info["node_types"]),
        "num_edges": sum(each["num_edges"] for each in info["edge_types"]),
        "num_node_types": len(info["node_types"]),
        "num_edge_types": len(info["edge_types"]),
        "attrs": {each["name"] or "": each["attrs"] for each in info["node_types"]},
        "bytes": info["bytes"],
        "seed_node_type": seeds.node_type,
        "seed_edge_type": seeds.edge_type,
    }


def _play(tasks: list[Task]) -> list[dict[str, Any]]:
    """All rounds of a case; one result per contestant.

    Round 0 is watched, and not timed: memory is from there.
    """
    with ExitStack() as stack:
        entrants = [stack.enter_context(closing(Entrant(task))) for task in tasks]
        ready = [entrant.open() for entrant in entrants]
        warm(file for file in tasks[0].store.rglob("*") if file.is_file())
        firsts, peaks = [], []
        for entrant in entrants:
            with Watch(partial(memory, entrant.pid)) as watch:
                firsts.append(entrant.round(0))
            peaks.append({kind: watch.peak(kind) for kind in ("pss", "own")})
        numbers = range(1, tasks[0].settings.rounds + 1)
        timed = [[entrant.round(number) for entrant in entrants] for number in numbers]
    return [
        _result(task, ready[i], firsts[i], peaks[i], [each[i] for each in timed])
        for i, task in enumerate(tasks)
    ]


def _result(
    task: Task,
    ready: float,
    first: dict[str, Any],
    peak: dict[str, int],
    rounds: list[dict[str, Any]],
) -> dict[str, Any]:
    """Everything that was measured of one contestant, plain; times by batch and round."""
    result: dict[str, Any] = {
        **asdict(task.case),
        "case": str(task.case),
        "contestant": task.contestant,
        "batches": first["batches"],
        "edges_per_batch": first["edges"] / first["batches"],
        "nodes_per_batch": first["nodes"] / first["batches"],
        "ready_seconds": ready,
        "memory": peak,
        "seconds_per_batch": [each["seconds"] / each["batches"] for each in rounds],
        "cpu_seconds_per_batch": [each["cpu_seconds"] / each["batches"] for each in rounds],
    }
    return result | {"stats": rounds[-1]["stats"]} if "stats" in rounds[-1] else result
