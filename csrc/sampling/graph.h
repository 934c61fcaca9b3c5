// The graph that samplers walk: the in-neighbours of every edge type, and checks of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "arrays/packed_ints.h"
#include "base/chunk_sizes.h"
#include "gather/paged_rows.h"
#include "sampling/edge_order.h"
#include "sampling/packed_bounds.h"
#include "storage/topology.h"

namespace gz {

// The in-neighbours of one edge type, wherever they lie.
struct Csc {
  const std::int64_t* indptr;  // [num_dst + 1]
  const void* indices;         // [num_edges], uint32 or int64 as index_bytes says; null if paged
  std::uint32_t index_bytes;
  std::int64_t num_src;
  std::int64_t num_dst;
  std::int64_t num_edges;
  std::string name;                      // file path, or what else to call it in an error
  std::shared_ptr<const Topology> file;  // null for arrays in memory
  std::shared_ptr<const void> owner;     // keeps arrays in memory alive
  // The indices, a row each, where memory does not hold all of them. Samplers then ask for the
  // sources of slots (sample_window.h); indptr is in memory or mapped all the same.
  std::shared_ptr<PagedRows> paged = {};
  // In place of indptr and of indices: samplers touch neither then.
  std::shared_ptr<const PackedBounds> bounds = {};
  std::shared_ptr<const PackedInts> packed = {};
  // [num_dst], or null: where slots begin that are numbered otherwise than the bounds say.
  std::shared_ptr<const std::int64_t> starts = {};

  // Whether samplers ask for the sources of slots: it is paged, or others have its neighbours.
  bool is_asked() const noexcept { return paged != nullptr || is_elsewhere(); }
  bool is_elsewhere() const noexcept { return index_bytes == 0; }

  // REQUIRES, as what follows, that samplers do not ask for sources.
  std::int64_t source(std::int64_t slot) const noexcept {
    if (packed != nullptr) return (*packed)[slot];
    return index_bytes == 4
               ? static_cast<std::int64_t>(static_cast<const std::uint32_t*>(indices)[slot])
               : static_cast<const std::int64_t*>(indices)[slot];
  }

  void prefetch_source(std::int64_t slot) const noexcept {
    if (packed != nullptr) return packed->prefetch(slot);
    __builtin_prefetch(static_cast<const char*>(indices) + slot * index_bytes);
  }
};

// The arrays of an opened file, which it keeps open; `paged` has the one column
// ColumnFile::of_indices(). Raises std::invalid_argument where that, `bounds` or `packed` is of
// something else.
Csc csc_of(std::shared_ptr<const Topology> file, std::shared_ptr<PagedRows> paged = {},
           std::shared_ptr<const PackedBounds> bounds = {},
           std::shared_ptr<const PackedInts> packed = {});

// Has the kernel read ahead for a loop that goes over neighbours from front to back: faults alone
// read little at a time.
class SlotsAhead {
 public:
  explicit SlotsAhead(const Csc& csc) : file_(csc.file.get()) {}

  // REQUIRES: slots ascend from one call to the next.
  void at(std::int64_t slot) noexcept {
    if (file_ == nullptr) return;
    const std::int64_t ahead = chunk_sizes.slots_ahead;
    for (asked_ = std::max(asked_, slot); asked_ < slot + ahead; asked_ += ahead) {
      file_->will_need(static_cast<std::uint64_t>(asked_), static_cast<std::uint64_t>(ahead));
    }
  }

 private:
  const Topology* file_;
  std::int64_t asked_ = 0;
};

struct SampledEdgeType {
  int src_type;
  int dst_type;
  Csc csc;
  EdgeOrder order = {};
};

// Node types, and the edge types that join them.
struct SampledGraph {
  std::vector<std::int64_t> num_nodes;  // [node type]
  std::vector<SampledEdgeType> edge_types;

  // Raises std::invalid_argument or FormatError where an edge type does not fit the node types it
  // connects.
  void check() const;
  // Raises FormatError where a file was cut short since it was opened: cheap against a batch, and a
  // better message than the fault that would follow. Paged files are left to their reader's errors.
  void check_files() const;
  // Raises std::invalid_argument unless there is a node type of that number.
  void check_node_type(int type) const;
  // Whether samplers ask for the sources of some edge type.
  bool is_asked() const noexcept;
};

// Raises std::invalid_argument where others have the neighbours.
void need_neighbors(const Csc& csc);

// Raises std::out_of_range unless 0 <= node < num_nodes; `i` is the seed's place.
void check_seed(std::size_t i, std::int64_t node, std::int64_t num_nodes);

// Raises std::invalid_argument unless `counts` has as many lists as there are types, all of as many
// hops, and no number below `least`; -1: all neighbors. Returns how many hops.
std::size_t check_hops(const std::string& name,
                       const std::vector<std::vector<std::int64_t>>& counts,
                       const std::string& type, std::size_t num_types, std::int64_t least);

// The error of a batch that would outgrow 32-bit positions.
[[noreturn]] void throw_too_many();

// The errors of a damaged topology.
[[noreturn]] void throw_bad_indptr(const Csc& csc, std::int64_t node);
[[noreturn]] void throw_bad_index(const std::string& name, std::int64_t num_src, std::int64_t node);
[[noreturn]] inline void throw_bad_index(const Csc& csc, std::int64_t node) {
  throw_bad_index(csc.name, csc.num_src, node);
}

}  // namespace gz
