"""Printed figures are those of the API, and every flag reaches its argument."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch_geometric.data import Data

import pyg_graphzero as gz
from pyg_graphzero.inference.summary import InferenceSummary, LayerSummary
from pyg_graphzero.loader import NeighborLoader
from pyg_graphzero.loader.stats import LoaderStats
from pyg_graphzero.util.sizes import format_bytes
from pyg_graphzero_cli import main

# Flags ############################################################################################

# The module of what each command calls, what it needs in any case, and the names of flags that are
# other ones there: the name, and what becomes of the value.
CALLS = {
    "convert": ("conversion", ["in.csv", "--out", "out"], gz.convert),
    "optimize": ("tune.optimize", ["s", "--seeds", "train", "--num-neighbors", "3"], gz.optimize),
    "doctor": ("tune.doctor", ["s"], gz.doctor),
    "report": ("reporting.run", ["s"], gz.report),
}
OTHERWISE: dict[tuple[str, str], tuple[str, Any]] = {
    ("convert", "node_id"): ("nodes", lambda value: {"file": "given", "id": value}),
    ("convert", "no_edge_ids"): ("edge_ids", lambda value: not value),
    ("convert", "is_quiet"): ("progress", lambda value: not value),
    ("optimize", "is_quiet"): ("progress", lambda value: not value),
    ("report", "is_quiet"): ("progress", lambda value: not value),
    ("doctor", "workers"): ("num_workers", lambda value: value),
    ("doctor", "no_edge_ids"): ("edge_ids", lambda value: not value),
}
# Flags that are of use only beside others.
BESIDE = {("convert", "node_id"): ["--nodes", "given"]}
# Texts that an option takes, and what they are meant to be.
MEANT: dict[str, tuple[str, Any]] = {
    "edge_attrs": ("a=b", {"a": "b"}),
    "node_attrs": ("a", {"a": "a"}),
    "dtypes": ("a=int8", {"a": "int8"}),
    "fill": ("a=-1", {"a": "-1"}),
    "features": ("int8", {"x": "int8"}),
    "take": ("a,b", ["a", "b"]),
    "skip": ("t.a", ["t.a"]),
    "num_neighbors": ("7,-1", [7, -1]),
    "out": ("elsewhere", Path("elsewhere")),
}


def example(option: click.Option) -> tuple[list[str], Any]:
    """A use of an option that is not its default, and the value that is meant."""
    flag, kind = option.opts[-1], option.type
    if option.is_flag:
        return [flag], True
    if option.name in MEANT:
        text, value = MEANT[option.name]
        return [flag, text], value
    if isinstance(kind, click.Choice):
        value = next(choice for choice in reversed(kind.choices) if choice != option.default)
        return [flag, value], value
    if isinstance(kind, click.types.IntParamType):
        return [flag, "37"], 37
    if isinstance(kind, click.types.FloatParamType):
        return [flag, "3.75"], 3.75
    return [flag, "given"], "given"


def recorded(monkeypatch: pytest.MonkeyPatch, command: str, *arguments: str) -> dict[str, Any]:
    """The arguments with which the command calls its function."""
    module, needed, function = CALLS[command]
    calls: list[dict[str, Any]] = []

    def record(*args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(function).bind(*args, **kwargs)
        calls.append(bound.arguments)
        return SimpleNamespace(to_dict=lambda: {"as": "json"})

    room = importlib.import_module(f"pyg_graphzero.{module}")
    monkeypatch.setattr(room, command, record)
    done = CliRunner().invoke(main, [command, *needed, *arguments])
    assert done.exit_code == 0, (arguments, done.output)
    (call,) = calls
    assert ("--quiet" in arguments) == (done.output == "")
    if "--json" in arguments:
        assert json.loads(done.output) == {"as": "json"}
        call["as_json"] = True
    return call


def options(command: str) -> list[click.Option]:
    return [p for p in main.commands[command].params if isinstance(p, click.Option)]


@pytest.mark.parametrize(("command", "name"), [(c, o.name) for c in CALLS for o in options(c)])
def test_a_flag_arrives(monkeypatch, command, name):
    option = next(option for option in options(command) if option.name == name)
    arguments, value = example(option)
    beside = BESIDE.get((command, name), [])
    before = recorded(monkeypatch, command, *beside)
    after = recorded(monkeypatch, command, *beside, *arguments)
    target, made = OTHERWISE.get((command, name), (name, lambda value: value))
    found = after.pop(target)
    assert found == made(value)
    assert type(found) is type(made(value))
    assert found != before.pop(target, None)
    assert after == before  # and nowhere else


@pytest.mark.parametrize("command", CALLS)
def test_a_flag_that_says_no_arrives(monkeypatch, command):
    for option in options(command):
        for flag in option.secondary_opts:
            assert recorded(monkeypatch, command, flag)[option.name] is False


@pytest.mark.parametrize("command", CALLS)
def test_without_flags_defaults_are_those_of_the_function(monkeypatch, command):
    call = recorded(monkeypatch, command)
    for parameter in inspect.signature(CALLS[command][2]).parameters.values():
        if parameter.name in ("options", "seeds") or parameter.default is parameter.empty:
            continue
        found = call.get(parameter.name, parameter.default)
        # No names are none, however they are said.
        assert (
            found == parameter.default
            or (not found and not parameter.default)
            or (list(found) == list(parameter.default))
        ), parameter.name


# Figures ##########################################################################################


def numbers(pattern: str, text: str) -> list[float]:
    """The groups of a pattern as numbers."""
    found = re.search(pattern, text)
    assert found is not None, (pattern, text)
    return [float(group.replace(",", "")) for group in found.groups()]


def test_the_stats_of_a_loader():
    stats = LoaderStats(
        2, batches=1300, nodes=5, edges=71_000_000, bytes=9 << 30, rows=40_000, hits=30_000,
        reads=26_000, read_bytes=13 << 30, useful_bytes=13 << 28, elapsed=50.0, sample=20.0,
        gather=15.0, read=9.0, prepare=1.0, wait=7.0, finish=2.0,
    )  # fmt: skip
    text, values = repr(stats), stats.to_dict()
    assert numbers(r"([\d,]+) batches in ([\d.]+) s, ([\d.]+) batches/s", text) == [
        1300, 50, pytest.approx(values["batches_per_second"], rel=0.01),
    ]  # fmt: skip
    (edges, size) = numbers(r"([\d.]+) M edges/s, ([\d,]+) MiB", text)
    assert edges * 1e6 == pytest.approx(values["edges_per_second"], rel=0.04)
    assert size * 2**20 == values["bytes"]
    for name in ("sample", "gather", "idle", "prepare", "wait", "finish", "train", "read"):
        seconds, share = numbers(rf"\b{name} ([\d.]+) s \((\d+)%\)", text)
        threads = 2 if name in ("sample", "gather", "idle") else 1  # means of both workers
        assert seconds == pytest.approx(getattr(stats, name) / threads, rel=0.01)
        assert share == pytest.approx(100 * seconds / 50, abs=0.6)
    assert numbers(r"stalled ([\d.]+) s", text) == [stats.stall]
    hits, rows, reads, mib, useful = numbers(
        r"([\d.]+)% of ([\d,]+) rows in memory, ([\d,]+) reads and ([\d.]+) MiB a batch, (\d+)%",
        text,
    )
    assert (hits / 100, rows, reads) == (stats.hit_rate, 40_000, stats.reads_per_batch)
    assert mib * 2**20 == pytest.approx(stats.read_bytes_per_batch, rel=0.01)
    assert useful == 25


@pytest.mark.parametrize("flags", [{}, {"edge_ids": True}, {"edge_ids": False}])
def test_the_doctor_reads_edge_ids_where_a_loader_does(tmp_path, flags):
    data = Data(x=torch.randn(300, 4), edge_index=torch.randint(300, (2, 4000)))
    gz.convert(data, tmp_path / "s", progress=False)
    found = gz.doctor(tmp_path / "s", num_neighbors=[2], batch_size=50, seconds=0.05, **flags)
    batch = next(iter(NeighborLoader(gz.open(tmp_path / "s"), [2], batch_size=50, **flags)))
    assert any("edge_id" in file.name for file in found.files) == ("e_id" in batch)


def test_the_summary_of_a_conversion_and_what_info_prints(tmp_path):
    edges = np.array([[0, 0, 1, 2, 2, 5], [1, 1, 2, 0, 2, 1]])
    summary = gz.convert(
        edges, tmp_path / "s", num_nodes=2000, node_attrs={"x": np.zeros((2000, 3), np.float32)},
        progress=False,
    )  # fmt: skip
    text = str(summary)
    value = summary.to_dict()
    assert f"{format_bytes(value['info']['bytes'])} in {value['seconds']:.1f} s" in text
    assert f"{format_bytes(value['peak_memory'])} of memory at most" in text
    assert value["info"]["bytes"] == sum(f.stat().st_size for f in tmp_path.rglob("*.g[dl]"))
    assert numbers(r"nodes: ([\d,]+) nodes, ([\d,]+) without edges", text) == [2000, 1996]
    assert numbers(r"edges: ([\d,]+) edges, ([\d,]+) duplicates, ([\d,]+) self-loops", text) == [
        6, 1, 1,
    ]  # fmt: skip
    assert summary._repr_html_().count("<tr>") == len(text.splitlines())
    printed = CliRunner().invoke(main, ["info", str(tmp_path / "s")]).output
    info = gz.open(tmp_path / "s").info()
    assert printed == f"{info}\n"
    assert info._repr_html_().count("<tr>") == len(printed.splitlines())
    assert numbers(r"nodes: ([\d,]+) nodes", printed) == [info["node_types"][0]["num_nodes"]]
    assert numbers(r"edges: ([\d,]+) edges", printed) == [info["edge_types"][0]["num_edges"]]
    assert f"{format_bytes(info['bytes'])}, format" in printed
    assert f"topology {format_bytes(info['edge_types'][0]['topology_bytes'])}" in printed
    column = info["node_types"][0]["attrs"]["x"]
    assert f"x: float32[3], {format_bytes(column['bytes'])}" in printed
    assert column["bytes"] == (tmp_path / "s/node/x.gd").stat().st_size


def test_the_summary_of_an_inference():
    layers = [
        LayerSummary(n, None, "h", 5000, 7000, 12.34, 3_200_000, 4_300_000, 98_000_000, "x")
        for n in range(2)
    ]
    summary = InferenceSummary("s", {None: "out"}, 25.0, layers)
    lines = str(summary).splitlines()
    assert summary._repr_html_().count("<tr>") == 3
    for line, factor in zip(lines, (2, 1, 1), strict=True):
        assert numbers(r"([\d.]+) MB read, ([\d.]+) MB written, (\d+) MB of memory", line) == [
            pytest.approx(3.2 * factor), pytest.approx(4.3 * factor), 98,
        ]  # fmt: skip
    assert numbers(r"in ([\d.]+) s", lines[0]) == [25.0]
    assert numbers(r"([\d,]+) rows, ([\d,]+) edges, ([\d.]+) s", lines[1]) == [
        5000, 7000, 12.3,
    ]  # fmt: skip
