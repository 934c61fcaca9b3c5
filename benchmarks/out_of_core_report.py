"""The table, the targets and the charts of ``out_of_core.py``, out of its JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from charting import MISSING, drawing

from pyg_graphzero.bench.table import Table, number
from pyg_graphzero.util.sizes import format_bytes

Result = dict[str, Any]


def rate(result: Result, epoch: int | None = None) -> float | None:
    """Batches a second of an epoch; of all, cut short or not, where none is named."""
    if epoch is None:
        taken = sum(result["batch_seconds"])
        return len(result["batch_seconds"]) / taken if taken else None
    whole = whole_epochs(result)
    if not -len(whole) <= epoch < len(whole):
        return None
    return whole[epoch]["batches"] / whole[epoch]["seconds"]


def whole_epochs(result: Result) -> list[dict[str, Any]]:
    """Those that were not cut short: they have as many batches as the longest."""
    most = max((each["batches"] for each in result["epochs"]), default=0)
    return [each for each in result["epochs"] if each["batches"] == most]


def reading(result: Result) -> dict[str, float] | None:
    """The last epoch's reads: counts, seconds, and the seconds that the disk needs at least."""
    counts = result["epochs"][-1]["counts"] if result["epochs"] else {}
    # Loaders call it as they call their other times.
    seconds = counts.get("read_seconds", counts.get("read"))
    if not counts.get("reads") or not seconds:
        return None
    disk = result["disk"]
    by_count = counts["reads"] / disk["random_iops"]
    by_size = counts["read_bytes"] / disk["bytes_per_second"]
    return {
        "seconds": seconds,
        "ideal_seconds": max(by_count, by_size),
        "ratio": seconds / max(by_count, by_size),
        "reads": counts["reads"],
        "read_bytes": counts["read_bytes"],
    }


def table(report: dict[str, Any]) -> str:
    """Everybody in a line."""
    header = ["run", "store", "batches/s", "first", "last", "of batches"]
    header += ["hits", "reads/batch", "MB/batch", "reads: time/ideal", "anon+file", "charged"]
    rows = []
    for each in report["results"]:
        row = [each["name"], each["store"]]
        if not each["batch_seconds"]:
            bound = f"<{number(each['at_most'])}" if each["at_most"] else "none"
            rows.append([*row, bound, *[""] * (len(header) - 3)])
            continue
        rates = [rate(each), rate(each, 0), rate(each, -1)]
        row += ["" if value is None else number(value) for value in rates]
        row.append(str(len(each["batch_seconds"])))
        counts = each["epochs"][-1]["counts"] if each["epochs"] else {}
        found = reading(each)
        batches = each["epochs"][-1]["batches"] if each["epochs"] else 0
        row.append(f"{counts['hits'] / counts['rows']:.0%}" if counts.get("rows") else "")
        row.append(number(found["reads"] / batches) if found else "")
        row.append(number(found["read_bytes"] / batches / 1e6) if found else "")
        row.append(f"{found['ratio']:.2f}" if found else "")
        row += [format_bytes(each["peak"][kind]) for kind in ("anon_and_file", "charged")]
        rows.append(row)
    limit = format_bytes(report["limit"])
    title = (
        f"out of core: limit {limit} ({report['limit'] / report['feature_bytes']:.0%} of the "
        f"features' bytes), {report['means']}; cold start; batches/s with the time to warm up in it"
    )
    errors = [f"{each['name']}: {each['error']}" for each in report["results"] if each["error"]]
    return "\n".join([Table(title, header, rows).text(), *errors])


def summary(report: dict[str, Any]) -> list[str]:
    """The targets, a line each, as far as there are figures for them."""
    return [f"{name}: {value}" for name, value in targets(report).items()]


def targets(report: dict[str, Any]) -> dict[str, str]:
    """What is to be compared with what."""
    found: dict[str, str] = {}
    results = report["results"]

    def best(*starts: str) -> tuple[float, Result] | None:
        rates = [
            (value, each)
            for each in results
            if each["name"].startswith(starts) and (value := rate(each) or each["at_most"])
        ]
        return max(rates, key=lambda pair: pair[0], default=None)

    for title, ours, theirs in (
        ("against stock PyG over np.memmap", ("ours, f32",), ("stock",)),
        ("against the tuned memmap", ("ours, f32",), ("memmap",)),
        ("against the GraphBolt scheme, float32", ("ours, f32",), ("graphbolt scheme, f32",)),
        ("against the GraphBolt scheme, float16", ("ours, f16",), ("graphbolt scheme, f16",)),
    ):
        a, b = best(*ours), best(*theirs)
        if a and b:
            more = "" if b[1]["batch_seconds"] else "more than "
            line = f"{more}{number(a[0] / b[0])}× ({a[1]['name']} / {b[1]['name']})"
            steady = rate(a[1], -1), rate(b[1], -1)
            if len(whole_epochs(b[1])) > 1 and steady[0] and steady[1]:
                line += f"; last epoch {number(steady[0] / steady[1])}×"
            found[title] = line
    for each in results:
        if each["name"].startswith(("ours", "training,", "topology")):
            add_own(found, each)
    ram, capped = best("training in RAM"), best("training, ")
    if ram and capped:
        pair = rate(ram[1], -1), rate(capped[1], -1)
        found["training, time under the limit against in RAM"] = f"{ram[0] / capped[0]:.2f}×" + (
            f", last epoch {pair[0] / pair[1]:.2f}×" if pair[0] and pair[1] else ""
        )
    return found


def add_own(found: dict[str, str], each: Result) -> None:
    """What a run of ours is measured by alone."""
    if (read := reading(each)) is not None:
        found[f"{each['name']}: time in reads against the ideal"] = f"{read['ratio']:.2f}×"
    if len(whole_epochs(each)) > 2:
        first, third = rate(each, 0), rate(each, 2)
        assert first
        assert third
        found[f"{each['name']}: first epoch against the third"] = f"{third / first:.2f}×"
    if each["limit"] and each["timeline"]:
        share = each["peak"]["anon_and_file"] / each["limit"]
        found[f"{each['name']}: RssAnon + resident pages of the budget"] = f"{share:.0%}"


def charts(report: dict[str, Any], folder: Path) -> str | None:
    """Draws ``out_of_core_speed.png``, ``…_memory.png`` and ``…_reads.png``; needs matplotlib.

    Returns:
        Why there are none, or None.
    """
    tools = drawing(folder, "out_of_core")
    if tools is None:
        return MISSING
    Figure, save = tools

    shown = [each for each in report["results"] if each["batch_seconds"]]
    colors = {group: f"C{i}" for i, group in enumerate(dict.fromkeys(e["group"] for e in shown))}

    figure = Figure(figsize=(8, 0.8 + 0.3 * len(shown)), layout="constrained")
    axes = figure.subplots()
    for at, each in enumerate(shown):
        value = rate(each)
        assert value
        axes.barh(at, value, color=colors[each["group"]])
        axes.annotate(f" {number(value)}", (value, at), va="center", fontsize=8)
    axes.set(xscale="log", xlabel="batches per second, cold start included (log)")
    axes.set_yticks(range(len(shown)), [each["name"] for each in shown])
    axes.margins(x=0.1)
    axes.invert_yaxis()
    save(figure, "speed")

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for each in shown:
        if each["limit"] != report["limit"] or each["group"] in ("stock", "memmap"):
            continue
        seconds = [point["seconds"] for point in each["timeline"]]
        held = [(point["anon"] + point["file"]) / 1e9 for point in each["timeline"]]
        axes.plot(seconds, held, label=each["name"], linewidth=1)
    axes.axhline(report["limit"] / 1e9, color="black", linewidth=1, label="the budget")
    axes.axhline(1.1 * report["limit"] / 1e9, color="black", linewidth=1, linestyle=":")
    axes.set(xlabel="seconds", ylabel="RssAnon + RssFile, GB", ylim=(0, None))
    axes.legend(fontsize=7)
    save(figure, "memory")

    with_reads = [(each, found) for each in shown if (found := reading(each)) is not None]
    if with_reads:
        figure = Figure(figsize=(8, 0.9 + 0.35 * len(with_reads)), layout="constrained")
        axes = figure.subplots()
        for at, (each, found) in enumerate(with_reads):
            axes.barh(at - 0.2, found["seconds"], 0.4, color=colors[each["group"]])
            axes.barh(at + 0.2, found["ideal_seconds"], 0.4, color="lightgrey")
            width = max(found["seconds"], found["ideal_seconds"])
            axes.annotate(f" {found['ratio']:.2f}", (width, at), va="center", fontsize=8)
        axes.set_yticks(range(len(with_reads)), [each["name"] for each, _ in with_reads])
        axes.set_xlabel("seconds in reads, last epoch; grey: max(reads / IOPS, bytes / bandwidth)")
        axes.margins(x=0.1)
        axes.invert_yaxis()
        save(figure, "reads")
    return None
