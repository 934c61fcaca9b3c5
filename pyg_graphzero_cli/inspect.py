"""``graphzero info``, ``verify``, ``report``, ``clean``: what a store holds, and its faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from pyg_graphzero_cli.options import (
    bounded,
    option,
    progress_bars,
    quiet,
    sampled,
)


@click.command(short_help="Print what a store holds.")
@click.argument("store", type=click.Path(path_type=str))
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def info(store: str, as_json: bool) -> None:
    """Print what STORE holds."""
    from pyg_graphzero.pyg.stores import info as run

    value = run(store)
    click.echo(json.dumps(value, indent=2, default=str) if as_json else str(value))


@click.command(short_help="Check every checksum of a store.")
@click.argument("store", type=click.Path(path_type=str))
@progress_bars
@quiet
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
@click.pass_context
def verify(
    ctx: click.Context, store: str, progress: bool | None, is_quiet: bool, as_json: bool
) -> None:
    """Check every checksum of STORE; exit code 1 and the bad blocks if any is wrong."""
    from pyg_graphzero.errors import FormatError
    from pyg_graphzero.store.verify import VerifyReport
    from pyg_graphzero.store.verify import verify as run
    from pyg_graphzero.util.progress import Progress

    with Progress(False if is_quiet else progress).step("verifying", None) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        # Not through an open store: opening refuses what is to be reported here.
        try:
            report = run(Path(store), show)
        except FormatError as error:
            report = VerifyReport(bad=[str(error)])
    if as_json or not (is_quiet and report.ok):
        click.echo(json.dumps(report.to_dict(), indent=2) if as_json else str(report))
    ctx.exit(0 if report.ok else 1)


@click.command(short_help="Remove what is in a store beside its own files.")
@click.argument("store", type=click.Path(path_type=str))
def clean(store: str) -> None:
    """Remove what is in STORE beside its own files.

    That is rows which loaders have written once more, in the order of their use, columns that were
    begun and never published, and files that a writer which died has left. A loader that needs
    such rows writes them again, unless the store is opened with row_cache=False.
    """
    from pyg_graphzero.store.copies import remove_copies
    from pyg_graphzero.store.leftovers import remove_leftovers

    count, num_bytes = map(sum, zip(remove_copies(store), remove_leftovers(store), strict=True))
    click.echo(f"{store}: {count} removed, {num_bytes:,} bytes")


@click.command(short_help="Say what of a store's graph may hurt training.")
@click.argument("store", type=click.Path(path_type=str))
@option("-o --out", "Write a page of HTML.", click.Path(path_type=Path))
@sampled
@bounded
def report(store: str, **options: Any) -> Any:
    """Say what of STORE's graph may hurt training.

    Reads all edges and node attributes once, in bounded memory: isolated nodes, duplicate edges,
    degrees, components, labels, splits, features; then samples batches. Leaves STORE as it is.
    """
    from pyg_graphzero.reporting.run import report as run

    return run(store, **options)
