"""The table and the charts of ``papers100m.py``, out of its JSON."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from charting import MISSING, drawing

from pyg_graphzero.bench.table import Table, number
from pyg_graphzero.util.sizes import format_bytes

Result = dict[str, Any]
# Batches a point of the throughput's chart stands for.
_SMOOTH = 10


def title(result: Result) -> str:
    """What a phase and its limit are called."""
    limit = "no limit" if result["limit"] is None else f"{result['limit'] / 1e9:g} GB"
    return f"{result['phase']}, {limit}"


def short(result: Result) -> str:
    """A line as soon as a phase has ended."""
    line = f"{title(result)}: {outcome(result)}"
    return line + (f"; {result['error']}" if result["error"] else "")


def outcome(result: Result) -> str:
    """What a phase found, in a few words."""
    found = result["found"]
    if per_batch(result) is not None:
        line = f"{len(result['batch_seconds'])} batches, {number(per_batch(result))} s each"
        epoch = epoch_seconds(result)
        return line + (f", an epoch {number(epoch / 60)} min" if epoch else "")
    if "seconds" in found:
        return f"{number(found['seconds'])} s"
    return "nothing" if not found else f"got as far as {list(found.get('steps', found))[-1:]}"


def per_batch(result: Result) -> float | None:
    """Seconds of a batch: in the steady state where that is known, else of all."""
    steady = result["found"].get("steady")
    if steady:
        return steady["seconds_per_batch"]
    taken = result["batch_seconds"]
    return statistics.mean(taken) if taken else None


def epoch_seconds(result: Result) -> float | None:
    """Seconds of a whole epoch, at the same pace."""
    each, batches = per_batch(result), result["found"].get("epoch_batches")
    return None if each is None or batches is None else each * batches


def table(report: dict[str, Any]) -> str:
    """Every phase in a line, accuracies below."""
    header = ["phase", "seconds", "outcome", "hits", "MB/batch", "device use", "stall"]
    header += ["val acc.", "RssAnon", "anon+file", "charged", "read", "written"]
    rows = []
    for each in report["results"]:
        found, steady = each["found"], each["found"].get("steady") or {}
        counts, io = steady.get("counts", {}), found.get("io", {})
        curve = found.get("curve") or [{}]
        seen = each["timeline"][-1]["seconds"] if each["timeline"] else 0.0
        rows.append(
            [
                title(each),
                number(seen),
                outcome(each),
                f"{counts['hit_rate']:.0%}" if counts else "",
                number(counts["read_bytes_per_batch"] / 1e6) if counts else "",
                f"{steady['device_use']:.2f}" if steady.get("device_use") else "",
                f"{steady['stall_share']:.0%}" if steady else "",
                f"{curve[-1]['val_accuracy']:.1%}" if curve[-1] else "",
                *(format_bytes(each["peak"][k]) for k in ("anon", "anon_and_file", "charged")),
                *(format_bytes(io[k]) if io else "" for k in ("read_bytes", "write_bytes")),
            ]
        )
    text = []
    if rows:
        text.append(Table("papers100m: every phase begins cold", header, rows).text())
    text += [f"{title(each)}: {each['error']}" for each in report["results"] if each["error"]]
    if "accuracy" in report:
        lines = [
            [each["features"], f"{each['mean']:.2%}", " ".join(map("{:.2%}".format, scores))]
            for each in report["accuracy"]
            for scores in [each["test_accuracy"]]
        ]
        text.append(Table("test accuracy", ["features", "mean", "each seed"], lines).text())
    return "\n".join(text)


def charts(report: dict[str, Any], folder: Path, name: str) -> str | None:
    """Draws ``NAME_memory.png``, ``NAME_speed.png`` and ``NAME_compare.png``.

    Returns:
        Why there are none, or None.
    """
    tools = drawing(folder, name)
    if tools is None:
        return MISSING
    Figure, save = tools

    shown = [each for each in report["results"] if each["timeline"]]
    if shown:
        figure = Figure(figsize=(8, 1.2 + 1.6 * len(shown)), layout="constrained")
        for axes, each in zip(
            figure.subplots(len(shown), 1, squeeze=False)[:, 0], shown, strict=True
        ):
            memory_chart(axes, each)
        save(figure, "memory")
    paced = [each for each in report["results"] if len(each["batch_seconds"]) > 1]
    if paced:
        figure = Figure(figsize=(8, 3.5), layout="constrained")
        axes = figure.subplots()
        for each in paced:
            axes.plot(*throughput(each["batch_seconds"]), label=title(each), linewidth=1)
        axes.set(xlabel="seconds", ylabel="batches per second", ylim=(0, None))
        axes.legend(fontsize=8)
        save(figure, "speed")
    bars = [(title(each), value) for each in report["results"] if (value := speed(each))]
    if bars:
        figure = Figure(figsize=(8, 0.9 + 0.35 * len(bars)), layout="constrained")
        axes = figure.subplots()
        for at, (_, value) in enumerate(bars):
            axes.barh(at, value, color=f"C{at}")
            axes.annotate(f" {number(value)}", (value, at), va="center", fontsize=8)
        axes.set(xlabel="batches per second")
        axes.set_yticks(range(len(bars)), [label for label, _ in bars])
        axes.margins(x=0.15)
        axes.invert_yaxis()
        save(figure, "compare")
    return None


def memory_chart(axes: Any, result: Result) -> None:
    """Memory of a phase over time: what is its own, with pages of files, and what is charged."""
    points = result["timeline"]
    seconds = [point["seconds"] for point in points]
    own = [point["anon"] / 1e9 for point in points]
    mapped = [(point["anon"] + point["file"]) / 1e9 for point in points]
    axes.plot(seconds, own, linewidth=1, label="RssAnon")
    axes.plot(seconds, mapped, linewidth=1, label="RssAnon + RssFile")
    if any("charged" in point for point in points):
        charged = [point.get("charged", 0) / 1e9 for point in points]
        axes.plot(seconds, charged, linewidth=1, color="lightgrey", label="control group")
    for kind, style in (("limit", "-"), ("budget", ":")):
        if result[kind]:
            axes.axhline(
                result[kind] / 1e9, color="black", linestyle=style, linewidth=1, label=kind
            )
    axes.set(ylabel="GB", ylim=(0, None), xlabel=f"{title(result)}, seconds")
    axes.legend(fontsize=6)


def throughput(taken: list[float]) -> tuple[list[float], list[float]]:
    """Moments, and batches a second of some batches before each."""
    moments, rates, now = [], [], 0.0
    for at in range(0, len(taken), _SMOOTH):
        part = taken[at : at + _SMOOTH]
        now += sum(part)
        moments.append(now)
        rates.append(len(part) / sum(part))
    return moments, rates


def speed(result: Result) -> float | None:
    """Batches a second; of one that delivered none, what it is below."""
    each = per_batch(result)
    return 1 / each if each else result["at_most"]
