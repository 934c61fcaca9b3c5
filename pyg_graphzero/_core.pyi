"""
The engine of pyg_graphzero: storage, CSC building, sampling, gathering, batches.
"""

from collections.abc import Sequence
from typing import Annotated

import torch


class Column:
    """An opened .gd file. Opening reads its header only."""

    @staticmethod
    def open(path: str) -> Column: ...

    @property
    def path(self) -> str: ...

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> list[int]: ...

    @property
    def row_stride(self) -> int:
        """Bytes from one row to the next."""

    @property
    def data_bytes(self) -> int: ...

    def view(self) -> tuple[Annotated[torch.Tensor, dict(dtype='uint8', shape=(None,))], bool]:
        """
        The rows' bytes as a uint8 tensor over a fresh copy-on-write map, and whether it may be written to.
        """

class ColumnWriter:
    """Writes a .gd file front to back."""

    def __init__(self, path: str, dtype: str, shape: Sequence[int]) -> None: ...

    def append(self, rows: Annotated[torch.Tensor, dict(dtype='uint8', shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """Appends whole rows, given as their bytes."""

    def finish(self) -> None: ...

class Topology:
    """An opened .gl file: CSC over one edge type."""

    @staticmethod
    def open(path: str) -> Topology: ...

    @property
    def path(self) -> str: ...

    @property
    def num_src(self) -> int: ...

    @property
    def num_dst(self) -> int: ...

    @property
    def num_edges(self) -> int: ...

    @property
    def index_bytes(self) -> int: ...

    def view(self) -> tuple[Annotated[torch.Tensor, dict(dtype='uint8', shape=(None,))], Annotated[torch.Tensor, dict(dtype='uint8', shape=(None,))]]:
        """
        The bytes of indptr (int64) and indices (uint32 or int64, see index_bytes) as uint8 tensors over a fresh copy-on-write map.
        """

class TopologyWriter:
    """Writes a .gl file front to back."""

    def __init__(self, path: str, num_src: int, num_dst: int, num_edges: int) -> None: ...

    @property
    def index_bytes(self) -> int: ...

    def append_indptr(self, values: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def append_indices(self, values: Annotated[torch.Tensor, dict(dtype='uint8', shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """Appends ids, given as their bytes."""

    def finish(self) -> None: ...

class LockFile:
    """An exclusive advisory lock, held while the object lives."""

    @staticmethod
    def acquire(path: str) -> LockFile: ...

def count_blocks(path: str) -> tuple[int, list[tuple[int, int, int, str]]]:
    """
    Number of checksummed blocks, and what is wrong with the checksum table.
    """

def verify_blocks(path: str, first: int, count: int, num_threads: int = 0) -> list[tuple[int, int, int, str]]:
    """
    The bad ones among blocks [first, first + count): (block, offset, bytes, detail).
    """

def sync_directory(path: str) -> None: ...

def publish_directory(from_path: str, to_path: str, replace: bool) -> None: ...

def sort_by_destination(src: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], dst: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], num_src: int, num_dst: int) -> tuple[Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))], Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))]]:
    """
    indptr [num_dst + 1] and, for every CSC slot, which edge it holds [num_edges]; stable.
    """

def xxh64(data: Annotated[torch.Tensor, dict(dtype='uint8', shape=(None,), order='C', device='cpu', writable=False)]) -> int:
    """The XXH64 digest the engine computes, for tests."""

class SamplerBuilder:
    """Collects the edge types of a sampler."""

    def __init__(self, num_nodes: Sequence[int]) -> None: ...

    def add_file(self, src_type: int, dst_type: int, topology: Topology) -> None: ...

    def add_arrays(self, src_type: int, dst_type: int, indptr: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], indices: Annotated[torch.Tensor, dict(shape=(None,), order='C', device='cpu', writable=False)], num_src: int, name: str) -> None: ...

    def set_order(self, edge_type: int, slots: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)] | None, times: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)] | None, cumulative: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)] | None) -> None:
        """
        Ranks the edges of a type: rank -> slot, times rising within a neighbourhood, running sums of integer weights; each int64 [num_edges] or None.
        """

class NeighborSampler:
    """Multi-hop neighbour sampling over CSC."""

    def __init__(self, builder: SamplerBuilder) -> None: ...

class HgtSampler:
    """Budgeted sampling over node types."""

    def __init__(self, builder: SamplerBuilder) -> None: ...

class GatherPlan:
    """
    What to gather for every batch: columns, each by one of its index lists.
    """

    def __init__(self, num_lists: int, locked: bool = False) -> None: ...

    def add_lookup(self, by: int, ids: Annotated[torch.Tensor, dict(dtype='uint8', shape=(None, None), device='cpu', writable=False)]) -> int:
        """
        One more list: items of an int32 or int64 column [items, 4 or 8 bytes]; its number.
        """

    def add_column(self, by: int, table: Annotated[torch.Tensor, dict(dtype='uint8', shape=(None, None), device='cpu', writable=False)]) -> int:
        """One more column: rows of a table [rows, bytes per row]; its number."""

    def gather(self, lists: Sequence[torch.Tensor], num_threads: int = 0) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """
        The lists looked up (int64), and the columns' rows (uint8 [rows, bytes per row]).
        """

def gather_rows(table: Annotated[torch.Tensor, dict(dtype='uint8', shape=(None, None), device='cpu', writable=False)], index: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[torch.Tensor, dict(dtype='uint8', shape=(None, None), order='C', device='cpu')], num_threads: int = 0) -> None:
    """
    Copies rows `index` of `table` [rows, bytes per row] to `out` [len(index), bytes per row].
    """

def gather_int64(column: Annotated[torch.Tensor, dict(dtype='uint8', shape=(None, None), device='cpu', writable=False)], index: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], num_threads: int = 0) -> Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))]:
    """
    Items `index` of an int32 or int64 column, given as its bytes [items, 4 or 8], as int64.
    """

def num_threads(requested: int = 0) -> int:
    """
    How many threads a call that asks for `requested` (0: torch's number) will use.
    """

class Recycling:
    """While one lives, memory of dead batches is kept."""

    def __init__(self) -> None: ...

def pool_state() -> tuple[int, int, int]:
    """
    Bytes of batches in use, bytes kept for the next ones, and the most in use at once.
    """

def set_page_lock(lock: int, unlock: int) -> None:
    """
    Addresses of int lock(void*, size_t, unsigned) and int unlock(void*), which page-lock memory for a device.
    """

class Recipe:
    """How every batch of an epoch is made."""

    @staticmethod
    def neighbors(sampler: NeighborSampler, num_neighbors: Sequence[Sequence[int]], replace: bool = False, disjoint: bool = False, last: bool = False, induced: bool = False, plan: GatherPlan | None = None, backward: bool = False) -> Recipe: ...

    @staticmethod
    def hgt(sampler: HgtSampler, num_samples: Sequence[Sequence[int]], plan: GatherPlan | None = None) -> Recipe: ...

    def make(self, seeds: Sequence[tuple[int, torch.Tensor, torch.Tensor | None]], key: int, num_threads: int = 0) -> tuple[list[torch.Tensor], list[torch.Tensor], list[tuple[torch.Tensor, torch.Tensor]], list[list[int]], list[list[int]], tuple[list[torch.Tensor], list[torch.Tensor]], tuple[float, float, int, int, int]]:
        """
        One batch, made at once by the caller: (nodes per node type, their trees if disjoint, (edge_index, slot) per edge type, nodes sampled per node type and hop, edges sampled per edge type and hop, what GatherPlan.gather gives, (seconds to sample, to gather, nodes, edges, bytes)).
        """

class Pipeline:
    """Batches made ahead by threads, in the order asked for."""

    def __init__(self, num_threads: int, max_bytes: int) -> None: ...

    def submit(self, recipe: Recipe, seeds: Sequence[tuple[int, torch.Tensor, torch.Tensor | None]], key: int) -> None: ...

    def next(self, timeout: float = 0.0) -> tuple[list[torch.Tensor], list[torch.Tensor], list[tuple[torch.Tensor, torch.Tensor]], list[list[int]], list[list[int]], tuple[list[torch.Tensor], list[torch.Tensor]], tuple[float, float, int, int, int]] | None:
        """
        The oldest batch asked for, as Recipe.make gives it; None after `timeout` seconds, unless that is 0.
        """

    def close(self) -> None: ...

    @property
    def is_ready(self) -> bool:
        """Whether `next` would not wait."""

    @property
    def num_pending(self) -> int: ...

    @property
    def orphaned(self) -> bool:
        """Whether its threads were left behind a fork."""
