// The distribution of in-degrees, exact, in little memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "base/chunk_sizes.h"

namespace gz {

class DegreeCounts {
 public:
  void add(std::uint64_t degree) {
    if (degree < small_.size()) {
      ++small_[degree];
    } else {
      ++large_[degree];  // as many different ones as edges / small_.size() at most
    }
    ++total_;
  }

  // The smallest degree that at least `share` (0 … 1) of the nodes do not exceed; 0 without nodes.
  std::uint64_t quantile(double share) const {
    const auto rank = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(total_)));
    std::uint64_t seen = 0, last = 0;
    for (std::uint64_t degree = 0; degree < small_.size(); ++degree) {
      if (small_[degree] > 0) last = degree;
      if ((seen += small_[degree]) >= rank && seen > 0) return degree;
    }
    for (const auto& [degree, count] : large_) {
      last = degree;
      if ((seen += count) >= rank) return degree;
    }
    return last;
  }

 private:
  std::vector<std::uint64_t> small_ = std::vector<std::uint64_t>(chunk_sizes.counted_degrees);
  std::map<std::uint64_t, std::uint64_t> large_;
  std::uint64_t total_ = 0;
};

}  // namespace gz
