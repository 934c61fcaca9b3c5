// k distinct numbers out of n, every k-subset equally likely, in O(k).
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

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
    seen_.assign(std::bit_ceil(static_cast<std::uint64_t>(k) * 2), kEmpty);
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t last = n - k + i;
      std::int64_t pick =
          static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(last) + 1));
      if (!insert(pick)) insert(pick = last);
      out[i] = offset + pick;
    }
  }

 private:
  static constexpr std::int64_t kEmpty = -1;

  bool insert(std::int64_t value) {
    const std::uint64_t mask = seen_.size() - 1;
    for (std::uint64_t at = mix64(static_cast<std::uint64_t>(value)) & mask;;
         at = (at + 1) & mask) {
      if (seen_[at] == value) return false;
      if (seen_[at] != kEmpty) continue;
      seen_[at] = value;
      return true;
    }
  }

  std::vector<std::int64_t> seen_;
};

}  // namespace gz
