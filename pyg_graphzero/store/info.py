"""The contents of a store, for people and programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyg_graphzero.store.adopted import adopted_path
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.copies import copy_sizes
from pyg_graphzero.store.encoding import EncodingLoss
from pyg_graphzero.store.leftovers import disk_bytes, drafts
from pyg_graphzero.store.schema import FORMAT_VERSION, TypeSchema
from pyg_graphzero.util.html import Shown
from pyg_graphzero.util.sizes import format_bytes


class Info(Shown, dict[str, Any]):
    """Plain dictionaries that are printed as lines of text."""

    def __str__(self) -> str:
        return "\n".join(outline(self))


def info(contents: StoreContents) -> Info:
    """The contents of the store, as plain dictionaries: counts, shapes, dtypes, bytes.

    A column that is encoded has ``"encoding"``, what it lost; one that lies in a file which the
    store does not own has ``"adopted"``, the path. Neither ``bytes`` counts adopted files. A column
    whose values have names has ``"categories"``, their number.
    ``"unpublished"`` are drafts of columns, which are being written or were when their writer died:
    ``graphzero clean`` removes them.
    """

    def column(file: str) -> dict[str, Any]:
        opened = contents.column(file)
        found: dict[str, Any] = {
            "shape": list(opened.shape),
            "dtype": opened.dtype if opened.encoding is None else "float32",
        }
        if file in contents.schema.adopted:
            record = contents.schema.adopted[file]
            path = str(adopted_path(contents.path, record))
            return found | {"bytes": 0, "adopted": path, "adopted_bytes": opened.data_bytes}
        record_of_file = contents.schema.files[file]
        found["bytes"] = record_of_file.bytes
        if opened.encoding is not None:
            found["encoding"] = {
                "encoding": opened.encoding.name,
                **(record_of_file.encoding or {}),
            }
        return found

    def columns(files: dict[str, str]) -> dict[str, Any]:
        return {name: column(file) for name, file in files.items()}

    def attrs(record: TypeSchema) -> dict[str, Any]:
        found = columns(record.attrs)
        for name, file in record.category_offsets.items():
            found[name]["categories"] = contents.column(file).shape[0] - 1
        return found

    def loose(entries: dict[str, Any]) -> dict[str, Any]:
        return {
            name: column(entry["file"]) if "file" in entry else entry["value"]
            for name, entry in entries.items()
        }

    found = {
        "path": str(contents.path),
        "format_version": FORMAT_VERSION,
        "flags": contents.schema.flags,
        "created_by": contents.schema.created_by,
        "is_hetero": contents.schema.is_hetero,
        "bytes": sum(record.bytes for record in contents.schema.files.values()),
        "node_types": [
            {
                "name": t.name,
                "num_nodes": t.num_nodes,
                "ids": t.ids and ("string" if t.id_offsets else contents.column(t.ids).dtype),
                "attrs": attrs(t),
                "index_sets": columns(t.index_sets),
                "others": loose(t.others),
            }
            for t in contents.schema.node_types
        ],
        "edge_types": [
            {
                "name": None if t.name is None else list(t.name),
                "num_edges": t.num_edges,
                "index_bytes": contents.topology(t.name).index_bytes,
                "topology_bytes": contents.schema.files[t.topology].bytes,
                "has_edge_id": t.edge_id is not None,
                "edge_ids": t.edge_ids,
                "has_csr": t.csr is not None,
                "attrs": attrs(t),
                "others": loose(t.others),
            }
            for t in contents.schema.edge_types
        ],
        "graph_attrs": loose(contents.schema.graph_attrs),
        "copies": copy_sizes(contents.path),
        "unpublished": [
            {"file": file, "bytes": disk_bytes(contents.path / file)}
            for file in drafts(contents.path)
        ],
    }
    return Info(found)


def outline(value: Mapping[str, Any]) -> list[str]:
    """:func:`info` as lines of text."""
    if "stores" in value:
        head = f"{value['path']}: a store in {value['parts']} parts, topology: {value['topology']}"
        parts = [line for store in value["stores"].values() for line in outline(store)]
        return [head, *(f"  {line}" for line in parts)]
    lines = [
        f"{value['path']}: {format_bytes(value['bytes'])}, "
        f"format {value['format_version']}, by {value['created_by']}",
        *type_lines(value),
    ]
    for copy, num_bytes in value["copies"].items():
        lines.append(f"  copy of the rows that training uses: {copy}, {format_bytes(num_bytes)}")
    for draft in value["unpublished"]:
        lines.append(f"  not published: {draft['file']}, {format_bytes(draft['bytes'])}")
    return lines


def type_lines(
    value: Mapping[str, Any],
    nodes: Mapping[Any, Any] | None = None,
    edges: Mapping[Any, Any] | None = None,
) -> list[str]:
    """Lines on each type and on the graph as a whole.

    Args:
        value: The result of :func:`info`.
        nodes: A conversion's ``NodeSummary`` of each node type.
        edges: Its ``EdgeSummary`` of each edge type.
    """
    lines = []
    for node in value["node_types"]:
        parts = [f"{node['num_nodes']:,} nodes"]
        parts += nodes[node["name"]].shown if nodes else [f"{node['ids']} ids"] * bool(node["ids"])
        lines.append(f"  {node['name'] or 'nodes'}: {', '.join(parts)}")
        lines += _columns(node["attrs"], with_cost=nodes is not None)
        lines += [f"    {name}: {c['shape'][0]:,} nodes" for name, c in node["index_sets"].items()]
        lines += [f"    of the type: {', '.join(node['others'])}"] * bool(node["others"])
    for edge in value["edge_types"]:
        name = tuple(edge["name"]) if edge["name"] else None
        parts = [f"{edge['num_edges']:,} edges", *(edges[name].shown if edges else ())]
        parts += ["no edge ids"] * (not edge["edge_ids"])
        parts += [f"topology {format_bytes(edge['topology_bytes'])}"]
        parts += ["in both directions"] * edge["has_csr"]
        lines.append(f"  {' → '.join(name or ['edges'])}: {', '.join(parts)}")
        lines += _columns(edge["attrs"])
        lines += [f"    of the type: {', '.join(edge['others'])}"] * bool(edge["others"])
        if edges and edge["num_edges"]:
            degrees = edges[name].degrees.items()
            lines.append(f"    in-degrees: {', '.join(f'{key} {n:,}' for key, n in degrees)}")
    return lines + [f"  graph: {', '.join(value['graph_attrs'])}"] * bool(value["graph_attrs"])


def _columns(columns: Mapping[str, Mapping[str, Any]], with_cost: bool = False) -> list[str]:
    return [
        f"    {name}: {_kind(column, with_cost)}, {_place(column)}"
        for name, column in columns.items()
    ]


def _kind(column: Mapping[str, Any], with_cost: bool) -> str:
    """Dtype, shape and encoding of a column's rows, such as ``float32[16] as int8``."""
    shape = ", ".join(map(str, column["shape"][1:]))
    kind = f"{column['dtype']}[{shape}]" if shape else str(column["dtype"])
    kind += f", {column['categories']:,} categories" if "categories" in column else ""
    encoding = column.get("encoding")
    if encoding is None:
        return kind
    cost = f": {EncodingLoss(**encoding)}" if with_cost else ""
    return f"{kind} as {encoding['encoding']}{cost}"


def _place(column: Mapping[str, Any]) -> str:
    """How large a column is, and where it lies if that is not in the store."""
    if "adopted" not in column:
        return format_bytes(column["bytes"])
    return f"{format_bytes(column['adopted_bytes'])} adopted from {column['adopted']}"
