// Processors for which nothing is written by hand.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"

#define GZ_WIDE

namespace gz {

constexpr bool has_wide() noexcept { return false; }

struct Floats8 {
  float lane[8];
};

// Each lane c, as value(c).
template <class Value>
inline Floats8 lanes8(const Value& value) {
  Floats8 found;
  for (int c = 0; c < 8; ++c) found.lane[c] = value(c);
  return found;
}

// Eight codes of a type, each widened.
template <class Code, class Widen>
inline Floats8 widen8(const std::byte* from, const Widen& widen) {
  Code codes[8];
  std::memcpy(codes, from, sizeof codes);
  return lanes8([&](int c) { return widen(codes[c]); });
}

inline Floats8 load8(const float* from) {
  return lanes8([&](int c) { return from[c]; });
}
inline void store8(float* to, Floats8 values) { std::memcpy(to, values.lane, sizeof values.lane); }
inline Floats8 add8(Floats8 a, Floats8 b) {
  return lanes8([&](int c) { return a.lane[c] + b.lane[c]; });
}
inline Floats8 mul8(Floats8 a, Floats8 b) {
  return lanes8([&](int c) { return a.lane[c] * b.lane[c]; });
}
inline Floats8 widen8_int8(const std::byte* from) {
  return widen8<std::int8_t>(from, [](std::int8_t code) { return static_cast<float>(code); });
}
inline Floats8 widen8_float16(const std::byte* from) {
  return widen8<std::uint16_t>(from, from_float16);
}
inline Floats8 widen8_bfloat16(const std::byte* from) {
  return widen8<std::uint16_t>(from, from_bfloat16);
}

}  // namespace gz
