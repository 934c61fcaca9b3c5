"""A full disk, a broken one, and a kill, at every call by which a store changes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import faults
import pytest

pytestmark = pytest.mark.long


def test_every_call() -> None:
    done = faults.run(capture=True)
    assert done.returncode == 0, done.stderr[-3000:]
    struck = json.loads(done.stdout)
    assert min(struck.values()) >= 10  # else nothing was struck where it was meant to be
