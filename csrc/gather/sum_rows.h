// Sums of rows over the in-edges of a batch's nodes. Rows are decoded on their way into a sum:
// those of neighbours are never put anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/buffer.h"
#include "gather/copy_rows.h"

namespace gz {

// Edges of one type within a batch, by destination.
struct InEdges {
  std::span<const std::int64_t> src;  // positions in an index list
  Buffer<std::int64_t> bounds;  // in-edges of destination d: from bounds[d] up to bounds[d + 1]

  std::int64_t num_dst() const noexcept { return bounds.size() - 1; }
};

// In-edges of destinations 0 … num_dst - 1. Raises std::invalid_argument unless `dst` ascends and
// has no others.
InEdges in_edges(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                 std::int64_t num_dst);

// Puts sums, or means, of the rows index[edges.src[e]] over the in-edges e of destinations
// first … last - 1 one behind the other at `out`, table.row_bytes each: float32 numbers, zeros
// where there are no edges. Added up in the order of the edges. REQUIRES: every index of a source
// is a row; rows are float32 or encoded. Runs inside guarded().
void sum_rows(const RowTable& table, const std::int64_t* index, const InEdges& edges,
              std::int64_t first, std::int64_t last, bool is_mean, std::byte* out);

}  // namespace gz
