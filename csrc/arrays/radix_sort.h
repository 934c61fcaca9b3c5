// Sorting numbers by some of their bits, in time that does not depend on their order.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "arrays/buffer.h"

namespace gz {

// Bits of numbers up to `largest`.
constexpr int bits_for(std::uint64_t largest) noexcept {
  return static_cast<int>(std::bit_width(largest));
}

// Sorts by `bits` bits from `shift` on, stable in the rest. `scratch` is room to work in.
inline void radix_sort(Buffer<std::uint64_t>& keys, Buffer<std::uint64_t>& scratch, int shift,
                       int bits) {
  constexpr int kDigitBits = 11;  // the counters of a digit stay in the first-level cache
  constexpr std::uint64_t kDigits = 1U << kDigitBits;
  const std::int64_t n = keys.size();
  const std::uint64_t mask = bits >= 64 ? ~0ULL : (1ULL << bits) - 1;
  const auto before = [&](std::uint64_t a, std::uint64_t b) {
    return (a >> shift & mask) < (b >> shift & mask);
  };
  if (n == 0 || std::is_sorted(keys.data(), keys.data() + n, before)) return;
  scratch.resize(n);
  for (int done = 0; done < bits; done += kDigitBits) {
    const std::uint64_t* const from = keys.data();
    std::uint64_t* const to = scratch.data();
    const std::uint64_t digit = (1ULL << std::min(kDigitBits, bits - done)) - 1;
    std::array<std::int64_t, kDigits> place{};
    for (std::int64_t i = 0; i < n; ++i) ++place[from[i] >> (shift + done) & digit];
    std::int64_t sum = 0;
    for (std::int64_t& count : place) sum += std::exchange(count, sum);
    for (std::int64_t i = 0; i < n; ++i) to[place[from[i] >> (shift + done) & digit]++] = from[i];
    std::swap(keys, scratch);
  }
}

}  // namespace gz
