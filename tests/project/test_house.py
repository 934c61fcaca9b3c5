"""The order of the package's rooms: see tools/house.py, which counts."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str):
    """A script of ``tools/`` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


house, size = tool("house"), tool("size")


@pytest.fixture(scope="module")
def package():
    return house.modules(ROOT / "pyg_graphzero", "pyg_graphzero")


def modules(**sources: str):
    """Modules of the package with these sources; ``a__b`` is ``a.b``."""
    return [
        house.Module(f"pyg_graphzero.{name.replace('__', '.')}", ROOT / f"{name}.py", text)
        for name, text in sources.items()
    ]


def test_every_room_has_its_place(package):
    assert {module.room for module in package} | {"_core"} == set(house.ORDER)
    assert len(list((ROOT / "pyg_graphzero").glob("*.py"))) <= 6


def test_imports_run_one_way(package):
    assert house.running_up(package) == []
    assert house.circles(house.arrows(package)) == []


def test_an_import_that_runs_up_is_found():
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..loader import plan\n"
    found = modules(store__a=typed, loader__plan="import os\n", loader="")
    assert house.running_up(found) == ["pyg_graphzero.store.a:3 → pyg_graphzero.loader.plan"]


def test_a_circle_is_found():
    found = modules(
        store__a="def f():\n    from pyg_graphzero.store.b import g\n",
        store__b="from pyg_graphzero.store import c\n",
        store__c="import pyg_graphzero.store.a\n",
        store="",
    )
    (circle,) = house.circles(house.arrows(found))
    assert circle == [f"pyg_graphzero.store.{name}" for name in "abc"]


def test_nobody_looks_behind_anothers_underscore(package):
    assert house.peeping(package, package) == []
    tests = house.modules(ROOT / "tests", "tests")
    assert len(house.peeping(tests, package)) < 10


def test_peeping_is_found():
    found = modules(
        store__a="class A:\n    def __init__(self):\n        self._x = 1\n",
        store__b="def f(a, self):\n    self._x\n    return a._x\n",
        store__c="from pyg_graphzero.store.a import _y\n_z = 0\n",
        store__d="_y = 1\n",
    )
    assert house.peeping(found, found) == ["store__b.py:3 _x", "store__c.py:1 _y"]


def test_sentences_name_their_thing():
    allowed = size.column(size.caps(size.CAPS.read_text()), "words")
    found = {folder: len(places) for folder, places in house.unnamed_by_folder().items()}
    assert size.too_large(found, allowed) == []  # python tools/house.py --list shows each
    assert size.too_loose(found, allowed) == []


def test_a_sentence_that_does_not_is_found():
    python = (
        '"""What it is.\n\nRows are read. Those wait,\nas others: As before."""\n# Of a file.\n'
    )
    assert house.unnamed(python, is_python=True) == [
        (1, "What it is.\n\nRows are read. Those wait,\nas others: As before"),
        (3, "Those wait,\nas others: As before."),
        (4, "As before."),
        (5, "Of a file."),
    ]
    cpp = "int a;  // nobody\n\n// A rule.\n// As a rule, not.\n// Nor that.\n"
    assert house.unnamed(cpp, is_python=False) == [(1, "nobody"), (5, "Nor that.\n")]


# What only some systems have: calls, and files of Linux.
SYSTEM = re.compile(
    r"\bos\.(pread|preadv|pwrite|pwritev|posix_\w+|fork\w*|kill\w*|wait\w*|sysconf|sched_\w+|major"
    r"|minor|statvfs|get[eg]?[ug]id|fdatasync|sendfile|mkfifo|O_CLOEXEC|O_DIRECT\w*|O_NOFOLLOW)\b"
    r"|\b(import|from) (fcntl|resource|mmap|pwd|grp|termios)\b|SIGKILL|[\"']/(proc|sys|dev)\b"
)


def test_one_module_asks_the_system(package):
    found = {
        str(module.path.relative_to(ROOT / "pyg_graphzero"))
        for module in package
        if SYSTEM.search(module.path.read_text())
    }
    assert found == {"util/system.py"}
