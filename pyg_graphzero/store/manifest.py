"""``shards.json``: which parts a store was divided into. docs/format.md specifies it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from pyg_graphzero import _core
from pyg_graphzero.store.schema import SHARDS_FILE, EdgeType
from pyg_graphzero.util.documents import Members, read_document, write_document

WHOLE = "whole"
_HEAD = {"format": "pyg_graphzero shards", "version": 1}
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
        created = {"created_by": f"pyg_graphzero {version('pyg_graphzero')}"}
        fresh = directory / f"{SHARDS_FILE}.new"
        write_document(_HEAD | created | asdict(self), fresh)
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
        read = Members(path, {"NodeDivision": NodeDivision})
        found = read.record(cls, read_document(path, _HEAD))
        if found.parts < 1:
            raise read.fail("parts", found.parts, "1 or more")
        if found.topology not in TOPOLOGIES:
            raise read.fail("topology", repr(found.topology), f"one of {', '.join(TOPOLOGIES)}")
        for i, division in enumerate(found.node_types):
            where, bounds = f"node_types[{i}]", division.bounds
            if (bounds is None) == (division.assignment is None):
                raise read.fail(where, "both or none", "one of bounds, assignment")
            if bounds is not None and (
                len(bounds) != found.parts + 1
                or [0, *sorted(bounds[1:-1]), division.num_nodes] != bounds
            ):
                expected = f"{found.parts + 1} numbers that rise from 0 to {division.num_nodes}"
                raise read.fail(f"{where}.bounds", repr(bounds)[:60], expected)
        return found


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
