// Half-precision numbers (IEEE binary16 and bfloat16) as bits, to float32 and back, on any machine.
#pragma once

#include <bit>
#include <cstdint>

namespace gz {

// A number by its bits.
struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

// Numbers below are bits: a half in the lower 16 of a word. Without a branch, so that loops over
// them become vector code, and without a denormal float32 taking part, so that
// torch.set_flush_denormal changes nothing.

// float32 of a float16. Exact; NaNs come out quiet, their upper bits kept.
constexpr std::uint32_t widen_float16(std::uint32_t half) noexcept {
  constexpr std::uint32_t kExponentShift = 112U << 23;  // between the biases 15 and 127
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7FFFU;
  const std::uint32_t normal = (magnitude << 13) + kExponentShift;
  const float shifted = std::bit_cast<float>(normal + (1U << 23));
  const std::uint32_t denormal = std::bit_cast<std::uint32_t>(shifted - 0x1p-14F);
  const std::uint32_t special = normal + kExponentShift;
  const std::uint32_t quiet = magnitude > 0x7C00U ? 0x400000U : 0U;
  const std::uint32_t large = magnitude >= 0x7C00U ? (special | quiet) : normal;
  return sign | (magnitude < 0x400U ? denormal : large);
}

constexpr std::uint32_t widen_bfloat16(std::uint32_t half) noexcept { return half << 16; }

// Half a step beyond the largest number of a code, as float32: from there on, finite values are out
// of its range.
inline constexpr std::uint32_t kFloat16Limit = 0x477FF000U;
inline constexpr std::uint32_t kBFloat16Limit = 0x7F7F8000U;

// float16 or bfloat16 of a float32: to nearest, ties to even; what would round to infinity becomes
// `beyond`. Infinity and NaN stay what they are.
constexpr std::uint32_t round_to_float16(std::uint32_t bits, std::uint32_t beyond) noexcept {
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t normal = (magnitude - (112U << 23) + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13;
  // Below 2^-14, a sum with 0.5 rounds to multiples of 2^-24.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
  const std::uint32_t denormal = std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U;
  const std::uint32_t special = magnitude > 0x7F800000U ? 0x7E00U : 0x7C00U;
  const std::uint32_t large = magnitude >= 0x7F800000U ? special : beyond;
  const std::uint32_t usual = magnitude < 0x38800000U ? denormal : normal;
  return sign | (magnitude >= kFloat16Limit ? large : usual);
}

constexpr std::uint32_t round_to_bfloat16(std::uint32_t bits, std::uint32_t beyond) noexcept {
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t usual = (magnitude + 0x7FFFU + ((magnitude >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = magnitude > 0x7F800000U ? 0x40U : 0U;
  const std::uint32_t special = (magnitude >> 16) | quiet;
  const std::uint32_t large = magnitude >= 0x7F800000U ? special : beyond;
  return sign | (magnitude >= kBFloat16Limit ? large : usual);
}

// Rounds too; numbers that would become infinity become the largest finite number.
constexpr std::uint32_t narrow_float16(std::uint32_t bits) noexcept {
  return round_to_float16(bits, 0x7BFFU);
}

constexpr std::uint32_t narrow_bfloat16(std::uint32_t bits) noexcept {
  return round_to_bfloat16(bits, 0x7F7FU);
}

// Conversions of numbers instead of bits.
inline float from_float16(std::uint16_t half) noexcept {
  return std::bit_cast<float>(widen_float16(half));
}

inline float from_bfloat16(std::uint16_t half) noexcept {
  return std::bit_cast<float>(widen_bfloat16(half));
}

inline std::uint16_t to_float16(float value) noexcept {
  return static_cast<std::uint16_t>(narrow_float16(std::bit_cast<std::uint32_t>(value)));
}

inline std::uint16_t to_bfloat16(float value) noexcept {
  return static_cast<std::uint16_t>(narrow_bfloat16(std::bit_cast<std::uint32_t>(value)));
}

}  // namespace gz
