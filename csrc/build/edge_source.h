// Edges as they come in, checked, turned into records: loops dropped, reverses added.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "build/build_plan.h"
#include "build/node_marks.h"
#include "build/partition.h"

namespace gz {

// Raises std::out_of_range unless 0 <= id < num_nodes.
void check_end(std::uint64_t edge, const char* end, std::int64_t id, std::uint64_t num_nodes);

// Ids in memory of the caller.
struct IdArray {
  const void* data;
  std::int64_t stride;  // in items
  void (*copy)(const IdArray& ids, std::int64_t begin, std::int64_t end, std::uint64_t* out);

  // Ids of type T.
  template <class T>
  static IdArray of(const void* data, std::int64_t stride) noexcept {
    return {data, stride, copy_as<T>};
  }

  // ids[begin … end) into `out`; negative ones become huge.
  void read(std::int64_t begin, std::int64_t end, std::uint64_t* out) const {
    copy(*this, begin, end, out);
  }

 private:
  template <class T>
  static void copy_as(const IdArray& ids, std::int64_t begin, std::int64_t end,
                      std::uint64_t* out) {
    const T* from = static_cast<const T*>(ids.data) + begin * ids.stride;
    for (std::int64_t i = 0; i < end - begin; ++i) {
      // Through int64: a negative 32-bit id must not look like a large one.
      out[i] = static_cast<std::uint64_t>(static_cast<std::int64_t>(from[i * ids.stride]));
    }
  }
};

struct EdgeSlab {
  IdArray src;
  IdArray dst;
  std::vector<const Byte*> columns;  // rows without gaps
  // The edges begin … end - 1 of these arrays.
  std::int64_t begin;
  std::int64_t end;
};

// Counts of the edges that a build has seen so far.
struct EdgeCounts {
  std::uint64_t input = 0;  // edges
  std::uint64_t loops = 0;  // among them
  std::uint64_t edges = 0;  // that are kept
  std::uint64_t reverses = 0;
};

// One slab as a source for partition() by `threads`, keyed by destination; `marks` are those of the
// sources, or null. partition() raises std::out_of_range naming the first edge whose id is no node,
// and std::invalid_argument for a time that is NaN. REQUIRES that all given here outlives it.
std::unique_ptr<RecordSource> edge_source(const BuildPlan& plan, NodeMarks* marks,
                                          const EdgeSlab& slab, EdgeCounts& counts, int threads);

}  // namespace gz
