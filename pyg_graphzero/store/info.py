"""What a store holds, for people and programs."""

from __future__ import annotations

from typing import Any

from pyg_graphzero.store import unpublished
from pyg_graphzero.store.adopted import adopted_path
from pyg_graphzero.store.contents import StoreContents


def info(contents: StoreContents) -> dict[str, Any]:
    """What the store holds, as plain dictionaries: counts, shapes, dtypes, bytes.

    A column that is encoded has ``"encoding"``, what it lost; one that lies in a file which the
    store does not own has ``"adopted"``, the path. Neither ``bytes`` counts adopted files.
    ``"unpublished"`` are columns that are being written, or were when their writer died.
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

    def loose(entries: dict[str, Any]) -> dict[str, Any]:
        return {
            name: column(entry["file"]) if "file" in entry else entry["value"]
            for name, entry in entries.items()
        }

    return {
        "path": str(contents.path),
        "format_version": contents.schema.version,
        "created_by": contents.schema.created_by,
        "is_hetero": contents.schema.is_hetero,
        "bytes": sum(record.bytes for record in contents.schema.files.values()),
        "optimized": contents.schema.optimized,
        "node_types": [
            {
                "name": t.name,
                "num_nodes": t.num_nodes,
                "ids": None if t.ids is None else "string" if t.id_offsets else "int64",
                "is_ordered": t.order is not None,
                "attrs": columns(t.attrs),
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
                "attrs": columns(t.attrs),
                "others": loose(t.others),
            }
            for t in contents.schema.edge_types
        ],
        "graph_attrs": loose(contents.schema.graph_attrs),
        "unpublished": [
            {
                "name": found.journal.name,
                "node_type": found.journal.node_type,
                "shape": list(found.journal.shape),
                "dtype": "float32" if found.journal.encoding else found.journal.dtype,
                "encoding": found.journal.encoding,
                "done": found.done(),
                "bytes": found.disk_bytes(),
            }
            for found in unpublished.find(contents.path, contents.schema)
        ],
    }
