"""What the contestants of ``out_of_core.py`` are told, and what all of them can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero.store.contents import StoreContents

# Where rows begin in a .gd file (docs/format.md).
_DATA_OFFSET = 4096


@dataclass(frozen=True)
class Task:
    """All that a contestant's process needs to know; plain data.

    Attributes:
        contestant: Name of its class in ``CONTESTANTS``.
        store: The graph.
        seeds: File with the seeds of an epoch, ``int64 [n]``.
        fanout: Neighbours per hop.
        batch_size: Seeds per batch.
        epochs: How many.
        seconds: No batch is begun later than this long after an epoch began.
        memory: The limit it runs under, bytes; None without.
        workers: ``num_workers``, where it has such.
        train: Whether every batch is trained on.
        trim: Whether training leaves out what a layer does not need.
        seed: Of shuffling and sampling.
        options: What else the class understands.
    """

    contestant: str
    store: str
    seeds: str
    fanout: list[int]
    batch_size: int
    epochs: int
    seconds: float
    memory: int | None
    workers: int = 0
    train: bool = False
    trim: bool = False
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)


class StoreFiles:
    """What the contestants that are not this package's loaders know of a store: its raw files."""

    def __init__(self, path: Path) -> None:
        self.contents = StoreContents(path)
        self.x = self.contents.column(self._file("x"))
        self.y = self.contents.view(self._file("y"))
        self.topology = Path(self.contents.topology(None).path)
        self.num_nodes, self.num_features = self.x.shape
        self.dtype = getattr(torch, self.x.dtype)
        row_bytes = self.num_features * self.dtype.itemsize
        if self.x.row_stride != row_bytes:
            raise ValueError(
                f"{self.x.path}: found rows of {row_bytes} bytes {self.x.row_stride} apart, "
                "expected rows without padding; choose --features such as 128"
            )

    def _file(self, attr: str) -> str:
        return self.contents.node_type(None).attrs[attr]

    def memmap(self) -> np.memmap:
        """The features as a script maps them."""
        kind = torch.empty(0, dtype=self.dtype).numpy().dtype
        shape = (self.num_nodes, self.num_features)
        return np.memmap(self.x.path, dtype=kind, mode="r", offset=_DATA_OFFSET, shape=shape)


class Contestant(ABC):
    """One way to get batches. Making it is what a script does before its first epoch."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.seeds: Tensor = torch.load(task.seeds)

    @abstractmethod
    def epoch(self) -> Iterable[Any]:
        """Batches with ``n_id``, ``x``, ``y``, ``edge_index`` and ``batch_size``."""

    def counts(self) -> dict[str, Any]:
        """What is known about the last epoch's reads, in numbers."""
        return {}

    def facts(self) -> dict[str, Any]:
        """What it decided itself, for the report."""
        return {}
