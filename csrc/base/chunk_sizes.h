// How much of a long loop is done at a time. These sizes decide speed and memory, never what comes
// out; they stand together so that tests can make all of them tiny and see the second chunk of
// everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace gz {

struct ChunkSizes {
  // Items of a range that one thread takes, at most, whatever the caller of parallel_for() says.
  std::int64_t range = std::numeric_limits<std::int64_t>::max();

  // sampling/
  std::int64_t relabelled_edges = 1 << 16;  // between two looks at whether the id map is large
  std::int64_t induced_edges = 1 << 17;     // of a paged topology, read together: 3 MiB
  std::size_t labor_slack = 64;             // scores beyond 2 k before the best are kept
  std::int64_t linear_subset = 48;          // draws that look for duplicates one by one
  std::size_t id_map_slots = 1024;          // that an id map has at least
  std::int64_t summed_nodes = 1 << 16;      // between two looks at how much is mapped
  std::uint64_t sum_read_bytes = 1 << 20;
  std::int64_t walked_together = 128;    // by a thread: while one waits for memory, others go on
  std::int64_t walked_steps = 4 << 20;   // of all walks, between two looks for a signal
  std::int64_t walked_slots = 1 << 16;   // of a paged topology, in one list
  std::int64_t slots_ahead = 4 << 20;    // that the kernel is asked to read
  std::int64_t packed_bounds = 1 << 17;  // read before they are packed: 1 MiB
  std::int64_t packed_sources = 1 << 18;

  // aggregate/
  std::int64_t aggregated_edges = 2048;   // and destinations, of a piece of a thread's work
  std::int64_t ordered_edges = 16 << 10;  // below, a thread is not worth it

  // gather/, io/
  std::int64_t piece_bytes = 8 << 20;  // of rows that a batch without a window reads together
  std::int64_t summed_rows = 64;       // added to a sum together, at most
  std::size_t reaped_reads = 16;       // taken at once: new reads start before the rest is copied
  std::size_t call_bytes = 1 << 30;    // read by one call to the kernel, which takes 2 GiB
  unsigned fixed_files = 64;           // that io_uring knows by number

  // storage/
  std::uint64_t rows_bytes = 1 << 20;         // of rows in any order, written by one call
  std::uint64_t will_need_bytes = 256 << 10;  // the kernel takes no more at a time than a request

  // build/
  std::int64_t edge_piece = 1024;       // edges that become records together
  std::uint64_t run_bytes = 64 << 20;   // at most, and whatever the memory
  std::uint64_t slab_bytes = 32 << 20;  // more would only be slower to cancel
  std::uint64_t segment_bytes = 16 << 10;
  std::uint64_t part_bytes = 64 << 10;  // of a run in one of its files, or there are fewer files
  std::uint64_t bucket_records = 32 << 10;  // no fewer, or a bucket is not worth it
  std::int64_t slice_edges = 16 << 10;      // below, a thread is not worth it
  std::uint64_t csc_numbers = 8192;         // converted together
  std::uint64_t ranked_numbers = 1 << 20;
  std::uint64_t counted_degrees = 1 << 16;  // below, each has a counter of its own
  std::uint32_t searched_neighbors = 8;     // below, duplicates are looked for one by one
  std::int64_t encoded_rows = 256;          // a block of 64 KiB stays in the cache
};

// REQUIRES: no thread uses the engine while it is changed.
inline constinit ChunkSizes chunk_sizes;

}  // namespace gz
