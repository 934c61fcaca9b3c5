"""A report for people: tables on the terminal and in Markdown; and the files of a run."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from pyg_graphzero.bench.table import Table, number
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


def tables(report: dict[str, Any]) -> list[Table]:
    """Speed, training, memory."""
    results = report["results"]
    training = [each for each in results if "compute_seconds_per_batch" in each]
    cores = report["machine"]["usable_cores"]
    made = [
        Table(
            "Speed",
            ["case", "by", "batches/s", "min", "max", "M edges/s", "nodes/batch", "CPU ms/batch",
             "time"],
            [_speed(each, results) for each in results],
        ),
        Table(
            "Memory of the process tree at its peak, MiB, and what it read from the disk",
            ["case", "by", "own", "RSS", "PSS", "processes", "MiB read", "ready in s"],
            [_memory(each) for each in results],
        ),
    ]  # fmt: skip
    if training:
        made.append(
            Table(
                f"Training, ms per batch; parts: compute + loader's CPU time ÷ {cores} cores",
                ["case", "by", "epoch", "compute", "loader's CPU", "epoch ÷ parts", "speed-up"],
                [_training(each, training, cores) for each in training],
            )
        )
    return made


def _speed(each: dict[str, Any], results: list[dict[str, Any]]) -> list[str]:
    times = each["seconds_per_batch"]
    seconds = _seconds(each)
    base = next(other for other in results if other["case"] == each["case"])
    return [
        each["case"],
        each["contestant"],
        number(1 / seconds),
        number(1 / max(times)),
        number(1 / min(times)),
        number(each["edges_per_batch"] / seconds / 1e6),
        f"{each['nodes_per_batch']:,.0f}",
        number(1e3 * median(each["cpu_seconds_per_batch"])),
        f"{seconds / _seconds(base):.1f}×",
    ]


def _memory(each: dict[str, Any]) -> list[str]:
    peak = each["memory"]["run"]
    mib = [f"{peak[kind] / 2**20:,.0f}" for kind in ("own", "rss", "pss")]
    read = f"{each['bytes_read'] / 2**20:,.0f}"
    ready = number(each["open_seconds"] + each["prepare_seconds"])
    return [each["case"], each["contestant"], *mib, str(peak["processes"]), read, ready]


def _training(each: dict[str, Any], training: list[dict[str, Any]], cores: int) -> list[str]:
    epoch, compute, loader = (
        median(each[f"{kind}seconds_per_batch"]) for kind in ("", "compute_", "loader_cpu_")
    )
    # Its own first model, with as many workers.
    base = next(
        other
        for other in training
        if (other["contestant"], other["workers"]) == (each["contestant"], each["workers"])
    )
    return [
        each["case"],
        each["contestant"],
        *(number(1e3 * value) for value in (epoch, compute, loader)),
        f"{epoch / (compute + loader / cores):.2f}",
        f"{_seconds(base) / epoch:.1f}×",
    ]


def write_report(report: dict[str, Any], folder: Path) -> list[str]:
    """Writes ``bench.json`` and ``bench.md``.

    Args:
        report: The value that ``run`` returns.
        folder: Where to; made if it is not there.

    Returns:
        Their names, on a line.
    """
    folder.mkdir(parents=True, exist_ok=True)
    title = " against ".join(each["title"] for each in report["contestants"].values())
    parts = [f"# {title}", "\n".join(f"- {line}" for line in facts(report))]
    parts += [table.markdown() for table in tables(report)]
    parts.append("\n".join(f"- {line}" for line in summary(report)))
    written = {"bench.json": json.dumps(report, indent=1), "bench.md": "\n\n".join(parts)}
    for name, text in written.items():
        (folder / name).write_text(text + "\n")
    return [f"written: {', '.join(str(folder / name) for name in written)}"]
