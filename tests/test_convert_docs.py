"""`docs/convert.md`: every block of Python and shell in it runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyg_graphzero.cli import main

PAGE = Path(__file__).resolve().parents[1] / "docs" / "convert.md"


def test_blocks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert {kind for kind, _ in blocks} == {"python", "sh"}
    for kind, body in blocks:
        if kind == "python":
            exec(compile(body, str(PAGE), "exec"), names)
            continue
        for line in body.splitlines():
            program, *arguments = shlex.split(line)
            assert program == "graphzero"
            result = CliRunner().invoke(main, arguments)
            assert result.exit_code == 0, f"{line}: {result.output}"
