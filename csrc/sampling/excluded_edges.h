// Edges that are no messages of a batch, such as the seed edges of a link loader: found once among
// the neighbours of their destinations, and stepped over by every draw from there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

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
  // Looks for them among the neighbours that are wanted then; false: that was all. keep() takes
  // what was read.
  bool list(int threads) { return stretches_.list(threads); }
  std::span<const SourceList> wanted() const noexcept { return stretches_.wanted(); }
  void keep(int threads) {
    const auto key_at = [this](auto place, auto source) { return key(place, source); };
    stretches_.keep(pairs_, key_at, threads, found_);
  }
  void settle();

  // Excluded ranks of a destination among [first, first + n), rising.
  std::span<const std::int64_t> within(std::int64_t node, std::int64_t first,
                                       std::int64_t n) const noexcept {
    const std::uint32_t place = places_.find(static_cast<std::uint64_t>(node));
    if (place == IdMap<std::uint64_t>::kNone) return {};
    auto begin = ranks_.begin() + starts_[place];
    while (begin != ranks_.end() && *begin < first) ++begin;
    auto end = begin;
    while (end != ranks_.end() && *end < first + n) ++end;
    return {begin, end};
  }

  bool has_slot(std::int64_t slot) const noexcept {
    return std::binary_search(slots_.begin(), slots_.end(), slot);
  }

 private:
  std::uint64_t key(std::int64_t place, std::int64_t source) const noexcept {
    return static_cast<std::uint64_t>(place) * static_cast<std::uint64_t>(type_.csc.num_src) +
           static_cast<std::uint64_t>(source);
  }
  template <class Sources>
  std::int64_t scan(const Sources& sources) noexcept;

  const SampledEdgeType& type_;
  std::vector<std::int64_t> nodes_;                            // destinations, each once
  IdMap<std::uint64_t> places_;                                // destination -> its place there
  std::vector<std::pair<std::uint64_t, std::int64_t>> times_;  // key and time, sorted
  std::vector<std::uint64_t> keys_;                            // of pairs, each once, sorted
  IdMap<std::uint64_t> pairs_;                                 // key -> its place there
  bool is_timed_;
  Ranges ranges_;  // [place]
  InducedStretches stretches_{type_, ranges_};
  Sample::Edges found_;                      // col: place of the destination, row: pair
  std::vector<std::int64_t> ranks_, slots_;  // of all destinations, rising
  std::vector<std::ptrdiff_t> starts_;       // [place]: where its ranks begin among them
};

}  // namespace gz
