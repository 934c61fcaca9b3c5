// All edges that join sampled nodes: whole neighbourhoods, of which those are kept whose other end
// is in the batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "arrays/buffer.h"
#include "arrays/id_map.h"
#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "sampling/read_csc.h"
#include "sampling/sample.h"

namespace gz {

// Edges in stretches of neighbourhoods; the caller reads the sources of a paged type between list()
// and keep(). `edges` begins empty, and is complete, by destination, when list() says false.
class InducedStretches {
 public:
  // Destination i of `count` has the ranks first[i] … + degree[i]; both stay until the end.
  InducedStretches(const SampledEdgeType& type, const std::int64_t* first,
                   const std::int64_t* degree, std::int64_t count)
      : type_(type), first_(first), degree_(degree), count_(count) {}

  // Fetches the next stretch, or adds it to `wanted`; false where there is none.
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

  // positions.find(i, source) is where a neighbour of destination i is, or kNone, and
  // positions.prefetch(i, source) announces that.
  template <class Positions>
  void keep(const Positions& positions, int threads, Sample::Edges& edges) {
    constexpr std::int64_t kNone = IdMap<std::uint32_t>::kNone;
    const std::int64_t n = source_.size();
    check_sources(type_.csc, source_.data(), n);
    parallel_for(n, kEdgeGrain, threads, [&](std::int64_t from, std::int64_t to) {
      visit_announced(
          from, to, [&](std::int64_t j) { positions.prefetch(col_[j], source_[j]); },
          [&](std::int64_t j) { source_[j] = positions.find(col_[j], source_[j]); });
    });
    std::int64_t at = edges.slot.size();
    edges.resize(at + n - std::count(source_.data(), source_.data() + n, kNone));
    for (std::int64_t j = 0; j < n; ++j) {
      if (source_[j] == kNone) continue;
      edges.row[at] = source_[j];
      edges.col[at] = col_[j];
      edges.slot[at++] = slot_[j];
    }
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
