"""The order of the package's rooms, and deliberate mistakes: see tools/house.py and mutants.py."""

from __future__ import annotations

import pytest
from documents import ROOT, tool

house, mutants, size = tool("house"), tool("mutants"), tool("size")


@pytest.fixture(scope="module")
def package():
    return house.modules(ROOT / "pyg_graphzero", "pyg_graphzero")


def test_every_room_has_its_place(package):
    assert {module.room for module in package} | {"_core"} == set(house.ORDER)
    assert len(list((ROOT / "pyg_graphzero").glob("*.py"))) <= 6


def test_imports_run_one_way(package):
    assert house.running_up(package) == []
    assert house.circles(house.arrows(package)) == []


def test_no_module_uses_private_names_of_another(package):
    assert house.peeping(package, package) == []
    tests = house.modules(ROOT / "tests", "tests")
    assert len(house.peeping(tests, package)) < 10


def test_sentences_name_their_thing():
    allowed = size.column(size.caps(size.CAPS.read_text()), "words")
    found = {folder: len(places) for folder, places in house.unnamed_by_folder().items()}
    assert size.too_large(found, allowed) == []  # python tools/house.py --list shows each
    assert size.too_loose(found, allowed) == []


@pytest.mark.parametrize("mutant", mutants.listed(), ids=lambda mutant: mutant.name)
def test_a_mutant_applies_and_its_test_exists(mutant):
    mutant.check()
