// float16 and bfloat16: the nearest number of 16 bits, and what is beyond its range becomes the
// largest in it.
#include "base/half.h"
#include "storage/encoding_loops.h"

namespace gz {
namespace {

template <auto narrow, auto widen, std::uint32_t kFirstClipped>
struct Half {
  using Code = std::uint16_t;
  static constexpr bool kIsFinite = false;

  static float decode(Code code, std::int64_t, const float*, const float*) {
    return std::bit_cast<float>(widen(code));
  }

  GZ_INLINE static void encode(const Lanes<float>& values, const ScaleTile&, Lanes<Code>& codes,
                               Lanes<float>& decoded, Lanes<std::int32_t>& clipped) {
    constexpr auto kLimit = static_cast<std::int32_t>(kFirstClipped);
    Lanes<std::uint32_t> halves;
    for_lanes([&](std::size_t c) { halves[c] = narrow(std::bit_cast<std::uint32_t>(values[c])); });
    for_lanes([&](std::size_t c) {
      decoded[c] = std::bit_cast<float>(widen(halves[c]));
      const std::int32_t magnitude = magnitude_of(values[c]);
      clipped[c] = (magnitude >= kLimit) & (magnitude < kInfinity);
    });
    for_lanes([&](std::size_t c) { codes[c] = static_cast<Code>(halves[c]); });
  }
};

#ifdef GZ_HAS_AVX2_FUNCTIONS
GZ_AVX2 __m128i load8(const std::byte* items, std::int64_t i) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(items + 2 * i));
}
#endif

struct Float16 : Half<narrow_float16, widen_float16, kFloat16Limit> {
#ifdef GZ_HAS_AVX2_FUNCTIONS
  GZ_AVX2 static __m256 decode8(const std::byte* items, std::int64_t i, const float*,
                                const float*) {
    return _mm256_cvtph_ps(load8(items, i));
  }
#endif
};

struct BFloat16 : Half<narrow_bfloat16, widen_bfloat16, kBFloat16Limit> {
#ifdef GZ_HAS_AVX2_FUNCTIONS
  GZ_AVX2 static __m256 decode8(const std::byte* items, std::int64_t i, const float*,
                                const float*) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load8(items, i)), 16));
  }
#endif
};

}  // namespace

const EncodingKernels& float16_kernels(Machine machine) noexcept {
  return kernels_of<Float16>(machine);
}

const EncodingKernels& bfloat16_kernels(Machine machine) noexcept {
  return kernels_of<BFloat16>(machine);
}

}  // namespace gz
