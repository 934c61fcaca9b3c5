// Edges that are no messages of a batch, such as the seed edges of a link loader: found once among
// the neighbours of their destinations, and stepped over by every draw from there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "arrays/buffer.h"
#include "arrays/id_map.h"
#include "sampling/induce.h"
#include "sampling/sample.h"

namespace gz {

// The excluded edges of one edge type. First find(), or list() and keep() until there is nothing
// more to list, then settle(); the rest REQUIRES that. Thread safety: as const as it is declared.
class ExcludedEdges {
 public:
  // `type` and what `pairs` shows outlive it. Raises std::out_of_range where an end is no node.
  ExcludedEdges(const SampledEdgeType& type, const ExcludedPairs& pairs, int threads);

  // Finds the edges. REQUIRES that the edge type is not paged.
  void find();
  // Adds what is to be read next to `wanted`; false: that was all. keep() takes what was read.
  bool list(int threads, std::vector<SourceList>& wanted) {
    return stretches_->list(threads, wanted);
  }
  void keep(int threads) { stretches_->keep(wanted(), threads, found_); }
  void settle();

  // Excluded ranks of a destination among [first, first + n), rising.
  std::span<const std::int64_t> within(std::int64_t node, std::int64_t first,
                                       std::int64_t n) const noexcept {
    const std::uint32_t place = places_.find(static_cast<std::uint64_t>(node));
    if (place == IdMap<std::uint64_t>::kNone) return {};
    const auto begin = ranks_.begin() + bounds_[place], end = ranks_.begin() + bounds_[place + 1];
    return {std::lower_bound(begin, end, first), std::lower_bound(begin, end, first + n)};
  }

  bool has_slot(std::int64_t slot) const noexcept {
    return std::binary_search(slots_.begin(), slots_.end(), slot);
  }

 private:
  // The pair of a destination and a source, for InducedStretches too.
  struct Pairs {
    const IdMap<std::uint64_t>& first;
    std::uint64_t num_src;

    std::uint64_t key(std::int64_t place, std::int64_t source) const noexcept {
      return static_cast<std::uint64_t>(place) * num_src + static_cast<std::uint64_t>(source);
    }
    std::uint32_t find(std::int64_t place, std::int64_t source) const noexcept {
      return first.find(key(place, source));
    }
    void prefetch(std::int64_t place, std::int64_t source) const noexcept {
      first.prefetch(key(place, source));
    }
  };
  Pairs wanted() const noexcept { return {first_, static_cast<std::uint64_t>(type_.csc.num_src)}; }
  template <class Sources>
  std::int64_t scan(const Sources& sources) noexcept;
  std::int64_t rank_of(std::int64_t place, std::int64_t slot) const;

  const SampledEdgeType& type_;
  std::vector<std::int64_t> nodes_;                            // destinations, each once
  IdMap<std::uint64_t> places_;                                // destination -> its place there
  Buffer<std::int64_t> begin_, degree_;                        // [place]: its slots
  std::vector<std::pair<std::uint64_t, std::int64_t>> times_;  // [pair]: key and time, sorted
  std::vector<std::size_t> firsts_;            // pairs that are the first of their key
  std::vector<std::size_t> bounds_of_firsts_;  // [place + 1]
  IdMap<std::uint64_t> first_;                 // pair -> the first of its key
  bool is_timed_;
  std::optional<InducedStretches> stretches_;
  Sample::Edges found_;               // col: place of the destination, row: pair
  std::vector<std::int64_t> bounds_;  // [place + 1]: where its ranks begin in ranks_
  std::vector<std::int64_t> ranks_, slots_;
};

}  // namespace gz
