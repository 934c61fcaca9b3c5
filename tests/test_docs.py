"""What the documentation shows, run as it stands there."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from graphs import write_store

ROOT = Path(__file__).resolve().parent.parent


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)


def test_readme_example(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (example,) = blocks("README.md")
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    exec(compile(example, "README.md", "exec"), {})
    lines = capsys.readouterr().out.strip().splitlines()
    sizes = [int(line.split()[-1]) for line in lines]
    assert sum(sizes) == 500


def test_loading_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = Data(
        x=torch.randn(1000, 16),
        edge_index=torch.randint(0, 1000, (2, 8000)),
        train_mask=torch.rand(1000) < 0.5,
    )
    write_store(data, tmp_path / "my_graph")
    scope: dict[str, object] = {}
    for block in blocks("docs/loading.md"):
        exec(compile(block, "docs/loading.md", "exec"), scope)


@pytest.mark.parametrize(
    "name",
    [
        "pyg_graphzero",
        "disk",
        "stores",
        "hgt",
        "loader.hgt",
        "loader.neighbor",
        "loader.link",
        "loader.shadow",
        "sampler",
        "convert",
    ],
)
def test_docstring_examples(name, tmp_path, request):
    edge_index = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
    store = write_store(Data(x=torch.eye(4), edge_index=edge_index), tmp_path / "store")
    module = importlib.import_module(name if name == "pyg_graphzero" else f"pyg_graphzero.{name}")
    results = doctest.testmod(
        module, extraglobs={"example_store": store, "getfixture": request.getfixturevalue}
    )
    assert results.attempted > 0
    assert results.failed == 0
