"""The deliberate mistakes of `make mutants` still apply, and the tests that notice them exist."""

from __future__ import annotations

import importlib.util
import sys

import pytest
from documents import ROOT

_SPEC = importlib.util.spec_from_file_location("mutants", ROOT / "tools" / "mutants.py")
mutants = sys.modules["mutants"] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(mutants)


@pytest.mark.parametrize("mutant", mutants.listed(), ids=lambda mutant: mutant.name)
def test_it_applies_and_its_test_exists(mutant):
    mutant.check()
