"""Counts what makes the house hard to read: circles, imports that run up, peeping, unnamed things.

    python tools/house.py            # a table of counts
    python tools/house.py --list     # and each place that is counted

``tests/project/test_house.py`` fails where a count that is to be zero is not, or where
a folder has more sentences that do not name their thing than ``tools/size.toml`` allows.
"""

import argparse
import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "pyg_graphzero"

#: Each uses those before it, never those behind it. Public names of one module stand at the end.
ORDER = (
    *("_core", "errors", "util", "store", "conversion", "pyg", "shards", "sampling", "memory"),
    *(
        "loader",
        "nn",
        "inference",
        "rag",
        "tune",
        "reporting",
        "bench",
        "sampler",
        "disk",
        "",
        "__main__",
    ),
)
# Names of torch's, PyG's and IPython's that ours have too.
_FOREIGN = {
    "_indices",
    "_key",
    "_mapping",
    "_num_samples",
    "_repr_html_",
    "_schema",
    "_store",
    "_values",
    "_version",
}

#: Folders whose docstrings and comments are read; rooms of the first and the last are counted too.
PROSE = (PACKAGE, f"{PACKAGE}_cli", "csrc")
#: How a sentence begins that does not name its thing, and words that name none.
UNNAMED = re.compile(
    r"(?:^|[.:;] +|\n *\n? *)(?:What|Who|Whose|Those|Of|The same|As|Nor|Likewise)\b"
    r"(?! (?:a|an) (?:result|rule)\b)|\b[Ss]o many\b|\b[Nn]obody\b|\b[Ss]omebody\b"
)


@dataclass(frozen=True)
class Module:
    """A module of the package, or one of its tests."""

    name: str
    path: Path
    text: str

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All of its syntax tree."""
        return list(ast.walk(ast.parse(self.text)))

    @property
    def room(self) -> str:
        """The package below ours that it lies in, or its own name."""
        return self.name.removeprefix(PACKAGE).removeprefix(".").split(".")[0]


def modules(folder: Path, prefix: str) -> list[Module]:
    """All modules below a folder."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        parts = [prefix, *path.relative_to(folder).with_suffix("").parts]
        name = ".".join(parts).removesuffix(".__init__")
        found.append(Module(name, path, path.read_text()))
    return found


def imports(module: Module, names: set[str]) -> Iterator[tuple[str, int, list[str]]]:
    """Modules of the package that one imports, wherever it does: name, line, what of it."""
    is_package = module.path.name == "__init__.py"
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in names:
                    yield alias.name, node.lineno, []
        if not isinstance(node, ast.ImportFrom):
            continue
        source = node.module or ""
        if node.level:
            here = module.name.split(".")
            here = here[: len(here) - node.level + is_package]
            source = ".".join([*here, source] if source else here)
        for alias in node.names:
            inner = f"{source}.{alias.name}"
            if inner in names or source in names:
                yield inner if inner in names else source, node.lineno, [alias.name]


def arrows(package: list[Module]) -> dict[str, dict[str, int]]:
    """By module, those it imports and in which line; the package's own ``__init__`` left out."""
    names = {module.name for module in package} | {f"{PACKAGE}._core"}
    found: dict[str, dict[str, int]] = {}
    for module in package:
        for target, line, _ in imports(module, names):
            if target not in (module.name, PACKAGE):
                found.setdefault(module.name, {}).setdefault(target, line)
    return found


def circles(edges: dict[str, dict[str, int]]) -> list[list[str]]:
    """Sets of modules each of which imports all others of its set, in the end (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in edges.get(name, {}):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in sorted(edges):
        if name not in index:
            visit(name)
    return found


def running_up(package: list[Module]) -> list[str]:
    """Imports of a room that comes later in :data:`ORDER`."""
    rooms = {module.name: module.room for module in package} | {f"{PACKAGE}._core": "_core"}
    return [
        f"{name}:{line} → {target}"
        for name, targets in arrows(package).items()
        for target, line in targets.items()
        if ORDER.index(rooms[target]) > ORDER.index(rooms[name])
    ]


@cache
def _own(module: Module) -> set[str]:
    """Names with an underscore that a module defines: functions, classes, fields."""
    names = set()
    for node in module.nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def peeping(looking: list[Module], package: list[Module]) -> list[str]:
    """Uses of names with an underscore that another module of the package defines."""
    defined = set().union(*(_own(module) for module in package)) - _FOREIGN
    found = []
    for module in looking:
        if defined.isdisjoint(re.findall(r"\b_\w+", module.text)):
            continue
        others = defined - _own(module)
        for node in module.nodes:
            if isinstance(node, ast.Attribute) and node.attr in others:
                is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                is_super = isinstance(node.value, ast.Call)
                used = [] if is_own or is_super else [node.attr]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
                used = [alias.name for alias in node.names if alias.name in others]
            else:
                continue
            where = module.path.relative_to(ROOT)
            found += [f"{where}:{node.lineno} {name}" for name in used]
    return found


def prose(text: str, is_python: bool) -> Iterator[tuple[int, str]]:
    """Docstrings and comments of a source file, each with its first line's number."""
    if not is_python:
        for comment in re.finditer(r"(?:^[ \t]*//[^\n]*\n?)+|//[^\n]*", text, re.MULTILINE):
            line = text.count("\n", 0, comment.start()) + 1
            yield line, re.sub(r"^[ \t]*// ?", "", comment.group(), flags=re.MULTILINE)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and (
            docstring := ast.get_docstring(node)
        ):
            yield node.body[0].lineno, docstring
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def unnamed(text: str, is_python: bool) -> list[tuple[int, str]]:
    """Places in a source file that :data:`UNNAMED` finds: line, and the words from there on."""
    found = []
    for line, words in prose(text, is_python):
        for match in UNNAMED.finditer(words):
            start = match.end() - len(match.group().lstrip("\n .:;"))
            found.append((line + words.count("\n", 0, start), words[start : start + 60]))
    return found


def unnamed_by_folder() -> dict[str, list[str]]:
    """These places by folder of :data:`PROSE`, and by folder below the package and the engine."""
    found: dict[str, list[str]] = {}
    for top in PROSE:
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix not in (".py", ".cpp", ".h"):
                continue
            name = path.relative_to(ROOT).as_posix()
            places = [
                f"{name}:{line} {words!r}"
                for line, words in unnamed(path.read_text(), path.suffix == ".py")
            ]
            has_room = top != PROSE[1] and name.count("/") > 1
            for folder in (top, "/".join(name.split("/")[:2]))[: 1 + has_room]:
                found.setdefault(folder, []).extend(places)
    return found


def lines_of(*patterns: str) -> int:
    """Lines of the committed files that match."""
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return sum(len((ROOT / name).read_text().splitlines()) for name in listed)


def main() -> None:  # noqa: D103
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true", help="show what is counted")
    shows = parser.parse_args().list
    package = modules(ROOT / PACKAGE, PACKAGE)
    tests = modules(ROOT / "tests", "tests")
    results = [path for path in (ROOT / "benchmarks" / "results").rglob("*") if path.is_file()]
    counts: list[tuple[str, list[str] | int]] = [
        ("modules at the top level", sorted(p.name for p in (ROOT / PACKAGE).glob("*.py"))),
        ("import circles", [" ".join(circle) for circle in circles(arrows(package))]),
        ("imports that run up", running_up(package)),
        ("peeping in the package", peeping(package, package)),
        ("peeping in the tests", peeping(tests, package)),
        *((f"unnamed things in {top}", unnamed_by_folder()[top]) for top in PROSE),
        ("lines of the engine", lines_of("csrc")),
        ("lines of the package", lines_of(f"{PACKAGE}/*.py")),
        ("lines of the tests", lines_of("tests/*.py", "tests/*.cpp", "tests/*.h")),
        ("lines of the benchmarks", lines_of("benchmarks/*.py", "benchmarks/*.cpp")),
        ("bytes of results", sum(path.stat().st_size for path in results)),
    ]
    for what, found in counts:
        print(f"{found if isinstance(found, int) else len(found):>9,}  {what}")
        if shows and not isinstance(found, int):
            print("".join(f"           {each}\n" for each in found), end="")


if __name__ == "__main__":
    main()
