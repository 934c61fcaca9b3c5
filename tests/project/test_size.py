"""No folder has more lines of code than its cap: see tools/size.py, which counts."""

from __future__ import annotations

import importlib.util
import sys

import pytest
from documents import ROOT

_SPEC = importlib.util.spec_from_file_location("size", ROOT / "tools" / "size.py")
size = sys.modules["size"] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(size)


@pytest.fixture(scope="module")
def allowed():
    return size.caps(size.CAPS.read_text())


@pytest.fixture(scope="module")
def found():
    return {folder: each.lines for folder, each in size.sizes().items()}


def test_no_folder_is_above_its_cap(found, allowed):
    assert size.too_large(found, size.column(allowed, "lines")) == []


def test_caps_fall_with_the_code(found, allowed):
    assert size.too_loose(found, size.column(allowed, "lines"), rounded=10) == []


def test_a_raised_cap_says_what_a_user_gets(allowed):
    assert size.unexplained(allowed, size.committed()) == []


def test_what_is_above_below_and_gone_is_said():
    caps = {"large": 100, "loose": 100, "tight": 100, "gone": 100}
    counts = {"large": 101, "loose": 80, "tight": 96, "new": 7}
    (line,) = size.too_large(counts, caps)
    assert "large: found 101, cap 100: " in line
    assert "raise it with a line that says what a user gets for it" in line
    assert size.too_loose(counts, caps, rounded=10) == [
        "gone: cap of a folder that is gone",
        "loose: found 80, cap 100: set it to 80",
        "new: found 7, cap None: set it to 10",
    ]


@pytest.mark.parametrize(
    ("raised", "complaints"),
    [
        ([], 1),
        ([{"folder": "csrc", "lines": 30, "why": " "}], 1),
        ([{"folder": "csrc", "lines": 20, "why": "an earlier raise"}], 1),
        ([{"folder": "csrc", "lines": 30, "why": "batches"}], 0),
    ],
)
def test_a_raise_needs_an_entry_of_its_own(raised, complaints):
    def caps(lines, words, raised=()):
        return {"folders": {"csrc": {"lines": lines, "words": words}}, "raised": raised}

    before = [caps(20, 5), caps(10, 5)]
    assert len(size.unexplained(caps(30, 5, raised), before)) == complaints
    assert len(size.unexplained(caps(30, 6, raised), before)) == complaints + 1
    assert size.unexplained(caps(10, 0), before) == []


def test_only_lines_with_a_token_count():
    python = (
        '"""A module."""\n\n# Why.\ndef f():\n    """Says."""\n    return g(\n        "a"\n    )\n'
    )
    assert size.of_python(python) == size.Size(4, 10)
    cpp = "// Why.\n/* More\n   of it. */\n\nint f() {  // Here.\n  return 1;\n}\n"
    assert size.of_cpp(cpp) == size.Size(3, 9)
