"""Systems and processors are asked in few places: docs/dev/platforms.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENGINE, PACKAGE = ROOT / "csrc", ROOT / "pyg_graphzero"

# Files of one kind of systems, by their names; CMakeLists.txt has the list too.
WORDS = "posix|linux|macos|plain|windows"
OF_ONE_SYSTEM = re.compile(rf"io/(\w+_({WORDS})\.cpp|posix\.h|windows\.h)$|team_openmp\.cpp$")
CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif|else|endif)\b.*", re.MULTILINE)
# Headers that are not of C++ and functions of no class: other systems lack them.
SYSTEMS = re.compile(
    r"#[ \t]*include[ \t]*<(?!(?:nanobind/[\w/]+|Python|cpuid|immintrin|arm_neon)\.h>)[\w/]+\.h>|"
    r"#[ \t]*include[ \t]*<csignal>|(?<![\w>)])::[a-z]\w*\("
)
INTRINSICS = re.compile(
    r"\b_mm\d*_\w+|__builtin_cpu\w+|\bv\w+q_[fsu]\d+\b|<(?:cpuid|\w*intrin|arm_neon)\.h>"
)
ASKED = re.compile(
    r"sys\.platform|os\.name\b|\.st_blocks|ctypes|SIGKILL|[\"']/(proc|sys|dev)\b|"
    r"\b(import|from) (fcntl|resource|mmap|pwd|grp|termios)\b|"
    r"\bos\.(pread|preadv|pwrite|pwritev|posix_|fork|kill|wait|sched_|sysconf|major|minor|statvfs|"
    r"get[eg]?[ug]id|fdatasync|sendfile|mkfifo|O_CLOEXEC|O_DIRECT|O_NOFOLLOW)"
)


def found(pattern: re.Pattern[str], text: str) -> list[str]:
    return [match.group().strip() for match in pattern.finditer(text)]


def sources(folder: Path, *endings: str) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in endings:
            yield path.relative_to(ROOT).as_posix(), path.read_text()


def test_the_engine_has_no_conditions():
    places = {name: found(CONDITION, text) for name, text in sources(ENGINE, ".cpp", ".h")}
    assert {name for name, hits in places.items() if hits} == {"csrc/base/isa.h"}


def test_systems_are_asked_in_files_of_theirs():
    for name, text in sources(ENGINE, ".cpp", ".h"):
        if not OF_ONE_SYSTEM.search(name):
            assert found(SYSTEMS, text) == [], name


def test_instructions_are_written_in_files_of_theirs():
    for name, text in sources(ENGINE, ".cpp", ".h"):
        if not name.startswith("csrc/base/isa_"):
            assert found(INTRINSICS, text) == [], name


def test_python_asks_in_one_module():
    for name, text in sources(PACKAGE, ".py"):
        assert name == "pyg_graphzero/util/system.py" or found(ASKED, text) == [], name


def test_each_system_of_posix_has_its_calls():
    """A call that one of the files lacks fails to link there, on a machine that is not here."""
    declared = (ENGINE / "io" / "posix.h").read_text()
    calls = set(re.findall(r"^\w[\w: ]*? (\w+)\(", declared, re.MULTILINE)) - {"descriptor", "open"}
    assert len(calls) >= 7
    for system in ("linux", "macos", "plain"):
        text = (ENGINE / "io" / f"system_{system}.cpp").read_text()
        assert calls <= set(re.findall(r"^\w[\w: ]*? (\w+)\(", text, re.MULTILINE)), system
