"""A contestant in a process of its own, so that what it uses can be told apart."""

from __future__ import annotations

import multiprocessing
import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

import torch

from pyg_graphzero.bench.contestants import CONTESTANTS
from pyg_graphzero.bench.workloads import WORKLOADS, Task, Workload
from pyg_graphzero.errors import GraphZeroError

# Read by the OpenMP runtime when it is loaded. Threads that spin while they wait take the cores
# from whoever works, on both sides.
ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"}

T = TypeVar("T")


class BenchError(GraphZeroError):
    """A contestant failed."""


class Entrant:
    """The process of one contestant for one case.

    Args:
        task: The case that it plays.

    Attributes:
        pid: The process.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        os.environ.update(ENVIRONMENT)  # which processes that begin now inherit
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        self.pid = self._ask(os.getpid)

    def open(self) -> float:
        """Opens the graph and makes the sampler or loader; seconds it took."""
        return self._ask(_open, self._task)

    def round(self, number: int) -> dict[str, Any]:
        """Runs a round; see ``Workload.round``."""
        return self._ask(_round, number)

    def _ask(self, do: Callable[..., T], *given: Any) -> T:
        try:
            return self._pool.submit(do, *given).result()
        except Exception as error:
            who = f"{self._task.case.workload} by {self._task.contestant}"
            raise BenchError(f"{who}: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Ends the process."""
        self._pool.shutdown(cancel_futures=True)


# The workload of an entrant, in its process.
_playing: list[Workload] = []


def _open(task: Task) -> float:
    warnings.simplefilter("ignore")
    contestant = CONTESTANTS[task.contestant]()
    if task.case.threads is not None:
        torch.set_num_threads(task.case.threads)
    start = time.perf_counter()
    contestant.open(task.store)
    _playing.append(WORKLOADS[task.case.workload](contestant, task))
    return time.perf_counter() - start


def _round(number: int) -> dict[str, Any]:
    return _playing[0].round(number)
