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


def test_damaged_stores(tmp_path: Path) -> None:
    found, said = run(tmp_path, "stores", "0:60", "--jobs", "2")
    assert found["violations"] == [], said
    assert found["clean"] > 15  # else the campaign asks for nothing but refusals
    assert found["errors"]["FormatError"] > 20


def test_random_loaders(tmp_path: Path) -> None:
    found, said = run(tmp_path, "loaders", "0:20", "--jobs", "2")
    assert (found["violations"], found["clean"]) == ([], 20), said


def test_random_models(tmp_path: Path) -> None:
    found, said = run(tmp_path, "models", "0:50", "--jobs", "2")
    assert (found["violations"], found["clean"]) == ([], 50), said


def test_damaged_inputs(tmp_path: Path) -> None:
    found, said = run(tmp_path, "inputs", "0:100", "--jobs", "2")
    assert found["violations"] == [], said
    assert found["clean"] > 15
    assert found["errors"]["InputError"] > 50
