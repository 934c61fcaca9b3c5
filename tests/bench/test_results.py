"""Figures in the guide are those of the summaries in ``benchmarks/results``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]


def summary(page: str, name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{page}.json").read_text())[name]


def run(page: str, name: str, title: str) -> dict[str, Any]:
    """A run of a harness's record by its name."""
    return next(each for each in summary(page, name)["results"] if each["name"] == title)


def test_results_are_small_and_cited():
    text = "".join((ROOT / page).read_text() for page in PAGES)
    cited = set(re.findall(r"benchmarks/results/([\w-]+\.\w+)", text))
    assert {path.name for path in RESULTS.iterdir()} == cited
    assert sum(path.stat().st_size for path in RESULTS.glob("*.json")) < 150_000


def out_of_core() -> list[str]:
    """Loaders alone, and training, as tables say it."""
    runs = summary("out-of-core", "out_of_core")["results"]
    found, last = [], {}
    for bits in (32, 16):
        for name, label in (
            ("graphbolt scheme", "the scheme of GraphBolt"),
            ("ours", "**ours, as converted**"),
            ("ours, a later run", "**a later run**"),
        ):
            title = f"{name}, f{bits}"
            each = [run for run in runs if run["name"] == title]
            halves = [run["batches"] / 2 for run in each]
            first, second = (
                mean(half / run[f"{epoch}_epoch"] for half, run in zip(halves, each, strict=True))
                for epoch in ("first", "last")
            )
            last[title] = second
            begun = mean(run["first_batch_seconds"] for run in each)
            cells = [f"{t:.0f}" if t > 20 else f"{t:.1f}" for t in (first, second, begun)]
            cells.append(f"{mean(r['hit_rate'] for r in each):.0%}")
            reads = mean(r["reads_per_batch"] for r in each)
            size = mean(r["read_bytes_per_batch"] for r in each) / 1e6
            cells.append(f"{round(reads, -1):,.0f}, {size:.0f}")
            cells.append(", ".join(f"{r['peak']['anon_and_file'] / r['limit']:.0%}" for r in each))
            found.append(f"| {label}, float{bits} | {' | '.join(cells)} |")
        scheme = last[f"graphbolt scheme, f{bits}"]
        times = [scheme / last[f"{name}, f{bits}"] for name in ("ours", "ours, a later run")]
        found.append(f"in float{bits} {times[0]:.1f} times, in a later run {times[1]:.1f} times")
    for store, label in (("f32", "float32"), ("f16", "float16"), ("i8", "int8")):
        names = ("in RAM", "under the limit", "under the limit with first_aggregation")
        each = [run("out-of-core", "out_of_core", f"training {n}, {store}") for n in names]
        seconds = [r["batches"] / 2 / r["last_epoch"] for r in each]
        cells = [f"{t:.0f} ({t / seconds[0]:.1f}×)" for t in seconds[1:]]
        found.append(f"| {label} | {seconds[0]:.1f} | {' | '.join(cells)} |")
    map_ = run("out-of-core", "out_of_core-stock", "memmap random, 64 threads")
    return [*found, f"threads) gave {map_['batches_per_second']:.2f} batches a second"]


def both_directions() -> tuple[list[str], list[str]]:
    """What two pages say of the same runs."""
    converted = run("papers100m", "papers100m_both_convert", "convert, 12 GB")
    long = [f"Converting took {converted['seconds']:.0f} s,"]
    short = [f"| {converted['seconds']:.0f} s |"]
    runs = [("papers100m_both", "", limit) for limit in (16, 12, 8)]
    runs += [("papers100m_both_float16", ", `float16`", limit) for limit in (16, 8)]
    for record, features, limit in runs:
        each = run("papers100m", record, f"train, {limit} GB")
        own, with_files = (each["peak"][of] / 1e9 for of in ("anon", "anon_and_file"))
        minutes, memory = each["epoch_seconds"] / 60, f"| {own:.1f}, {with_files:.1f} GB |"
        reads = (each[of] / 1e6 for of in ("read_bytes_per_batch", "topology_bytes_per_batch"))
        if not features:
            long.append(
                f"| {limit} GB | {each['found']['first_batch_of_all_seconds']:.1f} s | "
                f"{each['seconds_per_batch']:.3f} s | {minutes:.1f} min | "
                f"{', '.join(f'{size:.0f}' for size in reads)} | {each['hit_rate']:.0%}, "
            )
            long.append(memory)
        seconds = each["seconds_per_batch"]
        short.append(f"| {limit} GB | {seconds:.2f} s a batch, an epoch {minutes:.1f} min {memory}")
    return long, short


def papers100m_shape() -> list[str]:
    """What epochs touch, and what caches miss of it: at scale 1, and two of a tenth."""
    (whole,), tenth = (
        run("papers100m", record, "shape, no limit")["found"]["epochs"]
        for record in ("papers100m_shape", "papers100m_shape_tenth")
    )
    epochs = [whole, *tenth]
    touched = [each["touched"] for each in epochs]
    served = [each["hottest"][0] for each in touched]
    cells = [
        [f"{round(each['nodes'], -3):,.0f}" for each in touched],
        [f"{each['distinct']:.1%}" for each in touched],
        *[[f"{each['hottest'][i]:.1%}" for each in touched] for i in range(3)],
        [f"{each['missed']['18%']:.1%}" for each in epochs],
        [
            f"{each['missed']['36%'] / (1 - hot):.1%}"
            for each, hot in zip(epochs, served, strict=True)
        ],
    ]
    return [f"| {' | '.join(each)} |" for each in cells]


def beside_graphbolt() -> list[str]:
    """Its scheme and this package's batches with the same memory: epochs, reads of the last."""
    found = []
    for each in summary("papers100m", "papers100m_graphbolt")["results"]:
        epochs = dict.fromkeys(f"{1 / each[f'{epoch}_epoch']:.3f}" for epoch in ("first", "last"))
        reads, size, neighbors = (
            each.get(f"{of}_per_batch", 0.0) for of in ("reads", "read_bytes", "topology_bytes")
        )
        memory = each["peak"]["anon_and_file"] / 1e9
        found.append(
            f"| {', '.join(epochs)} s | {1 - each['hit_rate']:.1%} | {reads:,.0f} | "
            f"{size / 1e6:.1f}, {neighbors / 1e6:.1f} | {memory:.2f} GB |"
        )
    return found


def papers100m() -> list[str]:
    """Phases and the steady state of each record."""
    found = both_directions()[0]
    infer = run("papers100m", "papers100m_infer", "infer, 12 GB")
    found.append(f"| in all | {infer['found']['seconds']:.0f} s |")
    labels = "1: 128 numbers of `int8`", "2: 32 numbers of float16", "3, and the class"
    for label, layer in zip(labels, infer["found"]["layers"], strict=True):
        cells = f"{layer['seconds']:.0f} s | {layer['read_bytes'] / 1e9:.0f} GB |"
        found.append(f"| layer {label} | {cells}")
    return found


def performance() -> list[str]:
    """Against stock PyG, modes, options, encodings."""

    def rates(record: str, case: str) -> list[float]:
        both = [each for each in summary("performance", record)["results"] if each["case"] == case]
        return [1 / median(each["seconds_per_batch"]) for each in both]

    found = []
    for record, case, digits in (
        ("bench-large", "sample, 1 thread", 0), ("bench-large", "load, 2 workers", 1),
        ("bench-large-40", "load, 2 workers", 1), ("bench-link", "link, 2 workers", 1),
        ("bench-hetero", "load, 2 workers", 1), ("bench-wide", "load, 2 workers", 1),
    ):  # fmt: skip
        ours, stock = rates(record, case)
        found.append(f"| {ours / stock:.{digits}f}× |")
    unit = median(summary("performance", "modes")["edges_per_second"]["uniform, directional"])
    for label, mode in (("disjoint", "disjoint"), ("induced", "induced"),
                        ("bidirectional", "bidirectional")):  # fmt: skip
        rate = median(summary("performance", "modes")["edges_per_second"][mode])
        found.append(f"| {label} | {unit / rate:.1f} |")
    for row in summary("performance", "accuracy")["rows"]:
        found.append(f"{' '.join(f'{s:.4f}' for s in row['scores'])} | {row['mean']:.4f} |")
    plain: dict[str, dict[str, float]] = {}
    for row in summary("performance", "options")["rows"]:
        base = plain.setdefault(row["graph"], row)
        spread = 50 * (max(row["scores"]) - min(row["scores"]))
        score = f"{100 * row['mean']:.1f} ± {spread:.1f} |"
        saved = row["nodes_per_batch"] / base["nodes_per_batch"] - 1
        shown = (
            f"{row['nodes_per_batch']:,.0f}" if row is base else f"{saved:.0%}".replace("-", "−")
        )
        found += [score, f"| {shown} |"]
    return found


def walks() -> list[str]:
    """In memory beside others, and out of core beside a map."""
    rates = summary("performance", "walks")["steps_per_second"]
    rates = {name: median(each) / 1e6 for name, each in rates.items()}
    found = []
    for label, name in (
        ("here, a graph in memory", "ours, in memory"),
        ("here, a store in the page cache", "ours, store"),
        ("torch-cluster 1.6.3", "torch-cluster"),
        ("GraphZero 0.2", "GraphZero 0.2"),
        ("pyg-lib 0.8, which has no `p` and `q`", "pyg-lib"),
    ):
        cells = [rates.get(f"{kind}: {name}") for kind in ("uniform", "p=0.5, q=2.0")]
        found.append(f"| {label} | {' | '.join('–' if v is None else f'{v:.2g}' for v in cells)} |")
    record = summary("out-of-core", "walks_out_of_core")
    ours, two, many = (each["found"]["steps_per_second"] for each in record["results"])
    return [
        *found,
        f"{record['neighbours_bytes'] / 1e9:.1f} GB of neighbours",
        f"a control group of {record['limit'] / 1e9:.1f} GB",
        f"{ours / 1e3:.0f},000 steps a second",
        f"make {round(two, -2):,.0f} by two threads",
        f"and {many / 1e3:.0f},000 by 64: {ours / two:.0f} and {ours / many:.1f} times less",
    ]


def from_graphzero() -> list[str]:
    """The table beside GraphZero."""
    both = [summary("performance", name)["medians"]
            for name in ("from_graphzero", "from_graphzero-large")]  # fmt: skip
    columns = [each[name] for each in both for name in ("GraphZero 0.2", "ours")]
    found = []
    for name in ("convert", "open", "fanout", "walk", "biased walk", "batch", "epoch"):
        cells = [1e3 * each[name] for each in columns]
        found.append(" | ".join(f"{c:,.0f}" if c >= 10 else f"{c:.{DIGITS[name]}f}" for c in cells))
    for what in ("convert", "use"):
        cells = [each[f"peak of {what}"] / 2**20 for each in columns]
        found.append(" | ".join(f"{cell:.0f} MiB" for cell in cells))
    return found


DIGITS = {"open": 1} | dict.fromkeys(("fanout", "walk", "biased walk", "batch"), 2)


@pytest.mark.parametrize(
    ("page", "figures"),
    [("performance", out_of_core), ("performance", papers100m),
     ("performance", performance),
     ("papers100m", lambda: both_directions()[1]), ("benchmarks", papers100m_shape),
     ("performance", beside_graphbolt), ("walks", walks),
     ("from-graphzero", from_graphzero)],
)  # fmt: skip
def test_cited_figures(page, figures):
    text = re.sub(r"\s+", " ", (ROOT / "docs" / f"{page}.md").read_text())
    missing = [figure for figure in figures() if figure not in text]
    assert not missing


def test_pictures_are_drawn_from_the_figures(tmp_path):
    """What is committed says what the script writes now."""
    pytest.importorskip("matplotlib")
    import pictures

    pictures.main(["--root", str(tmp_path)])
    for name in ("workflow", "result"):
        made, committed = (
            re.findall(r">([^<>]+)</text>", (root / "docs" / "assets" / f"{name}.svg").read_text())
            for root in (tmp_path, ROOT)
        )
        assert made == committed
        assert len(made) > 10
        for page in ("README.md", "docs/index.md"):
            assert f"assets/{name}.svg)" in (ROOT / page).read_text()
    assert (tmp_path / "benchmarks" / "results" / "out_of_core_speed.png").stat().st_size < 60_000


def test_an_axis_says_numbers_that_one_reads():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    from harness.report import log_ticks

    axes = figure.subplots()
    axes.barh([0, 1], [0.6, 11])
    log_ticks(axes, "batches per second")
    figure.draw_without_rendering()
    assert {"1", "2", "5", "10"} <= {tick.get_text() for tick in axes.get_xticklabels()}
    assert not any(tick.get_text() for tick in axes.get_xticklabels(minor=True))


def test_the_readme_is_short():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 100
    assert any("another author's" in line for line in lines[:15])
