"""Sums raw records up to the figures that pages cite: a JSON for each in ``benchmarks/results``.

    python benchmarks/summary.py benchmarks/out/out_of_core.json
    python benchmarks/summary.py graphzero-bench/bench.json --name bench-large

A record comes from one of these scripts or is a ``bench.json``; its summary replaces the one that
has its name. Raw records are not committed: a new summary needs the record, or a new run.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from harness.record import parser, write
from harness.report import figures

RESULTS = Path(__file__).with_name("results")
# Scripts whose figures a page cites; the first page cites all other scripts.
PAGES = {
    "performance": (),
    "out-of-core": ("out_of_core", "walks_out_of_core"),
    "papers100m": ("papers100m",),
}
# Fields of a run that a summary keeps besides its figures.
_OF_A_RUN = (
    "name",
    "store",
    "limit",
    "budget",
    "workers",
    "error",
    "facts",
    "found",
    "peak",
    "disk",
)
# Other fields of a record that no page cites.
_LEFT_OUT = ("steady", "stats", "cached", "environment", "split", "doubt")
_MOST_NUMBERS = 5
_DIGITS = 7


def summed_up(value: Any) -> Any:
    """A record without its series: figures of runs, medians of many numbers, few digits."""
    if isinstance(value, dict):
        if "batch_seconds" in value:
            value = {name: value.get(name) for name in _OF_A_RUN} | figures(value)
        kept = {name: summed_up(each) for name, each in value.items() if name not in _LEFT_OUT}
        return {name: each for name, each in kept.items() if each not in (None, {}, [])}
    if isinstance(value, list):
        if len(value) > _MOST_NUMBERS and all(isinstance(each, (int, float)) for each in value):
            marks = {"median": statistics.median(value), "min": min(value), "max": max(value)}
            return summed_up(marks)
        return [summed_up(each) for each in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def page_of(record: dict[str, Any]) -> str:
    """Which page cites a record."""
    script = record.get("command", "").partition("benchmarks/")[2].partition(".py")[0]
    return next((page for page, scripts in PAGES.items() if script in scripts), "performance")


def main(argv: list[str] | None = None) -> None:
    """Sums a record up into its page's summary."""
    made = parser("summary", __doc__, json=False)
    made.add_argument("record", type=Path)
    made.add_argument("--name", help="of the record in the summary; that of its file by default")
    made.add_argument("--results", type=Path, default=RESULTS, help="where summaries are")
    args = made.parse_args(argv)
    record = json.loads(args.record.read_text())
    file = args.results / f"{page_of(record)}.json"
    page = json.loads(file.read_text()) if file.exists() else {}
    page[args.name or args.record.stem] = summed_up(record)
    write(file, dict(sorted(page.items())))
    print(f"written: {args.name or args.record.stem} in {file}, {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
