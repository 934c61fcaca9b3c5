"""`store.json`: what a store holds, read and checked. docs/format.md specifies it."""

from __future__ import annotations

import errno
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from pyg_graphzero.errors import FormatError
from pyg_graphzero.util.documents import Members, check_whole, read_document, write_document
from pyg_graphzero.util.names import (
    COLUMN,
    TOPOLOGY,
    check_name,
    locate,
)

FORMAT_NAME = "pyg_graphzero"
# The first is written wherever it is enough, so that older readers can read it; the second has rows
# in another order than nodes, the third edges without ids.
PLAIN_VERSION, ORDERED_VERSION, UNNUMBERED_VERSION = 1, 2, 3
FORMAT_VERSIONS = (PLAIN_VERSION, ORDERED_VERSION, UNNUMBERED_VERSION)
SCHEMA_FILE = "store.json"

EdgeType: TypeAlias = tuple[str, str, str]


@dataclass
class NodeTypeSchema:
    """One node type. ``name`` is None in a homogeneous store.

    ``order`` and ``rank`` are columns: the node of every row, and the row of every node. None: rows
    are numbered as nodes are. ``others`` are as the ``graph_attrs`` of a store.
    """

    name: str | None
    num_nodes: int
    attrs: dict[str, str] = field(default_factory=dict)
    index_sets: dict[str, str] = field(default_factory=dict)
    ids: str | None = None
    id_offsets: str | None = None
    order: str | None = None
    rank: str | None = None
    others: dict[str, Any] = field(default_factory=dict)


@dataclass
class EdgeTypeSchema:
    """One edge type. ``name`` is None in a homogeneous store.

    ``edge_id`` is a column; None: slots are the ids, or there are none, as ``edge_ids`` says.
    ``time_order`` is the attribute that neighbourhoods are sorted by: of the edges if they have one
    of that name, else of their sources. None: they are in the order of edge ids. ``csr`` is a
    topology of the same edges with both ends exchanged, for walks along them, and ``csr_slot`` says
    in which slot of ``topology`` each edge of it is; None: in the same one. ``others`` are as the
    ``graph_attrs`` of a store.
    """

    name: EdgeType | None
    num_edges: int
    topology: str
    edge_id: str | None = None
    edge_ids: bool = True
    attrs: dict[str, str] = field(default_factory=dict)
    time_order: str | None = None
    csr: str | None = None
    csr_slot: str | None = None
    others: dict[str, Any] = field(default_factory=dict)


@dataclass
class FileRecord:
    """What the schema says about one file of the store."""

    bytes: int
    header_hash: str
    encoding: dict[str, Any] | None = None  # an EncodingLoss, where the column is encoded


@dataclass
class AdoptedRecord:
    """Rows in a file that is not the store's.

    Attributes:
        path: The file, absolute or relative to the store.
        bytes: Its size.
        fingerprint: Of its header and some rows, see :mod:`pyg_graphzero.store.adopted`.
        dtype: Of the rows, as the format names it.
        shape: With the number of rows first.
        offset: Where the first row starts, in bytes.
        row_stride: Bytes from one row to the next.
    """

    path: str
    bytes: int
    fingerprint: str
    dtype: str
    shape: list[int]
    offset: int
    row_stride: int


@dataclass
class StoreSchema:
    """The whole of `store.json`."""

    is_hetero: bool
    node_types: list[NodeTypeSchema] = field(default_factory=list)
    edge_types: list[EdgeTypeSchema] = field(default_factory=list)
    graph_attrs: dict[str, Any] = field(default_factory=dict)
    files: dict[str, FileRecord] = field(default_factory=dict)
    adopted: dict[str, AdoptedRecord] = field(default_factory=dict)
    created_by: str = ""
    optimized: dict[str, Any] | None = None  # what the order of the rows was made for, for people

    @property
    def version(self) -> int:
        """The oldest version of the format that can say all this."""
        if not all(t.edge_ids for t in self.edge_types):
            return UNNUMBERED_VERSION
        has_order = any(t.order is not None for t in self.node_types)
        return ORDERED_VERSION if has_order else PLAIN_VERSION

    @property
    def loose(self) -> list[dict[str, Any]]:
        """What has no row per node or edge: the graph's attributes, and the others of each type."""
        of_nodes = [t.others for t in self.node_types]
        return [self.graph_attrs, *of_nodes, *(t.others for t in self.edge_types)]

    def node_type(self, name: str | None) -> NodeTypeSchema | None:
        """The node type called ``name``, or None."""
        return next((t for t in self.node_types if t.name == name), None)

    def edge_type(self, name: EdgeType | None) -> EdgeTypeSchema | None:
        """The edge type called ``name``, or None."""
        return next((t for t in self.edge_types if t.name == name), None)


def header_hash(path: Path) -> str:
    """The checksum stored at the end of a `.gd` or `.gl` file's header, as hexadecimal."""
    with path.open("rb") as file:
        file.seek(4096 - 8)
        return file.read(8)[::-1].hex()


def dump(schema: StoreSchema, path: Path) -> None:
    """Writes ``schema`` as JSON with its own checksum and syncs the file."""
    body: dict[str, Any] = {
        "format": FORMAT_NAME,
        "version": schema.version,
        "created_by": schema.created_by,
        "is_hetero": schema.is_hetero,
        "node_types": [
            {
                "name": t.name,
                "num_nodes": t.num_nodes,
                "attrs": t.attrs,
                "index_sets": t.index_sets,
                "ids": t.ids,
                "id_offsets": t.id_offsets,
                **({} if t.order is None else {"order": t.order, "rank": t.rank}),
                **({"others": t.others} if t.others else {}),
            }
            for t in schema.node_types
        ],
        "edge_types": [
            {
                "name": None if t.name is None else list(t.name),
                "num_edges": t.num_edges,
                "topology": t.topology,
                "edge_id": t.edge_id,
                **({} if t.edge_ids else {"edge_ids": False}),
                "attrs": t.attrs,
                **({} if t.time_order is None else {"time_order": t.time_order}),
                **({} if t.csr is None else {"csr": t.csr, "csr_slot": t.csr_slot}),
                **({"others": t.others} if t.others else {}),
            }
            for t in schema.edge_types
        ],
        "graph_attrs": schema.graph_attrs,
        "files": {
            name: {key: value for key, value in asdict(record).items() if value is not None}
            for name, record in sorted(schema.files.items())
        },
    }
    if schema.adopted:
        body["adopted"] = {name: asdict(record) for name, record in sorted(schema.adopted.items())}
    if schema.optimized is not None:
        body["optimized"] = schema.optimized
    write_document(body, path)


class _Reader(Members):
    """Takes what else `store.json` has, too."""

    def file_name(self, value: Any, where: str) -> str:
        return check_name(value, self.path, where)

    def file_map(self, obj: Any, key: str, where: str) -> dict[str, str]:
        entries = self.take(obj, key, dict, where)
        return {str(k): self.file_name(v, f"{where}.{key}[{k!r}]") for k, v in entries.items()}

    def loose(self, obj: Any, key: str, where: str) -> dict[str, Any]:
        """Attributes that are a file of any shape, or a plain value."""
        entries: dict[str, Any] = self.take(obj, key, dict, where)
        for name, entry in entries.items():
            place = f"{where}.{key}[{name!r}]".removeprefix(".")
            if not isinstance(entry, dict) or ("file" in entry) == ("value" in entry):
                raise self.fail(place, repr(entry)[:60], "one of file, value")
            if "file" in entry:
                self.file_name(entry["file"], f"{place}.file")
        return entries

    def optional_file(self, obj: Any, key: str, where: str) -> str | None:
        value = self.take(obj, key, str, where, optional=True)
        return None if value is None else self.file_name(value, f"{where}.{key}")


def load(directory: Path) -> StoreSchema:
    """Reads and checks ``directory/store.json``.

    Raises:
        FileNotFoundError: There is no such directory or no finished store in it.
        NotADirectoryError: ``directory`` is a file.
        FormatError: The document is damaged, of another version, or contradicts itself.
    """
    if not directory.exists():
        raise FileNotFoundError(2, "no such store", str(directory))
    if not directory.is_dir():
        raise NotADirectoryError(20, "not a store: a store is a directory", str(directory))
    path = locate(directory, SCHEMA_FILE)
    read = _Reader(path)
    try:
        body = read_document(path)
    except FileNotFoundError:
        raise FileNotFoundError(
            2,
            f"not a store (it has no {SCHEMA_FILE}, which conversion writes last)",
            str(directory),
        ) from None
    if read.take(body, "format", str, "") != FORMAT_NAME:
        raise read.fail("format", repr(body["format"]), repr(FORMAT_NAME))
    version = read.take(body, "version", int, "")
    if version not in FORMAT_VERSIONS:
        known = f"{', '.join(map(str, FORMAT_VERSIONS[:-1]))} or {FORMAT_VERSIONS[-1]}"
        raise read.fail(
            "version",
            version,
            f"{known}; the store was written by another release: convert again or upgrade",
        )
    read.take(body, "checksum", str, "")
    check_whole(body, path)

    schema = StoreSchema(
        is_hetero=read.take(body, "is_hetero", bool, ""),
        graph_attrs=read.loose(body, "graph_attrs", ""),
        created_by=read.take(body, "created_by", str, ""),
        optimized=read.take(body, "optimized", dict, "") if "optimized" in body else None,
    )
    for i, entry in enumerate(read.take(body, "node_types", list, "")):
        where = f"node_types[{i}]"
        schema.node_types.append(
            NodeTypeSchema(
                name=read.take(entry, "name", str, where, optional=True),
                num_nodes=read.take(entry, "num_nodes", int, where),
                attrs=read.file_map(entry, "attrs", where),
                index_sets=read.file_map(entry, "index_sets", where),
                ids=read.optional_file(entry, "ids", where),
                id_offsets=read.optional_file(entry, "id_offsets", where),
                others=read.loose(entry, "others", where) if "others" in entry else {},
            )
        )
        if "order" in entry:
            if version < ORDERED_VERSION:  # whoever follows that version would take rows for nodes
                found = f"one in a store of version {version}"
                raise read.fail(f"{where}.order", found, f"none below version {ORDERED_VERSION}")
            schema.node_types[-1].order = read.optional_file(entry, "order", where)
            schema.node_types[-1].rank = read.optional_file(entry, "rank", where)
            _check_order(schema.node_types[-1], read, where)
    for i, entry in enumerate(read.take(body, "edge_types", list, "")):
        where = f"edge_types[{i}]"
        name = read.take(entry, "name", list, where, optional=True)
        if name is not None and (len(name) != 3 or not all(isinstance(n, str) for n in name)):
            raise read.fail(f"{where}.name", name, "three strings")
        schema.edge_types.append(
            EdgeTypeSchema(
                name=None if name is None else (name[0], name[1], name[2]),
                num_edges=read.take(entry, "num_edges", int, where),
                topology=read.file_name(
                    read.take(entry, "topology", str, where), f"{where}.topology"
                ),
                edge_id=read.optional_file(entry, "edge_id", where),
                attrs=read.file_map(entry, "attrs", where),
                time_order=read.take(entry, "time_order", str, where, optional=True)
                if "time_order" in entry
                else None,
                csr=read.optional_file(entry, "csr", where) if "csr" in entry else None,
                csr_slot=read.optional_file(entry, "csr_slot", where) if "csr" in entry else None,
                others=read.loose(entry, "others", where) if "others" in entry else {},
            )
        )
        if "edge_ids" in entry:
            schema.edge_types[-1].edge_ids = read.take(entry, "edge_ids", bool, where)
            _check_edge_ids(schema.edge_types[-1], version, read, where)
    for name, entry in read.take(body, "files", dict, "").items():
        where = f"files[{name!r}]"
        schema.files[check_name(name, path, where, (COLUMN, TOPOLOGY))] = FileRecord(
            bytes=read.take(entry, "bytes", int, where),
            header_hash=read.take(entry, "header_hash", str, where),
            encoding=read.take(entry, "encoding", dict, where) if "encoding" in entry else None,
        )
    for name, entry in (read.take(body, "adopted", dict, "") if "adopted" in body else {}).items():
        schema.adopted[read.file_name(name, "adopted")] = _adopted(read, entry, name)
    _check_types(schema, read)
    return schema


def _check_order(node_type: NodeTypeSchema, read: _Reader, where: str) -> None:
    if node_type.order is None or node_type.rank is None:
        found = f"{node_type.order!r} and {node_type.rank!r}"
        raise read.fail(f"{where}.order, rank", found, "two columns")


def _check_edge_ids(edge_type: EdgeTypeSchema, version: int, read: _Reader, where: str) -> None:
    if edge_type.edge_ids:
        return
    if version < UNNUMBERED_VERSION:  # whoever follows that version would take slots for ids
        found = f"false in a store of version {version}"
        raise read.fail(f"{where}.edge_ids", found, f"true below version {UNNUMBERED_VERSION}")
    if edge_type.edge_id is not None or edge_type.attrs:
        raise read.fail(f"{where}.edge_ids", "false beside edge_id or attrs", "neither of them")


def _adopted(read: _Reader, entry: Any, name: str) -> AdoptedRecord:
    where = f"adopted[{name!r}]"
    shape = read.take(entry, "shape", list, where)
    if len(shape) > 8 or not all(type(dim) is int and 0 <= dim < 2**63 for dim in shape):
        raise read.fail(f"{where}.shape", shape, "at most 8 counts from 0 to 2^63 - 1")
    path = read.take(entry, "path", str, where)
    if not path or "\0" in path:
        raise read.fail(f"{where}.path", repr(path)[:60], "a file path")
    return AdoptedRecord(
        path=path,
        bytes=read.take(entry, "bytes", int, where),
        fingerprint=read.take(entry, "fingerprint", str, where),
        dtype=read.take(entry, "dtype", str, where),
        shape=shape,
        offset=read.take(entry, "offset", int, where),
        row_stride=read.take(entry, "row_stride", int, where),
    )


def _check_types(schema: StoreSchema, read: _Reader) -> None:
    """Node and edge types must fit together, and homogeneous means one unnamed type."""
    names = [t.name for t in schema.node_types]
    if len(set(names)) != len(names):
        raise read.fail("node_types", names, "distinct names")
    edge_names = [t.name for t in schema.edge_types]
    if len(set(edge_names)) != len(edge_names):
        raise read.fail("edge_types", edge_names, "distinct names")
    for edge_type in schema.edge_types:
        order = edge_type.time_order
        source = schema.node_type(None if edge_type.name is None else edge_type.name[0])
        if order is not None and order not in {*edge_type.attrs, *(source.attrs if source else ())}:
            raise read.fail(
                f"edge_types {edge_type.name}", f"time_order {order!r}", "an attribute there is"
            )
    if not schema.is_hetero:
        if names != [None] or edge_names not in ([None], []):
            raise read.fail("is_hetero", "false with named types", "one unnamed node and edge type")
        return
    if None in names or None in edge_names:
        raise read.fail("is_hetero", "true with an unnamed type", "a name for every type")
    for edge_type in schema.edge_types:
        assert edge_type.name is not None
        for end in (edge_type.name[0], edge_type.name[2]):
            if end not in names:
                raise read.fail(
                    f"edge_types {edge_type.name}", f"node type {end!r}", f"one of {names}"
                )


def named_files(schema: StoreSchema) -> list[str]:
    """Every file name that a type or attribute of the schema refers to."""
    named: list[str] = []
    for node_type in schema.node_types:
        named += [*node_type.attrs.values(), *node_type.index_sets.values()]
        columns = (node_type.ids, node_type.id_offsets, node_type.order, node_type.rank)
        named += [name for name in columns if name is not None]
    for edge_type in schema.edge_types:
        named += [edge_type.topology, *edge_type.attrs.values()]
        optional = (edge_type.edge_id, edge_type.csr, edge_type.csr_slot)
        named += [name for name in optional if name is not None]
    named += [v["file"] for each in schema.loose for v in each.values() if "file" in v]
    return named


def check_files(directory: Path, schema: StoreSchema) -> None:
    """Every file of the store must be there, with the size and header the schema recorded.

    Raises:
        FormatError: Names the file, its size or header hash, and what was recorded.
    """
    for name in named_files(schema):
        if name not in schema.files and name not in schema.adopted:
            raise FormatError.of(directory / SCHEMA_FILE, "files", f"no entry for {name!r}", "one")
    for name, record in schema.files.items():
        check_file(directory, name, record)


def check_file(directory: Path, name: str, record: FileRecord) -> None:
    """The file called ``name`` must have the size and header that were recorded for it.

    Raises:
        FormatError: It is missing or differs.
    """
    path = locate(directory, name)
    try:
        status = path.stat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            raise
        raise FormatError.of(path, "file", "nothing", f"{record.bytes} bytes") from None
    if status.st_size != record.bytes:
        raise FormatError.of(
            path, "file size", f"{status.st_size} bytes", f"{record.bytes} bytes (by {SCHEMA_FILE})"
        )
    found = header_hash(path)
    if found != record.header_hash:
        raise FormatError.of(path, "header_hash", found, f"{record.header_hash} (by {SCHEMA_FILE})")


def check_new_attr(store: Path, record: NodeTypeSchema, attr: str) -> None:
    """Raises ValueError if a node type has an attribute or an index set called ``attr``."""
    if attr in record.attrs or attr in record.index_sets:
        kind = "attribute" if attr in record.attrs else "index set"
        raise ValueError(
            f"{store}: name: found an {kind} {attr!r} of {record.name!r}, expected a name that is "
            f"not taken; store.feature_store.remove_tensor({record.name!r}, {attr!r}, None) "
            f"removes an attribute"
        )
