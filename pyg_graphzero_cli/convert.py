"""``graphzero convert``: its options, and what they are called in ``gz.convert``."""

from __future__ import annotations

import shlex
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import click

from pyg_graphzero_cli.options import bounded, print_summary


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """``NAME=VALUE``, any number of times; a bare ``NAME`` is the column of that name.

    Several may stand together: ``a,b`` or ``a=0,b=1``.
    """
    result: dict[str, str] = {}
    parts = []
    for value in values:
        split = value.split(",")
        # x=f0,f1 is one attribute of two columns.
        are_several = "=" not in value or all("=" in part for part in split)
        parts += split if are_several else [value]
    for value in parts:
        name, _, source = value.strip().partition("=")
        if not name or name in result:
            raise click.BadParameter(f"{value!r}: expected NAME=VALUE, each name once")
        result[name] = source or name
    return result


def _names(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[str]:
    """``a,b`` and repetition alike; a type's attribute (``u,r,v.attr``) keeps its commas."""
    parts: list[str] = []
    for value in values:
        parts += [value] if "." in value else [part for part in value.split(",") if part]
    return parts


def _encodings(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """``NAME=CODE``, any number of times; a bare ``CODE`` is that of ``x``."""
    return _pairs(ctx, param, tuple(v if "=" in v else f"x={v}" for v in values))


_pairs_option = partial(click.option, multiple=True, callback=_pairs)
_ARGUMENTS = "pyg_graphzero.arguments"


class _Convert(click.Command):
    """Remembers its arguments, to say which to add."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = [*args]
        return super().parse_args(ctx, args)


@click.command(cls=_Convert, short_help="Convert a graph to a store.")
@click.argument("source", type=click.Path(path_type=str))
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="The new store.")
@click.option("--src", help="Column of source ids: a name or a 0-based position.")
@click.option("--dst", help="Column of destination ids.")
@_pairs_option(
    "--edge-attr",
    "edge_attrs",
    metavar="NAME[=SOURCE]",
    help="Edge attribute, any number of times; or several columns: a,b.",
)
@click.option(
    "--edge-type",
    metavar="SRC,REL,DST",
    help="If ends are two kinds of nodes: user,rates,movie; entity,*,entity: a type a relation.",
)
@click.option(
    "--nodes",
    multiple=True,
    metavar="[TYPE=]FILE",
    help="Node table, text or Parquet: one row per node; of TYPE, with --edge-type.",
)
@click.option(
    "--node-id",
    multiple=True,
    metavar="[TYPE=]COLUMN",
    help="Id column of the node table; the first by default.",
)
@_pairs_option(
    "--node-attr",
    "node_attrs",
    metavar="NAME[=SOURCE]",
    help="Node attribute, any number of times; TYPE.NAME with --edge-type.",
)
@click.option(
    "--num-nodes", type=click.IntRange(min=0), help="If there are some beyond the largest id."
)
@click.option("--ids", type=click.Choice(["auto", "dense", "map"]), help="Whether ids are rows.")
@click.option("--id-type", type=click.Choice(["auto", "int", "str"]), help="What ids are.")
@click.option("--delimiter", help="Such as ; or ::, or comma, tab, semicolon, space, pipe.")
@click.option("--header/--no-header", default=None, help="Whether the first row names columns.")
@click.option("--comment", default="#", show_default=True, help="Comment mark; '' for none.")
@click.option("--edge-layout", type=click.Choice(["2xE", "Ex2"]), help="For a [2, 2] array.")
@click.option(
    "--format",
    type=click.Choice(["text", "parquet", "arrow", "nt"]),
    help="What SOURCE is, if its name does not tell.",
)
@click.option("--undirected", is_flag=True, help="Add the reverse of every edge.")
@click.option(
    "--coalesce",
    type=click.Choice(["first", "sum", "mean", "min", "max"]),
    help="Merge parallel edges, their attributes so.",
)
@click.option(
    "--self-loops",
    type=click.Choice(["keep", "remove", "add"]),
    default="keep",
    show_default=True,
    help="What to do with loops; add: one where there is none.",
)
@click.option(
    "--no-edge-ids",
    is_flag=True,
    help="Do not keep which edge is which: 4 bytes each, for e_id and edge attributes.",
)
@click.option("--time-attr", help="Sort neighbourhoods by this attribute.")
@click.option("--both-directions", is_flag=True, help="Sort edges by source, too: for walks.")
@click.option("--feature-dtype", help="dtype of x, such as float16.")
@_pairs_option(
    "--dtype",
    "dtypes",
    metavar="NAME=DTYPE",
    help="dtype of any attribute.",
)
@_pairs_option(
    "--fill",
    metavar="NAME=VALUE",
    help="What empty cells and nulls of an attribute mean, such as -1 or nan.",
)
@click.option(
    "--features",
    multiple=True,
    callback=_encodings,
    metavar="[NAME=]CODE",
    help="Store x, or NAME, as float16, bfloat16 or int8; loaded as float32.",
)
@click.option("--adopt", "adopt_all", is_flag=True, help="Refer to feature files, do not copy.")
@click.option("--adopt-attr", "adopt", multiple=True, callback=_names, help="Only these.")
@click.option("--take", multiple=True, callback=_names, help="Store these attributes only.")
@click.option("--skip", multiple=True, callback=_names, help="Leave these attributes out.")
@click.option(
    "--on-error",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="Leave faulty rows out, and say how many.",
)
@click.option("--force", is_flag=True, help="Replace the store if there is one.")
@click.option("--dry-run", is_flag=True, help="Say what would be done and taken; write nothing.")
@click.option("--tmp", type=click.Path(), help="Directory for temporary files; beside the store.")
@bounded
def convert(
    source: str,
    out: Path,
    is_quiet: bool,
    as_json: bool,
    nodes: tuple[str, ...],
    node_id: tuple[str, ...],
    adopt_all: bool,
    no_edge_ids: bool,
    **options: Any,
) -> None:
    """Convert SOURCE to a store.

    SOURCE is text with an edge in each row (.csv, .tsv, .txt, also .gz or .zst; - for standard
    input), Parquet, Arrow or Feather, N-Triples (.nt), a file of arrays (.npy,
    .npz, .npz:member, .pt, .safetensors, .bin:int64[2], GraphZero's .gl), a directory or a quoted
    pattern of such files, the directory of a dataset (OGB, MAG240M, IGB, GraphBolt, PyG), or a
    .toml or .json specification of node and edge types.

    The SOURCE of an attribute is a column of the edge list or node table ("rating", "f0,f1",
    "f*"), or a file ("feat.npy", "graph.npz:label", "labels.csv:y").
    """
    options["comment"] = options["comment"] or None
    options["edge_ids"] = not no_edge_ids
    options["take"] = options["take"] or None
    options["adopt"] = adopt_all or options["adopt"]
    options["nodes"] = _node_tables(nodes, node_id, options["edge_type"] is not None)
    for name in ("edge_attrs", "node_attrs"):
        options[name] = options[name] or None
    if is_quiet:
        options["progress"] = False

    from pyg_graphzero.conversion import convert as run
    from pyg_graphzero.errors import InputWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # the summary says it; what to do is below
        summary = run(source, out, **options)
    print_summary(summary, is_quiet, as_json)
    if summary.two_kinds is not None and not is_quiet and not nodes and not options["node_attrs"]:
        given = click.get_current_context().meta[_ARGUMENTS]
        typed = [
            "--edge-type",
            ",".join(summary.two_kinds),
            *(["--force"] * ("--force" not in given)),
        ]
        command = shlex.join(["graphzero", "convert", *given, *typed])
        click.echo(
            f"warning: perhaps two kinds of nodes; to keep them apart:\n  {command}", err=True
        )


def _node_tables(
    nodes: tuple[str, ...], node_id: tuple[str, ...], is_typed: bool
) -> str | dict[str, Any] | None:
    """``FILE`` and its id column, or ``TYPE=FILE`` and ``TYPE=COLUMN``, any number of times."""
    if node_id and not nodes:
        raise click.UsageError("--node-id names a column of the node table: pass --nodes")
    if not is_typed:
        if max(len(nodes), len(node_id)) > 1:
            raise click.UsageError("--nodes and --node-id: one each, or TYPE=… with --edge-type")
        if node_id:
            return {"file": nodes[0], "id": node_id[0]}
        return nodes[0] if nodes else None
    tables: dict[str, Any] = {}
    for option, key, values in (("--nodes", "file", nodes), ("--node-id", "id", node_id)):
        for value in values:
            end, mark, given_value = value.partition("=")
            if not mark or (key == "id" and end not in tables):
                raise click.UsageError(f"{option} {value}: expected TYPE=… of a type with --nodes")
            tables.setdefault(end, {})[key] = given_value
    return tables or None
