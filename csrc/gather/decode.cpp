#include "gather/decode.h"

#include <cstring>

#include "base/half.h"
#include "base/isa.h"

#ifdef GZ_HAS_AVX2_FUNCTIONS
#include <immintrin.h>
#endif

namespace gz {
namespace {

// What becomes of a number once it is decoded.
struct Store {
  static void put(std::byte* at, float value) { std::memcpy(at, &value, sizeof value); }
#ifdef GZ_HAS_AVX2_FUNCTIONS
  __attribute__((target("avx2"))) static void put8(std::byte* at, __m256 values) {
    _mm256_storeu_ps(reinterpret_cast<float*>(at), values);
  }
#endif
};

struct Add {
  static void put(std::byte* at, float value) {
    float sum;
    std::memcpy(&sum, at, sizeof sum);
    sum += value;
    std::memcpy(at, &sum, sizeof sum);
  }
#ifdef GZ_HAS_AVX2_FUNCTIONS
  __attribute__((target("avx2"))) static void put8(std::byte* at, __m256 values) {
    auto* const to = reinterpret_cast<float*>(at);
    _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), values));
  }
#endif
};

template <class Put, class Stored, class Convert>
void decode_each(const std::byte* items, std::int64_t begin, std::int64_t count, std::byte* out,
                 const Convert& convert) {
  for (std::int64_t i = begin; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, items + i * static_cast<std::int64_t>(sizeof stored), sizeof stored);
    Put::put(out + i * static_cast<std::int64_t>(sizeof(float)), convert(stored, i));
  }
}

template <class Put>
void decode_float32(const std::byte* items, std::int64_t begin, std::int64_t count,
                    std::byte* out) {
  decode_each<Put, float>(items, begin, count, out,
                          [](float value, std::int64_t) { return value; });
}

template <class Put>
void decode_float16(const std::byte* items, std::int64_t begin, std::int64_t count,
                    std::byte* out) {
  decode_each<Put, std::uint16_t>(items, begin, count, out, [](std::uint16_t half, std::int64_t) {
    return from_float16(half);
  });
}

template <class Put>
void decode_bfloat16(const std::byte* items, std::int64_t begin, std::int64_t count,
                     std::byte* out) {
  decode_each<Put, std::uint16_t>(items, begin, count, out, [](std::uint16_t half, std::int64_t) {
    return from_bfloat16(half);
  });
}

// Two roundings, never one fused: the same bits on every machine, and a code whose product is
// -zero_point decodes to exactly 0.
template <class Put>
void decode_int8(const std::byte* items, std::int64_t begin, std::int64_t count, const float* scale,
                 const float* zero_point, std::byte* out) {
  decode_each<Put, std::int8_t>(items, begin, count, out, [&](std::int8_t code, std::int64_t i) {
    return static_cast<float>(code) * scale[i] + zero_point[i];
  });
}

template <class Put>
void float32_portable(const std::byte* items, std::int64_t count, const float*, const float*,
                      std::byte* out) {
  decode_float32<Put>(items, 0, count, out);
}

template <class Put>
void float16_portable(const std::byte* items, std::int64_t count, const float*, const float*,
                      std::byte* out) {
  decode_float16<Put>(items, 0, count, out);
}

template <class Put>
void bfloat16_portable(const std::byte* items, std::int64_t count, const float*, const float*,
                       std::byte* out) {
  decode_bfloat16<Put>(items, 0, count, out);
}

template <class Put>
void int8_portable(const std::byte* items, std::int64_t count, const float* scale,
                   const float* zero_point, std::byte* out) {
  decode_int8<Put>(items, 0, count, scale, zero_point, out);
}

#ifdef GZ_HAS_AVX2_FUNCTIONS

__attribute__((target("avx2"))) inline __m128i load16(const std::byte* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

template <class Put>
__attribute__((target("avx2"))) void float32_avx2(const std::byte* items, std::int64_t count,
                                                  const float*, const float*, std::byte* out) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    Put::put8(out + 4 * i, _mm256_loadu_ps(reinterpret_cast<const float*>(items + 4 * i)));
  }
  decode_float32<Put>(items, i, count, out);
}

template <class Put>
__attribute__((target("avx2,f16c"))) void float16_avx2(const std::byte* items, std::int64_t count,
                                                       const float*, const float*, std::byte* out) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) Put::put8(out + 4 * i, _mm256_cvtph_ps(load16(items + 2 * i)));
  decode_float16<Put>(items, i, count, out);
}

template <class Put>
__attribute__((target("avx2"))) void bfloat16_avx2(const std::byte* items, std::int64_t count,
                                                   const float*, const float*, std::byte* out) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i wide = _mm256_cvtepu16_epi32(load16(items + 2 * i));
    Put::put8(out + 4 * i, _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16)));
  }
  decode_bfloat16<Put>(items, i, count, out);
}

template <class Put>
__attribute__((target("avx2"))) void int8_avx2(const std::byte* items, std::int64_t count,
                                               const float* scale, const float* zero_point,
                                               std::byte* out) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(items + i));
    const __m256 values = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
    const __m256 scaled = _mm256_mul_ps(values, _mm256_loadu_ps(scale + i));
    Put::put8(out + 4 * i, _mm256_add_ps(scaled, _mm256_loadu_ps(zero_point + i)));
  }
  decode_int8<Put>(items, i, count, scale, zero_point, out);
}

#endif

// Null: float32 as it is.
template <class Put>
DecodeItems portable(const Encoding* encoding) noexcept {
  if (encoding == nullptr) return float32_portable<Put>;
  switch (*encoding) {
    case Encoding::kFloat16:
      return float16_portable<Put>;
    case Encoding::kBFloat16:
      return bfloat16_portable<Put>;
    default:
      return int8_portable<Put>;
  }
}

template <class Put>
DecodeItems fastest(const Encoding* encoding) noexcept {
#ifdef GZ_HAS_AVX2_FUNCTIONS
  if (__builtin_cpu_supports("avx2")) {
    if (encoding == nullptr) return float32_avx2<Put>;
    if (*encoding == Encoding::kFloat16 && __builtin_cpu_supports("f16c")) return float16_avx2<Put>;
    if (*encoding == Encoding::kBFloat16) return bfloat16_avx2<Put>;
    if (*encoding == Encoding::kInt8) return int8_avx2<Put>;
  }
#endif
  return portable<Put>(encoding);
}

}  // namespace

DecodeItems portable_decoder(Encoding encoding) noexcept { return portable<Store>(&encoding); }

DecodeItems decoder(Encoding encoding) noexcept { return fastest<Store>(&encoding); }

DecodeItems portable_adder(const Encoding* encoding) noexcept { return portable<Add>(encoding); }

DecodeItems adder(const Encoding* encoding) noexcept { return fastest<Add>(encoding); }

}  // namespace gz
