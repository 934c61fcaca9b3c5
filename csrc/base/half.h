// Half-precision numbers (IEEE binary16 and bfloat16) as bits, to float32 and back, on any machine.
#pragma once

#include <bit>
#include <cstdint>

namespace gz {

// Exact. NaNs come out quiet, their upper bits kept. No denormal float32 takes part, so that
// torch.set_flush_denormal changes nothing.
inline float from_float16(std::uint16_t half) noexcept {
  constexpr std::uint32_t kExponentShift = 112U << 23;  // between the biases 15 and 127
  const std::uint32_t sign = (half & 0x8000U) << 16;
  std::uint32_t bits = (half & 0x7FFFU) << 13;
  if ((half & 0x7C00U) == 0) {
    const float shifted = std::bit_cast<float>(bits + kExponentShift + (1U << 23));
    bits = std::bit_cast<std::uint32_t>(shifted - 0x1p-14F);
  } else if ((half & 0x7C00U) == 0x7C00U) {
    bits = bits + 2 * kExponentShift;
    if ((half & 0x3FFU) != 0) bits |= 0x400000U;
  } else {
    bits += kExponentShift;
  }
  return std::bit_cast<float>(sign | bits);
}

inline float from_bfloat16(std::uint16_t half) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

// To nearest, ties to even; what would round to infinity becomes the largest finite number.
// Infinity and NaN stay what they are.
inline std::uint16_t to_float16(float value) noexcept {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  bits &= 0x7FFFFFFFU;
  std::uint32_t half;
  if (bits >= 0x7F800000U) {
    half = bits == 0x7F800000U ? 0x7C00U : 0x7E00U;
  } else if (bits >= 0x477FF000U) {  // 65520, half way beyond the largest
    half = 0x7BFFU;
  } else if (bits < 0x38800000U) {  // 2^-14: a sum with 0.5 rounds to multiples of 2^-24
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(bits) + 0.5F) - 0x3F000000U;
  } else {
    half = (bits - (112U << 23) + 0xFFFU + ((bits >> 13) & 1U)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

inline std::uint16_t to_bfloat16(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  std::uint32_t half;
  if (magnitude > 0x7F800000U) {
    half = (magnitude >> 16) | 0x40U;
  } else if (magnitude == 0x7F800000U) {
    half = 0x7F80U;
  } else if (magnitude >= 0x7F7F8000U) {  // half way beyond the largest
    half = 0x7F7FU;
  } else {
    half = (magnitude + 0x7FFFU + ((magnitude >> 16) & 1U)) >> 16;
  }
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace gz
