// Edges in any order to the CSC files of a store, in as much memory as is given.
//
// Edges are split into buckets of destinations as they come in; buckets that do not fit into memory
// wait in scratch files. Then bucket after bucket is sorted in memory and written. A bucket that
// is too large is split further, and the edges of a single node that are too many are sorted by
// what orders them within its neighbourhood in the same way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "build/edge_source.h"

namespace gz {

struct CscPaths {
  std::string topology;
  std::string edge_id;  // unless the options want none
  std::vector<std::string> columns;
};

// Called between steps with what is done and what there is to do; throws to cancel.
using Checkpoint = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Resources of a build.
struct BuildRoom {
  std::uint64_t memory;   // bytes for buffers
  std::string directory;  // for scratch files
  int threads;
};

// Counts of edges that the options changed, and of edges in the result.
struct NeighborhoodCounts {
  std::uint64_t merged = 0;      // edges that coalescing took away
  std::uint64_t duplicates = 0;  // stored, beyond the first between two nodes
  std::uint64_t loops = 0;       // stored
  std::uint64_t loops_added = 0;

  NeighborhoodCounts& operator+=(const NeighborhoodCounts& other) noexcept {
    merged += other.merged;
    duplicates += other.duplicates;
    loops += other.loops;
    loops_added += other.loops_added;
    return *this;
  }
};

struct CscStatistics {
  EdgeCounts input;
  NeighborhoodCounts result;
  std::uint64_t num_edges = 0;
  bool ids_are_slots = false;
  std::vector<std::uint64_t> degree_quantiles;  // 0, 1/4, 1/2, 3/4, 99% and all of the nodes
  std::uint64_t scratch_bytes = 0;              // written to scratch files
  std::uint64_t scratch_peak = 0;               // the most that lay in them
};

class CscBuilder {
 public:
  // The marks may be the same, or null. Raises std::invalid_argument for options that do
  // not go together.
  CscBuilder(CscOptions options, const BuildRoom& room, std::shared_ptr<NodeMarks> src_marks,
             std::shared_ptr<NodeMarks> dst_marks);
  ~CscBuilder();

  const CscOptions& options() const noexcept;
  // Raises std::out_of_range naming the first edge whose id is no node, counted over all slabs;
  // std::invalid_argument if there are more edges than were declared. Nothing may follow an error.
  void append(const EdgeSlab& slab);
  // Writes the files, which must not exist. Nothing may follow.
  CscStatistics finish(const CscPaths& paths, const Checkpoint& checkpoint);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace gz
