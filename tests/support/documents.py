"""The code blocks of a Markdown page, and running them as a reader would.

A block is run as the page has it, in the page's order, in one directory and one scope of names.
Python runs in this process, and so do plain ``graphzero …`` lines, which saves starting an
interpreter for each; all else in a ``bash`` block is given to bash.

``python tests/support/documents.py`` runs the guide in the current directory, by whatever is
installed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from click.testing import CliRunner

from pyg_graphzero_cli import main

ROOT = Path(__file__).resolve().parents[2]

# Pages that a user reads in this order, all of them in one directory and one session.
GUIDE = (
    *("docs/index.md", "docs/convert.md", "docs/report.md", "docs/loading.md", "docs/walks.md"),
    *("docs/train-faster.md", "docs/out-of-core.md", "docs/inference.md", "docs/multi-process.md"),
)

# Commands that begin so are shown and not run here, for a reason.
NOT_RUN = {
    "pip install": "changes the environment of the tests; the Makefile installs it",
    "make ": "the tests are run by make",
    "torchrun --standalone --nproc-per-node 2 examples/": "test_papers100m_example.py does",
    "torchrun --nnodes": "needs several machines",
    "graphzero convert ogbn_arxiv": "needs the dataset; tests/convert/test_convert_layouts.py",
    "graphzero bench": "takes from half a minute to hours; test_bench.py runs its parts",
    "python benchmarks/papers100m.py": "needs a control group; tests/bench/test_benchmarks.py",
    "python benchmarks/shards.py": "takes minutes; tests/bench/test_benchmarks.py",
    "python benchmarks/out_of_core.py": "needs a control group; tests/bench/test_benchmarks.py",
}

# Blocks that import one of these are run where it is installed: users have them, the tests do not.
OPTIONAL = (
    *("adbc_driver_postgresql", "adbc_driver_sqlite", "dgl", "duckdb", "lightning", "pandas"),
)
# … and those that import this one, where the environment names a server.
_SERVER = ("adbc_driver_postgresql", "PGHOST")

# Languages that are run, and "text", the output of a run. A page can have no others.
LANGUAGES = ("python", "bash", "text")

# The programs of the environment that the tests run in, whether or not it is the one activated.
_PRELUDE = """set -euo pipefail
python() { "$PYTHON" "$@"; }
graphzero() { "$PYTHON" -m pyg_graphzero "$@"; }
torchrun() { "$PYTHON" -m torch.distributed.run "$@"; }
"""
# Seconds after which a block counts as stuck, on a machine that others keep busy.
_PATIENCE = 180
_PLAIN = re.compile(r"graphzero [^|&;<>$`(]*")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        page: Path of the page, relative to the repository.
        line: Number of its first line of text, from 1.
        language: Word behind the fence.
        text: Lines of the block.
    """

    page: str
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.page}, line {self.line}"


def read_blocks(page: str, text: str) -> list[Block]:
    """All blocks of a page.

    Raises:
        AssertionError: A block cannot be run: it has no language or one that is not in
            `LANGUAGES`, is made by indenting, or is not closed.
    """
    blocks: list[Block] = []
    opened: tuple[int, str, str] | None = None
    body: list[str] = []
    above = ""  # the line before; a list item's lines may be indented
    in_list = False
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.match(r"( *)```+ *(\S*)", line)
        where = f"{page}, line {number}"
        if opened is not None:
            if fence and not fence[2]:
                blocks.append(Block(page, opened[0], opened[1], "\n".join(body) + "\n"))
                opened = None
            else:
                body.append(line.removeprefix(opened[2]))
        elif fence:
            assert fence[2] in LANGUAGES, f"{where}: found {fence[2]!r}, expected {LANGUAGES}"
            opened, body = (number + 1, fence[2], fence[1]), []
        elif re.match(r"( {4}|\t)", line) and not above.strip() and not in_list:
            raise AssertionError(f"{where}: an indented block, expected a fence and its language")
        elif line.strip() and not line.startswith(" "):
            in_list = re.match(r"([-*+]|\d+\.) ", line) is not None
        above = line
    assert opened is None, f"{page}, line {opened and opened[0]}: a block that is not closed"
    return blocks


def commands(block: Block) -> list[str]:
    """The commands of a ``bash`` block, continued lines joined, comments left out."""
    joined = block.text.replace("\\\n", " ")
    found = (re.sub(r"(^|\s)#.*", "", line).rstrip() for line in joined.splitlines())
    return [re.sub(r"(?<=\S) +", " ", line) for line in found if line]


def run_python(block: Block, names: dict[str, Any]) -> None:
    """Runs a block; line numbers in a traceback are the page's.

    One that begins with ``# NAME.py`` is a script, which later blocks find under that name.
    """
    if script := re.match(r"# (\w+\.py)\n", block.text):
        Path(script[1]).write_text(block.text)
    exec(compile("\n" * (block.line - 1) + block.text, block.page, "exec"), names)


def run_bash(block: Block, left_out: Collection[str]) -> None:
    """Runs the commands but those that begin as one of ``left_out`` does."""
    lines = [line for line in commands(block) if not line.startswith(tuple(left_out))]
    if all(_PLAIN.fullmatch(line) for line in lines):
        for line in lines:
            result = CliRunner().invoke(main, shlex.split(line)[1:])
            assert result.exit_code == 0, f"{block.where}: {line}\n{result.output}"
        return
    environment = os.environ | {
        "PYTHON": sys.executable,
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
        "OMP_NUM_THREADS": "1",
    }
    with (
        tempfile.TemporaryFile("w+") as output,  # a pipe would stay open as long as any child lives
        subprocess.Popen(
            ["bash", "-c", _PRELUDE + "\n".join(lines)],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        ) as process,
    ):
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # torchrun ends its workers, which are others'
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            output.write(f"\nkilled after {_PATIENCE} s")
        output.seek(0)
        assert process.wait() == 0, f"{block.where}: {lines}\n{output.read()}"


def run(block: Block, names: dict[str, Any]) -> None:
    """Runs a block as a reader does."""
    needed = re.findall(rf"^import ({'|'.join(OPTIONAL)})\b", block.text, re.MULTILINE)
    if any(importlib.util.find_spec(name) is None for name in needed):
        return
    if _SERVER[0] in needed and _SERVER[1] not in os.environ:
        return
    if block.language == "python":
        run_python(block, names)
    elif block.language == "bash":
        run_bash(block, NOT_RUN)


def text_of(page: str) -> str:
    """A page of the repository."""
    return (ROOT / page).read_text()


def tool(name: str) -> ModuleType:
    """A script of ``tools/`` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_pages(pages: Collection[str], say: Callable[[str], object] = lambda page: None) -> None:
    """Runs all blocks of the pages in their order, in the directory that this is in."""
    names: dict[str, Any] = {}
    for page in pages:
        say(page)
        for block in read_blocks(page, text_of(page)):
            run(block, names)


if __name__ == "__main__":
    run_pages(GUIDE, print)
    print("every block of the guide was run")
