// The part of neighbourhoods ranked by time that the tree of a seed may see: nothing later than the
// seed, and nothing before a window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sampling/graph.h"
#include "sampling/sample.h"

namespace gz {

// [edge type][hop]: where edges have times, which row of the seeds' times has the earliest that may
// be seen; 0: any. Empty: 0 everywhere.
using WindowRows = std::vector<std::vector<std::size_t>>;

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
  explicit TreeTimes(const WindowRows& windows);

  // Adds times of the next trees. REQUIRES: check_times().
  void add(const Seeds& seeds);

  // For a hop over an edge type: its number, and its order, which outlives the slice.
  TimeSlice slice(std::size_t edge_type, const EdgeOrder& order, std::size_t hop) const {
    if (order.times == nullptr) return {order, nullptr, nullptr};
    const std::size_t row = windows_.empty() ? 0 : windows_[edge_type][hop];
    return {order, rows_[0].data(), row == 0 ? nullptr : rows_[row].data()};
  }

 private:
  const WindowRows& windows_;
  std::vector<std::vector<std::int64_t>> rows_;  // [row][tree]
};

// Raises std::invalid_argument where the seeds' times are not those that the windows need, one row
// for each seed and row; where edges have times, and seeds have none or no trees of their own; and
// where a window is missing for an edge type or a hop.
void check_times(const std::vector<Seeds>& seeds, const WindowRows& windows, std::size_t num_hops,
                 const std::vector<SampledEdgeType>& edge_types, bool disjoint);

}  // namespace gz
