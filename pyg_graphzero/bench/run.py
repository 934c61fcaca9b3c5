"""The comparison itself: case by case, contestants in processes of their own, rounds in turn."""

from __future__ import annotations

import dataclasses
import datetime
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from pyg_graphzero.bench.contestants import CONTESTANTS
from pyg_graphzero.bench.data import Seeds, draw_seeds
from pyg_graphzero.bench.entrant import ENVIRONMENT, Entrant
from pyg_graphzero.bench.process import Watch
from pyg_graphzero.bench.settings import Case, Settings
from pyg_graphzero.bench.workloads import WORKLOADS, Task
from pyg_graphzero.pyg.stores import open as open_store
from pyg_graphzero.store.schema import SCHEMA_FILE
from pyg_graphzero.util.machine import machine, storage
from pyg_graphzero.util.system import cached_bytes

SCHEMA_VERSION = 1
# Less than this share of a store in the page cache is not warm.
_WARM = 0.99
_PIECE = 8 << 20


def left_out() -> list[str]:
    """Contestants that cannot take part here, a line each."""
    reasons = {name: each.missing() for name, each in CONTESTANTS.items()}
    return [f"{name} left out: {why}" for name, why in reasons.items() if why]


def run(settings: Settings, path: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Runs a comparison.

    Args:
        settings: Choices of the run.
        path: The store.
        say: Told what happens next.

    Returns:
        The report, plain data; ``docs/benchmarks.md`` has its fields.

    Raises:
        BenchError: A contestant failed.
        ValueError: The graph has no edges.
    """
    # Reports are shown to others, for whom a path would mean nothing.
    shown = (
        dataclasses.replace(settings, data=path.name) if path == Path(settings.data) else settings
    )
    with open_store(path) as store:
        info = store.info()
        seeds = draw_seeds(store, settings)
    names = [name for name, each in CONTESTANTS.items() if each.missing() is None]
    notes = left_out()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "seeds.pt"
        torch.save(dataclasses.asdict(seeds), file)
        for case in settings.cases():
            missing = WORKLOADS[case.workload].missing(seeds, case.model)
            if missing is not None:
                notes.append(f"{case} left out: {missing}")
                continue
            reasons = {name: CONTESTANTS[name].cannot_train(case.model) for name in names}
            notes += [f"{case} by {name} left out: {why}" for name, why in reasons.items() if why]
            playing = [name for name in names if reasons[name] is None]
            say(str(case))
            results += _play(case, playing, settings, path, file)
    held = min((share for each in results for share in each["cached"]), default=1.0)
    if held < _WARM:
        notes.append(f"not quite warm: the page cache held as little as {held:.0%} of the store")
    return {
        "schema": SCHEMA_VERSION,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(),
        "storage": storage(path / SCHEMA_FILE),
        "graph": _graph(info, seeds),
        "settings": dataclasses.asdict(shown),
        "environment": ENVIRONMENT,
        "contestants": {
            name: {"title": each.title(), "place": each.place()}
            for name, each in CONTESTANTS.items()
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


def _play(
    case: Case, names: list[str], settings: Settings, path: Path, seeds: Path
) -> list[dict[str, Any]]:
    """All rounds of a case; one result per contestant."""
    records = [
        _Record(
            Task(
                contestant=name,
                workload=case.workload,
                store=str(path),
                seeds=str(seeds),
                fanout=list(settings.fanout),
                batch_size=settings.batch_size,
                workers=case.workers,
                threads=case.threads,
                seed=settings.seed,
                model=case.model,
            )
        )
        for name in names
    ]
    with ExitStack() as stack:
        entrants = [stack.enter_context(Entrant(record.task)) for record in records]
        for record, entrant in zip(records, entrants, strict=True):
            record.begin(entrant)
        for path in records[0].files:
            with path.open("rb", buffering=0) as file:
                while file.read(_PIECE):
                    pass
        for number in range(settings.rounds + 1):
            for record, entrant in zip(records, entrants, strict=True):
                record.round(entrant, number)
    return [record.result(case) for record in records]


class _Record:
    """Figures of one contestant in one case.

    Round 0 is watched, and not timed: memory and bytes read are from there.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.files = [each for each in Path(task.store).rglob("*") if each.is_file()]
        self._bytes = sum(each.stat().st_size for each in self.files)
        self._open = self._prepare = 0.0
        self._cached: list[float] = []
        self._memory: dict[str, dict[str, int]] = {}
        self._read = 0
        self._first: dict[str, Any] = {}
        self._rounds: list[dict[str, Any]] = []

    def begin(self, entrant: Entrant) -> None:
        """Has the graph opened and the loader made."""
        self._open = entrant.open()
        with Watch(entrant.pid) as watch:
            self._prepare = entrant.prepare()
        self._memory["prepare"] = watch.peak

    def round(self, entrant: Entrant, number: int) -> None:
        """Has a round run."""
        self._cached.append(sum(map(cached_bytes, self.files)) / self._bytes)
        if number:
            self._rounds.append(entrant.round(number))
            return
        with Watch(entrant.pid) as watch:
            self._first = entrant.round(number)
        self._memory["run"] = watch.peak
        self._read = watch.read

    def result(self, case: Case) -> dict[str, Any]:
        """Everything, plain; times by batch and round."""
        batches = self._first["batches"]

        def each(key: str, per: str = "batches") -> list[float]:
            return [found[key] / found[per] for found in self._rounds]

        result = {
            **dataclasses.asdict(case),
            "case": str(case),
            "contestant": self.task.contestant,
            "batches": batches,
            "edges_per_batch": self._first["edges"] / batches,
            "nodes_per_batch": self._first["nodes"] / batches,
            "open_seconds": self._open,
            "prepare_seconds": self._prepare,
            "seconds_per_batch": each("seconds"),
            "cpu_seconds_per_batch": each("cpu_seconds"),
            "memory": self._memory,
            "bytes_read": self._read,
            "cached": self._cached,
        }
        if "compute_seconds" in self._rounds[-1]:
            result["loader_seconds_per_batch"] = each("loader_seconds")
            result["loader_cpu_seconds_per_batch"] = each("loader_cpu_seconds")
            result["compute_seconds_per_batch"] = each("compute_seconds", "compute_batches")
        if "stats" in self._rounds[-1]:
            result["stats"] = self._rounds[-1]["stats"]
        return result
