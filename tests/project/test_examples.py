"""The examples run as a user runs them, learn something, and print it where the README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# Guessing the largest class gets 0.12.
MAJORITY_CLASS = 0.13


def run_example(cwd: Path, script: str, *options: str) -> str:
    """Output of a quick run, its store below ``cwd``; any folder must do as working directory."""
    command = [sys.executable, str(EXAMPLES / script), "--quick", "--store", str(cwd / "store")]
    # Other tests run beside it, and two threads on one core take longer than one.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *options], cwd=cwd, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def number(pattern: str, output: str) -> float:
    found = re.search(pattern + r"\s+(\d\.\d{4})", output)
    assert found, f"no {pattern!r} in:\n{output}"
    return float(found[1])


def test_swap_loader_agrees_with_stock(tmp_path):
    output = run_example(tmp_path, "swap_loader.py", "--loader", "both", "--seeds", "0", "1")
    singles = [number(f"graphzero  seed {seed}  test accuracy", output) for seed in (0, 1)]
    mean = number("graphzero: test accuracy", output)
    assert mean == pytest.approx(sum(singles) / 2, abs=1e-4)
    assert singles[0] != singles[1]
    assert mean > MAJORITY_CLASS + 0.25
    assert "difference of the means" in output
    assert (tmp_path / "store" / "store.json").exists()
    if "trains on the whole graph" in output:
        assert "pip install" in output
        assert 0 <= number("stock, whole graph: test accuracy", output) <= 1
    else:
        assert number("stock: test accuracy", output) == pytest.approx(mean, abs=0.03)


def test_wordnet_hetero(tmp_path):
    output = run_example(tmp_path, "wordnet_hetero.py")
    assert "word means synset" in output
    assert number("Test accuracy", output) > MAJORITY_CLASS + 0.1


def test_node2vec_learns_as_pygs_does(tmp_path):
    output = run_example(tmp_path, "node2vec.py")
    area = number("pyg_graphzero Node2Vec  seed 0  AUC", output)
    assert area > 0.54
    if "stock PyG: left out" not in output:
        assert number("stock PyG Node2Vec  seed 0  AUC", output) == pytest.approx(area, abs=0.03)


def test_temporal_learns_within_a_window(tmp_path):
    """Ratings of which it depends on the member that they are of whether they are good."""
    generator = torch.Generator().manual_seed(0)
    members = torch.randint(200, (6000, 2), generator=generator)
    members = members[members[:, 0] != members[:, 1]]
    is_good = (members[:, 1] % 3 > 0) ^ (torch.rand(len(members), generator=generator) < 0.05)
    times = torch.arange(len(members)) * 3600.5
    rows = zip(members.tolist(), is_good.tolist(), times.tolist(), strict=True)
    text = "".join(f"{a},{b},{5 if good else -8},{at}\n" for (a, b), good, at in rows)
    (tmp_path / "ratings.csv").write_text(text)
    output = run_example(tmp_path, "temporal.py", str(tmp_path / "ratings.csv"), "--windows", "60")
    assert "200 members" in output
    assert number("window of 60 days  seed 0  AUC", output) > 0.8
    assert number("window of all times  seed 0  AUC", output) > 0.8


def test_wordnet_rag_answers_with_text(tmp_path):
    output = run_example(tmp_path, "wordnet_rag.py", "having a trunk and tusks")
    assert "Query: having a trunk and tusks (" in output
    assert re.search(r"^[^:\n]+: .*", output, re.MULTILINE)
    assert re.search(r" --\w+--> ", output)


def test_igbh_rgat_learns_and_is_accelerated(tmp_path):
    output = run_example(tmp_path, "igbh_rgat.py")
    assert "4 batches of 32" in output
    assert re.search(r"samples/s, \d+\.\d+ GB of memory", output)
    assert output.count("trimmed") >= 11 * 3  # every convolution
    again = run_example(tmp_path, "igbh_rgat.py", "--stock")  # of the store that is there
    assert "converted" not in again
    assert loss_of(again) == pytest.approx(loss_of(output), rel=0.1)


def loss_of(output: str) -> float:
    found = re.search(r"loss (\d+\.\d+)", output)
    assert found, output
    return float(found[1])
