"""
The engine of pyg_graphzero: storage, CSC building, sampling, gathering.
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

    def sample(self, seeds: Sequence[tuple[int, torch.Tensor, torch.Tensor | None]], num_neighbors: Sequence[Sequence[int]], key: int, replace: bool = False, disjoint: bool = False, last: bool = False, induced: bool = False, num_threads: int = 0) -> tuple[list[torch.Tensor], list[torch.Tensor], list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]], list[list[int]], list[list[int]]]:
        """
        Samples one batch: (nodes per node type, their trees if disjoint, (row, col, slot) per edge type, nodes sampled per node type and hop, edges sampled per edge type and hop).
        """

class HgtSampler:
    """Budgeted sampling over node types."""

    def __init__(self, builder: SamplerBuilder) -> None: ...

    def sample(self, seeds: Sequence[tuple[int, torch.Tensor, torch.Tensor | None]], num_samples: Sequence[Sequence[int]], key: int, num_threads: int = 0) -> tuple[list[torch.Tensor], list[torch.Tensor], list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]], list[list[int]], list[list[int]]]:
        """
        Samples one batch, num_samples[node type][hop]; as NeighborSampler.sample, induced.
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

class DiskSpeed:
    """What probe_disk() measured."""

    @property
    def random_iops(self) -> float: ...

    @property
    def bytes_per_second(self) -> float: ...

    @property
    def direct(self) -> bool: ...

    @property
    def file_bytes(self) -> int: ...

    @property
    def depth(self) -> int: ...

    @property
    def random_reads(self) -> int: ...

    @property
    def sequential_reads(self) -> int: ...

def probe_disk(path: str, seconds: float = 0.6, depth: int = 128, direct: bool = True, reader: str = 'auto') -> DiskSpeed:
    """
    Random reads a second and bytes a second of the disk under a file, by reading it.
    """

def uring_refusal() -> str:
    """Why io_uring cannot be used in this process; empty where it can."""

def plan_reads(rows: Sequence[Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)]], num_rows: int, row_bytes: int, row_stride: int, data_offset: int, file_bytes: int, merge_gap: int, max_read: int, alignment: int) -> tuple[Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))], Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))]]:
    """
    The reads for these lists of rows, flat: offset, size, first and last target of each; and the targets, flat: row, list, index into it.
    """

class ColumnFile:
    """The rows of a file, for reading past the page cache."""

    @staticmethod
    def of(column: Column, direct: bool = True) -> ColumnFile: ...

    @staticmethod
    def open(path: str, data_offset: int, num_rows: int, row_bytes: int, row_stride: int, direct: bool = True) -> ColumnFile: ...

    @property
    def direct(self) -> bool: ...

    @property
    def alignment(self) -> int:
        """What direct reads are aligned to; 1 without them."""

class ReadStats:
    """What a gather from a file read, and how long it took."""

    @property
    def rows(self) -> int: ...

    @property
    def unique_rows(self) -> int: ...

    @property
    def reads(self) -> int: ...

    @property
    def cached_reads(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def useful_bytes(self) -> int: ...

    @property
    def plan_seconds(self) -> float: ...

    @property
    def read_seconds(self) -> float: ...

class DiskGather:
    """Gathers rows of files for many batches at once."""

    def __init__(self, reader: str = 'auto', depth: int = 128, num_threads: int = 0, buffer_bytes: int = 33554432) -> None: ...

    @property
    def reader(self) -> str: ...

    def gather(self, column: ColumnFile, rows: Sequence[Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)]], outs: Sequence[Annotated[torch.Tensor, dict(dtype='uint8', shape=(None, None), order='C', device='cpu')]], positions: Sequence[Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)]] | None = None, merge_gap: int = 16384, max_read: int = 524288) -> ReadStats:
        """
        Copies the rows of list k to positions k (0, 1, 2 … when None) of outs[k] [places, bytes per row]. Raises the OSError of the first list that a row could not be read for; the other lists are complete.
        """
