// k distinct numbers out of n, every k-subset equally likely, in O(k).
#pragma once

#include <cstdint>

#include "arrays/id_map.h"
#include "base/chunk_sizes.h"
#include "base/rng.h"

namespace gz {

// Floyd's algorithm (Bentley & Floyd 1987, "A sample of brilliance") for a small k: looks for
// duplicates along what it has drawn, and branches on none of it. Writes offset + each drawn number
// to out[0 … k). A constant k unrolls both loops. REQUIRES 0 < k < n.
inline void draw_few(CounterRng& rng, std::int64_t n, std::int64_t k, std::int64_t offset,
                     std::int64_t* out) {
  for (std::int64_t i = 0; i < k; ++i) {
    const std::int64_t last = offset + n - k + i;
    const std::int64_t pick =
        offset + static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(n - k + i) + 1));
    std::int64_t seen = 0;
    for (std::int64_t j = 0; j < i; ++j) seen |= out[j] == pick;
    out[i] = pick ^ ((pick ^ last) & -seen);
  }
}

// Distinct numbers for any k. Large k looks for duplicates in a hash set. Thread safety: none; keep
// one per thread.
class SubsetSampler {
 public:
  void draw(CounterRng& rng, std::int64_t n, std::int64_t k, std::int64_t offset,
            std::int64_t* out) {
    if (k <= chunk_sizes.linear_subset) return draw_few(rng, n, k, offset, out);
    seen_.clear();
    seen_.reserve(static_cast<std::size_t>(k));
    for (std::int64_t i = 0; i < k; ++i) {
      const auto last = static_cast<std::uint64_t>(n - k + i);
      const auto number = static_cast<std::uint32_t>(i);
      std::uint64_t pick = rng.below(last + 1);
      if (seen_.find_or_insert(pick, number) != number) seen_.find_or_insert(pick = last, number);
      out[i] = offset + static_cast<std::int64_t>(pick);
    }
  }

 private:
  IdMap<std::uint64_t> seen_;
};

}  // namespace gz
