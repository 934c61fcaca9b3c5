#include "sampling/tree_times.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace gz {
namespace {

// Rows of Seeds::times.
std::size_t num_rows(const WindowRows& windows) {
  std::size_t rows = 1;
  for (const auto& hops : windows) {
    for (const std::size_t row : hops) rows = std::max(rows, row + 1);
  }
  return rows;
}

}  // namespace

TreeTimes::TreeTimes(const WindowRows& windows) : windows_(windows), rows_(num_rows(windows)) {}

void TreeTimes::add(const Seeds& seeds) {
  const std::size_t n = seeds.nodes.size();
  for (std::size_t row = 0; row * n < seeds.times.size(); ++row) {
    const auto times = seeds.times.subspan(row * n, n);
    rows_[row].insert(rows_[row].end(), times.begin(), times.end());
  }
}

void check_times(const std::vector<Seeds>& seeds, const WindowRows& windows, std::size_t num_hops,
                 const std::vector<SampledEdgeType>& edge_types, bool disjoint) {
  if (!windows.empty() && windows.size() != edge_types.size()) {
    throw std::invalid_argument("earliest: expected a list for each edge type");
  }
  for (const auto& hops : windows) {
    if (hops.size() != num_hops) {
      throw std::invalid_argument("earliest: expected a window for each hop");
    }
  }
  const bool timed = std::any_of(edge_types.begin(), edge_types.end(),
                                 [](const auto& type) { return type.order.times != nullptr; });
  const std::size_t rows = num_rows(windows);
  for (const Seeds& each : seeds) {
    const std::size_t expected = rows * each.nodes.size();
    if (!each.times.empty() && each.times.size() != expected) {
      throw std::invalid_argument("seed times: found " + std::to_string(each.times.size()) +
                                  ", expected " + std::to_string(expected));
    }
    if (timed && (!disjoint || each.times.size() != expected)) {
      throw std::invalid_argument("edges with times need disjoint sampling and a time per seed");
    }
  }
}

}  // namespace gz
