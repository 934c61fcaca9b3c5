"""A campaign that goes wrong in every way there is: what the runner is tested with."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from outcome import note

from pyg_graphzero import FormatError

_shared = Path()


def setup(directory: Path) -> None:
    global _shared
    _shared = directory
    if not directory.exists():
        directory.mkdir()
        (directory / "made").write_text(str(os.getpid()))


def case(seed: int, directory: Path) -> str | None:
    assert list(directory.iterdir()) == []
    assert int((_shared / "made").read_text()) != os.getpid()
    note(f"does {seed}")
    if seed == 1:
        raise FormatError("a file is damaged")
    if seed == 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    if seed == 3:
        time.sleep(1000)
    if seed == 4:
        raise AssertionError("3 is not 4")
    if seed == 5:
        return {}["key"]
    if seed == 6:
        assert len(b"1" * (300 << 20)) > 0
    if seed == 7:
        raise FileNotFoundError(2, "no such file", str(directory / "x"))
    if seed == 8:
        raise FileNotFoundError(2, "no such file", "somewhere")
    if seed == 9:
        os._exit(3)
    return None
