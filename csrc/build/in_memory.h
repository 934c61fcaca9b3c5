// Edges that are in memory already, by destination, without copying them.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "arrays/buffer.h"

namespace gz {

// indptr of [num_dst + 1], and which edge every CSC slot holds; stable.
// Raises std::out_of_range naming the first edge whose id is outside [0, num_src) or [0, num_dst).
std::pair<Buffer<std::int64_t>, Buffer<std::int64_t>> sort_by_destination(
    std::span<const std::int64_t> src, std::span<const std::int64_t> dst, std::int64_t num_src,
    std::int64_t num_dst);

}  // namespace gz
