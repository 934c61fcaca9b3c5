"""The notebook: from CSV files to an accuracy, cell by cell as a reader runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "quickstart.ipynb"


@pytest.fixture(scope="module")
def cells() -> list[dict[str, Any]]:
    return json.loads(NOTEBOOK.read_text())["cells"]


@pytest.mark.long
def test_it_runs_and_learns(cells, tmp_path, monkeypatch, capsys):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    monkeypatch.setattr(plt, "show", lambda: None)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), NOTEBOOK.name, "exec"), names)
    assert len(names["axes"].lines) == 2
    plt.close("all")
    assert names["accuracy"] > 0.9
    assert f"test accuracy {names['accuracy']:.3f}" in capsys.readouterr().out
    assert names["store"].num_nodes == 3000


def test_output_names_no_path_of_a_machine(cells):
    """It is committed as it ran, with a picture, and without where that was."""
    shown = [output for cell in cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", ()) for output in shown)
    text = json.dumps([output for output in shown if "image/png" not in output.get("data", ())])
    assert not re.search(r"(?<![.…\w<])/(?!td|tr|th|pre|table)\w", text)
