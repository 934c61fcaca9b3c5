"""A DGL GraphBolt ``OnDiskDataset`` directory to a specification: ``metadata.yaml`` and its files.

Read is what the user wrote, not what GraphBolt makes of it in ``preprocessed/``.
``docs/convert.md`` says where the layout is described.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyg_graphzero.conversion.arrays import Reference, load_member
from pyg_graphzero.conversion.plan import EdgeType, NodeType
from pyg_graphzero.conversion.sources import Labels, Scattered
from pyg_graphzero.conversion.spec import EdgeSpec, GraphSpec, NodeSpec
from pyg_graphzero.errors import InputError, UnsupportedError
from pyg_graphzero.store.rows import no_spool
from pyg_graphzero.util.reading import reading

METADATA = "metadata.yaml"
_SETS = {"train_set": "train_mask", "validation_set": "val_mask", "test_set": "test_mask"}
_SEEDS = ("seeds", "seed_nodes")
_NAMES = {("node", "feat"): "x", ("edge", "feat"): "edge_attr"}


def graphbolt_spec(path: Path) -> GraphSpec:
    """The graph that ``metadata.yaml`` describes.

    The nodes of a task become masks and, where they have labels, ``y`` with -1 for all others.

    Raises:
        InputError: The file is damaged or lacks something.
        UnsupportedError: PyYAML is not installed.
    """
    return _Reader(path, _load(path / METADATA)).read()


def _load(path: Path) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise UnsupportedError(
            f"{path}: reading GraphBolt's metadata needs PyYAML: pip install pyyaml"
        ) from error
    with reading(path, "file", "valid YAML"):
        try:
            return yaml.safe_load(path.read_bytes())
        except yaml.YAMLError as error:
            raise ValueError(" ".join(str(error).split())) from error


def _num_dims(path: Path) -> int:
    return len(load_member(Reference((path,)), no_spool).shape)


class _Reader:
    def __init__(self, path: Path, metadata: Any) -> None:
        self._path = path
        self._file = path / METADATA
        self._metadata = metadata
        self._spec = GraphSpec({}, [], self._file, "GraphBolt OnDiskDataset")
        self._nodes = self._spec.nodes

    def read(self) -> GraphSpec:
        graph = self._get(self._metadata, "graph", "metadata")
        for entry in self._get(graph, "nodes", "graph"):
            count = self._get(entry, "num", "graph.nodes")
            self._nodes[entry.get("type")] = NodeSpec(num_nodes=int(count), ids="dense")
        for entry in self._get(graph, "edges", "graph"):
            edge_type = self._edge_type(entry.get("type"))
            file = self._path / self._get(entry, "path", "graph.edges")
            edge = EdgeSpec(type=edge_type, file=file)
            if entry.get("format") == "csv":
                edge.delimiter, edge.header = ",", False
            else:
                edge.edge_layout = "2xE"
            self._spec.edges.append(edge)
        for entry in [*graph.get("feature_data", ()), *self._list("feature_data")]:
            self._feature(entry)
        tasks = self._list("tasks")
        for task in tasks[:1]:
            self._task(task)
        if len(tasks) > 1:
            names = ", ".join(str(task.get("name")) for task in tasks[1:])
            self._spec.notes.append(f"tasks not taken: {names}")
        return self._spec

    def _list(self, key: str) -> list[Any]:
        return self._metadata.get(key) or []

    def _feature(self, entry: Mapping[str, Any]) -> None:
        domain = self._get(entry, "domain", "feature_data")
        name = self._get(entry, "name", "feature_data")
        source = self._path / self._get(entry, "path", "feature_data")
        attr, kind = _NAMES.get((domain, name), name), entry.get("type")
        if domain == "node":
            self._owner(self._nodes, kind, "feature_data").attrs[attr] = source
        elif domain == "edge":
            edges = {each.type: each for each in self._spec.edges}
            self._owner(edges, self._edge_type(kind), "feature_data").attrs[attr] = source
        else:
            self._spec.notes.append(f"feature {name!r} of the {domain} not taken")

    def _task(self, task: Mapping[str, Any]) -> None:
        labels: dict[NodeType, list[tuple[Any, Any]]] = {}
        for key, attr in _SETS.items():
            for kind, seeds, classes in self._sets(task.get(key) or (), f"tasks.{key}"):
                node = self._owner(self._nodes, kind, f"tasks.{key}")
                known = node.attrs.get(attr, Scattered((), False)).parts
                node.attrs[attr] = Scattered((*known, (seeds, True)), False)
                if classes is not None:
                    labels.setdefault(kind, []).append((seeds, Labels(classes)))
        for kind, parts in labels.items():
            self._nodes[kind].attrs.setdefault("y", Scattered(tuple(parts), -1))

    def _sets(self, entries: Any, where: str) -> Iterator[tuple[NodeType, Path, Path | None]]:
        """Node type, seeds and labels of one set."""
        for entry in entries:
            data = {each["name"]: self._path / each["path"] for each in entry["data"]}
            found = [data[name] for name in _SEEDS if name in data]
            kind = entry.get("type")
            if not found or (kind is not None and ":" in kind) or _num_dims(found[0]) != 1:
                self._spec.notes.append(f"{where} is about edges, not nodes: not taken")
                continue
            yield kind, found[0], data.get("labels")

    def _edge_type(self, name: str | None) -> EdgeType:
        if name is None:
            return None
        parts = name.split(":")
        if len(parts) != 3:
            raise InputError(self._file, "edge type", repr(name), "SRC:RELATION:DST")
        return parts[0], parts[1], parts[2]

    def _owner(self, there: Mapping[Any, Any], key: Any, where: str) -> Any:
        if key not in there:
            known = ", ".join(map(str, there))
            raise InputError(self._file, where, f"type {key!r}", f"one of graph: {known}")
        return there[key]

    def _get(self, entry: Any, key: str, where: str) -> Any:
        if not isinstance(entry, Mapping) or key not in entry:
            found = ", ".join(entry) if isinstance(entry, Mapping) else type(entry).__name__
            raise InputError(self._file, where, found or "nothing", f"a key {key!r}")
        return entry[key]
