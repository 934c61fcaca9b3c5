"""``graphzero info`` and ``graphzero verify``: what a store holds, and whether it is whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from pyg_graphzero_cli.options import quiet


@click.command(short_help="Print what a store holds.")
@click.argument("store", type=click.Path(path_type=str))
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def info(store: str, as_json: bool) -> None:
    """Print what STORE holds."""
    from pyg_graphzero.pyg.stores import open as open_store

    with open_store(store) as opened:
        value = opened.info()
    click.echo(json.dumps(value, indent=2, default=str) if as_json else "\n".join(_outline(value)))


def _outline(value: Mapping[str, Any]) -> list[str]:
    """``Store.info()`` for people."""
    from pyg_graphzero.util.sizes import format_bytes

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
    from pyg_graphzero.util.sizes import format_bytes

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


@click.command(short_help="Check every checksum of a store.")
@click.argument("store", type=click.Path(path_type=str))
@click.option("--progress/--no-progress", default=None, help="Progress bar; on in a terminal.")
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
