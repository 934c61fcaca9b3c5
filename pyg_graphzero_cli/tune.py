"""``graphzero optimize`` and ``graphzero doctor``: what makes training on a store faster."""

from __future__ import annotations

import json
from typing import Any

import click

from pyg_graphzero_cli.options import (
    INPUT_TYPE,
    bounded,
    comma_list,
    option,
    sampled,
)


@click.command(short_help="Copy the rows that training uses, in the order of their use.")
@click.argument("store", type=click.Path(path_type=str))
@option(
    "--seeds",
    "Index sets or masks, commas between them; or a file of node ids (.npy, .pt, text).",
    required=True,
    metavar="NAME|FILE",
)
@option(
    "--num-neighbors",
    "Fan-out of training.",
    callback=comma_list(click.IntRange(min=-1)),
    required=True,
    metavar="15,10,5",
)
@option("--input-type", INPUT_TYPE)
@option("--batch-size", "Of training.", click.IntRange(min=1), default=1024)
@bounded
def optimize(store: str, **options: Any) -> Any:
    """Copy the rows of STORE that training uses, in the order of their use.

    Samples from the seeds (topology only), counts, and copies rows. Training makes this copy by
    itself before its first batch; made here, that batch does not wait for it. Loaders find it if
    they have these seeds, fan-out and batch size. `graphzero clean` removes it.
    """
    from pyg_graphzero.tune.optimize import optimize as run

    return run(store, **options)


@click.command(short_help="Load some batches, and say what binds and what would help.")
@click.argument("store", type=click.Path(path_type=str))
@option("--memory", "The budget, as 8GB, as gz.open(memory=) takes it; most of what is free.")
@sampled
@click.option("--no-edge-ids", is_flag=True, help="The loader is told edge_ids=False.")
@click.option("--refresh", is_flag=True, help="Measure the disk even if its speed is remembered.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def doctor(store: str, no_edge_ids: bool, as_json: bool, **options: Any) -> None:
    """Load batches of STORE for some seconds, and say what binds them and what would help.

    Measures the disk, and loads as training does; no model is trained. Writes nothing.
    """
    from pyg_graphzero.tune.doctor import doctor as run

    found = run(store, edge_ids=not no_edge_ids, **options)
    click.echo(json.dumps(found.to_dict(), indent=2) if as_json else str(found))
