"""Figures of a run's record, a table, and a chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.record import show
from pyg_graphzero.util.disk import DiskSpeed

Result = dict[str, Any]


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
    steady = result["found"].get("steady")
    found: dict[str, Any] = {
        "batches": len(taken) or None,
        "at_most": result["at_most"],
        "batches_per_second": steady["batches"] / steady["elapsed"] if steady else rate(result),
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
    if steady:
        found["steady_batches"] = batches
        found["stall_share"] = counts["stall"] / counts["elapsed"]
    return {name: value for name, value in found.items() if value is not None}


def table(title: str, results: list[Result]) -> str:
    """The figures of every run, and what went wrong below."""
    rows = {each["name"]: each["found"] | figures(each) | each.get("peak", {}) for each in results}
    errors = [f"{each['name']}: {each['error']}" for each in results if each["error"]]
    return "\n".join([show(title, rows), *errors])


def short(result: Result) -> str:
    """A line as soon as a run has ended."""
    if result["error"]:
        return f"{result['name']}: {result['error']}"
    epochs = [f"{e['batches']} batches in {e['seconds']:.1f} s" for e in result["epochs"]]
    found = {name: each for name, each in result["found"].items() if isinstance(each, float)}
    return f"{result['name']}: {', '.join(epochs) or found}"


def memory_chart(results: list[Result], path: Path) -> None:
    """Draws memory over time of runs under one limit."""
    from matplotlib.figure import Figure  # runs are processes of the same script, and need none

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for each in results:
        seconds = [point["seconds"] for point in each["timeline"]]
        held = [(point["anon"] + point["file"]) / 1e9 for point in each["timeline"]]
        axes.plot(seconds, held, label=each["name"], linewidth=1)
    axes.axhline(results[0]["limit"] / 1e9, color="black", linewidth=1, label="limit")
    axes.set(xlabel="seconds", ylabel="GB", ylim=(0, None))
    axes.legend(fontsize=6)
    figure.savefig(path, dpi=90)
