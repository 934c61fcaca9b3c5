"""Libraries that stand before C's own in a process (``LD_PRELOAD``)."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path


def compiled(source: Path, folder: Path) -> Path:
    """The library of a C file, in ``folder``."""
    library = folder / source.with_suffix(".so").name
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    command = [*compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library
