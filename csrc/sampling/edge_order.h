// Orders of a neighbourhood's edges beyond "every edge alike": edges ranked by time, and weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>

namespace gz {

// No time is before it.
inline constexpr std::int64_t kFirstTime = std::numeric_limits<std::int64_t>::min();

// Arrays over the ranks of one edge type: rank r of a destination's neighbourhood lies in the same
// range indptr[v] … indptr[v + 1) as its slots do, in another order. Null arrays: nothing of that.
struct EdgeOrder {
  const std::int64_t* slots = nullptr;        // [num_edges]: rank -> CSC slot; null: they are equal
  const std::int64_t* times = nullptr;        // [num_edges]: rising within a neighbourhood
  const std::uint64_t* cumulative = nullptr;  // [num_edges]: running sum of integer weights over
                                              // all ranks; wraps, sums of one range do not
  std::shared_ptr<const void> owner;

  std::int64_t slot(std::int64_t rank) const noexcept {
    return slots == nullptr ? rank : slots[rank];
  }

  // Narrows the ranks [first, last) to those not later than `latest`, nor before `earliest`.
  // REQUIRES times.
  void narrow(std::int64_t& first, std::int64_t& last, std::int64_t latest,
              std::int64_t earliest) const noexcept {
    last = std::upper_bound(times + first, times + last, latest) - times;
    if (earliest == kFirstTime) return;
    first = std::lower_bound(times + first, times + last, earliest) - times;
  }

  // Fetches what a search among the ranks [first, first + n) reads first.
  void prefetch_weights(std::int64_t first, std::int64_t n) const noexcept {
    __builtin_prefetch(cumulative + first);
    __builtin_prefetch(cumulative + first + n / 2);
    __builtin_prefetch(cumulative + first + n - 1);
  }

  // The sum of weights of the ranks before `rank`, of all neighbourhoods.
  std::uint64_t weight_before(std::int64_t rank) const noexcept {
    return rank == 0 ? 0 : cumulative[rank - 1];
  }
  std::uint64_t weight(std::int64_t rank) const noexcept {
    return cumulative[rank] - weight_before(rank);
  }
};

}  // namespace gz
