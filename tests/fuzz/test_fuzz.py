"""The first cases of every campaign; `make fuzz` runs many more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
RUN = Path(__file__).parent / "run.py"


def run(tmp_path: Path, campaign: str, seeds: str, *options: str) -> tuple[dict[str, Any], str]:
    summary = tmp_path / "summary.json"
    done = subprocess.run(
        [sys.executable, str(RUN), campaign, seeds, "--json", str(summary), *options],
        capture_output=True,
        text=True,
        timeout=840,  # a busy machine is no failure
    )
    assert summary.exists(), done.stderr
    found = json.loads(summary.read_text())
    assert done.returncode == bool(found["violations"])
    return found, done.stdout


def test_every_call_by_which_a_store_changes() -> None:
    """Each of them meets a full disk, a broken one, or a kill."""
    command = [sys.executable, RUN.with_name("syscalls.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    struck = json.loads(done.stdout)
    assert min(struck.values()) >= 10  # else nothing was struck where it was meant to be


@pytest.mark.parametrize(("campaign", "count"), [("loaders", 20), ("models", 50)])
def test_random_loaders_and_models(tmp_path: Path, campaign: str, count: int) -> None:
    found, said = run(tmp_path, campaign, f"0:{count}", "--jobs", "2")
    assert (found["violations"], found["clean"]) == ([], count), said


def test_damaged_stores(tmp_path: Path) -> None:
    found, said = run(tmp_path, "stores", "0:60", "--jobs", "2")
    assert found["violations"] == [], said
    assert found["clean"] > 15  # else the campaign asks for nothing but refusals
    assert found["errors"]["FormatError"] > 20


def test_damaged_inputs(tmp_path: Path) -> None:
    found, said = run(tmp_path, "inputs", "0:100", "--jobs", "2")
    assert found["violations"] == [], said
    assert found["clean"] > 15
    assert found["errors"]["InputError"] > 50
