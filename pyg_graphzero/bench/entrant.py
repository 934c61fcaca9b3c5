"""A contestant in a process of its own, so that what it uses can be told apart.

The process is this module run as a script: a ``Task`` and then commands come in as lines of JSON,
answers go out likewise.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from typing_extensions import Self

from pyg_graphzero.bench.contestants import CONTESTANTS
from pyg_graphzero.bench.data import Seeds
from pyg_graphzero.bench.workloads import WORKLOADS, Task, Workload
from pyg_graphzero.errors import GraphZeroError

# Read by the OpenMP runtime when it is loaded. Threads that spin while they wait take the cores
# from whoever works, on both sides.
ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"}


class BenchError(GraphZeroError):
    """A contestant failed."""


class Entrant:
    """The process of one contestant for one case.

    Args:
        task: The work of the process.

    Attributes:
        pid: The process.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "pyg_graphzero.bench.entrant"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ENVIRONMENT,
            start_new_session=True,  # so that it can be ended together with its workers
        )
        self.pid = self._process.pid

    def open(self) -> float:
        """Opens the graph; seconds it took."""
        return self._ask(dataclasses.asdict(self._task))["seconds"]

    def prepare(self) -> float:
        """Makes the sampler or loader; seconds it took."""
        return self._ask({"do": "prepare"})["seconds"]

    def round(self, number: int) -> dict[str, Any]:
        """Runs a round; see ``Workload.round``."""
        return self._ask({"do": "round", "number": number})

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer = json.loads(line) if line else {"error": f"it ended: {self._process.wait()}"}
        if "error" in answer:
            task = self._task
            raise BenchError(f"{task.workload} by {task.contestant}: {answer['error']}")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._process.communicate()


def _serve(lines: Any, answers: Any) -> None:
    """Does what it is told until there is no more."""

    def answer(value: dict[str, Any]) -> None:
        print(json.dumps(value), file=answers, flush=True)

    try:
        task = Task(**json.loads(next(lines)))
        seeds = Seeds(**torch.load(task.seeds))
        contestant = CONTESTANTS[task.contestant]()
        if task.threads is not None:
            torch.set_num_threads(task.threads)
        start = time.perf_counter()
        contestant.open(Path(task.store))
        answer({"seconds": time.perf_counter() - start})
        workload: Workload | None = None
        for line in lines:
            request = json.loads(line)
            if request["do"] == "prepare":
                start = time.perf_counter()
                workload = WORKLOADS[task.workload](contestant, seeds, task)
                answer({"seconds": time.perf_counter() - start})
            else:
                assert workload is not None
                answer(workload.round(request["number"]))
    except Exception as error:
        answer({"error": f"{type(error).__name__}: {error}"})
        raise


if __name__ == "__main__":
    # Output of libraries goes to stderr, past the answers.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _serve(sys.stdin, replies)
