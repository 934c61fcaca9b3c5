"""One phase of ``papers100m.py``: this script is its process.

A ``Task`` comes in as a line of JSON, events go out likewise: when it is ready, after every batch,
and what was found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from events import Tell, answer
from papers100m_peers import graphzero, stock
from papers100m_phases import convert, infer, optimize, train
from papers100m_task import Task, io_bytes

PHASES: dict[str, Callable[[Task, Tell], dict[str, Any]]] = {
    "convert": convert,
    "optimize": optimize,
    "train": train,
    "infer": infer,
    "stock": stock,
    "graphzero": graphzero,
}


def serve(asked: dict[str, Any], tell: Tell) -> None:
    """One phase, and what it read and wrote."""
    task = Task(**asked)
    before = io_bytes()
    found = PHASES[task.phase](task, tell)
    used = {name: value - before[name] for name, value in io_bytes().items()}
    tell({"event": "found", "found": found | {"io": used}})


if __name__ == "__main__":
    answer(serve)
