#include "gather/decode.h"

#include <cstring>
#include <stdexcept>
#include <string>

#include "base/half.h"
#include "base/isa.h"

#ifdef GZ_HAS_AVX2_FUNCTIONS
#include <immintrin.h>
#endif

namespace gz {
namespace {

template <class Stored, class Convert>
void decode_each(const std::byte* items, std::int64_t begin, std::int64_t count, std::byte* out,
                 const Convert& convert) {
  for (std::int64_t i = begin; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, items + i * static_cast<std::int64_t>(sizeof stored), sizeof stored);
    const float value = convert(stored, i);
    std::memcpy(out + i * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
  }
}

void decode_float16(const std::byte* items, std::int64_t begin, std::int64_t count,
                    std::byte* out) {
  decode_each<std::uint16_t>(items, begin, count, out,
                             [](std::uint16_t half, std::int64_t) { return from_float16(half); });
}

void decode_bfloat16(const std::byte* items, std::int64_t begin, std::int64_t count,
                     std::byte* out) {
  decode_each<std::uint16_t>(items, begin, count, out,
                             [](std::uint16_t half, std::int64_t) { return from_bfloat16(half); });
}

// Two roundings, never one fused: the same bits on every machine, and a code whose product is
// -zero_point decodes to exactly 0.
void decode_int8(const std::byte* items, std::int64_t begin, std::int64_t count, const float* scale,
                 const float* zero_point, std::byte* out) {
  decode_each<std::int8_t>(items, begin, count, out, [&](std::int8_t code, std::int64_t i) {
    return static_cast<float>(code) * scale[i] + zero_point[i];
  });
}

void float16_portable(const std::byte* items, std::int64_t count, const float*, const float*,
                      std::byte* out) {
  decode_float16(items, 0, count, out);
}

void bfloat16_portable(const std::byte* items, std::int64_t count, const float*, const float*,
                       std::byte* out) {
  decode_bfloat16(items, 0, count, out);
}

void int8_portable(const std::byte* items, std::int64_t count, const float* scale,
                   const float* zero_point, std::byte* out) {
  decode_int8(items, 0, count, scale, zero_point, out);
}

#ifdef GZ_HAS_AVX2_FUNCTIONS

__attribute__((target("avx2"))) inline __m128i load16(const std::byte* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

__attribute__((target("avx2"))) inline void store8(std::byte* at, __m256 values) {
  _mm256_storeu_ps(reinterpret_cast<float*>(at), values);
}

__attribute__((target("avx2,f16c"))) void float16_avx2(const std::byte* items, std::int64_t count,
                                                       const float*, const float*, std::byte* out) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) store8(out + 4 * i, _mm256_cvtph_ps(load16(items + 2 * i)));
  decode_float16(items, i, count, out);
}

__attribute__((target("avx2"))) void bfloat16_avx2(const std::byte* items, std::int64_t count,
                                                   const float*, const float*, std::byte* out) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i wide = _mm256_cvtepu16_epi32(load16(items + 2 * i));
    store8(out + 4 * i, _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16)));
  }
  decode_bfloat16(items, i, count, out);
}

__attribute__((target("avx2"))) void int8_avx2(const std::byte* items, std::int64_t count,
                                               const float* scale, const float* zero_point,
                                               std::byte* out) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(items + i));
    const __m256 values = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
    const __m256 scaled = _mm256_mul_ps(values, _mm256_loadu_ps(scale + i));
    store8(out + 4 * i, _mm256_add_ps(scaled, _mm256_loadu_ps(zero_point + i)));
  }
  decode_int8(items, i, count, scale, zero_point, out);
}

#endif

}  // namespace

RowCode row_code(std::string_view dtype) {
  if (dtype == "float16") return RowCode::kFloat16;
  if (dtype == "bfloat16") return RowCode::kBFloat16;
  if (dtype == "int8") return RowCode::kInt8;
  throw std::invalid_argument("encoding: found '" + std::string(dtype) +
                              "', expected float16, bfloat16 or int8");
}

std::int64_t code_bytes(RowCode code) noexcept { return code == RowCode::kInt8 ? 1 : 2; }

DecodeItems portable_decoder(RowCode code) noexcept {
  switch (code) {
    case RowCode::kFloat16:
      return float16_portable;
    case RowCode::kBFloat16:
      return bfloat16_portable;
    default:
      return int8_portable;
  }
}

DecodeItems decoder(RowCode code) noexcept {
#ifdef GZ_HAS_AVX2_FUNCTIONS
  if (__builtin_cpu_supports("avx2")) {
    if (code == RowCode::kFloat16 && __builtin_cpu_supports("f16c")) return float16_avx2;
    if (code == RowCode::kBFloat16) return bfloat16_avx2;
    if (code == RowCode::kInt8) return int8_avx2;
  }
#endif
  return portable_decoder(code);
}

}  // namespace gz
