// k distinct numbers out of n, every k-subset equally likely, in O(k).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "sampling/rng.h"

namespace gz {

// Floyd's algorithm (Bentley & Floyd 1987, "A sample of brilliance"). Small k looks for duplicates
// along what it has drawn, large k in a hash set. Thread safety: none; keep one per thread.
class SubsetSampler {
 public:
  // Writes offset + each drawn number to out[0 … k). REQUIRES 0 < k < n.
  void draw(CounterRng& rng, std::int64_t n, std::int64_t k, std::int64_t offset,
            std::int64_t* out) {
    if (k > kLinear) return draw_hashed(rng, n, k, offset, out);
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t last = n - k + i;
      std::int64_t pick =
          offset + static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(last) + 1));
      for (std::int64_t j = 0; j < i; ++j) {
        if (out[j] == pick) {
          pick = offset + last;
          break;
        }
      }
      out[i] = pick;
    }
  }

 private:
  static constexpr std::int64_t kLinear = 48;
  static constexpr std::int64_t kEmpty = -1;

  void draw_hashed(CounterRng& rng, std::int64_t n, std::int64_t k, std::int64_t offset,
                   std::int64_t* out) {
    seen_.assign(std::bit_ceil(static_cast<std::uint64_t>(k) * 2), kEmpty);
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t last = n - k + i;
      std::int64_t pick =
          static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(last) + 1));
      if (!insert(pick)) insert(pick = last);
      out[i] = offset + pick;
    }
  }

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
