// All edges that join sampled nodes: whole neighbourhoods, of which those are kept whose other end
// is in the batch.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "arrays/buffer.h"
#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "io/fault_guard.h"
#include "sampling/id_map.h"
#include "sampling/read_csc.h"
#include "sampling/sample.h"

namespace gz {

inline constexpr std::int64_t kRanksAhead = 32;  // within one neighbourhood
inline constexpr std::int64_t kInduceGrain = 256;

namespace detail {

// Calls visit(col, how many before it at this col, slot, row) for every edge among sampled nodes.
template <class Positions, class Visit>
void visit_induced(const SampledEdgeType& type, const std::int64_t* first,
                   const std::int64_t* degree, std::int64_t count, int threads,
                   const Positions& positions, const Visit& visit) {
  std::atomic<bool> outside{false};
  std::atomic<std::int64_t> bad{0};
  const auto visit_range = [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t i = from; i < to; ++i) {
      if (i + kNodesAhead < to) type.csc.prefetch_source(first[i + kNodesAhead]);
      std::int64_t found = 0;
      const std::int64_t last = first[i] + degree[i];
      for (std::int64_t rank = first[i]; rank < last; ++rank) {
        if (rank + kRanksAhead < last) {
          positions.prefetch(i, type.csc.source(type.order.slot(rank + kRanksAhead)));
        }
        const std::int64_t slot = type.order.slot(rank);
        const std::int64_t source = type.csc.source(slot);
        if (static_cast<std::uint64_t>(source) >= static_cast<std::uint64_t>(type.csc.num_src)) {
          bad.store(source, std::memory_order_relaxed);
          outside.store(true, std::memory_order_relaxed);
          return;
        }
        const std::uint32_t at = positions.find(i, source);
        if (at != IdMap<std::uint32_t>::kNone) visit(i, found++, slot, at);
      }
    }
  };
  parallel_for(count, kInduceGrain, threads, [&](std::int64_t from, std::int64_t to) {
    guarded([&] { visit_range(from, to); });
  });
  if (outside.load()) throw_bad_index(type.csc, bad.load());
}

}  // namespace detail

// Sets `edges` to all that join sampled nodes, grouped by destination. Destination i of `count` has
// the ranks first[i] … + degree[i]; positions.find(i, source) is where a neighbour of it is, or
// kNone, and positions.prefetch(i, source) announces that; offset [count + 1] is room to work in.
// REQUIRES: neither owns anything, see guarded(); the edge type is not paged.
template <class Positions>
void induce(const SampledEdgeType& type, const std::int64_t* first, const std::int64_t* degree,
            std::int64_t* offset, std::int64_t count, int threads, const Positions& positions,
            Sample::Edges& edges) {
  // Counted first, then written: nothing may grow where a fault can interrupt.
  std::fill_n(offset, count + 1, 0);
  detail::visit_induced(type, first, degree, count, threads, positions,
                        [&](std::int64_t col, std::int64_t found, std::int64_t, std::uint32_t) {
                          offset[col + 1] = found + 1;
                        });
  edges.resize(sum_offsets(offset, count));
  detail::visit_induced(
      type, first, degree, count, threads, positions,
      [&](std::int64_t col, std::int64_t found, std::int64_t slot, std::uint32_t row) {
        const std::int64_t at = offset[col] + found;
        edges.row[at] = row;
        edges.col[at] = col;
        edges.slot[at] = slot;
      });
}

// Induced edges of a paged type, in stretches of neighbourhoods; the caller reads their sources
// between list() and keep(). `edges` begins empty, and is complete when list() says false.
class InducedStretches {
 public:
  // `first` and `degree` [count] as of induce(); they stay until the end.
  InducedStretches(const SampledEdgeType& type, const std::int64_t* first,
                   const std::int64_t* degree, std::int64_t count)
      : type_(type), first_(first), degree_(degree), count_(count) {}

  // Adds the next stretch to `wanted`; false where there is none.
  bool list(int threads, std::vector<SourceList>& wanted) {
    const std::int64_t most = chunk_sizes.induced_edges;
    slot_.clear();
    col_.clear();
    for (; node_ < count_ && slot_.size() < most; ++node_, done_ = 0) {
      const std::int64_t taken = std::min(degree_[node_] - done_, most - slot_.size());
      const std::int64_t at = slot_.size();
      slot_.resize(at + taken);
      col_.resize(at + taken);
      for (std::int64_t j = 0; j < taken; ++j) slot_[at + j] = first_[node_] + done_ + j;
      std::fill_n(col_.data() + at, taken, node_);
      done_ += taken;
      if (done_ < degree_[node_]) break;
    }
    source_.resize(slot_.size());
    fetch_sources(type_, slot_.data(), source_.data(), slot_.size(), threads, wanted);
    return slot_.size() > 0;
  }

  template <class Positions>
  void keep(const Positions& positions, Sample::Edges& edges) {
    const std::int64_t n = slot_.size();
    check_sources(type_.csc, source_.data(), n);
    visit_announced(
        0, n, [&](std::int64_t j) { positions.prefetch(col_[j], source_[j]); },
        [&](std::int64_t j) {
          const std::uint32_t row = positions.find(col_[j], source_[j]);
          if (row == IdMap<std::uint32_t>::kNone) return;
          edges.row.push_back(row);
          edges.col.push_back(col_[j]);
          edges.slot.push_back(slot_[j]);
        });
  }

 private:
  const SampledEdgeType& type_;
  const std::int64_t* first_;
  const std::int64_t* degree_;
  std::int64_t count_;
  std::int64_t node_ = 0;
  std::int64_t done_ = 0;  // of the node's neighbours
  Buffer<std::int64_t> slot_, col_, source_;
};

}  // namespace gz
