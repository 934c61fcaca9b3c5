"""The deliberate mistakes of `make mutants` still apply, and the tests that notice them exist."""

from __future__ import annotations

import pytest
from documents import tool

mutants = tool("mutants")


@pytest.mark.parametrize("mutant", mutants.listed(), ids=lambda mutant: mutant.name)
def test_it_applies_and_its_test_exists(mutant):
    mutant.check()
