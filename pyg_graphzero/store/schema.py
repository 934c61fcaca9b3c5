"""`store.json`: what a store holds, read and checked. docs/format.md specifies it."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from pyg_graphzero.errors import FormatError
from pyg_graphzero.util.arguments import of_type
from pyg_graphzero.util.documents import Members, read_document, write_document
from pyg_graphzero.util.names import COLUMN, TOPOLOGY, check_name, locate

FORMAT_VERSION = 1
HEAD = {"format": "pyg_graphzero", "version": FORMAT_VERSION}
SCHEMA_FILE, SHARDS_FILE = "store.json", "shards.json"

EdgeType: TypeAlias = tuple[str, str, str]
# Members of the document are read by the types of their fields, see `_KINDS`.
File: TypeAlias = str  # a file of the store, or adopted rows
ForeignPath: TypeAlias = str  # a file of another program
Loose: TypeAlias = dict[str, Any]  # {"file": File} or {"value": a number, text, boolean or None}
Shape: TypeAlias = list[int]


def safe_name(name: str) -> str:
    """``name`` as a file name; what is lost is harmless, since documents keep the real one."""
    return re.sub(r"[^A-Za-z0-9_\-]", "_", name)[:80] or "_"


@dataclass
class NodeTypeSchema:
    """One node type. ``name`` is None in a homogeneous store.

    ``categories`` and their offsets are names of an attribute's values 0, 1 …, as ``ids`` and
    ``id_offsets`` are of rows. ``others`` belong to the type as a whole, as the ``graph_attrs`` of
    a store belong to it.
    """

    kind: ClassVar[str] = "node"
    name: str | None
    num_nodes: int
    attrs: dict[str, File] = field(default_factory=dict)
    index_sets: dict[str, File] = field(default_factory=dict)
    ids: File | None = None
    id_offsets: File | None = None
    categories: dict[str, File] = field(default_factory=dict)
    category_offsets: dict[str, File] = field(default_factory=dict)
    others: dict[str, Loose] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        """Rows of each attribute."""
        return self.num_nodes

    @property
    def folder(self) -> str:
        """Where its columns lie."""
        return "node" if self.name is None else f"node-{safe_name(self.name)}"


@dataclass
class EdgeTypeSchema:
    """One edge type. ``name`` is None in a homogeneous store.

    ``edge_id`` is a column; None: slots are the ids, or there are none, as ``edge_ids`` says.
    ``time_order`` is the attribute that neighbourhoods are sorted by: of the edges if they have one
    of that name, else of their sources. None: they are in the order of edge ids. ``csr`` is a
    topology of the same edges with both ends exchanged, for walks along them, and ``csr_slot`` says
    in which slot of ``topology`` each edge of it is; None: in the same one. ``categories`` and
    ``others`` are as those of a node type.
    """

    kind: ClassVar[str] = "edge"
    name: EdgeType | None
    num_edges: int
    topology: File
    edge_id: File | None = None
    edge_ids: bool = True
    attrs: dict[str, File] = field(default_factory=dict)
    time_order: str | None = None
    csr: File | None = None
    csr_slot: File | None = None
    categories: dict[str, File] = field(default_factory=dict)
    category_offsets: dict[str, File] = field(default_factory=dict)
    others: dict[str, Loose] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        """Rows of each attribute."""
        return self.num_edges

    @property
    def folder(self) -> str:
        """Where its files lie."""
        return "edge" if self.name is None else f"edge-{safe_name('--'.join(self.name))}"


TypeSchema: TypeAlias = NodeTypeSchema | EdgeTypeSchema


@dataclass
class FileRecord:
    """One file of the store: its size, and the checksum of its header."""

    bytes: int
    header_hash: str
    encoding: dict[str, Any] | None = None  # an EncodingLoss, where the column is encoded


@dataclass
class AdoptedRecord:
    """Rows in a file that is not the store's.

    Attributes:
        path: The file, absolute or relative to the store.
        bytes: Its size.
        fingerprint: Hash of its header and some rows, see :mod:`pyg_graphzero.store.adopted`.
        dtype: Type of the rows, as the format names it.
        shape: With the number of rows first.
        offset: Where the first row starts, in bytes.
        row_stride: Bytes from one row to the next.
    """

    path: ForeignPath
    bytes: int
    fingerprint: str
    dtype: str
    shape: Shape
    offset: int
    row_stride: int


@dataclass
class StoreSchema:
    """All of `store.json` but its head: format, version and flags."""

    created_by: str
    is_hetero: bool
    node_types: list[NodeTypeSchema] = field(default_factory=list)
    edge_types: list[EdgeTypeSchema] = field(default_factory=list)
    graph_attrs: dict[str, Loose] = field(default_factory=dict)
    files: dict[str, FileRecord] = field(default_factory=dict)
    adopted: dict[str, AdoptedRecord] = field(default_factory=dict)

    @property
    def flags(self) -> list[str]:
        """Names of features that a reader must know, or it would misread the store."""
        return [name for name, is_set in FLAGS.items() if is_set(self)]

    @property
    def loose_files(self) -> list[str]:
        """Files of attributes without rows: the graph's, and the others of each type."""
        entries = (self.graph_attrs, *(t.others for t in self.types))
        return [loose["file"] for each in entries for loose in each.values() if "file" in loose]

    @property
    def types(self) -> list[TypeSchema]:
        """All types of nodes and edges."""
        return [*self.node_types, *self.edge_types]

    def node_type(self, name: str | None) -> NodeTypeSchema | None:
        """The node type called ``name``, or None."""
        return next((t for t in self.node_types if t.name == name), None)

    def edge_type(self, name: EdgeType | None) -> EdgeTypeSchema | None:
        """The edge type called ``name``, or None."""
        return next((t for t in self.edge_types if t.name == name), None)


FLAGS: dict[str, Callable[[StoreSchema], bool]] = {
    "adopted_rows": lambda schema: bool(schema.adopted),
    "edge_ids_absent": lambda schema: not all(t.edge_ids for t in schema.edge_types),
}


def header_hash(path: Path) -> str:
    """The checksum stored at the end of a `.gd` or `.gl` file's header, as hexadecimal."""
    with path.open("rb") as file:
        file.seek(4096 - 8)
        return file.read(8)[::-1].hex()


def dump(schema: StoreSchema, path: Path) -> None:
    """Writes ``schema`` as JSON with its own checksum and syncs the file."""
    body = asdict(schema)
    for key in ("files", "adopted"):
        body[key] = dict(sorted(body[key].items()))
    write_document({**HEAD, "flags": schema.flags, **body}, path)


def _edge_type(members: Members, value: Any, where: str) -> EdgeType:
    is_list = isinstance(value, list) and len(value) == 3
    if not is_list or not all(isinstance(part, str) for part in value):
        raise members.fail(where, repr(value)[:60], "three strings")
    return (value[0], value[1], value[2])


def _loose(members: Members, value: Any, where: str) -> Loose:
    if not isinstance(value, dict) or ("file" in value) == ("value" in value):
        raise members.fail(where, repr(value)[:60], "one of file, value")
    if "file" in value:
        members.take(value, "file", "File", where)
    return value


def _foreign_path(members: Members, value: Any, where: str) -> ForeignPath:
    if not isinstance(value, str) or not value or "\0" in value:
        raise members.fail(where, repr(value)[:60], "a file path")
    return value


def _shape(members: Members, value: Any, where: str) -> Shape:
    is_list = isinstance(value, list) and len(value) <= 8
    if not is_list or not all(type(dim) is int and 0 <= dim < 2**63 for dim in value):
        raise members.fail(where, repr(value)[:60], "at most 8 counts from 0 to 2^63 - 1")
    return list(value)


_KINDS: dict[str, Any] = {
    "EdgeType": _edge_type,
    "Loose": _loose,
    "ForeignPath": _foreign_path,
    "Shape": _shape,
    "FileRecord": FileRecord,
    "AdoptedRecord": AdoptedRecord,
    "NodeTypeSchema": NodeTypeSchema,
    "EdgeTypeSchema": EdgeTypeSchema,
}


def load(directory: Path) -> StoreSchema:
    """Reads and checks ``directory/store.json``.

    Raises:
        FileNotFoundError: There is no such directory or no finished store in it.
        NotADirectoryError: ``directory`` is a file.
        FormatError: The document is damaged, of another release, or contradicts itself.
    """
    if not directory.exists():
        raise FileNotFoundError(2, "no such store", str(directory))
    if not directory.is_dir():
        raise NotADirectoryError(20, "not a store: a store is a directory", str(directory))
    path = locate(directory, SCHEMA_FILE)
    try:
        body = read_document(path, HEAD)
    except FileNotFoundError:
        found = f"not a store (it has no {SCHEMA_FILE}, which conversion writes last)"
        if (directory / SHARDS_FILE).exists():
            found = "a store in shards, each of which is a store; gz.info() lists them"
        raise FileNotFoundError(2, found, str(directory)) from None
    read = Members(path, _KINDS)
    flags = read.take(body, "flags", "list")
    for flag in flags:
        if flag not in tuple(FLAGS):  # which may be anything, a list too
            expected = f"one of {', '.join(FLAGS)}; written by a newer release: upgrade"
            raise read.fail("flags", repr(flag)[:60], expected)
    schema = read.record(StoreSchema, body)
    if flags != schema.flags:
        raise read.fail("flags", flags, f"{schema.flags} by the rest of the document")
    for name in schema.files:
        check_name(name, path, f"files[{name!r}]", (COLUMN, TOPOLOGY))
    for name in schema.adopted:
        check_name(name, path, f"adopted[{name!r}]")
    _check_types(schema, read)
    return schema


def _check_types(schema: StoreSchema, read: Members) -> None:
    """Node and edge types must fit together, and homogeneous means one unnamed type."""
    names, edge_names = [t.name for t in schema.node_types], [t.name for t in schema.edge_types]
    for record in schema.types:
        if not record.categories.keys() == record.category_offsets.keys() <= record.attrs.keys():
            found = f"{[*record.categories]} and {[*record.category_offsets]}"
            raise read.fail(f"categories of {record.name}", found, "attributes, both the same")
    if len(set(names)) != len(names):
        raise read.fail("node_types", names, "distinct names")
    if len(set(edge_names)) != len(edge_names):
        raise read.fail("edge_types", edge_names, "distinct names")
    if schema.is_hetero and None in (*names, *edge_names):
        raise read.fail("is_hetero", "true with an unnamed type", "a name for every type")
    if not schema.is_hetero and (names != [None] or edge_names not in ([None], [])):
        raise read.fail("is_hetero", "false with named types", "one unnamed node and edge type")
    for i, edge_type in enumerate(schema.edge_types):
        where = f"edge_types {edge_type.name}"
        source, _, destination = edge_type.name or (None, None, None)
        for end in (source, destination):
            if end not in names:
                raise read.fail(where, f"node type {end!r}", f"one of {names}")
        order, owner = edge_type.time_order, schema.node_types[names.index(source)]
        if order is not None and order not in {*edge_type.attrs, *owner.attrs}:
            raise read.fail(where, f"time_order {order!r}", "an attribute there is")
        if not edge_type.edge_ids and (edge_type.edge_id is not None or edge_type.attrs):
            found = "false beside edge_id or attrs"
            raise read.fail(f"edge_types[{i}].edge_ids", found, "neither of them")


def columns_of(record: TypeSchema) -> list[tuple[str, int | None, tuple[str, ...]]]:
    """Files of the columns that a type has by row, and of those that list its nodes or values.

    Each with its number of rows (None: any), and its dtypes if it is to have one dimension.
    """
    groups: list[tuple[Iterable[str | None], int | None, tuple[str, ...]]] = [
        (record.attrs.values(), record.num_rows, ()),
        (record.categories.values(), None, ("uint8",)),
        (record.category_offsets.values(), None, ("int64",)),
    ]
    if isinstance(record, EdgeTypeSchema):
        groups.append(([record.csr_slot, record.edge_id], record.num_edges, ("int32", "int64")))
    else:
        groups += [
            (record.index_sets.values(), None, ("int64",)),
            ([record.id_offsets], record.num_nodes + 1, ("int64",)),
            ([record.ids], record.num_nodes, ("int64", "uint64"))
            if record.id_offsets is None
            else ([record.ids], None, ("uint8",)),
        ]
    return [(file, rows, kinds) for files, rows, kinds in groups for file in files if file]


def named_files(schema: StoreSchema) -> list[str]:
    """Every file name that a type or attribute of the schema refers to."""
    named = [file for record in schema.types for file, *_ in columns_of(record)]
    named += [file for each in schema.edge_types for file in (each.topology, each.csr) if file]
    return named + schema.loose_files


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
            f"{store}: name: found an {kind} {attr!r}{of_type(record.name)}, expected a name that "
            f"is not taken; store.feature_store.remove_tensor({record.name!r}, {attr!r}, None) "
            f"removes an attribute"
        )
