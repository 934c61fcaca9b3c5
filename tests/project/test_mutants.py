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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"before": "no such text"}, "0 times, expected once"),
        ({"before": "return"}, "times, expected once"),
        ({"after": "class Mutant:"}, "no difference"),
        ({"test": "tests/project/test_mutants.py::test_of_nothing"}, "no test test_of_nothing"),
        ({"test": "tests/cpp/test_base.cpp::xxh64"}, "no test xxh64"),
    ],
)
def test_one_that_does_not_is_an_error(change, words):
    good = {
        "name": "a",
        "file": "tools/mutants.py",
        "before": "class Mutant:",
        "after": "class Mutation:",
        "test": "tests/project/test_mutants.py::test_it_applies_and_its_test_exists",
    }
    mutants.Mutant(**good).check()
    with pytest.raises(ValueError, match=words):
        mutants.Mutant(**good | change).check()
