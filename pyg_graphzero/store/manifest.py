"""``shards.json``: which parts a store was divided into. docs/format.md specifies it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyg_graphzero import _core
from pyg_graphzero.store.schema import SHARDS_FILE, EdgeType
from pyg_graphzero.util.documents import Members, check_whole, read_document, write_document

WHOLE = "whole"
_FORMAT, _VERSION = "pyg_graphzero shards", 1
#: Where the edges are: with the nodes that they lead to, or all of them on each machine.
TOPOLOGIES = ("own", "whole")
#: Attribute of all nodes that says the part of each, where parts are no ranges.
PART_ATTR = "part"
#: Attribute of a part's edges that says where the slots of each part begin.
SLOTS_ATTR = "slots"
#: Attribute of a part's edges with their ids in the whole store.
EDGE_ID = "e_id"
# Wider rows are divided; others lie with what every machine has.
_NARROW_ROW = 8


@dataclass(frozen=True)
class NodeDivision:
    """How the nodes of a type are divided.

    Attributes:
        name: The type; None in a homogeneous store.
        num_nodes: How many there are in all.
        bounds: Where the parts begin, and ``num_nodes``; None where they are no ranges.
        assignment: XXH64 of the parts of all nodes; None where they are ranges.
        attrs: Names of its attributes, in order.
    """

    name: str | None
    num_nodes: int
    bounds: list[int] | None
    assignment: str | None
    attrs: list[str]

    @property
    def every(self) -> str:
        """Name of all nodes of the type in a part's store."""
        return self.name or "node"

    @property
    def own(self) -> str:
        """Name of the part's own nodes of the type in its store."""
        return f"own:{self.every}"


@dataclass(frozen=True)
class Manifest:
    """How a store is divided.

    Attributes:
        source: Checksum of the store's document.
        parts: Number of parts.
        topology: One of ``TOPOLOGIES``.
        node_types: Divisions of its node types.
    """

    source: str
    parts: int
    topology: str
    node_types: list[NodeDivision]

    def of(self, name: str | None) -> NodeDivision:
        """The division of a node type."""
        return next(t for t in self.node_types if t.name == name)

    def own_edges(self, name: EdgeType | None) -> EdgeType:
        """Name of the edges of a type that lead to a part's own nodes, in its store."""
        source, relation, destination = name or (None, "to", None)
        return self.of(source).every, relation, self.of(destination).own

    @staticmethod
    def is_divided(column: _core.Column) -> bool:
        """Whether the rows of a column of nodes lie in the parts."""
        return column.row_bytes > _NARROW_ROW

    @property
    def stores(self) -> list[str]:
        """Names of the stores."""
        return [WHOLE, *(part_name(i) for i in range(self.parts))]

    def write(self, directory: Path) -> None:
        """Writes it as ``directory/shards.json``, in one step."""
        head = {"format": _FORMAT, "version": _VERSION}
        created = {"created_by": f"pyg_graphzero {version('pyg_graphzero')}"}
        fresh = directory / f"{SHARDS_FILE}.new"
        write_document(head | created | asdict(self), fresh)
        os.replace(fresh, directory / SHARDS_FILE)
        _core.sync_directory(str(directory))

    @classmethod
    def load(cls, directory: Path) -> Manifest:
        """Reads and checks ``directory/shards.json``.

        Raises:
            FileNotFoundError: There is none.
            FormatError: It is damaged, of another release, or contradicts itself.
        """
        path = directory / SHARDS_FILE
        if not path.exists():
            raise FileNotFoundError(2, f"no shards (it has no {SHARDS_FILE})", str(directory))
        body, read = read_document(path), Members(path)
        if read.take(body, "format", str, "") != _FORMAT:
            raise read.fail("format", repr(body["format"]), repr(_FORMAT))
        if read.take(body, "version", int, "") != _VERSION:
            newer = "written by a newer release: upgrade"
            raise read.fail("version", body["version"], f"{_VERSION}; {newer}")
        check_whole(body, path)
        parts, topology = read.take(body, "parts", int, ""), read.take(body, "topology", str, "")
        if parts < 1:
            raise read.fail("parts", parts, "1 or more")
        if topology not in TOPOLOGIES:
            raise read.fail("topology", repr(topology), f"one of {', '.join(TOPOLOGIES)}")
        entries = read.take(body, "node_types", list, "")
        types = [
            _division(read, entry, f"node_types[{i}]", parts) for i, entry in enumerate(entries)
        ]
        return cls(read.take(body, "source", str, ""), parts, topology, types)


def part_name(part: int) -> str:
    """The directory of a part's store."""
    return f"part-{part}"


def starts_attr(edges: EdgeType) -> str:
    """Attribute of all nodes that says where their slots begin, where parts are no ranges."""
    return f"starts:{edges[0]}:{edges[1]}"


def is_sharded(path: Path) -> bool:
    """Whether a directory has a store in shards."""
    return (path / SHARDS_FILE).exists()


def stores_in(directory: Path) -> Iterator[Path]:
    """The stores of a directory with shards that are there: on one machine, not all are."""
    for name in Manifest.load(directory).stores:
        if (directory / name).exists():
            yield directory / name


def _division(read: Members, entry: Any, where: str, parts: int) -> NodeDivision:
    found = NodeDivision(
        read.take(entry, "name", str, where, optional=True),
        read.take(entry, "num_nodes", int, where),
        read.take(entry, "bounds", list, where, optional=True),
        read.take(entry, "assignment", str, where, optional=True),
        read.take(entry, "attrs", list, where),
    )
    bounds = found.bounds
    if not all(isinstance(attr, str) for attr in found.attrs):
        raise read.fail(f"{where}.attrs", repr(found.attrs)[:60], "names")
    if (bounds is None) == (found.assignment is None):
        raise read.fail(where, "both or none", "one of bounds, assignment")
    if bounds is not None:
        are_numbers = len(bounds) == parts + 1 and all(type(each) is int for each in bounds)
        if not are_numbers or [0, *sorted(bounds[1:-1]), found.num_nodes] != bounds:
            expected = f"{parts + 1} numbers that rise from 0 to {found.num_nodes}"
            raise read.fail(f"{where}.bounds", repr(bounds)[:60], expected)
    return found
