"""What things take in memory, and what share of a budget each may have: for all who divide one.

Sizes are in bytes. Shares are of what is left when they are given, or of all that is free where
that is said. What is a number of things is never less than the least named here.
"""

from __future__ import annotations

from pyg_graphzero.util.disk import READER_BYTES

# Of who reads from disk, half of it neighbours. Where none are read, that half is spared, up to
# this share of what is left: what nobody counts (rings, threads, holes of malloc) matters where
# that is little.
READER = READER_BYTES
SPARED_SHARE = 1 / 16
# Of a batch: the id of a node; both ends of an edge and its slot.
NODE = 8
EDGE = 24
# Of a batch whose neighbours are read, while it waits for those of its last hop: an edge's ends and
# slot, and for the reading its place, its key twice, and itself, as if none were in memory; a node
# that it has by then, in the id map and as a destination. Another window may wait meanwhile, for
# which nothing is set aside: when frames are full, so many are in memory that both fit.
READ_EDGE = 24 + 32
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
# Batches are read for at most so many at once. More hardly unites more rows.
MAX_WINDOW = 64
# The first window of an epoch is of one batch, the next ones of at most so many times the last: as
# kGrowth of csrc/pipeline/pipeline.cpp.
WINDOW_GROWTH = 4
# For each row of each batch of a window, while it is worked out what to read: its place; and for
# each that is sorted, its key twice. Where rows are ranked, none is sorted but those that are read.
WINDOW_PLACE = 4
WINDOW_KEY = 16
# What a frame for rows takes beside them: RowCache::kFrameBytes of csrc/gather/row_cache.h.
FRAME = 24
# Of what is read for a window, the share that goes to frames, where rows stay as they are used.
CACHED_SHARE = 7 / 8
# Rows of at most so many bytes cost less to hold in memory than to read one by one; a file of them
# is held if it takes no more than this share.
SMALL_ROW = 64
HELD_SHARE = 0.8
# A column of rows of at most so many bytes, and of so many in all, is looked at for being one of
# few different values.
DICTIONARY_ROW = 8
LEAST_DICTIONARY = 1 << 20
# Neighbours that stay in memory, of each edge type.
TOPOLOGY_SHARE = 0.3
# Batches whose topology is read are sampled so many together, at most.
TOGETHER_SHARE = 0.15
MAX_TOGETHER = 64

# Sweeps and sums: what is mapped of topologies and columns of edges is forgotten again and again.
# Of all that is free.
MAPPED_SHARE = 1 / 16
MAX_MAPPED = 128 << 20

# Sweeps. Rows are read so many at once, between two looks at whether anybody still wants them;
# working out how takes this for each, and all of it a share of what is free.
READ_SHARE = 1 / 64
MAX_READ_ROWS = 1 << 18
READ_ROW = 40
# Bits and places of reached rows, for each row of a node type.
REACHED_ROW = 0.5
# Columns that take no more than this share are held whole, the smallest first.
COLUMN_SHARE = 1 / 4
# A batch of a layer: a few are under way at a time, and blocks of rows beside. An edge of it takes
# its row, and this.
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

# Slots of the edges that are seeds, where a block of them is enough, and where batches ask for any.
SLOTS_BLOCK_SHARE = 1 / 8
SLOTS_SHARE = 1 / 2
LEAST_SLOTS = 1 << 20
