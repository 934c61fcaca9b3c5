"""The command line: the same conversions, one-line errors, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from convert_support import write

import pyg_graphzero as gz
from pyg_graphzero_cli import main


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def edges(tmp_path: Path) -> Path:
    return write(tmp_path / "e.csv", "src,dst,w,t\n0,1,0.5,7\n1,2,1.5,8\n2,0,2.5,9\n")


def test_convert_json_and_force(edges: Path, tmp_path: Path) -> None:
    result = run("convert", edges, "-o", tmp_path / "s", "--json", "--quiet")
    summary = json.loads(result.output)
    assert summary["nodes"][""]["num_nodes"] == 3
    assert summary["edges"][""]["num_edges"] == 3
    again = run("convert", edges, "-o", tmp_path / "s", "-q")
    assert again.exit_code == 2
    assert again.output == (
        f"error: {tmp_path / 's'}: File exists (force=True or --force replaces it)\n"
    )
    assert run("convert", edges, "-o", tmp_path / "s", "--force").exit_code == 0


def test_errors_are_one_line_and_exit_2(tmp_path: Path) -> None:
    bad = write(tmp_path / "e.csv", "0,1\n-1,2\n")
    result = run("convert", bad, "-o", tmp_path / "s")
    assert result.exit_code == 2
    assert result.output == (
        f"error: {bad}: line 2, column 0: found id -1, expected an id of 0 or more. "
        "If it is meant, pass ids='map' (--ids map).\n"
    )
    missing = run("convert", tmp_path / "none.csv", "-o", tmp_path / "s")
    assert missing.output == f"error: {tmp_path / 'none.csv'}: No such file or directory\n"
    traced = run("--traceback", "convert", bad, "-o", tmp_path / "s")
    assert isinstance(traced.exception, gz.InputError)
    assert run("convert", bad, "-o", tmp_path / "s", "--node-id", "x").exit_code == 2
    assert run("convert", bad, "-o", tmp_path / "s", "--edge-attr", "=x").exit_code == 2


def test_verify_names_the_bad_block(tmp_path: Path) -> None:
    gz.convert(
        np.array([[0, 1, 2], [1, 2, 0]]),
        tmp_path / "s",
        node_attrs={"x": np.random.default_rng(0).random((3, 1000))},
    )
    good = run("verify", tmp_path / "s")
    assert (good.exit_code, "all good" in good.output) == (0, True)
    assert run("verify", tmp_path / "s", "-q").output == ""
    found = json.loads(run("verify", tmp_path / "s", "--json").output)
    assert found == gz.open(tmp_path / "s").verify().to_dict()
    column = next(path for path in (tmp_path / "s").rglob("x*.gd"))
    raw = bytearray(column.read_bytes())
    raw[5000] ^= 1
    column.write_bytes(raw)
    bad = run("verify", tmp_path / "s")
    assert bad.exit_code == 1
    assert f"{column}: block 0" in bad.output
    column.write_bytes(raw[:-1])
    assert run("verify", tmp_path / "s").exit_code == 1
    (tmp_path / "s" / "store.json").write_text("{")
    for option in ("--no-progress", "-q", "--json"):
        bad = run("verify", tmp_path / "s", option)
        assert (bad.exit_code, "store.json" in bad.output) == (1, True)
    assert not json.loads(bad.output)["ok"]
    for command in ("verify", "info"):
        nowhere = run(command, tmp_path / "nowhere")
        assert (nowhere.exit_code, nowhere.output[:7]) == (2, "error: ")


def command(*arguments: object, folder: Path | None = None) -> subprocess.Popen[str]:
    """The command line in a process of its own; modules in ``folder`` come before all others."""
    code = "from pyg_graphzero_cli import main; main()"
    paths = [str(folder or ""), str(Path(__file__).parents[2])]
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], *([name, "--help"] for name in main.commands)]
)
def test_help_imports_neither_torch_nor_the_package(tmp_path: Path, arguments: list[str]) -> None:
    for name in ("torch", "torch_geometric", "numpy", "pyg_graphzero"):
        write(tmp_path / f"{name}.py", "raise SystemExit('imported')\n")
    process = command(*arguments, folder=tmp_path)
    shown, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
    assert ("0.1" if arguments == ["--version"] else "Usage:") in shown


def test_an_interrupt_while_modules_are_imported(tmp_path: Path) -> None:
    write(tmp_path / "torch.py", "import time; print('importing', flush=True); time.sleep(60)\n")
    process = command("info", tmp_path, folder=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    shown, said = process.communicate(timeout=60)
    assert (process.returncode, shown, said) == (130, "", "interrupted\n")


@pytest.mark.parametrize(
    "error", [KeyError("edge/topology.gl"), IndexError("list index out of range"), TypeError("x")]
)
def test_a_fault_is_called_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    """A reader must not look for the mistake in the input; a bare key would not help."""

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("pyg_graphzero.tune.doctor.doctor", fails)
    result = run("doctor", tmp_path)
    assert result.exit_code == 3
    assert result.output.count("\n") == 1
    name, text = type(error).__name__, error.args[0]
    assert result.output.startswith(f"error: {name}: {text} ({__file__}, line ")
    assert "in fails). This is a fault of pyg_graphzero" in result.output
    assert run("--traceback", "doctor", tmp_path).exception is error


@pytest.mark.long  # imports torch
def test_runs_as_a_module(edges: Path, tmp_path: Path) -> None:
    # torch 2.14 warns of what PyG does while it is imported, which comes before the command line.
    command = [sys.executable, "-W", "ignore::FutureWarning", "-m", "pyg_graphzero"]
    done = subprocess.run(
        [*command, "convert", edges, "-o", tmp_path / "s"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
