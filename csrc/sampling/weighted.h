// Drawing ranks with probability proportional to their weight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "sampling/edge_order.h"

namespace gz {

// Thread safety: none; keep one per thread.
class WeightedSampler {
 public:
  // Draws k of the ranks [first, first + n) but `gone`, which rise: each time in proportion to
  // weight, without `replace` among those that are left, by drawing in what remains of the total
  // and stepping over the intervals of those that are gone; O(gone + k + log n) a draw. Returns how
  // many were drawn: k, or 0 where all weights are 0, or all with a weight above 0.
  std::int64_t draw(const EdgeOrder& order, CounterRng& rng, std::int64_t first, std::int64_t n,
                    std::int64_t k, bool replace, std::int64_t* out,
                    std::span<const std::int64_t> gone = {}) {
    const std::uint64_t base = order.weight_before(first);
    const std::uint64_t* const sums = order.cumulative + first;
    std::uint64_t left = sums[n - 1] - base;
    gone_.clear();
    for (const std::int64_t rank : gone) {
      gone_.push_back({order.weight_before(rank) - base, order.weight(rank)});
      left -= gone_.back().weight;
    }
    std::int64_t drawn = 0;
    for (; drawn < k && left > 0; ++drawn) {
      std::uint64_t at = rng.below(left);
      auto next = gone_.begin();
      for (; next != gone_.end() && at >= next->begin; ++next) at += next->weight;
      // The rank in whose interval the sum falls; a rank of weight 0 has none.
      const std::int64_t rank =
          std::upper_bound(sums, sums + n, at,
                           [=](auto value, auto sum) { return value < sum - base; }) -
          order.cumulative;
      out[drawn] = rank;
      if (replace) continue;
      gone_.insert(next, {order.weight_before(rank) - base, order.weight(rank)});
      left -= order.weight(rank);
    }
    return drawn;
  }

 private:
  struct Interval {
    std::uint64_t begin;
    std::uint64_t weight;
  };

  std::vector<Interval> gone_;
};

}  // namespace gz
