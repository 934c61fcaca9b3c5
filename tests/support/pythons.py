"""New processes for Python code of tests, with the package already imported.

Code that may kill its process, or is about a whole one, runs in another, and importing torch and
PyG takes five seconds of each. These are forked from one that has imported them
(:func:`spawned.forked`). Tests that need settings before the first import (``LD_PRELOAD``, malloc's
settings), or are about importing, start Python itself.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import subprocess
import sys
import tempfile
import textwrap
import traceback
from pathlib import Path
from types import ModuleType

import torch

from spawned import PATIENCE, forked


def run(
    code: str, *arguments: object, threads: int = 0, timeout: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    """Runs ``code`` to the end of its interpreter; killed if it takes longer than that.

    Args:
        code: Code with any indent; its ``sys.argv[1:]`` are ``arguments``.
        arguments: Values that become strings.
        threads: Threads of torch, whose team of several does not survive a fork; 0 leaves them.
        timeout: Seconds.
    """
    words = ["-c", *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        said = [Path(folder, name) for name in ("out", "err")]
        given = textwrap.dedent(code), words, said, threads, os.getcwd(), dict(os.environ)
        process = forked().Process(target=_run, args=given)
        process.start()
        process.join(timeout)
        process.kill()
        process.join()
        return subprocess.CompletedProcess(
            words, process.exitcode, *(path.read_text() for path in said)
        )


def _run(
    code: str, words: list[str], said: list[Path], threads: int, cwd: str, env: dict[str, str]
) -> None:
    gc.freeze()  # or it would look at, and copy, all that was imported
    multiprocessing.set_start_method(None, force=True)
    for number, path in enumerate(said, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    if threads:
        torch.set_num_threads(threads)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = words
    main = sys.modules["__main__"] = ModuleType("__main__")
    status = 0
    try:
        exec(code, main.__dict__)
    except BaseException:
        traceback.print_exc()
        status = 1
    end(status)


def end(status: int = 0) -> None:
    """Ends this process as an interpreter ends, which children of a fork server skip."""
    ctypes.pythonapi.Py_Exit(status)
