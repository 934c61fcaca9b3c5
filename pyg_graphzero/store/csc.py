"""COO to CSC: the seam between readers, which yield chunks of edges, and the files of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.store.columns import check_sources, dtype_name
from pyg_graphzero.store.rows import FileRows, as_bytes, describe
from pyg_graphzero.util.arguments import as_tensor

_ID_DTYPES = ("int64", "int32", "uint64", "uint32")
# Edges that are read at a time.
_SLAB_EDGES = 1 << 18
# More edges than there are, where their number is not known.
_MANY = 1 << 40


@dataclass
class EdgeChunk:
    """Some edges, in input order.

    Attributes:
        src: ``int64``, ``int32``, ``uint64`` or ``uint32 [n]``, an array or a tensor.
        dst: Ids of the same kinds.
        columns: Payload by name, ``[n, ...]`` each, NumPy arrays or tensors; the same names, dtypes
            and row shapes in every chunk.
    """

    src: Any
    dst: Any
    columns: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CscOptions:
    """The changes to the edges of one type.

    Edges are numbered in input order. The options apply in this order and renumber what is left:
    self-loops are removed, reverse edges are appended behind the originals (self-loops have none),
    duplicates of a (source, destination) pair collapse onto their first occurrence, missing
    self-loops are appended. Neighbourhoods are in the order of edge numbers, or by time first.

    Attributes:
        bipartite: Sources and destinations are nodes of different types, so that an edge between
            equal ids is no self-loop.
        undirected: Append the reverse of every edge, with the same payload.
        coalesce: How to join the payload of duplicates: one of ``first``, ``sum``, ``mean``,
            ``min``, ``max``; None keeps duplicates.
        self_loops: ``keep``, ``remove``, or ``add`` (one for every node that has none; payload 1).
        edge_ids: Write which edge is in which slot; without it there must be no columns.
        time_attr: Sort neighbourhoods by this column, where there is one of that name.
        source_times: Else by these, ``int64 [num_src]``.

    Raises:
        ValueError: An option is not one of its choices.
    """

    bipartite: bool = False
    undirected: bool = False
    coalesce: str | None = None
    self_loops: str = "keep"
    edge_ids: bool = True
    time_attr: str | None = None
    source_times: Tensor | None = None

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if not any(type(value) is type(each) and value == each for each in choices):
                expected = ", ".join(map(str, choices))
                raise ValueError(f"{name}={value!r}: expected one of {expected}")


_CHOICES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("undirected", "edge_ids"), (True, False)),
    "coalesce": ("first", "sum", "mean", "min", "max", None),
    "self_loops": ("keep", "remove", "add"),
}


@dataclass
class BuildRoom:
    """Memory, directory and callbacks of a build.

    Attributes:
        memory: Bytes for buffers.
        directory: For scratch files, which have no name.
        marks: Notes which nodes have edges, for sources and destinations.
        reading: Called with the number of edges of each chunk read.
        sorting: Called with what is done and what there is to do; may raise to cancel.
        num_threads: 0 uses as many as torch does.
    """

    memory: int
    directory: Path
    marks: tuple[_core.NodeMarks | None, _core.NodeMarks | None] = (None, None)
    reading: Callable[[int], object] = lambda count: None
    sorting: Callable[[int, int], object] = lambda done, total: None
    num_threads: int = 0

    def again(self) -> BuildRoom:
        """Room for edges that were counted and shown before."""
        return BuildRoom(self.memory, self.directory, num_threads=self.num_threads)


@dataclass
class Csc:
    """The files of one edge type, and what is in them.

    Attributes:
        num_edges: Number of edges.
        topology: The ``.gl`` file.
        edge_id: The edge's number for every slot; None where that is ``0 … num_edges - 1``, or
            not to be written.
        columns: Payload in CSC order.
        time_order: The attribute that neighbourhoods are sorted by.
        stats: Counts of the engine.
    """

    num_edges: int
    topology: Path
    edge_id: Path | None
    columns: dict[str, Path]
    time_order: str | None
    stats: dict[str, Any]


def build_csc(
    chunks: Iterable[EdgeChunk],
    num_src: int,
    num_dst: int,
    place: Callable[[str, str], Path],
    room: BuildRoom,
    num_edges: int | None = None,
    options: CscOptions | None = None,
) -> Csc:
    """Sorts a stream of edges by destination into files, in bounded memory.

    Args:
        chunks: The edges.
        num_src: Number of source nodes.
        num_dst: Number of destination nodes.
        place: Gives the path of a new file, by name and suffix.
        room: Memory and directory of the build.
        num_edges: At least as many as the stream has; None if unknown.
        options: Changes to the edges.

    Raises:
        IndexError: Names the first edge whose id is not a node.
        ValueError: An option that does not apply, or a chunk with other columns than the first.
        OSError: Names the scratch or store file that cannot be written.
    """
    stream, options = iter(chunks), options or CscOptions()
    first = next(stream, EdgeChunk(np.empty(0, np.int64), np.empty(0, np.int64)))
    dtypes = {name: as_tensor(value, name)[:0].clone() for name, value in first.columns.items()}
    expected = {name: describe(rows) for name, rows in dtypes.items()}
    has_time = options.time_attr in dtypes
    source_times = None if has_time else options.source_times
    engine = _core.CscBuilder(
        num_src=num_src,
        num_dst=num_dst,
        max_edges=_MANY if num_edges is None else num_edges,
        columns=[
            (name, dtype_name(rows.dtype), list(rows.shape[1:]), _one(rows.dtype))
            for name, rows in dtypes.items()
        ],
        src_marks=room.marks[0],
        dst_marks=room.marks[1],
        bipartite=options.bipartite or num_src != num_dst,
        undirected=options.undirected,
        coalesce=options.coalesce or "",
        self_loops=options.self_loops,
        edge_ids=options.edge_ids,
        time_column=list(dtypes).index(str(options.time_attr)) if has_time else -1,
        source_times=source_times,
        room=room.memory,
        directory=str(room.directory),
        num_threads=room.num_threads,
    )
    for chunk in chain([first], stream):
        columns = {name: as_tensor(value, name) for name, value in chunk.columns.items()}
        found = {name: describe(rows) for name, rows in columns.items()}
        if found != expected:
            raise ValueError(f"edge attributes: found {found}, expected {expected}")
        payload = [as_bytes(rows.contiguous()) for rows in columns.values()]
        engine.append(_ids(chunk.src), _ids(chunk.dst), payload)
        room.reading(len(chunk.src))
    topology = place("topology", ".gl")
    edge_id = place("edge_id", ".gd") if options.edge_ids else None
    files = {name: place(name, ".gd") for name in dtypes}
    stats = engine.finish(
        str(topology),
        "" if edge_id is None else str(edge_id),
        [*map(str, files.values())],
        room.sorting,
    )
    if stats.pop("ids_are_slots") and edge_id is not None:
        edge_id.unlink()
        edge_id = None
    time_order = options.time_attr if has_time or source_times is not None else None
    return Csc(stats["num_edges"], topology, edge_id, files, time_order, stats)


def _one(dtype: torch.dtype) -> bytes:
    return bytes(as_bytes(torch.ones(1).to(dtype)))


def _ids(value: Any) -> np.ndarray:
    """Ids as the engine takes them; copied only where their dtype is none of its own."""
    ids: np.ndarray = as_tensor(value, "edges").numpy()
    return ids if ids.dtype.name in _ID_DTYPES else ids.astype(np.int64)


def edge_slices(topology: _core.Topology, checked: bool = True) -> Iterator[tuple[Tensor, Tensor]]:
    """The edges of a topology in order, some at a time: their sources and destinations.

    All edges of a destination come together; where there are too many, in slices of their own.

    Args:
        topology: The edges.
        checked: Sources that are no nodes are an error.

    Raises:
        FormatError: The arrays contradict the counts.
    """
    dtype = torch.uint32 if topology.index_bytes == 4 else torch.int64
    indices = FileRows(Path(topology.path), topology.indices_offset, (topology.num_edges,), dtype)
    for first in range(0, topology.num_dst, _SLAB_EDGES):
        bounds = topology.bounds(first, min(first + _SLAB_EDGES, topology.num_dst))
        topology.forget_pages()
        begin = int(bounds[0])
        while begin < int(bounds[-1]):
            row = int(torch.searchsorted(bounds, begin, right=True)) - 1
            behind = int(torch.searchsorted(bounds, begin + _SLAB_EDGES, right=True)) - 1
            if int(bounds[row]) < begin or behind == row:  # within a destination of many
                behind = row + 1
            end = min(int(bounds[behind]), begin + _SLAB_EDGES)
            counts = bounds[row : behind + 1].clamp(begin, end).diff()
            sources = indices.read(begin, end).to(torch.int64)
            if checked:
                check_sources(topology, sources)
            yield sources, torch.arange(first + row, first + behind).repeat_interleave(counts)
            begin = end
