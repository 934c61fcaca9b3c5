"""Contestants in an environment of their own: processes that work when they are asked to."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress

from typing_extensions import Self


class Asked:
    """A process that works once for each line of its input, and answers each with a line.

    Args:
        command: Its words, each written as text.
        environment: Variables beside those of this process.
    """

    def __init__(self, command: list[object], **environment: str) -> None:
        self._process = subprocess.Popen(
            [*map(str, command)],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self) -> str:
        """Its answer.

        Raises:
            RuntimeError: It ended instead.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            print(file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended: {self._process.wait()}")
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()
