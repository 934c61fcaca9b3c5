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
  // Ranks of the destinations; they stay until the end.
  InducedStretches(const SampledEdgeType& type, const Ranges& in) : type_(type), in_(in) {}

  // Fetches the next stretch, unless it is then wanted; false where there is none.
  bool list(int threads) {
    const std::int64_t most = chunk_sizes.induced_edges;
    slot_.clear();
    col_.clear();
    for (; node_ < in_.size() && slot_.size() < most; ++node_, done_ = 0) {
      const std::int64_t taken = std::min(in_.degree[node_] - done_, most - slot_.size());
      const std::int64_t at = slot_.size();
      slot_.resize(at + taken);
      col_.resize(at + taken);
      for (std::int64_t j = 0; j < taken; ++j) slot_[at + j] = in_.first[node_] + done_ + j;
      std::fill_n(col_.data() + at, taken, node_);
      done_ += taken;
      if (done_ < in_.degree[node_]) break;
    }
    source_.resize(slot_.size());
    wanted_.clear();
    fetch_sources(type_, slot_.data(), source_.data(), slot_.size(), threads, wanted_);
    return slot_.size() > 0;
  }
  std::span<const SourceList> wanted() const noexcept { return wanted_; }

  // ids.find(key(i, source)) is where a neighbour of destination i is, or kNone, and
  // ids.prefetch() announces that.
  template <class Ids, class Key>
  void keep(const Ids& ids, const Key& key, int threads, Sample::Edges& edges) {
    constexpr std::int64_t kNone = IdMap<std::uint32_t>::kNone;
    const std::int64_t n = source_.size();
    check_sources(type_.csc, source_.data(), n);
    parallel_for(n, kEdgeGrain, threads, [&](std::int64_t from, std::int64_t to) {
      visit_announced(
          from, to, [&](std::int64_t j) { ids.prefetch(key(col_[j], source_[j])); },
          [&](std::int64_t j) { source_[j] = ids.find(key(col_[j], source_[j])); });
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
  const Ranges& in_;
  std::int64_t node_ = 0;
  std::int64_t done_ = 0;  // of the node's neighbours
  Buffer<std::int64_t> slot_, col_, source_;
  std::vector<SourceList> wanted_;
};

}  // namespace gz
