"""A benchmark's child process tells its parent of each event in a line of JSON on stdout."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

Tell = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Task:
    """All that a child needs to know; plain data.

    Attributes:
        do: Name of the work in the scenario.
        store: The store that is read, or written.
        limit: Limit on the child's memory, bytes; None without.
        budget: Memory budget of this package, bytes; None lets it find one out itself.
        seeds: Name of the store's index set or mask with the seeds of an epoch.
        fanout: Neighbours per hop.
        batch_size: Seeds per batch.
        workers: ``num_workers``, where it has such.
        num_seeds: Number of shuffled seeds in an epoch, the first ones; 0 for all.
        epochs: Number of epochs.
        batches: Largest number of batches in an epoch; 0 for no limit.
        seconds: No batch is begun later than this long after an epoch began.
        hidden: Width of the model; 0 where nothing is trained.
        model: How the model is computed, where something is trained.
        seed: Seed of shuffling, sampling and training.
        options: Further settings of single tasks.
    """

    do: str
    store: str
    limit: int | None = None
    budget: int | None = None
    seeds: str = "train_mask"
    fanout: list[int] = field(default_factory=lambda: [15, 10, 5])
    batch_size: int = 1024
    workers: int = 0
    num_seeds: int = 0
    epochs: int = 1
    batches: int = 0
    seconds: float = 600.0
    hidden: int = 0
    model: str = "trimmed"
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)


class Pace:
    """Tells of every batch of an epoch, and when to stop.

    Args:
        task: Has the number of batches and the seconds.
        tell: Where batches are told.
        epoch: Its number.
    """

    def __init__(self, task: Task, tell: Tell, epoch: int = 0) -> None:
        self._task, self._tell, self._epoch = task, tell, epoch
        self._begin = self._last = time.perf_counter()
        self.batches = 0

    @property
    def elapsed(self) -> float:
        """Seconds from its beginning to the last batch."""
        return self._last - self._begin

    def batch(self, num_nodes: int, num_edges: int, **more: Any) -> bool:
        """Tells of a batch; whether another one is wanted."""
        now = time.perf_counter()
        event = {"event": "batch", "epoch": self._epoch, "seconds": now - self._last}
        self._tell(event | {"nodes": num_nodes, "edges": num_edges} | more)
        self._last = now
        self.batches += 1
        return self.batches != self._task.batches and self.elapsed < self._task.seconds


def deliver(
    task: Task,
    tell: Tell,
    epoch: Callable[[], Iterable[Any]],
    step: Callable[[Any], Any],
    counts: Callable[[], dict[str, Any]] = dict,
) -> None:
    """Runs epochs and tells of each batch.

    Args:
        task: Has the number of epochs and batches.
        tell: Called with each event.
        epoch: Gives an epoch's batches.
        step: Called with each batch.
        counts: Gives the counts of the last epoch's reads.
    """
    for number in range(task.epochs):
        pace = Pace(task, tell, number)
        for batch in epoch():
            step(batch)
            if not pace.batch(batch.num_nodes, batch.num_edges):
                break
        found = {"epoch": number, "seconds": pace.elapsed, "batches": pace.batches}
        tell({"event": "epoch", **found, "counts": counts()})
        if pace.elapsed >= task.seconds:
            break


def answer(serve: Callable[[Task, Tell], None]) -> None:
    """Reads a task from stdin, has it served, and ends the process.

    Args:
        serve: Called with the task and a function that tells events. Its exceptions are told, too.
    """
    # Libraries' output goes to stderr, past the events.
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(event: dict[str, Any]) -> None:
        print(json.dumps(event), file=events, flush=True)

    try:
        task = Task(**json.loads(sys.stdin.readline()))
        serve(task, tell)
        tell({"event": "done"})
    except BaseException as error:
        tell({"event": "error", "error": f"{type(error).__name__}: {error}"})
        raise
    # Threads may still be reading ahead of an epoch that was cut short: nothing waits for them.
    os._exit(0)
