"""Libraries that stand before C's own in a process (``LD_PRELOAD``)."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path


def compiled(source: Path, folder: Path) -> Path:
    """The library of a file in C or C++20, in ``folder``."""
    library = folder / source.with_suffix(".so").name
    name, usual, *flags = ("CC", "cc") if source.suffix == ".c" else ("CXX", "c++", "-std=c++20")
    compiler = (os.environ.get(name) or sysconfig.get_config_var(name) or usual).split()
    flags += ["-O1", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([*compiler, *flags, str(source), "-ldl"], check=True)
    return library
