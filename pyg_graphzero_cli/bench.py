"""``graphzero bench``: the comparison with stock PyG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pyg_graphzero_cli.options import Command, comma_list, option

WORKLOADS = ("sample", "load", "train", "link")
# A copy of those in pyg_graphzero.bench.training, which is imported when a benchmark is run.
MODELS = ("stock", "trimmed", "accelerated")

PRESETS: dict[str, dict[str, Any]] = {
    "standard": {},
    # The graph of docs/performance.md: 4 GB of disk, 12 GB of RAM for stock PyG.
    "large": {"data": "synthetic:5000000,75000000,128"},
    # So little work per batch that what every batch costs decides.
    "small": {"fanout": (5, 5), "batch_size": 32, "batches": 200},
    "wide": {"data": "synthetic:500000,7500000,1024"},
    "hetero": {"data": "synthetic:1000000,15000000,64,10", "fanout": (10, 5)},
    # Seconds; shows that everything works, and nothing else.
    "quick": {
        "data": "synthetic:2000,20000,8",
        "fanout": (5, 5),
        "batch_size": 64,
        "workers": (1,),
        "batches": 2,
        "rounds": 1,
    },
}


def _some(names: str, about: str, kind: Any, metavar: str) -> Callable[[Command], Command]:
    """An option that takes several values, commas between them."""
    return option(names, about, callback=comma_list(kind), metavar=metavar)


@click.command(short_help="Compare with stock PyG, side by side.")
@option("--preset", "What is not given otherwise.", tuple(PRESETS), default="standard")
@click.option("--quick", is_flag=True, help="The preset that takes seconds.")
@option("--data", "A store, or synthetic:NODES,EDGES,DIM[,EDGE_TYPES].")
@_some("--workload workloads", f"Some of {', '.join(WORKLOADS)}.", click.Choice(WORKLOADS), "A,B")
@_some("--fanout", "Neighbours per hop.", click.IntRange(min=-1), "15,10,5")
@option("--batch-size", "Seed nodes per batch.", click.IntRange(min=1))
@_some("--workers", "num_workers to try.", click.IntRange(min=0), "0,2")
@_some("--threads", "For sampling alone.", click.IntRange(min=1), "1,2")
@_some("--models", f"For training: some of {', '.join(MODELS)}.", click.Choice(MODELS), "A,B")
@option("--batches", "Batches per round.", click.IntRange(min=1))
@option("--rounds", "Timed rounds.", click.IntRange(min=1))
@option("--seed", "Of the seed nodes and of sampling.", click.IntRange(min=0))
@option(
    "-o --out",
    "Folder for the report, and for the stores that are made.",
    click.Path(path_type=Path),
    default=Path("graphzero-bench"),
)
def bench(preset: str, quick: bool, out: Path, **options: Any) -> None:
    """Compare sampling, loading and training with stock PyG, side by side.

    Both get the same graph, seeds, fan-out and batch size, each in a process of its own, in turn.
    Prints what was measured and on what, and writes bench.json and bench.md.
    """
    from pyg_graphzero.bench.data import prepare
    from pyg_graphzero.bench.report import write_report
    from pyg_graphzero.bench.run import left_out, run
    from pyg_graphzero.bench.settings import Settings

    given = {name: value for name, value in options.items() if value is not None}
    chosen = Settings(**PRESETS["quick" if quick else preset] | given)

    def say(line: str) -> None:
        click.echo(line, err=True)

    for line in left_out():
        say(f"{line}; what follows is of the others alone")
    say(f"graph: {chosen.data}")
    click.echo(write_report(run(chosen, prepare(chosen.data, out / "stores"), say), out))
    say(f"written: {out / 'bench.json'}, {out / 'bench.md'}")
