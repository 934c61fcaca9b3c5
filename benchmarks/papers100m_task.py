"""What a phase of ``papers100m.py`` is told, and what all of them use."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from events import Tell
from papers100m_graph import PapersGraph


@dataclass(frozen=True)
class Task:
    """All that the process of a phase needs to know; plain data.

    Attributes:
        phase: Its name in ``PHASES``.
        store: The store that is written, or read.
        work: Folder for what else it makes.
        data: Directory of a dataset to convert; None for the synthetic graph.
        scale: Of the synthetic graph.
        seed: Of the graph, of training, and of sampling.
        features: ``float32``, ``float16`` or ``int8``.
        limit: On its memory, bytes; None without.
        budget: Of it, what this package is told to stay within, bytes; None to find out itself.
        fanout: Neighbours per hop.
        batch_size: Seeds per batch.
        hidden: Width of the model.
        batches: To train, or to deliver, at most.
        seconds: A phase that delivers batches ends after so many.
        workers: ``num_workers`` of loaders.
        options: What single phases want besides.
    """

    phase: str
    store: str
    work: str
    data: str | None = None
    scale: float = 1.0
    seed: int = 0
    features: str = "float32"
    limit: int | None = None
    budget: int | None = None
    fanout: list[int] = field(default_factory=lambda: [15, 10, 5])
    batch_size: int = 1024
    hidden: int = 256
    batches: int = 300
    seconds: float = 600.0
    workers: int = 2
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def graph(self) -> PapersGraph:
        """The synthetic graph of this scale."""
        return PapersGraph.of(self.scale, self.seed)

    @property
    def encoding(self) -> str | None:
        """How features are stored, as ``gz.convert(features=...)`` has it."""
        return None if self.features == "float32" else self.features

    @property
    def model(self) -> Path:
        """Where training leaves its model."""
        return Path(self.work) / "model.pt"


def io_bytes() -> dict[str, int]:
    """Bytes that this process has caused to be read from disks and written to them so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    counts = dict(line.split(": ") for line in lines)
    return {name: int(counts[name]) for name in ("read_bytes", "write_bytes")}


def store_bytes(store: Path) -> int:
    """Size of all files of a store."""
    return sum(each.stat().st_size for each in store.rglob("*") if each.is_file())


class Pace:
    """Tells of every batch, and when to stop.

    Args:
        task: Has the number of batches and the seconds.
        tell: Where batches are told.
    """

    def __init__(self, task: Task, tell: Tell) -> None:
        self._task, self._tell = task, tell
        self._begin = self._last = time.perf_counter()
        self.batches = 0

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return self._last - self._begin

    def batch(self, num_nodes: int, num_edges: int, **more: Any) -> bool:
        """Tells of a batch; whether another one is wanted."""
        now = time.perf_counter()
        event = {"event": "batch", "seconds": now - self._last, "nodes": num_nodes}
        self._tell(event | {"edges": num_edges} | more)
        self._last = now
        self.batches += 1
        return self.batches < self._task.batches and self.elapsed < self._task.seconds
