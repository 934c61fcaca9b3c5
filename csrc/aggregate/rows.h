// Rows of numbers, and what is done with them in one go: each loop is written once, for all types
// of numbers and all instruction sets.
//
// Loops are over the numbers of a row, which do not depend on each other, or have a fixed number of
// lanes: results have the same bits with any instructions.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/half.h"
#include "base/isa.h"

namespace gz {

// Defines a function for each type of numbers.
#define GZ_FOR_NUMBERS(DEFINE) DEFINE(float) DEFINE(double) DEFINE(Float16) DEFINE(BFloat16)

// The type that numbers are added up in, and that numbers of edges have.
template <class T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

GZ_INLINE float widen(float value) { return value; }
GZ_INLINE double widen(double value) { return value; }
GZ_INLINE float widen(Float16 value) { return from_float16(value.bits); }
GZ_INLINE float widen(BFloat16 value) { return from_bfloat16(value.bits); }

// Rounds like torch: too large numbers become infinity, by which scalers of gradients go.
template <class T>
GZ_INLINE T narrow(Sum<T> value) {
  if constexpr (std::is_same_v<T, Float16>) {
    return {
        static_cast<std::uint16_t>(round_to_float16(std::bit_cast<std::uint32_t>(value), 0x7C00U))};
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return {static_cast<std::uint16_t>(
        round_to_bfloat16(std::bit_cast<std::uint32_t>(value), 0x7F80U))};
  } else {
    return value;
  }
}

// Each row is `heads` times `channels` numbers without a gap; an edge has a number for each head.
struct RowShape {
  std::int64_t heads = 1, channels = 0;

  std::int64_t size() const noexcept { return heads * channels; }
};

// Rows that lie `stride` numbers apart.
template <class T>
struct Rows {
  T* data = nullptr;
  std::int64_t stride = 0;

  T* operator[](std::int64_t row) const noexcept { return data + row * stride; }
};

// The processor follows a row once it is started; its first lines are what it cannot foresee.
template <class T>
GZ_INLINE void prefetch_row(const T* row, std::int64_t size) {
  constexpr std::int64_t kLine = 64, kPrefetchedLines = 8;
  const std::int64_t bytes =
      std::min<std::int64_t>(size * static_cast<std::int64_t>(sizeof(T)), kPrefetchedLines * kLine);
  const auto* const begin = reinterpret_cast<const char*>(row);
  for (std::int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(begin + at);
}

// sums[c] = the sum over i from begin to before end, in that order, of weight(i) * row(i)[c].
template <class T, class RowAt, class WeightAt>
GZ_INLINE void sum_rows(std::int64_t begin, std::int64_t end, std::int64_t channels,
                        const RowAt& row, const WeightAt& weight, Sum<T>* __restrict sums) {
  std::fill_n(sums, channels, Sum<T>{0});
  std::int64_t i = begin;
  for (; i + 4 <= end; i += 4) {
    const T* const a = row(i);
    const T* const b = row(i + 1);
    const T* const c = row(i + 2);
    const T* const d = row(i + 3);
    const Sum<T> wa = weight(i), wb = weight(i + 1), wc = weight(i + 2), wd = weight(i + 3);
    for (std::int64_t j = 0; j < channels; ++j) {
      sums[j] =
          (((sums[j] + wa * widen(a[j])) + wb * widen(b[j])) + wc * widen(c[j])) + wd * widen(d[j]);
    }
  }
  for (; i < end; ++i) {
    const T* const a = row(i);
    const Sum<T> wa = weight(i);
    for (std::int64_t j = 0; j < channels; ++j) sums[j] += wa * widen(a[j]);
  }
}

template <class T>
GZ_INLINE void store_row(const Sum<T>* sums, std::int64_t size, T* out, Sum<T> divisor = 1) {
  for (std::int64_t c = 0; c < size; ++c) out[c] = narrow<T>(sums[c] / divisor);
}

// The sum of term(0) … term(count - 1), in an order that does not depend on the instructions.
template <class S, class Term>
GZ_INLINE S sum_over(std::int64_t count, const Term& term) {
  constexpr std::int64_t kLanes = 16;
  S lanes[kLanes] = {};
  std::int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
#pragma GCC unroll 1  // left as a loop, which becomes vector code as a whole
    for (std::int64_t c = 0; c < kLanes; ++c) lanes[c] += term(j + c);
  }
  for (std::int64_t c = 0; j + c < count; ++c) lanes[c] += term(j + c);
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::int64_t c = 0; c < half; ++c) lanes[c] += lanes[c + half];
  }
  return lanes[0];
}

}  // namespace gz
