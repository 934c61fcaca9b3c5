"""The command line: ``graphzero convert | info | verify | optimize | doctor | bench``.

Exit codes: 0 done, 1 ``verify`` found damage, 2 an error (one line on stderr).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from pyg_graphzero.bench.data import prepare
from pyg_graphzero.bench.report import facts, summary, tables, write_report
from pyg_graphzero.bench.run import run as run_bench
from pyg_graphzero.bench.settings import PRESETS, WORKLOADS, Settings
from pyg_graphzero.bench.training import MODELS
from pyg_graphzero.convert import convert as run_convert
from pyg_graphzero.errors import FormatError, GraphZeroError
from pyg_graphzero.pyg.stores import open as open_store
from pyg_graphzero.store.verify import verify as run_verify
from pyg_graphzero.tune.doctor import doctor as run_doctor
from pyg_graphzero.tune.optimize import optimize as run_optimize
from pyg_graphzero.util.progress import Progress
from pyg_graphzero.util.sizes import format_bytes

_EXPECTED = (GraphZeroError, OSError, ValueError, IndexError, KeyError, MemoryError)


class _Group(click.Group):
    """Turns errors that a user can cause into one line; ``--traceback`` shows the rest."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except _EXPECTED as error:
            if ctx.params.get("traceback"):
                raise
            click.echo(f"error: {_one_line(error)}", err=True)
            ctx.exit(2)


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, MemoryError):
        return f"out of memory {error}".strip()
    message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join((message or repr(error)).split())


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--traceback", is_flag=True, help="Show the Python traceback of an error.")
@click.version_option(package_name="pyg_graphzero")
def main(traceback: bool) -> None:
    """Graphs on disk for PyTorch Geometric."""


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """``NAME=VALUE``, any number of times; a bare ``NAME`` is the column of that name."""
    result: dict[str, str] = {}
    for value in values:
        name, _, source = value.partition("=")
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


@main.command(short_help="Convert a graph to a store.")
@click.argument("source", type=click.Path(path_type=str))
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="The new store.")
@click.option("--src", help="Column of source ids: a name or a 0-based position.")
@click.option("--dst", help="Column of destination ids.")
@click.option(
    "--edge-attr",
    "edge_attrs",
    multiple=True,
    callback=_pairs,
    metavar="NAME[=SOURCE]",
    help="Edge attribute, any number of times.",
)
@click.option("--nodes", help="Node table, text or Parquet: one row per node.")
@click.option("--node-id", help="Id column of the node table; the first by default.")
@click.option(
    "--node-attr",
    "node_attrs",
    multiple=True,
    callback=_pairs,
    metavar="NAME[=SOURCE]",
    help="Node attribute, any number of times.",
)
@click.option(
    "--num-nodes", type=click.IntRange(min=0), help="If there are some beyond the largest id."
)
@click.option("--ids", type=click.Choice(["auto", "dense", "map"]), help="Whether ids are rows.")
@click.option("--id-type", type=click.Choice(["auto", "int", "str"]), help="What ids are.")
@click.option("--delimiter", help="One character, or comma, tab, semicolon, space, pipe.")
@click.option("--header/--no-header", default=None, help="Whether the first row names columns.")
@click.option("--comment", default="#", show_default=True, help="Comment mark; '' for none.")
@click.option("--edge-layout", type=click.Choice(["2xE", "Ex2"]), help="For a [2, 2] array.")
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
@click.option("--time-attr", help="Sort neighbourhoods by this attribute.")
@click.option("--feature-dtype", help="dtype of x, such as float16.")
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    callback=_pairs,
    metavar="NAME=DTYPE",
    help="dtype of any attribute.",
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
@click.option("--memory", help="What it may take, such as 4GB; half of what is free by default.")
@click.option("--tmp", type=click.Path(), help="Directory for temporary files; beside the store.")
@click.option("--force", is_flag=True, help="Replace the store if there is one.")
@click.option("--dry-run", is_flag=True, help="Say what would be done and taken; write nothing.")
@click.option("--progress/--no-progress", default=None, help="Progress bars; on in a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def convert(
    source: str,
    out: Path,
    as_json: bool,
    node_id: str | None,
    adopt_all: bool,
    **options: Any,
) -> None:
    """Convert SOURCE to a store.

    SOURCE is text with an edge in each row (.csv, .tsv, .txt, also .gz or .zst), Parquet, Arrow or
    Feather, a file of arrays (.npy, .npz, .npz:member, .pt, .safetensors, .bin:int64[2]), a
    directory or a quoted pattern of such files, the directory of a dataset (OGB, MAG240M, IGB,
    GraphBolt, PyG), or a .toml or .json specification of node and edge types.

    The SOURCE of an attribute is a column of the edge list or node table ("rating", "f0,f1",
    "f*"), or a file ("feat.npy", "graph.npz:label", "labels.csv:y").
    """
    options["comment"] = options["comment"] or None
    options["take"] = options["take"] or None
    options["adopt"] = adopt_all or options["adopt"]
    if node_id is not None and options["nodes"] is None:
        raise click.UsageError("--node-id names a column of the node table: pass --nodes")
    if node_id is not None:
        options["nodes"] = {"file": options["nodes"], "id": node_id}
    for name in ("edge_attrs", "node_attrs"):
        options[name] = options[name] or None
    summary = run_convert(source, out, **options)
    click.echo(json.dumps(summary.to_dict(), indent=2) if as_json else str(summary))


@main.command(short_help="Print what a store holds.")
@click.argument("store", type=click.Path(path_type=str))
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def info(store: str, as_json: bool) -> None:
    """Print what STORE holds."""
    with open_store(store) as opened:
        value = opened.info()
    click.echo(json.dumps(value, indent=2, default=str) if as_json else "\n".join(_outline(value)))


def _outline(value: Mapping[str, Any]) -> list[str]:
    """``Store.info()`` for people."""
    lines = [
        f"{value['path']}: {format_bytes(value['bytes'])}, "
        f"format {value['format_version']}, by {value['created_by']}"
    ]
    if value["optimized"]:
        lines.append(f"  optimized for {_optimized(value['optimized'])}")
    for node in value["node_types"]:
        ids = f", {node['ids']} ids" if node["ids"] else ""
        lines.append(f"  {node['name'] or 'nodes'}: {node['num_nodes']:,} nodes{ids}")
        lines += _columns(node["attrs"])
        lines += [f"    {name}: {c['shape'][0]:,} nodes" for name, c in node["index_sets"].items()]
        lines += [f"    of the type: {', '.join(node['others'])}"] * bool(node["others"])
    for edge in value["edge_types"]:
        name = " → ".join(edge["name"]) if edge["name"] else "edges"
        size = format_bytes(edge["topology_bytes"])
        lines.append(f"  {name}: {edge['num_edges']:,} edges, topology {size}")
        lines += _columns(edge["attrs"])
        lines += [f"    of the type: {', '.join(edge['others'])}"] * bool(edge["others"])
    if value["graph_attrs"]:
        lines.append(f"  graph: {', '.join(value['graph_attrs'])}")
    for column in value["unpublished"]:
        owner = f" of {column['node_type']}" if column["node_type"] else ""
        lines.append(
            f"  unpublished: {column['name']}{owner}: {_kind(column, column['encoding'])}, "
            f"{column['done']:,} of {column['shape'][0]:,} rows, {format_bytes(column['bytes'])}"
        )
    return lines


def _optimized(record: Mapping[str, Any]) -> str:
    """What an order was made for, as far as its writer said so."""
    fanout = json.dumps(record.get("num_neighbors"), separators=(",", ":"))
    return (
        f"{record.get('seeds')} ({record.get('num_seeds')} seeds), fan-out {fanout}, batch size "
        f"{record.get('batch_size')}, {record.get('epochs')} epochs, {record.get('created')}"
    )


def _columns(columns: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = []
    for name, column in columns.items():
        kind = _kind(column, column.get("encoding", {}).get("encoding"))
        place = format_bytes(column["bytes"])
        if "adopted" in column:
            place = f"{format_bytes(column['adopted_bytes'])} adopted from {column['adopted']}"
        lines.append(f"    {name}: {kind}, {place}")
    return lines


def _kind(column: Mapping[str, Any], encoding: str | None) -> str:
    shape = ", ".join(map(str, column["shape"][1:]))
    kind = f"{column['dtype']}[{shape}]" if shape else str(column["dtype"])
    return kind if encoding is None else f"{kind} as {encoding}"


@main.command(short_help="Check every checksum of a store.")
@click.argument("store", type=click.Path(path_type=str))
@click.option("--progress/--no-progress", default=None, help="Progress bar; on in a terminal.")
def verify(store: str, progress: bool | None) -> None:
    """Check every checksum of STORE; exit code 1 and the bad blocks if any is wrong."""
    raise SystemExit(_verify(store, progress))


def _verify(store: str, progress: bool | None) -> int:
    with Progress(progress).step("verifying", None) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        # Not through an open store: opening refuses what is to be reported here.
        try:
            report = run_verify(Path(store), show)
        except FormatError as error:
            click.echo(f"1 bad\n{error}")
            return 1
    click.echo(str(report))
    return 0 if report.ok else 1


def _list(kind: click.ParamType[Any]) -> Any:
    """A callback for ``a,b,c``; None where the option is not given."""

    def parse(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
        if value is None:
            return None
        return tuple(kind.convert(part.strip(), param, ctx) for part in value.split(","))

    return parse


@main.command(short_help="Put the rows that training samples most first.")
@click.argument("store", type=click.Path(path_type=str))
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), help="The new store; replaces STORE by default."
)
@click.option(
    "--seeds",
    required=True,
    metavar="NAME|FILE",
    help="Index sets or masks, commas between them; or a file of node ids (.npy, .pt, text).",
)
@click.option(
    "--num-neighbors",
    required=True,
    callback=_list(click.IntRange(min=-1)),
    metavar="15,10,5",
    help="Fan-out of training.",
)
@click.option("--input-type", help="Node type of the seeds, if several have such a set.")
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=1024, show_default=True, help="Of training."
)
@click.option(
    "--epochs",
    type=click.FloatRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    help="How often each seed is sampled from for counting.",
)
@click.option("--memory", help="What it may take, such as 4GB; half of what is free by default.")
@click.option("--tmp", type=click.Path(), help="Directory for temporary files; beside the store.")
@click.option("--force", is_flag=True, help="Replace OUT if it is a store.")
@click.option("--progress/--no-progress", default=None, help="Progress bars; on in a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def optimize(store: str, num_neighbors: tuple[int, ...], as_json: bool, **options: Any) -> None:
    """Write STORE again so that what training samples often lies first, and together.

    Samples from the seeds (topology only), counts, and puts the rows in that order. Node ids, edge
    ids and batches stay what they are. Run it again when the seeds or the fan-out have changed; an
    order made for others is slower, never wrong.
    """
    summary = run_optimize(store, num_neighbors=list(num_neighbors), **options)
    click.echo(json.dumps(summary.to_dict(), indent=2) if as_json else str(summary))


@main.command(short_help="Predict what training reads and takes, and say what would help.")
@click.argument("store", type=click.Path(path_type=str))
@click.option(
    "--memory", help="The budget, as 8GB, as gz.open(memory=) takes it; most of what is free."
)
@click.option(
    "--num-neighbors",
    callback=_list(click.IntRange(min=-1)),
    default="15,10,5",
    show_default=True,
    help="Fan-out per hop.",
)
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=1024, show_default=True, help="Seeds each."
)
@click.option(
    "--seeds", metavar="NAME", help="An index set or mask of the store; train_idx or train_mask."
)
@click.option("--input-type", help="The seeds' node type, where several have such a set.")
@click.option(
    "--workers", type=click.IntRange(min=0), default=2, show_default=True, help="num_workers."
)
@click.option("--no-edge-ids", is_flag=True, help="The loader is told edge_ids=False.")
@click.option(
    "--train-seconds",
    type=click.FloatRange(min=0),
    default=0.0,
    help="What a training step takes, if it is known.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="How long to sample.",
)
@click.option("--refresh", is_flag=True, help="Measure the disk even if its speed is remembered.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def doctor(
    store: str,
    num_neighbors: tuple[int, ...],
    workers: int,
    no_edge_ids: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Predict what an epoch over STORE reads and takes, and say what would help.

    Measures the disk, samples some batches and rehearses their reads. Writes nothing.
    """
    found = run_doctor(
        store,
        num_neighbors=list(num_neighbors),
        num_workers=workers,
        edge_ids=not no_edge_ids,
        **options,
    )
    click.echo(json.dumps(found.to_dict(), indent=2) if as_json else str(found))


@main.command(short_help="Compare with stock PyG, side by side.")
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    default="standard",
    show_default=True,
    help="What is not given otherwise.",
)
@click.option("--quick", "preset", flag_value="quick", help="The preset that takes seconds.")
@click.option("--data", help="A store, synthetic:NODES,EDGES,DIM[,EDGE_TYPES], or a PyG dataset.")
@click.option(
    "--workload",
    "workloads",
    callback=_list(click.Choice(WORKLOADS)),
    metavar="A,B",
    help=f"Some of {', '.join(WORKLOADS)}.",
)
@click.option("--fanout", callback=_list(click.IntRange(min=-1)), metavar="15,10,5")
@click.option("--batch-size", type=click.IntRange(min=1), help="Seed nodes per batch.")
@click.option(
    "--workers", callback=_list(click.IntRange(min=0)), metavar="0,2", help="num_workers to try."
)
@click.option(
    "--threads", callback=_list(click.IntRange(min=1)), metavar="1,2", help="For sampling alone."
)
@click.option(
    "--models",
    callback=_list(click.Choice(MODELS)),
    metavar="A,B",
    help=f"For training: some of {', '.join(MODELS)}.",
)
@click.option("--batches", type=click.IntRange(min=1), help="Batches per round.")
@click.option("--rounds", type=click.IntRange(min=1), help="Timed rounds.")
@click.option("--seed", type=click.IntRange(min=0), help="Of the seed nodes and of sampling.")
@click.option("--cold", is_flag=True, help="Drop the store from the page cache before each round.")
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
def bench(preset: str, datasets: Path, out: Path, **options: Any) -> None:
    """Compare sampling, loading and training with stock PyG, side by side.

    Both get the same graph, seeds, fan-out and batch size, each in a process of its own, in turn.
    Prints what was measured and on what, and writes bench.json, bench.md and bench.png.
    """
    given = {name: value for name, value in options.items() if value is not None}
    settings = Settings(**(PRESETS[preset] | given))

    def say(line: str) -> None:
        click.echo(line, err=True)

    say(f"graph: {settings.data}")
    store = prepare(settings.data, out / "stores", datasets)
    report = run_bench(settings, store, say)
    written = write_report(report, out)
    parts = [facts(report), *([table.text()] for table in tables(report)), summary(report), written]
    click.echo("\n\n".join("\n".join(lines) for lines in parts if lines))


if __name__ == "__main__":
    main()
