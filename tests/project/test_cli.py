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
from convert_support import edges_of, write

import pyg_graphzero as gz
from pyg_graphzero_cli import main


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def edges(tmp_path: Path) -> Path:
    return write(tmp_path / "e.csv", "src,dst,w,t\n0,1,0.5,7\n1,2,1.5,8\n2,0,2.5,9\n")


def test_convert_with_every_option(edges: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    table = write(tmp_path / "n.csv", "id;year\n0;5\n1;6\n2;7\n")
    result = run(
        *("convert", edges, "-o", tmp_path / "s", "--src", "dst", "--dst", "src"),
        *("--edge-attr", "w", "--edge-attr", "time=t", "--nodes", table, "--node-id", "id"),
        *("--node-attr", f"x={tmp_path / 'x.npy'}", "--node-attr", "year", "--delimiter", "comma"),
        *("--header", "--undirected", "--coalesce", "max", "--self-loops", "add"),
        *("--dtype", "x=float16,w=float32", "--skip", "year", "--no-progress"),
    )
    assert result.exit_code == 0, result.output
    assert "edges: 9 edges, 3 in the input, 3 self-loops" in result.output
    data = gz.open(tmp_path / "s").data()
    assert str(data.x.dtype) == "torch.float16"
    assert str(data.w.dtype) == "torch.float32"
    assert "year" not in data
    assert (1, 0, 0.5, 7) in edges_of(tmp_path / "s", None, "w", "time")


def test_convert_json_and_force(edges: Path, tmp_path: Path) -> None:
    result = run("convert", edges, "-o", tmp_path / "s", "--json")
    summary = json.loads(result.output)
    assert summary["nodes"][""]["num_nodes"] == 3
    assert summary["edges"][""]["num_edges"] == 3
    again = run("convert", edges, "-o", tmp_path / "s")
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


def test_info(edges: Path, tmp_path: Path) -> None:
    run("convert", edges, "-o", tmp_path / "s", "--edge-attr", "w", "--ids", "map")
    shown = run("info", tmp_path / "s")
    assert shown.exit_code == 0
    assert "nodes: 3 nodes, int64 ids" in shown.output
    assert "edges: 3 edges, topology" in shown.output
    assert "w: float64, " in shown.output
    assert json.loads(run("info", tmp_path / "s", "--json").output)["is_hetero"] is False
    nowhere = run("info", tmp_path / "nowhere")
    assert nowhere.exit_code == 2
    assert nowhere.output.startswith(f"error: {tmp_path / 'nowhere'}")


def test_verify_names_the_bad_block(tmp_path: Path) -> None:
    gz.convert(
        np.array([[0, 1, 2], [1, 2, 0]]),
        tmp_path / "s",
        node_attrs={"x": np.random.default_rng(0).random((3, 1000))},
    )
    good = run("verify", tmp_path / "s")
    assert (good.exit_code, "all good" in good.output) == (0, True)
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
    assert run("verify", tmp_path / "s").exit_code == 1
    assert run("verify", tmp_path / "nowhere").exit_code == 2


def test_verify_as_json(tmp_path: Path) -> None:
    gz.convert(np.array([[0, 1, 2], [1, 2, 0]]), tmp_path / "s")
    good = run("verify", tmp_path / "s", "--json")
    assert good.exit_code == 0
    found = json.loads(good.output)
    assert (found["ok"], found["bad"], found["files"] > 0) == (True, [], True)
    assert found == gz.open(tmp_path / "s").verify().to_dict()
    (tmp_path / "s" / "store.json").write_text("{")
    bad = run("verify", tmp_path / "s", "--json")
    assert bad.exit_code == 1
    found = json.loads(bad.output)
    assert not found["ok"]
    assert "store.json" in found["bad"][0]


def test_quiet(edges: Path, tmp_path: Path) -> None:
    """Nothing but errors, and JSON where it is asked for."""
    done = run("convert", edges, "-o", tmp_path / "s", "--quiet", "--edge-attr", "w")
    assert (done.exit_code, done.output) == (0, "")
    again = run("convert", edges, "-o", tmp_path / "s", "-q")
    assert again.exit_code == 2
    assert "File exists" in again.output
    asked = run("convert", edges, "-o", tmp_path / "s", "-q", "--force", "--json")
    assert json.loads(asked.output)["edges"][""]["num_edges"] == 3
    assert run("verify", tmp_path / "s", "-q").output == ""
    (tmp_path / "s" / "store.json").write_text("{")
    bad = run("verify", tmp_path / "s", "-q")
    assert (bad.exit_code, "store.json" in bad.output) == (1, True)


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
