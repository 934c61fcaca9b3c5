"""Every chunk of a loop over much data is known to `chunks.py`, which can make it tiny."""

from __future__ import annotations

import ast
from importlib import import_module

import chunks
import pytest
from documents import ROOT

PACKAGE = ROOT / "pyg_graphzero"
NUMERIC = (ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop)


def number(node: ast.AST) -> int | None:
    """What an expression of nothing but numbers is worth, if it is an integer."""
    if any(not isinstance(n, NUMERIC) for n in ast.walk(node)):
        return None
    value = eval(compile(ast.Expression(node), "", "eval"))
    return value if type(value) is int else None


def found(text: str) -> tuple[set[str], list[str]]:
    """Constants of a module that are large numbers; and sizes of chunks that have no name."""
    constants, nameless = set(), []
    tree = ast.parse(text)
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            value = number(statement.value)
            if value is not None and value >= 64:
                constants.add(statement.targets[0].id)
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift):
                value = number(node)
                if value is not None and 1 << 12 <= value < 1 << 31:
                    nameless.append(f"line {node.lineno}: {ast.unparse(node)}")
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            called = node.func.id if isinstance(node.func, ast.Name) else called
            steps = node.args[2:] if called == "range" else node.args
            if called in ("range", "split", "slabs") and steps:
                step = number(steps[0])
                if step is not None and step > 1:
                    nameless.append(f"line {node.lineno}: {ast.unparse(node)}")
    return constants, nameless


MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if "bench" not in path.parts
}


def test_every_large_constant_is_known():
    large = {module: found(path.read_text())[0] for module, path in MODULES.items()}
    known = {
        module: set(chunks.TINY.get(module, ())) | set(chunks.NO_CHUNKS.get(module, ()))
        for module in {*chunks.TINY, *chunks.NO_CHUNKS}
    }
    for module, names in large.items():
        strange = names - known.get(module, set())
        assert not strange, (
            f"{module}: {sorted(strange)}: if this is how much is done at once, say in "
            "tests/chunks.py how little it can be; if not, say so there"
        )


def test_what_is_known_is_there():
    for module, names in [*chunks.TINY.items(), *chunks.NO_CHUNKS.items()]:
        for name in names:
            assert isinstance(getattr(import_module(f"pyg_graphzero.{module}"), name), int), name


def test_sizes_of_chunks_have_names():
    for module, path in MODULES.items():
        nameless = found(path.read_text())[1]
        allowed = chunks.NAMELESS.get(module, ())
        strange = [place for place in nameless if place.split(": ", 1)[1] not in allowed]
        assert not strange, f"{module}: give the size of a chunk a name, and tell tests/chunks.py"


@pytest.mark.parametrize(
    ("text", "constants", "nameless"),
    [
        ("_ROWS = 1 << 18", {"_ROWS"}, []),
        ("_ROWS = 3 * 4096", {"_ROWS"}, []),
        ("_FEW = 16", set(), []),
        ("def f(x):\n    return x.split(1 << 22)", set(), ["1 << 22", "x.split(1 << 22)"]),
        ("def f(x):\n    for i in range(0, x, 1000):\n        pass", set(), ["range(0, x, 1000)"]),
        ("def f(x):\n    for i in range(0, x, x):\n        pass", set(), []),
    ],
)
def test_the_check_sees(text, constants, nameless):
    assert found(text)[0] == constants
    assert sorted(place.split(": ", 1)[1] for place in found(text)[1]) == nameless
