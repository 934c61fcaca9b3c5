#include "gather/add_rows.h"

#include <cstring>

#include "base/half.h"
#include "base/isa.h"

#ifdef GZ_HAS_AVX2_FUNCTIONS
#include <immintrin.h>
#endif

namespace gz {
namespace {

template <class Stored, class Convert>
void add_each(const std::byte* items, std::int64_t begin, std::int64_t count, float* out,
              const Convert& convert) {
  for (std::int64_t i = begin; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, items + i * static_cast<std::int64_t>(sizeof stored), sizeof stored);
    out[i] += convert(stored, i);
  }
}

void add_float32(const std::byte* items, std::int64_t begin, std::int64_t count, float* out) {
  add_each<float>(items, begin, count, out, [](float value, std::int64_t) { return value; });
}

void add_float16(const std::byte* items, std::int64_t begin, std::int64_t count, float* out) {
  add_each<std::uint16_t>(items, begin, count, out,
                          [](std::uint16_t half, std::int64_t) { return from_float16(half); });
}

void add_bfloat16(const std::byte* items, std::int64_t begin, std::int64_t count, float* out) {
  add_each<std::uint16_t>(items, begin, count, out,
                          [](std::uint16_t half, std::int64_t) { return from_bfloat16(half); });
}

// Each operation rounded, as a gather decodes.
void add_int8(const std::byte* items, std::int64_t begin, std::int64_t count, const float* scale,
              const float* zero_point, float* out) {
  add_each<std::int8_t>(items, begin, count, out, [&](std::int8_t code, std::int64_t i) {
    return static_cast<float>(code) * scale[i] + zero_point[i];
  });
}

void float32_portable(const std::byte* items, std::int64_t count, const float*, const float*,
                      float* out) {
  add_float32(items, 0, count, out);
}

void float16_portable(const std::byte* items, std::int64_t count, const float*, const float*,
                      float* out) {
  add_float16(items, 0, count, out);
}

void bfloat16_portable(const std::byte* items, std::int64_t count, const float*, const float*,
                       float* out) {
  add_bfloat16(items, 0, count, out);
}

void int8_portable(const std::byte* items, std::int64_t count, const float* scale,
                   const float* zero_point, float* out) {
  add_int8(items, 0, count, scale, zero_point, out);
}

#ifdef GZ_HAS_AVX2_FUNCTIONS

__attribute__((target("avx2"))) inline __m128i load16(const std::byte* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

__attribute__((target("avx2"))) inline void add8(float* at, __m256 values) {
  _mm256_storeu_ps(at, _mm256_add_ps(_mm256_loadu_ps(at), values));
}

__attribute__((target("avx2"))) void float32_avx2(const std::byte* items, std::int64_t count,
                                                  const float*, const float*, float* out) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    add8(out + i, _mm256_loadu_ps(reinterpret_cast<const float*>(items + 4 * i)));
  }
  add_float32(items, i, count, out);
}

__attribute__((target("avx2,f16c"))) void float16_avx2(const std::byte* items, std::int64_t count,
                                                       const float*, const float*, float* out) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) add8(out + i, _mm256_cvtph_ps(load16(items + 2 * i)));
  add_float16(items, i, count, out);
}

__attribute__((target("avx2"))) void bfloat16_avx2(const std::byte* items, std::int64_t count,
                                                   const float*, const float*, float* out) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i wide = _mm256_cvtepu16_epi32(load16(items + 2 * i));
    add8(out + i, _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16)));
  }
  add_bfloat16(items, i, count, out);
}

__attribute__((target("avx2"))) void int8_avx2(const std::byte* items, std::int64_t count,
                                               const float* scale, const float* zero_point,
                                               float* out) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(items + i));
    const __m256 values = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
    const __m256 scaled = _mm256_mul_ps(values, _mm256_loadu_ps(scale + i));
    add8(out + i, _mm256_add_ps(scaled, _mm256_loadu_ps(zero_point + i)));
  }
  add_int8(items, i, count, scale, zero_point, out);
}

#endif

}  // namespace

AddItems portable_adder(const RowCode* code) noexcept {
  if (code == nullptr) return float32_portable;
  switch (*code) {
    case RowCode::kFloat16:
      return float16_portable;
    case RowCode::kBFloat16:
      return bfloat16_portable;
    default:
      return int8_portable;
  }
}

AddItems adder(const RowCode* code) noexcept {
#ifdef GZ_HAS_AVX2_FUNCTIONS
  if (__builtin_cpu_supports("avx2")) {
    if (code == nullptr) return float32_avx2;
    if (*code == RowCode::kBFloat16) return bfloat16_avx2;
    if (*code == RowCode::kInt8) return int8_avx2;
    if (__builtin_cpu_supports("f16c")) return float16_avx2;
  }
#endif
  return portable_adder(code);
}

}  // namespace gz
