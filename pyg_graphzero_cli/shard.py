"""``graphzero shard``: a store in parts, for machines of which each has one."""

from __future__ import annotations

from typing import Any

import click

from pyg_graphzero_cli.options import bounded, option


@click.command(short_help="Divide a store into parts, each a store.")
@click.argument("store", type=click.Path(path_type=str))
@option("-o --out", "Directory of the shards.", click.Path(path_type=str), required=True)
@option("--parts", "Write all of N parts.", click.IntRange(min=1), metavar="N")
@option(
    "--part",
    "Write part I of N only, from 0 on; the others can be written on other machines.",
    metavar="I/N",
)
@option(
    "--by",
    "The part of each node: an integer attribute, a file with a number for each node (.npy, .pt, "
    "text as METIS writes it), or 'ldg': near its neighbours. Ranges of ids without it.",
    multiple=True,
    metavar="[TYPE=]NAME|FILE|ldg",
)
@option(
    "--topology",
    "Parts have the edges into their nodes; or all edges lie in one more store.",
    ("own", "whole"),
    default="own",
)
@click.option("-f", "--force", is_flag=True, help="Replace shards that are there.")
@bounded
def shard(
    store: str,
    part: str | None,
    parts: int | None,
    by: tuple[str, ...],
    **options: Any,
) -> Any:
    """Divide STORE into parts, each a store with the rows of its own nodes."""
    number = None
    if (part is None) == (parts is None):
        raise click.UsageError("found both or neither, expected one of --parts N, --part I/N")
    if part is not None:
        number, parts = _part(part)

    from pyg_graphzero.shards.split import shard as run

    divided = dict(each.rpartition("=")[::2] for each in by)
    given: Any = divided.pop("", None) if set(divided) <= {""} else divided
    return run(store, parts=parts, part=number, by=given, **options)  # type: ignore[arg-type]


def _part(value: str) -> tuple[int, int]:
    part, _, parts = value.partition("/")
    if not (part.isdecimal() and parts.isdecimal()):
        raise click.BadParameter(f"found {value!r}, expected I/N, such as 0/4", param_hint="--part")
    return int(part), int(parts)
