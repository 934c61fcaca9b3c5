#include "sampling/tree_times.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace gz {

void TreeTimes::add(const Seeds& seeds) {
  if (seeds.times.empty()) return;
  const auto latest = seeds.times.first(seeds.nodes.size());
  const auto earliest = seeds.times.subspan(seeds.nodes.size());
  latest_.insert(latest_.end(), latest.begin(), latest.end());
  earliest_.insert(earliest_.end(), earliest.begin(), earliest.end());
}

void check_times(const std::vector<Seeds>& seeds, const std::vector<SampledEdgeType>& edge_types,
                 bool disjoint) {
  const bool timed = std::any_of(edge_types.begin(), edge_types.end(),
                                 [](const auto& type) { return type.order.times != nullptr; });
  const bool has_windows = std::any_of(seeds.begin(), seeds.end(), [](const Seeds& each) {
    return each.times.size() > each.nodes.size();
  });
  for (const Seeds& each : seeds) {
    const std::size_t expected = (has_windows ? 2 : 1) * each.nodes.size();
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
