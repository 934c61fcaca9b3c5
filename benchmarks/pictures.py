"""The pictures of the README and the start page, and the chart of speeds out of core.

    python benchmarks/pictures.py

The picture of the result and the chart are drawn from ``benchmarks/results`` and need no run.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from harness.record import parser
from harness.report import speed_bars
from pyg_graphzero.bench.table import number

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
OURS, OTHERS = "#2f6f8f", "#b8b8b8"
# Steps in boxes from top to bottom: a title, lines, and on the arrow to the next one its name and
# the code for it.
STEPS = (
    ("Your graph", ("CSV, Parquet, NumPy", "PyG and OGB datasets", "chunks of a program")),
    ("A store on disk", ("features, edges, labels", "laid out to be read", "checksums")),
    ("Loader", ("threads sample in C++", "hot rows in memory", "the rest read ahead")),
    ("Your model", ("PyG's Data and layers,", "the script unchanged;", "accelerate: one line")),
)
ARROWS = (
    ("once", "gz.convert(…)"),
    ("open", "gz.open(…).data()"),
    ("batches", "for batch in loader"),
)


def workflow() -> Figure:
    """From files to a model, in four boxes: no wider than a phone, so that it is never shrunk."""
    height, gap, margin, width = 50, 28, 3, 270
    total = 4 * height + 3 * gap + 2 * margin
    figure = Figure(figsize=(width / 72, total / 72))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(total, 0))
    axes.set_axis_off()
    for at, (title, lines) in enumerate(STEPS):
        top, color = margin + at * (height + gap), OURS if at in (1, 2) else "#707070"
        axes.add_patch(
            FancyBboxPatch(
                (margin, top), width - 2 * margin, height, "round,pad=0,rounding_size=4",
                facecolor="white", edgecolor=color, linewidth=1.5,
            )
        )  # fmt: skip
        middle = top + height / 2
        axes.text(14, middle, title, va="center", weight="bold", fontsize=10)
        axes.text(128, middle, "\n".join(lines), va="center", fontsize=9)
    for at, (what, code) in enumerate(ARROWS):
        begin = margin + at * (height + gap) + height
        head = {"arrowstyle": "-|>", "linewidth": 1.5, "color": OURS, "mutation_scale": 12}
        axes.annotate("", (60, begin + gap), (60, begin), arrowprops=head)
        font: dict[str, Any] = {"va": "center", "fontsize": 9}
        axes.text(70, begin + gap / 2, what, **font)
        axes.text(128, begin + gap / 2, code, family="monospace", color=OURS, **font)
    return figure


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
        for at, (name, rate) in enumerate(rates.items()):
            axes.barh(at, rate, 0.7, color=OURS if name[0] in "p…" else OTHERS)
            shown = "none in 60 s" if rate < 0.02 else number(rate)
            behind = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(shown, (rate, at), fontsize=10, **behind)
        axes.set_yticks(range(len(rates)), list(rates), fontsize=10.5)
        axes.set_title(title, fontsize=12, weight="bold", loc="left")
        axes.set_xlabel("batches of 1024 seeds per second")
        axes.margins(x=0.15)
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def out_of_core_speed() -> Figure:
    """The chart that a run draws, from its summary."""
    shown = [each for name, each in runs("out_of_core").items() if "training" not in name]
    for each in shown:
        each.setdefault("group", each["name"].replace(",", " ").split()[0])
    figure = Figure(figsize=(8, 0.9 + 0.3 * len(shown)), layout="constrained")
    speed_bars(figure, shown)
    return figure


def main(argv: list[str] | None = None) -> None:
    """Draws all of them."""
    made = parser("pictures", __doc__, json=False)
    made.add_argument("--root", type=Path, default=ROOT, help="where docs and benchmarks are")
    root = made.parse_args(argv).root
    # Text stays text: small files, in the font of whoever looks, the same bytes each time.
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "pictures"}
    for draw, path in (
        (workflow, "docs/assets/workflow.svg"),
        (result, "docs/assets/result.svg"),
        (out_of_core_speed, "benchmarks/results/out_of_core_speed.png"),
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        vector = path.endswith(".svg")
        draw().savefig(root / path, dpi=90, metadata={"Date": None} if vector else None)
        print(f"written: {path}, {(root / path).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
