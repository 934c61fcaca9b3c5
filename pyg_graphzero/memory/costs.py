"""Sizes of things in memory, and their shares of a budget: for all modules that divide one.

Sizes are in bytes. A share is taken of the bytes that are left at that time, or of all free bytes
where that is said. A number of things is never less than the least named here.
"""

from __future__ import annotations

from pyg_graphzero import _core
from pyg_graphzero.util.disk import READER_BYTES

_ENGINE = _core.costs()

# Memory of the readers, half of it for neighbours. Where no neighbours are read, their half is
# spared, up to this share of the bytes that are left: where few are left, memory that is not
# counted (rings, threads, holes of malloc) matters.
READER = READER_BYTES
SPARED_SHARE = 1 / 16
# Each node of a batch: its id. Each edge: both ends and its slot.
NODE = 8
EDGE = 24
# A batch whose neighbours are read, while it waits for those of its last hop. An edge: its end by
# a byte, and two numbers, its slot and the place of its source. A source that is not in memory: its
# key twice, sorted, its number, and itself. A node that the batch has by then: in the id map and as
# a destination. No memory is set aside for another window that may wait meanwhile: once frames are
# full, so much is in memory that both fit.
READ_END = 1
READ_SOURCE = 28
READ_NODE = 100
# Batches differ by a few percent.
SLACK = 1.15

# Training. Batches that are ready, in the making, or in the consumer's hands: it has one while the
# next is made, and a third is begun when it has freed that.
READY_SHARE = 0.1
LEAST_READY = 2
MOST_READY = 4
# While the batches of one window are gathered, those of the next are sampled.
WINDOWS_AHEAD = 2
# Rows are read for at most this many batches at once.
MAX_WINDOW = 512
# For each row of each batch of a window, while it is worked out what to read: its place; and for
# each that is sorted, its key twice. Where rows are ranked, none is sorted but those that are read.
WINDOW_PLACE = 4
WINDOW_KEY = _ENGINE["window_key"]
# Rows of a batch that are read at a time where none are read ahead, with what malloc keeps of those
# before; and for each of its nodes: its number twice, sorted, and its own.
PIECE = 3 * _ENGINE["piece"]
PIECE_KEY = 24
# Bytes of a frame beside its rows.
FRAME = _ENGINE["frame"]
# Share of a window's rows that is read into frames, where recently used rows stay.
CACHED_SHARE = 7 / 8
# Share of the room that rows which are known to be used may take all together; where they are more,
# those that are used most take HOT_SHARE, and what recently was used, if that is not known. See
# "Memory" in benchmarks/NOTES.md.
USED_SHARE = 0.9
HOT_SHARE = 0.4
# Share of a batch's rows that are neither resident nor another batch's of its window, where uses
# of rows are not known.
NEW_SHARE = 0.3
# Rows of at most this many bytes cost less to hold in memory than to read one by one; a file of
# them is held if it takes no more than this share; and neighbours, if it is known which are used.
SMALL_ROW = 64
HELD_SHARE, HELD_RANKED = 0.8, 0.5
# A column is searched for few different values if its rows have at most DICTIONARY_ROW bytes, and
# all of them together at least LEAST_DICTIONARY.
DICTIONARY_ROW = 8
LEAST_DICTIONARY = 1 << 20
# Neighbours that stay in memory, of each edge type.
TOPOLOGY_SHARE = 0.3
# Batches whose topology is read are sampled together: their share of memory, and their most. Where
# uses of neighbours are known, lists that are drawn from most stay, and batches share few reads.
TOGETHER_SHARE, TOGETHER_RANKED = 0.15, 0.05
MAX_TOGETHER = 64

# Sums: mapped pages of topologies are given up again and again. The share is of all free bytes.
MAPPED_SHARE = 1 / 16
MAX_MAPPED = 128 << 20

# Sweeps. A batch of a layer: a few are under way at a time, and windows of rows beside. An edge of
# it takes its row, and this.
LAYER_SHARE = 1 / 32
LEAST_LAYER_EDGES = 1 << 12
MAX_LAYER_EDGES = 1 << 18
LAYER_EDGE = 32

# Sums. The shares are of all that is free: each of the two chunks of the column that are in memory,
# and a batch of sums on its way through the layer.
CHUNK_SHARE = 1 / 8
MAX_CHUNK = 1 << 28
SUMS_SHARE = 1 / 8
MAX_SUMS_ROWS = 1 << 14
# Beside its sum: a destination's bound, twice while blocks are divided, and 4 bytes where edges are
# far apart; and each of its edges, sorted by chunks.
SUMMED_ROW = 24
SUMMED_EDGE = 4

# Slots of the edges that are seeds, in the order of the input.
SLOTS_SHARE = 1 / 2
LEAST_SLOTS = 1 << 20
