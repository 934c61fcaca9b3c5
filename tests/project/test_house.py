"""The order of the package's rooms: see tools/house.py, which counts."""

from __future__ import annotations

import re

import pytest
from documents import ROOT, tool

house, size = tool("house"), tool("size")


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


# Calls and files that only some systems have, such as those of Linux.
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
