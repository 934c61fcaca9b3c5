"""Figures of a run's record, a table, and a chart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyg_graphzero.bench.table import markdown, number
from pyg_graphzero.util.disk import DiskSpeed
from pyg_graphzero.util.sizes import format_bytes

Result = dict[str, Any]
_MISSING = "chart left out: install matplotlib"


def whole_epochs(result: Result) -> list[dict[str, Any]]:
    """Epochs that were not cut short: they have as many batches as the longest."""
    most = max((each["batches"] for each in result["epochs"]), default=0)
    return [each for each in result["epochs"] if each["batches"] == most]


def rate(result: Result, epoch: int | None = None) -> float | None:
    """Batches a second of a whole epoch; of all batches, cut short or not, where none is named."""
    if epoch is None:
        taken = sum(result["batch_seconds"])
        return len(result["batch_seconds"]) / taken if taken else None
    whole = whole_epochs(result)
    if not -len(whole) <= epoch < len(whole):
        return None
    return whole[epoch]["batches"] / whole[epoch]["seconds"]


def speed(result: Result) -> float | None:
    """Batches a second: of the steady state where it is known, else of all; or less than this."""
    if "batches_per_second" in result:  # it is a summary
        return result["batches_per_second"]
    steady = result["found"].get("steady")
    return steady["batches"] / steady["elapsed"] if steady else rate(result) or result["at_most"]


def last_counts(result: Result) -> dict[str, Any]:
    """A loader's counts in the steady state, or else in the last epoch."""
    epochs = result["epochs"]
    return result["found"].get("steady") or (epochs[-1]["counts"] if epochs else {})


def reading(result: Result) -> dict[str, float] | None:
    """Seconds in reads of the steady state or last epoch, and what the disk needs at least."""
    counts = last_counts(result)
    # Loaders call it as they call their other times.
    seconds = counts.get("read_seconds", counts.get("read", 0)) + counts.get("topology_read", 0)
    reads = counts.get("reads", 0) + counts.get("topology_reads", 0)
    if not reads or not seconds:
        return None
    size = counts["read_bytes"] + counts.get("topology_bytes", 0)
    iops, speed = (result["disk"][name] for name in ("random_iops", "bytes_per_second"))
    ideal = DiskSpeed("", iops, speed, 0, True, 0).seconds(reads, size)
    return {"seconds": seconds, "ideal_seconds": ideal, "ratio": seconds / ideal}


def figures(result: Result) -> dict[str, Any]:
    """Figures of a run that pages cite; figures that the run lacks are left out."""
    counts, taken = last_counts(result), result["batch_seconds"]
    batches = counts.get("batches") or (result["epochs"][-1]["batches"] if result["epochs"] else 0)
    read = reading(result)
    found: dict[str, Any] = {
        "batches": len(taken),
        "batches_per_second": None if result["at_most"] else speed(result),
        "first_epoch": rate(result, 0),
        "last_epoch": rate(result, -1),
        "first_batch_seconds": taken[0] if taken else None,
        "reading_over_ideal": read["ratio"] if read else None,
        "seconds": result["found"].get("seconds"),
        "memory_plan": counts.get("memory_plan"),
    }
    if found["batches_per_second"]:
        found["seconds_per_batch"] = 1 / found["batches_per_second"]
        if "epoch_batches" in result["facts"]:
            found["epoch_seconds"] = found["seconds_per_batch"] * result["facts"]["epoch_batches"]
    if batches:
        for name in ("reads", "read_bytes", "topology_reads", "topology_bytes"):
            found[f"{name}_per_batch"] = counts[name] / batches if counts.get(name) else None
    if counts.get("rows"):
        found["hit_rate"] = counts["hits"] / counts["rows"]
    if result["found"].get("steady"):
        found["steady_batches"] = batches
        found["stall_share"] = counts["stall"] / counts["elapsed"]
    return {name: value for name, value in found.items() if value is not None}


def percent(value: float) -> str:
    """Without digits behind the point."""
    return f"{value:.0%}"


# The columns that scenarios choose from: a figure, and how it is shown.
COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "batches/s": ("batches_per_second", number),
    "first": ("first_epoch", number),
    "last": ("last_epoch", number),
    "of batches": ("batches", number),
    "s/batch": ("seconds_per_batch", number),
    "epoch, min": ("epoch_seconds", lambda seconds: number(seconds / 60)),
    "hits": ("hit_rate", percent),
    "reads/batch": ("reads_per_batch", number),
    "MB/batch": ("read_bytes_per_batch", lambda size: number(size / 1e6)),
    "reads: time/ideal": ("reading_over_ideal", "{:.2f}".format),
    "stall": ("stall_share", percent),
    "seconds": ("seconds", number),
    "K steps/s": ("steps_per_second", lambda rate: number(rate / 1e3)),
    "RssAnon": ("anon", format_bytes),
    "anon+file": ("anon_and_file", format_bytes),
    "charged": ("charged", format_bytes),
    "read": ("read_bytes", format_bytes),
    "written": ("write_bytes", format_bytes),
}


def table(title: str, results: list[Result], columns: list[str]) -> str:
    """Every run in a line, and what went wrong below."""
    rows = []
    for each in results:
        found = each["found"] | figures(each) | each.get("peak", {}) | each.get("io", {})
        shown = [COLUMNS[column] for column in columns]
        cells = [form(found[name]) if name in found else "" for name, form in shown]
        if each["at_most"]:
            cells[0] = f"<{number(each['at_most'])}"
        rows.append([each["name"], each["store"], *cells])
    errors = [f"{each['name']}: {each['error']}" for each in results if each["error"]]
    return "\n".join([markdown(title, ["run", "store", *columns], rows), *errors])


def short(result: Result) -> str:
    """A line as soon as a run has ended."""
    if result["error"]:
        return f"{result['name']}: {result['error']}"
    epochs = [f"{e['batches']} batches in {e['seconds']:.1f} s" for e in result["epochs"]]
    found = {name: each for name, each in result["found"].items() if isinstance(each, float)}
    return f"{result['name']}: {', '.join(epochs) or found}"


# Charts ###########################################################################################


def memory_chart(axes_of: list[list[Result]], folder: Path, name: str) -> str:
    """Draws ``NAME_memory.png``.

    Args:
        axes_of: Runs whose memory is shown, one list for each axes.
        folder: Directory of the chart.
        name: Name of the scenario.

    Returns:
        A line that says where the chart is, or why there is none.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return _MISSING
    if shown := [each for each in axes_of if each]:
        height = 4.5 if len(shown) == 1 else 1.2 + 1.6 * len(shown)
        figure = Figure(figsize=(8, height), layout="constrained")
        memory_lines(figure, shown)
        FigureCanvasAgg(figure)
        figure.savefig(folder / f"{name}_memory.png", dpi=90)
    return f"written: {name}_memory.png in {folder}"


def memory_lines(figure: Any, axes_of: list[list[Result]]) -> None:
    """Memory over time; of a run that is alone on its axes, by kind, and what is charged."""
    parts = {
        "RssAnon": ("anon",),
        "RssAnon + RssFile": ("anon", "file"),
        "control group": ("charged",),
    }
    rows = figure.subplots(len(axes_of), 1, squeeze=False)[:, 0]
    for axes, results in zip(rows, axes_of, strict=True):
        first, alone = results[0], len(results) == 1
        for each in results:
            for label, kinds in (parts if alone else {each["name"]: ("anon", "file")}).items():
                seconds = [point["seconds"] for point in each["timeline"]]
                held = [sum(point.get(k, 0) for k in kinds) / 1e9 for point in each["timeline"]]
                axes.plot(seconds, held, label=label, linewidth=1)
        for kind, style in (("limit", "-"), ("budget", ":")):
            if first[kind]:
                at = first[kind] / 1e9
                axes.axhline(at, color="black", linestyle=style, linewidth=1, label=kind)
        label = f"{first['name']}, seconds" if alone else "seconds"
        axes.set(xlabel=label, ylabel="GB", ylim=(0, None))
        axes.legend(fontsize=6)
