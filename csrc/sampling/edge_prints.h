// Whether the edges of one CSC are those of another, in whatever order and direction.
#pragma once

#include <cstdint>
#include <functional>

#include "sampling/graph.h"

namespace gz {

// Numbers that are equal, but for chances of 2^-64, where edges are: the first of the edges as they
// are, the second of the same with both ends exchanged, whatever their order. So a graph where they
// are equal leads both ways. `values` is what else of an edge counts, a number of each slot, or
// null. REQUIRES that it is not paged. Raises FormatError where the CSC is damaged.
struct EdgePrints {
  std::uint64_t along = 0;
  std::uint64_t against = 0;
};
EdgePrints edge_prints(const Csc& csc, const std::int64_t* values, int threads,
                       const std::function<void()>& checkpoint);

}  // namespace gz
