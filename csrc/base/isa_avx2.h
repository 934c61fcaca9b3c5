// x86-64 with AVX2 and conversions of half precision, which came a year before it.
#pragma once

#include <cpuid.h>
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define GZ_WIDE __attribute__((target("avx2,f16c")))

namespace gz {

// Asks the processor, and whether the system saves the registers: not each compiler's library can.
inline bool asks_for_wide() noexcept {
  constexpr unsigned kF16c = 0x20000000, kAvx = 0x10000000, kXsave = 0x8000000, kAvx2 = 0x20;
  constexpr unsigned kFirst = kF16c | kAvx | kXsave, kRegisters = 6;
  unsigned a, b, c, d;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kFirst) != kFirst) return false;
  __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  if ((a & kRegisters) != kRegisters) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kAvx2) != 0;
}

inline bool has_wide() noexcept {
  static const bool found = asks_for_wide();
  return found;
}

using Floats8 = __m256;

GZ_WIDE inline Floats8 load8(const float* from) { return _mm256_loadu_ps(from); }
GZ_WIDE inline void store8(float* to, Floats8 values) { _mm256_storeu_ps(to, values); }
GZ_WIDE inline Floats8 add8(Floats8 a, Floats8 b) { return _mm256_add_ps(a, b); }
GZ_WIDE inline Floats8 mul8(Floats8 a, Floats8 b) { return _mm256_mul_ps(a, b); }

GZ_WIDE inline Floats8 widen8_int8(const std::byte* from) {
  const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
}

GZ_WIDE inline Floats8 widen8_float16(const std::byte* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

GZ_WIDE inline Floats8 widen8_bfloat16(const std::byte* from) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

}  // namespace gz
