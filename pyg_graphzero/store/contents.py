"""The contents of a store, by row and as its user numbers edges; all else holds on to it.

An object here outlives the ``Store`` it came from, and pickles by path.
"""

from __future__ import annotations

import math
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.errors import (
    DoesNotFitError,
    FormatError,
    MemoryUseWarning,
    MissingEdgeIdsError,
    UnsupportedError,
)
from pyg_graphzero.store.columns import (
    check_sources,
    decoded,
    edge_prints,
    gather,
    in_memory,
    inverse,
    permuted,
    view_topology,
)
from pyg_graphzero.store.opened import ONLY_FOUND, OpenedFiles, Opening
from pyg_graphzero.store.schema import EdgeType, EdgeTypeSchema, TypeSchema
from pyg_graphzero.util.arguments import check_count, of_type
from pyg_graphzero.util.sizes import parse_size
from pyg_graphzero.util.system import free_memory, private_rss

# Share of the free memory that a store takes, where its user names no budget.
_DEFAULT_SHARE = 0.8
# Bringing more than this share of the budget into memory is worth a warning.
_LARGE_SHARE = 0.1


def _frames_to_script() -> int:
    """How far above whoever calls this the script is, below which are PyG and this package."""
    frame, count = sys._getframe(1), 1
    within = ("pyg_graphzero", "torch_geometric", "torch", "copy")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in within:
        frame, count = frame.f_back, count + 1
    return count


class StoreContents(OpenedFiles):
    """The opened files of a store, what they mean, and what of it may be in memory.

    Args:
        path: The store's directory.
        how: How it is opened.

    Attributes:
        processes: How many share the budget.
        memory: The budget of this process in bytes.
        is_memory_given: It was named by the user.
        row_cache_limit: Bytes of rows that may be written once more; None: the disk's free space.
        keeper: Keeps loaders within the budget, once one is needed; see :mod:`.memory.keeper`.
        shards: Rows of nodes that lie in parts of the store, see :mod:`.shards.exchange`; None
            where all are here.

    Raises:
        ValueError: ``memory`` or ``row_cache`` is no size, ``processes`` no number of them.
        FileNotFoundError: No store at ``path``.
        FormatError: A file contradicts the format or the schema.
    """

    def __init__(self, path: Path, how: Opening | None = None) -> None:
        super().__init__(path, how)
        memory, row_cache, self.processes = self.how.memory, self.how.row_cache, self.how.processes
        check_count("processes", self.processes)
        self.is_memory_given = memory is not None
        if memory is None:
            share = int(_DEFAULT_SHARE * free_memory()) // self.processes
            self.memory = private_rss() + share
        else:
            self.memory = parse_size(memory, "memory") // self.processes
        self.row_cache_limit: int | None = None
        if row_cache is False:
            self.row_cache_limit = 0
        elif row_cache not in ("auto", ONLY_FOUND):
            self.row_cache_limit = parse_size(row_cache, "row_cache", "'auto', 'found', False or ")
        self.keeper: Any = None
        self.shards: Any = None
        self._prints: dict[EdgeType | None, tuple[int, int]] = {}
        self._told: set[str] = set()
        self._positions: dict[EdgeType | None, Tensor] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        if self.shards is not None:
            raise UnsupportedError(
                f"{self.path}: pickle: found a store in shards, whose rows one process of each "
                "rank fetches; expected threads (num_workers=) in place of processes"
            )
        return StoreContents, (self.path, self.how)

    def __deepcopy__(self, memo: object) -> StoreContents:
        return self  # the files never change

    def csr_slot(self, name: EdgeType | None) -> Tensor | None:
        """CSC slots by slot of that (``int32`` or ``int64``), None if identical."""
        file = self.edge_type(name).csr_slot
        return None if file is None else self.view(file)

    def edge_prints(self, name: EdgeType | None) -> tuple[int, int]:
        """See :func:`~.columns.edge_prints`; found once."""
        if name not in self._prints:
            self._prints[name] = edge_prints(self.topology(name))
        return self._prints[name]

    def tell_use(self, what: str, num_bytes: int, instead: str) -> None:
        """Says that so much is about to be in memory, if it is a large part of the budget.

        Args:
            what: The user's name for it; each is told once.
            num_bytes: Its bytes.
            instead: The remedy, half a sentence.

        Raises:
            DoesNotFitError: The store was opened with ``strict=True``.
        """
        if num_bytes <= _LARGE_SHARE * self.memory or what in self._told:
            return
        message = (
            f"{self.path}: {what}: found {num_bytes / 1e6:,.0f} MB to be in memory, expected at "
            f"most a tenth of the budget of {self.memory / 1e6:,.0f} MB; {instead}"
        )
        if self.how.strict:
            raise DoesNotFitError(message)
        self._told.add(what)
        hint = "gz.open(strict=True) makes this an error"
        warnings.warn(f"{message} ({hint})", MemoryUseWarning, stacklevel=_frames_to_script())

    def whole(self, record: TypeSchema, attr: str) -> Tensor:
        """An attribute of nodes, or of edges in the order of their original ids.

        It is in memory where it is encoded, or edges have another order on disk.

        Raises:
            DoesNotFitError: There is not enough memory for that.
        """
        rows, edges = self.rows(record.attrs[attr]), None
        if isinstance(record, EdgeTypeSchema) and record.edge_id is not None:
            edges = record
        if isinstance(rows, Tensor) and edges is None:
            return rows
        needed, free = math.prod(rows.shape) * rows.dtype.itemsize, free_memory()
        if needed > free:
            raise DoesNotFitError(
                f"{self.path}: attribute {attr!r}{of_type(record.name)}: found {free:,} bytes of "
                f"memory free, expected {needed:,} for all rows; read some: "
                f"store.feature_store.get_tensor(…, attr_name={attr!r}, index=…)"
            )
        position = None if edges is None else self.edge_position(edges.name)
        return decoded(rows) if position is None else permuted(rows, position)

    def csc(self, name: EdgeType | None) -> tuple[Tensor, Tensor]:
        """``indptr`` and ``indices`` (``uint32`` or ``int64``) over the mapped file."""
        return view_topology(self.topology(name))

    def sources(self, name: EdgeType | None) -> Tensor:
        """``indices`` in memory (``int64``), checked, for callers that gather or write by them.

        Raises:
            FormatError: One of them is no source.
        """
        return self.checked_sources(name, in_memory(self.csc(name)[1], torch.int64))

    def checked_sources(self, name: EdgeType | None, rows: Tensor) -> Tensor:
        """``rows``, some of the ``indices``.

        Raises:
            FormatError: One of them is no source.
        """
        return check_sources(self.topology(name), rows)

    def bounds(self, name: EdgeType | None, first: int = 0, last: int | None = None) -> Tensor:
        """``indptr`` from row ``first`` to ``last``, both included, in memory and checked.

        Raises:
            FormatError: They are no numbers that rise from 0 to the number of edges.
            OSError: They cannot be read.
        """
        topology = self.topology(name)
        return topology.bounds(first, topology.num_dst if last is None else last)

    def bounds_at(self, name: EdgeType | None, rows: Tensor) -> Tensor:
        """``indptr`` at some rows (``int64``, rising), in memory; raises as :meth:`bounds`."""
        topology = self.topology(name)
        found = gather(self.csc(name)[0], rows)
        rises = bool((found[1:] >= found[:-1]).all())
        if found.numel() and not (rises and found[0] >= 0 and found[-1] <= topology.num_edges):
            expected = f"numbers that rise from 0 to {topology.num_edges}"
            expected += "; run `graphzero verify` on the store"
            raise FormatError.of(topology.path, "indptr", "something else", expected)
        return found

    def need_edge_ids(self, name: EdgeType | None, what: str) -> None:
        """Refuses what needs the ids of edges where the store was converted without them.

        Raises:
            MissingEdgeIdsError: Says what needs them.
        """
        if self.edge_type(name).edge_ids:
            return
        owner = "edges" if name is None else f"edges {name}"
        raise MissingEdgeIdsError(
            f"{self.path}: {what}: found {owner} without ids, expected the ids that say which edge "
            "of the input is which; the store was converted with edge_ids=False (--no-edge-ids): "
            "convert it without that option"
        )

    def without_csr(self, name: EdgeType | None, what: str, instead: str = "") -> UnsupportedError:
        """The error where ``what`` needs edges by source and the store does not have them.

        Args:
            name: The edge type.
            what: The user's name for the call that needs them.
            instead: Another remedy, half a sentence.
        """
        call = "" if name is None else repr(name)
        return UnsupportedError(
            f"{self.path}: {what}: found the edges{of_type(name)} by destination only, expected "
            f"them by source too: gz.open(path, mode='r+').create_csr({call}) writes them, or "
            "`graphzero convert --both-directions`" + (f"; {instead}" if instead else "")
        )

    def edge_id(self, name: EdgeType | None) -> Tensor | None:
        """Original edge ids by CSC slot (``int32`` or ``int64``), None if identical.

        Where the store has no ids, edges are numbered by slot, which is not the
        order of the input: see :meth:`need_edge_ids`.
        """
        file = self.edge_type(name).edge_id
        return None if file is None else self.view(file)

    def edge_position(self, name: EdgeType | None) -> Tensor | None:
        """CSC slots by original edge id (``int32`` or ``int64``), None if identical.

        Costs 4 bytes an edge (8 beyond 2³¹ edges), once.
        """
        ids = self.edge_id(name)
        if ids is None:
            return None
        if name not in self._positions:
            slots = inverse(ids)
            if slots is None:
                raise FormatError.of(
                    self.path / str(self.edge_type(name).edge_id),
                    "rows",
                    "edge ids that repeat or are out of range",
                    f"each of 0 … {ids.numel() - 1} once; run `graphzero verify` on the store",
                )
            self._positions[name] = slots
        return self._positions[name]

    def edge_index(self, name: EdgeType | None) -> Tensor:
        """COO ``int64 [2, num_edges]`` in the order of original edge ids, built in memory."""
        degrees = self.bounds(name).diff()
        row = self.sources(name)
        col = torch.repeat_interleave(torch.arange(degrees.numel()), degrees)
        position = self.edge_position(name)
        if position is not None:
            row, col = permuted(row, position), permuted(col, position)
        return torch.stack([row, col])
