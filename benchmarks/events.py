"""What a benchmark's child process tells its parent: a line of JSON for each event, on stdout."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Tell = Callable[[dict[str, Any]], None]


def answer(serve: Callable[[dict[str, Any], Tell], None]) -> None:
    """Reads a task from stdin, has it served, and ends the process.

    Args:
        serve: Is called with the task and with what to tell events by. What it raises is told, too.
    """
    # What libraries print goes to stderr, past the events.
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(event: dict[str, Any]) -> None:
        print(json.dumps(event), file=events, flush=True)

    try:
        serve(json.loads(sys.stdin.readline()), tell)
        tell({"event": "done"})
    except BaseException as error:
        tell({"event": "error", "error": f"{type(error).__name__}: {error}"})
        raise
    # Threads may still be reading ahead of an epoch that was cut short: nothing waits for them.
    os._exit(0)
