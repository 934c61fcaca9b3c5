// Edges in any order to compressed sparse column, in memory.
#pragma once

#include <cstdint>
#include <span>

#include "base/buffer.h"

namespace gz {

// Counts the edges of each destination: indptr of [num_dst + 1].
// Raises std::out_of_range naming the first edge whose id is outside [0, num_src) or [0, num_dst).
Buffer<std::int64_t> count_destinations(std::span<const std::int64_t> src,
                                        std::span<const std::int64_t> dst, std::int64_t num_src,
                                        std::int64_t num_dst);

// The stable order of edges by destination: order[slot] is the edge that CSC slot holds.
Buffer<std::int64_t> order_by_destination(std::span<const std::int64_t> dst,
                                          std::span<const std::int64_t> indptr);

}  // namespace gz
