// Whether the edges of one CSC are those of another, in whatever order and direction.
#pragma once

#include <cstdint>
#include <functional>

#include "sampling/graph.h"

namespace gz {

// Two hashes of a set of edges, whatever their order: of the edges as they are, and of the same
// with both ends exchanged. Where the two are equal, each edge has its reverse (but for a chance of
// 2^-64). REQUIRES that the CSC is not paged. Raises FormatError where it is damaged,
// std::invalid_argument where its neighbours lie elsewhere.
struct EdgePrints {
  std::uint64_t along = 0;
  std::uint64_t against = 0;
};
EdgePrints edge_prints(const Csc& csc, int threads, const std::function<void()>& checkpoint);

}  // namespace gz
