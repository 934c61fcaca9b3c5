"""Every test that docs/pyg-compatibility.md names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "docs" / "pyg-compatibility.md").read_text().splitlines()
NAMED = sorted({n for line in LINES for n in re.findall(r"`(tests/[\w/]+\.py::\w+)`", line)})


@pytest.mark.parametrize("name", NAMED)
def test_the_test_exists(name):
    path, test = name.split("::")
    tree = ast.parse((ROOT / path).read_text())
    assert test in {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}


def test_every_line_names_its_test():
    assert len(NAMED) > 50
    rows = [line for line in LINES if re.match(r"\| .*[✓✗].*\|.*\|.*\|", line)]
    for row in rows:
        assert "tests/" in row, row
