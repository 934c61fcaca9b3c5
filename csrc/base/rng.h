// Randomness as a function of its address: the same (key, position) always gives the same numbers,
// whichever thread asks and in whatever order. The mixer is SplitMix64's (Steele, Lea, Flood 2014,
// "Fast Splittable Pseudorandom Number Generators").
#pragma once

#include <cstdint>

namespace gz {

inline constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ULL;

inline std::uint64_t mix64(std::uint64_t z) noexcept {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// A key for one part of what `key` stands for; different parts are independent.
inline std::uint64_t derive_key(std::uint64_t key, std::uint64_t part) noexcept {
  return mix64(mix64(key + kGolden) ^ (part * kGolden + 0x632BE59BD9B4E019ULL));
}

// The stream of draws that belongs to position `at` under `key`.
class CounterRng {
 public:
  CounterRng(std::uint64_t key, std::uint64_t at) noexcept : state_(derive_key(key, at)) {}

  std::uint64_t next() noexcept { return mix64(state_ += kGolden); }

  // Uniform in [0, n) for 0 < n; the bias of the 64-bit multiplication is below n / 2^64.
  std::uint64_t below(std::uint64_t n) noexcept {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * n) >> 64);
  }

 private:
  std::uint64_t state_;
};

}  // namespace gz
