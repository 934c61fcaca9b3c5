"""Builds the library that strikes system calls, and runs `syscalls.py` under it.

python tests/fuzz/faults.py --thorough
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def run(*arguments: str, capture: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs it with these arguments.

    Raises:
        CalledProcessError: There is no compiler, or it refuses.
    """
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "syscalls.so"
        compiler = [
            os.environ.get("CXX", "c++"),
            "-std=c++20",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
        ]
        source = [str(HERE / "syscalls.cpp"), "-o", str(library), "-ldl"]
        subprocess.run([*compiler, "-shared", "-fPIC", *source], check=True)
        return subprocess.run(
            [sys.executable, str(HERE / "syscalls.py"), *arguments],
            # One thread: the n-th call is then always the same.
            env={**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"},
            capture_output=capture,
            text=True,
            check=False,
        )


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]).returncode)
