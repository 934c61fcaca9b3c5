// Sorts the edges of some destinations in memory: the innermost step of a build, one thread each.
#pragma once

#include <cstdint>
#include <vector>

#include "arrays/buffer.h"
#include "build/build_plan.h"
#include "build/parallel_edges.h"
#include "build/runs.h"
#include "build/slab.h"

namespace gz {

// Counts of edges that the options changed, and of edges in the result.
struct NeighborhoodCounts {
  std::uint64_t merged = 0;      // edges that coalescing took away
  std::uint64_t duplicates = 0;  // stored, beyond the first between two nodes
  std::uint64_t loops = 0;       // stored
  std::uint64_t loops_added = 0;

  NeighborhoodCounts& operator+=(const NeighborhoodCounts& other) noexcept;
};

// Destinations first_dst … last_dst, whose edges are one bucket.
struct DestinationRange {
  std::uint64_t bucket;
  std::uint64_t first_dst;
  std::uint64_t last_dst;
  std::uint64_t num_dst() const noexcept { return last_dst - first_dst + 1; }
};

class NeighborhoodSorter {
 public:
  explicit NeighborhoodSorter(const BuildPlan& plan);

  // Reads the range's records and puts them in final order into `slab` from position `at` on, their
  // degrees from slab->degrees[degrees_at] on. Returns how many edges there are.
  std::uint64_t sort(const Runs& runs, const DestinationRange& range, std::uint64_t at,
                     std::uint64_t degrees_at, Slab* slab);
  // The loop of a node that has none, as a record at `to`.
  static void make_loop(const BuildPlan& plan, std::uint64_t node, Byte* to);

  // Bytes in use for each record and for each destination, at most.
  static std::uint64_t bytes_per_record(const BuildPlan& plan);
  static std::uint64_t bytes_per_destination(const BuildPlan& plan);

  NeighborhoodCounts counts;

 private:
  Byte* record(std::uint32_t i) noexcept {
    return records_.data() + std::int64_t{i} * plan_.layout.size();
  }
  // All records of the range, in the order of the input.
  void read(const Runs& runs, const DestinationRange& range);
  void add_loops(const DestinationRange& range);
  // Merges or counts duplicates among one destination's edges order_[begin … end), then sorts
  // these by time. Returns the new end.
  std::uint32_t settle(std::uint64_t dst, std::uint32_t begin, std::uint32_t end);
  std::uint32_t count_duplicates(std::uint32_t begin, std::uint32_t end);
  std::uint32_t merge(std::uint32_t begin, std::uint32_t end);
  void sort_by_time(std::uint32_t begin, std::uint32_t end);

  const BuildPlan& plan_;
  EdgeMerger merger_;
  Buffer<Byte> records_;
  Buffer<Byte> packed_;  // some of them as they waited
  std::uint32_t num_records_ = 0;
  Buffer<std::uint32_t> ends_;
  Buffer<std::uint32_t> order_;
  std::vector<bool> has_loop_;
  std::vector<std::uint64_t> sources_;  // a hash table of count_duplicates()
  std::vector<std::pair<std::uint64_t, std::uint32_t>> by_time_;
};

}  // namespace gz
