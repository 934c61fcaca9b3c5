// The part of neighbourhoods ranked by time that the tree of a seed may see: nothing later than the
// seed, and nothing before a window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sampling/graph.h"
#include "sampling/sample.h"

namespace gz {

// The part of neighbourhoods that trees may see, of one edge type. Owns nothing.
class TimeSlice {
 public:
  // `latest` and `earliest` [tree]; null `latest`: everything, null `earliest`: as early as there
  // is.
  TimeSlice(const EdgeOrder& order, const std::int64_t* latest, const std::int64_t* earliest)
      : order_(order), latest_(latest), earliest_(earliest) {}

  bool is_timed() const noexcept { return latest_ != nullptr; }

  // Narrows the ranks [first, first + n) to what a tree may see. REQUIRES: is_timed().
  void narrow(std::int64_t tree, std::int64_t& first, std::int64_t& n) const noexcept {
    n = order_.count_until(first, n, latest_[tree]);
    if (earliest_ == nullptr) return;
    const std::int64_t before = order_.count_before(first, n, earliest_[tree]);
    first += before;
    n -= before;
  }

 private:
  const EdgeOrder& order_;
  const std::int64_t* latest_;
  const std::int64_t* earliest_;
};

// The times of a request's seeds, each of which has a tree.
class TreeTimes {
 public:
  // Adds times of the next trees. REQUIRES: check_times().
  void add(const Seeds& seeds);

  // For edges of a type, by their order, which outlives the slice.
  TimeSlice slice(const EdgeOrder& order) const {
    if (order.times == nullptr) return {order, nullptr, nullptr};
    return {order, latest_.data(), earliest_.empty() ? nullptr : earliest_.data()};
  }

 private:
  std::vector<std::int64_t> latest_, earliest_;  // [tree]; `earliest_` is empty without windows
};

// Raises std::invalid_argument where there is not one time for each seed, or, where some seeds have
// windows, two; and where edges have times, and seeds have none or no trees of their own.
void check_times(const std::vector<Seeds>& seeds, const std::vector<SampledEdgeType>& edge_types,
                 bool disjoint);

}  // namespace gz
