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
  // Draws k of the ranks [first, first + n) but `gone`, which rise, each time in proportion to
  // weight, in O(gone + log n) a draw. Returns how many were drawn: k, or 0 where all weights are
  // 0.
  std::int64_t draw_with_replacement(const EdgeOrder& order, CounterRng& rng, std::int64_t first,
                                     std::int64_t n, std::int64_t k, std::int64_t* out,
                                     std::span<const std::int64_t> gone = {}) {
    const std::uint64_t left = begin(order, first, n, gone);
    if (left == 0) return 0;
    for (std::int64_t i = 0; i < k; ++i) out[i] = draw(order, rng, first, n, left).rank;
    return k;
  }

  // Weighted draws without drawing a rank twice: each draw is in proportion to weight among the
  // ranks that are left, by drawing in what remains of the total and stepping over the intervals of
  // those that are gone; O(k + log n) a draw. Returns how many were drawn: k, or all with a weight
  // above 0.
  std::int64_t draw_distinct(const EdgeOrder& order, CounterRng& rng, std::int64_t first,
                             std::int64_t n, std::int64_t k, std::int64_t* out,
                             std::span<const std::int64_t> gone = {}) {
    std::uint64_t left = begin(order, first, n, gone);
    std::int64_t drawn = 0;
    for (; drawn < k && left > 0; ++drawn) {
      const Drawn one = draw(order, rng, first, n, left);
      gone_.insert(one.next, {one.begin, one.weight});
      left -= one.weight;
      out[drawn] = one.rank;
    }
    return drawn;
  }

 private:
  struct Interval {
    std::uint64_t begin;
    std::uint64_t weight;
  };
  struct Drawn {
    std::int64_t rank;
    std::uint64_t begin, weight;
    std::vector<Interval>::iterator next;  // where its interval belongs in gone_
  };

  // Sets gone_; returns the weight that is left.
  std::uint64_t begin(const EdgeOrder& order, std::int64_t first, std::int64_t n,
                      std::span<const std::int64_t> gone) {
    const std::uint64_t base = order.weight_before(first);
    std::uint64_t left = order.cumulative[first + n - 1] - base;
    gone_.clear();
    for (const std::int64_t rank : gone) {
      const std::uint64_t before = order.weight_before(rank);
      gone_.push_back({before - base, order.cumulative[rank] - before});
      left -= gone_.back().weight;
    }
    return left;
  }

  Drawn draw(const EdgeOrder& order, CounterRng& rng, std::int64_t first, std::int64_t n,
             std::uint64_t left) {
    const std::uint64_t base = order.weight_before(first);
    std::uint64_t at = rng.below(left);
    auto next = gone_.begin();
    for (; next != gone_.end() && at >= next->begin; ++next) at += next->weight;
    const std::int64_t rank = locate(order, base, first, n, at);
    const std::uint64_t begin = order.weight_before(rank) - base;
    return {rank, begin, order.cumulative[rank] - base - begin, next};
  }

  // The rank in whose interval the sum `at` falls; a rank of weight 0 has none.
  static std::int64_t locate(const EdgeOrder& order, std::uint64_t base, std::int64_t first,
                             std::int64_t n, std::uint64_t at) {
    const std::uint64_t* const begin = order.cumulative + first;
    return first + (std::upper_bound(begin, begin + n, at,
                                     [base](std::uint64_t value, std::uint64_t sum) {
                                       return value < sum - base;
                                     }) -
                    begin);
  }

  std::vector<Interval> gone_;
};

}  // namespace gz
