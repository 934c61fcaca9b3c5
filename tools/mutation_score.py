"""Makes small changes at random in the modules that decide what a batch holds and a store keeps.

    python tools/mutation_score.py 60          # how many; and a seed, if another than 0 is wanted

A change is one operator, number, truth value or condition turned, or one call left out. Each runs
the tests of its module until one fails. Prints those that none notices, and the share of the rest.
Some of these change nothing that can be seen; a person has to say which.
"""

from __future__ import annotations

import ast
import contextlib
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import mutants

# Which tests a module has.
TESTS = {
    "util/keys": "test_independence test_loader",
    "sampling/neighbor": "test_sampler test_modes test_hgt test_link_loader test_independence",
    "sampling/link_seeds": "test_link_loader test_independence",
    "sampling/negatives": "test_link_loader",
    "store/edge_order": "test_modes test_edits",
    "loader/plan": "test_loader test_link_loader test_views test_stock_loaders",
    "loader/keyed": "test_loader test_independence",
    "store/opened": "test_stores test_views test_damage",
    "store/contents": "test_stores test_edits test_views test_optimize test_strict",
    "store/columns": "test_encodings test_gather test_views test_format",
    "store/writer": "test_writer test_edits test_create_column",
}

TURNED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not",
    "is not": "is", "in": "not in", "not in": "in", "+": "-", "-": "+", "*": "+", "//": "*",
    "%": "+", "&": "|", "|": "&", "and": "or", "or": "and",
}  # fmt: skip
SIGNS: dict[type, str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in", ast.Add: "+",
    ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&",
    ast.BitOr: "|", ast.And: "and", ast.Or: "or",
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """Text between two offsets of a file, and what is put there."""

    file: str
    begin: int
    end: int
    after: str

    def applied(self, text: str) -> str:
        """The file with the change in it."""
        return text[: self.begin] + self.after + text[self.end :]

    def shown(self, text: str) -> str:
        """The place, the line as it was, and what is put where."""
        number = text.count("\n", 0, self.begin) + 1
        line = text.splitlines()[number - 1].strip()
        return f"{self.file}:{number}: {line}  [{text[self.begin : self.end]} -> {self.after}]"


def changes(file: str, text: str) -> Iterator[Change]:
    """All changes of a file, messages and annotations left alone."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + column

    def between(left: ast.expr, right: ast.expr, sign: str) -> Iterator[Change]:
        begin = offset(left.end_lineno or 0, left.end_col_offset or 0)
        at = text.find(sign, begin, offset(right.lineno, right.col_offset))
        if at >= 0:
            yield Change(file, at, at + len(sign), TURNED[sign])

    def visit(node: ast.AST) -> Iterator[Change]:
        if isinstance(node, (ast.Assert, ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)):
            return
        if isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from between(left, right, SIGNS[type(node.op)])
        elif isinstance(node, ast.BinOp) and type(node.op) in SIGNS:
            yield from between(node.left, node.right, SIGNS[type(node.op)])
        elif isinstance(node, ast.Compare):
            yield from between(node.left, node.comparators[0], SIGNS[type(node.ops[0])])
        elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
            begin = offset(node.lineno, node.col_offset)
            end = offset(node.end_lineno or 0, node.end_col_offset or 0)
            turned = not node.value if isinstance(node.value, bool) else node.value + 1
            yield Change(file, begin, end, str(turned))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            begin = offset(node.lineno, node.col_offset)
            yield Change(file, begin, begin + 4, "")
        elif isinstance(node, (ast.If, ast.IfExp)):
            begin = offset(node.test.lineno, node.test.col_offset)
            end = offset(node.test.end_lineno or 0, node.test.end_col_offset or 0)
            yield Change(file, begin, end, f"(not ({text[begin:end]}))")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            begin = offset(node.lineno, node.col_offset)
            yield Change(file, begin, offset(node.end_lineno or 0, node.end_col_offset or 0), "...")
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from visit(child)

    yield from visit(ast.parse(text))


def main(count: int, seed: int = 0) -> int:
    """Prints what was not noticed, and the score."""
    drawn = random.Random(seed)
    texts = {
        f"pyg_graphzero/{module}.py": (mutants.ROOT / f"pyg_graphzero/{module}.py").read_text()
        for module in TESTS
    }
    everything = [change for file, text in texts.items() for change in changes(file, text)]
    sample = drawn.sample(everything, min(count, len(everything)))
    unnoticed = 0
    with contextlib.closing(mutants.Copy()) as copy:
        for number, change in enumerate(sample, 1):
            text = texts[change.file]
            copy.renew()
            copy.write(change.file, change.applied(text).encode())
            module = change.file.removeprefix("pyg_graphzero/").removesuffix(".py")
            tests = [copy.tree.glob(f"tests/*/{name}.py") for name in TESTS[module].split()]
            state, _ = copy.run([str(path.relative_to(copy.tree)) for t in tests for path in t])
            is_unnoticed = state == "passed"
            unnoticed += is_unnoticed
            if is_unnoticed:
                print(f"{number}: {change.shown(text)}", flush=True)
    print(f"{len(sample) - unnoticed} of {len(sample)} noticed, of {len(everything)} changes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:])))
