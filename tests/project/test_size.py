"""No folder has more lines of code than its cap: see tools/size.py, which counts."""

from __future__ import annotations

import pytest
from documents import tool

size = tool("size")


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
