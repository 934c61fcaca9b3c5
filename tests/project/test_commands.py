"""Commands that programs show, in docstrings, help and errors: each is one that can be typed."""

from __future__ import annotations

import argparse
import ast
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyg_graphzero_cli import main

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = [*(ROOT / "examples").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
# Placeholders for the reader's own names.
PLACES = {"…": "here", "DIR": "here"}


class Parsed(Exception):
    """The arguments are such as the program takes."""


def shown(path: Path) -> Iterator[str]:
    """Commands in the docstring of a program: indented, one a line."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    for line in text.replace("\\\n", " ").splitlines():
        found = re.match(r"    ((?:graphzero|python|torchrun) .*?)(?:  +#.*)?$", line)
        if found:
            yield found[1]


COMMANDS = [
    pytest.param(line, id=f"{path.name}: {line}") for path in PROGRAMS for line in shown(path)
]


def parse(line: str) -> None:
    """Has the program read its arguments, and do nothing with them."""
    words = [PLACES.get(word, word) for word in shlex.split(line)]
    if words[0] == "graphzero":
        command = main.commands[words[1]]
        command.make_context(words[1], words[2:])
        return
    at = next(i for i, word in enumerate(words) if word.endswith(".py"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setattr(sys, "argv", words[at:])
        patch.syspath_prepend(Path(words[at]).parent)
        real = argparse.ArgumentParser.parse_args

        def read(self: argparse.ArgumentParser, *given: Any) -> None:
            real(self, *given)
            raise Parsed

        patch.setattr(argparse.ArgumentParser, "parse_args", read)
        with pytest.raises(Parsed):
            runpy.run_path(str(ROOT / words[at]), run_name="__main__")


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_of_programs(line):
    parse(line)


def texts(path: Path) -> Iterator[str]:
    """The string constants of a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_options_that_messages_name():
    """``--ids map`` in an error is an option that there is."""
    known = {
        flag
        for command in [main, *main.commands.values()]
        for parameter in command.params
        for flag in [*parameter.opts, *parameter.secondary_opts]
    }
    foreign = {"--help", "--version", "--no-metadata"}
    for path in (ROOT / "pyg_graphzero").rglob("*.py"):
        if "bench" not in path.parts:
            for text in texts(path):
                named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text))
                assert named <= known | foreign, (path, text)
