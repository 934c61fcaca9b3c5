"""
The engine of pyg_graphzero: storage, CSC building, ids, sampling, gathering, batches.
"""

from collections.abc import Callable, Sequence
import enum
from typing import Annotated, Any

import torch


class Encoding(enum.Enum):
    """What float32 may be stored as, in place of itself."""

    float16 = 0

    bfloat16 = 1

    int8 = 2

    @property
    def item_bytes(self) -> int: ...

    @property
    def has_scales(self) -> bool:
        """
        Whether an item is code * scale + zero_point, with one of each for each item of a row.
        """

class Column:
    """An opened .gd file. Opening reads its header only."""

    @staticmethod
    def open(path: str) -> Column: ...

    @staticmethod
    def adopt(path: str, dtype: str, shape: Sequence[int], file_bytes: int, data_offset: int, row_stride: int) -> Column:
        """Rows in a file of another program."""

    @property
    def path(self) -> str: ...

    @property
    def dtype(self) -> str:
        """What is stored."""

    @property
    def encoding(self) -> Encoding | None:
        """What of float32 is stored; None where items are what they are."""

    @property
    def scale(self) -> list[float]:
        """One number for each item of a row, where the encoding has scales."""

    @property
    def zero_point(self) -> list[float]: ...

    @property
    def shape(self) -> list[int]: ...

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, as it is stored."""

    @property
    def data_offset(self) -> int:
        """Where the first row lies in the file."""

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

    def __init__(self, path: str, dtype: str, shape: Sequence[int], encoding: Encoding | None = None, scale: Sequence[float] = [], zero_point: Sequence[float] = []) -> None:
        """
        The shape is that of what is stored; the others say what of float32 it is, if it is.
        """

    def append(self, rows: Annotated[torch.Tensor, dict(dtype='uint8', shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """Appends whole rows, given as their bytes."""

    def finish(self) -> None: ...

class RowWriter:
    """Writes a .gd file's rows in any order, from any thread."""

    def __init__(self, path: str, dtype: str, shape: Sequence[int], encoding: Encoding | None) -> None:
        """
        Creates the file. `encoding`: what of float32 the rows are, one without scales; or None.
        """

    def write(self, first: int, rows: Annotated[torch.Tensor, dict(dtype='uint8', shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """Whole rows from `first` on, as their bytes."""

    def put(self, places: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], rows: Annotated[torch.Tensor, dict(dtype='uint8', shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """
        Whole rows in any places, as their bytes; of equal places the last counts.
        """

    def finish(self) -> None:
        """Makes a column of it, once every row is written."""

    @property
    def first_missing(self) -> tuple[int, int]:
        """The first rows that are not written, [begin, end)."""

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

    @property
    def indptr_offset(self) -> int:
        """Where the array lies in the file."""

    @property
    def indices_offset(self) -> int:
        """Likewise."""

    def bounds(self, first: int, last: int) -> Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))]:
        """
        indptr[first … last], int64 [last - first + 1] in memory: numbers that rise from 0 to num_edges, or FormatError.
        """

    def check_bounds(self) -> None:
        """Raises what bounds(0, num_dst) would."""

    def destinations(self, slots: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))]:
        """The rows whose neighbours these slots are, int64 [n]."""

    def write_bounds(self, path: str) -> None:
        """Writes a topology with these bounds, whose neighbours lie elsewhere."""

    def forget_pages(self) -> None:
        """
        Lets go of what samplers have touched, until they touch it again: it no longer counts as this process's memory.
        """

    def view(self) -> tuple[Annotated[torch.Tensor, dict(dtype='uint8', shape=(None,))], Annotated[torch.Tensor, dict(dtype='uint8', shape=(None,))]]:
        """
        The bytes of indptr (int64) and indices (uint32 or int64, see index_bytes) as uint8 tensors over a fresh copy-on-write map.
        """

def is_mapped(address: int) -> bool:
    """Whether memory at an address is a file of a store."""

def will_need(address: int, size: int) -> None:
    """Has the kernel begin to read these bytes of a mapped file of a store."""

class LockFile:
    """An exclusive advisory lock, held while the object lives."""

    @staticmethod
    def acquire(path: str) -> LockFile: ...

    def is_in_place(self) -> bool:
        """Whether its path still names the file it is on."""

class BadBlock:
    """A checksummed block of a file that is not what it was."""

    @property
    def block(self) -> int:
        """Its number."""

    @property
    def offset(self) -> int:
        """Where it lies in the file."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def detail(self) -> str:
        """What is wrong with it."""

def count_blocks(path: str) -> tuple[int, list[BadBlock]]:
    """
    Number of checksummed blocks, and what is wrong with the checksum table.
    """

def verify_blocks(path: str, first: int, count: int) -> list[BadBlock]:
    """The bad ones among blocks [first, first + count)."""

def sync_directory(path: str) -> None: ...

def publish_directory(from_path: str, to_path: str, replace: bool) -> None: ...

def count_rows(rows: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], counts: Annotated[torch.Tensor, dict(dtype='int16', shape=(None,), order='C', device='cpu')]) -> None:
    """
    Adds 1 to the count of every row that occurs in `rows`, however often; counts end at the most that they can be.
    """

def add_rows(rows: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], bits: Annotated[torch.Tensor, dict(dtype='uint8', shape=(None,), order='C', device='cpu')], list: Annotated[torch.Tensor, dict(dtype='int32', shape=(None,), order='C', device='cpu')], met: int) -> int:
    """
    Puts those of `rows` that are not in `list` (`[num_rows]`) yet behind its first `met` items, in their order, and sets their `bits`; returns how many there are then.
    """

def hottest_first(counts: Annotated[torch.Tensor, dict(dtype='int16', shape=(None,), order='C', device='cpu', writable=False)], list: Annotated[torch.Tensor, dict(dtype='int32', shape=(None,), order='C', device='cpu')], hot: int) -> None:
    """
    Has those rows of a list first that more than `hot` batches use, by how many these are; equals, and the others, stay in their order.
    """

class IdBits:
    """
    Which of the ids low … low + span - 1 occur, and their numbers among those.
    """

    def __init__(self, span: int, low: int = 0) -> None: ...

    @staticmethod
    def num_bytes(span: int) -> int:
        """Bytes that such an object takes."""

    def add(self, ids: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """Notes ids [n]; those outside of the range are left out."""

    def rank(self) -> int:
        """Numbers the ids in ascending order, and returns how many there are."""

    def find(self, ids: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))]:
        """The number of every id [n], -1 where it does not occur."""

    def read(self, begin: int, end: int) -> Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))]:
        """The ids numbered begin … end - 1."""

class IntegerIndex:
    """From integer ids to the rows they stand in."""

    def __init__(self, ids: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    @staticmethod
    def num_bytes(size: int) -> int:
        """Bytes that an index of `size` ids takes besides them."""

    @property
    def second(self) -> int:
        """The first row whose id stands in a row before, or -1."""

    def find(self, ids: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))]:
        """The row of every id [n], -1 where it has none."""

class TextIndex:
    """From text ids to the rows they stand in."""

    def __init__(self, offsets: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[torch.Tensor, dict(dtype='uint8', shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """Id i is text[offsets[i]:offsets[i + 1]]."""

    @staticmethod
    def num_bytes(size: int) -> int:
        """Bytes that an index of `size` ids takes besides them."""

    @property
    def second(self) -> int:
        """The first row whose id stands in a row before, or -1."""

    def find(self, offsets: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[torch.Tensor, dict(dtype='uint8', shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))]:
        """The row of every id, -1 where it has none."""

class NodeMarks:
    """Which nodes of a type have an edge: one bit each."""

    def __init__(self, num_nodes: int) -> None: ...

    def count(self) -> int: ...

class CscBuilder:
    """Edges in any order to CSC files, in bounded memory."""

    def __init__(self, num_src: int, num_dst: int, max_edges: int, columns: Sequence[tuple[str, str, Sequence[int], bytes]], src_marks: NodeMarks | None, dst_marks: NodeMarks | None, bipartite: bool, undirected: bool, coalesce: str, self_loops: str, edge_ids: bool, time_column: int, source_times: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)] | None, room: int, directory: str, num_threads: int = 0) -> None: ...

    def append(self, src: Any, dst: Any, columns: Sequence[Any]) -> None:
        """
        Adds edges: ids of 32 or 64 bits, and the bytes of every column's rows.
        """

    def finish(self, topology: str, edge_id: str, columns: Sequence[str], progress: Callable[[int, int], object]) -> dict[str, Any]:
        """
        Writes the files and says what they hold. progress(done, total) may raise to cancel.
        """

def sort_by_destination(src: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], dst: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], num_src: int, num_dst: int) -> tuple[Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))], Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))]]:
    """
    indptr [num_dst + 1] and, for every CSC slot, which edge it holds [num_edges]; stable.
    """

class ColumnLoss:
    """What encoding did to one column of an attribute."""

    @property
    def max_abs_error(self) -> float: ...

    @property
    def squared_error(self) -> float:
        """Summed over its values."""

    @property
    def clipped(self) -> int:
        """Values beyond the reach of the code."""

    @property
    def count(self) -> int:
        """Finite values."""

    @property
    def variance(self) -> float:
        """Of the values before encoding."""

class RowEncoder:
    """Encodes rows of float32."""

    def __init__(self, encoding: Encoding, num_columns: int) -> None: ...

    def profile(self, rows: Annotated[torch.Tensor, dict(dtype='float32', shape=(None, None), order='C', device='cpu', writable=False)], num_threads: int = 0) -> int:
        """
        Where the encoding has scales: takes rows [n, num_columns] into account; the first of them with a value that is not finite, or -1.
        """

    def fit(self) -> None:
        """Fixes the scales, once all rows were profiled."""

    def encode(self, rows: Annotated[torch.Tensor, dict(dtype='float32', shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[torch.Tensor, dict(dtype='uint8', shape=(None, None), order='C', device='cpu')], num_threads: int = 0) -> None:
        """Encodes rows [n, num_columns] into out [n, bytes per row]."""

    @property
    def scale(self) -> list[float]: ...

    @property
    def zero_point(self) -> list[float]: ...

    @property
    def losses(self) -> list[ColumnLoss]:
        """Of every column, by what was encoded so far."""

class PackedBounds:
    """Where neighbourhoods begin, in a quarter of what a file takes for it."""

    def __init__(self, topology: Topology) -> None:
        """Reads the bounds of a topology."""

    @staticmethod
    def num_bytes(num_nodes: int, num_edges: int) -> int:
        """
        Bytes of the bounds of `num_nodes` nodes with `num_edges` edges, at most.
        """

class PackedSources:
    """Neighbours in memory, in no more bits than a node's number has."""

    def __init__(self, topology: Topology) -> None:
        """Reads the neighbours of a topology."""

    @staticmethod
    def num_bytes(num_src: int, num_edges: int) -> int:
        """Bytes of the neighbours of `num_edges` edges from `num_src` nodes."""

class SamplerBuilder:
    """Collects the edge types of a sampler."""

    def __init__(self, num_nodes: Sequence[int]) -> None: ...

    def add_file(self, src_type: int, dst_type: int, topology: Topology, paged: PagedRows | None = None, bounds: PackedBounds | None = None, packed: PackedSources | None = None, starts: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None:
        """
        `paged`: ColumnFile.of_indices of the topology, of which memory holds a part. `bounds` and `packed`: in place of what the file says, which is then not touched. `starts`: where the slots of each node begin, in place of what its bounds say.
        """

    def add_arrays(self, src_type: int, dst_type: int, indptr: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], indices: Annotated[torch.Tensor, dict(shape=(None,), order='C', device='cpu', writable=False)], num_src: int, name: str) -> None: ...

    def set_order(self, edge_type: int, slots: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)] | None, times: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)] | None, cumulative: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)] | None) -> None:
        """
        Ranks the edges of a type: rank -> slot, times rising within a neighbourhood, running sums of integer weights; each int64 [num_edges] or None.
        """

class NeighborSums:
    """
    Sums over the in-neighbours of blocks of destinations, a chunk of their column at a time.
    """

    def __init__(self, topology: Topology, column: Column, direct: bool, chunk_rows: int, max_mapped: int, room: int, num_threads: int = 0) -> None:
        """
        `direct`: reads past the page cache; `room`: bytes for a block's sums and edges.
        """

    def begin(self, first: int, last: int) -> None:
        """Sorts the edges of destinations [first, last)."""

    def step(self) -> bool:
        """Adds the next chunk; False when it was the last."""

    def sums(self) -> Annotated[torch.Tensor, dict(dtype='float32', shape=(None, None), order='C', device='cpu')]:
        """float32 [last - first, items], until the next begin()."""

    @property
    def stats(self) -> ReadStats:
        """What was read of the block until now."""

    @property
    def wait_seconds(self) -> float:
        """Of the seconds of reading, those that step() waited."""

class NeighborSampler:
    """Multi-hop neighbour sampling over CSC."""

    def __init__(self, builder: SamplerBuilder) -> None: ...

class HgtSampler:
    """Budgeted sampling over node types."""

    def __init__(self, builder: SamplerBuilder) -> None: ...

class Walker:
    """Random walks, from destination to source of a CSC."""

    def __init__(self, builder: SamplerBuilder, is_sorted: Sequence[bool]) -> None:
        """`is_sorted`: of which edge types the neighbours of every node ascend."""

    def walk(self, start: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], steps: Sequence[int], p: float = 1.0, q: float = 1.0, restart: float = 0.0, stay: bool = False, return_slots: bool = False, key: int = 0, max_bytes: int = 0, num_threads: int = 0, latest: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)] | None = None, earliest: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> tuple[Annotated[torch.Tensor, dict(dtype='int64', shape=(None, None))], Annotated[torch.Tensor, dict(dtype='int64', shape=(None, None))] | None]:
        """
        Rows, int64 [walk, step + 1], and slots, int64 [walk, step], or None. `steps`: the edge type of each; `max_bytes`: of neighbours that are read at once; `latest`, `earliest`: int64 [walk], of the edges that each may take where they have times.
        """

def edge_prints(builder: SamplerBuilder, edge_type: int) -> tuple[int, int]:
    """
    Two numbers that stand for all edges, from source to destination and with these exchanged.
    """

class RowTable:
    """Rows to gather from."""

    def __init__(self, stored: Annotated[torch.Tensor, dict(dtype='uint8', shape=(None, None), device='cpu', writable=False)], encoding: Encoding | None = None, scale: Annotated[torch.Tensor, dict(dtype='float32', shape=(None,), order='C', device='cpu', writable=False)] | None = None, zero_point: Annotated[torch.Tensor, dict(dtype='float32', shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None:
        """
        Rows as they are, uint8 [rows, bytes per row]; or encoded ones, to be decoded to float32, with a scale and a zero point for each item of a row where the encoding has them.
        """

class Dictionary:
    """A column of few different values, in memory of its own; see of()."""

    @staticmethod
    def of(column: RowTable) -> Dictionary | None:
        """
        Of all rows, in 1, 2, 4 or 8 bits each; None where they have more than 256 different values, or not 1, 2, 4 or 8 bytes. Raises OSError where the file cannot be read.
        """

    @property
    def num_bytes(self) -> int:
        """What it takes."""

    def rows(self) -> RowTable:
        """The column, to gather from."""

class Gathered:
    """What a plan has gathered."""

    @property
    def lists(self) -> list[Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))]]:
        """The lists looked up, in the order of add_lookup."""

    @property
    def columns(self) -> list[Annotated[torch.Tensor, dict(dtype='uint8', shape=(None, None))]]:
        """Rows, as bytes [rows, bytes per row], in the order of add_column."""

class WindowRoom:
    """What epochs under way may read ahead together."""

    def __init__(self, max_batches: int, max_bytes: int) -> None: ...

    def divide_among(self, epochs: int) -> None:
        """
        Tells how many are under way: windows that begin later are of the size for that.
        """

    @property
    def max_batches(self) -> int:
        """Of the next window, where it is the only one at a time."""

class GatherPlan:
    """
    What to gather for every batch: columns, each by one of its index lists.
    """

    def __init__(self, num_lists: int) -> None: ...

    def add_paged(self, by: int, rows: PagedRows) -> int:
        """Paged rows that columns come from; their number."""

    def read_into(self, windows: WindowRoom, max_batches: int) -> None:
        """
        For how many batches paged rows are read at once, and what they may take.
        """

    def add_lookup(self, by: int, ids: RowTable, paged: int = -1) -> int:
        """One more list: items of a column of int32 or int64; its number."""

    def add_column(self, by: int, table: RowTable, paged: int = -1, inner_of: int = -1) -> int:
        """
        One more column: rows of a table; its number. With the number of `paged` rows, they come from there, and the table says what becomes of them. `inner_of`: a node type, of whose nodes only those that were sampled before the last hop.
        """

    def add_sum(self, by: int, table: RowTable, edges: int, to: int, is_mean: bool = False, paged: int = -1) -> int:
        """
        One more column: sums of a table's rows of float32, or means, over the edges of a type that lead to such nodes of type `to`; its number.
        """

    @property
    def keeps_slots(self) -> bool:
        """Batches have the slots of their edges."""

    @keeps_slots.setter
    def keeps_slots(self, arg: bool, /) -> None: ...

    @property
    def needs_hops(self) -> bool:
        """Whether it has columns of that kind."""

    def gather(self, lists: Sequence[torch.Tensor], num_threads: int = 0, inner: Sequence[int] = [], edges: Sequence[tuple[torch.Tensor, torch.Tensor]] = []) -> Gathered:
        """
        Looks up and gathers for a batch that brings these lists; `inner` and `edges` (sources, destinations) for a plan that goes by hops.
        """

def gather_rows(table: RowTable, index: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[torch.Tensor, dict(dtype='uint8', shape=(None, None), order='C', device='cpu')], num_threads: int = 0) -> None:
    """
    Puts rows `index` of `table` into `out`, uint8 [len(index), bytes per row in a batch].
    """

def gather_int64(column: RowTable, index: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], num_threads: int = 0) -> Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))]:
    """
    Items `index` of a column of int32 or int64 that are numbers of its rows, as int64.
    """

def num_threads(requested: int = 0) -> int:
    """
    How many threads a call that asks for `requested` (0: torch's number) will use.
    """

def set_num_threads(threads: int) -> None:
    """How many threads 0 stands for."""

threads_are_torchs: bool = True

def empty_bytes(size: int) -> Annotated[torch.Tensor, dict(dtype='uint8', shape=(None,))]:
    """
    Memory of huge pages with no defined values, uint8 [size]; that of dead arrays, while there is a Recycling.
    """

def dropout(x: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], p: float, key: int, out: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], threads: int = 0) -> None:
    """
    Numbers [rows, heads, channels] into `out`: 0 with probability p, else divided by 1 - p. Which ones depends on `key` and their place alone; bfloat16 comes as int16.
    """

def neighbor_sum(x: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], src: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], bounds: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], weight: Annotated[torch.Tensor, dict(shape=(None, None), order='C', device='cpu')] | None, is_mean: bool, out: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], threads: int = 0) -> None:
    """
    For every destination the sum, or mean, of its sources' rows [rows, heads, channels], into `out`. In-edges of destination d are bounds[d] … bounds[d + 1] - 1; bfloat16 comes as int16.
    """

def source_sum(rows: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], src: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], bounds: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], weight: Annotated[torch.Tensor, dict(shape=(None, None), order='C', device='cpu')] | None, is_mean: bool, out: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], threads: int = 0) -> None:
    """
    For every source the sum of its destinations' rows: the gradient of neighbor_sum's x.
    """

def edge_dot(q: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], k: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], src: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], bounds: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], is_mean: bool, out: Annotated[torch.Tensor, dict(shape=(None, None), order='C', device='cpu')], threads: int = 0) -> None:
    """
    For every edge and head the product of its destination's row and its source's.
    """

def neighbor_softmax(given: Annotated[torch.Tensor, dict(shape=(None, None), order='C', device='cpu')], bounds: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], grad: Annotated[torch.Tensor, dict(shape=(None, None), order='C', device='cpu')] | None, out: Annotated[torch.Tensor, dict(shape=(None, None), order='C', device='cpu')], threads: int = 0) -> None:
    """
    Softmax of scores [edges, heads] over in-edges; or, where a gradient of what it made is given with that, the scores' gradient.
    """

def neighbor_score(x_src: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], x_dst: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], attention: Annotated[torch.Tensor, dict(shape=(None, None), order='C', device='cpu')], src: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], bounds: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], slope: float, out: Annotated[torch.Tensor, dict(shape=(None, None), order='C', device='cpu')], threads: int = 0) -> None:
    """
    For every edge and head the product of `attention` with a leaky ReLU of the sum of its source's row and its destination's.
    """

def neighbor_score_backward(x_src: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], x_dst: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], attention: Annotated[torch.Tensor, dict(shape=(None, None), order='C', device='cpu')], src: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], bounds: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], slope: float, grad: Annotated[torch.Tensor, dict(shape=(None, None), order='C', device='cpu')], grad_src: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], grad_dst: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], grad_attention: Annotated[torch.Tensor, dict(shape=(None, None), order='C', device='cpu')], threads: int = 0) -> None:
    """Gradients of scores' rows and vector."""

def neighbor_max(x: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], src: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], bounds: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], is_min: bool, out: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], threads: int = 0) -> None:
    """
    For every destination the largest or smallest numbers of its sources' rows; 0 without.
    """

def neighbor_max_backward(x: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], src: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], bounds: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)], made: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], grad: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], out: Annotated[torch.Tensor, dict(shape=(None, None, None), device='cpu')], threads: int = 0) -> None:
    """
    The gradient of x: sources with the same number share it, and a result of 0 counts as one more.
    """

class Recycling:
    """While one lives, memory of dead batches is kept."""

    def __init__(self, is_bounded: bool) -> None: ...

def free_idle_blocks() -> int:
    """
    Frees the memory of dead batches that is kept; returns how many bytes it was.
    """

def narrow_bytes(ids: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)]) -> int:
    """What these ids take while they wait for their batch's rows."""

class Labor:
    """Sampling by variates that destinations share."""

    def __init__(self, layer_dependent: bool = False, batch_dependency: int = 1) -> None: ...

class Batch:
    """
    Sample and rows of one batch, and their cost. Lists are by the number of a node or edge type.
    """

    @property
    def nodes(self) -> list[Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))]]:
        """Rows of the store by node type, seeds first."""

    @property
    def trees(self) -> list[Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))]]:
        """
        The seed that each of them was reached from, by node type; none unless disjoint.
        """

    @property
    def edge_index(self) -> list[Annotated[torch.Tensor, dict(dtype='int64', shape=(None, None))]]:
        """Places in `nodes`, by edge type."""

    @property
    def slots(self) -> list[Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))]]:
        """
        Where the edges lie in CSC, by edge type; empty where the plan keeps none.
        """

    @property
    def num_sampled_nodes(self) -> list[list[int]]:
        """By node type and hop."""

    @property
    def num_sampled_edges(self) -> list[list[int]]:
        """By edge type and hop; no hops if induced."""

    @property
    def gathered(self) -> Gathered:
        """By the recipe's plan; empty without one."""

    @property
    def sample_seconds(self) -> float:
        """Of a thread, reading included."""

    @property
    def gather_seconds(self) -> float:
        """Of a thread."""

    @property
    def num_nodes(self) -> int:
        """Of all types."""

    @property
    def num_edges(self) -> int:
        """Of all types."""

    @property
    def num_bytes(self) -> int:
        """Of all arrays."""

    @property
    def read(self) -> ReadStats | None:
        """
        What was read of columns for its window, where it is the first in it; else None.
        """

    @property
    def topology_read(self) -> ReadStats | None:
        """Likewise of topologies, for the batches that were sampled together."""

class Recipe:
    """How every batch of an epoch is made."""

    @staticmethod
    def neighbors(sampler: NeighborSampler, num_neighbors: Sequence[Sequence[int]], replace: bool = False, disjoint: bool = False, last: bool = False, induced: bool = False, whole_frontier: bool = False, plan: GatherPlan | None = None, backward: bool = False, labor: Labor | None = None, window: tuple[int, int] = (16, 67108864)) -> Recipe:
        """
        `window`: of a topology that is not all in memory, for how many batches neighbours are read at once, and how many bytes.
        """

    @staticmethod
    def hgt(sampler: HgtSampler, num_samples: Sequence[Sequence[int]], plan: GatherPlan | None = None, window: tuple[int, int] = (16, 67108864)) -> Recipe:
        """`window`: as of `neighbors`."""

    def make(self, seeds: Sequence[tuple[int, torch.Tensor, torch.Tensor | None]], key: int, num_threads: int = 0, number: int = 0, excluded: Sequence[tuple[int, torch.Tensor, torch.Tensor, torch.Tensor | None]] = ()) -> Batch:
        """
        One batch, the `number`th of its epoch, made at once by the caller. `excluded`: edges by edge type that are in no sample of `neighbors`, by their ends, and by their time unless that is None.
        """

class SteppedWindow:
    """Batches over neighbours in shards, sampled together step by step."""

    def __init__(self, requests: Sequence[tuple[Recipe, Sequence[tuple[int, torch.Tensor, torch.Tensor | None]], int, int, Sequence[tuple[int, torch.Tensor, torch.Tensor, torch.Tensor | None]]]], num_threads: int = 0) -> None:
        """
        (recipe, seeds, key, number, excluded) of each batch, as of Recipe.make().
        """

    def step(self) -> list[tuple[str, Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))]]]:
        """
        Goes on until sources are wanted: the path of a topology and its slots, int64 [n], for each list of them. None at the end.
        """

    def fill(self, sources: Sequence[Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)]]) -> None:
        """The sources of what step() has listed, int64 [n] each."""

    def take(self, number: int) -> Batch:
        """A batch, once there is nothing to step; raises its error."""

class Epoch:
    """Batches by number, made ahead by threads."""

    def __init__(self, num_threads: int, max_bytes: int, first: int = 0) -> None:
        """`first`: the first number."""

    def add(self, number: int, recipe: Recipe, seeds: Sequence[tuple[int, torch.Tensor, torch.Tensor | None]], key: int, excluded: Sequence[tuple[int, torch.Tensor, torch.Tensor, torch.Tensor | None]] = ()) -> None:
        """Adds batch `number`, which is `end`; `excluded` as in Recipe.make()."""

    def get(self, number: int, timeout: float = 0.0) -> Batch | None:
        """
        Batch `number`, which is `next`; None after `timeout` seconds, unless that is 0.
        """

    def flush(self) -> None:
        """Batches that were added do not wait for a full window."""

    def give_up_windows(self) -> None:
        """Forgets rows that were read and not gathered."""

    def close(self) -> None: ...

    @property
    def end(self) -> int:
        """One past the last number added."""

    @property
    def next(self) -> int:
        """One past the last number given."""

system: str = 'linux'

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

def probe_disk(path: str, seconds: float = 0.6, depth: int = 128, reader: str = 'auto') -> DiskSpeed:
    """
    Random reads a second and bytes a second of the disk under a file, by reading it.
    """

def uring_refusal() -> str:
    """Why io_uring cannot be used in this process; empty where it can."""

def costs() -> dict[str, int]:
    """
    Bytes that PagedRows take beside rows, of each frame, and of each row of a window while those asked for are sorted; and bytes of rows that a batch without a window reads at a time.
    """

class ColumnFile:
    """The rows of a file, for reading past the page cache."""

    @staticmethod
    def of(column: Column) -> ColumnFile: ...

    @staticmethod
    def of_indices(topology: Topology) -> ColumnFile:
        """The neighbours of a topology: row i is what lies in slot i."""

    @staticmethod
    def open(path: str, data_offset: int, num_rows: int, row_bytes: int, row_stride: int) -> ColumnFile: ...

class ReadStats:
    """What was read from disk for those who asked for rows."""

    def __init__(self) -> None: ...

    @property
    def rows(self) -> int:
        """Asked for; once for each batch that wants them."""

    @property
    def hits(self) -> int:
        """Of those, found in memory."""

    @property
    def reads(self) -> int:
        """Requests to the disk."""

    @property
    def bytes(self) -> int:
        """What they read."""

    @property
    def useful_bytes(self) -> int:
        """Of that, in rows asked for."""

    @property
    def seconds(self) -> float:
        """From the first read to the last row in its place."""

    def __add__(self, arg: ReadStats, /) -> ReadStats: ...

class DiskGather:
    """Gathers rows of files for many batches at once."""

    def __init__(self, reader: str = 'auto', depth: int = 128, buffer_bytes: int = 33554432) -> None: ...

    @property
    def reader(self) -> str: ...

    def gather(self, column: ColumnFile, rows: Sequence[Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)]], outs: Sequence[Annotated[torch.Tensor, dict(dtype='uint8', shape=(None, None), order='C', device='cpu')]], positions: Sequence[Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)]] | None = None, merge_gap: int = 16384, max_read: int = 524288) -> ReadStats:
        """
        Copies the rows of list k to positions k (0, 1, 2 … when None) of outs[k] [places, bytes per row]. Raises the OSError of the first list that a row could not be read for; the other lists are complete.
        """

class RowOrder:
    """Which rows of a file lie once more, in another order."""

    def __init__(self, again: Annotated[torch.Tensor, dict(dtype='int32', shape=(None,), order='C', device='cpu', writable=False)], num_rows: int, group_bits: int = 0) -> None:
        """Of `num_rows` rows these groups of 2^group_bits, in their order there."""

    @staticmethod
    def num_bytes(num_rows: int, num_again: int, group_bits: int = 0) -> int:
        """
        Bytes of one for `num_rows` rows, of which `num_again` groups lie once more.
        """

    @property
    def num_rows(self) -> int: ...

    @property
    def num_again(self) -> int: ...

    def ranks(self, rows: Annotated[torch.Tensor, dict(dtype='int64', shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[torch.Tensor, dict(dtype='int64', shape=(None,))]:
        """
        Where rows would lie if all lay once: those that lie once more, then the others.
        """

class PagedRows:
    """Rows of files, of which memory holds a part."""

    def __init__(self, num_rows: int, column: ColumnFile, reader: DiskGather, num_resident: int = 0, group_bits: int = 0, merge_gap: int = 16384, num_frames: int = 0) -> None:
        """
        The first `num_resident` groups of 2^group_bits rows stay in memory once they are read. There are frames for others, which change with what is used.
        """

    @staticmethod
    def ordered(order: RowOrder, column: ColumnFile, again: ColumnFile, reader: DiskGather, num_resident: int, merge_gap: int) -> PagedRows:
        """
        Rows of which some lie once more, in `again`; the order's first `num_resident` groups stay in memory once they are read.
        """

    @property
    def num_rows(self) -> int: ...

    @property
    def row_bytes(self) -> int: ...

    def load(self, group: int, max_rows: int) -> tuple[int, ReadStats]:
        """
        Reads what is to stay in memory from `group` on, some `max_rows` rows. The group to go on with, -1 at the end; and what was read.
        """
