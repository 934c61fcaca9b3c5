"""Every test that docs/pyg-compatibility.md names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "docs" / "pyg-compatibility.md").read_text().splitlines()
NAMED = sorted({n for line in LINES for n in re.findall(r"`(tests/[\w/]+\.py::\w+)`", line)})


def test_the_tests_exist():
    there = set()
    for path in {name.split("::")[0] for name in NAMED}:
        kinds = (ast.FunctionDef, ast.ClassDef)
        found = ast.parse((ROOT / path).read_text()).body
        there |= {f"{path}::{each.name}" for each in found if isinstance(each, kinds)}
    assert set(NAMED) <= there


def test_every_line_names_its_test():
    assert len(NAMED) > 50
    rows = [line for line in LINES if re.match(r"\| .*[✓✗].*\|.*\|.*\|", line)]
    for row in rows:
        assert "tests/" in row, row
