"""``graphzero convert``: its options, and what they are called in ``gz.convert``."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import click

from pyg_graphzero_cli.options import bounded, option


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


_several = partial(option, multiple=True)
_named = partial(option, multiple=True, callback=_pairs)


@click.command(short_help="Convert a graph to a store.")
@click.argument("source", type=click.Path(path_type=str))
@option("-o --out", "The new store.", click.Path(path_type=Path), required=True)
@option("--src", "Column of source ids: a name or a 0-based position.")
@option("--dst", "Column of destination ids.")
@_named(
    "--edge-attr edge_attrs",
    "Edge attribute, any number of times; or several columns: a,b.",
    metavar="NAME[=SOURCE]",
)
@option(
    "--edge-type",
    "If ends are two kinds of nodes: user,rates,movie; entity,*,entity: a type a relation.",
    metavar="SRC,REL,DST",
)
@_several(
    "--nodes",
    "Node table, text or Parquet: one row per node; of TYPE, with --edge-type.",
    metavar="[TYPE=]FILE",
)
@_several(
    "--node-id", "Id column of the node table; the first by default.", metavar="[TYPE=]COLUMN"
)
@_named(
    "--node-attr node_attrs",
    "Node attribute, any number of times; TYPE.NAME with --edge-type.",
    metavar="NAME[=SOURCE]",
)
@option("--num-nodes", "If there are some beyond the largest id.", click.IntRange(min=0))
@option("--ids", "Whether ids are rows.", ("auto", "dense", "map"))
@option("--id-type", "What ids are.", ("auto", "int", "str"))
@option("--delimiter", "Such as ; or ::, or comma, tab, semicolon, space, pipe.")
@click.option("--header/--no-header", default=None, help="Whether the first row names columns.")
@option("--comment", "Comment mark; '' for none.", default="#")
@option("--edge-layout", "For a [2, 2] array.", ("2xE", "Ex2"))
@option(
    "--format",
    "What SOURCE is, if its name does not tell.",
    ("text", "parquet", "arrow", "nt"),
)
@click.option("--undirected", is_flag=True, help="Add the reverse of every edge.")
@option(
    "--coalesce",
    "Merge parallel edges, their attributes so.",
    ("first", "sum", "mean", "min", "max"),
)
@option(
    "--self-loops",
    "What to do with loops; add: one where there is none.",
    ("keep", "remove", "add"),
    default="keep",
)
@click.option(
    "--no-edge-ids",
    is_flag=True,
    help="Do not keep which edge is which: 4 bytes each, for e_id and edge attributes.",
)
@option("--time-attr", "Sort neighbourhoods by this attribute.")
@click.option("--both-directions", is_flag=True, help="Sort edges by source, too: for walks.")
@_named("--dtype dtypes", "dtype of an attribute, such as x=float16.", metavar="NAME=DTYPE")
@_named(
    "--fill",
    "What empty cells and nulls of an attribute mean, such as -1 or nan.",
    metavar="NAME=VALUE",
)
@_several(
    "--features",
    "Store x, or NAME, as float16, bfloat16 or int8; loaded as float32.",
    callback=_encodings,
    metavar="[NAME=]CODE",
)
@click.option("--adopt", is_flag=True, help="Refer to feature files, do not copy.")
@_several("--take", "Store these attributes only.", callback=_names)
@_several("--skip", "Leave these attributes out.", callback=_names)
@click.option("--force", is_flag=True, help="Replace the store if there is one.")
@option("--tmp", "Directory for temporary files; beside the store.", click.Path())
@bounded
def convert(
    source: str,
    out: Path,
    nodes: tuple[str, ...],
    node_id: tuple[str, ...],
    no_edge_ids: bool,
    **options: Any,
) -> Any:
    """Convert SOURCE to a store.

    SOURCE is text with an edge in each row (.csv, .tsv, .txt, also .gz or .zst; - for standard
    input), Parquet, Arrow or Feather, N-Triples (.nt), a file of arrays (.npy, .npz, .npz:member,
    .pt), a directory or a quoted pattern of such files, the directory of a dataset (OGB, MAG240M,
    IGB, GraphBolt, PyG), or a .toml or .json specification of node and edge types.

    The SOURCE of an attribute is a column of the edge list or node table ("rating", "f0,f1",
    "f*"), or a file ("feat.npy", "graph.npz:label", "labels.csv:y").
    """
    options["comment"] = options["comment"] or None
    options["edge_ids"] = not no_edge_ids
    options["take"] = options["take"] or None
    options["nodes"] = _node_tables(nodes, node_id, options["edge_type"] is not None)
    for name in ("edge_attrs", "node_attrs"):
        options[name] = options[name] or None

    from pyg_graphzero.conversion import convert as run
    from pyg_graphzero.errors import InputWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # the summary says it
        return run(source, out, **options)


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
    for flag, key, values in (("--nodes", "file", nodes), ("--node-id", "id", node_id)):
        for value in values:
            end, mark, given_value = value.partition("=")
            if not mark or (key == "id" and end not in tables):
                raise click.UsageError(f"{flag} {value}: expected TYPE=… of a type with --nodes")
            tables.setdefault(end, {})[key] = given_value
    return tables or None
