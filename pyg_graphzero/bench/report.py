"""A report for people: facts and tables in Markdown, and the files of a run."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from pyg_graphzero.bench.table import markdown, number
from pyg_graphzero.util.sizes import format_bytes


def facts(report: dict[str, Any]) -> list[str]:
    """Machine, graph and settings of the figures, a line each."""
    machine, graph, settings = report["machine"], report["graph"], report["settings"]
    limit = machine["memory_limit_bytes"]
    disk = report["storage"]
    packages = ", ".join(f"{name} {found}" for name, found in machine["packages"].items())
    kinds = (
        f" of {graph['num_node_types']} node types and {graph['num_edge_types']} edge types"
        if graph["num_edge_types"] > 1
        else ""
    )
    environment = " ".join(f"{name}={value}" for name, value in report["environment"].items())
    return [
        *(
            f"{name}: {each['title']}, data in {each['place']}"
            for name, each in report["contestants"].items()
        ),
        f"machine: {machine['cpu']}, {machine['usable_cores']} cores, "
        f"{format_bytes(machine['ram_bytes'])}"
        + (f" limited to {format_bytes(limit)}" if limit else "")
        + f", {machine['kernel']}",
        f"disk: {disk['disk'] or 'none'} ({disk['model'] or 'no model'}), {disk['filesystem']}",
        f"software: Python {machine['python']}, {packages}, {environment}",
        f"graph: {settings['data']}: {graph['num_nodes']:,} nodes, {graph['num_edges']:,} "
        f"edges{kinds}, store of {format_bytes(graph['bytes'])}",
        f"work: fan-out {list(settings['fanout'])}, {settings['batch_size']} seeds a batch, "
        f"{settings['batches']} batches a round, medians of {settings['rounds']} alternating "
        "rounds",
        "warm: the store's files are read before the first round",
        *report["notes"],
    ]


def summary(report: dict[str, Any]) -> list[str]:
    """Each workload's best case of the first contestant against that of the others, a line each."""
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for each in report["results"]:
        key = each["workload"], each["contestant"]
        best[key] = min(best.get(key, each), each, key=_seconds)
    lines = []
    for (workload, _), each in best.items():
        ours = next(found for (other, _), found in best.items() if other == workload)
        if each is not ours:
            lines.append(
                f"{workload}: {_best(ours)} against {_best(each)}: "
                f"{_seconds(each) / _seconds(ours):.1f}×"
            )
    return lines


def _seconds(each: dict[str, Any]) -> float:
    return median(each["seconds_per_batch"])


def _best(each: dict[str, Any]) -> str:
    how = each["case"].partition(", ")[2]
    return f"{number(1 / _seconds(each))} batches/s by {each['contestant']} ({how})"


def tables(report: dict[str, Any]) -> list[str]:
    """Speed, memory."""
    results = report["results"]
    speed = ["batches/s", "min", "max", "M edges/s", "nodes/batch", "CPU ms/batch", "time"]
    memory = ["MiB", "of its own", "ready in s"]
    names = [[each["case"], each["contestant"]] for each in results]
    cells = [_speed(each, results) for each in results], [_memory(each) for each in results]
    rows = [[[*name, *row] for name, row in zip(names, each, strict=True)] for each in cells]
    return [
        markdown("Speed", ["case", "by", *speed], rows[0]),
        markdown("Memory at its peak", ["case", "by", *memory], rows[1]),
    ]


def _speed(each: dict[str, Any], results: list[dict[str, Any]]) -> list[str]:
    times = each["seconds_per_batch"]
    seconds = _seconds(each)
    base = next(other for other in results if other["case"] == each["case"])
    return [
        number(1 / seconds),
        number(1 / max(times)),
        number(1 / min(times)),
        number(each["edges_per_batch"] / seconds / 1e6),
        f"{each['nodes_per_batch']:,.0f}",
        number(1e3 * median(each["cpu_seconds_per_batch"])),
        f"{seconds / _seconds(base):.1f}×",
    ]


def _memory(each: dict[str, Any]) -> list[str]:
    sizes = (f"{each['memory'][kind] / 2**20:,.0f}" for kind in ("pss", "own"))
    return [*sizes, number(each["ready_seconds"])]


def write_report(report: dict[str, Any], folder: Path) -> str:
    """Writes ``bench.json`` and ``bench.md``.

    Args:
        report: The result of ``run``.
        folder: Where to; made if it is not there.

    Returns:
        The text of ``bench.md``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    title = " against ".join(each["title"] for each in report["contestants"].values())
    lists = ["\n".join(f"- {line}" for line in lines) for lines in (facts(report), summary(report))]
    text = "\n\n".join([f"# {title}", lists[0], *tables(report), lists[1]])
    (folder / "bench.json").write_text(json.dumps(report, indent=1) + "\n")
    (folder / "bench.md").write_text(text + "\n")
    return text
