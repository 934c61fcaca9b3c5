"""Counts lines of code by folder, and compares them with the caps in ``tools/size.toml``.

    python tools/size.py             # a table; exits 1 where a folder is above its cap

A line counts if it bears a token: blanks, comments and docstrings do not. Only files that git
tracks are counted. ``tests/project/test_size.py`` compares too.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
CAPS = ROOT / "tools" / "size.toml"

#: Folders whose own folders have caps too.
DIVIDED = ("pyg_graphzero", "csrc")
#: A cap that is more than this many times what is there is to fall.
SLACK = 1.05
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


@dataclass(frozen=True)
class Size:
    """Lines of code, and tokens on them."""

    lines: int = 0
    tokens: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.lines + other.lines, self.tokens + other.tokens)

    @property
    def tokens_a_line(self) -> float:
        """Rounded as it is printed."""
        return round(self.tokens / max(1, self.lines), 1)


def of_python(text: str) -> Size:
    """The size of a Python module."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines: set[int] = set()
    tokens = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE and token.start[0] not in docstrings:
            lines.update(range(token.start[0], token.end[0] + 1))
            tokens += 1
    return Size(len(lines), tokens)


def of_cpp(text: str) -> Size:
    """The size of a C++ file; words and single signs are its tokens."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*", "", text)
    lines = [line for line in text.split("\n") if line.strip()]
    return Size(len(lines), sum(len(re.findall(r"\w+|[^\w\s]", line)) for line in lines))


def folders_of(file: str) -> set[str]:
    """Folders that a file counts in: the one at the top, and in divided ones that below it."""
    top, *rest = file.split("/")
    return {top, f"{top}/{rest[0]}"} if top in DIVIDED and len(rest) > 1 else {top}


def sizes(root: Path = ROOT) -> dict[str, Size]:
    """Size by folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    found: dict[str, Size] = {}
    for file in listed:
        path = root / file
        if path.suffix not in (".py", ".cpp", ".h") or not path.is_file():
            continue
        size = (of_python if path.suffix == ".py" else of_cpp)(path.read_text())
        for folder in folders_of(file):
            found[folder] = found.get(folder, Size()) + size
    return dict(sorted(found.items()))


def caps(text: str) -> dict[str, Any]:
    """Caps by folder, and which of them were raised: the tables of ``size.toml``."""
    return tomllib.loads(text)


def column(allowed: dict[str, Any], name: str) -> dict[str, Any]:
    """One figure by folder: ``lines``, ``tokens_a_line`` or ``words``."""
    return {folder: row[name] for folder, row in allowed["folders"].items() if name in row}


def too_large(counts: dict[str, int], allowed: dict[str, int]) -> list[str]:
    """A line for each folder above its cap: found, cap, and how to go on."""
    return [
        f"{folder}: found {count:,}, cap {allowed[folder]:,}: make it smaller, or raise it with a "
        "line that says what a user gets for it ([[raised]] in tools/size.toml)"
        for folder, count in counts.items()
        if count > allowed.get(folder, count)
    ]


def too_loose(counts: dict[str, int], allowed: dict[str, int], rounded: int = 1) -> list[str]:
    """A line for each folder without a cap, each cap that is to fall, each cap of no folder."""
    found = [
        f"{folder}: cap of a folder that is gone" for folder in sorted(set(allowed) - set(counts))
    ]
    for folder, count in counts.items():
        cap = allowed.get(folder)
        lowest = -(-count // rounded) * rounded
        if cap is None or cap > max(lowest, count * SLACK):
            found.append(f"{folder}: found {count:,}, cap {cap}: set it to {lowest}")
    return found


def unexplained(allowed: dict[str, Any], before: list[dict[str, Any]]) -> list[str]:
    """A line for each cap above one that it once had, if ``raised`` does not say why."""
    explained = {
        (entry["folder"], entry["lines"]) for entry in allowed["raised"] if entry["why"].strip()
    }
    found = []
    for name in ("lines", "words"):
        for folder, cap in column(allowed, name).items():
            lowest = min((column(old, name).get(folder, cap) for old in before), default=cap)
            if cap > lowest and (name == "words" or (folder, cap) not in explained):
                found.append(
                    f"{folder}: {name} raised from {lowest} to {cap}, and [[raised]] does not say "
                    "what a user gets for it"
                )
    return found


def committed() -> list[dict[str, Any]]:
    """The caps in each commit that changed them, on the first-parent line of this branch."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout

    file = CAPS.relative_to(ROOT).as_posix()
    commits = git("log", "--first-parent", "--format=%H", "--", file).split()
    return [caps(git("show", f"{commit}:{file}")) for commit in commits]


def main() -> None:
    """Prints the table: lines and their cap, tokens a line and how many there were at first."""
    found, allowed = sizes(), caps(CAPS.read_text())
    lines, tokens = column(allowed, "lines"), column(allowed, "tokens_a_line")
    print(f"{'folder':<24}{'lines':>8}{'cap':>8}{'tokens a line':>16}{'at first':>10}")
    for folder, size in found.items():
        print(
            f"{folder:<24}{size.lines:>8,}{lines.get(folder, 0):>8,}"
            f"{size.tokens_a_line:>16}{tokens.get(folder, 0.0):>10}"
        )
    if wrong := too_large({folder: size.lines for folder, size in found.items()}, lines):
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
