"""Figures in the guide are those of the summaries in ``benchmarks/results``."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]


def test_results_are_small_and_cited():
    text = "".join((ROOT / page).read_text() for page in PAGES)
    cited = set(re.findall(r"benchmarks/results/([\w-]+\.\w+)", text))
    assert {path.name for path in RESULTS.iterdir()} == cited
    assert sum(path.stat().st_size for path in RESULTS.glob("*.json")) < 150_000


def test_the_readme_is_short():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 100
    assert any("another author's" in line for line in lines[:15])
