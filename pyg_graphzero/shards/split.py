"""``gz.shard``: a store in parts, each with the rows of its own nodes and the edges into them.

Each part is a store that the writer of all stores writes. Sources of its edges are numbered as in
the whole store, and so they are of a node type that has all nodes and hardly any attributes. One
more store, ``whole``, has whatever is not divided.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.shards.owners import Owners, divide_nodes
from pyg_graphzero.store.columns import StoredRows, gather, numbers_of
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.csc import BuildRoom, CscOptions, EdgeChunk
from pyg_graphzero.store.ids import StringIds
from pyg_graphzero.store.manifest import (
    EDGE_ID,
    PART_ATTR,
    SLOTS_ATTR,
    TOPOLOGIES,
    WHOLE,
    Manifest,
    is_sharded,
    part_name,
    starts_attr,
)
from pyg_graphzero.store.rows import Rows
from pyg_graphzero.store.schema import SCHEMA_FILE, EdgeType, EdgeTypeSchema, NodeTypeSchema
from pyg_graphzero.store.writer import StoreWriter
from pyg_graphzero.util.arguments import check_count, check_path
from pyg_graphzero.util.documents import read_document
from pyg_graphzero.util.names import locate
from pyg_graphzero.util.progress import Progress
from pyg_graphzero.util.sizes import folder_bytes, format_bytes
from pyg_graphzero.util.workspace import Workspace

_EDGES_AT_ONCE = 1 << 18
_NODES_AT_ONCE = 1 << 20


@dataclass
class PartSummary:
    """One store that was written.

    Attributes:
        name: Its directory.
        num_bytes: Its size.
        nodes: How many nodes of the part's own it has, by type.
        edges: How many edges lead to these, by type.
        away: How many of these come from nodes of other parts.
    """

    name: str
    num_bytes: int = 0
    nodes: dict[str, int] = field(default_factory=dict)
    edges: dict[str, int] = field(default_factory=dict)
    away: dict[str, int] = field(default_factory=dict)


@dataclass
class ShardSummary:
    """The result of ``shard``.

    Attributes:
        path: The directory with the shards.
        parts: How many parts the store is divided into.
        topology: Where the edges are, ``"own"`` or ``"whole"``.
        stores: The stores that were written.
    """

    path: Path
    parts: int
    topology: str
    stores: list[PartSummary] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """All of it, for a log."""
        return asdict(self) | {"path": str(self.path)}

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.parts} parts, topology: {self.topology}"]
        for store in self.stores:
            counts = [f"{count:,} nodes of {name}" for name, count in store.nodes.items()]
            counts += [
                f"{count:,} edges of {name}, {store.away[name] / max(1, count):.1%} from elsewhere"
                for name, count in store.edges.items()
            ]
            lines.append(f"  {store.name}: {', '.join([format_bytes(store.num_bytes), *counts])}")
        return "\n".join(lines)


def shard(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    parts: int,
    *,
    part: int | None = None,
    by: Any = None,
    topology: str = "own",
    memory: int | str | None = None,
    force: bool = False,
    progress: bool | None = None,
) -> ShardSummary:
    """Divides a store into parts, each a store with the rows of its own nodes.

    The store stays as it is. Any part can be written without the others, on another machine:
    the same store, ``parts`` and ``by`` make the same parts.

    Args:
        path: The store.
        out: Directory of the shards; it is made where it is missing.
        parts: How many parts.
        part: Write this one only, ``0 … parts - 1``; None: all of them.
        by: The part of each node: the name of an integer attribute, a file with a number for each
            node (``.npy``, ``.pt``, or text as METIS and KaHIP write it), integers
            ``[num_nodes]``, or ``"ldg"``: near its neighbours, by three passes over the edges, in 4
            bytes for each node and part; a dictionary of these by node type. None, and types
            that are not named: ranges of ids.
        topology: ``"own"``: a part has the edges into its nodes, with their ids and attributes, and
            its nodes' rows of more than 8 bytes. All else lies in one more store, ``out/whole``,
            that every machine is to have: narrow rows, ids, index sets, and where each
            neighbourhood begins. ``"whole"``: that store has all edges, too.
        memory: Memory of the process, in bytes or such as ``"4GB"``; half of the free memory by
            default.
        force: Replace shards that are there.
        progress: Progress bars; None shows them in a terminal.

    Raises:
        FileNotFoundError: There is no such store.
        FileExistsError: ``out`` has other shards, or the part, and ``force`` is not given.
        ValueError: An argument that does not fit the store.
        MemoryBudgetError: ``memory`` is too small for a number of each node, or for ``"ldg"``.
        OSError: Writing failed; the shard it failed in is not there.

    Example:
        >>> import pyg_graphzero as gz
        >>> summary = gz.shard(example_store, getfixture("tmp_path") / "shards", 2)
        >>> [store.nodes for store in summary.stores]
        [{}, {'node': 2}, {'node': 2}]
    """
    check_count("parts", parts)
    if part is not None and not 0 <= part < parts:
        raise ValueError(f"part: found {part}, expected 0 to {parts - 1}")
    if topology not in TOPOLOGIES:
        raise ValueError(f"topology: found {topology!r}, expected one of {', '.join(TOPOLOGIES)}")
    contents = StoreContents(Path(os.path.realpath(check_path(path, "path"))))
    out = Path(check_path(out, "out"))
    _check_names(contents, topology)
    with Workspace(out, memory) as space:
        owners = divide_nodes(contents, parts, by, space.left())
        source = read_document(locate(contents.path, SCHEMA_FILE))["checksum"]
        manifest = Manifest(source, parts, topology, [each.division for each in owners])
        if not force and is_sharded(out) and Manifest.load(out) != manifest:
            raise FileExistsError(17, "has other shards (force replaces them)", str(out))
        out.mkdir(exist_ok=True)
        by_type = {each.division.name: each for each in owners}
        splitter = _Splitter(contents, manifest, by_type, space, Progress(progress), force)
        summary = ShardSummary(out, parts, topology)
        if force or part is None or not (out / WHOLE).exists():
            summary.stores.append(splitter.write_whole(out / WHOLE))
        for number in range(parts) if part is None else [part]:
            summary.stores.append(splitter.write_part(out / part_name(number), number))
        manifest.write(out)
    return summary


def _check_names(contents: StoreContents, topology: str) -> None:
    """Refuses a store whose names a part needs for itself."""
    names = [t.name for t in contents.schema.node_types]
    for record in contents.schema.edge_types:
        if topology == "own" and EDGE_ID in record.attrs:
            raise UnsupportedError(
                f"{contents.path}: found an edge attribute {EDGE_ID!r}, expected another name: "
                "shards keep the ids of edges under it"
            )
    for name in names:
        if f"own:{name}" in names:
            raise UnsupportedError(
                f"{contents.path}: found the node types {name!r} and 'own:{name}', expected other "
                "names: shards call their nodes so"
            )


class _Starts(Rows):
    """Where the slots of each node begin, if those of a part come behind those of the last one.

    REQUIRES that rows are read in order.

    Args:
        owners: The nodes that edges lead to.
        contents: The store.
        name: The edge type.
        slots: Where the slots of each part begin.
    """

    def __init__(
        self, owners: Owners, contents: StoreContents, name: EdgeType | None, slots: Tensor
    ) -> None:
        super().__init__((owners.division.num_nodes,), torch.int64)
        self._owners, self._contents, self._name = owners, contents, name
        self._slots = slots
        self._next = slots.clone()

    def read(self, begin: int, end: int) -> Tensor:
        """See :meth:`Rows.read`."""
        if begin == 0:
            self._next = self._slots.clone()
        degrees = self._contents.bounds(self._name, begin, end).diff()
        parts = self._owners.of(torch.arange(begin, end))
        starts = torch.empty_like(degrees)
        for part in parts.unique().tolist():
            own = (parts == part).nonzero().view(-1)
            ends = degrees[own].cumsum(0)
            starts[own] = self._next[part] + ends - degrees[own]
            self._next[part] += ends[-1]
        return starts


def _slots_of_parts(owners: Owners, contents: StoreContents, name: EdgeType | None) -> Tensor:
    """Where the slots of each part begin, and the number of edges: ``int64 [parts + 1]``."""
    counts = torch.zeros(owners.num_parts + 1, dtype=torch.int64)
    for first in range(0, owners.division.num_nodes, _NODES_AT_ONCE):
        last = min(first + _NODES_AT_ONCE, owners.division.num_nodes)
        parts = owners.of(torch.arange(first, last))
        counts[1:].scatter_add_(0, parts, contents.bounds(name, first, last).diff())
    return counts.cumsum(0)


@dataclass(frozen=True)
class _Splitter:
    """Writes the stores that a store is divided into."""

    contents: StoreContents
    manifest: Manifest
    owners: dict[str | None, Owners]
    space: Workspace
    bars: Progress
    force: bool
    slots: dict[EdgeType | None, Tensor] = field(default_factory=dict)  # are alike in all parts

    def write_whole(self, out: Path) -> PartSummary:
        """Writes the store that all machines have: whatever the parts do not."""
        contents = self.contents
        store = copy.deepcopy(contents.schema)
        adopted: list[tuple[str | None, str, str]] = []
        for record in store.node_types:
            for attr, file in list(record.attrs.items()):
                if self.manifest.is_divided(contents.column(file)) or file in store.adopted:
                    del record.attrs[attr]
                if file in store.adopted and not self.manifest.is_divided(contents.column(file)):
                    adopted.append((record.name, attr, file))
        bounded = store.edge_types if self.manifest.topology == "own" else []
        store.edge_types = [] if bounded else store.edge_types
        with StoreWriter(out, is_hetero=store.is_hetero, force=self.force) as writer:
            with self.bars.step("copying", None) as bar:
                writer.copy(contents.path, store, bar.update)
            for edges in bounded:
                writer.add_bounds(edges, contents.topology(edges.name))
                for attr, entry in edges.others.items():
                    value = contents.view(entry["file"]) if "file" in entry else entry["value"]
                    writer.add_graph_attr(attr, value, edges.name)
            for name, attr, file in adopted:
                writer.add_node_attr(name, attr, contents.view(file))
            writer.finish()
        return PartSummary(out.name, folder_bytes(out))

    def write_part(self, out: Path, part: int) -> PartSummary:
        """Writes the store of one part."""
        summary = PartSummary(out.name)
        contents, has_edges = self.contents, self.manifest.topology == "own"
        with StoreWriter(out, is_hetero=True, force=self.force) as writer:
            nodes: dict[str | None, range | Tensor] = {}
            for record in contents.schema.node_types:
                owners = self.owners[record.name]
                nodes[record.name] = owners.nodes(part)
                self._write_nodes(writer, record, nodes[record.name], part)
                summary.nodes[owners.division.every] = len(nodes[record.name])
            for edges in contents.schema.edge_types if has_edges else []:
                self._write_edges(writer, edges, nodes, part, summary)
            writer.finish()
        summary.num_bytes = folder_bytes(out)
        return summary

    def _write_nodes(
        self, writer: StoreWriter, record: NodeTypeSchema, nodes: range | Tensor, part: int
    ) -> None:
        """Writes the part's own nodes of a type, and how many of all parts there are."""
        contents, owners = self.contents, self.owners[record.name]
        every, own = owners.division.every, owners.division.own
        writer.add_node_type(every, record.num_nodes)
        if owners.parts is not None:
            writer.add_node_attr(every, PART_ATTR, owners.parts)
        writer.add_node_type(own, len(nodes))
        for attr, file in record.attrs.items():
            column = contents.column(file)
            if self.manifest.is_divided(column):
                rows = StoredRows(column, contents.view(file), nodes)
                with self.bars.step(f"writing {attr}", len(nodes) * column.row_bytes) as bar:
                    writer.add_node_attr(own, attr, rows, bar.update)

    def _write_edges(
        self,
        writer: StoreWriter,
        record: EdgeTypeSchema,
        nodes: dict[str | None, range | Tensor],
        part: int,
        summary: PartSummary,
    ) -> None:
        """Writes the edges of a type that lead to the part's own nodes."""
        source, _, destination = record.name or (None, None, None)
        own = self.manifest.own_edges(record.name)
        label = " → ".join(own)
        summary.away[label] = 0

        def count(chunk: EdgeChunk) -> EdgeChunk:
            summary.away[label] += int((self.owners[source].of(chunk.src) != part).sum())
            return chunk

        time = record.time_order if record.time_order in record.attrs else None
        options = CscOptions(bipartite=True, edge_ids=record.edge_ids, time_attr=time)
        with self.bars.step(f"edges {label}", None, "edges") as bar:
            room = BuildRoom(self.space.left(), self.space.folder, reading=bar.update)
            chunks = map(count, edges_into(self.contents, record, nodes[destination]))
            csc = writer.add_edge_type(own, chunks, record.num_edges, options, room)
        summary.edges[label] = csc.num_edges
        for attr, file in record.categories.items():
            offsets = self.contents.view(record.category_offsets[attr])
            names = StringIds(offsets, self.contents.view(file), str(self.contents.path))
            writer.add_categories(own, attr, list(names), of_edges=True)
        owners = self.owners[destination]
        if record.name not in self.slots:
            self.slots[record.name] = _slots_of_parts(owners, self.contents, record.name)
        slots = self.slots[record.name]
        writer.add_graph_attr(SLOTS_ATTR, slots, own)
        if owners.parts is not None:
            starts = _Starts(owners, self.contents, record.name, slots)
            writer.add_node_attr(owners.division.every, starts_attr(own), starts)


def edges_into(
    contents: StoreContents, record: EdgeTypeSchema, nodes: range | Tensor
) -> Iterator[EdgeChunk]:
    """The edges into some nodes, in order: destinations are numbered by place among these.

    The first chunk has no edges, and says which columns there are.

    Raises:
        FormatError: The topology is damaged.
    """
    indices, ids = contents.csc(record.name)[1], contents.edge_id(record.name)
    columns = {attr: contents.view(file) for attr, file in record.attrs.items()}
    kind = torch.int32 if record.num_edges < 1 << 31 else torch.int64

    def chunk(slots: Tensor, places: Tensor) -> EdgeChunk:
        sources = contents.checked_sources(record.name, gather(indices, slots).to(torch.int64))
        payload = {attr: gather(view, slots) for attr, view in columns.items()}
        if record.edge_ids:
            payload[EDGE_ID] = (slots if ids is None else gather(ids, slots)).to(kind)
        return EdgeChunk(sources, places, payload)

    yield chunk(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64))
    for first in range(0, len(nodes), _EDGES_AT_ONCE):
        rows = numbers_of(nodes, first, min(first + _EDGES_AT_ONCE, len(nodes)))
        bounds = contents.bounds_at(record.name, torch.stack([rows, rows + 1], 1).view(-1))
        starts, ends = bounds.view(-1, 2).unbind(1)
        before = (ends - starts).cumsum(0)
        for begin in range(0, int(before[-1]), _EDGES_AT_ONCE):
            edges = torch.arange(begin, min(begin + _EDGES_AT_ONCE, int(before[-1])))
            row = torch.searchsorted(before, edges, right=True)
            yield chunk(ends[row] - before[row] + edges, first + row)
