// The rows of a run of destinations and of all their in-neighbours, which a sweep reads before it
// computes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/graph.h"

namespace gz {

// The rows of one node type.
struct ReachedRows {
  std::int64_t num_rows;
  std::vector<std::uint64_t> words;  // bit i % 64 of word i / 64: row i
  std::int64_t count = 0;

  void add(std::int64_t row) noexcept {
    std::uint64_t& word = words[static_cast<std::size_t>(row / 64)];
    const std::uint64_t bit = std::uint64_t{1} << (row % 64);
    count += (word & bit) == 0;
    word |= bit;
  }
};

struct Reach {
  std::vector<ReachedRows> rows;  // [node type]
  std::int64_t stop = 0;          // behind the last batch
};

// Room for a part of the destinations.
struct ReachLimits {
  std::int64_t max_bytes = 0;            // of rows and edges
  std::vector<std::int64_t> row_bytes;   // [node type]: of a row
  std::vector<std::int64_t> edge_bytes;  // [edge type]: of an edge
  std::int64_t max_mapped = 0;           // of a mapped topology, before it is forgotten
};

// Takes batches of destinations, rows bounds[i] to bounds[i + 1] of node type `dst_type`, from
// `first` on, as long as they with all in-neighbours and in-edges are within the limits; one batch
// at least.
// Edge types that end elsewhere do not count; the others are read from memory or a map, front to
// back.
// Raises std::invalid_argument where these do not fit together, FormatError for a damaged topology
// and OsError for one that was cut short.
Reach reach(const SampledGraph& graph, int dst_type, std::span<const std::int64_t> bounds,
            std::int64_t first, const ReachLimits& limits);

}  // namespace gz
