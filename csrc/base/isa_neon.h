// ARM with 64 bits: NEON is in all of them.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#define GZ_WIDE

namespace gz {

constexpr bool has_wide() noexcept { return true; }

struct Floats8 {
  float32x4_t low, high;
};

inline Floats8 load8(const float* from) { return {vld1q_f32(from), vld1q_f32(from + 4)}; }

inline void store8(float* to, Floats8 values) {
  vst1q_f32(to, values.low);
  vst1q_f32(to + 4, values.high);
}

inline Floats8 add8(Floats8 a, Floats8 b) {
  return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)};
}

inline Floats8 mul8(Floats8 a, Floats8 b) {
  return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)};
}

inline Floats8 widen8_int8(const std::byte* from) {
  const int16x8_t codes = vmovl_s8(vld1_s8(reinterpret_cast<const std::int8_t*>(from)));
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(codes))), vcvtq_f32_s32(vmovl_high_s16(codes))};
}

inline Floats8 widen8_float16(const std::byte* from) {
  const float16x8_t halves =
      vreinterpretq_f16_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(from)));
  return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
}

inline Floats8 widen8_bfloat16(const std::byte* from) {
  const uint16x8_t halves =
      vreinterpretq_u16_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(from)));
  return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(halves), 16)),
          vreinterpretq_f32_u32(vshll_high_n_u16(halves, 16))};
}

}  // namespace gz
