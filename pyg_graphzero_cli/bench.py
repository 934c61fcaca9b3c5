"""``graphzero bench``: the comparison with stock PyG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pyg_graphzero_cli.options import comma_list

# Copies of names in pyg_graphzero.bench, which is imported when a benchmark is run.
PRESETS = ("standard", "large", "small", "wide", "hetero", "quick")
WORKLOADS = ("sample", "load", "train", "link")
MODELS = ("stock", "trimmed", "accelerated")


@click.command(short_help="Compare with stock PyG, side by side.")
@click.option(
    "--preset",
    type=click.Choice(PRESETS),
    default="standard",
    show_default=True,
    help="What is not given otherwise.",
)
@click.option("--quick", is_flag=True, help="The preset that takes seconds.")
@click.option("--data", help="A store, synthetic:NODES,EDGES,DIM[,EDGE_TYPES], or a PyG dataset.")
@click.option(
    "--workload",
    "workloads",
    callback=comma_list(click.Choice(WORKLOADS)),
    metavar="A,B",
    help=f"Some of {', '.join(WORKLOADS)}.",
)
@click.option("--fanout", callback=comma_list(click.IntRange(min=-1)), metavar="15,10,5")
@click.option("--batch-size", type=click.IntRange(min=1), help="Seed nodes per batch.")
@click.option(
    "--workers",
    callback=comma_list(click.IntRange(min=0)),
    metavar="0,2",
    help="num_workers to try.",
)
@click.option(
    "--threads",
    callback=comma_list(click.IntRange(min=1)),
    metavar="1,2",
    help="For sampling alone.",
)
@click.option(
    "--models",
    callback=comma_list(click.Choice(MODELS)),
    metavar="A,B",
    help=f"For training: some of {', '.join(MODELS)}.",
)
@click.option("--batches", type=click.IntRange(min=1), help="Batches per round.")
@click.option("--rounds", type=click.IntRange(min=1), help="Timed rounds.")
@click.option("--seed", type=click.IntRange(min=0), help="Of the seed nodes and of sampling.")
@click.option(
    "--datasets",
    type=click.Path(path_type=Path),
    default=Path("data"),
    show_default=True,
    help="Where PyG keeps its datasets.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    default=Path("graphzero-bench"),
    show_default=True,
    help="Folder for the report, and for the stores that are made.",
)
def bench(preset: str, quick: bool, datasets: Path, out: Path, **options: Any) -> None:
    """Compare sampling, loading and training with stock PyG, side by side.

    Both get the same graph, seeds, fan-out and batch size, each in a process of its own, in turn.
    Prints what was measured and on what, and writes bench.json and bench.md.
    """
    from pyg_graphzero.bench import settings
    from pyg_graphzero.bench.data import prepare
    from pyg_graphzero.bench.report import facts, summary, tables, write_report
    from pyg_graphzero.bench.run import left_out, run

    given = {name: value for name, value in options.items() if value is not None}
    chosen = settings.Settings(**(settings.PRESETS["quick" if quick else preset] | given))

    def say(line: str) -> None:
        click.echo(line, err=True)

    for line in left_out():
        say(f"{line}; what follows is of the others alone")
    say(f"graph: {chosen.data}")
    store = prepare(chosen.data, out / "stores", datasets)
    report = run(chosen, store, say)
    written = write_report(report, out)
    parts = [facts(report), *([table.text()] for table in tables(report)), summary(report), written]
    click.echo("\n\n".join("\n".join(lines) for lines in parts if lines))
