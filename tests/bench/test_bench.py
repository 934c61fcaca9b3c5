"""``graphzero bench`` from end to end, on a graph so small that its figures mean nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch_geometric.typing
from click.testing import CliRunner, Result

from graphs import write_store
from pyg_graphzero.bench.contestants import CONTESTANTS
from pyg_graphzero.bench.training import MODELS
from pyg_graphzero_cli import main
from pyg_graphzero_cli.bench import PRESETS, WORKLOADS

ROOT = Path(__file__).resolve().parents[2]
TAKING_PART = [name for name, each in CONTESTANTS.items() if each.missing() is None]


def bench(*arguments: object) -> Result:
    result = CliRunner().invoke(main, ["bench", "--quick", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    out = tmp_path_factory.mktemp("bench")
    return bench("-o", out), out


@pytest.mark.long
def test_every_case_is_measured(quick):
    report = json.loads((quick[1] / "bench.json").read_text())
    cases: dict[str, str | None] = {"sample, 1 thread": None, "load, 1 worker": None}
    cases |= {f"train, {model} model, 1 worker": model for model in MODELS}
    cases |= {"link, 1 worker": None}
    got = [(each["case"], each["contestant"]) for each in report["results"]]
    assert got == [
        (case, name)
        for case, model in cases.items()
        for name in TAKING_PART
        if CONTESTANTS[name].cannot_train(model) is None
    ]
    assert [each["model"] for each in report["results"] if each["contestant"] == "graphzero"] == [
        *cases.values()
    ]
    for each in report["results"]:
        assert each["batches"] == 2
        assert 64 < each["nodes_per_batch"] <= 64 * 31
        assert 64 < each["edges_per_batch"] <= 64 * 30
        assert len(each["seconds_per_batch"]) == len(each["cpu_seconds_per_batch"]) == 1
        assert min(each["seconds_per_batch"]) > 0
        assert 0 < each["memory"]["own"] < each["memory"]["pss"]


@pytest.mark.long
def test_the_report_discloses_what_it_was_measured_on(quick):
    result, out = quick
    report = json.loads((out / "bench.json").read_text())
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    fields = [*report, *report["results"][0], "stats"]
    for name in [*fields, *PRESETS, *WORKLOADS]:
        assert f"`{name}`" in page, name
    assert report["environment"] == {"OMP_WAIT_POLICY": "passive"}
    assert report["machine"]["packages"]["torch"]
    assert report["graph"]["num_edges"] == 20_000
    text = (out / "bench.md").read_text()
    for part in (result.stdout, text):
        for line in ("machine:", "disk:", "software:", "20,000 edges", "warm:"):
            assert line in part
        for name in TAKING_PART:
            assert CONTESTANTS[name].title() in part
        for case in ("sample", "load", "train", "link"):
            best = re.findall(rf"{case}: .* by graphzero \(.*1 \w+\) against .* by stock", part)
            assert len(best) == len(TAKING_PART) - 1
    text = re.sub(" +", " ", text)
    assert "| load, 1 worker | graphzero |" in text
    assert "| train, accelerated model, 1 worker | graphzero |" in text
    assert "| train, accelerated model, 1 worker | stock |" not in text
    if "stock" in TAKING_PART:
        assert "accelerated model, 1 worker by stock left out: nn.accelerate needs batches" in text


@pytest.mark.long
def test_without_a_sampler_of_pyg(tmp_path, monkeypatch):
    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", False)
    monkeypatch.setattr(torch_geometric.typing, "WITH_TORCH_SPARSE", False)
    result = bench("--workload", "sample", "--threads", "2", "-o", tmp_path)
    first, _, rest = result.output.partition("graph: ")
    assert "stock left out: PyG needs pyg-lib or torch-sparse to sample" in first
    assert "stock left out: " in rest
    report = json.loads((tmp_path / "bench.json").read_text())
    got = [(each["case"], each["contestant"]) for each in report["results"]]
    assert got == [("sample, 2 threads", "graphzero")]


@pytest.mark.long
def test_a_graph_with_types(tmp_path):
    result = bench(
        *("--data", "synthetic:2000,20000,8,10", "--workload", "train", "--workers", "0"),
        *("--fanout", "3,2", "-o", tmp_path),
    )
    assert "4 node types and 10 edge types" in result.output
    report = json.loads((tmp_path / "bench.json").read_text())
    assert report["graph"]["seed_node_type"] == "n0"
    assert len(report["results"]) == len(TAKING_PART) + 1  # PyG's batches are not accelerated
    assert "train, trimmed model, 0 workers left out: PyG cannot trim" in result.output


def test_a_store_without_labels(tmp_path, data):
    del data.y
    write_store(data, tmp_path / "bare")
    result = bench("--data", tmp_path / "bare", "--workload", "train", "-o", tmp_path / "out")
    assert re.search("train, stock model, 1 worker left out: .* label y", result.output)
    report = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert report["results"] == []
    assert report["settings"]["data"] == "bare"
    assert str(tmp_path) not in (tmp_path / "out" / "bench.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "synthetic:1"], "error: data: found 'synthetic:1', expected a store, or"),
        (["--workload", "sample,fly"], "'fly' is not one of"),
        (["--fanout", "5,x"], "'x' is not a valid integer"),
    ],
)
def test_errors(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["bench", "--quick", *arguments])
    assert result.exit_code == 2
    assert message in result.output
