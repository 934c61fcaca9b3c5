"""``Owners``: which part each node of a type belongs to, by ranges or as a user says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import Tensor
from typing_extensions import Self

from pyg_graphzero.errors import InputError
from pyg_graphzero.shards.stream import LDG, assign
from pyg_graphzero.store.columns import in_memory
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.manifest import NodeDivision
from pyg_graphzero.store.opened import OpenedFiles
from pyg_graphzero.store.rows import as_bytes
from pyg_graphzero.store.schema import NodeTypeSchema
from pyg_graphzero.util.reading import read_numbers

# More parts than this need more than a byte a node.
_BYTE = 1 << 8


@dataclass(frozen=True)
class Owners:
    """Which part each node of a type belongs to.

    Attributes:
        division: The manifest's entry of the type.
        num_parts: How many parts there are.
        parts: The part of each node, ``uint8`` or ``int32 [num_nodes]``; None: parts are ranges.
    """

    division: NodeDivision
    num_parts: int
    parts: Tensor | None = None

    @classmethod
    def of_ranges(cls, name: Any, bounds: list[int]) -> Self:
        """Parts that are ranges of numbers, from each of ``bounds`` to the next."""
        return cls(NodeDivision(name, bounds[-1], bounds, None, []), len(bounds) - 1)

    def nodes(self, part: int) -> range | Tensor:
        """The nodes of a part, which rise."""
        if self.parts is not None:
            return (self.parts == part).nonzero().view(-1)
        assert self.division.bounds is not None
        return range(*self.division.bounds[part : part + 2])

    def of(self, nodes: Tensor) -> Tensor:
        """The parts of some nodes, ``int64 [n]``."""
        if self.parts is not None:
            return self.parts[nodes].to(torch.int64)
        assert self.division.bounds is not None
        return torch.bucketize(nodes, torch.tensor(self.division.bounds[1:]), right=True)

    def divide(self, nodes: Tensor) -> tuple[list[int], Tensor | None]:
        """How many of some nodes each part has; their order, part after part, if it is another."""
        if self.division.bounds is not None and bool((nodes[1:] >= nodes[:-1]).all()):
            ends = torch.searchsorted(nodes, torch.tensor(self.division.bounds))
            return ends.diff().tolist(), None
        parts = self.of(nodes)
        order = torch.cat([(parts == part).nonzero().view(-1) for part in range(self.num_parts)])
        return parts.bincount(minlength=self.num_parts).tolist(), order


def places_in(nodes: range | Tensor, wanted: Tensor) -> Tensor:
    """Places of some nodes among those of their part, ``int64 [n]``.

    Raises:
        IndexError: One is not among them.
    """
    if isinstance(nodes, range):
        places, found = wanted - nodes.start, (wanted >= nodes.start) & (wanted < nodes.stop)
    else:
        places = torch.searchsorted(nodes, wanted)
        found = nodes[places.clamp(max=len(nodes) - 1)] == wanted if len(nodes) else wanted < 0
    if not bool(found.all()):
        raise IndexError(f"node {int(wanted[~found][0])}: expected one of this part's")
    return places


def divide_nodes(contents: StoreContents, parts: int, by: Any, room: int) -> list[Owners]:
    """Divides the nodes of all types.

    Args:
        contents: The store.
        parts: Number of parts.
        by: The part of each node: an attribute's name, a file with a number for each node
            (``.npy``, ``.pt``, or text as METIS and KaHIP write it), integers ``[num_nodes]``, or
            ``"ldg"``, see :mod:`.stream`; a dictionary of these by node type. Types that it does
            not name go by ranges of ids, and so do all where it is None.
        room: Bytes of memory for ``"ldg"``.

    Raises:
        ValueError: A node type that is not there, or numbers that are no parts.
        InputError: A file cannot be read.
        MemoryBudgetError: No room for ``"ldg"``.
    """
    types = contents.schema.node_types
    given: dict[str | None, Any] = (
        dict(by) if isinstance(by, Mapping) else dict.fromkeys((t.name for t in types), by)
    )
    streamed: dict[str | None, Tensor] = {}
    for name, each in given.items():
        attrs = contents.node_type(name).attrs
        if isinstance(each, str) and each == LDG and each not in attrs:
            streamed = streamed or assign(contents, parts, room)
            given[name] = streamed[name]
    return [_owners(contents, record, parts, given.get(record.name)) for record in types]


def _owners(contents: OpenedFiles, record: NodeTypeSchema, parts: int, given: Any) -> Owners:
    count, attrs = record.num_nodes, list(record.attrs)
    if given is None:
        bounds = [count * part // parts for part in range(parts + 1)]
        return Owners(NodeDivision(record.name, count, bounds, None, attrs), parts)
    what = f"parts of {record.name or 'nodes'}"
    if isinstance(given, (str, os.PathLike)):
        what = f"{what} by {os.fspath(given)}"
        if given in record.attrs:
            given = in_memory(contents.view(record.attrs[given]))
        elif Path(given).is_file():
            given = read_numbers(Path(given))
        else:
            found = f"found neither {LDG!r}, nor a file, nor one of {sorted(record.attrs)}"
            raise ValueError(f"{what}: {found}, expected the part of each node")
    numbers = torch.as_tensor(given).view(-1)
    if len(numbers) != count or numbers.dtype.is_floating_point or numbers.dtype.is_complex:
        raise InputError(what, "shape", f"{numbers.dtype} [{len(numbers)}]", f"integers [{count}]")
    low, high = (int(numbers.min()), int(numbers.max())) if count else (0, 0)
    if not 0 <= low <= high < parts:
        raise InputError(what, "numbers", f"{low} to {high}", f"0 to {parts - 1}")
    numbers = numbers.to(torch.uint8 if parts <= _BYTE else torch.int32).contiguous()
    digest = xxhash.xxh64_hexdigest(as_bytes(numbers))
    return Owners(NodeDivision(record.name, count, None, digest, attrs), parts, numbers)
