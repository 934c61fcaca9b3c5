"""The chart of a report; needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from pyg_graphzero.bench.table import number

_KINDS = {"anon": "anonymous", "shmem": "shared", "file": "file"}


def write_chart(report: dict[str, Any], path: Path) -> str | None:
    """Draws speed and memory of every case.

    Args:
        report: What ``run`` returns.
        path: The PNG.

    Returns:
        Why there is no chart, or None.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return "chart left out: install pyg_graphzero[bench]"

    results = report["results"]
    cases = list(dict.fromkeys(each["case"] for each in results))
    names = list(dict.fromkeys(each["contestant"] for each in results))
    height = 0.8 / max(len(names), 1)
    figure = Figure(figsize=(11, 1.5 + 0.6 * len(cases)), layout="constrained")
    speed, memory = figure.subplots(1, 2, sharey=True)
    for each in results:
        row = names.index(each["contestant"])
        at = cases.index(each["case"]) + height * (row - (len(names) - 1) / 2)
        rate = 1 / median(each["seconds_per_batch"])
        speed.barh(at, rate, height, color=f"C{row}")
        speed.annotate(f" {number(rate)}", (rate, at), va="center", fontsize=8)
        left = 0.0
        for shade, kind in enumerate(_KINDS):
            width = each["memory"]["run"][kind] / 2**30
            memory.barh(at, width, height, left=left, color=f"C{row}", alpha=1 - 0.35 * shade)
            left += width
    log_ticks(speed, "batches per second (log)")
    speed.set_yticks(range(len(cases)), cases)
    speed.invert_yaxis()
    memory.set_xlabel(f"GiB at the peak: {', '.join(_KINDS.values())} (dark to light)")
    handles = [speed.barh(0, 0, 0, color=f"C{row}") for row in range(len(names))]
    titles = [report["contestants"][name]["title"] for name in names]
    figure.legend(handles, titles, loc="outside upper center", ncols=len(names))
    FigureCanvasAgg(figure).print_png(str(path))
    return None


def log_ticks(axes: Any, label: str) -> None:
    """A logarithmic axis below bars with numbers that one reads: 0.5, 1, 2, 5, 10."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set(xscale="log", xlabel=label)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
