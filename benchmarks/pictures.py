"""Pictures of the result, for the README and the start page, and of speeds out of core.

    python benchmarks/pictures.py

They are drawn from ``benchmarks/results`` and need no run.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from harness.record import parser
from pyg_graphzero.bench.table import number

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
OURS, OTHERS = "#2f6f8f", "#b8b8b8"


def runs(name: str) -> dict[str, dict[str, Any]]:
    """Out-of-core runs by name."""
    found = json.loads((RESULTS / "out-of-core.json").read_text())[name]["results"]
    for each in found:
        each.setdefault("batches_per_second", each.get("at_most"))
    return {each["name"]: each for each in found}


def speeds() -> tuple[dict[str, float], dict[str, float]]:
    """Batches a second by what is compared: out of core, and in memory."""
    by_name = runs("out_of_core-stock") | runs("out_of_core")
    out_of_core = {
        label: by_name[name]["batches_per_second"]
        for label, name in (
            ("PyG over np.memmap", "stock, 0 workers"),
            ("the same map, tuned", "memmap random, 64 threads"),
            ("GraphBolt's scheme", "graphbolt scheme, f32"),
            ("pyg_graphzero", "ours, f32"),
            ("… a later run", "ours, a later run, f32"),
            ("… a later run, float16", "ours, a later run, f16"),
        )
    }
    record = json.loads((RESULTS / "performance.json").read_text())
    rates = {
        each["contestant"]: 1 / median(each["seconds_per_batch"])
        for each in record["bench-large"]["results"]
        if each["case"] == "load, 2 workers"
    }
    return out_of_core, {"PyG, torch-sparse": rates["stock"], "pyg_graphzero": rates["graphzero"]}


def result() -> Figure:
    """Chart of speeds: memory for a quarter of the features, and everything in memory."""
    figure = Figure(figsize=(10, 2.9), layout="constrained")
    titles = ("Features four times as large as memory", "Everything in memory")
    panels = figure.subplots(1, 2, width_ratios=(3, 2))
    for axes, title, rates in zip(panels, titles, speeds(), strict=True):
        draw_bars(axes, rates)
        axes.set_title(title, fontsize=12, weight="bold", loc="left")
    return figure


def draw_bars(axes: Any, rates: dict[str, float]) -> None:
    """A bar for each name, with its number behind it."""
    for at, (name, rate) in enumerate(rates.items()):
        axes.barh(at, rate, 0.7, color=OURS if name[0] in "op…" else OTHERS)
        shown = "none in 60 s" if rate < 0.02 else number(rate)
        behind = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(shown, (rate, at), fontsize=10, **behind)
    axes.set_yticks(range(len(rates)), list(rates), fontsize=10.5)
    axes.set_xlabel("batches of 1024 seeds per second")
    axes.margins(x=0.15)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)


def out_of_core_speed() -> Figure:
    """Chart of a run's speeds out of core, training left out."""
    found = runs("out_of_core").items()
    rates = {name: each["batches_per_second"] for name, each in found if "training" not in name}
    figure = Figure(figsize=(8, 0.9 + 0.3 * len(rates)), layout="constrained")
    draw_bars(figure.subplots(), rates)
    return figure


def main(argv: list[str] | None = None) -> None:
    """Draws all of them."""
    made = parser("pictures", __doc__, json=False)
    made.add_argument("--root", type=Path, default=ROOT, help="where docs and benchmarks are")
    root = made.parse_args(argv).root
    # Text stays text: small files, in the font of whoever looks, the same bytes each time.
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "pictures"}
    for draw, path in (
        (result, "docs/assets/result.svg"),
        (out_of_core_speed, "benchmarks/results/out_of_core_speed.png"),
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        vector = path.endswith(".svg")
        draw().savefig(root / path, dpi=90, metadata={"Date": None} if vector else None)
        print(f"written: {path}, {(root / path).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
